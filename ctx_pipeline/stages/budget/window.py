"""Window: how many tokens there are, and what has been spent of them before anything is weighed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ctx_pipeline.contracts import (
    ContextRequest,
    EffectivePolicy,
    Exclusion,
    ItemKind,
    ModelProfile,
    Rendition,
    WhenToLoad,
)
from ctx_pipeline.errors import BudgetTooSmall
from ctx_pipeline.stages.budget.allocate import Parts, Purse
from ctx_pipeline.stages.candidates import REQUEST_ROW, SCOPE_ID, Candidate, Judged, Verdict
from ctx_pipeline.stages.routing import REFERENCED
from ctx_pipeline.stages.sections import SECTIONS, TOOLS

SHARE_OF_SECTION = {section.name: section.share for section in SECTIONS} | {TOOLS: TOOLS}
NAMED_CUTS = 3
"""Protected items, largest first, that an error names."""

_OBSERVATION = ItemKind.OBSERVATION.value
_JUST_IN_TIME = WhenToLoad.JUST_IN_TIME.value
_FULL, _COMPACT, _POINTER = Rendition.FULL, Rendition.COMPACT, Rendition.POINTER


@dataclass(frozen=True, slots=True)
class Limits:
    """The window of one call, in tokens of the profile's encoding."""

    hard_limit: int
    usable: int
    soft_target: int
    output_reserve: int
    headroom: int
    affordable: int | None = None
    """Tokens that the cost budget pays for. None: there is none, or the profile has no price."""


def limits_of(
    profile: ModelProfile, token_budget: int | None, cost_budget: float | None = None
) -> Limits:
    """Divide a model's window: reserves and headroom off the hard limit; a caller's budget caps
    what is usable.

    A cost budget caps what is aimed for, never what is usable. Tokens of models without a public
    tokenizer are counted with the profile's encoding and its safety factor.
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
    affordable = None
    if cost_budget is not None and profile.input_price is not None:
        price = profile.input_price * profile.token_safety_factor / 1_000_000
        affordable = int(cost_budget / price) if price > 0 else usable
        target = min(target, affordable)
    return Limits(window, usable, target, reserve, headroom, affordable)


def plan(policy: EffectivePolicy, limits: Limits) -> dict[str, int]:
    """Return the tokens that each share of the policy comes to."""
    total = sum(policy.shares.values()) or 1.0
    return {name: int(limits.soft_target * share / total) for name, share in policy.shares.items()}


def choices_of(candidate: Candidate, most_observation: int) -> tuple[tuple[Rendition, int], ...]:
    """Return the renditions in which a candidate may be shown, largest first, with their tokens."""
    full, compact, pointer = candidate.tokens
    if candidate.section == TOOLS:
        # Both forms of a tool can be called with the same arguments; a pointer cannot.
        return tuple(choice for choice in ((_FULL, full), (_COMPACT, compact)) if choice[1])
    if candidate.when_to_load == _JUST_IN_TIME:
        return ((_POINTER, pointer),) if pointer else ()
    if candidate.cuts or not candidate.whole:
        whole = ((_FULL, full),) if candidate.whole else ()
        cuts = tuple((_COMPACT, cut.tokens) for cut in candidate.cuts)
        return (*whole, *cuts, (_POINTER, pointer)) if pointer else (*whole, *cuts)
    if compact:
        if candidate.kind == _OBSERVATION and full > most_observation:
            return ((_COMPACT, compact), (_POINTER, pointer)) if pointer else ((_COMPACT, compact),)
        found = ((_FULL, full), (_COMPACT, compact), (_POINTER, pointer))
        return found if pointer else found[:2]
    return ((_FULL, full), (_POINTER, pointer)) if pointer else ((_FULL, full),)


def group_sizes(members: Sequence[Candidate], most_observation: int) -> tuple[Parts, ...]:
    """Return the sizes in which messages may be shown that stay together, each larger than the one
    before.
    """
    offered = [
        [choice for choice in choices_of(member, most_observation) if choice[0] is not _POINTER]
        or [(_FULL, member.tokens[0])]
        for member in members
    ]
    sizes: list[Parts] = []
    for at in range(max(map(len, offered)) - 1, -1, -1):
        parts = tuple(choices[min(at, len(choices) - 1)] for choices in offered)
        if not sizes or sum(t for _, t in parts) > sum(t for _, t in sizes[-1]):
            sizes.append(parts)
    return tuple(sizes)


@dataclass(slots=True)
class Window:
    """Counts what has been spent."""

    limits: Limits
    heading_tokens: Mapping[str, int]
    by_row: Mapping[int, Candidate]
    """The indexed candidates that are still in."""
    most_observation: int
    source_purses: Mapping[str, Purse]
    """What the items of a source may take, where the policy says so."""
    tool_purse: Purse
    verdicts: dict[Candidate, Verdict]
    """Those of the stage before, and what has been taken or left out since."""
    used: int = 0
    used_by: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Tokens by share."""
    opened: set[str] = field(default_factory=set[str])
    first: list[Candidate] = field(default_factory=list[Candidate])
    """What was taken before anything was weighed."""

    def shows(self, candidate: Candidate) -> bool:
        """Return whether a candidate has been taken."""
        return self.verdicts[candidate].rendition is not None

    @property
    def left(self) -> int:
        """Tokens up to what is aimed for; negative where what may not be left out went beyond."""
        return self.limits.soft_target - self.used

    def price(self, candidate: Candidate, tokens: int) -> int:
        """Return tokens and, where the section is not open yet, its heading."""
        return (
            tokens
            if candidate.section in self.opened
            else tokens + self.heading_tokens.get(candidate.section, 0)
        )

    def purses_of(self, candidate: Candidate) -> tuple[Purse, ...]:
        """Return the purses that a candidate draws on besides the window."""
        own = self.source_purses.get(candidate.source)
        if candidate.section == TOOLS:
            return (self.tool_purse,) if own is None else (self.tool_purse, own)
        return () if own is None else (own,)

    def take(
        self,
        candidate: Candidate,
        rendition: Rendition,
        tokens: int,
        reason: str,
        *,
        paid: bool = False,
    ) -> None:
        """Show a candidate. `paid`: its purses have counted it already."""
        price = self.price(candidate, tokens)
        self.used += price
        self.used_by[SHARE_OF_SECTION[candidate.section]] += price
        self.opened.add(candidate.section)
        if not paid:
            self.first.append(candidate)
            for purse in self.purses_of(candidate):
                purse.left -= tokens
        cuts = candidate.cuts if rendition is _COMPACT else ()
        self.verdicts[candidate] = self.verdicts[candidate]._replace(
            rendition=rendition,
            reason=reason,
            cut=next((cut for cut in cuts if cut.tokens == tokens), None),
        )


