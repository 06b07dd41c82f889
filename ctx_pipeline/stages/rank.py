"""Rank: what matters most. The batch half writes the features that do not depend on the request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctx_pipeline.contracts import (
    ConflictRecord,
    ConflictSide,
    ContextRequest,
    EffectivePolicy,
    Exclusion,
    ItemKind,
    WhenToLoad,
)
from ctx_pipeline.index.catalogue import Row
from ctx_pipeline.security.visibility import ALWAYS, Clock
from ctx_pipeline.stages.candidates import REQUEST_ROW, Candidate
from ctx_pipeline.stages.codebook import KINDS, SECTION_LIST, WHEN
from ctx_pipeline.stages.discover import DEPENDENCY, LEXICAL, NEIGHBOUR_DECAY, VECTOR
from ctx_pipeline.stages.duplicates import fold_duplicates, fold_near_duplicates, mark_columns
from ctx_pipeline.stages.features import Case, add_scores
from ctx_pipeline.stages.periods import Period, named_span
from ctx_pipeline.stages.related import lift_related, link_columns, spread_chunks
from ctx_pipeline.stages.rerank import rerank
from ctx_pipeline.stages.sections import TOOLS, section_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.index.reader import ArtifactReader, ServingView
    from ctx_pipeline.index.reranker import Reranker

RANKING_VERSION = "rank-2"
"""Changes whenever the same candidates could be ordered differently; part of every snapshot."""

DENSE_WEIGHT = 0.5
"""Share of the embedding in relevance; the rest is BM25. Convex fusion of min-max scores (Bruch et al., TOIS 2023)."""
DENSE_WEIGHTS: dict[str, float] = {
    ItemKind.TOOL.value: 0.7,
    ItemKind.DOCUMENT.value: 0.7,
    ItemKind.MEMORY.value: 0.4,
    ItemKind.SCHEMA.value: 0.3,
}
"""Share of the embedding for kinds that differ: requests say what a tool is for in other words than the tool does, and
name columns by their names. Chosen on one half of the questions of `bench.retrieval`."""
TARGET_TOKENS = 8_000
"""What a pack aims for where nobody says it."""
_PROACTIVE = frozenset({WhenToLoad.ALWAYS.value, WhenToLoad.PREFETCH.value})
_INSTRUCTION = ItemKind.INSTRUCTION.value
_ON_REQUEST = WhenToLoad.ON_REQUEST.value

CLAIM_KINDS = frozenset({ItemKind.METRIC.value, ItemKind.MEMORY.value, ItemKind.GLOSSARY.value})
"""Kinds whose items state what their subject is; two of them with one subject and different text contradict."""


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


def batch(rows: Sequence[Row], sources: Sequence[SourceFacts], marks: pa.Table | None = None) -> pa.Table:
    """Return the features of each row that no request changes. `marks` are the rows' `duplicates.signatures`.

    Columns: kind, section, source, when_to_load (numbers of the codebook and of `sources`), authority, confidence,
    verified_at (microseconds; `ALWAYS` where the source's own refresh counts), content_number, dated_at, span_from and
    span_until (what it is about: the period its title names, else its own time; equal for none), twins, signature,
    fold_key.
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
            "when_to_load": pa.array([WHEN.index(sources[number].when_to_load) for number in order], pa.uint8()),
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
    """Score the candidates that are still in, fold duplicates and tools of one name, resolve conflicts.

    `refreshed` says when each source was last read, in microseconds, `periods` what the request's time words mean,
    `target` how many tokens the pack aims for, and `reranker` looks again at the best. Order: descending score, ties by
    item id and version; excluded candidates keep their place at the end.
    """
    alive = [candidate for candidate in candidates if candidate.excluded is None]
    indexed = [candidate for candidate in alive if candidate.row != REQUEST_ROW]
    _relevance(indexed)
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
    alive.sort(key=lambda candidate: (-candidate.score, candidate.item_id, candidate.version))
    _layer_instructions(indexed, request)
    _prefer_offered_tools(indexed, request)
    fold_duplicates(indexed)
    fold_near_duplicates(indexed, view.reader)
    conflicts = _resolve_conflicts([c for c in alive if c.excluded is None], view.reader)
    _cut_low_rank(indexed, policy)
    _fold_namesake_tools(alive)
    excluded = [candidate for candidate in candidates if candidate.excluded is not None]
    excluded.sort(key=lambda candidate: (candidate.item_id, candidate.version))
    return Ranked([*(c for c in alive if c.excluded is None), *excluded], conflicts)


def _relevance(candidates: Sequence[Candidate]) -> None:
    """Fuse meaning and words into 0 to 1; a neighbour inherits a share of what led to it."""
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
        share = DENSE_WEIGHTS.get(candidate.kind, DENSE_WEIGHT)
        value = share * dense + (1 - share) * words
        candidate.signal = max(dense, words)
        candidate.features["relevance"] = value
        relevance[candidate.item_id] = max(value, relevance.get(candidate.item_id, 0.0))
    link_columns(candidates)
    spread_chunks(candidates)
    for candidate in candidates:
        if candidate.parent is not None and DEPENDENCY in candidate.discovered_by:
            inherited = NEIGHBOUR_DECAY * relevance.get(candidate.parent, 0.0)
            candidate.features["relevance"] = max(candidate.features["relevance"], inherited)


def _layer_instructions(candidates: Sequence[Candidate], request: ContextRequest) -> None:
    """Keep the instructions of the project and of the folders above the file at hand (`state.path`)."""
    path = str(request.state.get("path", "")).replace("\\", "/").strip("/")
    for candidate in candidates:
        if candidate.kind == _INSTRUCTION and candidate.excluded is None:
            folder = candidate.item_id.partition("/")[2].rpartition("/")[0]
            if folder and not path.startswith(f"{folder}/"):
                candidate.excluded = Exclusion.LOW_RANK
                candidate.counterfactual = f"applies to files under {folder}/: name the file at hand in state.path"


def _prefer_offered_tools(candidates: Sequence[Candidate], request: ContextRequest) -> None:
    """A caller that offers its own tools gets none of the catalogue's."""
    if request.tools is None:
        return
    for candidate in candidates:
        if candidate.section == TOOLS and candidate.excluded is None:
            candidate.excluded = Exclusion.LOW_RANK
            candidate.counterfactual = "the request offers its own tools"


def _fold_namesake_tools(candidates: Sequence[Candidate]) -> None:
    """Of tools with one name, which a model could not tell apart, keep highest authority, then score, then id."""
    by_name: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        if candidate.section == TOOLS and candidate.excluded is None:
            by_name[candidate.title].append(candidate)
    for group in by_name.values():
        kept, *losers = sorted(group, key=lambda c: (-c.authority, -c.score, c.item_id, c.version))
        for loser in losers:
            loser.excluded = Exclusion.DUPLICATE
            loser.counterfactual = f"same tool name as {kept.item_id}"


def _resolve_conflicts(candidates: Sequence[Candidate], reader: ArtifactReader) -> tuple[ConflictRecord, ...]:
    """Resolve different claims about one subject by authority, then validity; what stays equal is asked back."""
    by_subject: dict[int, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        if candidate.subject >= 0 and candidate.kind in CLAIM_KINDS:
            by_subject[candidate.subject].append(candidate)
    records = [_resolve(group, reader) for group in by_subject.values() if len(group) > 1]
    return tuple(sorted((record for record in records if record is not None), key=lambda record: record.subject))


def _resolve(group: list[Candidate], reader: ArtifactReader) -> ConflictRecord | None:
    group.sort(key=lambda c: (-c.authority, -c.valid_from, c.item_id))
    winner, rivals = group[0], group[1:]
    subject = reader.text("subject_name", winner.row)
    equal = [rival for rival in rivals if _claim(rival) == _claim(winner)]
    if equal:
        sides = tuple(_side(candidate) for candidate in group)
        names = " or ".join(candidate.item_id for candidate in (winner, *equal))
        return ConflictRecord(
            subject=subject,
            winner=None,
            losers=sides,
            reason="equal authority and validity",
            needs_confirmation=True,
            question=f"Which definition of {subject} applies: {names}?",
        )
    for rival in rivals:
        rival.excluded = Exclusion.CONFLICT_LOST
        rival.counterfactual = f"authority above {winner.authority} ({winner.item_id})"
    reason = "authority" if rivals[0].authority < winner.authority else "validity"
    return ConflictRecord(
        subject=subject, winner=_side(winner), losers=tuple(_side(rival) for rival in rivals), reason=reason
    )


def _claim(candidate: Candidate) -> tuple[int, int]:
    return candidate.authority, candidate.valid_from


def _side(candidate: Candidate) -> ConflictSide:
    return ConflictSide(
        item_id=candidate.item_id, version=candidate.version, authority=candidate.authority, title=candidate.title
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
        if candidate.when_to_load in _PROACTIVE:
            continue
        relevance = candidate.features["relevance"]
        least = floor * min(1.0, DENSE_WEIGHTS.get(candidate.kind, DENSE_WEIGHT) / DENSE_WEIGHT)
        if candidate.when_to_load == _ON_REQUEST:
            candidate.excluded = Exclusion.LOW_RANK
            candidate.counterfactual = "loads only on request: expand it by id"
        elif max(relevance, candidate.signal / 2) < least:
            candidate.excluded = Exclusion.LOW_RANK
            candidate.counterfactual = f"+{least - relevance:.2f} relevance"
