"""Way in: what would have let in what did not fit, so that the same call with that much more shows
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctx_pipeline.stages.budget.allocate import Option, missing_needs, steps_of
from ctx_pipeline.stages.budget.window import SHARE_OF_SECTION, Window, choices_of
from ctx_pipeline.stages.budget.worth import OWN_SHARE
from ctx_pipeline.stages.candidates import Candidate
from ctx_pipeline.stages.history import HISTORY

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


EXPLAINED_MESSAGES = 512
"""Messages, the latest, of which each is told how many tokens it lacks."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """What an option would still take, and how strongly it asks for it."""

    number: int
    tokens: int
    """All that it could still take: its largest choice, its heading and what it needs."""
    price: int
    """Tokens of the smallest way in."""
    density: float
    """Value by the token as it stands, with what it would have to bring."""
    potential: float
    """The most that may become when there is more room, so that it stands within its share."""
    value: float
    """What the smallest way in is worth."""
    gain: float
    """The most that showing all of it may add."""


def explain_out(
    options: Sequence[Option], window: Window, first: frozenset[str]
) -> dict[Candidate, str]:
    """Return what would have let in what did not fit.

    More room goes to what asks for it more strongly, so an item lacks its own price and what all of
    those would take first. `first` names the kinds and times of loading that are served before
    anything is weighed.
    """
    if all(option.taken >= 0 for option in options):
        return {}
    claims = _claims(options, window)
    found = _lacking(claims, options, window, first) if claims else {}
    for option in options[EXPLAINED_MESSAGES:]:
        if option.section == HISTORY and option.taken < 0:
            found.update(dict.fromkeys(option.members, "a window that holds all messages after it"))
    return found


def _lacking(
    claims: Sequence[_Claim], options: Sequence[Option], window: Window, first: frozenset[str]
) -> dict[Candidate, str]:
    before = _before(claims, options, first)
    growing = sum(_growth(candidate, window) for candidate in window.first) - window.left
    totals: list[int] = (before @ [claim.tokens for claim in claims] + growing).tolist()
    found: dict[Candidate, str] = {}
    for place, claim in enumerate(claims):
        option = options[claim.number]
        if option.taken < 0:
            brought = [option, *(options[row] for row in missing_needs(options, claim.number))]
            pays = any(other.purses for other in brought)
            ahead = zip(claims, before[place].tolist(), strict=True) if pays else ()
            others = [options[other.number] for other, served in ahead if served]
            lacks = _lacks(claim.price + totals[place], claim.price, brought, others, window)
            found.update(dict.fromkeys(option.members, lacks))
    return found


def _claims(options: Sequence[Option], window: Window) -> list[_Claim]:
    steps = steps_of(options)
    density = {number: -value for value, number, _ in reversed(steps)}
    hull = {number: to for _, number, to in reversed(steps)}
    made: list[_Claim] = []
    for number, option in enumerate(options):
        above = option.choices[option.taken + 1 :]
        if not above or (number >= EXPLAINED_MESSAGES and option.section == HISTORY):
            continue
        shown, value = option.tokens, option.value
        best = max((worth - value) / (tokens - shown or 1) for tokens, worth in above)
        grown = 1.0 if option.within else OWN_SHARE
        brings = _brings(number, options, window) if option.taken < 0 else _spared(option, options)
        made.append(
            _Claim(
                number=number,
                tokens=above[-1][0] - shown + brings,
                price=above[0][0] - shown + brings,
                density=density[number],
                potential=best * grown,
                value=option.choices[hull[number]][1],
                gain=(above[-1][1] - value) * grown,
            )
        )
    return made


def _brings(number: int, options: Sequence[Option], window: Window) -> int:
    """Return what an option costs besides itself: what it needs, and the headings of sections not
    open yet.
    """
    missing = missing_needs(options, number)
    sections = {options[row].section for row in (number, *missing)} - window.opened
    needed = sum(options[row].choices[0][0] for row in missing)
    return (
        needed
        + _spared(options[number], options)
        + sum(window.heading_tokens.get(name, 0) for name in sections)
    )


def _spared(option: Option, options: Sequence[Option]) -> int:
    """Return what an option would bring besides in a larger window."""
    return sum(options[row].choices[0][0] for row in option.spared if options[row].taken < 0)


def _before(
    claims: Sequence[_Claim], options: Sequence[Option], first: frozenset[str]
) -> NDArray[np.bool_]:
    """Return for each claim (row) which others (columns) are served no later when there is more
    room.
    """
    import numpy as np

    mine = [options[claim.number] for claim in claims]
    share = np.unique([SHARE_OF_SECTION[option.section] for option in mine], return_inverse=True)[1]
    within = np.array([option.within for option in mine])
    early = np.array(
        [bool(first & {option.members[0].kind, option.members[0].when_to_load}) for option in mine]
    )
    own = np.array([claim.density for claim in claims])[:, None]
    potential = np.array([claim.potential for claim in claims])[None, :]
    # What ranks lower in the same share does not come to stand within it unless this does too.
    place = np.arange(len(claims))
    lower = (
        (share[None, :] == share[:, None]) & ~within[:, None] & (place[None, :] > place[:, None])
    )
    before = (potential >= np.where(lower, OWN_SHARE * own, own)) | early[None, :]
    # What is worth more in all may be exchanged for it.
    value = np.array([claim.value for claim in claims])[:, None]
    before |= np.array([claim.gain for claim in claims])[None, :] > np.where(
        lower, OWN_SHARE * value, value
    )
    np.fill_diagonal(before, False)
    return before


def _growth(candidate: Candidate, window: Window) -> int:
    """Return what something taken before anything is weighed would take more,
    if there were room.
    """
    verdict = window.verdicts[candidate]
    if candidate.protected or verdict.rendition is None:
        return 0
    most = max(tokens for _, tokens in choices_of(candidate, candidate.tokens[0]))
    return most - verdict.cost(candidate)


def _lacks(
    short: int, own: int, brought: Sequence[Option], ahead: Sequence[Option], window: Window
) -> str:
    """Name what is short for an option and what it needs: tokens of the window, of the cost budget,
    or of a purse.
    """
    parts: list[str] = []
    if short > 0:
        limits = window.limits
        bought = limits.affordable is not None and limits.affordable <= limits.soft_target
        parts.append(f"+{short:,} tokens in the cost budget" if bought else f"+{short:,} tokens")
    for purse in dict.fromkeys(purse for option in brought for purse in option.purses):
        lacking = (
            sum(option.choices[0][0] for option in brought if purse in option.purses) - purse.left
        )
        lacking += sum(
            option.choices[-1][0] - option.tokens for option in ahead if purse in option.purses
        )
        lacking += sum(_growth(c, window) for c in window.first if purse in window.purses_of(c))
        if lacking > 0:
            parts.append(f"+{lacking:,} tokens in {purse.name}, which is {purse.most:,}")
    if len(parts) == 1 and short > own > 0:
        parts[0] += f": {own:,} for it, {short - own:,} for what comes before it"
    return " and ".join(parts) or "+1 tokens"
