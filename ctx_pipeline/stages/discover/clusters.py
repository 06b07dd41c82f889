"""Clusters: results of one tool that say nearly the same are shown once, and the others as pointers
to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ctx_pipeline.contracts import ContextRequest, WhenToLoad
from ctx_pipeline.stages.blocks import Blocks, attribute
from ctx_pipeline.stages.candidates import Candidate

if TYPE_CHECKING:
    import rensa

ALIKE = 0.7
"""Estimated Jaccard similarity from which two texts say nearly the same: a page with another price
or date has it, two pages about one topic have a tenth."""
PERMUTATIONS = 64
"""Numbers of a MinHash signature."""
_SEED = 42
SKETCH_CHARS = 10_000
"""Characters of a text that are looked at."""
_WORD_CHARS = 12
"""Words longer than this on average are none: then pairs of characters stand for the text, as in
Chinese."""


def sketch_of(text: str) -> rensa.RMinHash | None:
    """Return the MinHash signature of a text's words, the same in every process; None for a text
    without any.
    """
    import rensa

    part = text[:SKETCH_CHARS].encode("utf-8", "replace").decode("utf-8")
    words = set(part.split())
    if len(part) > _WORD_CHARS * max(1, part.count(" ") + part.count("\n")):
        words = {part[at : at + 2] for at in range(len(part) - 1)} or words
    if not words:
        return None
    sketch = rensa.RMinHash(num_perm=PERMUTATIONS, seed=_SEED)
    sketch.update(sorted(words))
    return sketch


def are_alike(one: rensa.RMinHash | None, other: rensa.RMinHash | None) -> bool:
    """Tell whether two texts say nearly the same, by their signatures."""
    return one is not None and other is not None and one.jaccard(other) >= ALIKE


def clustered(
    observations: Sequence[Candidate],
    request: ContextRequest,
    tokens_of: Callable[[str], int],
) -> Sequence[Candidate]:
    """Let the latest observation of each cluster speak for the others, which become pointers that
    name it.

    An observation belongs to the first cluster of its tool, latest first, whose own observation it
    is alike.
    """
    times = Counter(seen.tool for seen in request.observations)
    if all(number == 1 for number in times.values()):
        return observations
    made = list(observations)
    leaders: dict[str | None, list[tuple[rensa.RMinHash | None, Candidate]]] = {}
    for at, seen in reversed(list(enumerate(request.observations))):
        if times[seen.tool] == 1:
            continue
        sketch = sketch_of(seen.content)
        known = leaders.setdefault(seen.tool, [])
        leader = next((other for own, other in known if are_alike(sketch, own)), None)
        if leader is None:
            known.append((sketch, made[at]))
        else:
            made[at] = _pointing_to(leader, made[at], tokens_of)
    return made


def _pointing_to(
    leader: Candidate, candidate: Candidate, tokens_of: Callable[[str], int]
) -> Candidate:
    blocks = candidate.blocks
    assert blocks is not None, "what came with the request has its blocks"
    pointer = blocks.pointer.replace(
        " characters=", f' like="{attribute(leader.item_id)}" characters=', 1
    )
    pointer_tokens = tokens_of(pointer)
    # One that is no longer than what would point away from it stays.
    if pointer_tokens >= candidate.tokens[0]:
        return candidate
    return replace(
        candidate,
        blocks=Blocks(full=blocks.full, compact=None, pointer=pointer),
        tokens=(candidate.tokens[0], 0, pointer_tokens),
        when_to_load=WhenToLoad.JUST_IN_TIME.value,
        parent=leader.item_id,
        cuts=(),
    )
