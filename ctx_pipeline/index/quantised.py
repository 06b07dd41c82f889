"""Small copies of the vectors, one byte a number, which a search reads instead of all vectors.

A small copy is wrong by no more than a bound that the build measures. A search takes every row that
could be among the best within that bound and scores these with their vectors: its answer is the
exact one. For 64 of 25,000 texts in the default model's vectors it scores 420 (median) to 1,940;
one bit a number instead would need more than 4,000 to miss less than 1 in 200, without saying
which.

Rows lie by tenant and label, so that what a viewer may see is a few runs that are read from front
to end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ctx_pipeline.index.rows import Row, tenant_slices

if TYPE_CHECKING:
    import pyarrow as pa

Rows = NDArray[np.intp]
Floats = NDArray[np.float32]

LEAST_ROWS = 4_096
"""Tenants with fewer rows have no small copies: reading their vectors takes less than a
millisecond."""
LEVELS: Final = 127
"""Whole numbers on each side of zero."""
CHUNK_ROWS = 16_384
"""Rows that are quantised, or scanned without a pause for other threads, at a time: half a
millisecond."""
GATHER_ROWS = 512
"""Rows copied at a time where they do not lie side by side: 0.2 MB of 384 numbers each."""
LEAST_RUN = 64
"""Shorter runs are gathered: a call for each costs more."""
GAP_ROWS: Final = 4
"""Rows in between that are scanned rather than let a run end; a gathered row costs three scanned
ones."""
DOT_ROWS = 512
"""Rows multiplied at a time: 0.8 MB of 384 numbers each."""


def quantised_table(vectors: Floats, rows: Sequence[Row]) -> pa.Table:
    """Return the small copies of the vectors of all tenants with at least `LEAST_ROWS` rows.

    Columns: code (int8), row (whose it is). Each column of the vectors less its mean is divided by
    its own scale. The schema's metadata has the scales, the tenants' spans, `row_error` (the
    longest difference between a vector and its copy) and `code_norm` (the longest copy, in steps).
    """
    import pyarrow as pa

    order, spans = _order(rows)
    dim = vectors.shape[1]
    mean, scales = _scales(vectors, order)
    codes = np.empty((len(order), dim), np.int8)
    row_error = code_norm = 0.0
    for first in range(0, len(order), CHUNK_ROWS):
        rest = vectors[order[first : first + CHUNK_ROWS]] - mean
        steps = np.rint(rest / scales)
        codes[first : first + CHUNK_ROWS] = steps
        row_error = max(row_error, float(np.linalg.norm(rest - steps * scales, axis=1).max()))
        code_norm = max(code_norm, float(np.linalg.norm(steps, axis=1).max()))
    facts = {
        "spans": spans,
        "scales": scales.tolist(),
        "row_error": _above(row_error),
        "code_norm": _above(code_norm),
    }
    table = pa.table(
        {
            "code": pa.FixedSizeListArray.from_arrays(pa.array(codes.reshape(-1), pa.int8()), dim),
            "row": pa.array(order, pa.int32()),
        }
    )
    return table.replace_schema_metadata({"quantised": json.dumps(facts, ensure_ascii=False)})


def _order(rows: Sequence[Row]) -> tuple[Rows, dict[str, tuple[int, int]]]:
    """Return the rows of large tenants by tenant, label and row, and each tenant's span."""
    orders: list[Rows] = []
    spans: dict[str, tuple[int, int]] = {}
    start = 0
    for tenant, (first, last) in tenant_slices(rows).items():
        if last - first < LEAST_ROWS:
            continue
        numbers: dict[Any, int] = {}
        labels = [numbers.setdefault(row.label, len(numbers)) for row in rows[first:last]]
        orders.append(np.argsort(np.asarray(labels), kind="stable") + first)
        spans[tenant] = (start, start + last - first)
        start += last - first
    return np.concatenate(orders) if orders else np.empty(0, np.intp), spans