def open_window(
    limits: Limits,
    judged: Judged,
    *,
    profile: ModelProfile,
    policy: EffectivePolicy,
    heading_tokens: Mapping[str, int],
    source_kinds: Mapping[str, str],
) -> Window:
    """Return a window of which nothing has been spent; `source_kinds` is the
    kind of each source.
    """
    purses: dict[str, Purse] = {}
    for name, kind in source_kinds.items() if policy.max_budgets else ():
        most = policy.max_budgets.get(name, policy.max_budgets.get(kind))
        if most is not None:
            tokens = most if isinstance(most, int) else int(limits.soft_target * most)
            purses[name] = Purse(f"the budget of source {name!r}", tokens, tokens)
    tools = Purse(
        "the tool schema budget of the model profile",
        profile.tool_schema_budget,
        profile.tool_schema_budget,
    )
    by_row = {candidate.row: candidate for candidate in judged.indexed()}
    return Window(
        limits,
        heading_tokens,
        by_row,
        policy.max_observation_tokens,
        purses,
        tools,
        dict(judged.verdicts),
    )


def spend_protected(alive: Sequence[Candidate], window: Window) -> None:
    """Take what is protected, whole; what is spare, where it fits beside the rest.

    Raises:
        BudgetTooSmall: the rest does not fit; the error names the largest items.
    """
    protected = [candidate for candidate in alive if candidate.protected and not candidate.spare]
    for candidate in sorted(protected, key=lambda c: (c.section, c.order, c.item_id)):
        window.take(candidate, Rendition.FULL, candidate.tokens[0], "protected")
    over = window.used - window.limits.usable
    if over > 0:
        protected.sort(key=lambda c: (-c.tokens[0], c.item_id))
        largest = protected[0]
        others = "".join(f", {c.item_id!r} with {c.tokens[0]}" for c in protected[1:NAMED_CUTS])
        raise BudgetTooSmall(
            f"protected items need {window.used} tokens but the budget has {window.limits.usable}",
            where=(
                f"section {largest.section!r}, largest item "
                f"{largest.item_id!r} with {largest.tokens[0]} tokens"
            )
            + others,
            fix=f"raise the budget to at least {window.used} tokens{_cuts(protected, over)}",
        )
    for candidate in [candidate for candidate in alive if candidate.protected and candidate.spare]:
        lacking = window.used + window.price(candidate, candidate.tokens[0]) - window.limits.usable
        if lacking > 0:
            window.verdicts[candidate] = window.verdicts[candidate].out(
                Exclusion.OVER_BUDGET, f"+{lacking} tokens"
            )
        else:
            window.take(candidate, Rendition.FULL, candidate.tokens[0], "protected")


