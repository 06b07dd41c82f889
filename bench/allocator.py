"""Compare the budget's choice with the optimum:
`python -m bench.allocator [--instances 500] [--seed 0]`.

Each instance is a call of at most twelve items with up to three renditions each: protected and
required ones, sections with headings and shares, items that need others, messages, tools, and
sources with a budget. The optimum is that of the same objective over every allowed combination,
found by branch and bound.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ctx_pipeline.config.profiles import model_profile
from ctx_pipeline.contracts import (
    ContextPolicy,
    ContextRequest,
    EffectivePolicy,
    Message,
    Observation,
    SourcePolicy,
    Task,
    resolve_policy,
)
from ctx_pipeline.errors import BudgetTooSmall
from ctx_pipeline.stages.budget import serve as budget
from ctx_pipeline.stages.budget.allocate import Option, Step, allocate, steps_of
from ctx_pipeline.stages.candidates import Candidate, Judged, Verdict
from ctx_pipeline.stages.discover.serve import request_candidates
from ctx_pipeline.stages.packing import heading_tokens
from ctx_pipeline.stages.rank.serve import SENT
from ctx_pipeline.stages.sections import SECTION_OF_KIND

MOST_ITEMS = 12
KINDS = ("document", "document", "metric", "schema", "memory", "glossary", "code", "tool")
SOURCES = ("handbook", "warehouse", "wiki")
PROFILE = model_profile("gpt-5")
HEADINGS = heading_tokens("o200k_base")


@dataclass(frozen=True, slots=True)
class Instance:
    """One small call, as the budget stage gets it."""

    judged: Judged
    request: ContextRequest
    policy: EffectivePolicy

    def with_budget(self, tokens: int) -> Instance:
        """Return the same call under another budget."""
        request = self.request.model_copy(update={"token_budget": tokens})
        return Instance(self.judged, request, self.policy)

    def prepare(self) -> budget.Prepared:
        """Take what does not compete."""
        return budget.prepare(
            self.judged,
            self.request,
            profile=PROFILE,
            policy=self.policy,
            heading_tokens=HEADINGS,
            source_kinds=dict.fromkeys(SOURCES, "documents"),
        )

    def serve(self) -> budget.Budgeted:
        """Run the stage, the trace included."""
        return budget.serve(
            self.judged,
            self.request,
            profile=PROFILE,
            policy=self.policy,
            heading_tokens=HEADINGS,
            source_kinds=dict.fromkeys(SOURCES, "documents"),
        )


def make_instance(seed: int) -> Instance:
    """Return the instance of a seed, under a budget of a tenth to all of what it would take."""
    draw = random.Random(seed)
    request = _request(draw)
    sent = request_candidates(request, lambda text: max(8, len(text) // 4))
    found = [
        _candidate(draw, number) for number in range(draw.randint(2, MOST_ITEMS - len(sent) + 1))
    ]
    verdicts = {_with_needs(candidate, found, draw): verdict for candidate, verdict in found}
    verdicts.update(dict.fromkeys(sent, SENT))
    candidates = sorted(verdicts, key=lambda c: (-verdicts[c].score, c.item_id))
    caps = {
        name: SourcePolicy(max_budget=draw.randint(60, 900))
        for name in SOURCES
        if draw.random() < 0.3
    }
    policy = ContextPolicy(min_value=draw.choice((0.0, 0.8)), sources=caps)
    total = sum(candidate.tokens[0] for candidate in candidates) + sum(HEADINGS.values())
    least = sum(candidate.tokens[0] for candidate in candidates if candidate.protected) + sum(
        HEADINGS.values()
    )
    tokens = max(least, int(total * draw.uniform(0.1, 1.0)))
    judged = Judged(candidates, verdicts)
    return Instance(judged, request, resolve_policy(policy)).with_budget(tokens)


def _request(draw: random.Random) -> ContextRequest:
    words = "what came of the orders of the east region "
    messages = tuple(
        Message(role="user", content=words * draw.randint(1, 20)) for _ in range(draw.randint(0, 3))
    )
    seen = [
        Observation(observation_id=f"{n}", content=f"{n} " + words * draw.randint(1, 40))
        for n in range(2)
    ]
    return ContextRequest(
        task=Task(text="east region"),
        messages=messages,
        observations=tuple(seen[: draw.randint(0, 2)]),
        required_types=draw.choice(((), (), ("metric",), ("document",))),
    )


def _with_needs(
    candidate: Candidate, found: Sequence[tuple[Candidate, Verdict]], draw: random.Random
) -> Candidate:
    others = [other for other, _ in found if other.kind == "schema" and other is not candidate]
    if others and draw.random() < 0.4:
        return replace(candidate, needs=(draw.choice(others).row,))
    return candidate


def _candidate(draw: random.Random, number: int) -> tuple[Candidate, Verdict]:
    kind = draw.choice(KINDS)
    full = int(draw.lognormvariate(5.2, 0.9)) + 20
    compact = draw.randint(120, 170) if full > 240 else 0
    section = next(place for name, place in SECTION_OF_KIND.items() if name.value == kind)
    made = Candidate(
        item_id=f"{kind}:source/{number:02}",
        version="1",
        kind=kind,
        title=f"{number}",
        source=draw.choice(SOURCES),
        section=section,
        row=number,
        when_to_load=draw.choice(("on_match",) * 8 + ("always", "prefetch", "just_in_time")),
        tokens=(
            full,
            0 if kind == "tool" else compact,
            0 if kind == "tool" else draw.randint(30, 45),
        ),
    )
    return made, Verdict(score=round(draw.uniform(0.4, 1.5), 3))


class Exact:
    """Searches every allowed combination of choices whose bound beats the best so far."""

    def __init__(self, options: Sequence[Option], left: int, headings: Mapping[str, int]) -> None:
        self.options, self.left, self.headings = options, left, headings
        steps = steps_of([Option(option.choices) for option in options])
        first = {number: density for density, number, _ in reversed(steps)}
        self.order = sorted(range(len(options)), key=lambda number: first[number])
        place = {number: at for at, number in enumerate(self.order)}
        sized = [(number, *self._size(number, to, steps)) for _, number, to in sorted(steps)]
        self.tails = [
            [(tokens, value) for number, tokens, value in sized if place[number] >= at]
            for at in range(len(options) + 1)
        ]
        self.chosen = [-1] * len(options)
        self.best, self.best_chosen = 0.0, list(self.chosen)
        self.purses = {purse: purse.left for option in options for purse in option.purses}

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
        """Return what could be added if options could be shown in part."""
        total = 0.0
        for tokens, value in self.tails[at]:
            if tokens > left:
                return total + value * left / tokens
            left -= tokens
            total += value
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
            if tokens + opening > left or any(
                tokens > self.purses[purse] for purse in option.purses
            ):
                continue
            for purse in option.purses:
                self.purses[purse] -= tokens
            self.chosen[number] = choice
            self._search(at + 1, left - tokens - opening, value + worth, opened | {option.section})
            self.chosen[number] = -1
            for purse in option.purses:
                self.purses[purse] += tokens
        self._search(at + 1, left, value, opened)

    def _is_closed(self) -> bool:
        """Whether everything that is shown has what it needs."""
        return all(
            self.chosen[row] >= 0
            for number, choice in enumerate(self.chosen)
            if choice >= 0
            for row in self.options[number].needs
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one instance."""

    ratio: float
    """Value chosen by the optimum."""
    plain: float
    """The same without exchanges."""
    over: bool
    """More was taken than there was."""
    options: int
    seconds: float


