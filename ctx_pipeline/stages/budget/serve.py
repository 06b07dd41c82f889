"""Budget: what fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ctx_pipeline.contracts import (
    BudgetReport,
    ContextRequest,
    EffectivePolicy,
    Exclusion,
    ModelProfile,
    PackWarning,
    SectionBudget,
    WhenToLoad,
)
from ctx_pipeline.stages.budget.allocate import Option, allocate
from ctx_pipeline.stages.budget.shown import grain_warnings, part_warnings
from ctx_pipeline.stages.budget.wayin import explain_out
from ctx_pipeline.stages.budget.window import (
    Window,
    group_sizes,
    limits_of,
    open_window,
    plan,
    spend_called,
    spend_first,
    spend_protected,
    spend_required,
)
from ctx_pipeline.stages.budget.worth import options_of, show, stop_filling
from ctx_pipeline.stages.candidates import Candidate, Judged
from ctx_pipeline.stages.history import HISTORY, leave_out_unpaired, message_groups
from ctx_pipeline.stages.sections import TOOLS

TOOL_SHARE = 0.25
"""Most of the window that the catalogue's tools take while other items have a use for it."""
_ALWAYS = WhenToLoad.ALWAYS.value
_PREFETCH = WhenToLoad.PREFETCH.value


@dataclass(frozen=True, slots=True)
class Budgeted:
    """Which candidates are in and in which rendition, and the report of the window."""

    judged: Judged
    report: BudgetReport
    warnings: tuple[PackWarning, ...]
    explain: Callable[[], Judged]
    """Returns the same with what would have let each candidate in that did not fit; no pack needs
    it, only the trace."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A window in which what does not compete has been taken, and what is left to choose from."""

    window: Window
    planned: Mapping[str, int]
    options: list[Option]
    required: int
    """Tokens of what is protected or required, headings included."""

    @property
    def headings(self) -> dict[str, int]:
        """What it costs to open each section that is not open yet."""
        window = self.window
        return {
            name: cost for name, cost in window.heading_tokens.items() if name not in window.opened
        }


def serve(
    judged: Judged,
    request: ContextRequest,
    *,
    profile: ModelProfile,
    policy: EffectivePolicy,
    heading_tokens: Mapping[str, int],
    source_kinds: Mapping[str, str] | None = None,
    improve: bool = True,
) -> Budgeted:
    """Choose what is shown and how much of it.

    Protected items go first and never lose; then the best of each required type; then what loads
    always and what is prefetched. The others are chosen together, by what they are worth to the
    call and by the token (`worth`): what stands within the share of its section counts more, and
    what one section leaves, others may take. An item degrades to a smaller rendition before it
    disappears. `heading_tokens` is what opening and closing each section costs; `source_kinds` is
    the kind of each source; `improve` may be False to save time.

    Raises:
        BudgetTooSmall: the protected items alone do not fit.
    """
    ready = prepare(
        judged,
        request,
        profile=profile,
        policy=policy,
        heading_tokens=heading_tokens,
        source_kinds=source_kinds or {},
    )
    window = ready.window
    allocate(ready.options, window.left, ready.headings, improve=improve)
    show(ready.options, window)
    for candidate, verdict in window.verdicts.items():
        if verdict.excluded is None and verdict.rendition is None:
            window.verdicts[candidate] = verdict.out(Exclusion.OVER_BUDGET)
    first = frozenset((_ALWAYS, _PREFETCH, *request.required_types))
    decided = Judged(judged.candidates, window.verdicts)
    return Budgeted(
        decided,
        _report(ready),
        (
            *_warnings(ready, request, profile),
            *part_warnings(decided, request),
            *grain_warnings(decided),
        ),
        partial(_explained, decided, ready, first),
    )


def _explained(decided: Judged, ready: Prepared, first: frozenset[str]) -> Judged:
    lacking = explain_out(ready.options, ready.window, first)
    return decided.ruled(
        {c: decided.verdicts[c]._replace(counterfactual=text) for c, text in lacking.items()}
    )


