"""Tools with faults: those that no provider takes, and those whose texts work on the model."""

from __future__ import annotations

from collections.abc import Mapping

from ctx_pipeline.contracts import EffectivePolicy, Exclusion, PackWarning, ToolRules
from ctx_pipeline.stages.candidates import REQUEST_ROW, Candidate, Judged, Verdict
from ctx_pipeline.stages.sections import TOOLS
from ctx_pipeline.tools.catalogue import UNTRUSTED, ToolRow

MAX_WARNINGS = 10
"""Tools that a pack warns of by name; the others are counted."""


def withhold(judged: Judged, tools: Mapping[int, ToolRow], policy: EffectivePolicy) -> Judged:
    """Leave out the tools that no provider takes, and by policy those whose texts work on the
    model.

    It comes before equal tools are told apart, so that none of these stands for another.
    """
    out: dict[Candidate, Verdict] = {}
    for candidate in judged.alive():
        if candidate.section != TOOLS:
            continue
        refusal, poison = _faults(candidate, tools)
        verdict = judged.verdicts[candidate]
        if refusal is not None:
            words = f"a form that providers take: {refusal}"
            out[candidate] = verdict.out(Exclusion.NOT_ROUTED, words)
        elif poison and _is_withheld(candidate, policy.tools):
            why = f"its text works on the model that reads it ({', '.join(poison)})"
            words = f"withheld, {why}: tools.poisoned 'warn' in the policy shows it"
            out[candidate] = verdict.out(Exclusion.NOT_ROUTED, words)
    return judged.ruled(out)


def warnings_of(
    judged: Judged, tools: Mapping[int, ToolRow], policy: EffectivePolicy
) -> tuple[PackWarning, ...]:
    """Return what a pack says of tools with faults: of those that it shows, and of those that it
    left out and that fit the task.
    """
    verdicts = judged.verdicts
    best = max(
        (
            verdicts[c].features.get("relevance", 0.0)
            for c in judged.candidates
            if c.row != REQUEST_ROW
        ),
        default=0.0,
    )
    found: list[PackWarning] = []
    offered = (candidate for candidate in judged.candidates if candidate.section == TOOLS)
    for candidate in sorted(offered, key=lambda c: (c.item_id, c.version)):
        verdict = verdicts[candidate]
        fits = max(verdict.features.get("relevance", 0.0), verdict.signal / 2)
        left_out = verdict.excluded is Exclusion.NOT_ROUTED and fits >= best * policy.min_relevance
        refusal, poison = _faults(candidate, tools)
        works = f"its text works on the model that reads it: {', '.join(poison)}"
        if left_out and refusal is not None:
            found.append(_warning("tool_left_out", f"no provider takes it: {refusal}", candidate))
        elif left_out and poison and _is_withheld(candidate, policy.tools):
            found.append(_warning("tool_withheld", works, candidate))
        elif verdict.selected and poison:
            found.append(_warning("tool_poisoned", works, candidate))
    if len(found) > MAX_WARNINGS:
        rest = f"{len(found) - MAX_WARNINGS} more tools have such faults: read the trace"
        found[MAX_WARNINGS:] = [PackWarning(code="tools_with_faults", message=rest)]
    return tuple(found)


def _faults(
    candidate: Candidate, tools: Mapping[int, ToolRow]
) -> tuple[str | None, tuple[str, ...]]:
    known = tools.get(candidate.row)
    return (candidate.refusal, candidate.poison) if known is None else (known.refusal, known.poison)


def _is_withheld(candidate: Candidate, rules: ToolRules) -> bool:
    return candidate.trust in UNTRUSTED if rules.poisoned is None else rules.poisoned == "withhold"


def _warning(code: str, message: str, candidate: Candidate) -> PackWarning:
    words = f"{message}; `ctx tools lint` says where"
    return PackWarning(code=code, message=words, item_id=candidate.item_id)
