"""History: which messages stay together, and which no model would accept.

A result belongs to the call that it names. Where a call has no id, or a result names none, it
belongs to the call at its place: the first one still open of the latest message that has one, of
the same tool if it says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ctx_pipeline.contracts import ContextRequest, Exclusion, Message
from ctx_pipeline.stages.candidates import REQUEST_ROW, Judged
from ctx_pipeline.stages.messages import CallName, answers_of, calls_of

HISTORY = "history"
PAIRED_BY_PLACE = "paired_by_place"
"""Way of being found of a result that was paired by its place."""


def leave_out_unpaired(judged: Judged, request: ContextRequest) -> Judged:
    """Leave out the messages that no model accepts in a conversation, each with what it lacks."""
    messages = {
        c.order: c
        for c in judged.candidates
        if c.section == HISTORY and c.row == REQUEST_ROW and c.left_out is None
    }
    unpaired = unpaired_messages(request, min(messages)) if messages else {}
    return judged.ruled(
        {
            messages[number]: judged.verdicts[messages[number]].out(Exclusion.GATE_REMOVED, lack)
            for number, lack in unpaired.items()
            if number in messages
        }
    )


def message_groups(request: ContextRequest, first: int = 0) -> list[list[int]]:
    """Return message numbers in groups that may not be separated: a call with its results, else
    single messages.

    `first` is the number of the first message that is looked at.
    """
    return [group.numbers for group in _groups(request, first)]


def unpaired_messages(request: ContextRequest, first: int = 0) -> dict[int, str]:
    """Return the messages that no model accepts in a conversation, by number, and what each lacks.

    Those are tool results without an earlier call, and calls of which a result is missing together
    with the results that they do have. Calls of the last group are pending: their results may still
    come.
    """
    lacking: dict[int, str] = {}
    groups = _groups(request, first)
    paired = [group for group in groups if not group.orphan]
    for group in groups:
        if group.orphan:
            lacking[group.numbers[0]] = (
                "its call is left out with the messages before it"
                if first
                else "its call is not in the request"
            )
    for group in paired[:-1]:
        if group.open_calls:
            call, *results = group.numbers
            lacking[call] = "its results are not all in the request"
            lacking.update(
                dict.fromkeys(results, "other results of its call are not in the request")
            )
    return lacking


def repaired_messages(request: ContextRequest, first: int = 0) -> dict[int, int]:
    """Return the results that were paired by their place, by number, with the number of the message
    that calls.
    """
    return {
        number: group.numbers[0] for group in _groups(request, first) for number in group.by_place
    }


@dataclass(slots=True)
class _Group:
    """Messages that may not be separated."""

    numbers: list[int]
    open_calls: list[CallName]
    """The calls that no message has answered."""
    orphan: bool = False
    """A tool result without an earlier call."""
    by_place: list[int] = field(default_factory=list[int])
    """Results that were paired by their place."""


def _groups(request: ContextRequest, first: int) -> list[_Group]:
    groups: list[_Group] = []
    waiting: list[_Group] = []
    """Groups with calls that wait for a result, the latest last."""
    owner: dict[str, _Group] = {}
    for number in range(first, len(request.messages)):
        message = request.messages[number]
        group = _answered(message, number, waiting, owner)
        if group is None:
            group = _Group([number], [], orphan=message.role == "tool")
            groups.append(group)
        elif group.numbers[-1] != number:
            group.numbers.append(number)
        calls = list(calls_of(message))
        if calls:
            group.open_calls += calls
            # An id that is used again belongs to the latest call.
            owner.update((call.call_id, group) for call in calls if call.call_id)
            waiting.append(group)
    return groups


def _answered(
    message: Message, number: int, waiting: list[_Group], owner: dict[str, _Group]
) -> _Group | None:
    """Close the calls that a message answers; return the group of the first one."""
    found: _Group | None = None
    for answer in answers_of(message):
        while waiting and not waiting[-1].open_calls:
            waiting.pop()
        named = owner.get(answer.call_id) if answer.call_id else None
        group = named or _at_place(answer, waiting)
        if group is None:
            continue
        at = _open_call(group, answer, by_id=named is not None)
        if at is not None:
            del group.open_calls[at]
        if named is None:
            group.by_place.append(number)
        found = found or group
    return found


def _at_place(answer: CallName, waiting: Sequence[_Group]) -> _Group | None:
    """Return the latest group with an open call that may be the one answered.

    A result that names a call of its own answers only one that has no name.
    """
    for group in reversed(waiting):
        if _open_call(group, answer, by_id=False) is not None:
            return group
    return None


def _open_call(group: _Group, answer: CallName, *, by_id: bool) -> int | None:
    """Return the place of the open call that an answer closes."""
    calls = group.open_calls
    if by_id:
        return next((at for at, call in enumerate(calls) if call.call_id == answer.call_id), None)
    may = [at for at, call in enumerate(calls) if not call.call_id or not answer.call_id]
    # A call without an id waits for a result without one before those that can be named.
    may.sort(
        key=lambda at: (
            bool(answer.name) and calls[at].name != answer.name,
            bool(calls[at].call_id),
            at,
        )
    )
    return may[0] if may else None
