"""What a build left unread, in the words of `ctx build`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctx_pipeline.cli.views import Block, Words, cell

if TYPE_CHECKING:
    from ctx_pipeline.contracts import BuildReport

SHOWN_REASONS = 20
SHOWN_PATHS = 5


def skipped_files(report: BuildReport) -> list[Block]:
    """Return which files of the sources are not for them, by source and reason."""
    paths: dict[tuple[str, str], list[str]] = {}
    for source in report.sources:
        for file in source.files:
            if file.status.value == "skipped" and file.reason:
                paths.setdefault((source.name, file.reason), []).append(file.path)
    if not paths:
        return []
    lines = [
        (
            f"  {name}: "
            f"{cell(', '.join(files[:SHOWN_PATHS]))}{' ...' if len(files) > SHOWN_PATHS else ''}: "
            f"{cell(reason)}"
        )
        for (name, reason), files in paths.items()
    ]
    more = len(lines) - SHOWN_REASONS
    tail = [f"  and {more} more reasons"] if more > 0 else []
    count = sum(map(len, paths.values()))
    return [Words("\n".join([f"Skipped: {count} files", *lines[:SHOWN_REASONS], *tail]))]