def prepare(
    judged: Judged,
    request: ContextRequest,
    *,
    profile: ModelProfile,
    policy: EffectivePolicy,
    heading_tokens: Mapping[str, int],
    source_kinds: Mapping[str, str],
) -> Prepared:
    """Take what does not compete, and return what the rest is chosen from.

    Raises:
        BudgetTooSmall: the protected items alone do not fit.
    """
    limits = limits_of(profile, request.token_budget, request.cost_budget)
    paired = leave_out_unpaired(judged, request)
    alive = paired.alive()
    window = open_window(
        limits,
        paired,
        profile=profile,
        policy=policy,
        heading_tokens=heading_tokens,
        source_kinds=source_kinds,
    )
    spend_protected(alive, window)
    spend_required(alive, request, window)
    _complete_groups(alive, request, window)
    spend_called(alive, window)
    required = window.used
    planned = plan(policy, limits)
    spend_first([c for c in alive if c.when_to_load == _ALWAYS], window, None)
    spend_first([c for c in alive if c.when_to_load == _PREFETCH], window, planned)
    worthy = stop_filling(alive, window, policy)
    options = options_of(worthy, request, window, planned)
    if request.tools is None:
        _hold_tools(options, window, planned.get(TOOLS, 0))
    return Prepared(window, planned, options, required)


def _hold_tools(options: Sequence[Option], window: Window, planned: int) -> None:
    """Hold the tools of the catalogue to `TOOL_SHARE` of the window, or what the policy plans, if
    others want the rest.

    Every tool that a model sees makes the choice between them harder.
    """
    others = sum(option.choices[-1][0] for option in options if option.section != TOOLS)
    most = max(int(window.limits.soft_target * TOOL_SHARE), planned, window.left - others)
    purse = window.tool_purse
    if most < purse.most:
        purse.name, purse.left, purse.most = (
            "the tool schema budget of this window",
            max(0, most - (purse.most - purse.left)),
            most,
        )


def _complete_groups(alive: Sequence[Candidate], request: ContextRequest, window: Window) -> None:
    """A message that a required type took brings those it may not be separated from."""
    by_order = {candidate.order: candidate for candidate in alive if candidate.section == HISTORY}
    if not any(window.shows(candidate) for candidate in by_order.values()):
        return
    for group in message_groups(request, min(by_order)):
        members = [by_order[number] for number in group if number in by_order]
        rest = [member for member in members if not window.shows(member)]
        if not rest or len(rest) == len(members):
            continue
        room = window.limits.usable - window.used
        for parts in reversed(group_sizes(rest, window.most_observation)):
            if sum(tokens for _, tokens in parts) <= room:
                for member, part in zip(rest, parts, strict=True):
                    window.take(member, *part, "recent history")
                break


def _report(ready: Prepared) -> BudgetReport:
    limits, used_by = ready.window.limits, ready.window.used_by
    return BudgetReport(
        hard_limit=limits.hard_limit,
        usable=limits.usable,
        soft_target=limits.soft_target,
        output_reserve=limits.output_reserve,
        headroom=limits.headroom,
        affordable=limits.affordable,
        sections=tuple(
            SectionBudget(
                section=name,
                planned=tokens,
                used=used_by.get(name, 0),
                borrowed=max(0, used_by.get(name, 0) - tokens),
            )
            for name, tokens in ready.planned.items()
        ),
    )


def _warnings(
    ready: Prepared, request: ContextRequest, profile: ModelProfile
) -> tuple[PackWarning, ...]:
    if request.cost_budget is None:
        return ()
    affordable = ready.window.limits.affordable
    if affordable is None:
        message = (
            f"profile {profile.model_id!r} has no input_price, so what a pack costs is not known"
        )
        return (PackWarning(code="cost_unknown", message=message),)
    if ready.required > affordable:
        message = (
            f"what is protected or required has {ready.required} tokens, "
            f"the cost budget pays for {affordable}"
        )
        return (PackWarning(code="cost_budget_exceeded", message=message),)
    return ()
