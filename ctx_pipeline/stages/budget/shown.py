"""Shown: what of a request's own parts the model does not see, or sees cut, so that the caller
knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, islice

from ctx_pipeline.contracts import ContextRequest, Exclusion, ItemKind, PackWarning, Rendition
from ctx_pipeline.stages.candidates import GLOSSARY, REQUEST_SOURCE, Candidate, Judged, Verdict
from ctx_pipeline.stages.history import HISTORY, repaired_messages

MAX_NAMED = 8
"""Parts of one kind that have a warning each; more are told of together."""
CUT, DROPPED, REPAIRED = "cut", "dropped", "history_repaired"
MIXED_GRAIN = "mixed_grain"
_OBSERVATIONS = "observations"
_METRIC, _SCHEMA = ItemKind.METRIC.value, ItemKind.SCHEMA.value


def part_warnings(judged: Judged, request: ContextRequest) -> tuple[PackWarning, ...]:
    """Return what the caller should know of the messages and observations of a request."""
    verdicts = judged.verdicts
    sent = [c for c in judged.candidates if c.source == REQUEST_SOURCE and not c.protected]
    cut = [c for c in sent if verdicts[c].cut is not None]
    gone = [c for c in sent if c.section == _OBSERVATIONS and _is_gone(c, verdicts[c])]
    messages = [c for c in sent if c.section == HISTORY]
    left_out = [c for c in messages if verdicts[c].excluded is Exclusion.OVER_BUDGET]
    refused = [c for c in messages if verdicts[c].excluded is Exclusion.GATE_REMOVED]
    by_order = {c.order: c for c in messages if c.order >= 0}
    return (
        *_each(CUT, cut, lambda c: _cut_message(c, verdicts[c])),
        *_each(DROPPED, gone, lambda c: f"{_name(c)} is not shown: {_why(c, verdicts[c])}"),
        *_left_out(left_out),
        *_each(
            DROPPED, refused, lambda c: f"{_name(c)} is not shown: {verdicts[c].counterfactual}"
        ),
        *_repairs(by_order, request),
    )


def grain_warnings(judged: Judged) -> tuple[PackWarning, ...]:
    """Say where a request names metrics that are computed from different tables.

    Metrics of one table, or with a table in common, have rows in common to be counted by.
    """
    tables = {
        candidate.row: candidate.item_id
        for candidate in judged.candidates
        if candidate.row >= 0 and candidate.kind == _SCHEMA
    }
    named = [
        (candidate, frozenset(row for row in candidate.needs if row in tables))
        for candidate in judged.selected()
        if candidate.kind == _METRIC and GLOSSARY in candidate.discovered_by
    ]
    apart = [
        (one, other)
        for (one, ours), (other, theirs) in combinations(named, 2)
        if ours and theirs and not ours & theirs
    ]
    return tuple(
        PackWarning(
            code=MIXED_GRAIN,
            message=f"{one.item_id} and {other.item_id} are computed from "
            "different tables: bring both to "
            "dimensions that they share before they are compared or divided",
            item_id=one.item_id,
        )
        for one, other in apart[:MAX_NAMED]
    )


def _is_gone(candidate: Candidate, verdict: Verdict) -> bool:
    """Tell whether nothing of it is shown: neither itself nor one that says nearly the same."""
    if candidate.parent is not None:
        return False
    return not verdict.selected or verdict.rendition is Rendition.POINTER


def _name(candidate: Candidate) -> str:
    kind, _, name = candidate.title.partition("/")
    return f"{kind} {name}"


def _why(candidate: Candidate, verdict: Verdict) -> str:
    if verdict.excluded is not None and verdict.excluded is not Exclusion.OVER_BUDGET:
        return verdict.excluded.value
    return f"its {candidate.tokens[0]:,} tokens do not fit"


def _cut_message(candidate: Candidate, verdict: Verdict) -> str:
    return (
        f"{_name(candidate)} is cut to {verdict.cost(candidate):,} of "
        f"its {candidate.tokens[0]:,} tokens: "
        "its start, its end and what stands out are shown, and what was left out is said"
    )


def _left_out(messages: Sequence[Candidate]) -> Iterator[PackWarning]:
    """Yield one warning for all messages that do not fit."""
    if messages:
        ordered = sorted(messages, key=lambda c: c.order)
        names = _ranges(ordered)
        message = f"messages {names} are not shown: the window or the deadline has no room for them"
        yield PackWarning(code=DROPPED, message=message, item_id=ordered[0].item_id)


def _ranges(messages: Iterable[Candidate]) -> str:
    """Return the numbers of messages, neighbours as one range."""
    spans: list[list[int]] = []
    for candidate in messages:
        first, _, last = candidate.title.rpartition("/")[2].partition("-")
        if spans and spans[-1][1] + 1 == int(first):
            spans[-1][1] = int(last or first)
        else:
            spans.append([int(first), int(last or first)])
    named = [str(a) if a == b else f"{a} to {b}" for a, b in spans[:MAX_NAMED]]
    return ", ".join(named) + (
        f" and {len(spans) - MAX_NAMED} more" if len(spans) > MAX_NAMED else ""
    )


def _repairs(by_order: dict[int, Candidate], request: ContextRequest) -> Iterator[PackWarning]:
    repairs = repaired_messages(request, min(by_order, default=0))
    for number, call in islice(repairs.items(), MAX_NAMED):
        message = (
            f"message {number} names no open call: taken as the answer to a "
            f"call of message {call}, by its place"
        )
        candidate = by_order.get(number)
        yield PackWarning(
            code=REPAIRED, message=message, item_id=None if candidate is None else candidate.item_id
        )
    if len(repairs) > MAX_NAMED:
        yield PackWarning(
            code=REPAIRED, message=f"{len(repairs) - MAX_NAMED} more messages are paired by place"
        )


def _each(
    code: str, parts: Sequence[Candidate], text: Callable[[Candidate], str]
) -> Iterator[PackWarning]:
    for candidate in parts[:MAX_NAMED]:
        yield PackWarning(code=code, message=text(candidate), item_id=candidate.item_id)
    if len(parts) > MAX_NAMED:
        names = ", ".join(_name(candidate) for candidate in parts[MAX_NAMED : 2 * MAX_NAMED])
        more = len(parts) - 2 * MAX_NAMED
        ending = f" and {more} more" if more > 0 else ""
        yield PackWarning(code=code, message=f"so it is with {names}{ending}")
