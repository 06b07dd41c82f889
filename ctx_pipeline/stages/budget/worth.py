"""Worth: what showing a candidate is worth to the call, and where showing more of them stops.

What an item is worth is how relevant it is times how much of it is shown::

    (score / best score) ** RELEVANCE_POWER * sqrt(tokens shown) * what its rendition keeps

The power makes one right item worth several marginal ones: with half the score of the best an item
is worth an eighth of it. The root makes the next token of an item worth less than the one before:
an item four times as long is worth twice as much, so what is long has to be more relevant to be
shown whole. What a table scores only because a metric needs it does not count: it comes with the
metric, and is worth nothing without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

from ctx_pipeline.contracts import ContextRequest, EffectivePolicy, Exclusion, Rendition, WhenToLoad
from ctx_pipeline.stages.budget.allocate import Option, Parts
from ctx_pipeline.stages.budget.window import (
    SHARE_OF_SECTION,
    Window,
    choices_of,
    group_sizes,
)
from ctx_pipeline.stages.candidates import REQUEST_ROW, Candidate
from ctx_pipeline.stages.history import HISTORY, message_groups
from ctx_pipeline.stages.sections import TOOLS

RELEVANCE_POWER = 3
"""Packs of `bench.packs` show as much of what their questions need with 2 to 5, but for .01."""
COMPACT_KEEPS = 0.5
"""What a token of a compact rendition is worth: the sentence that matters may stand in what was
cut. With 0.75 packs of `bench.packs` show more of what is needed, and less of it whole."""
POINTER_TOKENS = 4
"""Tokens of content that a pointer is worth: that there is something, and its title."""
OWN_SHARE = 4.0
"""Times that what stands within the share of its section counts: it gives way only to what is worth
that much more."""
NEEDS_SHARE = 0.125
"""Most of what is left that the things which an item needs may take, each in its smallest
rendition, to come with it: in a smaller window the definition that was asked for is worth more than
pointers to its tables."""
RECENCY = 0.95
"""What each message or observation is worth of the one after it."""
LEAST = 0.02
"""Least share of the best score that is told apart, so that everything is worth something while
there is room."""
FREE_TOKENS = 2_000
"""Tokens of each share that search hits may take before the stop rule looks at them."""
HALF_TOKENS = 1_000
"""Tokens beyond these after which a hit must reach half of `min_value`. Chosen with `FREE_TOKENS`
and `min_value` so that the packs of `bench.packs` lose nothing that their questions need."""
LONG_TOKENS = 1_000
"""Most tokens that one hit counts for in the stop rule: what is longer is seldom shown whole."""

_PROACTIVE = frozenset({WhenToLoad.ALWAYS.value, WhenToLoad.PREFETCH.value})
_POINTER = Rendition.POINTER
_JUST_IN_TIME = WhenToLoad.JUST_IN_TIME.value
_KEEPS = {Rendition.FULL: 1.0, Rendition.COMPACT: COMPACT_KEEPS}
_POINTER_WORTH = sqrt(POINTER_TOKENS)


def stop_filling(
    alive: Sequence[Candidate], window: Window, policy: EffectivePolicy
) -> list[Candidate]:
    """Leave out search hits that are not worth their tokens, however much room there is; return
    what stays.

    The more tokens better hits of the same share take, the more a hit has to score: beyond
    `FREE_TOKENS` it needs `min_value` of the best score times the part of its way from there to
    endless that has been gone, half of it at `HALF_TOKENS`. What a hit that stays needs stays with
    it. Expects the order of ranking.
    """
    if policy.min_value <= 0:
        return list(alive)
    verdicts = window.verdicts
    hits = [
        c
        for c in alive
        if c.row != REQUEST_ROW and not window.shows(c) and c.when_to_load not in _PROACTIVE
    ]
    best = max((verdicts[candidate].score for candidate in hits), default=0.0)
    spent: dict[str, int] = {}
    out: list[tuple[Candidate, float]] = []
    needed: set[int] = set()
    for candidate in hits:
        share = SHARE_OF_SECTION[candidate.section]
        beyond = spent.get(share, 0) - FREE_TOKENS
        least = best * policy.min_value * beyond / (beyond + HALF_TOKENS) if beyond > 0 else 0.0
        if verdicts[candidate].score < least:
            out.append((candidate, least))
            continue
        shown = candidate.tokens[2 if candidate.when_to_load == _JUST_IN_TIME else 0]
        spent[share] = beyond + FREE_TOKENS + min(LONG_TOKENS, shown)
        needed.update(candidate.needs)
    while brought := [pair for pair in out if pair[0].row in needed]:
        out = [pair for pair in out if pair[0].row not in needed]
        needed.update(row for candidate, _ in brought for row in candidate.needs)
    for candidate, least in out:
        lacking = max(0.01, least - verdicts[candidate].score)
        verdicts[candidate] = verdicts[candidate].out(
            Exclusion.LOW_RANK, f"+{lacking:.2f} score: what is shown before it is enough"
        )
    return [candidate for candidate in alive if verdicts[candidate].excluded is None]


def options_of(
    alive: Sequence[Candidate], request: ContextRequest, window: Window, planned: Mapping[str, int]
) -> list[Option]:
    """Return what is still to be chosen from; within each share what stands first is within it
    first.

    Search hits stand in the order of ranking, what came with the request latest first, before them.
    """
    room = {share: tokens - window.used_by.get(share, 0) for share, tokens in planned.items()}
    verdicts = window.verdicts
    sent: list[Candidate] = []
    hits: list[Candidate] = []
    for candidate in alive:
        if not window.shows(candidate) and candidate.section != HISTORY:
            (sent if candidate.row == REQUEST_ROW else hits).append(candidate)
    best = max(
        (verdicts[candidate].score for candidate in alive if candidate.row != REQUEST_ROW),
        default=0.0,
    )
    least = best * LEAST
    options = _history_options(alive, request, window, room) if request.messages else []
    _sent_options(sent, options, window, room)
    numbers: dict[int, int] = {}
    for candidate in hits:
        # What it is worth only to what needs it comes with that.
        own = verdicts[candidate].score - verdicts[candidate].lent
        score = own if own > least else least
        relevance = score / best if best > 0 else 1.0
        option = _option(candidate, relevance**RELEVANCE_POWER, window, room)
        if option is not None:
            if candidate.section != TOOLS:
                numbers[candidate.row] = len(options)
            options.append(option)
    for number, option in enumerate(options):
        rows = option.members[0].needs
        if rows:
            needs = tuple(
                [numbers[row] for row in rows if row in numbers and numbers[row] != number]
            )
            if sum(options[need].choices[0][0] for need in needs) <= window.left * NEEDS_SHARE:
                option.needs = needs
            else:
                option.spared = needs
    return options


def _sent_options(
    sent: list[Candidate], options: list[Option], window: Window, room: dict[str, int]
) -> None:
    """Add what came with the request: observations latest first, older ones worth less, and tools
    in their order.
    """
    sent.sort(key=lambda c: (c.section, c.order if c.section == TOOLS else -c.order, c.item_id))
    ages: dict[str, int] = {}
    for candidate in sent:
        age = ages.get(candidate.section, 0)
        if candidate.section != TOOLS:
            ages[candidate.section] = age + 1
        option = _option(candidate, RECENCY**age, window, room)
        if option is not None:
            options.append(option)


def _is_within(room: dict[str, int], section: str, tokens: int) -> bool:
    """Tell whether the next tokens of a section begin within its share, and count them."""
    share = SHARE_OF_SECTION[section]
    left = room.get(share, 0)
    room[share] = left - tokens
    return left > 0


def _option(
    candidate: Candidate, base: float, window: Window, room: dict[str, int]
) -> Option | None:
    offered = choices_of(candidate, window.most_observation)
    if not offered:
        return None
    within = _is_within(room, candidate.section, offered[0][1])
    if within:
        base *= OWN_SHARE
    choices: list[tuple[int, float]] = []
    renditions: list[Rendition] = []
    for rendition, tokens in offered:
        value = base * (
            _POINTER_WORTH if rendition is _POINTER else _KEEPS[rendition] * sqrt(tokens)
        )
        # A smaller rendition that is no smaller, or worth no less, is no choice.
        if not choices or (tokens < choices[-1][0] and value < choices[-1][1]):
            choices.append((tokens, value))
            renditions.append(rendition)
    choices.reverse()
    renditions.reverse()
    purses = (
        window.purses_of(candidate) if window.source_purses or candidate.section == TOOLS else ()
    )
    return Option(
        tuple(choices), candidate.section, purses, (candidate,), tuple(renditions), within
    )


def _history_options(
    alive: Sequence[Candidate], request: ContextRequest, window: Window, room: dict[str, int]
) -> list[Option]:
    """Return messages, latest first; each needs those after it, and those that may not be separated
    are one option.
    """
    options: list[Option] = []
    by_order = {c.order: c for c in alive if c.section == HISTORY and not window.shows(c)}
    for group in reversed(message_groups(request, min(by_order, default=0))):
        members = tuple([by_order[number] for number in group if number in by_order])
        if not members:
            continue
        sizes = group_sizes(members, window.most_observation)
        within = _is_within(room, HISTORY, _tokens_of(sizes[-1]))
        base = RECENCY ** len(options) * (OWN_SHARE if within else 1.0)
        option = Option(
            tuple((_tokens_of(parts), base * _group_worth(parts)) for parts in sizes),
            HISTORY,
            window.purses_of(members[0]),
            members,
            tuple(parts[0][0] for parts in sizes),
            within,
            parts=sizes,
        )
        if options:
            option.needs = (len(options) - 1,)
        options.append(option)
    return options


def _tokens_of(parts: Parts) -> int:
    return sum(tokens for _, tokens in parts)


def _group_worth(parts: Parts) -> float:
    """Return what showing messages is worth, less where some of them are cut."""
    kept = sum(tokens * _KEEPS[rendition] for rendition, tokens in parts)
    return kept / sqrt(_tokens_of(parts) or 1)


def show(options: Sequence[Option], window: Window) -> None:
    """Take what was chosen."""
    scores = window.verdicts
    for option in options:
        if option.taken < 0:
            continue
        first = option.members[0]
        reason = "recent history" if option.section == HISTORY else "score"
        for row in option.dependents if reason == "score" else ():
            other = options[row].members[0]
            if options[row].taken >= 0 and scores[other].score > scores[first].score:
                reason = f"needed by {other.item_id}"
                break
        rendition = option.renditions[option.taken]
        if len(option.members) == 1:
            window.take(first, rendition, option.tokens, reason, paid=True)
            continue
        for member, part in zip(option.members, option.parts[option.taken], strict=True):
            window.take(member, *part, reason, paid=True)
