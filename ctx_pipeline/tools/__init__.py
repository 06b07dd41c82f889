"""Tools as context: one form for every dialect, what is wrong with a definition, and how it has
changed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctx_pipeline.tools.drift import ToolChange, ToolDrift, diff
    from ctx_pipeline.tools.findings import ToolFinding
    from ctx_pipeline.tools.linting import lint

__all__ = ["ToolChange", "ToolDrift", "ToolFinding", "diff", "lint"]

_HOMES = {
    "ToolChange": "drift",
    "ToolDrift": "drift",
    "ToolFinding": "findings",
    "diff": "drift",
    "lint": "linting",
}


def __getattr__(name: str) -> object:
    # Assembling needs the catalogue alone, and the patterns of the linter take longer to compile
    # than all of it.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