def _cuts(largest: Sequence[Candidate], over: int) -> str:
    """Name the fewest of the largest items that hold more than has to go; nothing where that helps
    nobody.

    The permission scope comes from the caller's identity, and what a model has to be told of it
    stays.
    """
    held = 0
    names: list[str] = []
    for candidate in [c for c in largest if c.item_id != SCOPE_ID][:NAMED_CUTS]:
        names.append(repr(candidate.item_id))
        held += candidate.tokens[0]
        if held > over:
            return f", or shorten {' and '.join(names)} by {over} tokens"
    return ""


def spend_required(alive: Sequence[Candidate], request: ContextRequest, window: Window) -> None:
    """Take the best item of each required type, in the largest rendition that the usable window
    holds.

    Neither the budget of its source nor the cost budget costs a call what it cannot do without.
    """
    for kind in request.required_types:
        if any(candidate.kind == kind and window.shows(candidate) for candidate in alive):
            continue
        room = window.limits.usable - window.used
        # What only points to another one of the request comes last.
        of_kind = [candidate for candidate in alive if candidate.kind == kind]
        of_kind.sort(key=lambda c: c.row == REQUEST_ROW and c.when_to_load == _JUST_IN_TIME)
        for candidate in of_kind:
            pointers = candidate.when_to_load == _JUST_IN_TIME
            whole = choices_of(candidate, candidate.tokens[0])
            choice = next(
                (
                    (rendition, tokens)
                    for rendition, tokens in whole
                    if (pointers or rendition is not _POINTER)
                    and window.price(candidate, tokens) <= room
                ),
                None,
            )
            if choice is not None:
                window.take(candidate, *choice, reason="required type")
                break


def spend_called(alive: Sequence[Candidate], window: Window) -> None:
    """Take the tools that the conversation has called: whole where all of them fit, else in their
    compact rendition.
    """
    tools = [
        candidate
        for candidate in alive
        if REFERENCED in candidate.discovered_by and not window.shows(candidate)
    ]
    room = min(window.limits.usable - window.used, window.tool_purse.left)
    whole = sum(candidate.tokens[0] for candidate in tools) <= room
    for candidate in tools:
        rendition, tokens = choices_of(candidate, candidate.tokens[0])[0 if whole else -1]
        if tokens <= room:
            window.take(candidate, rendition, tokens, "history refers to it")
            room -= tokens


def spend_first(
    candidates: Sequence[Candidate], window: Window, planned: Mapping[str, int] | None
) -> None:
    """Take what the policy asks for whatever the request is, in order, with what it needs.

    `planned` holds it to the share of its section; there nothing becomes a pointer to fit.
    """
    for candidate in candidates:
        if not window.shows(candidate) and _take_largest(candidate, window, planned, "score"):
            for row in candidate.needs:
                needed = window.by_row.get(row)
                if needed is not None and not window.shows(needed) and needed.section != TOOLS:
                    _take_largest(needed, window, None, f"needed by {candidate.item_id}")


def _take_largest(
    candidate: Candidate, window: Window, planned: Mapping[str, int] | None, reason: str
) -> bool:
    room = window.left
    if planned is not None:
        share = SHARE_OF_SECTION[candidate.section]
        room = min(room, planned.get(share, 0) - window.used_by.get(share, 0))
    pointers = planned is None or candidate.when_to_load == _JUST_IN_TIME
    purses = window.purses_of(candidate)
    for rendition, tokens in choices_of(candidate, window.most_observation):
        if rendition is _POINTER and not pointers:
            break
        if window.price(candidate, tokens) <= room and all(
            tokens <= purse.left for purse in purses
        ):
            window.take(candidate, rendition, tokens, reason)
            return True
    return False
