"""Rank: what matters most. The batch half writes the features that do not depend on the request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctx_pipeline.contracts import (
    ConflictRecord,
    ContextRequest,
    EffectivePolicy,
    Exclusion,
    ItemKind,
    WhenToLoad,
)
from ctx_pipeline.index.rows import Row
from ctx_pipeline.security.visibility import ALWAYS, Clock
from ctx_pipeline.stages import routing
from ctx_pipeline.stages.candidates import REQUEST_ROW, Candidate
from ctx_pipeline.stages.codebook import KINDS, SECTION_LIST, WHEN
from ctx_pipeline.stages.discover.periods import Period, named_span
from ctx_pipeline.stages.discover.queries import LONG_MEANING, is_long
from ctx_pipeline.stages.discover.serve import DEPENDENCY, LEXICAL, NEIGHBOUR_DECAY, VECTOR
from ctx_pipeline.stages.rank import conflicts as conflict_stage
from ctx_pipeline.stages.rank.duplicates import fold_duplicates, fold_near_duplicates, mark_columns
from ctx_pipeline.stages.rank.features import Case, add_scores
from ctx_pipeline.stages.rank.related import lift_related, link_columns, spread_chunks
from ctx_pipeline.stages.rank.rerank import rerank
from ctx_pipeline.stages.sections import section_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.index.reader import ServingView
    from ctx_pipeline.index.reranker import Reranker

RANKING_VERSION = "rank-3"
"""Changes whenever the same candidates could be ordered differently; part of every snapshot."""

EVEN_SHARE = 0.5
"""Share of meaning at which words and meaning weigh the same."""
TARGET_TOKENS = 8_000
"""What a pack aims for where nobody says it."""
_PROACTIVE = frozenset({WhenToLoad.ALWAYS.value, WhenToLoad.PREFETCH.value})
_INSTRUCTION = ItemKind.INSTRUCTION.value
_ON_REQUEST = WhenToLoad.ON_REQUEST.value


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What ranking knows of a source."""

    name: str
    kind: str
    when_to_load: WhenToLoad
    warn_after: int
    """Microseconds after which items count as ageing; `NEVER` without a freshness window."""
    fail_after: int


@dataclass(frozen=True, slots=True)
class Ranked:
    """Candidates with features and scores, and the conflicts found between them."""

    candidates: list[Candidate]
    conflicts: tuple[ConflictRecord, ...]


