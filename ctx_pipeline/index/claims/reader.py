"""Read the contested claims of an artifact: which of some rows contradict each other, and who else does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


class Contested:
    """The columns of `contested_table`. Immutable, safe to share between threads."""

    def __init__(self, table: pa.Table) -> None:
        self._about: Any = table.column("claim_about")
        column: Any = table.column("claim_keys")
        self._starts: Any = column.chunk(0).offsets.to_numpy() if column.num_chunks else np.zeros(1, np.int32)
        self._keys: Any = _values(column)
        self._values: Any = _values(table.column("claim_values"))
        # Few rows have contested claims, so that these are short.
        self._rows: Any = np.repeat(np.arange(len(self._starts) - 1), np.diff(self._starts))
        self._order: Any = np.argsort(self._keys, kind="stable")
        self._sorted: Any = self._keys[self._order]

    def of(self, rows: Sequence[int]) -> list[tuple[int, int, int]]:
        """Return (position in `rows`, key, value) for every contested claim of the rows, in order."""
        if not len(self._keys):
            return []
        where = np.asarray(rows, np.intp)
        first, last = self._starts[where], self._starts[where + 1]
        return [
            (at, key, value)
            for at in np.flatnonzero(last > first).tolist()
            for key, value in zip(
                self._keys[first[at] : last[at]].tolist(), self._values[first[at] : last[at]].tolist(), strict=True
            )
        ]

    def rivals(self, rows: Sequence[int], limit: int) -> list[tuple[int, int]]:
        """Return (row, other row that gives one of its claims another value), at most `limit`, row by row."""
        found: dict[int, int] = {}
        for at, key, value in self.of(rows):
            first, last = np.searchsorted(self._sorted, key, "left"), np.searchsorted(self._sorted, key, "right")
            for claim in self._order[first:last].tolist():
                if self._values[claim] != value and len(found) < limit:
                    found.setdefault(int(self._rows[claim]), rows[at])
        return [(row, other) for other, row in found.items()]

    def about(self, row: int, key: int) -> str:
        """Return what a row's claim is about, in the row's own words."""
        keys = self._keys[self._starts[row] : self._starts[row + 1]].tolist()
        return self._about[row].as_py()[keys.index(key)]


def _values(column: pa.ChunkedArray) -> Any:
    return column.chunk(0).values.to_numpy() if column.num_chunks else np.empty(0, np.int32)
