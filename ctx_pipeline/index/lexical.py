"""The lexical index: BM25 over the terms of `analysis`, weighed by the rows that the viewer may
see.

A library's index counts how rare a word is, and how long texts are, over everything in it, so that
rows which a viewer may not see move the scores of those that he may. Here both are counted when it
is known who asks: the lists of the query's words are read where they are mapped, what is not
visible is left out of them, and what is left is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ctx_pipeline.index.columns import Texts, bisect_texts, numbers
from ctx_pipeline.index.embedder import own_title
from ctx_pipeline.language.terms import query_terms, terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from ctx_pipeline.contracts import ContextItem

TERMS_VERSION: Final = "2"
"""Changes with the terms that a text gives, here or in `analysis`."""

LEXICAL_PARTS: Final = ("lexical/terms", "lexical/postings", "lexical/lengths")
"""Parts of an artifact that `lexical_tables` makes."""

TITLE_BOOST = 1.25
"""A term in the title weighs more than one in the body. With 2 the right function is among the
first 2,000 tokens of schemas in .947 of cases, with 1 in .957: names promise more than they hold.
"""

K1, B = 1.2, 0.75
"""Lucene's: how soon repeating a word says no more, and how much a long text counts less."""
MOST_COUNTED = 255
"""Repeats of a term in one text that are told apart; the score of 255 is within 1 % of that of any
more."""
PRUNED_ROWS = 4_096
"""From so many texts with a word on, it is first asked whether that word alone could still bring
one among the best."""
ABOVE = 1.0 + 1e-9
"""Makes a bound hold whatever its sum loses to rounding."""
READ_ROWS = 8_192
KNOWN_TERMS = 65_536
"""Terms of which one viewer's counts are kept."""

Places = NDArray[np.int32]
"""Rows, counted from a tenant's first."""
Floats = NDArray[np.float64]


class LexicalHits(NamedTuple):
    """Rows and their BM25 scores, best first, ties by row."""

    rows: list[int]
    scores: list[float]


def terms_table(items: Sequence[ContextItem]) -> pa.Table:
    """Return what items are found by. Columns: title, body; terms with blanks between them.

    A title that is the content's own beginning is body alone: the first words would count twice.
    """
    import pyarrow as pa

    titles = (
        " ".join((own_title(item), *item.synonyms, item.item_id.partition("/")[2]))
        for item in items
    )
    return pa.table(
        {
            "title": pa.array([join_terms(title) for title in titles], pa.large_string()),
            "body": pa.array([join_terms(item.content or "") for item in items], pa.large_string()),
        }
    )


def join_terms(text: str) -> str:
    """Return the search terms of a text with blanks between them: what `terms_table` holds."""
    return " ".join(terms(text))


def lexical_tables(listed: pa.Table) -> dict[str, pa.Table]:
    """Return the index of a `terms_table`, by part of the artifact.

    `lexical/terms` has the terms in order (term) and where the list of each begins (start);
    `lexical/postings` has the lists, each by row (row, and how often the term is in its title and
    body, at most `MOST_COUNTED`); `lexical/lengths` has the terms of each row (title, body).
    """
    import pyarrow as pa

    vocabulary: dict[str, int] = {}
    lengths = np.zeros((listed.num_rows, 2), np.int32)
    parts = [
        _read_part(listed, first, vocabulary, lengths)
        for first in range(0, max(1, listed.num_rows), READ_ROWS)
    ]
    columns: Any = zip(*parts, strict=True)
    term, row, title, body = (np.concatenate(column) for column in columns)
    ordered = sorted(vocabulary)
    place = np.empty(len(ordered), np.int32)
    place[[vocabulary[name] for name in ordered]] = np.arange(len(ordered), dtype=np.int32)
    term = place[term] if len(ordered) else term
    order = np.argsort(term, kind="stable")
    starts = np.zeros(len(ordered), np.int64)
    starts[1:] = np.cumsum(np.bincount(term, minlength=len(ordered)))[:-1]
    return {
        "lexical/terms": pa.table(
            {"term": pa.array(ordered, pa.large_string()), "start": pa.array(starts)}
        ),
        "lexical/postings": pa.table(
            {"row": row[order], "title": title[order], "body": body[order]}
        ),
        "lexical/lengths": pa.table({"title": lengths[:, 0].copy(), "body": lengths[:, 1].copy()}),
    }


