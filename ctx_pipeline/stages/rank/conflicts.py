"""Conflicts: candidates that say different things of one subject. The batch half writes which
claims are contested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ctx_pipeline.contracts import (
    ConflictRecord,
    ConflictSide,
    ContextRequest,
    EffectivePolicy,
    Exclusion,
    ItemKind,
)
from ctx_pipeline.contracts.policy import ConflictAction, Criterion
from ctx_pipeline.index.rows import Row
from ctx_pipeline.security.visibility import ALWAYS
from ctx_pipeline.stages.candidates import Candidate, Judged, Verdict
from ctx_pipeline.stages.routing import is_withdrawn, label_today

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.index.overlay import ItemKey, Patch
    from ctx_pipeline.index.reader import ArtifactReader

USUAL_ORDER: tuple[Criterion, ...] = ("authority", "validity", "freshness")
FRESHER_BY = 86_400_000_000
"""Microseconds that make one side fresher: sources that one build reads are not apart by what
reading takes."""
REPLACED_SHARE = 0.95
"""Relevance that a side has at least, of the most relevant one: what settles a hit is worth as much
as the hit."""
MAX_TOLD = 8
"""Contradictions that one pack tells of; it records them all."""
MAX_ASKED = 4
"""Sides that a question names."""

_SCHEMA = ItemKind.SCHEMA.value
_MEMORY = ItemKind.MEMORY.value
_CAREFUL_FIRST: tuple[ConflictAction, ...] = ("ask", "show_both", "resolve")


@dataclass(frozen=True, slots=True)
class _Case:
    """What resolving looks at beside the candidates."""

    reader: ArtifactReader
    order: tuple[Criterion, ...]
    actions: Mapping[str, ConflictAction]
    refreshed: Mapping[str, int]
    relevance_weight: float
    standings: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    """By row, as far as they have been asked for."""
    verdicts: dict[Candidate, Verdict] = field(default_factory=dict[Candidate, Verdict])
    """Those of the stage before, and what resolving has made of them."""

    def is_in(self, candidate: Candidate) -> bool:
        """Return whether nothing has left a candidate out."""
        return self.verdicts[candidate].excluded is None


@dataclass(slots=True)
class _Group:
    """The candidates that make one contested claim, each with the number of its value."""

    key: int
    sides: list[tuple[Candidate, int]]


def batch(rows: Sequence[Row], claims: pa.Table, patches: Mapping[ItemKey, Patch]) -> pa.Table:
    """Return which claims of each row are contested, as `contested_table` does."""
    # Reading texts is the build's: what serves knows claims by their numbers.
    from ctx_pipeline.claims.contested import contested_table

    newest = {row.key: at for at, row in enumerate(rows)}
    live = {at for at in newest.values() if not is_withdrawn(rows[at], patches)}
    if patches:
        rows = [row._replace(label=label_today(row, patches)) for row in rows]
    return contested_table(rows, claims, live)


def serve(
    judged: Judged,
    reader: ArtifactReader,
    *,
    policy: EffectivePolicy,
    refreshed: Mapping[str, int],
    request: ContextRequest,
) -> tuple[Judged, tuple[ConflictRecord, ...]]:
    """Find which candidates contradict each other, and leave out those that lose, as the policy
    says.

    What is left out contradicts nothing that stays. What is protected, or the last of a kind that
    the request requires, stays whatever it loses. `refreshed` says when each source was last read,
    in microseconds. Records are in the order of their subjects.
    """
    indexed = judged.indexed()
    claims = reader.contested.of([candidate.row for candidate in indexed])
    if len(claims) < 2:
        return judged, ()
    case = _Case(
        reader,
        policy.conflicts.order or USUAL_ORDER,
        policy.conflicts.actions,
        refreshed,
        policy.weights.relevance,
        verdicts=dict(judged.verdicts),
    )
    by_key: dict[int, _Group] = {}
    for at, key, value in claims:
        by_key.setdefault(key, _Group(key, [])).sides.append((indexed[at], value))
    groups = [group for group in by_key.values() if _is_contradiction(group.sides)]
    for group in groups:
        group.sides.sort(key=lambda side: _precedence(side[0], case))
    # The strongest first: who has lost to it must not push out others.
    groups.sort(key=lambda group: (_precedence(group.sides[0][0], case), group.key))
    records: dict[tuple[object, ...], ConflictRecord] = {}
    for group in groups:
        record = _resolve(group, case, indexed, request)
        if record is not None:
            records.setdefault(_identity(record), record)
    ordered = tuple(sorted(records.values(), key=_record_order))
    return Judged(judged.candidates, case.verdicts), ordered


def told(records: Sequence[ConflictRecord], judged: Judged) -> str:
    """Return what a model has to know of contradictions whose sides it may see; empty without any.

    It names items and quotes none of them: what they say stays in their own blocks.
    """
    shown = {candidate.item_id for candidate in judged.alive()}
    lines: list[str] = []
    for record in records:
        losers = [side.item_id for side in record.losers if side.item_id in shown]
        if record.winner is None and len(losers) > 1:
            lines.append(
                "These contradict each other and nothing settles it, so ask "
                f"which counts: {'; '.join(losers)}"
            )
        elif record.winner is not None and record.winner.item_id in shown and losers:
            lines.append(
                f"Where they contradict each other, {record.winner.item_id} "
                f"counts before {'; '.join(losers)}"
            )
    return "\n".join(lines[:MAX_TOLD])


def _is_contradiction(sides: Sequence[tuple[Candidate, int]]) -> bool:
    """Two documents give two values, other than two schemas, which are two databases."""
    first, value = sides[0]
    document = _document(first)
    if all(candidate.kind == _SCHEMA for candidate, _ in sides):
        return False
    return any(
        other != value and _document(candidate) != document for candidate, other in sides[1:]
    )


def _document(candidate: Candidate) -> str:
    return candidate.item_id.partition("#")[0]


def _standing(candidate: Candidate, case: _Case) -> tuple[int, ...]:
    """Return where a candidate stands by each criterion, in the order of the policy; more is
    stronger.
    """
    known = case.standings.get(candidate.row)
    if known is None:
        values: dict[Criterion, int] = {
            "authority": candidate.authority,
            "validity": candidate.valid_from,
            "freshness": _fresh_at(candidate, case),
        }
        known = case.standings[candidate.row] = tuple(values[criterion] for criterion in case.order)
    return known


def _fresh_at(candidate: Candidate, case: _Case) -> int:
    """Return when a side was last known to hold: a memory when it was made, others when their
    source was read.
    """
    if candidate.verified_at > ALWAYS:
        return candidate.verified_at
    if candidate.kind == _MEMORY and candidate.dated_at > ALWAYS:
        return candidate.dated_at
    return case.refreshed.get(candidate.source, 0)


def _precedence(candidate: Candidate, case: _Case) -> tuple[int | str, ...]:
    return (*(-value for value in _standing(candidate, case)), candidate.item_id, candidate.version)


def _deciding(winner: Candidate, other: Candidate, case: _Case) -> Criterion | None:
    """Return the first criterion by which the winner stands above another side; None where they are
    equal.
    """
    for criterion, left, right in zip(
        case.order, _standing(winner, case), _standing(other, case), strict=True
    ):
        if left - right >= (FRESHER_BY if criterion == "freshness" else 1):
            return criterion
    return None


def _resolve(
    group: _Group, case: _Case, candidates: Sequence[Candidate], request: ContextRequest
) -> ConflictRecord | None:
    sides = [side for side in group.sides if case.is_in(side[0])]
    if len(sides) < 2 or not _is_contradiction(sides):
        return None
    winner, value = sides[0]
    allies = [candidate for candidate, other in sides[1:] if other == value]
    rivals = [candidate for candidate, other in sides[1:] if other != value]
    subject = _subject(group, sides, case)
    action = _action(subject, rivals, case)
    judged: list[tuple[Candidate, Criterion | None]] = [
        (rival, _deciding(winner, rival, case)) for rival in rivals
    ]
    equal = [rival for rival, reason in judged if reason is None]
    if action == "resolve":
        for rival, reason in judged:
            if reason is not None:
                _leave_out(rival, winner, reason, case, candidates, request)
    _lift([candidate for candidate, _ in sides], case)
    first = judged[0][1]
    if equal or first is None or action == "ask":
        return _question(
            subject, [winner, *allies, *rivals], [winner, *(equal or rivals)], equal=bool(equal)
        )
    losers = tuple(_side(rival) for rival in rivals)
    return ConflictRecord(subject=subject, winner=_side(winner), losers=losers, reason=first)


def _leave_out(
    loser: Candidate,
    winner: Candidate,
    reason: Criterion,
    case: _Case,
    candidates: Sequence[Candidate],
    request: ContextRequest,
) -> None:
    if loser.protected or (
        loser.kind in request.required_types and _is_last(loser, case, candidates)
    ):
        return
    above = f"authority above {winner.authority}" if reason == "authority" else f"more {reason}"
    case.verdicts[loser] = case.verdicts[loser].out(
        Exclusion.CONFLICT_LOST, f"{above} ({winner.item_id})"
    )


def _is_last(loser: Candidate, case: _Case, candidates: Sequence[Candidate]) -> bool:
    return not any(
        other.kind == loser.kind and case.is_in(other) and other is not loser
        for other in candidates
    )


def _lift(sides: Sequence[Candidate], case: _Case) -> None:
    """Give what stays at least the relevance of the best side, so that what settles a hit is not
    cut for its own.
    """
    verdicts = case.verdicts
    best = max(verdicts[side].features["relevance"] for side in sides) * REPLACED_SHARE
    for side in sides:
        verdict = verdicts[side]
        gain = best - verdict.features["relevance"]
        if verdict.excluded is None and gain > 0:
            verdicts[side] = verdict._replace(
                features={**verdict.features, "relevance": best},
                score=verdict.score + case.relevance_weight * gain,
            )


def _subject(group: _Group, sides: Sequence[tuple[Candidate, int]], case: _Case) -> str:
    """Return the subject that a side names itself, else the strongest side's own words; nothing of
    what is not here.
    """
    named = (case.reader.text("subject_name", candidate.row) for candidate, _ in sides)
    return next(filter(None, named), None) or case.reader.contested.about(
        sides[0][0].row, group.key
    )


def _action(subject: str, rivals: Sequence[Candidate], case: _Case) -> ConflictAction:
    """Return what the policy does about a subject, by its longest prefix, else by the kinds of the
    losing sides.
    """
    prefixes = [name for name in case.actions if ":" in name and subject.startswith(name)]
    if prefixes:
        return case.actions[max(prefixes, key=len)]
    said: list[ConflictAction] = [
        case.actions[rival.kind] for rival in rivals if rival.kind in case.actions
    ]
    for action in _CAREFUL_FIRST:
        if action in said:
            return action
    return "resolve"


def _question(
    subject: str, sides: Sequence[Candidate], asked: Sequence[Candidate], *, equal: bool
) -> ConflictRecord:
    names = " or ".join(candidate.item_id for candidate in asked[:MAX_ASKED])
    return ConflictRecord(
        subject=subject,
        winner=None,
        losers=tuple(_side(side) for side in sides),
        reason="equal authority and validity" if equal else "the policy asks",
        needs_confirmation=True,
        question=f"Which definition of {subject} applies: {names}?",
    )


def _side(candidate: Candidate) -> ConflictSide:
    return ConflictSide(
        item_id=candidate.item_id,
        version=candidate.version,
        authority=candidate.authority,
        title=candidate.title,
    )


def _identity(record: ConflictRecord) -> tuple[object, ...]:
    """Two records of the same sides are one conflict, however many claims it is about."""
    winner = record.winner.item_id if record.winner else ""
    return record.subject, winner, tuple(sorted(side.item_id for side in record.losers))


def _record_order(record: ConflictRecord) -> tuple[str, ...]:
    return (
        record.subject,
        record.winner.item_id if record.winner else "",
        *(side.item_id for side in record.losers),
    )
