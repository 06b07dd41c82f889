"""Cut a text into clauses that each can make a claim, with what limits when or
for whom it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ctx_pipeline.claims.quantities import whole_amounts
from ctx_pipeline.claims.words import words

MAX_CLAUSE_CHARS: Final = 320
"""Longer ones say too much at once to be compared."""

_FENCE = re.compile(r"^\s*(?:```|~~~)")
_SENTENCE = re.compile(r"(?<=[!?。！？;；])|(?<=[.])(?=\s|$)")
MAX_SINCE_CHARS: Final = 64
"""More than `_SINCE` ever takes out of a sentence."""
_SENTENCE_ENDS: Final = "!?。！？；;."
_MARK = re.compile(r"^\s*(?:[-*+>]|\d{1,3}[.)]|[（(]?[一二三四五六七八九十\d]{1,3}[、)）])\s*")
_STRONG = re.compile(r"(\*\*|__|`)")
_HEADING = re.compile(r"^\s*#{1,6}\s+")
_COMMA = re.compile(
    r"[,，、:：](?=\D|$)|\s[—–-]{1,2}\s|\b(?:but|whereas|while)\b|，?(?:但是|但|而)"
)
_COMMA_PARTS: Final = (
    ",",
    "，",
    "、",
    ":",
    "：",
    "-",
    "–",
    "—",
    "but",
    "whereas",
    "while",
    "但",
    "而",
)
"""One of these stands wherever `_COMMA` splits."""
_COMMA_OF_FORMULA = re.compile(r"[,，、:：](?=\D|$)")
"""Behind a sign of equality a dash is a minus."""
_COLON = re.compile(r"^([^:：,，。]{2,80})[:：]\s*(?=(?:[^:：,，。]|,(?=\d)){1,24}[.。]?\s*$)")
"""A name with its value, `refund window: 30 days`."""
_ASIDE = re.compile(r"(?<=[\s\u3400-\u9fff])\(([^()]*)\)|（([^（）]*)）")
_SUPPOSING = re.compile(r"(?:if|suppose|imagine|whether|假设|例如|比如)\b")
_EXAMPLE = re.compile(r"\be\.g\.|\bfor example\b")
_LIMITS = re.compile(
    r"^(?:and\s)?"
    r"(?:in|for|on|during|at|under|when|if|unless|only|except|until|before|after|within|with|by|"
    r"对于?|在|若|如果|当|仅|除|截至|直到|限|关于)"
)
_SINCE = re.compile(
    r"\b(?:since|starting|effective(?: from)?|as of|from)\s+(?:on\s)?"
    r"(?:(?:\d{1,2}\s)?[a-z]+\s(?:\d{1,2}\s)?)?(?:19|20)\d\d(?:-\d\d){0,2}(?:\sonwards?)?|"
    r"(?:自|从)?(?:19|20)\d\d\s?年(?:\s?\d{1,2}\s?月)?(?:\s?\d{1,2}\s?日)?起|"
    r"(?:自|从)(?:19|20)\d\d(?:-\d\d){0,2}起"
)
"""A beginning that has passed limits nothing today."""
_PAST = re.compile(
    r"\b(?:used to|previously|formerly|in the past|until)\b|以前|过去|曾|原来|原先|旧版"
)
_PAST_PARTS: Final = (
    "used to",
    "ously",
    "ormerly",
    "in the past",
    "until",
    "以前",
    "过去",
    "曾",
    "原来",
    "原先",
    "旧版",
)
"""One of these stands in whatever `_PAST` finds."""
_MONTHS = "january|february|march|april|june|july|august|september|october|november|december"
_NUMBERS = re.compile(
    rf"(?:19|20)\d\d(?:[-/.]\d{{1,2}}){{0,2}}|"
    r"\bq[1-4]\b|"
    rf"\b(?:{_MONTHS})\b|"
    r"[一二三四]季度|"
    rf"\d{{1,2}}\s?月"
    r"|第\s?\d{1,3}\s?[周期批次]|\b(?:week|sprint|batch|w)[ -]?\d{1,3}\b"
)
_TURNED: Final = (
    (
        " table ",
        re.compile(r"\bin (?:the )?table ([a-z_]\w*),? (?:the )?(?:column|field) ([a-z_]\w*)"),
        r"column \2 of table \1",
    ),
    (
        "divide",
        re.compile(r"^\s*to (?:get|compute|calculate|obtain) (.+?), divide (.+?) by (.+)$"),
        r"\1 = \2 / \3",
    ),
)
"""Sentences with a comma in the middle of what they claim, put straight: a word of theirs, pattern,
plain form."""
_EDITION = re.compile(r"(?:19|20)\d\d\s?(?:版|edition|version)")


@dataclass(frozen=True, slots=True)
class Clause:
    """A piece of a sentence, and what the sentence, or the title, says of when and for whom."""

    text: str
    scope: tuple[str, ...]
    loose: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A claim of a clause; `about` and `object` are text, `more` are words of the kind of value."""

    attribute: str
    value: str
    about: str
    object: str = ""
    more: tuple[str, ...] = ()
    event: bool = False
    """It tells what happened once: it contradicts others only about a subject that both name."""


