"""Query planning: what is searched for. A short task is one query; a long one is also searched part
by part.

One vector of a long text is near to nothing that the text asks for, and only its beginning is
embedded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ctx_pipeline.contracts import Task
from ctx_pipeline.language.terms import query_terms

if TYPE_CHECKING:
    from ctx_pipeline.contracts import Exclusion
    from ctx_pipeline.index.reader import Floats
    from ctx_pipeline.index.view import SearchHits, ServingView
    from ctx_pipeline.security.visibility import Clock, Viewer

QUERY_CHARS = 2_000
"""Characters of a task that are searched for as a whole."""
MAX_PARTS = 5
"""Most queries beside the whole task: each costs an embedding, 28 ms on one core.

Of 103 scenarios of nine sentences and six tools (`bench.retrieval`, the half for choosing) .44 of
the tools are among the first ten with the whole alone and .52 with five parts; eight parts add .01.
"""
PART_MEANING, PART_WORDS = 0.9, 0.5
"""What a hit of a part counts against one of the whole task: the words of the whole are those of
all its parts."""
LONG_MEANING = 0.7
"""What the share of meaning in relevance keeps for a long task. The same scenarios find .52 of
their tools with all of it and .55 with this and half the words of parts."""
LONG_TASK_BYTES = 384
"""UTF-8 bytes above which a task is searched part by part; two thirds of them are embedded.