def batch(
    rows: Sequence[Row], sources: Sequence[SourceFacts], marks: pa.Table | None = None
) -> pa.Table:
    """Return the features of each row that no request changes. `marks` are the rows' `duplicates.signatures`.

    Columns: kind, section, source, when_to_load (numbers of the codebook and of `sources`), authority, confidence,
    verified_at (microseconds; `ALWAYS` where the source's own refresh counts), content_number, dated_at, span_from and
    span_until (what it is about: the period its title names, else its own time; equal for none), twins, signature.
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


def serve(
    candidates: Sequence[Candidate],
    view: ServingView,
    *,
    policy: EffectivePolicy,
    clock: Clock,
    refreshed: Mapping[str, int],
    request: ContextRequest,
    periods: Sequence[Period] = (),
    target: int = TARGET_TOKENS,
    reranker: Reranker | None = None,
) -> Ranked:
    """Score the candidates that are still in, route tools, fold duplicates, resolve conflicts.

    `refreshed` says when each source was last read, in microseconds, `periods` what the request's time words mean,
    `target` how many tokens the pack aims for, and `reranker` looks again at the best. Order: descending score, ties by
    item id and version; excluded candidates keep their place at the end.
    """
    alive = [candidate for candidate in candidates if candidate.excluded is None]
    indexed = [candidate for candidate in alive if candidate.row != REQUEST_ROW]
    kept = LONG_MEANING if is_long(request.task.text) else 1.0
    _relevance(indexed, {kind: share * kept for kind, share in policy.fusion.items()})
    lift_related(indexed)
    if reranker is not None:
        rerank(indexed, request.task.text, view.reader, reranker)
    rows = [candidate.row for candidate in indexed] if periods else []
    case = Case(
        policy=policy,
        clock=clock,
        refreshed=refreshed,
        request=request,
        periods=periods,
        spans=dict(zip(rows, view.reader.spans(rows), strict=True)),
        target=target,
    )
    add_scores(indexed, case)
    for candidate in alive:
        if candidate.row == REQUEST_ROW:
            candidate.features = {"relevance": 1.0}
            candidate.score = 1.0
    alive.sort(key=_best_first)
    _layer_instructions(indexed, request)
    routing.prefer_offered(indexed, request)
    fold_duplicates(indexed)
    fold_near_duplicates(indexed, view.reader)
    left = [c for c in alive if c.excluded is None]
    conflicts = conflict_stage.serve(
        left, view.reader, policy=policy, refreshed=refreshed, request=request
    )
    if conflicts:
        alive.sort(key=_best_first)
    _cut_low_rank(indexed, policy)
    routing.serve(alive, view.reader.tools, policy, request)
    excluded = [candidate for candidate in candidates if candidate.excluded is not None]
    excluded.sort(key=lambda candidate: (candidate.item_id, candidate.version))
    return Ranked([*(c for c in alive if c.excluded is None), *excluded], conflicts)


def _best_first(candidate: Candidate) -> tuple[float, str, str]:
    return -candidate.score, candidate.item_id, candidate.version


def _relevance(candidates: Sequence[Candidate], fusion: Mapping[str, float]) -> None:
    """Fuse meaning and words into 0 to 1; a neighbour inherits a share of what led to it.

    Convex fusion of min-max scores (Bruch et al., TOIS 2023); `fusion` is the share of meaning by kind.
    """
    hits = [c for c in candidates if VECTOR in c.discovered_by or LEXICAL in c.discovered_by]
    top_dense = max((candidate.dense for candidate in hits), default=0.0)
    low_dense = min((candidate.dense for candidate in hits), default=0.0)
    top_lexical = max((candidate.lexical for candidate in hits), default=0.0)
    span = top_dense - low_dense
    relevance: dict[str, float] = {}
    for candidate in candidates:
        dense = (candidate.dense - low_dense) / span if span > 1e-6 else float(candidate.dense > 0)
        dense = min(1.0, max(0.0, dense))
        words = candidate.lexical / top_lexical if top_lexical > 0 else 0.0
        share = fusion[candidate.kind]
        value = share * dense + (1 - share) * words
        candidate.signal = max(dense, words)
        candidate.features["relevance"] = value
        relevance[candidate.item_id] = max(value, relevance.get(candidate.item_id, 0.0))
    link_columns(candidates)
    spread_chunks(candidates)
    for candidate in candidates:
        if candidate.parent is not None and DEPENDENCY in candidate.discovered_by:
            inherited = NEIGHBOUR_DECAY * relevance.get(candidate.parent, 0.0)
            candidate.lent = max(0.0, inherited - candidate.features["relevance"])
            candidate.features["relevance"] += candidate.lent


def _layer_instructions(candidates: Sequence[Candidate], request: ContextRequest) -> None:
    """Keep the instructions of the project and of the folders above the file at hand (`state.path`)."""
    path = str(request.state.get("path", "")).replace("\\", "/").strip("/")
    for candidate in candidates:
        if candidate.kind == _INSTRUCTION and candidate.excluded is None:
            folder = candidate.item_id.partition("/")[2].rpartition("/")[0]
            if folder and not path.startswith(f"{folder}/"):
                candidate.excluded = Exclusion.LOW_RANK
                candidate.counterfactual = (
                    f"applies to files under {folder}/: name the file at hand in state.path"
                )


def _cut_low_rank(candidates: Sequence[Candidate], policy: EffectivePolicy) -> None:
    """Leave out hits far below the best one, and what loads only on request.

    Half of the stronger of meaning and words counts where the kind's own weights give less: they order hits, and a
    hit that one of the two speaks for is none to leave out. The floor is lower for kinds that live by their words: one
    without any of them reaches no more than the share of its meaning.
    """
    alive = [candidate for candidate in candidates if candidate.excluded is None]
    best = max((candidate.features["relevance"] for candidate in alive), default=0.0)
    floor = best * policy.min_relevance
    for candidate in alive:
        if candidate.when_to_load in _PROACTIVE or routing.REFERENCED in candidate.discovered_by:
            continue
        relevance = candidate.features["relevance"]
        least = floor * min(1.0, policy.fusion[candidate.kind] / EVEN_SHARE)
        if candidate.when_to_load == _ON_REQUEST:
            candidate.excluded = Exclusion.LOW_RANK
            candidate.counterfactual = "loads only on request: expand it by id"
        elif max(relevance, candidate.signal / 2) < least:
            candidate.excluded = Exclusion.LOW_RANK
            candidate.counterfactual = f"+{least - relevance:.2f} relevance"