def clauses(text: str, title: str = "") -> Iterator[Clause]:
    """Yield the clauses of a folded text; years and months of its title limit every one of them."""
    own = tuple(f"@{found}" for found in _NUMBERS.findall(_EDITION.sub(" ", title)))
    heading: tuple[str, ...] = ()
    fenced = False
    for block in _blocks(text):
        if _FENCE.match(block):
            fenced = not fenced
            continue
        if fenced or not block.strip():
            continue
        if _HEADING.match(block):
            heading = tuple(f"@{found}" for found in _NUMBERS.findall(_EDITION.sub(" ", block)))
            continue
        loose = block.lstrip().startswith("|") or "\t" in block
        line = _STRONG.sub("", _MARK.sub("", block))
        for sentence in (
            _SENTENCE.split(line) if any(end in line for end in _SENTENCE_ENDS) else [line]
        ):
            if not _asks(sentence.strip()):
                yield from _of_sentence(sentence, (*own, *heading), loose=loose)


def _blocks(text: str) -> Iterator[str]:
    """Yield paragraphs as one line each; list items, headings, table rows and keys stand alone."""
    held = ""
    for line in text.split("\n"):
        alone = (
            not line.strip()
            or _FENCE.match(line)
            or _HEADING.match(line)
            or line.lstrip().startswith("|")
        )
        if alone or _MARK.match(line) or re.match(r"^[a-z_ ]{1,24}: ", line):
            if held:
                yield held
            held = "" if alone else line.strip()
            if alone:
                yield line
        else:
            held = f"{held} {line.strip()}" if held and held[-1].isascii() else held + line.strip()
    if held:
        yield held


def _asks(sentence: str) -> bool:
    """Return whether a sentence asks, supposes or gives an example."""
    if sentence.endswith(("?", "？")) or _SUPPOSING.match(sentence):
        return True
    return ("e.g." in sentence or "for example" in sentence) and _EXAMPLE.search(
        sentence
    ) is not None


def _of_sentence(sentence: str, scope: tuple[str, ...], *, loose: bool) -> Iterator[Clause]:
    # Looking for what a pattern cannot do without is much cheaper than the pattern.
    one = not any(part in sentence for part in _COMMA_PARTS)
    if (
        one
        and len(sentence) > MAX_CLAUSE_CHARS + MAX_SINCE_CHARS
        and not any(mark in sentence for mark in "(（")
    ):
        return
    if "20" in sentence or "19" in sentence:
        sentence = _SINCE.sub(" ", sentence)
    sentence = whole_amounts(sentence)
    for needed, pattern, plain in _TURNED:
        if needed in sentence:
            sentence = pattern.sub(plain, sentence)
    limits: list[str] = []
    if "(" in sentence or "（" in sentence:
        asides = [part for match in _ASIDE.finditer(sentence) for part in match.groups() if part]
        limits = [part for part in asides if _LIMITS.match(part.strip()) or _NUMBERS.search(part)]
        sentence = _ASIDE.sub(" ", sentence)
    said = _COLON.sub(r"\1 = ", sentence) if ":" in sentence or "：" in sentence else sentence
    comma = _COMMA_OF_FORMULA if "=" in sentence else _COMMA
    pieces = [said] if one else comma.split(said)
    parts = [part for piece in pieces if (part := piece.strip(" .。;；!！"))]
    if len(parts) > 1:
        limits += [part for part in parts if _LIMITS.match(part)]
    if any(part in sentence for part in _PAST_PARTS) and _PAST.search(sentence):
        scope = (*scope, "@past")
    for part in parts:
        if len(part) <= MAX_CLAUSE_CHARS:
            others = [f"@{word}" for limit in limits if limit != part for word in words(limit)]
            yield Clause(part, (*scope, *dict.fromkeys(others)), loose)
