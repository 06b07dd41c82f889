"""A context project as a component: some YAML mounts it in somebody's own code location."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
from pydantic import Field

from ctx_pipeline.config.settings import load_config
from ctx_pipeline.definitions import mounted_definitions


class ContextProjectComponent(dg.Component, dg.Model, dg.Resolvable):
    """Mounts a context project: its assets, checks, jobs, schedules and sensors.

    One project a code location: its asset keys are those of `ctx build`. Executor and loggers stay
    those of the code location.
    """

    home: str = Field(
        description="Folder of ctx.toml; a relative one starts at the folder of this file.",
        examples=["../../../shop", "{{ env.CTX_HOME }}"],
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the graph of the project.

        Raises:
            ConfigError: there is no `ctx.toml` in the folder, or it is wrong.
        """
        home = folder_of(self.home, context.path)
        load_config(home)
        return mounted_definitions(home)


def folder_of(home: str, here: Path) -> Path:
    """Return the folder that `home` names, seen from the file or folder of a component."""
    start = here if here.is_dir() else here.parent
    return (start / Path(home).expanduser()).resolve()
