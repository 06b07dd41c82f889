"""Clusters: results of one tool that say nearly the same are shown once, and the others as pointers to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from zlib import crc32

from ctx_pipeline.contracts import ContextRequest, ItemKind, WhenToLoad
from ctx_pipeline.stages.blocks import Blocks, attribute
from ctx_pipeline.stages.candidates import Candidate

ALIKE = 0.7
"""Share of its sketch that a text has in common with another that says nearly the same: a page with another price or
date has, two pages about one topic have a tenth."""
SKETCH = 64
"""Smallest word hashes that stand for a text: a bottom-k sketch (Broder, 1997)."""
SKETCH_CHARS = 10_000
"""Characters of a text that are looked at."""
_WORD_CHARS = 12
"""Words longer than this on average are none: then pairs of characters stand for the text, as in Chinese."""
_OBSERVATION = ItemKind.OBSERVATION.value


def sketch_of(text: str) -> frozenset[int]:
    """Return the sketch of a text; the same in every process."""
    part = text[:SKETCH_CHARS]
    words = set(part.split())
    if len(part) > _WORD_CHARS * max(1, part.count(" ") + part.count("\n")):
        words = {part[at : at + 2] for at in range(len(part) - 1)} or words
    hashes = sorted({crc32(word.encode("utf-8", "surrogatepass")) for word in words})
    return frozenset(hashes[:SKETCH])


def are_alike(one: frozenset[int], other: frozenset[int]) -> bool:
    """Tell whether two texts say nearly the same, by their sketches."""
    most = max(len(one), len(other))
    return most > 0 and len(one & other) >= ALIKE * most


def cluster_observations(
    candidates: Sequence[Candidate], request: ContextRequest, tokens_of: Callable[[str], int]
) -> None:
    """Let the latest observation of each cluster speak for the others, which become pointers that name it.

    An observation belongs to the first cluster of its tool, latest first, whose own observation it is alike.
    """
    times = Counter(seen.tool for seen in request.observations)
    if all(number == 1 for number in times.values()):
        return
    observations = [candidate for candidate in candidates if candidate.kind == _OBSERVATION]
    leaders: dict[str | None, list[tuple[frozenset[int], Candidate]]] = {}
    for candidate, seen in reversed(list(zip(observations, request.observations, strict=True))):
        if times[seen.tool] == 1:
            continue
        sketch = sketch_of(seen.content)
        known = leaders.setdefault(seen.tool, [])
        leader = next((other for own, other in known if are_alike(sketch, own)), None)
        if leader is None:
            known.append((sketch, candidate))
        else:
            _point_to(candidate, leader, tokens_of)


def _point_to(candidate: Candidate, leader: Candidate, tokens_of: Callable[[str], int]) -> None:
    blocks = candidate.blocks
    assert blocks is not None, "what came with the request has its blocks"
    pointer = blocks.pointer.replace(" characters=", f' like="{attribute(leader.item_id)}" characters=', 1)
    pointer_tokens = tokens_of(pointer)
    # One that is no longer than what would point away from it stays.
    if pointer_tokens < candidate.tokens[0]:
        candidate.blocks = Blocks(full=blocks.full, compact=None, pointer=pointer)
        candidate.tokens = (candidate.tokens[0], 0, pointer_tokens)
        candidate.when_to_load = WhenToLoad.JUST_IN_TIME.value
        candidate.parent = leader.item_id
