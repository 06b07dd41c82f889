"""Budget: what fits. The batch half counts tokens exactly; the serve half divides the window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ctx_pipeline.contracts import (
    BudgetReport,
    ContextRequest,
    EffectivePolicy,
    Exclusion,
    ItemKind,
    ModelProfile,
    Rendition,
    SectionBudget,
    WhenToLoad,
)
from ctx_pipeline.errors import BudgetTooSmall
from ctx_pipeline.stages.candidates import REQUEST_ROW, Candidate
from ctx_pipeline.stages.sections import SECTIONS, TOOLS

if TYPE_CHECKING:
    import pyarrow as pa

CountMany = Callable[[Sequence[str], str], list[int]]
READ_ROWS = 8_192
"""Rows whose texts are Python objects at a time."""
_OBSERVATION = ItemKind.OBSERVATION.value
_ALWAYS = WhenToLoad.ALWAYS.value
_PREFETCH = WhenToLoad.PREFETCH.value
_JUST_IN_TIME = WhenToLoad.JUST_IN_TIME.value
SHARE_OF_SECTION = {section.name: section.share for section in SECTIONS} | {TOOLS: TOOLS}


@dataclass(frozen=True, slots=True)
class Limits:
    """The window of one call, in tokens of the profile's encoding."""

    hard_limit: int
    usable: int
    soft_target: int
    output_reserve: int
    headroom: int


@dataclass(frozen=True, slots=True)
class Budgeted:
    """Which candidates are in and in which rendition, and the report of the window."""

    candidates: list[Candidate]
    report: BudgetReport


def batch(blocks: pa.Table, encodings: Sequence[str], count_many: CountMany) -> pa.Table:
    """Count every rendition of every row in each encoding.

    Columns: `<rendition>_<encoding>`, int32; 0 where a rendition does not exist.
    """
    import pyarrow as pa

    columns: dict[str, list[int]] = {f"{level.value}_{encoding}": [] for level in Rendition for encoding in encodings}
    for part in blocks.to_batches(max_chunksize=READ_ROWS):
        for rendition in Rendition:
            texts = part.column(rendition.value).to_pylist()
            present = [text for text in texts if text is not None]
            for encoding in encodings:
                counts = iter(count_many(present, encoding))
                column = columns[f"{rendition.value}_{encoding}"]
                column.extend(0 if text is None else next(counts) for text in texts)
    return pa.table({name: pa.array(counts, pa.int32()) for name, counts in columns.items()})


def limits_of(profile: ModelProfile, token_budget: int | None) -> Limits:
    """Divide a model's window: reserves and headroom off the hard limit; a caller's budget caps what is usable.

    Tokens of models without a public tokenizer are counted with the profile's encoding and its safety factor.
    """
    window = profile.max_input_tokens
    reserve = profile.output_reserve + profile.reasoning_reserve
    if profile.context_window is not None:
        window = min(window, profile.context_window - reserve)
    headroom = int(window * profile.safety_headroom)
    usable = max(0, int((window - headroom) / profile.token_safety_factor))
    if token_budget is not None:
        usable = min(usable, token_budget)
    target = min(usable, profile.preferred_context_target if token_budget is None else usable)
    return Limits(window, usable, target, reserve, headroom)


def serve(
    candidates: Sequence[Candidate],
    request: ContextRequest,
    *,
    profile: ModelProfile,
    policy: EffectivePolicy,
    heading_tokens: Mapping[str, int],
    source_kinds: Mapping[str, str] | None = None,
) -> Budgeted:
    """Choose what is shown and how much of it.

    Protected items go first and never lose; then the best of each required type; then what loads always and what is
    prefetched; then every section up to its share; then what is left goes to the best of what is still out. An item
    degrades to its compact rendition or to a pointer before it disappears, when the window is full or when its source
    has spent its `max_budget`. `heading_tokens` is what opening and closing each section costs; `source_kinds` is the
    kind of each source.

    Raises:
        BudgetTooSmall: the protected items alone do not fit.
    """
    limits = limits_of(profile, request.token_budget)
    _leave_out_unpaired(candidates, request)
    alive = [candidate for candidate in candidates if candidate.excluded is None]
    caps = _source_caps(policy, limits, source_kinds or {})
    purse = _Purse(limits, heading_tokens, {c.row: c for c in alive if c.row != REQUEST_ROW}, caps)
    _spend_protected([c for c in alive if c.protected], purse)
    _spend_required(alive, request, purse)
    _spend([c for c in alive if c.when_to_load == _ALWAYS and not c.selected], purse, policy, None, profile)
    planned = _plan(policy, limits)
    _spend([c for c in alive if c.when_to_load == _PREFETCH and not c.selected], purse, policy, planned, profile)
    _spend_history([c for c in alive if c.section == "history"], request, purse, planned)
    rest = [c for c in alive if not c.selected and c.section not in ("history",)]
    _spend(rest, purse, policy, planned, profile)
    _spend([c for c in rest if not c.selected], purse, policy, None, profile)
    for candidate in alive:
        if not candidate.selected:
            candidate.excluded = Exclusion.OVER_BUDGET
            candidate.counterfactual = purse.lacking(candidate)
    return Budgeted(list(candidates), _report(limits, planned, purse))


