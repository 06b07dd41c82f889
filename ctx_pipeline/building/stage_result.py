"""What a stage of the build says of the part that it has written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ctx_pipeline.contracts import FileError


@dataclass(frozen=True, slots=True)
class StageResult:
    """What a stage asset shows of its part."""

    rows: int
    data_version: str
    facts: dict[str, Any]
    sample: tuple[dict[str, Any], ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    """Name and type of each column written."""
    errors: tuple[FileError, ...] = ()
    """What is wrong with items of several sources together."""