class _Postings(NamedTuple):
    """Which term is in which row, and how often: columns of one length, by row within a term."""

    term: NDArray[np.int32]
    row: NDArray[np.int32]
    title: NDArray[np.uint8]
    body: NDArray[np.uint8]


def _read_part(
    listed: pa.Table, first: int, vocabulary: dict[str, int], lengths: NDArray[np.int32]
) -> _Postings:
    """Return the postings of some rows; new terms are added to the vocabulary, lengths are filled
    in.
    """
    part = listed.slice(first, READ_ROWS)
    count = part.num_rows
    keys: list[NDArray[np.int64]] = []
    for at, name in enumerate(("title", "body")):
        codes, rows = _split(part, name, vocabulary)
        lengths[first : first + count, at] = np.bincount(rows, minlength=count)
        keys.append(codes.astype(np.int64) * READ_ROWS + rows)
    distinct, place = np.unique(np.concatenate(keys), return_inverse=True)
    titles = len(keys[0])
    often = (
        np.bincount(found, minlength=len(distinct)) for found in (place[:titles], place[titles:])
    )
    title, body = (np.minimum(found, MOST_COUNTED).astype(np.uint8) for found in often)
    term, row = np.divmod(distinct, READ_ROWS)
    return _Postings(term.astype(np.int32), (row + first).astype(np.int32), title, body)


