"""The parts of a request: task, permission scope, state, messages, observations and goal become
candidates.

A part that is too long is offered cut to several sizes (`transform.shorten`). Of a conversation
that no window could hold, or that there is no time for, the oldest messages stand as one candidate
that is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ctx_pipeline.contracts import ContextRequest, ItemKind, Observation, Trust
from ctx_pipeline.stages.blocks import BlockLabels, cut_block, sent_blocks, time_text
from ctx_pipeline.stages.candidates import REQUEST_SOURCE, Candidate, CountTokens, Cut
from ctx_pipeline.stages.discover.clusters import clustered
from ctx_pipeline.stages.discover.offered import offered_tools
from ctx_pipeline.stages.history import PAIRED_BY_PLACE, repaired_messages
from ctx_pipeline.stages.messages import message_text
from ctx_pipeline.stages.transform.shorten import LongText
from ctx_pipeline.text import canonical_json, short_hash

FOLD_AFTER = 512
"""Messages, the latest, that are candidates of their own whatever the window is."""
TIMED_EACH = 64
"""Messages between two looks at the time."""
CUT_SHARE = 0.75
"""Most of a part's tokens that its longest cut has."""
LEAST_CUT = 96
"""Tokens of the shortest cut."""
MAX_CUTS = 6
LONG_SHARE = 1 / 16
"""Share of the window from which a part is worth cutting where not all parts fit."""
SAMPLED = 100
"""Messages of those that are left out together by which their size is estimated."""
SAMPLED_CHARS = 8_192
"""Characters by which the tokens of a text are estimated that there is no time to count."""
CHARS_A_TOKEN = 4
"""What a token is taken to hold where nothing is counted."""
_HISTORY, _OBSERVATIONS = "history", "observations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the parts of a request may take."""

    window: int = 1_000_000_000
    """Tokens that the pack aims for."""
    most_observation: int = 1_000_000_000
    """Tokens that one result of a tool may take."""
    in_time: Callable[[], bool] = lambda: True
    """Whether there is time for one more message."""
    looked_at: Callable[[], int | None] = lambda: None
    """Characters of a long text that there is time to look at; None: all of them."""


NO_LIMITS = Room()


@dataclass(frozen=True, slots=True)
class _Sent:
    """A part of a conversation, with what its cuts are made of."""

    candidate: Candidate
    labels: BlockLabels
    text: str

    def cut_short(self) -> _Sent:
        """Return the part as one that may not be shown whole."""
        return replace(self, candidate=replace(self.candidate, whole=False))

    def paired_by_place(self) -> _Sent:
        """Return the part with how it was found."""
        found_by = (*self.candidate.discovered_by, PAIRED_BY_PLACE)
        return replace(self, candidate=replace(self.candidate, discovered_by=found_by))


def request_candidates(
    request: ContextRequest, tokens_of: CountTokens, room: Room = NO_LIMITS
) -> list[Candidate]:
    """Turn what came with the request into candidates: task, permission scope, state, history,
    observations, goal.
    """
    made = [_request_item(ItemKind.TASK, "task", "task", task_text(request), tokens_of)]
    if request.identity is not None:
        made.append(
            _request_item(
                ItemKind.STATE,
                "scope",
                "state",
                _scope_text(request),
                tokens_of,
                order=-1,
            )
        )
    if request.state:
        made.append(
            _request_item(
                ItemKind.STATE,
                "state",
                "state",
                _json_text(request.state),
                tokens_of,
            )
        )
    if request.response_format is not None:
        made.append(
            _request_item(
                ItemKind.TASK,
                "response_format",
                "task",
                _json_text(request.response_format),
                tokens_of,
                order=1,
            )
        )
    messages = _messages(request, tokens_of, room, made)
    observations = _observations(request, tokens_of, room)
    tight = sum(part.candidate.tokens[0] for part in (*messages, *observations)) > room.window // 2
    made.extend(_with_cuts(part, tokens_of, room, tight=tight) for part in messages)
    seen = [_with_cuts(part, tokens_of, room, tight=tight) for part in observations]
    made.extend(clustered(seen, request, tokens_of))
    made.extend(offered_tools(request, tokens_of))
    goal = _goal_text(request)
    if goal:
        made.append(_request_item(ItemKind.TASK, "goal", "goal", goal, tokens_of))
    return made


