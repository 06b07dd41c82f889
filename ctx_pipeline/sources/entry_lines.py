"""On which line of its file a record says something."""

from __future__ import annotations

from pathlib import Path

from ctx_pipeline.contracts import ContextItem

MAX_FILE_BYTES = 32 * 1024 * 1024


def line_of_entry(home: Path, item: ContextItem, key: str, value: str) -> int | None:
    """Return the line on which a record gives `value` for `key`, else where the record begins; None
    if unknown.

    Looked at are the lines of the record and, of a document, the front matter above it.
    """
    where = item.provenance.locator
    first, last = where.line_start, where.line_end
    if where.path is None or first is None:
        return first
    try:
        file = home / where.path
        lines = [] if file.stat().st_size > MAX_FILE_BYTES else file.read_bytes().splitlines()
    except OSError:
        return first
    own = range(first - 1, min(last or first, len(lines)))
    head = range(0) if first == last else range(min(first - 1, len(lines)))
    for numbers in (own, head):
        named = False
        for at in numbers:
            named = named or key.encode() in lines[at]
            if named and value.encode() in lines[at]:
                return at + 1
    return first
