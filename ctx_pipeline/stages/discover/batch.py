"""What discovery looks up: identities, what is connected to what, names, vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ctx_pipeline.index.relations import related_rows
from ctx_pipeline.index.rows import Row, edges, subjects

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float32]


def batch(rows: Sequence[Row]) -> pa.Table:
    """Return what identifies each row and what it is connected to.

    Columns: tenant, item_id, version, title, subject_name, subject (its number, -1 for none),
    chain, edges (rows it needs), related (rows that might help beside it), forms (names it is asked
    for by).
    """
    import pyarrow as pa

    numbers, _ = subjects(rows)
    needed = edges(rows)
    row_lists = pa.list_(pa.field("item", pa.int32()))
    return pa.table(
        {
            "tenant": pa.array([row.tenant for row in rows], pa.large_string()),
            "item_id": pa.array([row.item_id for row in rows], pa.large_string()),
            "version": pa.array([row.version for row in rows], pa.large_string()),
            "title": pa.array([row.title for row in rows], pa.large_string()),
            "subject_name": pa.array([row.subject or "" for row in rows], pa.large_string()),
            "subject": pa.array(numbers, pa.int32()),
            "chain": pa.array([row.chain for row in rows], pa.int32()),
            "edges": pa.array(needed, row_lists),
            "related": pa.array(related_rows(rows, needed), row_lists),
            "forms": pa.array([row.forms for row in rows], pa.list_(pa.field("item", pa.string()))),
        }
    )


def vector_table(vectors: Floats) -> pa.Table:
    """Return the vectors of all rows as one column of fixed-size lists."""
    import pyarrow as pa

    flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1), pa.float32())
    return pa.table({"vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])})


def quantised_table(vectors: Floats, rows: Sequence[Row]) -> pa.Table:
    """Return the small copies of the vectors that searches of large tenants read."""
    from ctx_pipeline.index import quantised

    return quantised.quantised_table(vectors, rows)
