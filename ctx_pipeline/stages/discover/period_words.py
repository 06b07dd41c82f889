"""What time words are made of: atoms that `periods` puts together, and the calendar that they count
in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from typing import Any, Final, NamedTuple

Span = tuple[datetime, datetime]
Part = tuple[int, int]
"""First month and number of months."""
DAY: Final = timedelta(days=1)


class Atom(NamedTuple):
    """One time word: a span, or a part of a year that is still to be found, or a year, or a shift
    of another one.
    """

    start: int
    end: int
    span: Span | None = None
    year: int | None = None
    part: Part | None = None
    day: int | None = None
    last_day: int | None = None
    shift: tuple[str, int] | None = None
    """Unit and number: the period of another atom, moved."""
    before: str | None = None
    """Unit: the one before another atom's period, or before now."""
    firm: bool = True
    """False: means a period only beside another atom."""
    absolute: bool = False


class _SundayFirst(datetime):
    """A time in a project whose weeks begin on Sunday; so are all times that
    are counted from it.
    """


def counting_weeks(now: datetime, first_weekday: int) -> datetime:
    """Return a time from which weeks are counted from a day: 0 for Monday, 6 for Sunday."""
    if first_weekday == 0:
        return now
    return _SundayFirst.fromtimestamp(now.timestamp(), now.tzinfo)


def day_of_week(weekday: int, start: datetime) -> datetime:
    """Return the day of a week that begins on `start`; `weekday` is 0 for Monday."""
    return start + DAY * ((weekday - start.weekday()) % 7)


def first_of(unit: str, today: datetime) -> datetime:
    """Return the first day of the week, month, quarter or year of a day; the
    day itself for `day`.
    """
    if unit == "week":
        first = 6 if isinstance(today, _SundayFirst) else 0
        return today - DAY * ((today.weekday() - first) % 7)
    if unit == "month":
        return today.replace(day=1)
    if unit == "quarter":
        return today.replace(month=(today.month - 1) // 3 * 3 + 1, day=1)
    return today.replace(month=1, day=1) if unit == "year" else today


def add(unit: str, moment: datetime, number: int) -> datetime:
    """Return a time some units later; a day that its month lacks becomes the month's last."""
    if unit in _STEPS:
        return moment + _STEPS[unit] * number
    months = moment.year * 12 + moment.month - 1 + _MONTHS_OF[unit] * number
    first = moment.replace(year=months // 12, month=months % 12 + 1, day=1)
    length = (first.replace(day=28) + DAY * 4).replace(day=1) - first
    return first + DAY * (min(moment.day, length.days) - 1)


_STEPS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": DAY, "week": 7 * DAY}
_MONTHS_OF = {"month": 1, "quarter": 3, "half": 6, "year": 12}


def calendar(unit: str, today: datetime, number: int) -> Span:
    """Return the whole week, month, quarter, year or day that lies some units from today."""
    start = add(unit, first_of(unit, today), number)
    return start, add(unit, start, 1)


def to_date(unit: str, today: datetime) -> Span:
    """Return the part of a unit up to the end of today."""
    return first_of(unit, today), today + DAY


def window(unit: str, number: int, now: datetime, *, ahead: bool = False) -> Span:
    """Return the last so many units: whole days that end with today, or hours and minutes that end
    now.

    `ahead`: the next ones, from tomorrow or from now.
    """
    if unit in ("hour", "minute"):
        return (now, add(unit, now, number)) if ahead else (add(unit, now, -number), now)
    tomorrow = _midnight(now) + DAY
    return (
        (tomorrow, add(unit, tomorrow, number))
        if ahead
        else (add(unit, tomorrow, -number), tomorrow)
    )


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


Maker = Callable[[re.Match[str], str, datetime, datetime], dict[str, Any] | None]
"""Makes an atom's fields of a match, the text, today and now; None where it is no time word."""
YEAR: Final = r"(?:199\d|20\d\d)"


def atoms_of(
    pattern: re.Pattern[str], makers: Mapping[str, Maker], text: str, now: datetime
) -> list[Atom]:
    """Return the atoms that `makers` make of what their groups match, in the order of the text."""
    found: list[Atom] = []
    today = _midnight(now)
    for match in pattern.finditer(text):
        make = makers[next(name for name in makers if match[name] is not None)]
        try:
            values = make(match, text, today, now)
        except (ValueError, OverflowError):  # 30 February, or a time outside of the calendar
            continue
        if values is not None:
            found.append(Atom(match.start(), match.end(), **values))
    return found


def fixed(span: Span) -> dict[str, Any]:
    """Return the fields of an atom that is a span."""
    return {"span": span}


def dated(year: int, month: int, day: int | None, today: datetime) -> dict[str, Any]:
    """Return the fields of a month, or of a day of it.

    Raises:
        ValueError: there is no such day.
    """
    start = today.replace(year=year, month=month, day=day or 1)
    return {"span": (start, add("month" if day is None else "day", start, 1)), "absolute": True}


def iso_date(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    """Return the fields of `2026-10` or `2026-10-05`, in groups iy, im and id."""
    return dated(int(m["iy"]), int(m["im"]), int(m["id"]) if m["id"] else None, today)


def short_year(digits: str) -> int:
    """Return the year that two digits stand for, or four."""
    number = int(digits)
    return number if len(digits) == 4 else number + (2000 if number < 50 else 1900)


def iso_week(year: int, week: int, today: datetime) -> dict[str, Any]:
    """Return the fields of a week by its ISO number.

    Raises:
        ValueError: the year has no such week.
    """
    day = date.fromisocalendar(year, week, 1)
    start = today.replace(year=day.year, month=day.month, day=day.day)
    return {"span": (start, start + DAY * 7), "absolute": True}