Two sentences of a short request say one thing: apart they find less (.83 of the tools of 264
requests among the first five, together .85), and so does a question apart from what explains it
(from 256 bytes on, .9265 of the columns of BIRD instead of .9274).
"""
PLANNED_CHARS = 4_000
"""Characters of a task that are looked at: a longer one carries a document, and asks before or
after it."""
_SENTENCE_TERMS = 2
"""A sentence of fewer search terms asks for nothing by itself."""

_BOUNDARY = re.compile(r"(?<=[.!?])[\"')\]]*\s+|(?<=[。！？；;])|\n+")
_FILLER = re.compile(
    r"(?:hi|hello|hey|dear|good (?:morning|afternoon|evening|day)|thank you|thanks?|please|"
    r"cheers|(?:best|kind|warm) "
    r"regards|sincerely|so much|very much|in advance|a lot|there|all|team|everyone|"
    r"你好|您好|大家好|早上好|下午好|晚上好|谢谢|多谢|感谢|非常|拜托|麻烦|辛苦|各位|你们|你|您|"
    r"大家|了|啦|[\W_])++",
    re.IGNORECASE,
)


class Query(NamedTuple):
    """One thing to search for."""

    text: str
    vector: Floats | None
    """None: words only."""


def plan_queries(task: Task) -> tuple[str, ...]:
    """Return what to search for: the task's text, then at most `MAX_PARTS` distinct parts of what
    it asks.

    Parts are the sentences of a text of more than `LONG_TASK_BYTES`, the goal, what is to do, and
    the constraints, in this order; where there are more, neighbours are joined. What only greets or
    thanks is left out.
    """
    text = task.text
    told = (part.strip() for part in (task.goal or "", *task.todo, *task.constraints))
    parts = dict.fromkeys(
        (*_sentences(text), *(part for part in told if query_terms(part[:QUERY_CHARS])))
    )
    parts.pop(text.strip(), None)
    return tuple(part[:QUERY_CHARS] for part in (text, *_joined(list(parts), MAX_PARTS)))


def is_long(text: str) -> bool:
    """Whether a task is searched part by part."""
    return len(text) > LONG_TASK_BYTES or len(text.encode("utf-8", "replace")) > LONG_TASK_BYTES


def _sentences(text: str) -> list[str]:
    """Return the sentences of a long text that ask for something; nothing where
    it is one sentence.
    """
    if not is_long(text):
        return []
    half = PLANNED_CHARS // 2
    carries = len(text) > PLANNED_CHARS
    sentences = (
        part.strip()
        for part in _BOUNDARY.split(f"{text[:half]}\n{text[-half:]}" if carries else text)
    )
    found = [
        sentence for sentence in sentences if not _FILLER.fullmatch(sentence) and _asks(sentence)
    ]
    if len(found) < 2:
        return []
    # What is asked after a document would stand at the end of a text of which the beginning is
    # embedded.
    return [*_joined(found[:-1], MAX_PARTS - 1), found[-1]] if carries else found


def _asks(sentence: str) -> bool:
    return len(query_terms(sentence[:QUERY_CHARS])) >= _SENTENCE_TERMS


def _joined(parts: Sequence[str], count: int) -> list[str]:
    """Join neighbours into at most `count` texts of about the same length."""
    if len(parts) <= count:
        return list(parts)
    ends: list[int] = []
    length = 0
    for part in parts:
        length += len(part)
        ends.append(length)
    # A part belongs to the text that its middle lies in.
    places = [
        int((end - len(part) / 2) * count / length) for end, part in zip(ends, parts, strict=True)
    ]
    cuts = [at for at, (before, after) in enumerate(pairwise(places), start=1) if before != after]
    return [" ".join(parts[start:end]) for start, end in pairwise((0, *cuts, len(parts)))]


@dataclass(frozen=True, slots=True)
class Hits:
    """What all queries found: score by row."""

    dense: dict[int, float]
    """The best rows by meaning: cosines of one query, or 0 to 1 where there are several."""
    lexical: dict[int, float]
    lapsed: list[int]
    """Found by words, and ruled out by time or by what has happened to it."""
    denied: dict[Exclusion, int]
    similarity: Callable[[Sequence[int]], list[float]]
    """Returns the meaning scores of rows that were not found by it."""


def search_all(
    view: ServingView, queries: Sequence[Query], *, viewer: Viewer, clock: Clock, limit: int
) -> Hits:
    """Search every query and return the best `limit` rows by meaning and by words.

    One query keeps its scores. Of several, each is scaled to 0 to 1 over all that was found, parts
    count less, and a row has the score of the query that it answers best.
    """
    found = [
        view.search(query.text, query.vector, viewer=viewer, clock=clock, limit=limit)
        for query in queries
    ]
    denied = found[0].denied
    lapsed = list(dict.fromkeys(row for hits in found for row in hits.lapsed))[:limit]
    if len(queries) == 1:
        vector = queries[0].vector
        dense = dict(zip(found[0].dense_rows.tolist(), found[0].dense_scores.tolist(), strict=True))
        lexical = dict(zip(*found[0].lexical, strict=True))
        return Hits(
            dense, lexical, lapsed, denied, lambda rows: view.similarity(rows, vector).tolist()
        )
    rows = list(dict.fromkeys(row for hits in found for row in hits.dense_rows.tolist()))
    similarity = _best_meaning(view, queries, rows)
    dense = dict(zip(rows, similarity(rows), strict=True))
    return Hits(_best(dense, limit), _best(_best_words(found), limit), lapsed, denied, similarity)


def _best_meaning(
    view: ServingView, queries: Sequence[Query], among: Sequence[int]
) -> Callable[[Sequence[int]], list[float]]:
    """Return what scores rows by the query whose meaning is nearest, each scaled over the rows
    `among`.
    """
    import numpy as np

    scales: list[tuple[Query, float, float]] = []
    for number, query in enumerate(queries):
        scores = view.similarity(among, query.vector)
        low, top = (float(scores.min()), float(scores.max())) if len(scores) else (0.0, 0.0)
        scales.append((query, low, (PART_MEANING if number else 1.0) / max(top - low, 1e-6)))

    def score(rows: Sequence[int]) -> list[float]:
        best = np.zeros(len(rows), np.float32)
        for query, low, factor in scales:
            np.maximum(best, (view.similarity(rows, query.vector) - low) * factor, out=best)
        return best.tolist()

    return score


def _best_words(found: Sequence[SearchHits]) -> dict[int, float]:
    best: dict[int, float] = {}
    for number, hits in enumerate(found):
        share = PART_WORDS if number else 1.0
        for row, score in zip(*hits.lexical, strict=True):
            best[row] = max(best.get(row, 0.0), share * score / hits.lexical.scores[0])
    return best


def _best(scores: dict[int, float], limit: int) -> dict[int, float]:
    return dict(sorted(scores.items(), key=lambda entry: (-entry[1], entry[0]))[:limit])