def compare(instance: Instance) -> Outcome | None:
    """Allocate and search; None where what is protected does not fit."""
    try:
        ready, simple = instance.prepare(), instance.prepare()
    except BudgetTooSmall:
        return None
    best, _ = Exact(ready.options, ready.window.left, ready.headings).solve()
    started = time.perf_counter()
    left = allocate(ready.options, ready.window.left, ready.headings)
    seconds = time.perf_counter() - started
    allocate(simple.options, simple.window.left, simple.headings, improve=False)
    taken = sum(option.tokens for option in ready.options)
    opened = {option.section for option in ready.options if option.taken >= 0}
    taken += sum(ready.headings.get(section, 0) for section in opened)
    short = any(
        purse.left < 0 for option in ready.options if option.taken >= 0 for purse in option.purses
    )
    over = short or left < 0 < taken or taken > max(0, ready.window.left)
    values = [sum(option.value for option in way.options) for way in (ready, simple)]
    ratios = [value / best if best else 1.0 for value in values]
    return Outcome(ratios[0], ratios[1], over, len(ready.options), seconds)


def main() -> None:
    """Run the comparison and print its distribution."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    outcomes = [
        compare(make_instance(arguments.seed + number)) for number in range(arguments.instances)
    ]
    kept = [outcome for outcome in outcomes if outcome is not None]
    print(
        f"instances {len(kept)}, options "
        f"{statistics.fmean(outcome.options for outcome in kept):.1f} on "
        "average"
    )
    for name, ratios in (
        ("with exchanges", sorted(outcome.ratio for outcome in kept)),
        ("without", sorted(outcome.plain for outcome in kept)),
    ):
        p1, p5 = ratios[len(ratios) // 100], ratios[len(ratios) // 20]
        optimal = sum(ratio > 1 - 1e-9 for ratio in ratios)
        below = sum(ratio < 0.98 for ratio in ratios)
        mean, least = statistics.fmean(ratios), ratios[0]
        print(
            f"{name:15} mean {mean:.4f}  min {least:.4f}  p1 {p1:.4f}  p5 {p5:.4f}"
            f"  optimal {optimal}  below 0.98 {below}"
        )
    print(f"over budget {sum(outcome.over for outcome in kept)}")
    print(f"allocation p50 {statistics.median(outcome.seconds for outcome in kept) * 1e6:.0f} us")


if __name__ == "__main__":
    main()
