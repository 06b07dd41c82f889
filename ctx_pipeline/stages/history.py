"""History: which messages stay together, and which no model would accept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ctx_pipeline.contracts import ContextRequest, Exclusion
from ctx_pipeline.stages.candidates import REQUEST_ROW, Candidate

HISTORY = "history"


def leave_out_unpaired(candidates: Sequence[Candidate], request: ContextRequest) -> None:
    """Exclude the messages that no model accepts in a conversation, each with what it lacks."""
    unpaired = unpaired_messages(request)
    for candidate in candidates:
        if (
            candidate.section == HISTORY
            and candidate.row == REQUEST_ROW
            and candidate.order in unpaired
        ):
            candidate.excluded, candidate.counterfactual = (
                Exclusion.GATE_REMOVED,
                unpaired[candidate.order],
            )


def message_groups(request: ContextRequest) -> list[list[int]]:
    """Return message numbers in groups that may not be separated: a call with its results, else single messages."""
    return [group.numbers for group in _groups(request)]


def unpaired_messages(request: ContextRequest) -> dict[int, str]:
    """Return the messages that no model accepts in a conversation, by number, and what each lacks.

    Those are tool results without an earlier call, and calls of which a result is missing together with the results
    that they do have. Calls of the last group are pending: their results may still come.
    """
    lacking: dict[int, str] = {}
    paired = [group for group in _groups(request) if not group.orphan]
    for group in _groups(request):
        if group.orphan:
            lacking[group.numbers[0]] = "its call is not in the request"
    for group in paired[:-1]:
        if group.open_calls:
            call, *results = group.numbers
            lacking[call] = "its results are not all in the request"
            lacking.update(
                dict.fromkeys(results, "other results of its call are not in the request")
            )
    return lacking


@dataclass(slots=True)
class _Group:
    """Messages that may not be separated."""

    numbers: list[int]
    open_calls: list[str]
    """Ids of the calls that no message has answered; empty for a call without an id."""
    orphan: bool = False
    """A tool result without an earlier call."""


def _groups(request: ContextRequest) -> list[_Group]:
    groups: list[_Group] = []
    owner: dict[str, _Group] = {}
    for number, message in enumerate(request.messages):
        answered = (message.tool_call_id or "") if message.role == "tool" else ""
        group = owner.get(answered)
        if group is None:
            group = _Group([number], [], orphan=message.role == "tool")
            groups.append(group)
        else:
            group.numbers.append(number)
            group.open_calls = [call for call in group.open_calls if call != answered]
        for call in message.tool_calls:
            name = str(call.get("id") or "")
            group.open_calls.append(name)
            if name:
                # An id that is used again belongs to the latest call.
                owner[name] = group
    return groups
