"""The context project as a Dagster resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

if TYPE_CHECKING:
    from ctx_pipeline.project import ContextProject
    from ctx_pipeline.workspace import Workspace


class ContextProjectResource(dg.ConfigurableResource[None]):
    """Opens the context project that this code location serves."""

    home: str = Field(description="Folder of ctx.toml.")

    def open(self) -> ContextProject:
        """Open the project for reading: assemble, explain, replay. Close it, or use `with`."""
        from ctx_pipeline.project import ContextProject

        return ContextProject.open(self.home)

    def workspace(self) -> Workspace:
        """Open what building stands on: settings, store and ledger. Close it, or use `with`."""
        from ctx_pipeline.workspace import Workspace

        return Workspace.open(self.home)
