"""Filter: what may never enter. The batch half writes the labels, times and lexical index that the predicate reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ctx_pipeline.index.labels import is_current, label_table, labels_of
from ctx_pipeline.index.lexical import LexicalRow, build_lexical
from ctx_pipeline.index.overlay import ItemKey, Patch
from ctx_pipeline.index.rows import Row
from ctx_pipeline.security.visibility import (
    UNNAMED_CODES,
    Clock,
    ScopeLabel,
    StateColumns,
    Viewer,
    code_of,
)
from ctx_pipeline.stages.candidates import REQUEST_ROW, Candidate

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.index.reader import ServingView

READ_ROWS = 8_192


def batch(
    rows: Sequence[Row],
    patches: Mapping[ItemKey, Patch],
    terms: pa.Table,
    lexical: Path,
    *,
    gone: frozenset[str] = frozenset(),
    source_labels: Mapping[str, ScopeLabel] | None = None,
) -> pa.Table:
    """Label every row with who may see it and when, and index its terms under that label in directory `lexical`.

    `terms` is the `terms_table` of the rows, `gone` are sources that the project no longer has, `source_labels` what
    each source grants today. Returns the table of `label_table`.
    """
    table, columns = label_table(rows, patches, gone=gone, source_labels=source_labels)
    _, tenants = labels_of(table)
    build_lexical(
        lexical,
        (
            LexicalRow(
                row=at,
                tenant=tenants[rows[at].tenant],
                scope=int(columns.scope[at]),
                current=is_current(columns, at),
                title=title,
                body=body,
            )
            for at, title, body in _by_label(
                terms, np.fromiter((tenants[row.tenant] for row in rows), np.int64), columns
            )
        ),
    )
    return table


def _by_label(
    terms: pa.Table, tenants: NDArray[np.int64], columns: StateColumns
) -> Iterator[tuple[int, str, str]]:
    """Yield row, title and body by tenant and label: a search then reads few stretches of each word's list.

    They are read a part at a time: as Python texts, all of them would take twice the room.
    """
    order = np.lexsort((columns.scope, tenants))
    for first in range(0, len(order), READ_ROWS):
        rows = order[first : first + READ_ROWS]
        part = terms.take(rows)
        yield from zip(
            rows.tolist(),
            part.column("title").to_pylist(),
            part.column("body").to_pylist(),
            strict=True,
        )


def serve(
    candidates: Sequence[Candidate], view: ServingView, viewer: Viewer, clock: Clock
) -> list[Candidate]:
    """Judge every indexed candidate again, whatever found it.

    A candidate that a permission rule denies, or that was forgotten, is dropped without a trace of its name. One that
    time or an event rules out stays with its code, but without its title, which may quote its content. What came with
    the request belongs to the caller and passes.
    """
    indexed = np.fromiter((c.row for c in candidates if c.row != REQUEST_ROW), np.intp)
    numbers = iter(view.codes(indexed, viewer, clock).tolist())
    kept: list[Candidate] = []
    for candidate in candidates:
        code = None if candidate.row == REQUEST_ROW else code_of(next(numbers))
        if code in UNNAMED_CODES:
            continue
        candidate.excluded = code
        if code is not None:
            candidate.title = ""
        kept.append(candidate)
    return kept
