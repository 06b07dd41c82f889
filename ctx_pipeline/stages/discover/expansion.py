"""Synonyms: a request that names a term by any of its names finds the term, and what other texts
call it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ctx_pipeline.index.forms import Mention, surface
from ctx_pipeline.security.visibility import Clock, Viewer

if TYPE_CHECKING:
    from ctx_pipeline.index.view import ServingView

MAX_TERMS = 8
"""Terms of one request."""
MAX_NAMES = 4
"""Names of one term that are searched for beside the one that the request has."""


@dataclass(frozen=True, slots=True)
class NamedTerms:
    """The rows of the terms that a request names, and their other names."""

    rows: tuple[int, ...]
    words: tuple[str, ...]


_NONE = NamedTerms((), ())


def named_terms(text: str, view: ServingView, viewer: Viewer, clock: Clock) -> NamedTerms:
    """Return the terms that a text names and the viewer may see.

    Names of what the viewer may not see, or what is no longer valid, change nothing: they are
    dropped before longer names are preferred to those inside of them.
    """
    forms = view.reader.forms
    mentions = forms.mentions(viewer.tenant, text)
    if not mentions:
        return _NONE
    rows = sorted({row for mention in mentions for row in mention.rows})
    codes = view.codes(np.asarray(rows, np.intp), viewer, clock).tolist()
    visible = {row for row, code in zip(rows, codes, strict=True) if code == 0}
    found: dict[int, None] = {}
    for mention in _longest(
        [mention for mention in mentions if not visible.isdisjoint(mention.rows)]
    ):
        found.update(dict.fromkeys(row for row in mention.rows if row in visible))
    chosen = tuple(found)[:MAX_TERMS]
    plain = surface(text)
    words = dict.fromkeys(name for row in chosen for name in forms.names(row)[: MAX_NAMES + 1])
    return NamedTerms(chosen, tuple(name for name in words if surface(name) not in plain))


def add_named(
    lexical: dict[int, float],
    named: NamedTerms,
    view: ServingView,
    *,
    viewer: Viewer,
    clock: Clock,
    limit: int,
) -> None:
    """Add to the scores by words, by row, what uses the other names of the terms: as good as the
    request's own words.

    The terms hold all of their names at once, so the best among the others is the measure.
    """
    if not named.words:
        return
    found = view.search(
        " ".join(named.words), None, viewer=viewer, clock=clock, limit=limit
    ).lexical
    scores = dict(zip(found.rows, found.scores, strict=True))
    best = max((score for row, score in scores.items() if row not in named.rows), default=0.0)
    best = best or max(scores.values(), default=0.0)
    top = max(lexical.values(), default=1.0)
    for row, score in scores.items():
        lexical[row] = max(lexical.get(row, 0.0), top * min(1.0, score / best))


def _longest(mentions: list[Mention]) -> list[Mention]:
    """Return mentions that do not overlap, the longest first, in the order of the text."""
    kept: list[Mention] = []
    for mention in sorted(
        mentions, key=lambda mention: (mention.start - mention.end, mention.start)
    ):
        if all(mention.end <= other.start or other.end <= mention.start for other in kept):
            kept.append(mention)
    return sorted(kept)
