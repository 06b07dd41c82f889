"""Which tools do the same: what a model cannot choose between. By words alone, so that no model is
needed to say it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log, sqrt

from ctx_pipeline.tools.words import VERBS, content_words, same_name, verb_of

OVERLAP = 0.7
"""Likeness, 0 to 1, from which two tools count as doing the same. Chosen on the 117 tools of one
server, of which some were split from others, and on tools copied from them in other words."""
NAME_SHARE = 0.35
"""How much of the likeness the names say; the descriptions say the rest."""
OTHER_VERB = 0.8
"""What is left of the likeness of two tools that do different things: `create` and `delete`."""
OTHER_READING = 0.9
"""The same where both only read."""
_READING = frozenset({"get", "list", "search"})
COMMON = 40
"""In a large catalogue, what more tools than this have in common leads to no pair by itself."""
ALL_PAIRS = 150
"""Tools of which every pair is compared; that takes a tenth of a second."""
HOPELESS = 0.2
"""Below this descriptions have nothing in common, even where one of them only begins like the
other."""
SHARED_BY = 2
"""A sentence in more descriptions than this tells no tool from another."""
SAME_TEXT = 0.97
"""Descriptions that are this alike are the same, whatever the names say."""
COMPARED_CHARS = 4_000
"""What is compared of a description."""
_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？\n]")


@dataclass(frozen=True, slots=True)
class OverlapText:
    """What of a tool is compared."""

    name: str
    description: str
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two tools, by place, and how alike they are."""

    first: int
    second: int
    likeness: float


def overlaps(tools: Sequence[OverlapText]) -> list[Overlap]:
    """Return the pairs of tools that are at least `OVERLAP` alike, the first places first."""
    names = [Counter(content_words(tool.name)) for tool in tools]
    said = _without_boilerplate([tool.description[:COMPARED_CHARS] for tool in tools])
    texts = [Counter(content_words(text)) for text in said]
    weights = _weights([name | text for name, text in zip(names, texts, strict=True)])
    name_vectors = [_vector(words, weights) for words in names]
    text_vectors = [_vector(words, weights) for words in texts]
    openings = [_vector(Counter(content_words(_opening(text))), weights) for text in said]
    verbs = [verb_of(tool.name, tool.description) for tool in tools]
    found: list[Overlap] = []
    for first, second in _pairs(tools, names, texts):
        whole = _cosine(text_vectors[first], text_vectors[second])
        # Most pairs end here: what follows cannot lift them to `OVERLAP`.
        if whole < HOPELESS:
            continue
        by_text = max(whole, 0.95 * _cosine(openings[first], openings[second]))
        by_name = _cosine(name_vectors[first], name_vectors[second])
        likeness = _likeness(by_name, by_text, tools[first], tools[second])
        if by_text < SAME_TEXT:
            likeness *= _verb_share(verbs[first], verbs[second])
        if likeness >= OVERLAP:
            found.append(Overlap(first, second, round(likeness, 3)))
    return found


def overlap_groups(tools: Sequence[OverlapText]) -> list[tuple[int, ...]]:
    """Return the groups of tools that overlap, each with the places of its members in order."""
    leader = list(range(len(tools)))

    def head(at: int) -> int:
        while leader[at] != at:
            leader[at] = leader[leader[at]]
            at = leader[at]
        return at

    for pair in overlaps(tools):
        low, high = sorted((head(pair.first), head(pair.second)))
        leader[high] = low
    groups: dict[int, list[int]] = defaultdict(list)
    for at in range(len(tools)):
        groups[head(at)].append(at)
    return [tuple(members) for members in groups.values() if len(members) > 1]


def _likeness(by_name: float, by_text: float, first: OverlapText, second: OverlapText) -> float:
    """Weigh names, descriptions and parameters. A description that is the same says it all."""
    if not first.description.strip() or not second.description.strip():
        return by_name if by_name > 0.999 else 0.0
    said = max(by_text, NAME_SHARE * by_name + (1 - NAME_SHARE) * by_text)
    return said * (0.9 + 0.1 * _shared(first.parameters, second.parameters))


def _verb_share(first: str | None, second: str | None) -> float:
    if first is None or second is None or first == second:
        return 1.0
    return OTHER_READING if {first, second} <= _READING else OTHER_VERB


def _without_boilerplate(descriptions: Sequence[str]) -> list[str]:
    """Return descriptions without the sentences that several tools share; one that has no other
    keeps them.
    """
    sentences = [
        [part for sentence in _SENTENCE_END.split(text) if (part := sentence.strip())]
        for text in descriptions
    ]
    holders = Counter(part for parts in sentences for part in set(parts))
    rare = [". ".join(part for part in parts if holders[part] <= SHARED_BY) for parts in sentences]
    return [own or text for own, text in zip(rare, descriptions, strict=True)]


def _opening(description: str) -> str:
    """Return the first sentence, which says what a tool is for; what follows
    says how it is used.
    """
    return _SENTENCE_END.split(description, maxsplit=1)[0]


def _shared(first: Sequence[str], second: Sequence[str]) -> float:
    mine, others = {same_name(name) for name in first}, {same_name(name) for name in second}
    return len(mine & others) / len(mine | others) if mine or others else 1.0


def _weights(documents: Sequence[Counter[str]]) -> dict[str, float]:
    seen = Counter(word for document in documents for word in document)
    return {word: log(1 + len(documents) / count) for word, count in seen.items()}


def _vector(words: Counter[str], weights: Mapping[str, float]) -> dict[str, float]:
    raw = {word: (1 + log(count)) * weights.get(word, 0.0) for word, count in words.items()}
    length = sqrt(sum(value * value for value in raw.values()))
    return {word: value / length for word, value in raw.items()} if length else {}


def _cosine(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    if len(first) > len(second):
        first, second = second, first
    return sum(value * second[word] for word, value in first.items() if word in second)


def _pairs(
    tools: Sequence[OverlapText],
    names: Sequence[Counter[str]],
    texts: Sequence[Counter[str]],
) -> Iterator[tuple[int, int]]:
    """Yield the pairs that are compared: all of a small catalogue, else those that share a word
    that is not common.
    """
    if len(tools) <= ALL_PAIRS:
        yield from combinations(range(len(tools)), 2)
        return
    holders: dict[str, list[int]] = defaultdict(list)
    for at, tool in enumerate(tools):
        for word in names[at].keys() | texts[at].keys():
            holders[word].append(at)
        holders["\t" + " ".join(tool.description.split())].append(at)
        holders["\n" + " ".join(sorted(names[at].keys() - VERBS))].append(at)
    pairs = {
        (first, second)
        for held in holders.values()
        if len(held) <= COMMON
        for place, first in enumerate(held)
        for second in held[place + 1 :]
    }
    yield from sorted(pairs)