def _scales(vectors: Floats, order: Rows) -> tuple[Floats, Floats]:
    """Return mean and step of each column. Means are coarse, so that no machine's way of adding
    shows.
    """
    total = np.zeros(vectors.shape[1])
    for first in range(0, len(order), CHUNK_ROWS):
        total += vectors[order[first : first + CHUNK_ROWS]].sum(axis=0, dtype=np.float64)
    mean = np.round(total / max(1, len(order)), 4).astype(np.float32)
    most = np.zeros(vectors.shape[1], np.float32)
    for first in range(0, len(order), CHUNK_ROWS):
        np.maximum(
            most, np.abs(vectors[order[first : first + CHUNK_ROWS]] - mean).max(axis=0), out=most
        )
    return mean, np.where(most > 0, most / np.float32(LEVELS), np.float32(1))


def _above(value: float) -> float:
    """Return a little more, in few digits: what was measured was rounded, too."""
    return float(f"{value * 1.001:.4g}")


@dataclass(frozen=True, slots=True)
class Plan:
    """Which copies one viewer's searches read."""

    runs: tuple[tuple[int, int], ...]
    loose: NDArray[np.int32]
    """Places that are read one by one."""
    hidden: NDArray[np.int32]
    """Positions, among all that is read, of what lies in a run and may not be found."""
    starts: NDArray[np.int64]
    """Position at which each run begins, then that of the loose ones."""
    size: int
    """How many copies are read."""


