"""Fiscal years, halves and quarters. Where no fiscal calendar is configured, what names one
resolves to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

from ctx_pipeline.stages.discover.period_words import DAY, Atom, Span, add, short_year


class Calendar(NamedTuple):
    """How a project counts its time."""

    fiscal_start: tuple[int, int] | None = None
    """Month and day that fiscal years start on; a fiscal year has the number of the year that it
    ends in. None: there are no fiscal years."""
    first_weekday: int = 0
    """Day that weeks start on: 0 for Monday, 6 for Sunday."""


PLAIN: Final = Calendar()
_HAN = "一二三四"
_WORD = re.compile(
    r"\bfy(?=[\s'’-]*\d|td\b|\b)|\bfiscal\b|\bfinancial\s+years?\b|财年|财季|财政年度|财务年度|会计年度",
    re.IGNORECASE,
)
_NUMBER = r"(?:20\d{2}|19\d{2}|\d{2})"
_QUARTER = (
    r"(?:第?(?P<{0}zq>[一二三四1-4])个?季度?|q(?P<{0}q>[1-4])|(?P<{0}oq>first|second|third|fourth)\s+quarter"
    r"|(?P<{0}zh>[上下])半年?|h(?P<{0}h>[12]))"
)
_YEAR = (
    rf"(?:fy\s?['’]?\s?(?P<y1>{_NUMBER})(?!\d)|(?:fiscal|financial)(?:\s+year)?\s+['’]?(?P<y2>{_NUMBER})(?!\d)"
    rf"|(?<!\d)(?P<y3>{_NUMBER})\s*年?(?:财年|财政年度|财务年度|会计年度|\s*fiscal\s+year)"
    rf"|(?:财年|财政年度|财务年度|会计年度)\s*(?P<y4>{_NUMBER})年?(?!\d)"
    r"|(?P<zr>上一?个?|本|这个?|今|去|下一?个?)(?:财年|财政年度|财务年度|会计年度)"
    r"|(?P<er>last|this|current|previous|next)\s+(?:fiscal|financial)\s+year|(?:the\s+)?(?P<now>fiscal\s+year|fy)(?=\s*-?to|td)"
    r")"
)
_FISCAL = re.compile(
    rf"(?:{_QUARTER.format('a')}\s*(?:of\s+|in\s+)?(?:the\s+)?)?{_YEAR}(?:\s*的?\s*{_QUARTER.format('b')})?"
    r"(?P<todate>\s*-?to-?\s*date|td\b|至今|以来)?"
    rf"|(?P<fq>fiscal\s+{_QUARTER.format('c')}\s+(?:of\s+)?(?P<y5>{_NUMBER})(?!\d))"
    r"|(?P<rq>last|this|current|previous|next)\s+fiscal\s+quarter|(?P<zrq>上一?个?|本|下一?个?)财季",
    re.IGNORECASE,
)
_STEPS = {"last": -1, "previous": -1, "this": 0, "current": 0, "next": 1}
_HAN_STEPS = {"上": -1, "去": -1, "本": 0, "这": 0, "今": 0, "下": 1}
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4}
_CLAUSE_END = re.compile(r"[,，。;；?？!！\n]")
MASK: Final = "\ufffc"
"""Stands for what is no time word."""


def fiscal(text: str, now: datetime, calendar: Calendar) -> tuple[str, list[Atom]]:
    """Return the fiscal periods of a text, and the text without what names them.

    A clause of which a fiscal word is not understood is masked as a whole.
    """
    if _WORD.search(text) is None:
        return text, []
    found: list[Atom] = []
    if calendar.fiscal_start is not None:
        for match in _FISCAL.finditer(text):
            span = _span(match, now, calendar.fiscal_start)
            if span is not None:
                found.append(Atom(match.start(), match.end(), span=span, absolute=True))
                text = _masked(text, match.start(), match.end())
    for start, end in _clauses(text):
        if _WORD.search(text, start, end):
            text = _masked(text, start, end)
            found = [atom for atom in found if not start <= atom.start < end]
    return text, found


def _masked(text: str, start: int, end: int) -> str:
    return text[:start] + MASK * (end - start) + text[end:]


def _clauses(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for end in _CLAUSE_END.finditer(text):
        yield start, end.start()
        start = end.end()
    yield start, len(text)


def _span(match: re.Match[str], now: datetime, start: tuple[int, int]) -> Span | None:
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if match["rq"] or match["zrq"]:
        step = _STEPS[match["rq"].lower()] if match["rq"] else _HAN_STEPS[match["zrq"][0]]
        first = _start_of(_year_of(today, start), today, start)
        quarter = next(n for n in range(3, -1, -1) if add("month", first, 3 * n) <= today) + step
        return add("month", first, 3 * quarter), add("month", first, 3 * quarter + 3)
    first = _start_of(_named_year(match, today, start), today, start)
    parts = [part for name in "abc" if (part := _part(match, name)) is not None]
    if len(parts) > 1:
        return None
    offset, months = parts[0] if parts else (0, 12)
    begin = add("month", first, offset)
    end = add("month", begin, months)
    if match["todate"]:
        return (begin, today + DAY) if not parts and begin <= today < end else None
    return begin, end


def _named_year(match: re.Match[str], today: datetime, start: tuple[int, int]) -> int:
    number = next((match[f"y{n}"] for n in range(1, 6) if match[f"y{n}"]), None)
    if number is not None:
        return short_year(number)
    step = _STEPS[match["er"].lower()] if match["er"] else 0
    return _year_of(today, start) + (_HAN_STEPS[match["zr"][0]] if match["zr"] else step)


def _start_of(year: int, today: datetime, start: tuple[int, int]) -> datetime:
    """Return the first day of the fiscal year that ends in a year."""
    month, day = start
    return today.replace(year=year if start == (1, 1) else year - 1, month=month, day=day)


def _year_of(today: datetime, start: tuple[int, int]) -> int:
    """Return the number of the fiscal year that a day lies in."""
    return today.year + (1 if start != (1, 1) and (today.month, today.day) >= start else 0)


def _part(match: re.Match[str], name: str) -> tuple[int, int] | None:
    """Return the first month and the number of months of the part that a group names."""
    han, latin, word = match[f"{name}zq"], match[f"{name}q"], match[f"{name}oq"]
    if han or latin or word:
        number = _ORDINALS[word.lower()] if word else _HAN.find(han) + 1 if han else 0
        return 3 * ((number or int(han or latin)) - 1), 3
    half, letter = match[f"{name}zh"], match[f"{name}h"]
    if half or letter:
        return (0 if half == "上" or letter == "1" else 6), 6
    return None
