"""Words that claims are compared by: what means the same in English and Chinese, and what says
nothing of a claim.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from ctx_pipeline.language.terms import terms
from ctx_pipeline.language.word_lists import lines_of, pattern_of, words_of

CLAIMS_VERSION: Final = "4"
"""Changes with what `claims.claims_table` finds in a text, and with how `contested.contested_table`
compares it."""

_LIMITING: Final = frozenset(words_of(__file__, "limiting"))
_LINKING: Final = frozenset(words_of(__file__, "linking"))
_COPULAS: Final = frozenset(words_of(__file__, "copulas"))
_COPULAS_ZH: Final = frozenset("为是")
_FUNCTION: Final = frozenset(
    "的了于和与及或把被将就也而其该此这那个们地得着过吗呢吧啊之所,、。，;；:：\"'()（）「」《》"
)

QUANTITY: Final = "\ue000"
"""Stands in a text where a quantity was."""
_RUN = re.compile(
    rf"{QUANTITY}|=|[a-z][a-z']*(?:[0-9]+[a-z0-9]*)?|[0-9][0-9a-z.:/-]*|[\u3400-\u9fff]+"
)


def _table() -> tuple[dict[str, str], dict[str, str]]:
    english: dict[str, str] = {}
    chinese: dict[str, str] = {}
    for line in lines_of(__file__, "concepts"):
        concept, _, names = line.partition(":")
        words, _, phrases = names.partition("|")
        for word in words.split():
            english[_stem(word)] = concept
        for phrase in phrases.split():
            chinese[phrase] = concept
    return english, chinese


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    found = terms(word)
    return found[0] if found else ""


_ENGLISH_OF, _CHINESE_OF = _table()
CONCEPTS: Final = frozenset(_CHINESE_OF.values())
"""What a word of both languages is compared as."""


def _compared(name: str) -> frozenset[str]:
    """Return the words of a list as claims have them."""
    listed = words_of(__file__, name)
    return frozenset(_ENGLISH_OF.get(_stem(word), _stem(word)) for word in listed)


# A word of a list may belong to a concept whose other words do say something.
FILLERS: Final = _compared("fillers") - {"window", "retention", "accept", "account"}
VERBS: Final = _compared("verbs") - {"retention"}
LIMITERS: Final = _compared("limiters") | frozenset("东西南北华")
_CHINESE_PARTS = re.compile(
    rf"(?P<phrase>{'|'.join(sorted(map(re.escape, _CHINESE_OF), key=len, reverse=True))})"
    rf"|(?P<reporting>{pattern_of(__file__, 'chinese_reporting')})"
    rf"|(?P<filler>{pattern_of(__file__, 'chinese_fillers')})"
    rf"|(?P<limiting>{pattern_of(__file__, 'chinese_limiting')})"
    r"|.",
    re.DOTALL,
)
"""What a run of Chinese is made of; of what begins at one place the first kind counts."""


_ONE_SIGN_FRACTION = re.compile("[\u00bc-\u00be\u2150-\u215e]")
"""NFKC writes `1½` as if it were 11/2."""


def folded(text: str) -> str:
    """Return text as claims are read in it: NFKC, lower case."""
    return unicodedata.normalize("NFKC", _ONE_SIGN_FRACTION.sub(r" \g<0>", text)).lower()


def words(text: str) -> list[str]:
    """Return the words of a folded text in order: stems, concepts for what both languages name,
    else characters.
    """
    return [word for word in _marked(text) if not is_mark(word)]


def marked(text: str) -> list[str]:
    """Return the words of a folded text with marks of how they are joined.

    `<for` before what limits, `<of` before what belongs, `<that` after who says so, `<is` for a
    copula, `<q` for a quantity, `_` for other small words.
    """
    return list(_marked(text))


def is_mark(word: str) -> bool:
    """Return whether an entry of `marked` is no word."""
    return word == "_" or word[0] == "<"


def is_filler(word: str) -> bool:
    """Return whether a word of `words` says nothing of a claim."""
    return word[0] == "~" or word in FILLERS


def is_limiter(word: str) -> bool:
    """Return whether a word of `words` names whom or where something holds for."""
    return word in LIMITERS


def is_verb(word: str) -> bool:
    """Return whether a word of `words` only ties a value to what has it."""
    return word[0] == "~" or word in VERBS


@lru_cache(maxsize=16_384)
def _marked(text: str) -> tuple[str, ...]:
    """Read a text once: what limits a sentence is read again with each of its clauses."""
    found: list[str] = []
    for run in _RUN.findall(text.replace("_", " ")):
        if run[0].isascii():
            found.append(_english(run))
        elif run == QUANTITY:
            found.append("<q")
        else:
            found.extend(_chinese(run))
    return tuple(found)


@lru_cache(maxsize=65_536)
def _english(run: str) -> str:
    if run == "=" or run in _COPULAS:
        return "<is"
    if run in _LIMITING:
        return "<for"
    if run in _LINKING:
        return "<of"
    if run == "that":
        return "<that"
    word = _stem(run.removesuffix("'s")) if run[0].isalpha() else run.rstrip(".:/-")
    return _ENGLISH_OF.get(word, word) if word else "_"


def _chinese(run: str) -> Iterator[str]:
    for match in _CHINESE_PARTS.finditer(run):
        found = match.group()
        match match.lastgroup:
            case "phrase":
                yield _CHINESE_OF[found]
            case "reporting":
                yield "<that"
            case "filler":
                yield f"~{found}"
            case "limiting":
                yield "<for"
            case _:
                yield "<is" if found in _COPULAS_ZH else "_" if found in _FUNCTION else found