def _split(
    part: pa.Table, name: str, vocabulary: dict[str, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of every term in a column, and the row it is in."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lists: Any = pc.split_pattern(
        pa.concat_arrays(part.column(name).chunks or [pa.array([], pa.large_string())]), " "
    )
    rows: Any = pc.list_parent_indices(lists).to_numpy()
    encoded: Any = pc.dictionary_encode(lists.flatten())
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    known = [
        vocabulary.setdefault(term, len(vocabulary)) if term else -1
        for term in encoded.dictionary.to_pylist()
    ]
    codes = (
        np.asarray(known, np.int64)[encoded.indices.to_numpy()] if known else np.empty(0, np.int64)
    )
    # A text without terms splits into one empty one.
    return codes[codes >= 0], rows[codes >= 0].astype(np.int64)


@dataclass(frozen=True, slots=True)
class Readership:
    """The rows of one tenant that words are weighed by: those that one viewer may see. What is
    counted is kept.
    """

    first: int
    """The tenant's first row; places count from it."""
    visible: NDArray[np.bool_]
    """By place."""
    rows: int
    title_mean: float
    body_mean: float
    counts: dict[str, tuple[int, int]] = field(default_factory=dict[str, "tuple[int, int]"])
    """By term: visible rows with it in the title, and in the body."""


@dataclass(frozen=True, slots=True)
class _Word:
    """One word of a query: its list within the tenant, and what it weighs."""

    rows: NDArray[np.int32]
    title: NDArray[np.uint8]
    body: NDArray[np.uint8]
    title_weight: float
    body_weight: float

    @property
    def most(self) -> float:
        """No text gets more than this from the word."""
        return (K1 + 1.0) * (self.title_weight + self.body_weight)


class Lexical:
    """Searches one published lexical index. Safe to share between threads."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        listed, postings, lengths = (tables[name] for name in LEXICAL_PARTS)
        self._terms = Texts(listed, "term")
        self._count = listed.num_rows
        self._starts: Any = np.append(numbers(listed, "start"), postings.num_rows)
        self._rows: Any = numbers(postings, "row")
        self._title: Any = numbers(postings, "title")
        self._body: Any = numbers(postings, "body")
        self._title_length: Any = numbers(lengths, "title")
        self._body_length: Any = numbers(lengths, "body")

    def readership(self, first: int, visible: NDArray[np.bool_]) -> Readership:
        """Return what words are weighed by for who sees these of a tenant's rows, which begin at
        `first`.
        """
        part = slice(first, first + len(visible))
        rows = int(np.count_nonzero(visible))
        title, body = (
            int(length[part].sum(where=visible, dtype=np.int64)) / max(1, rows)
            for length in (self._title_length, self._body_length)
        )
        return Readership(first, visible, rows, title, body)

    def search(
        self,
        text: str,
        readership: Readership,
        *,
        limit: int,
        among: NDArray[np.bool_] | None = None,
    ) -> LexicalHits:
        """Return the best visible rows, or those `among` others of the tenant by the same weights.

        A query without words finds nothing.
        """
        found = self._words(query_terms(text), readership)
        if not found:
            return LexicalHits([], [])
        mask = readership.visible if among is None else among
        scores, touched = self._scores(found, mask, readership, limit)
        places = touched
        if len(places) > limit:
            places = places[scores[places] >= np.partition(scores[places], -limit)[-limit]]
        order = places[np.lexsort((places, -scores[places]))][:limit]
        return LexicalHits((order + readership.first).tolist(), scores[order].tolist())

    def _words(self, words: Sequence[str], readership: Readership) -> list[_Word]:
        """Return what is known of the words that any row of the tenant has, the rarest first."""
        listed: list[tuple[int, str, _Word]] = []
        for word in words:
            place = self._span(word, readership)
            if place is None:
                continue
            part = slice(*place)
            rows, title, body = self._rows[part], self._title[part], self._body[part]
            counts = readership.counts.get(word)
            if counts is None:
                seen = readership.visible[rows - readership.first]
                counts = int(np.count_nonzero(title[seen])), int(np.count_nonzero(body[seen]))
                if len(readership.counts) < KNOWN_TERMS:
                    readership.counts[word] = counts
            in_title, in_body = (_rarity(number, readership.rows) for number in counts)
            listed.append(
                (max(counts), word, _Word(rows, title, body, TITLE_BOOST * in_title, in_body))
            )
        return [word for _, _, word in sorted(listed, key=lambda entry: entry[:2])]

    def _span(self, word: str, readership: Readership) -> tuple[int, int] | None:
        """Return where the list of a word has the tenant's rows; None where it has none."""
        at = bisect_texts(self._terms, word, 0, self._count)
        if at == self._count or self._terms[at] != word:
            return None
        start, end = int(self._starts[at]), int(self._starts[at + 1])
        last = readership.first + len(readership.visible)
        ends = np.array([readership.first, last], np.int32)
        low, high = np.searchsorted(self._rows[start:end], ends).tolist()
        return (start + low, start + high) if high > low else None

    def _scores(
        self, words: Sequence[_Word], mask: NDArray[np.bool_], readership: Readership, limit: int
    ) -> tuple[Floats, Places]:
        """Return scores by place, and the places that have one. Those of the best `limit` are
        whole.

        A place adds its words in one order, the rarest first, whichever way it is reached: what the
        search leaves out changes no bit of what it returns.
        """
        scores = np.zeros(len(mask), np.float64)
        touched: Places = np.empty(0, np.int32)
        for at, word in enumerate(words):
            if len(word.rows) >= PRUNED_ROWS and len(touched) > limit:
                left = sum(other.most for other in words[at:]) * ABOVE
                least = np.partition(scores[touched], -limit)[-limit]
                if left < least:
                    touched = touched[scores[touched] + left >= least]
                    for other in words[at:]:
                        self._add_to(touched, other, scores, readership)
                    break
            places: Places = word.rows - np.int32(readership.first)
            kept = np.flatnonzero(mask[places])
            places = places[kept]
            touched = np.concatenate((touched, places[scores[places] == 0.0]))
            self._add(places, word.title[kept], word.body[kept], word, scores, readership)
        return scores, touched

    def _add_to(self, places: Places, word: _Word, scores: Floats, readership: Readership) -> None:
        """Add what a word gives to some places."""
        rows: Places = places + np.int32(readership.first)
        at = np.minimum(np.searchsorted(word.rows, rows), len(word.rows) - 1)
        has = word.rows[at] == rows
        at = at[has]
        self._add(places[has], word.title[at], word.body[at], word, scores, readership)

    def _add(
        self,
        places: Places,
        title: NDArray[np.uint8],
        body: NDArray[np.uint8],
        word: _Word,
        scores: Floats,
        readership: Readership,
    ) -> None:
        rows = places + readership.first
        said = _saturated(body, self._body_length[rows], readership.body_mean) * word.body_weight
        named = np.flatnonzero(title)
        said[named] += (
            _saturated(title[named], self._title_length[rows[named]], readership.title_mean)
            * word.title_weight
        )
        scores[places] += said


def _rarity(having: int, rows: int) -> float:
    """Return how much a word tells that `having` of `rows` texts have."""
    return log(1.0 + (rows - having + 0.5) / (having + 0.5))


def _saturated(often: NDArray[np.uint8], length: NDArray[np.int32], mean: float) -> Floats:
    """Return how much a word says that a text of some length has so often: 0
    where it is not in it.
    """
    counts = often.astype(np.float64)
    return (K1 + 1.0) * counts / (counts + (K1 * (1.0 - B) + (K1 * B / max(mean, 1.0)) * length))
