"""Candidates of one request: the facts of each, which never change, and what the stages decide of
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from ctx_pipeline.contracts.codes import Exclusion, Rendition
from ctx_pipeline.stages.blocks import Blocks

_PLACE = {rendition: place for place, rendition in enumerate(Rendition)}

REQUEST_ROW = -1
"""`Candidate.row` of what came with the request instead of an index."""
REQUEST_SOURCE = "request"
"""`Candidate.source` of it."""
GLOSSARY = "glossary"
"""Way of being found of what a request names."""
SCOPE_ID = f"state:{REQUEST_SOURCE}/scope"
"""What says who the caller is: it cannot be shortened."""
CountTokens = Callable[[str], int]
NO_FEATURES: Mapping[str, float] = MappingProxyType({})


class Cut(NamedTuple):
    """A compact rendition of one size."""

    tokens: int
    block: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """The facts of an item version that may be shown, and how it was found. Known by identity."""

    item_id: str
    version: str
    kind: str
    title: str
    source: str
    section: str
    row: int = REQUEST_ROW
    subject: int = -1
    authority: int = 0
    confidence: float = 1.0
    verified_at: int = 0
    """Microseconds; `visibility.ALWAYS` where the source's own refresh counts."""
    fail_after: int = 0
    """Freshness window of the source in microseconds; `visibility.NEVER` without one."""
    valid_from: int = 0
    dated_at: int = 0
    """Newest time that the item tells of itself, in microseconds; `visibility.ALWAYS` for none."""
    tailored: bool = False
    """Whether it names the task types or roles that it is for; who sees it has one of them."""
    content: int = 0
    """Number of the content: equal for equal text."""
    trust: str = ""
    protected: bool = False
    spare: bool = False
    """Of what is protected, the first to go: nobody sent it, so that nobody could shorten it."""
    when_to_load: str = "on_match"
    tokens: tuple[int, int, int] = (0, 0, 0)
    """Exact tokens of the full, compact and pointer renditions; 0 where a rendition does not
    exist."""
    blocks: Blocks | None = None
    """Renditions of what came with the request."""
    cuts: tuple[Cut, ...] = ()
    """Its compact renditions where there are several, the longest first."""
    whole: bool = True
    """False: it is too long to be shown in full."""
    left_out: str | None = None
    """Why nothing of it can be shown; None: something can."""
    refusal: str | None = None
    """Why a tool that came with the request has no form that providers take."""
    poison: tuple[str, ...] = ()
    """What the texts of a tool that came with the request try with the model (`tools.poison`)."""
    order: int = 0
    """Place among the items of its section that keep the caller's order."""

    discovered_by: Sequence[str] = ()
    parent: str | None = None
    needs: tuple[int, ...] = ()
    """Rows it cannot be understood without."""
    dense: float = 0.0
    """Similarity of meaning to the request."""
    lexical: float = 0.0
    """Weight of the request's words that it has."""
    smallest: int = field(init=False)
    """Tokens of the smallest rendition that exists."""

    def __post_init__(self) -> None:
        full, compact, pointer = self.tokens
        smallest = full or compact or pointer
        if 0 < compact < smallest:
            smallest = compact
        smallest = pointer if 0 < pointer < smallest else smallest
        object.__setattr__(self, "smallest", smallest)

    def cost(self, rendition: Rendition | None) -> int:
        """Return the tokens of a rendition, or of the smallest that exists."""
        return self.smallest if rendition is None else self.tokens[_PLACE[rendition]]


class Verdict(NamedTuple):
    """What the stages have decided of a candidate so far; one that decides more
    returns a new one.
    """

    excluded: Exclusion | None = None
    """Why it is out; None while it is in."""
    counterfactual: str | None = None
    """What would have let it in."""
    score: float = 0.0
    features: Mapping[str, float] = NO_FEATURES
    signal: float = 0.0
    """The stronger of meaning and words, each 0 to 1 among the hits."""
    lent: float = 0.0
    """Part of the score that it has only because something else needs it."""
    stale: bool = False
    rendition: Rendition | None = None
    """How it is shown; None: it is not."""
    reason: str | None = None
    """Why it is shown."""
    cut: Cut | None = None
    """Which of its cuts is shown."""

    @property
    def selected(self) -> bool:
        """Whether it is shown."""
        return self.rendition is not None

    def cost(self, candidate: Candidate) -> int:
        """Return the tokens of what is shown, or of the smallest rendition that exists."""
        return candidate.cost(self.rendition) if self.cut is None else self.cut.tokens

    def out(self, code: Exclusion, counterfactual: str | None = None) -> Verdict:
        """Return the verdict that leaves the candidate out."""
        return self._replace(excluded=code, counterfactual=counterfactual)


UNDECIDED = Verdict()
Verdicts = Mapping[Candidate, Verdict]


@dataclass(frozen=True, slots=True)
class Judged:
    """Candidates in the order of a stage, and its verdict on each."""

    candidates: Sequence[Candidate]
    verdicts: Verdicts

    @classmethod
    def of(cls, candidates: Iterable[Candidate]) -> Judged:
        """Return candidates of which nothing has been decided."""
        found = list(candidates)
        return cls(found, dict.fromkeys(found, UNDECIDED))

    def alive(self) -> list[Candidate]:
        """Return the candidates that are still in."""
        verdicts = self.verdicts
        return [c for c in self.candidates if verdicts[c].excluded is None]

    def indexed(self) -> list[Candidate]:
        """Return the candidates of the index that are still in."""
        verdicts = self.verdicts
        return [c for c in self.candidates if c.row != REQUEST_ROW and verdicts[c].excluded is None]

    def selected(self) -> list[Candidate]:
        """Return the candidates that are shown."""
        verdicts = self.verdicts
        return [c for c in self.candidates if verdicts[c].rendition is not None]

    def ruled(self, verdicts: Verdicts) -> Judged:
        """Return the same candidates with other verdicts for some of them."""
        return Judged(self.candidates, {**self.verdicts, **verdicts}) if verdicts else self