def _report(limits: Limits, planned: Mapping[str, int], purse: _Purse) -> BudgetReport:
    return BudgetReport(
        hard_limit=limits.hard_limit,
        usable=limits.usable,
        soft_target=limits.soft_target,
        output_reserve=limits.output_reserve,
        headroom=limits.headroom,
        sections=tuple(
            SectionBudget(section=name, planned=tokens, used=purse.used_by.get(name, 0))
            for name, tokens in planned.items()
        ),
    )


@dataclass(slots=True)
class _Purse:
    """Counts what has been spent."""

    limits: Limits
    heading_tokens: Mapping[str, int]
    by_row: Mapping[int, Candidate]
    source_caps: Mapping[str, int]
    used: int = 0
    used_by: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    used_of: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Tokens by source."""
    opened: set[str] = field(default_factory=set[str])

    @property
    def left(self) -> int:
        return self.limits.soft_target - self.used

    def price(self, candidate: Candidate, tokens: int) -> int:
        opening = 0 if candidate.section in self.opened else self.heading_tokens.get(candidate.section, 0)
        return tokens + opening

    def has_source_room(self, candidate: Candidate, tokens: int) -> bool:
        cap = self.source_caps.get(candidate.source)
        return cap is None or self.used_of[candidate.source] + tokens <= cap

    def lacking(self, candidate: Candidate) -> str:
        """Return what would have let a candidate in."""
        if candidate.cost <= self.left and not self.has_source_room(candidate, candidate.cost):
            cap = self.source_caps[candidate.source]
            short = self.used_of[candidate.source] + candidate.cost - cap
            return f"+{short} tokens in the budget of source {candidate.source!r}, which is {cap}"
        return f"+{max(1, candidate.cost - self.left)} tokens"

    def take(self, candidate: Candidate, rendition: Rendition, tokens: int, reason: str) -> None:
        price = self.price(candidate, tokens)
        self.used += price
        self.used_by[SHARE_OF_SECTION[candidate.section]] += price
        self.used_of[candidate.source] += tokens
        self.opened.add(candidate.section)
        candidate.selected = True
        candidate.selected_reason = reason
        candidate.rendition = rendition


def _spend_protected(protected: Sequence[Candidate], purse: _Purse) -> None:
    for candidate in sorted(protected, key=lambda c: (c.section, c.order, c.item_id)):
        purse.take(candidate, Rendition.FULL, candidate.tokens[0], "protected")
    if purse.used > purse.limits.usable:
        largest = max(protected, key=lambda c: (c.tokens[0], c.item_id))
        raise BudgetTooSmall(
            f"protected items need {purse.used} tokens but the budget has {purse.limits.usable}",
            where=f"section {largest.section!r}, largest item {largest.item_id!r} with {largest.tokens[0]} tokens",
            fix=f"raise the budget to at least {purse.used} tokens, or shorten {largest.item_id!r}",
        )


def _spend_required(alive: Sequence[Candidate], request: ContextRequest, purse: _Purse) -> None:
    """Take the best item of each required type, in the largest rendition that the usable window holds."""
    for kind in request.required_types:
        if any(candidate.selected and candidate.kind == kind for candidate in alive):
            continue
        for candidate in (c for c in alive if c.kind == kind and not c.selected):
            room = purse.limits.usable - purse.used
            choice = _largest(candidate, purse, room, pointer=False)
            if choice is not None:
                purse.take(candidate, *choice, reason="required type")
                break


def _source_caps(policy: EffectivePolicy, limits: Limits, kinds: Mapping[str, str]) -> dict[str, int]:
    """Return the most tokens that items of each source may take, where the policy says so."""
    caps: dict[str, int] = {}
    for name, kind in kinds.items():
        most = policy.max_budgets.get(name, policy.max_budgets.get(kind))
        if most is not None:
            caps[name] = most if isinstance(most, int) else int(limits.soft_target * most)
    return caps


def _plan(policy: EffectivePolicy, limits: Limits) -> dict[str, int]:
    total = sum(policy.shares.values()) or 1.0
    return {name: int(limits.soft_target * share / total) for name, share in policy.shares.items()}


def _spend_history(
    messages: Sequence[Candidate], request: ContextRequest, purse: _Purse, planned: Mapping[str, int]
) -> None:
    """Keep the most recent messages that fit; a tool call and its results stay together or go together."""
    by_order = {candidate.order: candidate for candidate in messages}
    groups = message_groups(request)
    for group in groups:
        members = [by_order[number] for number in group if number in by_order]
        rest = [member for member in members if not member.selected]
        # One that a required type took brings those it may not be separated from.
        if len(rest) < len(members) and sum(member.tokens[0] for member in rest) <= purse.limits.usable - purse.used:
            for member in rest:
                purse.take(member, Rendition.FULL, member.tokens[0], "recent history")
    room = min(planned.get("history", 0), purse.left)
    for group in reversed(groups):
        members = [by_order[number] for number in group if number in by_order and not by_order[number].selected]
        if not members:
            continue
        price = sum(member.tokens[0] for member in members)
        if "history" not in purse.opened:
            price += purse.heading_tokens.get("history", 0)
        if price > room:
            return
        for member in members:
            purse.take(member, Rendition.FULL, member.tokens[0], "recent history")
        room -= price


def _leave_out_unpaired(candidates: Sequence[Candidate], request: ContextRequest) -> None:
    unpaired = unpaired_messages(request)
    for candidate in candidates:
        if candidate.section == "history" and candidate.row == REQUEST_ROW and candidate.order in unpaired:
            candidate.excluded, candidate.counterfactual = Exclusion.GATE_REMOVED, unpaired[candidate.order]


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
            lacking.update(dict.fromkeys(results, "other results of its call are not in the request"))
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


def _spend(
    candidates: Sequence[Candidate],
    purse: _Purse,
    policy: EffectivePolicy,
    planned: Mapping[str, int] | None,
    profile: ModelProfile,
) -> None:
    """Take candidates in order of score while their section (`planned`) and the window have room."""
    for candidate in candidates:
        if candidate.selected:
            continue
        share = SHARE_OF_SECTION[candidate.section]
        room = purse.left
        if planned is not None:
            room = min(room, planned.get(share, 0) - purse.used_by.get(share, 0))
        if candidate.section == TOOLS:
            room = min(room, profile.tool_schema_budget - purse.used_by.get(TOOLS, 0))
        if room < candidate.smallest:
            continue
        # In the first pass an item that does not fit whole waits for what other sections leave over.
        choice = _largest(candidate, purse, room, pointer=planned is None, policy=policy)
        if choice is not None:
            purse.take(candidate, *choice, reason="score")
            _take_needs(candidate, purse, policy)


def _take_needs(candidate: Candidate, purse: _Purse, policy: EffectivePolicy) -> None:
    """What an item cannot be understood without comes with it: a metric with its table."""
    for row in candidate.needs:
        needed = purse.by_row.get(row)
        if needed is not None and not needed.selected and needed.section != TOOLS:
            choice = _largest(needed, purse, purse.left, pointer=True, policy=policy)
            if choice is not None:
                purse.take(needed, *choice, reason=f"needed by {candidate.item_id}")


def _largest(
    candidate: Candidate, purse: _Purse, room: int, *, pointer: bool, policy: EffectivePolicy | None = None
) -> tuple[Rendition, int] | None:
    """Return the largest rendition that fits into `room`, with its tokens."""
    full, compact, short = candidate.tokens
    oversize = (
        policy is not None and candidate.kind == _OBSERVATION and full > policy.max_observation_tokens and compact > 0
    )
    if candidate.section == TOOLS:
        # A tool is its schema; half of one cannot be called.
        options = ((Rendition.FULL, full),)
    elif candidate.when_to_load == _JUST_IN_TIME:
        options = ((Rendition.POINTER, short),)
    else:
        options = ((Rendition.FULL, 0 if oversize else full), (Rendition.COMPACT, compact))
        if pointer:
            options = (*options, (Rendition.POINTER, short))
    for rendition, tokens in options:
        # What is required comes without a policy: a source's budget never costs the call what it cannot do without.
        if policy is not None and not purse.has_source_room(candidate, tokens):
            continue
        if tokens > 0 and purse.price(candidate, tokens) <= room:
            return rendition, tokens
    return None
