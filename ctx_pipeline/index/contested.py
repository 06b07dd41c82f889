"""Read the contested claims of an artifact: which of some rows contradict each other, and who else
does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa


class Contested:
    """The columns of `contested_table`. Immutable, safe to share between threads."""

    def __init__(self, table: pa.Table) -> None:
        self._about: Any = table.column("claim_about")
        column: Any = table.column("claim_keys")
        self._starts: Any = (
            column.chunk(0).offsets.to_numpy() if column.num_chunks else np.zeros(1, np.int32)
        )
        self._keys: Any = _values(column)
        self._values: Any = _values(table.column("claim_values"))
        # Few rows have contested claims, so that these are short.
        self._rows: Any = np.repeat(np.arange(len(self._starts) - 1), np.diff(self._starts))
        self._order: Any = np.argsort(self._keys, kind="stable")
        self._sorted: Any = self._keys[self._order]

    def of(self, rows: Sequence[int]) -> list[tuple[int, int, int]]:
        """Return (position in `rows`, key, value) for every contested claim of
        the rows, in order.
        """
        if not len(self._keys):
            return []
        where = np.asarray(rows, np.intp)
        first: Any = self._starts[where]
        counts: Any = self._starts[where + 1] - first
        have = np.flatnonzero(counts)
        if not len(have):
            return []
        first, counts = first[have], counts[have]
        ends: Any = np.cumsum(counts)
        claims: Any = np.arange(int(ends[-1])) + np.repeat(first - ends + counts, counts)
        positions = np.repeat(have, counts).tolist()
        return list(
            zip(positions, self._keys[claims].tolist(), self._values[claims].tolist(), strict=True)
        )

    def rivals(
        self, rows: Sequence[int], limit: int, permitted: Callable[[NDArray[np.intp]], list[int]]
    ) -> list[tuple[int, int]]:
        """Return (row, other row that gives one of its claims another value), at most `limit`, row
        by row.

        `permitted` keeps the rows that may be looked at; the others take no place.
        """
        claims = self.of(rows)
        keys = np.asarray([key for _, key, _ in claims], np.int32)
        firsts = np.searchsorted(self._sorted, keys, "left").tolist()
        lasts = np.searchsorted(self._sorted, keys, "right").tolist()
        found: dict[int, int] = {}
        for (at, _, value), first, last in zip(claims, firsts, lasts, strict=True):
            near = self._order[first:last]
            for row in permitted(self._rows[near[self._values[near] != value]]):
                if len(found) < limit:
                    found.setdefault(row, rows[at])
        return [(row, other) for other, row in found.items()]

    def about(self, row: int, key: int) -> str:
        """Return what a row's claim is about, in the row's own words."""
        keys = self._keys[self._starts[row] : self._starts[row + 1]].tolist()
        return self._about[row].as_py()[keys.index(key)]


def _values(column: pa.ChunkedArray) -> Any:
    return column.chunk(0).values.to_numpy() if column.num_chunks else np.empty(0, np.int32)