class Quantised:
    """The small copies of one artifact. Immutable, safe to share between threads."""

    def __init__(self, table: pa.Table, dim: int) -> None:
        facts: dict[str, Any] = json.loads(_metadata(table)[b"quantised"])
        self._spans: Mapping[str, Sequence[int]] = facts["spans"]
        self._scales = np.asarray(facts["scales"], np.float32)
        self._row_error: float = facts["row_error"]
        self._code_norm: float = facts["code_norm"]
        self._codes: NDArray[np.int8] = np.empty((0, dim), np.int8)
        self._rows: NDArray[np.int32] = np.empty(0, np.int32)
        if table.num_rows:
            code, row = table.column("code").chunk(0), table.column("row").chunk(0)
            self._codes = code.values.to_numpy(zero_copy_only=True).reshape(-1, dim)
            self._rows = row.to_numpy(zero_copy_only=True)

    def plan(self, tenant: str, first_row: int, visible: NDArray[np.bool_]) -> Plan | None:
        """Return how to search the visible ones of a tenant's rows; None where the tenant has no
        copies.
        """
        span = self._spans.get(tenant)
        if span is None:
            return None
        first, last = span
        shown = visible[self._rows[first:last] - first_row]
        places = np.flatnonzero(shown)
        ends = np.flatnonzero(np.diff(places) > GAP_ROWS + 1) + 1
        groups = np.stack(
            (np.concatenate(([0], ends)), np.concatenate((ends, [len(places)]))), axis=1
        )
        is_run = groups[:, 1] - groups[:, 0] >= LEAST_RUN
        runs = [(int(places[at]), int(places[to - 1]) + 1) for at, to in groups[is_run]]
        starts = np.cumsum([0, *(to - at for at, to in runs)])
        hidden = [
            np.flatnonzero(~shown[at:to]) + start
            for (at, to), start in zip(runs, starts, strict=False)
        ]
        loose = places[np.repeat(~is_run, groups[:, 1] - groups[:, 0])] + first
        return Plan(
            runs=tuple((at + first, to + first) for at, to in runs),
            loose=loose.astype(np.int32),
            hidden=np.concatenate([np.empty(0, np.intp), *hidden]).astype(np.int32),
            starts=starts,
            size=int(starts[-1]) + len(loose),
        )

    def candidates(self, plan: Plan, vector: Floats, limit: int) -> Rows:
        """Return, in order, every row of a plan that can be among the `limit` nearest to a vector;
        all of equal rank.

        At least `limit` rows where there are as many.
        """
        if not plan.size:
            return np.empty(0, np.intp)
        weighted = vector * self._scales
        step = float(np.abs(weighted).max()) / LEVELS or 1.0
        query = np.rint(weighted / np.float32(step))
        scores = self._scan(plan, query.astype(np.int8))
        error = float(np.linalg.norm(vector)) * self._row_error
        error += float(np.linalg.norm(weighted - query * np.float32(step))) * self._code_norm
        found = (
            np.arange(plan.size)
            if plan.size <= limit
            else self._within(scores, limit, 2.001 * error / step + 1)
        )
        return np.sort(
            self._rows[self._places(plan, found[scores[found] > -np.inf])].astype(np.intp)
        )

    @staticmethod
    def _within(scores: Floats, limit: int, error: float) -> Rows:
        """Return the positions of all scores that reach the `limit`-th one within an error."""
        least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        return np.flatnonzero(scores >= least - np.float32(error))

    def _scan(self, plan: Plan, query: NDArray[np.int8]) -> Floats:
        """Return the exact product of a quantised query with each copy of a plan, -inf where it may
        not be found.
        """
        # Whole numbers below 2**24, which single precision holds exactly.
        from numkong import cdist

        scores = np.empty((1, plan.size), np.float32)
        whole = query[np.newaxis]
        at = 0
        for first, last in plan.runs:
            for start in range(first, last, CHUNK_ROWS):
                part = self._codes[start : min(start + CHUNK_ROWS, last)]
                cdist(whole, part, "dot", out=scores[:, at : at + len(part)], out_dtype="float32")
                at += len(part)
        buffer = np.empty((GATHER_ROWS, self._codes.shape[1]), np.int8)
        for start in range(0, len(plan.loose), GATHER_ROWS):
            places = plan.loose[start : start + GATHER_ROWS]
            part = buffer[: len(places)]
            np.take(self._codes, places, axis=0, out=part, mode="clip")
            cdist(whole, part, "dot", out=scores[:, at : at + len(part)], out_dtype="float32")
            at += len(part)
        scores[0, plan.hidden] = -np.inf
        return scores[0]

    @staticmethod
    def _places(plan: Plan, positions: Rows) -> Rows:
        """Return the place of each position among all that a plan reads."""
        run = np.searchsorted(plan.starts, positions, side="right") - 1
        begins = np.array([first for first, _ in plan.runs] + [0], np.int64)
        places = begins[run] + positions - plan.starts[run]
        is_loose = run == len(plan.runs)
        places[is_loose] = plan.loose[positions[is_loose] - int(plan.starts[-1])]
        return places


def _metadata(table: pa.Table) -> dict[bytes, bytes]:
    metadata: Any = table.schema.metadata
    return metadata or {}


def dot_rows(vectors: Floats, rows: Rows, vector: Floats) -> Floats:
    """Return the dot product of some rows with a vector, a few rows at a time.

    Small steps keep the copied rows in the cache, and the product on this thread: a library's
    thread pool makes one request faster and many at once slower.
    """
    scores = np.empty(len(rows), np.float32)
    buffer = np.empty((DOT_ROWS, vectors.shape[1]), np.float32)
    for first in range(0, len(rows), DOT_ROWS):
        last = min(first + DOT_ROWS, len(rows))
        part = buffer[: last - first]
        np.take(vectors, rows[first:last], axis=0, out=part, mode="clip")
        np.dot(part, vector, out=scores[first:last])
    return scores


def can_be_best(scores: Floats, limit: int, dim: int) -> Rows:
    """Return the positions of all scores that can be among the `limit` best, given how sums of
    single precision err.

    Vectors have length 1, so that an error is at most `dim` roundings of 2**-24.
    """
    least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    return np.flatnonzero(scores >= least - np.float32(2 * dim * 2.0**-24))
