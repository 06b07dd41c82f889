"""The names that terms are asked for by, and where a text has them: an
automaton for each tenant.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ctx_pipeline.language.terms import STOP_WORDS

if TYPE_CHECKING:
    import pyarrow as pa

MIN_CHARS: Final = 2
"""A shorter name is in too many words."""
_BLANKS = re.compile(r"[\s_\-]+")
_LATIN = re.compile(r"[^\W_]", re.ASCII)


class Mention(NamedTuple):
    """A name in a text: where it begins and ends in the normalised text, and the rows that go by
    it.
    """

    start: int
    end: int
    rows: tuple[int, ...]


def surface(text: str) -> str:
    """Return a text as names are compared: case, width, and what stands between words make no
    difference.
    """
    return _BLANKS.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()


class Forms:
    """The names of one artifact's rows. Safe to share between threads."""

    def __init__(self, column: pa.ChunkedArray, tenants: Mapping[str, tuple[int, int]]) -> None:
        self._column = column
        self._tenants = tenants
        self._maps: dict[str, tuple[Any, list[tuple[int, ...]]] | None] = {}
        self._names: dict[int, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def names(self, row: int) -> tuple[str, ...]:
        """Return the names of a row that a mention led to, its own first."""
        return self._names[row]

    def mentions(self, tenant: str, text: str) -> Sequence[Mention]:
        """Return every name of a tenant's rows that a text has, those inside of others too.

        In Latin script a name is whole words, or their plural with -s. Whoever asks may not know
        all of the rows: drop those first, then prefer the longest.
        """
        known = self._map(tenant)
        if known is None:
            return ()
        automaton, rows = known
        plain = surface(text)
        return [
            Mention(start, end, rows[number])
            for number, start, end in automaton.find_matches_as_indexes(plain, overlapping=True)
            if _is_whole(plain, start, end)
        ]

    def _map(self, tenant: str) -> tuple[Any, list[tuple[int, ...]]] | None:
        with self._lock:
            if tenant not in self._maps:
                self._maps[tenant] = self._read(tenant)
            return self._maps[tenant]

    def _read(self, tenant: str) -> tuple[Any, list[tuple[int, ...]]] | None:
        first, last = self._tenants.get(tenant, (0, 0))
        part = self._column.slice(first, last - first)
        by_form: dict[str, list[int]] = defaultdict(list)
        for at in _not_empty(part):
            names = self._names[first + at] = tuple(part[at].as_py())
            for form in dict.fromkeys(map(surface, names)):
                if len(form) >= MIN_CHARS and form not in STOP_WORDS and not form.isdigit():
                    by_form[form].append(first + at)
        if not by_form:
            return None
        import ahocorasick_rs

        return ahocorasick_rs.AhoCorasick(list(by_form)), [tuple(rows) for rows in by_form.values()]


def _not_empty(lists: Any) -> list[int]:
    """Return which lists of a column hold something: by its offsets, as pyarrow.compute takes 30 ms
    to load.
    """
    import numpy as np

    lengths = [np.diff(chunk.offsets.to_numpy()) for chunk in lists.chunks]
    return np.flatnonzero(np.concatenate(lengths)).tolist() if lengths else []


def _is_whole(text: str, start: int, end: int) -> bool:
    if _LATIN.match(text[start]) and start and _LATIN.match(text[start - 1]):
        return False
    if not _LATIN.match(text[end - 1]):
        return True
    if text[end : end + 1] == "s":
        end += 1
    return _LATIN.match(text[end : end + 1]) is None
