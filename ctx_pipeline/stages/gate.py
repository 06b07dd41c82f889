"""Gate: seven preflight checks before a pack leaves. A failed hard check stops it; a failed soft
one warns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ctx_pipeline.contracts import (
    ConflictRecord,
    ContextRequest,
    EffectivePolicy,
    GateCheck,
    ItemKind,
    PackWarning,
    Rendition,
)
from ctx_pipeline.stages.candidates import Candidate, Judged
from ctx_pipeline.stages.sections import INSTRUCTING_SECTIONS, TRUSTED_TO_INSTRUCT


@dataclass(frozen=True, slots=True)
class GateFinding:
    """One failed check."""

    check: GateCheck
    message: str
    item_id: str | None = None


def check(
    judged: Judged,
    request: ContextRequest,
    *,
    policy: EffectivePolicy,
    conflicts: Sequence[ConflictRecord],
    visible: Sequence[bool],
    total_tokens: int,
    usable: int,
) -> tuple[GateFinding, ...]:
    """Return what failed, in the order of the checks.

    `visible` says of each selected candidate whether the visibility predicate still lets it
    through.
    """
    selected = judged.selected()
    kinds = {candidate.kind for candidate in selected}
    findings = [
        GateFinding(
            GateCheck.REQUIRED_CONTEXT_PRESENT, f"no item of required type {kind!r} could be shown"
        )
        for kind in request.required_types
        if kind not in kinds
    ]
    stale = [candidate for candidate in selected if judged.verdicts[candidate].stale]
    for source, number in sorted(Counter(c.source for c in stale).items()):
        message = f"{number} shown items are past the freshness window of source {source!r}"
        first = next(candidate.item_id for candidate in stale if candidate.source == source)
        findings.append(GateFinding(GateCheck.STALE_ITEMS, message, first))
    findings.extend(
        GateFinding(
            GateCheck.CONFLICTING_SOURCES, conflict.question or conflict.reason, _side(conflict)
        )
        for conflict in conflicts
        if conflict.needs_confirmation
    )
    if not all(visible):
        findings.append(
            GateFinding(
                GateCheck.SENSITIVE_SCOPE_OK, "an item lost its visibility while the pack was made"
            )
        )
    if total_tokens > usable:
        findings.append(
            GateFinding(
                GateCheck.TOKEN_BUDGET_OK,
                f"the pack has {total_tokens} tokens, usable are {usable}",
            )
        )
    findings.extend(_oversize_results(judged, policy))
    findings.extend(_misplaced_authority(selected))
    return tuple(findings)


def _side(conflict: ConflictRecord) -> str | None:
    """Return the item that a conflict is told by."""
    side = conflict.winner or next(iter(conflict.losers), None)
    return None if side is None else side.item_id


def _oversize_results(judged: Judged, policy: EffectivePolicy) -> list[GateFinding]:
    return [
        GateFinding(
            GateCheck.TOOL_RESULT_TOO_LARGE,
            f"{candidate.item_id!r} has {candidate.tokens[0]} tokens, the policy allows "
            f"{policy.max_observation_tokens}",
            candidate.item_id,
        )
        for candidate in judged.selected()
        if candidate.kind == ItemKind.OBSERVATION.value
        and judged.verdicts[candidate].rendition is Rendition.FULL
        and candidate.tokens[0] > policy.max_observation_tokens
    ]


def _misplaced_authority(selected: Sequence[Candidate]) -> list[GateFinding]:
    return [
        GateFinding(
            GateCheck.AUTHORITY_ORDER_VALID,
            f"{candidate.item_id!r} with trust {candidate.trust!r} may not instruct",
            candidate.item_id,
        )
        for candidate in selected
        if candidate.section in INSTRUCTING_SECTIONS and candidate.trust not in TRUSTED_TO_INSTRUCT
    ]


def warnings_of(findings: Sequence[GateFinding]) -> tuple[PackWarning, ...]:
    """Return findings as warnings of the pack."""
    return tuple(
        PackWarning(code=f.check.value, message=f.message, item_id=f.item_id) for f in findings
    )
