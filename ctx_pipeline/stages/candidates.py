"""One candidate on its way through the stages of one request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ctx_pipeline.contracts.codes import Exclusion, Rendition
from ctx_pipeline.stages.blocks import Blocks

_PLACE = {rendition: place for place, rendition in enumerate(Rendition)}

REQUEST_ROW = -1
"""`Candidate.row` of what came with the request instead of an index."""
REQUEST_SOURCE = "request"
"""`Candidate.source` of the same."""
CountTokens = Callable[[str], int]


@dataclass(slots=True, kw_only=True)
class Candidate:
    """An item version and everything the stages have found out about it.

    Each stage fills the fields named after it and leaves the others alone.
    """

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
    """Exact tokens of the full, compact and pointer renditions; 0 where a rendition does not exist."""
    blocks: Blocks | None = None
    """Renditions of what came with the request."""
    refusal: str | None = None
    """Why a tool that came with the request has no form that providers take."""
    poison: tuple[str, ...] = ()
    """What the texts of a tool that came with the request try with the model (`tools.poison.POISON`)."""
    order: int = 0
    """Place among the items of its section that keep the caller's order."""

    discovered_by: list[str] = field(default_factory=list[str])
    parent: str | None = None
    needs: tuple[int, ...] = ()
    """Rows it cannot be understood without."""
    dense: float = 0.0
    lexical: float = 0.0
    lent: float = 0.0
    """Part of the score that it has only because something else needs it."""
    signal: float = 0.0
    """The stronger of meaning and words, each 0 to 1 among the hits."""

    excluded: Exclusion | None = None
    selected: bool = False
    selected_reason: str | None = None
    rendition: Rendition | None = None
    features: dict[str, float] = field(default_factory=dict[str, float])
    score: float = 0.0
    counterfactual: str | None = None
    stale: bool = False
    smallest: int = field(init=False)
    """Tokens of the smallest rendition that exists."""

    def __post_init__(self) -> None:
        full, compact, pointer = self.tokens
        smallest = full or compact or pointer
        if 0 < compact < smallest:
            smallest = compact
        self.smallest = pointer if 0 < pointer < smallest else smallest

    @property
    def cost(self) -> int:
        """Tokens of the chosen rendition, or of the smallest that exists."""
        if self.rendition is None:
            return self.smallest
        return self.tokens[_PLACE[self.rendition]]
