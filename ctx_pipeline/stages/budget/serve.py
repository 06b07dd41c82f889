"""Budget: what fits. The batch half counts tokens exactly; the serve half divides the window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ctx_pipeline.contracts import (
    BudgetReport,
    ContextRequest,
    EffectivePolicy,
    Exclusion,
    ModelProfile,
    PackWarning,
    Rendition,
    SectionBudget,
    WhenToLoad,
)
from ctx_pipeline.stages.budget.allocate import Option, allocate
from ctx_pipeline.stages.budget.wayin import explain_out
from ctx_pipeline.stages.budget.window import (
    SHARE_OF_SECTION,
    Limits,
    Window,
    limits_of,
    open_window,
    plan,
    spend_called,
    spend_first,
    spend_protected,
    spend_required,
)
from ctx_pipeline.stages.budget.worth import options_of, show, stop_filling
from ctx_pipeline.stages.candidates import Candidate
from ctx_pipeline.stages.history import HISTORY, leave_out_unpaired, message_groups
from ctx_pipeline.stages.sections import TOOLS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "SHARE_OF_SECTION",
    "Budgeted",
    "Limits",
    "Prepared",
    "batch",
    "limits_of",
    "prepare",
    "serve",
]

TOOL_SHARE = 0.25
"""Most of the window that the catalogue's tools take while other items have a use for it."""
CountMany = Callable[[Sequence[str], str], list[int]]
READ_ROWS = 8_192
"""Rows whose texts are Python objects at a time."""
_ALWAYS = WhenToLoad.ALWAYS.value
_PREFETCH = WhenToLoad.PREFETCH.value


@dataclass(frozen=True, slots=True)
class Budgeted:
    """Which candidates are in and in which rendition, and the report of the window."""

    candidates: list[Candidate]
    report: BudgetReport
    warnings: tuple[PackWarning, ...]
    explain: Callable[[], None]
    """Writes what would have let each candidate in that did not fit; no pack needs it, only the trace."""


def batch(blocks: pa.Table, encodings: Sequence[str], count_many: CountMany) -> pa.Table:
    """Count every rendition of every row in each encoding.

    Columns: `<rendition>_<encoding>`, int32; 0 where a rendition does not exist.
    """
    import pyarrow as pa

    columns: dict[str, list[int]] = {
        f"{level.value}_{encoding}": [] for level in Rendition for encoding in encodings
    }
    for part in blocks.to_batches(max_chunksize=READ_ROWS):
        for rendition in Rendition:
            texts = part.column(rendition.value).to_pylist()
            present = [text for text in texts if text is not None]
            for encoding in encodings:
                counts = iter(count_many(present, encoding))
                column = columns[f"{rendition.value}_{encoding}"]
                column.extend(0 if text is None else next(counts) for text in texts)
    return pa.table({name: pa.array(counts, pa.int32()) for name, counts in columns.items()})


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
    candidates: Sequence[Candidate],
    request: ContextRequest,
    *,
    profile: ModelProfile,
    policy: EffectivePolicy,
    heading_tokens: Mapping[str, int],
    source_kinds: Mapping[str, str] | None = None,
    improve: bool = True,
) -> Budgeted:
    """Choose what is shown and how much of it.

    Protected items go first and never lose; then the best of each required type; then what loads always and what is
    prefetched. The others are chosen together, by what they are worth to the call and by the token (`worth`): what
    stands within the share of its section counts more, and what one section leaves, others may take. An item degrades
    to a smaller rendition before it disappears. `heading_tokens` is what opening and closing each section costs;
    `source_kinds` is the kind of each source; `improve` may be False to save time.

    Raises:
        BudgetTooSmall: the protected items alone do not fit.
    """
    ready = prepare(
        candidates,
        request,
        profile=profile,
        policy=policy,
        heading_tokens=heading_tokens,
        source_kinds=source_kinds or {},
    )
    window = ready.window
    allocate(ready.options, window.left, ready.headings, improve=improve)
    show(ready.options, window)
    for candidate in candidates:
        if candidate.excluded is None and not candidate.selected:
            candidate.excluded = Exclusion.OVER_BUDGET
    first = frozenset((_ALWAYS, _PREFETCH, *request.required_types))
    return Budgeted(
        list(candidates),
        _report(ready),
        _warnings(ready, request, profile),
        partial(explain_out, ready.options, window, first),
    )


def prepare(
    candidates: Sequence[Candidate],
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
    leave_out_unpaired(candidates, request)
    alive = [candidate for candidate in candidates if candidate.excluded is None]
    window = open_window(
        limits,
        alive,
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
    stop_filling(alive, policy)
    alive = [candidate for candidate in alive if candidate.excluded is None]
    options = options_of(alive, request, window, planned)
    if request.tools is None:
        _hold_tools(options, window, planned.get(TOOLS, 0))
    return Prepared(window, planned, options, required)


def _hold_tools(options: Sequence[Option], window: Window, planned: int) -> None:
    """Hold the tools of the catalogue to `TOOL_SHARE` of the window, or what the policy plans, if others want the rest.

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
    if not any(candidate.selected for candidate in by_order.values()):
        return
    for group in message_groups(request):
        members = [by_order[number] for number in group if number in by_order]
        rest = [member for member in members if not member.selected]
        tokens = sum(member.tokens[0] for member in rest)
        if len(rest) < len(members) and tokens <= window.limits.usable - window.used:
            for member in rest:
                window.take(member, Rendition.FULL, member.tokens[0], "recent history")


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
        message = f"what is protected or required has {ready.required} tokens, the cost budget pays for {affordable}"
        return (PackWarning(code="cost_budget_exceeded", message=message),)
    return ()
