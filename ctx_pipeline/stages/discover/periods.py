"""Resolve the time words of a request ("last month", 上个月) to periods: half-open, in UTC, from
the request's clock.

Weeks begin on Monday, unless the project says otherwise. `last 7 days` are the seven calendar days
that end with today, `last month` is the calendar month before this one, a month or quarter without
a year is the latest that has begun. Fiscal years where none are configured, and what only bounds a
period on one side (`before March`), resolve to nothing, and so does a phrase of which a part is not
understood, and whatever may be no time at all.

The libraries for it were measured and left out: dateparser (75 ms a request, points instead of
periods, `it may be` is a day in May), jionlp (1.8 s to load, Chinese alone, misses 上个月 before
another word), timefhuman (points, English alone), recognizers-text (does not load with what it
depends on, last release 2019), ctparse (last release 2022).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from ctx_pipeline.language.word_lists import words_of
from ctx_pipeline.security.visibility import from_micros, micros
from ctx_pipeline.stages.discover.period_fiscal import PLAIN, Calendar, fiscal
from ctx_pipeline.stages.discover.period_words import (
    DAY,
    Atom,
    Span,
    add,
    counting_weeks,
)
from ctx_pipeline.stages.discover.period_words import calendar as calendar_span

MAX_PERIODS = 4
"""Periods of one request; a text that names more is about time itself."""
MAX_CHARS = 2_000

_ENGLISH_CUE = re.compile(
    r"(?:199|20\d)\d|"
    r"(?<![a-z])"
    r"(?:last|past|previous|prior|preceding|trailing|rolling|next|coming|this|current|since|ago"
    r"|to.date|[wmqy]td|fy|fiscal|week|q[1-4]|h[12]|half|quarter|yesterday|today|tomorrow|"
    r"before last"
    r"|(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)(?![a-z]))",
    re.IGNORECASE,
)
_CHINESE_CUE = re.compile(r"[年月周天日季期]|星期|礼拜|小时|分钟|[Qq][1-4]|财")
_HAN = re.compile("[\u4e00-\u9fff]")


@dataclass(frozen=True, slots=True)
class Period:
    """What a time word stands for."""

    text: str
    """The words, as the request has them."""
    start: datetime
    end: datetime
    """The first instant after it."""

    @property
    def start_micros(self) -> int:
        """Its start in microseconds since 1970."""
        return micros(self.start)

    @property
    def end_micros(self) -> int:
        """Its end in microseconds since 1970."""
        return micros(self.end)


def resolve(text: str, at: int, calendar: Calendar = PLAIN) -> tuple[Period, ...]:
    """Return the periods that a text names, in its order. `at` is now, in microseconds since 1970.

    At either end of the calendar, where there is no day before or after, nothing is resolved.
    """
    text = text[:MAX_CHARS]
    said = text
    han = _HAN.search(text) is not None
    if not (_ENGLISH_CUE.search(text) or (han and _CHINESE_CUE.search(text))):
        return ()
    # Compiling their patterns takes 10 ms, and most requests name no time.
    from ctx_pipeline.stages.discover.period_chinese import chinese
    from ctx_pipeline.stages.discover.period_english import english

    now = counting_weeks(from_micros(at), calendar.first_weekday)
    try:
        text, fiscal_atoms = fiscal(said, now, calendar)
        atoms = _apart([*fiscal_atoms, *english(text, now)])
        if han:
            atoms = _apart([*chinese(text, now), *atoms])
        atoms = [atom for atom in atoms if not _is_name(text, atom, atoms)]
        joined = _ranges(text, _with_years(text, atoms, now), now)
        found = _resolved(said, _understood(text, joined), now)
    except (ValueError, OverflowError):
        return ()
    unique = {(period.start, period.end): period for period in reversed(found)}
    return tuple(reversed(unique.values()))[:MAX_PERIODS]


def shown(periods: Sequence[Period], at: int) -> str:
    """Return what a model is told of the periods."""
    lines = [f"Today is {from_micros(at):%Y-%m-%d}. In UTC, end exclusive:"]
    lines += [
        f'"{period.text}" = {_moment(period.start)} .. {_moment(period.end)}' for period in periods
    ]
    return "\n".join(lines)


def _moment(moment: datetime) -> str:
    return (
        f"{moment:%Y-%m-%d}"
        if moment == moment.replace(hour=0, minute=0)
        else f"{moment:%Y-%m-%dT%H:%M}Z"
    )


def named_span(title: str) -> tuple[int, int] | None:
    """Return the time that a title or partition names by year, in microseconds since 1970; None for
    none or several.
    """
    if not re.search(r"(?:199|20\d)\d|[二一][〇零九]", title):
        return None
    found = resolve(title, _REFERENCE)
    return (
        (found[0].start_micros, found[0].end_micros)
        if len(found) == 1 and _has_year(found[0].text)
        else None
    )


_REFERENCE = 4_000_000_000_000_000
_YEARS = re.compile(r"(?<!\d)(?:199\d|20\d\d)(?!\d{2})|[〇零一二三四五六七八九]{4}年")


def _has_year(text: str) -> bool:
    return _YEARS.search(text) is not None


_JOINED_BEFORE = re.compile(r"([A-Za-z0-9]+)[-_/.\\]+$")
_JOINED_AFTER = re.compile(r"[-_/\\]+[A-Za-z0-9]|\.[A-Za-z0-9]|[A-Za-z0-9_]")
_TAGGED = re.compile(r"([A-Za-z0-9]+):$")
_FIELDS_OF_TIME = frozenset(words_of(__file__, "fields_of_time"))
"""Words whose value, written after a colon, is a time; after any other word it is a tag:
`app:2025-10-01`.
"""
_JOINING = frozenset(["mid", "early", "late", "pre", "post", "non", "year", "end"])
_LABEL = re.compile(
    r"(?:\b"
    r"(?:invoice|order|ticket|issue|case|version|model|build|rfc|iso|no|number|id|ref|sku)\.?|#|"
    r"[号码版]|版本|编号|型号)"
    r"\s*[:：#]?\s*$",
    re.IGNORECASE,
)


def _is_name(text: str, atom: Atom, atoms: Sequence[Atom]) -> bool:
    """Tell whether what reads as a date is part of a name: of a model, an invoice, a file, a
    version.
    """
    said = text[atom.start : atom.end]
    if not any(character.isdigit() for character in said) or not said.isascii():
        return False
    before = _JOINED_BEFORE.search(text[: atom.start])
    if before is not None and before[1].lower() not in _JOINING:
        last = before.end(1)
        if not any(other.start < last <= other.end for other in atoms):
            return True
    tagged = _TAGGED.search(text[: atom.start])
    if tagged is not None and tagged[1].lower() not in _FIELDS_OF_TIME:
        return True
    after = _JOINED_AFTER.match(text, atom.end)
    if after is not None and not any(
        atom.end <= other.start < after.end() for other in atoms if other is not atom
    ):
        return True
    return said[:1].isdigit() and _LABEL.search(text[: atom.start]) is not None


_TOUCHING = re.compile(r"\s*(?:的|of(?: the)?|in)?\s*", re.IGNORECASE)
_TO_SOMETHING = re.compile(
    r"\s*(?:(?:到|至(?!今))\s*(?:[一二三四五六日天\d上下本去今明昨前后次翌隔同当年月周]|[Qq]\d)"
    r"|(?:until|till|through|thru)\s)"
)
_OF_ANOTHER_YEAR = re.compile(r"(?:次|翌|隔|同|当|来|某|每|上一|下一)年的?\s*$")


def _understood(text: str, atoms: Sequence[Atom]) -> list[Atom]:
    """Leave out time words that belong to a phrase of which another part was not understood."""
    out: set[int] = set()
    for at, (one, two) in enumerate(pairwise(atoms)):
        gap = text[one.end : two.start]
        relative = not (one.absolute and two.absolute)
        apart = gap.isspace() and bool(_HAN.search(text[one.start : two.end]))
        if relative and _TOUCHING.fullmatch(gap) and not apart and not (one.shift or two.shift):
            out |= {at, at + 1}
    for at, atom in enumerate(atoms):
        after, before = text[atom.end :], text[: atom.start]
        if _OF_ANOTHER_YEAR.search(before) or _TO_SOMETHING.match(after):
            out.add(at)
    return [atom for at, atom in enumerate(atoms) if at not in out]


def _apart(atoms: list[Atom]) -> list[Atom]:
    """Return atoms in the order of the text; of two that overlap the longer stays."""
    kept: list[Atom] = []
    for atom in sorted(atoms, key=lambda atom: (atom.start, -atom.end)):
        if not kept or atom.start >= kept[-1].end:
            kept.append(atom)
    return kept


_BESIDE = re.compile(r"(?:'s|’s)?\s*(?:,|of|in|of the|的|/)?\s*", re.IGNORECASE)


def _with_years(text: str, atoms: list[Atom], now: datetime) -> list[Atom]:
    """Join years and the parts of a year that stand beside them: `Q3 of last year`, 去年三季度."""
    joined: list[Atom] = []
    for atom in atoms:
        last = joined[-1] if joined else None
        if last is not None and _BESIDE.fullmatch(text[last.end : atom.start]):
            year, part = (last, atom) if atom.part else (atom, last)
            if (
                year.year is not None
                and year.part is None
                and part.part is not None
                and part.year is None
            ):
                joined[-1] = part._replace(
                    start=last.start, end=atom.end, year=year.year, firm=True
                )
                continue
        joined.append(atom)
    return [
        atom if atom.part is None or atom.year is None else _placed(atom, atom.year, now)
        for atom in joined
    ]


def _placed(atom: Atom, year: int, now: datetime) -> Atom:
    """Return a part of a year as the span that it is in a year."""
    assert atom.part is not None
    first, months = atom.part
    start = now.replace(year=year, month=first, day=1, hour=0, minute=0, second=0, microsecond=0)
    end = add("month", start, months)
    if atom.day is not None:
        if start + DAY * (atom.last_day or atom.day) > end:  # 30 February
            return atom._replace(firm=False, part=None)
        start, end = start + DAY * (atom.day - 1), start + DAY * (atom.last_day or atom.day)
    return atom._replace(span=(start, end))


def _latest(atom: Atom, now: datetime) -> Atom:
    """Return a part without a year as the latest one that has begun."""
    placed = _placed(atom, now.year, now)
    return (
        placed
        if placed.span is not None and placed.span[0] <= now
        else _placed(atom, now.year - 1, now)
    )


_TO = re.compile(
    r"\s*(?:to|through|thru|until|till|up to|到|至|[-~～–—－]+)\s*(?:the\s+)?", re.IGNORECASE
)
_AND = re.compile(r"\s*(?:and|和|与)\s*", re.IGNORECASE)
_BETWEEN = re.compile(r"(?:\bbetween|在|介于)\s*$", re.IGNORECASE)
_FROM = re.compile(r"\b(?:from|between|in|during|over)\s+$", re.IGNORECASE)


def _ranges(text: str, atoms: list[Atom], now: datetime) -> list[Atom]:
    """Join two atoms that bound one period: `from March to May`, 3月到5月."""
    joined: list[Atom] = []
    for atom in atoms:
        last = joined[-1] if joined else None
        if last is not None and _is_range(text, last, atom):
            span = _between(last, atom, now)
            if span is not None:
                joined[-1] = Atom(last.start, atom.end, span=span)
                continue
        joined.append(atom)
    return joined


def _is_range(text: str, first: Atom, last: Atom) -> bool:
    gap, before = text[first.end : last.start], text[: first.start]
    if not (_TO.fullmatch(gap) or (_BETWEEN.search(before) and _AND.fullmatch(gap))):
        return False
    return (
        (first.firm and last.firm)
        or _FROM.search(before) is not None
        or (first.part is not None) is last.firm
    )


def _between(first: Atom, last: Atom, now: datetime) -> Span | None:
    """Return the span from the start of one atom to the end of another; a part takes the year of
    the other one.
    """
    if first.span is None and first.part is not None:
        if last.span is not None:
            first = _placed(first, last.span[0].year, now)
        elif last.part is not None:
            first = _latest(first, now)
            last = _placed(last, first.span[0].year if first.span else now.year, now)
            if first.span and last.span and last.span[0] < first.span[0]:
                last = _placed(last, first.span[0].year + 1, now)
        if first.span and last.span and first.span[0] >= last.span[1]:
            first = _placed(first, first.span[0].year - 1, now)
    elif last.span is None and last.part is not None and first.span is not None:
        last = _placed(last, first.span[0].year, now)
        if last.span and last.span[1] <= first.span[0]:
            last = _placed(last, first.span[0].year + 1, now)
    if first.span is None or last.span is None or first.span[0] >= last.span[1]:
        return None
    return first.span[0], last.span[1]


_SINCE = re.compile(
    r"\b(?:since|starting|beginning)\s+(?:in\s+|from\s+|on\s+)?(?:the\s+)?$", re.IGNORECASE
)
_AFTER = re.compile(r"\bafter\s+$", re.IGNORECASE)
_OPEN = re.compile(
    r"\b(?:before|until|till|prior to|up to|earlier than|later than|as of)\s+(?:the\s+)?$",
    re.IGNORECASE,
)
_BY = re.compile(r"\b(?:by|due|deadline)\s+$", re.IGNORECASE)
_PIECE = re.compile(
    r"\b(?:start|end|beginning|middle|rest|close|eve|days?|weeks?|weekends?|half|part|"
    r"month)\s+of\s+(?:the\s+)?$"
    r"|\b(?:early|mid|late)[\s-]+$",
    re.IGNORECASE,
)
_OF_AFTER = re.compile(r"\s+of\b", re.IGNORECASE)
_OF_TIME = re.compile(
    r"\s+of\s+(?:the\s+)?(?:\w+\s+)?"
    r"(?:week|month|quarter|year|199\d|20\d\d|q[1-4]|january|february|march|april|may|june|july"
    r"|august|september|october|november|december)(?!\w)",
    re.IGNORECASE,
)
_HAN_SINCE = re.compile(
    r"(?:年?初)?(?:以来|至今|到现在|到今天|迄今|起(?!点|步|伏|源|诉)|开始(?!前))"
)
_ON_AFTER = re.compile(r"\s+(?:on|onwards?|onward)(?=\W|$)", re.IGNORECASE)
_FROM_BEFORE = re.compile(r"\bfrom\s+$", re.IGNORECASE)
_HAN_PIECE = re.compile(
    r"年?(?:底|初|末)|年中|中旬|上旬|下旬|之前|以前|前(?![\d一二三四五六七八九十几])|之后|以后|"
    r"后(?!台|端|续)|份之?前"
)
_HAN_OPEN = re.compile(r"(?:截至|截止|截止到|早于|晚于|直到|不晚于|每|每年|每逢)$")


def _resolved(text: str, atoms: list[Atom], now: datetime) -> list[Period]:
    tomorrow = now.replace(hour=0, minute=0, second=0, microsecond=0) + DAY
    found: list[Period] = []
    shifts: list[Atom] = []
    vague = any(not atom.firm and atom.part is not None for atom in atoms)
    for atom in atoms:
        if (
            atom.before is not None and vague
        ):  # what it is the one before of may be a month, or a name
            continue
        if atom.shift is not None:
            shifts.append(atom)
            continue
        try:
            span = _span(text, atom, now, tomorrow, found)
        except (ValueError, OverflowError):
            continue
        if span is not None and span[0] < span[1]:
            found.append(Period(text[atom.start : atom.end], *span))
    others = {(period.start, period.end) for period in found}
    if len(others) == 1:  # the same period of another year is clear only where there is one
        (start, end) = others.pop()
        for atom in shifts:
            assert atom.shift is not None
            unit, number = atom.shift
            found.append(
                Period(
                    text[atom.start : atom.end], add(unit, start, number), _end(unit, end, number)
                )
            )
    return found


def _end(unit: str, end: datetime, number: int) -> datetime:
    """Move an exclusive end by its last day, so that the end of a month stays one."""
    return (
        add(unit, end - DAY, number) + DAY
        if end.day == 1 and unit in ("day", "week")
        else add(unit, end, number)
    )


def _span(
    text: str, atom: Atom, now: datetime, tomorrow: datetime, earlier: Sequence[Period]
) -> Span | None:
    """Return the span of one atom in its place in the text; None where it means no period."""
    before, after = text[: atom.start], text[atom.end :]
    if not atom.firm or _is_piece(atom, before, after):
        return None
    span = atom.span
    if atom.before is not None:
        if earlier:
            start = earlier[-1].start
            return add(atom.before, start, -1), start
        span = calendar_span(atom.before, tomorrow - DAY, -1)
    elif span is None:
        if atom.part is None or _OF_AFTER.match(after):
            return None
        span = _latest(atom, now).span
        if span is None:
            return None
    since = _SINCE.search(before) or _HAN_SINCE.match(after)
    if since or (_FROM_BEFORE.search(before) and _ON_AFTER.match(after)):
        return span[0], max(
            span[1] if span[1] > tomorrow and span[0] >= now else tomorrow, span[0] + DAY
        )
    if _AFTER.search(before):
        return (span[1], tomorrow) if span[1] < tomorrow else None
    return span


def _is_piece(atom: Atom, before: str, after: str) -> bool:
    """Say whether the words around an atom make it an open bound, or only a piece of the period it
    names.
    """
    if (
        _OF_TIME.match(after)
        or _OPEN.search(before)
        or _PIECE.search(before)
        or _HAN_OPEN.search(before)
    ):
        return True
    if atom.absolute and _BY.search(before):
        return True
    return _HAN_SINCE.match(after) is None and _HAN_PIECE.match(after) is not None
