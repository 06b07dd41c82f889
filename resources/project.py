"""The context project as a Dagster resource."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

if TYPE_CHECKING:
    from ctx_pipeline.building.pipeline import Pipeline
    from ctx_pipeline.project import ContextProject


class ContextProjectResource(dg.ConfigurableResource[None]):
    """Opens the context project that this code location serves."""

    home: str = Field(description="Folder of ctx.toml.")

    def open(self) -> ContextProject:
        """Open the project for reading: assemble, explain, replay. Close it, or use `with`."""
        from ctx_pipeline.project import ContextProject

        return ContextProject.open(self.home)

    def pipeline(self) -> Pipeline:
        """Open the project's build half. Close it, or use `with`."""
        from ctx_pipeline.building.pipeline import Pipeline

        return Pipeline(Path(self.home))
