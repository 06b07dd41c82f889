"""What a build reports of `supersedes` entries that replace nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ctx_pipeline.contracts import ContextItem, FileCode, FileError
from ctx_pipeline.index.replacements import Refused
from ctx_pipeline.sources.entry_lines import line_of_entry


def not_replaced(
    home: Path, refused: Sequence[Refused], items: Sequence[ContextItem]
) -> tuple[FileError, ...]:
    """Return one error for each refused entry; `items` are those that have them, in order."""
    return tuple(
        FileError(
            path=item.provenance.locator.path or item.provenance.source_id,
            line=line_of_entry(home, item, "supersedes", each.reference),
            code=FileCode.NOT_REPLACED,
            message=f"{item.item_id}: {each.reference!r} in supersedes {each.reason}",
        )
        for each, item in zip(refused, items, strict=True)
    )
