"""What ranking reads of a row: the features that no request changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctx_pipeline.contracts import ItemKind, WhenToLoad
from ctx_pipeline.index.rows import Row
from ctx_pipeline.security.visibility import ALWAYS
from ctx_pipeline.stages.codebook import KINDS, SECTION_LIST, WHEN
from ctx_pipeline.stages.discover.periods import named_span
from ctx_pipeline.stages.rank.duplicates import mark_columns
from ctx_pipeline.stages.sections import section_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What ranking knows of a source."""

    name: str
    kind: str
    when_to_load: WhenToLoad
    warn_after: int
    """Microseconds after which items count as ageing; `NEVER` without a freshness window."""
    fail_after: int


def batch(
    rows: Sequence[Row], sources: Sequence[SourceFacts], marks: pa.Table | None = None
) -> pa.Table:
    """Return the features of each row that no request changes. `marks` are the rows'
    `duplicates.signatures`.

    Columns: kind, section, source, when_to_load (numbers of the codebook and of `sources`),
    authority, confidence, verified_at (microseconds; `ALWAYS` where the source's own refresh
    counts), content_number, dated_at, span_from and span_until (what it is about: the period its
    title names, else its own time; equal for none), twins, signature.
    """
    import pyarrow as pa

    number_of = {source.name: number for number, source in enumerate(sources)}
    order = [number_of[row.source] for row in rows]
    spans = [named_span(row.title) or _instant(row.dated_at) for row in rows]
    sections = [SECTION_LIST.index(section_of(ItemKind(row.kind), row.trust)) for row in rows]
    return pa.table(
        {
            "kind": pa.array([KINDS.index(row.kind) for row in rows], pa.uint8()),
            "section": pa.array(sections, pa.uint8()),
            "source": pa.array(order, pa.int16()),
            "when_to_load": pa.array(
                [WHEN.index(sources[number].when_to_load) for number in order], pa.uint8()
            ),
            "authority": pa.array([row.authority for row in rows], pa.int16()),
            "confidence": pa.array([row.confidence for row in rows], pa.float32()),
            "verified_at": pa.array([row.verified_at for row in rows], pa.int64()),
            "content_number": pa.array([row.content_number for row in rows], pa.int64()),
            "dated_at": pa.array([row.dated_at for row in rows], pa.int64()),
            "span_from": pa.array([first for first, _ in spans], pa.int64()),
            "span_until": pa.array([last for _, last in spans], pa.int64()),
            **mark_columns(rows, marks),
        }
    )


def _instant(moment: int) -> tuple[int, int]:
    return (0, 0) if moment == ALWAYS else (moment, moment + 1)
