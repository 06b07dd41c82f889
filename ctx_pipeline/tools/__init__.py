"""Tools as context: one form for every dialect, what is wrong with a definition, and how it has changed."""

from __future__ import annotations

from ctx_pipeline.tools.drift import ToolChange, ToolDrift, diff
from ctx_pipeline.tools.findings import ToolFinding
from ctx_pipeline.tools.linting import lint

__all__ = ["ToolChange", "ToolDrift", "ToolFinding", "diff", "lint"]
