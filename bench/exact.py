"""The exact optimum of a small allocation, by branch and bound: what `bench.allocator` compares the allocator with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ctx_pipeline.stages.allocate import Option, Step, steps_of


class Exact:
    """Searches every allowed combination of choices whose bound beats the best so far."""

    def __init__(self, options: Sequence[Option], left: int, headings: Mapping[str, int]) -> None:
        self.options, self.left, self.headings = options, left, headings
        steps = steps_of([Option(option.choices) for option in options])
        first = {number: density for density, number, _ in reversed(steps)}
        self.order = sorted(range(len(options)), key=lambda number: first[number])
        place = {number: at for at, number in enumerate(self.order)}
        sized = [(density, number, *self._size(number, to, steps)) for density, number, to in sorted(steps)]
        self.tails = [[size for _, number, *size in sized if place[number] >= at] for at in range(len(options) + 1)]
        self.chosen = [-1] * len(options)
        self.best, self.best_chosen = 0.0, list(self.chosen)
        self.purses = {id(purse): purse.left for option in options for purse in option.purses}

    def solve(self) -> tuple[float, list[int]]:
        """Return the greatest value, and a choice for each option that has it."""
        self._search(0, self.left, 0.0, frozenset())
        return self.best, self.best_chosen

    def _size(self, number: int, to: int, steps: Sequence[Step]) -> tuple[int, float]:
        """Return tokens and value that a step adds."""
        choices = self.options[number].choices
        before = max((other for _, own, other in steps if own == number and other < to), default=-1)
        tokens, value = choices[before] if before >= 0 else (0, 0.0)
        return choices[to][0] - tokens, choices[to][1] - value

    def _bound(self, at: int, left: int) -> float:
        total, free = 0.0, left
        for tokens, value in self.tails[at]:
            if tokens <= free:
                free -= int(tokens)
                total += value
            else:
                return total + value * free / tokens
        return total

    def _search(self, at: int, left: int, value: float, opened: frozenset[str]) -> None:
        if value > self.best and self._is_closed():
            self.best, self.best_chosen = value, list(self.chosen)
        if at == len(self.order) or value + self._bound(at, left) <= self.best + 1e-12:
            return
        number = self.order[at]
        option = self.options[number]
        opening = 0 if option.section in opened else self.headings.get(option.section, 0)
        for choice in range(len(option.choices) - 1, -1, -1):
            tokens, worth = option.choices[choice]
            if tokens + opening > left or any(tokens > self.purses[id(purse)] for purse in option.purses):
                continue
            for purse in option.purses:
                self.purses[id(purse)] -= tokens
            self.chosen[number] = choice
            self._search(at + 1, left - tokens - opening, value + worth, opened | {option.section})
            self.chosen[number] = -1
            for purse in option.purses:
                self.purses[id(purse)] += tokens
        self._search(at + 1, left, value, opened)

    def _is_closed(self) -> bool:
        """Whether everything that is shown has what it needs."""
        return all(
            self.chosen[row] >= 0
            for number, choice in enumerate(self.chosen)
            if choice >= 0
            for row in self.options[number].needs
        )