def notice(name: str, text: str, tokens_of: CountTokens) -> Candidate:
    """Tell the model something of the call itself: always shown, except where it does not fit
    beside the rest.
    """
    item = _request_item(ItemKind.STATE, name, "state", text, tokens_of, order=1)
    return replace(item, spare=True)


def _unused(name: str, names: set[str]) -> str:
    """Return the name, with `~2`, `~3` ... where it is taken: two results under one id are two
    candidates.
    """
    free, number = name, 1
    while free in names:
        number += 1
        free = f"{name}~{number}"
    names.add(free)
    return free


def _request_item(
    kind: ItemKind,
    name: str,
    section: str,
    text: str,
    tokens_of: CountTokens,
    *,
    order: int = 0,
) -> Candidate:
    """Return what is always shown whole."""
    return _sent(kind, name, section, text, tokens_of, order=order, protected=True).candidate


def _sent(
    kind: ItemKind,
    name: str,
    section: str,
    text: str,
    tokens_of: CountTokens,
    *,
    order: int,
    room: Room = NO_LIMITS,
    protected: bool = False,
    trust: Trust = Trust.USER,
    times: tuple[tuple[str, str], ...] = (),
) -> _Sent:
    version = short_hash(text)
    item_id = f"{kind.value}:{REQUEST_SOURCE}/{name}"
    labels = BlockLabels(
        item_id=item_id,
        version=version,
        title="",
        source=REQUEST_SOURCE,
        trust=trust.value,
        times=times,
    )
    looked_at = None if protected else room.looked_at()
    whole = looked_at is None or len(text) <= looked_at
    part = text if whole else text[:SAMPLED_CHARS]
    blocks = sent_blocks(labels, part, None if whole else len(text))
    tokens = tokens_of(blocks.full)
    if not whole:
        tokens = tokens * len(text) // len(part)
    candidate = Candidate(
        item_id=item_id,
        version=version,
        kind=kind.value,
        title=name,
        source=REQUEST_SOURCE,
        section=section,
        authority=100 if protected else 50,
        trust=trust.value,
        protected=protected,
        tokens=(tokens, 0, 0 if protected else tokens_of(blocks.pointer)),
        whole=whole,
        blocks=blocks,
        order=order,
        discovered_by=(REQUEST_SOURCE,),
    )
    return _Sent(candidate, labels, text)


def _messages(
    request: ContextRequest, tokens_of: CountTokens, room: Room, made: list[Candidate]
) -> list[_Sent]:
    """Return the messages that may be shown, and add those before them to
    `made` as one candidate.
    """
    kept: list[_Sent] = []
    tokens = 0
    first = len(request.messages)
    while first > 0:
        beyond = len(kept) >= FOLD_AFTER and tokens > room.window
        if beyond or (kept and len(kept) % TIMED_EACH == 0 and not room.in_time()):
            made.append(_folded(request, first))
            break
        first -= 1
        message = request.messages[first]
        part = _sent(
            ItemKind.HISTORY,
            f"message/{first}",
            _HISTORY,
            message_text(message),
            tokens_of,
            order=first,
            room=room,
        )
        if message.role == "tool" and part.candidate.tokens[0] > room.most_observation:
            part = part.cut_short()
        candidate = part.candidate
        tokens += min(
            candidate.tokens[0], room.window if candidate.whole else room.most_observation
        )
        kept.append(part)
    repaired = repaired_messages(request, first)
    return [
        part.paired_by_place() if part.candidate.order in repaired else part
        for part in reversed(kept)
    ]


