"""Recency: of memories about one thing the newer leads, so that what no longer holds does not stand
first.
"""

from __future__ import annotations

from collections.abc import Mapping

from ctx_pipeline.contracts import ItemKind
from ctx_pipeline.language.terms import query_terms
from ctx_pipeline.security.visibility import ALWAYS
from ctx_pipeline.stages.candidates import Candidate, Judged, Verdict

LOOKED_AT = 64
"""Memories, the best first, that are compared with each other."""
ALIKE = 0.5
"""Share of the words of the shorter one from which two memories are about one thing."""
LEAST_WORDS = 2
"""Words that they have in common at least."""
NEAR = 0.5
"""Share of the score of the best that a newer one has at least to lead: what hardly answers stays
behind."""
_MEMORY = ItemKind.MEMORY.value


def lead_with_newer(judged: Judged) -> Judged:
    """Give the scores of memories about one thing to them in the order of their times, the newest
    first.

    Expects the order of scores.
    """
    verdicts = judged.verdicts
    dated = [c for c in judged.indexed() if c.kind == _MEMORY and c.dated_at > ALWAYS][:LOOKED_AT]
    words = {c: frozenset(query_terms(c.title)) for c in dated}
    left = dated
    changed: dict[Candidate, Verdict] = {}
    while left:
        best = left[0]
        least = verdicts[best].score * NEAR
        about = [
            c
            for c in left
            if c is best or (verdicts[c].score >= least and _about_one_thing(best, c, words))
        ]
        left = [c for c in left if c not in about]
        newest_first = sorted(about, key=lambda c: -c.dated_at)
        for candidate, holder in zip(newest_first, about, strict=True):
            if candidate is not holder:
                score = verdicts[holder].score
                changed[candidate] = verdicts[candidate]._replace(score=score)
    return judged.ruled(changed)


def _about_one_thing(
    one: Candidate, other: Candidate, words: Mapping[Candidate, frozenset[str]]
) -> bool:
    if one.subject >= 0 and one.subject == other.subject:
        return True
    ours, theirs = words[one], words[other]
    common = len(ours & theirs)
    return common >= LEAST_WORDS and common >= ALIKE * min(len(ours), len(theirs))
