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
from ctx_pipeline.security.visibility import ALWAYS, NEVER, Clock
from ctx_pipeline.stages.candidates import REQUEST_ROW, Candidate
from ctx_pipeline.stages.codebook import KINDS, SECTION_LIST, WHEN
from ctx_pipeline.stages.discover import DEPENDENCY, LEXICAL, NEIGHBOUR_DECAY, VECTOR
from ctx_pipeline.stages.queries import LONG_MEANING, is_long
from ctx_pipeline.stages.related import link_columns, spread_chunks
from ctx_pipeline.stages.sections import INSTRUCTING_SECTIONS, TOOLS, section_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.index.reader import ArtifactReader, ServingView

RANKING_VERSION = "rank-2"
"""Changes whenever the same candidates could be ordered differently; part of every snapshot."""

EVEN_SHARE = 0.5
"""Share of meaning at which words and meaning weigh the same."""
FRESHNESS_HALF_LIFE_DAYS = 180.0
_HALF_LIFE = FRESHNESS_HALF_LIFE_DAYS * 86_400_000_000
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


def batch(rows: Sequence[Row], sources: Sequence[SourceFacts]) -> pa.Table:
    """Return the features of each row that no request changes.

    Columns: kind, section, source, when_to_load (numbers of the codebook and of `sources`), authority, confidence,
    verified_at (microseconds; `ALWAYS` where the source's own refresh counts), content_number.
    """
    import pyarrow as pa

    number_of = {source.name: number for number, source in enumerate(sources)}
    order = [number_of[row.source] for row in rows]
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
        }
    )


def serve(
    candidates: Sequence[Candidate],
    view: ServingView,
    *,
    policy: EffectivePolicy,
    clock: Clock,
    refreshed: Mapping[str, int],
    request: ContextRequest,
) -> Ranked:
    """Score the candidates that are still in, fold duplicates and tools of one name, resolve conflicts.

    `refreshed` says when each source was last read, in microseconds. Order: descending score, ties by item id and
    version; excluded candidates keep their place at the end.
    """
    alive = [candidate for candidate in candidates if candidate.excluded is None]
    indexed = [candidate for candidate in alive if candidate.row != REQUEST_ROW]
    kept = LONG_MEANING if is_long(request.task.text) else 1.0
    _relevance(indexed, {kind: share * kept for kind, share in policy.fusion.items()})
    _features(indexed, policy, clock, refreshed)
    for candidate in alive:
        if candidate.row == REQUEST_ROW:
            candidate.features = {"relevance": 1.0}
            candidate.score = 1.0
    alive.sort(key=lambda candidate: (-candidate.score, candidate.item_id, candidate.version))
    _layer_instructions(indexed, request)
    _prefer_offered_tools(indexed, request)
    _fold_duplicates(indexed)
    conflicts = _resolve_conflicts([c for c in alive if c.excluded is None], view.reader)
    _cut_low_rank(indexed, policy)
    _fold_namesake_tools(alive)
    excluded = [candidate for candidate in candidates if candidate.excluded is not None]
    excluded.sort(key=lambda candidate: (candidate.item_id, candidate.version))
    return Ranked([*(c for c in alive if c.excluded is None), *excluded], conflicts)


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
            candidate.features["relevance"] = max(candidate.features["relevance"], inherited)


def _features(
    candidates: Sequence[Candidate], policy: EffectivePolicy, clock: Clock, refreshed: Mapping[str, int]
) -> None:
    weights = policy.weights
    for candidate in candidates:
        verified = candidate.verified_at
        age = clock.at - (verified if verified > ALWAYS else refreshed.get(candidate.source, clock.at))
        relevance = candidate.features["relevance"]
        freshness = 0.5 ** (max(0, age) / _HALF_LIFE)
        authority = candidate.authority / 100
        dependency = 1.0 if DEPENDENCY in candidate.discovered_by else 0.0
        candidate.features = {
            "relevance": relevance,
            "authority": authority,
            "freshness": freshness,
            "confidence": candidate.confidence,
            "dependency": dependency,
        }
        candidate.score = (
            weights.relevance * relevance
            + weights.authority * authority
            + weights.freshness * freshness
            + weights.confidence * candidate.confidence
            + weights.dependency * dependency * relevance
        )
        candidate.stale = candidate.fail_after < NEVER and age > candidate.fail_after
        if candidate.stale and policy.exclude_stale:
            candidate.excluded = Exclusion.STALE


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


def _fold_duplicates(candidates: Sequence[Candidate]) -> None:
    """Of items with the same text, keep one that may instruct, then highest authority, then score, then id."""
    by_content: dict[int, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        if candidate.excluded is None:
            by_content[candidate.content].append(candidate)
    for group in by_content.values():
        if len(group) > 1:
            group.sort(key=lambda c: (c.section not in INSTRUCTING_SECTIONS, -c.authority, -c.score, c.item_id))
            for loser in group[1:]:
                loser.excluded = Exclusion.DUPLICATE
                loser.counterfactual = f"same text as {group[0].item_id}"


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
        least = floor * min(1.0, policy.fusion[candidate.kind] / EVEN_SHARE)
        if candidate.when_to_load == _ON_REQUEST:
            candidate.excluded = Exclusion.LOW_RANK
            candidate.counterfactual = "loads only on request: expand it by id"
        elif max(relevance, candidate.signal / 2) < least:
            candidate.excluded = Exclusion.LOW_RANK
            candidate.counterfactual = f"+{least - relevance:.2f} relevance"
