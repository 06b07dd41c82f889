"""Allocate: which items are shown, and how much of each, when not everything fits.

A knapsack: every option (an item, or messages that stay together) is left out or shown in one of
its choices; the first option of a section opens it, which has a price; an option brings what it
needs; sources and tool schemas have purses of their own. `allocate` takes the steps along each
option's upper hull in order of value by the token, then exchanges what is shown for what is worth
more. `bench.allocator` compares it with the optimum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from ctx_pipeline.contracts import Rendition
from ctx_pipeline.stages.candidates import Candidate

EXCHANGES = 8
"""Most exchanges of one allocation."""
ATTEMPTS = 16
"""Most options, the most valuable first, that are tried in one exchange."""
MATERIAL = 0.005
"""Share of the value of all that is shown which an exchange has to add: among many that are worth
nearly the same, order decides, and a pack does not change for a trifle."""

Step = tuple[float, int, int]
"""A step along the hull of an option: value by the token (negative, so that steps sort), option,
choice it ends at."""
_Loss = tuple[float, float, int, int, int]
"""Value lost by the token, value lost, option, choice it has, smaller choice it would have (-1:
none)."""


Parts = tuple[tuple[Rendition, int], ...]
"""Rendition and tokens of each member of a group."""


@dataclass(slots=True, eq=False)
class Purse:
    """Tokens that options with something in common may take together: those of one source, or all
    tool schemas.
    """

    name: str
    most: int
    left: int


@dataclass(slots=True, eq=False)
class Option:
    """Something that may be shown, and what showing it costs and is worth.

    `choices` are (tokens, value), both growing. The order of options settles ties.
    """

    choices: tuple[tuple[int, float], ...]
    section: str = ""
    purses: tuple[Purse, ...] = ()
    members: tuple[Candidate, ...] = ()
    """What it shows."""
    renditions: tuple[Rendition, ...] = ()
    """How, by choice."""
    within: bool = False
    """It stands within the share of its section."""
    needs: tuple[int, ...] = ()
    """Options that have to be shown too, in any choice."""
    spared: tuple[int, ...] = ()
    """Options that it would bring if the window were larger."""
    dependents: tuple[int, ...] = ()
    """Options that need this one; `allocate` fills it."""
    taken: int = -1
    """The choice that is shown; -1: none."""
    parts: tuple[Parts, ...] = ()
    """What each of several members takes, by choice."""

    @property
    def tokens(self) -> int:
        """Tokens of what is shown."""
        return self.choices[self.taken][0] if self.taken >= 0 else 0

    @property
    def value(self) -> float:
        """Worth of what is shown."""
        return self.choices[self.taken][1] if self.taken >= 0 else 0.0


def allocate(
    options: Sequence[Option], left: int, headings: Mapping[str, int], *, improve: bool = True
) -> int:
    """Choose for each option; return the tokens that stay free.

    `headings` is what it costs to open a section that is not open yet. Never takes more than `left`
    nor more than a purse has. `improve` may be False to save time: then nothing is exchanged.
    """
    fill = _Fill(options, left, headings)
    if not fill.everything():
        steps = steps_of(options)
        steps.sort()
        fill.climb(steps)
        if improve:
            fill.improve(steps)
    return fill.left


def steps_of(options: Sequence[Option]) -> list[Step]:
    """Return the steps along the upper hull of every option, those of one option in order of
    falling density.

    What an option needs and would not come by itself before it is paid with its first step.
    """
    steps: list[Step] = []
    for number, option in enumerate(options):
        choices = option.choices
        last = len(choices) - 1
        tokens, value, at = 0, 0.0, -1
        while at < last:
            best, to = 0.0, -1
            for place in range(at + 1, last + 1):
                more, worth = choices[place]
                density = (worth - value) / (more - tokens or 1)
                if density >= best:
                    best, to = density, place
            if at < 0 and option.needs:
                best = _density_with_needs(options, option, *choices[to])
            steps.append((-best, number, to))
            tokens, value = choices[to]
            at = to
    return steps


def _density_with_needs(
    options: Sequence[Option], option: Option, tokens: int, value: float
) -> float:
    density = value / (tokens or 1)
    for row in option.needs:
        needed = options[row]
        if needed.taken < 0:
            cost, worth = needed.choices[0]
            if worth < density * cost:
                tokens, value = tokens + cost, value + worth
                density = value / (tokens or 1)
    return density


def missing_needs(options: Sequence[Option], number: int) -> list[int]:
    """Return what an option needs that is not shown, and what that needs in turn."""
    found: list[int] = []
    pending = [number] if options[number].needs else []
    while pending:
        for row in options[pending.pop()].needs:
            if options[row].taken < 0 and row != number and row not in found:
                found.append(row)
                pending.append(row)
    return found


class _Fill:
    """What is taken and what is left while an allocation is made."""

    __slots__ = ("headings", "left", "options", "shown")

    def __init__(self, options: Sequence[Option], left: int, headings: Mapping[str, int]) -> None:
        self.options = options
        self.left = left
        self.headings = headings
        self.shown = dict.fromkeys([option.section for option in options], 0)
        """How many options of each section are taken."""
        for number, option in enumerate(options):
            for row in option.needs:
                options[row].dependents += (number,)

    def everything(self) -> bool:
        """Take the last choice of every option, if all of it fits."""
        total = sum(option.choices[-1][0] for option in self.options)
        total += sum(self.headings.get(section, 0) for section in self.shown)
        if total > self.left:
            return False
        asked: dict[Purse, int] = {}
        for option in self.options:
            for purse in option.purses:
                asked[purse] = asked.get(purse, 0) + option.choices[-1][0]
        if any(tokens > purse.left for purse, tokens in asked.items()):
            return False
        for option in self.options:
            option.taken = len(option.choices) - 1
        for purse, tokens in asked.items():
            purse.left -= tokens
        self.left -= total
        return True

    def climb(self, steps: Sequence[Step]) -> None:
        """Take steps in order while there is room; where one is too large, the largest smaller
        choice.
        """
        options = self.options
        for _, number, to in steps:
            option = options[number]
            taken = option.taken
            if taken >= to:
                continue
            choices = option.choices
            before = choices[taken][0] if taken >= 0 else 0
            if choices[taken + 1][0] - before > self.left:
                continue
            for choice in range(to, taken, -1):
                if choices[choice][0] - before <= self.left and self._take(number, choice):
                    break

    def _take(self, number: int, choice: int) -> bool:
        """Take a choice, with what it needs and the headings, if all of that fits."""
        option = self.options[number]
        missing = missing_needs(self.options, number) if option.needs and option.taken < 0 else ()
        # Each is taken in turn, so that purses and headings are counted once; one that does not fit
        # undoes the others.
        done: list[int] = []
        for row in missing:
            if not self._fits(self.options[row], 0):
                break
            self._set(self.options[row], 0)
            done.append(row)
        else:
            if self._fits(option, choice):
                self._set(option, choice)
                return True
        for row in done:
            self._set(self.options[row], -1)
        return False

    def _fits(self, option: Option, choice: int) -> bool:
        more = option.choices[choice][0]
        if option.taken >= 0:
            more -= option.choices[option.taken][0]
        for purse in option.purses:
            if more > purse.left:
                return False
        if option.taken < 0 and not self.shown[option.section]:
            more += self.headings.get(option.section, 0)
        return more <= self.left

    def _set(self, option: Option, choice: int) -> None:
        """Show an option in another choice (-1: not), whether it fits or not."""
        before, section = option.taken, option.section
        more = option.choices[choice][0] if choice >= 0 else 0
        if before >= 0:
            more -= option.choices[before][0]
        option.taken = choice
        for purse in option.purses:
            purse.left -= more
        self.left -= more
        if before < 0 <= choice:
            if not self.shown[section]:
                self.left -= self.headings.get(section, 0)
            self.shown[section] += 1
        elif choice < 0 <= before:
            self.shown[section] -= 1
            if not self.shown[section]:
                self.left += self.headings.get(section, 0)

    def improve(self, steps: Sequence[Step]) -> None:
        """Exchange what is shown for what is worth more, the most valuable first, a bounded number
        of times.
        """
        trifle = MATERIAL * sum(option.value for option in self.options)
        for _ in range(EXCHANGES):
            out = [
                (option.value - option.choices[-1][1], number)
                for number, option in enumerate(self.options)
                if option.taken < len(option.choices) - 1
            ]
            out.sort()
            losses = self._losses()
            if not any(self._exchange(number, losses, trifle) for _, number in out[:ATTEMPTS]):
                return
            self.climb(steps)

    def _losses(self) -> list[_Loss]:
        """Return every way to show something smaller, also in two steps, by what it loses by the
        token.
        """
        found: list[_Loss] = []
        for number, option in enumerate(self.options):
            if option.taken < 0:
                continue
            # What something else needs may get smaller, but has to stay.
            least = 0 if option.dependents and self._is_needed(option) else -1
            choices = option.choices
            for at in range(least + 1, option.taken + 1):
                tokens, value = choices[at]
                if least < 0:
                    found.append((value / (tokens or 1), value, number, at, -1))
                for lower in range(at):
                    less, worth = choices[lower]
                    found.append(
                        ((value - worth) / (tokens - less or 1), value - worth, number, at, lower)
                    )
        found.sort()
        return found

    def _is_needed(self, option: Option) -> bool:
        return any(self.options[row].taken >= 0 for row in option.dependents)

    def _exchange(self, number: int, losses: Sequence[_Loss], trifle: float) -> bool:
        """Show an option in a larger choice and others in smaller ones, if that is worth more by
        some.
        """
        option = self.options[number]
        shown, value = option.tokens, option.value
        least = losses[0][0] if losses else inf
        for choice in range(len(option.choices) - 1, option.taken, -1):
            tokens, worth = option.choices[choice]
            more, gain = tokens - shown, worth - value - trifle
            short = [purse for purse in option.purses if purse.left < more]
            # Whatever goes loses at least so much.
            if gain <= 0 or gain <= least * (more - self.left):
                continue
            if self._make_room(
                number, choice, gain, self._only(losses, short) if short else losses
            ):
                return True
        return False

    def _only(self, losses: Sequence[_Loss], short: Sequence[Purse]) -> list[_Loss]:
        """Return the losses with those first that fill a purse which is short."""
        drawing = [
            loss for loss in losses if any(purse in short for purse in self.options[loss[2]].purses)
        ]
        return [*drawing, *(loss for loss in losses if loss not in drawing)] if drawing else []

    def _make_room(self, number: int, choice: int, gain: float, losses: Sequence[_Loss]) -> bool:
        """Give up what is worth least by the token until a choice fits; if that costs `gain`, leave
        all as it was.
        """
        option = self.options[number]
        undo: list[tuple[int, int]] = []
        for density, lost, loser, before, lower in losses:
            if density * (option.choices[choice][0] - option.tokens - self.left) >= gain:
                break
            other = self.options[loser]
            if (
                lost >= gain
                or loser == number
                or other.taken != before
                or (lower < 0 and loser in option.needs)
            ):
                continue
            undo.append((loser, before))
            self._set(other, lower)
            gain -= lost
            if self._take(number, choice):
                for given, taken in undo:
                    if taken > self.options[given].taken:
                        self._take(given, taken)
                return True
        for loser, before in reversed(undo):
            self._set(self.options[loser], before)
        return False