def _folded(request: ContextRequest, number: int) -> Candidate:
    """Return the first messages as one candidate that is left out."""
    step = max(1, number // SAMPLED)
    sample = [message_text(message) for message in request.messages[:number:step]]
    characters = sum(map(len, sample)) * number // len(sample)
    return Candidate(
        item_id=f"{ItemKind.HISTORY.value}:{REQUEST_SOURCE}/message/0-{number - 1}",
        version=str(number),
        kind=ItemKind.HISTORY.value,
        title=f"message/0-{number - 1}",
        source=REQUEST_SOURCE,
        section=_HISTORY,
        authority=50,
        trust=Trust.USER.value,
        tokens=(characters // CHARS_A_TOKEN, 0, 0),
        order=-1,
        discovered_by=(REQUEST_SOURCE,),
        left_out="a larger window or a later deadline, or a summary of them",
    )


def _observations(request: ContextRequest, tokens_of: CountTokens, room: Room) -> list[_Sent]:
    names: set[str] = set()
    return [
        _sent(
            ItemKind.OBSERVATION,
            _unused(f"observation/{seen.observation_id}", names),
            _OBSERVATIONS,
            seen.content,
            tokens_of,
            order=number,
            room=room,
            trust=Trust.TOOL_UNTRUSTED,
            times=_times(seen),
        )
        for number, seen in enumerate(request.observations)
    ]


def _times(seen: Observation) -> tuple[tuple[str, str], ...]:
    return () if seen.observed_at is None else (("observed", time_text(seen.observed_at)),)


def _with_cuts(part: _Sent, tokens_of: CountTokens, room: Room, *, tight: bool) -> Candidate:
    """Offer in smaller sizes what may not be shown whole, and what is long where
    not all parts fit.
    """
    candidate = part.candidate
    full = candidate.tokens[0]
    seen = candidate.section == _OBSERVATIONS
    whole = candidate.whole and not (seen and full > room.most_observation)
    if whole and not (tight and full > max(2 * LEAST_CUT, room.window * LONG_SHARE)):
        return candidate
    most = min(
        room.most_observation if seen or not whole else full, room.window, int(full * CUT_SHARE)
    )
    cuts = _cuts(part, most, tokens_of, room, several=tight)
    return replace(candidate, whole=whole, cuts=cuts)


def _cuts(
    part: _Sent, most: int, tokens_of: CountTokens, room: Room, *, several: bool
) -> tuple[Cut, ...]:
    long = LongText(part.text, room.looked_at())
    made: list[Cut] = []
    while most >= LEAST_CUT and len(made) < MAX_CUTS:
        shown = long.cut(most, lambda text: tokens_of(cut_block(part.labels, text)))
        if shown is not None:
            block = cut_block(part.labels, shown)
            made.append(Cut(tokens_of(block), block))
            most = min(most, made[-1].tokens)
            if not several:
                break
        most //= 2
    return tuple(made)


def task_text(request: ContextRequest) -> str:
    """Return what the task says, with its constraints."""
    lines = [request.task.text]
    lines.extend(f"Constraint: {constraint}" for constraint in request.task.constraints)
    return "\n".join(lines)


def _goal_text(request: ContextRequest) -> str:
    lines = [] if request.task.goal is None else [f"Goal: {request.task.goal}"]
    lines.extend(f"[ ] {step}" for step in request.task.todo)
    return "\n".join(lines)


def _scope_text(request: ContextRequest) -> str:
    identity = request.identity
    assert identity is not None, "the engine sets the identity"
    scope = {
        "tenant": identity.tenant,
        "groups": sorted(identity.groups),
        "clearance": identity.clearance.value,
        "environment": identity.environment,
        "purpose": identity.purpose,
    }
    known = {name: value for name, value in scope.items() if value}
    return "What this caller may see: " + canonical_json(known)


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=1)
