"""Read the columns of an artifact where they are mapped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ctx_pipeline.security.visibility import ALWAYS, NEVER, Clock, StateColumns

if TYPE_CHECKING:
    import pyarrow as pa

Rows = NDArray[np.intp]

FIXED_COLUMNS = frozenset({"valid_from", "valid_until", "known_from", "tied"})
"""What follows from the item versions alone."""


@dataclass(frozen=True, slots=True)
class RowFacts:
    """Columns of some rows as lists, all in the order of the rows asked for."""

    item_ids: list[str]
    versions: list[str]
    titles: list[str]
    kinds: list[int]
    sections: list[int]
    sources: list[int]
    whens: list[int]
    subjects: list[int]
    authorities: list[int]
    confidences: list[float]
    verified_at: list[int]
    valid_from: list[int]
    dated_at: list[int]
    contents: list[int]
    tokens: list[list[int]]
    """Exact tokens of the full, compact and pointer renditions."""


def spans(
    ordered: NDArray[np.int32], numbers: NDArray[np.int32]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where each number starts and ends in an ordered column."""
    return np.searchsorted(ordered, numbers, side="left"), np.searchsorted(
        ordered, numbers, side="right"
    )


def numbers(table: pa.Table, name: str) -> Any:
    """Return a column of numbers, which stays where it is mapped."""
    column = table.column(name)
    if column.num_chunks == 0:
        return np.empty(0, column.type.to_pandas_dtype())
    return column.chunk(0).to_numpy(zero_copy_only=True)


def only_chunk(table: pa.Table, name: str) -> Any:
    """Return a column as the one piece that it was written as."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks else column


class Texts:
    """A column of texts, read where they lie: a library's call for a hundred of them takes longer
    than they do.

    Null reads as an empty text.
    """

    def __init__(self, table: pa.Table, name: str) -> None:
        column = only_chunk(table, name)
        self._offsets: Any = np.zeros(1, np.int64)
        self._bytes = memoryview(b"")
        if len(column):
            _, offsets, texts = column.buffers()
            self._offsets = np.frombuffer(offsets, np.int64)
            self._bytes = memoryview(texts or b"")

    def __getitem__(self, row: int) -> str:
        return str(self._bytes[self._offsets[row] : self._offsets[row + 1]], "utf-8")

    def at(self, rows: Rows) -> list[str]:
        """Return the texts of some rows."""
        first, last = self._offsets[rows].tolist(), self._offsets[rows + 1].tolist()
        return [
            str(self._bytes[start:end], "utf-8") for start, end in zip(first, last, strict=True)
        ]


def list_offsets(column: pa.ChunkedArray) -> Any:
    """Return where the list of each row begins, and where the last one ends."""
    return column.chunk(0).offsets.to_numpy() if column.num_chunks else np.zeros(1, np.int32)


def list_values(column: pa.ChunkedArray) -> Any:
    """Return the values of all lists, one after the other."""
    return column.chunk(0).values.to_numpy() if column.num_chunks else np.empty(0, np.int32)


def bisect_texts(column: Texts, value: str, low: int, high: int) -> int:
    """Return the first place, within bounds, of a text that is not before a value."""
    while low < high:
        middle = (low + high) // 2
        if column[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


def unchanged_span(columns: StateColumns, clock: Clock) -> tuple[int, int]:
    """Return the span around the clock in which no row of these begins or ends.

    With an explicit `as_of` the clock decides nothing.
    """
    if clock.as_of is not None:
        return ALWAYS, NEVER
    since, until = ALWAYS, NEVER
    for moments in (columns.valid_from, columns.valid_until, columns.superseded_at):
        is_past = moments <= clock.at
        since = max(since, int(moments.max(where=is_past, initial=ALWAYS)))
        until = min(until, int(moments.min(where=~is_past, initial=NEVER)))
    return since, until


def state_of(columns: StateColumns, rows: Rows | slice) -> StateColumns:
    """Return the columns of some rows; of a slice, where they are mapped."""
    return StateColumns(**{name: getattr(columns, name)[rows] for name in StateColumns.__slots__})


def writable_state(columns: StateColumns) -> StateColumns:
    """Return columns that patches may be written into; what no event changes stays where it is
    mapped.
    """
    return StateColumns(
        **{
            name: getattr(columns, name) if name in FIXED_COLUMNS else getattr(columns, name).copy()
            for name in StateColumns.__slots__
        }
    )
