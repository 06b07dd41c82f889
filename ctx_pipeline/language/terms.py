"""Turn text into search terms, the same way for the index and for queries, in English and Chinese.

Han, kana and Hangul runs become overlapping pairs of characters (the CJK analysis of Lucene: no
dictionary, no segmentation errors); other words are case-folded, split at `_` and camel-case humps,
and stemmed with the Snowball English stemmer. `GMVByRegion` gives `gmvbyregion gmv by region`.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import lru_cache
from typing import Any

from ctx_pipeline.language.word_lists import pattern_of, words_of

MAX_TERMS = 4_000
"""Terms kept per text: more say nothing about what a chunk is about and cost every reader."""
MAX_QUERY_TERMS = 64
MAX_WORD_CHARS = 64

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"
_RUN = re.compile(f"([{_CJK}]+)|[^\\W{_CJK}]+")
"""A run of characters that are words each, its group, or a word."""
_HUMP = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_a-zA-Z]+")

STOP_WORDS = frozenset(words_of(__file__, "stop"))
_ASKING = re.compile(
    f"{pattern_of(__file__, 'chinese_asking')}|[{''.join(words_of(__file__, 'chinese_particles'))}]"
)

_local = threading.local()


def terms(text: str) -> list[str]:
    """Return the search terms of a text in order, repeats included, at most `MAX_TERMS`."""
    found: list[str] = []
    for run in _RUN.finditer(unicodedata.normalize("NFKC", text)):
        word = run.group()
        if run.lastindex:
            found.extend(_pairs(word))
        else:
            found.extend(_word_terms(word[:MAX_WORD_CHARS]))
        if len(found) >= MAX_TERMS:
            return found[:MAX_TERMS]
    return found


def query_terms(text: str) -> list[str]:
    """Return the distinct search terms of a query, first seen first, at most `MAX_QUERY_TERMS`.

    Chinese words that only ask, and particles, end a run where anything else is left.
    """
    found = dict.fromkeys(terms(text))
    asked = _ASKING.sub(" ", text)
    if asked != text:
        # A run that is cut can leave single characters, which no text of pairs is indexed by.
        found = [term for term in dict.fromkeys(terms(asked)) if term in found] or found
    return list(found)[:MAX_QUERY_TERMS]


def _pairs(run: str) -> list[str]:
    if len(run) == 1:
        return [run]
    return [run[start : start + 2] for start in range(len(run) - 1)]


@lru_cache(maxsize=65_536)
def _word_terms(word: str) -> tuple[str, ...]:
    whole = word.lower().strip("_")
    if not whole or whole in STOP_WORDS:
        return ()
    parts = [part.lower() for part in _HUMP.findall(word)]
    if len(parts) < 2:
        return (stem(whole),)
    return (stem(whole), *(stem(part) for part in parts if part not in STOP_WORDS))


def stem(word: str) -> str:
    """Return the stem of an English word in lower case."""
    stemmer: Any = getattr(_local, "stemmer", None)
    if stemmer is None:
        import Stemmer

        # A stemmer object is not safe to share between threads.
        stemmer = _local.stemmer = Stemmer.Stemmer("english")
    return stemmer.stemWord(word)
