"""Recency: of memories about one thing the newer leads, so that what no longer holds does not stand first."""

from __future__ import annotations

from collections.abc import Sequence

from ctx_pipeline.contracts import ItemKind
from ctx_pipeline.language.terms import query_terms
from ctx_pipeline.security.visibility import ALWAYS
from ctx_pipeline.stages.candidates import Candidate

LOOKED_AT = 64
"""Memories, the best first, that are compared with each other."""
ALIKE = 0.5
"""Share of the words of the shorter one from which two memories are about one thing."""
LEAST_WORDS = 2
"""Words that they have in common at least."""
NEAR = 0.5
"""Share of the score of the best that a newer one has at least to lead: what hardly answers stays behind."""
_MEMORY = ItemKind.MEMORY.value


def lead_with_newer(candidates: Sequence[Candidate]) -> bool:
    """Give the scores of memories about one thing to them in the order of their times; tell whether any changed.

    Expects the order of scores.
    """
    dated = [
        candidate
        for candidate in candidates
        if candidate.kind == _MEMORY and candidate.dated_at > ALWAYS and candidate.excluded is None
    ][:LOOKED_AT]
    words = {id(c): frozenset(query_terms(c.title)) for c in dated}
    left = list(dated)
    changed = False
    while left:
        best = left[0]
        about = [
            other
            for other in left
            if other.score >= best.score * NEAR
            and (other is best or _about_one_thing(best, other, words))
        ]
        left = [other for other in left if other not in about]
        scores = [candidate.score for candidate in about]
        for candidate, score in zip(sorted(about, key=lambda c: -c.dated_at), scores, strict=True):
            changed = changed or candidate.score != score
            candidate.score = score
    return changed


def _about_one_thing(one: Candidate, other: Candidate, words: dict[int, frozenset[str]]) -> bool:
    if one.subject >= 0 and one.subject == other.subject:
        return True
    ours, theirs = words[id(one)], words[id(other)]
    common = len(ours & theirs)
    return common >= LEAST_WORDS and common >= ALIKE * min(len(ours), len(theirs))
