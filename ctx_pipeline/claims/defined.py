"""Definitions in prose: what is said to be what, as the words it is defined by."""

from __future__ import annotations

import re
from typing import Final

from ctx_pipeline.claims.quantities import quantities
from ctx_pipeline.claims.words import is_filler, is_verb, words

MAX_BODY_CHARS: Final = 160
"""Longer bodies explain; they are told apart by more than their words."""
_DEFINES = re.compile(
    r"^(?P<head>[^=]{1,48}?)(?:\s*:?=\s*|"
    r"\s+(?:means|equals|refers to|stands for|counts|measures|covers|"
    r"(?:is|are)(?: (?:defined|calculated|computed|measured|counted) (?:as|by|from|on))?)\s+|"
    r"\s*(?:等于|定义(?:为|是)|口径(?:为|是)|计算(?:为|方式为)|指的是|是指|指|为|"
    r"是)\s*)(?P<body>.+)$"
)
_EVENT = re.compile(r"\b(?:was|were|shown|displayed|owned|refreshed|updated)\b|负责|看板|刷新")
_PARTS = re.compile(
    r"\b(?:includ|exclud)|"
    r"\b(?:net|gross|exclusive|inclusive) of\b|"
    r"\b(?:without|as well|also|too)\b|"
    r"包含|包括|不含|扣除|剔除|排除|计入|算入"
)
"""What says of a part whether it counts; the claim of that is compared instead."""
_PEOPLE: Final = frozenset(
    {"customer", "user", "person", "peopl", "someon", "everyon", "anyon", "member"}
)
"""Whom a definition counts: one word for all, so that two that count people are of one thing."""


def definition(text: str) -> tuple[str, str] | None:
    """Return the words that a folded clause defines something by, and what it defines; None if it
    defines nothing.
    """
    match = _DEFINES.match(text)
    if (
        match is None
        or len(match["body"]) > MAX_BODY_CHARS
        or _EVENT.search(text)
        or _PARTS.search(text)
    ):
        return None
    value = defining_words(match["body"])
    return (value, match["head"]) if value else None


def defining_words(text: str) -> str:
    """Return the telling words of a definition in order, without its quantities, which are claims
    of their own.
    """
    kept: list[str] = []
    at = 0
    for found in quantities(text):
        kept.append(text[at : found.start])
        at = found.end
    said = words(" ".join([*kept, text[at:]]))
    return " ".join(
        dict.fromkeys("user" if word in _PEOPLE else word for word in said if _tells(word))
    )


def _tells(word: str) -> bool:
    return word in _PEOPLE or (not is_filler(word) and not is_verb(word) and not word[0].isdigit())
