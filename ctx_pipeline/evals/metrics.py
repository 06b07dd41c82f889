"""Context metrics as pure functions: of a ranking or a pack, and of what a question needs.

Ids are compared as they are; an id that comes again counts once, where it comes first. Every result
lies in 0 to 1. A question that needs nothing has recall 1, and a context that holds nothing has
precision and density 0.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence


def recall(shown: Iterable[str], required: Collection[str]) -> float:
    """Return the share of what is required that is shown.

    Context recall: what must be known and went into the context, by what must be known (Manning,
    Raghavan, Schütze, Introduction to Information Retrieval, 8.3).
    """
    wanted = set(required)
    return len(wanted & set(shown)) / len(wanted) if wanted else 1.0


def precision(shown: Iterable[str], required: Collection[str]) -> float:
    """Return the share of what is shown that is required (Manning, Raghavan, Schütze, 8.3)."""
    seen = set(shown)
    return len(seen & set(required)) / len(seen) if seen else 0.0


def recall_at(ranked: Sequence[str], required: Collection[str], k: int) -> float:
    """Return the recall of the first `k` distinct ids of a ranking; 0 or fewer show nothing."""
    return recall(_distinct(ranked)[: max(0, k)], required)


def precision_at(ranked: Sequence[str], required: Collection[str], k: int) -> float:
    """Return the precision of the first `k` distinct ids of a ranking.

    A ranking of fewer than `k` is judged by what it has: a context is not padded.
    """
    return precision(_distinct(ranked)[: max(0, k)], required)


def hit_at(ranked: Sequence[str], required: Collection[str], k: int) -> float:
    """Return 1 where one of the first `k` distinct ids is required, else 0: success at k."""
    return float(not set(required).isdisjoint(_distinct(ranked)[: max(0, k)]))


def reciprocal_rank(ranked: Sequence[str], required: Collection[str]) -> float:
    """Return 1 by the place of the first required id, 0 where there is none (Voorhees, TREC-8,
    1999).
    """
    wanted = set(required)
    return next(
        (1 / place for place, one in enumerate(_distinct(ranked), start=1) if one in wanted), 0.0
    )


def order(ranked: Sequence[str], required: Collection[str]) -> float:
    """Return how near the head of a ranking the required ids stand: nDCG with gain 1 for each of
    them.

    Sum of 1 / log2(place + 1) over the required ids, by the same sum where all of them come first
    (Järvelin and Kekäläinen, ACM TOIS 20(4), 2002). What is missing counts as last, so that order
    is never above what was found.
    """
    wanted = set(required)
    if not wanted:
        return 1.0
    gain = sum(
        _discount(place) for place, one in enumerate(_distinct(ranked), start=1) if one in wanted
    )
    return gain / sum(_discount(place) for place in range(1, len(wanted) + 1))


def density(shown: Iterable[tuple[str, int]], required: Collection[str]) -> float:
    """Return the share of the tokens of a context that required ids hold; `shown` are ids with
    their tokens.

    The specification's decision-relevant information density, with required as relevant. Unlike
    `precision` it sees how long what is not needed is. An id in several pieces holds the tokens of
    all of them.

    Raises:
        ValueError: tokens are negative.
    """
    wanted = set(required)
    needed = total = 0
    for one, tokens in shown:
        if tokens < 0:
            raise ValueError("tokens are 0 or more")
        total += tokens
        needed += tokens if one in wanted else 0
    return needed / total if total else 0.0


def fitting(ranked: Iterable[tuple[str, int]], budget: int) -> list[tuple[str, int]]:
    """Return what of a ranking goes into `budget` tokens, best first, passing over what no longer
    fits.

    Raises:
        ValueError: tokens are negative.
    """
    chosen: list[tuple[str, int]] = []
    left = budget
    for one, tokens in ranked:
        if tokens < 0:
            raise ValueError("tokens are 0 or more")
        if tokens <= left:
            chosen.append((one, tokens))
            left -= tokens
    return chosen


def _discount(place: int) -> float:
    return 1 / math.log2(place + 1)


def _distinct(ranked: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(ranked))
