"""Filter: what may never enter. The batch half writes the labels and times that the predicate
reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ctx_pipeline.contracts import Exclusion
from ctx_pipeline.index.labels import is_served, label_table, within_sources
from ctx_pipeline.index.overlay import ItemKey, Patch
from ctx_pipeline.index.replacements import Refused, replacements
from ctx_pipeline.index.rows import Row
from ctx_pipeline.security.visibility import UNNAMED_CODES, Clock, ScopeLabel, Viewer, code_of
from ctx_pipeline.stages.candidates import REQUEST_ROW, UNDECIDED, Candidate, Judged, Verdict

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.index.view import ServingView


def batch(
    rows: Sequence[Row],
    patches: Mapping[ItemKey, Patch],
    *,
    gone: frozenset[str] = frozenset(),
    source_labels: Mapping[str, ScopeLabel] | None = None,
    may_widen: frozenset[str] = frozenset(),
) -> pa.Table:
    """Label every row with who may see it and when: the table of `label_table`.

    `gone` are sources that the project no longer has, `source_labels` what each source grants
    today, which bounds its items but for those of `may_widen`.
    """
    return label_table(rows, patches, gone=gone, source_labels=source_labels, may_widen=may_widen)


def refused_replacements(
    rows: Sequence[Row],
    table: pa.Table,
    *,
    source_labels: Mapping[str, ScopeLabel] | None = None,
    may_widen: frozenset[str] = frozenset(),
) -> tuple[Refused, ...]:
    """Return the `supersedes` entries that replace nothing, of rows that `table`, made by `batch`,
    has as served.
    """
    if not any(row.supersedes for row in rows):
        return ()
    labels = list(within_sources(rows, source_labels or {}, may_widen))
    retired, states = table.column("retired_at").to_pylist(), table.column("state").to_pylist()
    return replacements(rows, labels, lambda at: is_served(retired[at], states[at])).refused


def serve(
    candidates: Sequence[Candidate], view: ServingView, viewer: Viewer, clock: Clock
) -> Judged:
    """Judge every indexed candidate again, whatever found it.

    A candidate that a permission rule denies, or that was forgotten, is dropped without a trace of
    its name. One that time or an event rules out stays with its code, but without its title, which
    may quote its content. What came with the request belongs to the caller and passes.
    """
    indexed = np.fromiter((c.row for c in candidates if c.row != REQUEST_ROW), np.intp)
    numbers = iter(view.codes(indexed, viewer, clock).tolist())
    verdicts: dict[Candidate, Verdict] = {}
    for candidate in candidates:
        code = None if candidate.row == REQUEST_ROW else code_of(next(numbers))
        if candidate.left_out is not None:
            verdicts[candidate] = UNDECIDED.out(Exclusion.OVER_BUDGET, candidate.left_out)
        elif code is None:
            verdicts[candidate] = UNDECIDED
        elif code not in UNNAMED_CODES:
            verdicts[replace(candidate, title="")] = UNDECIDED.out(code)
    return Judged(list(verdicts), verdicts)
