"""The time words of English, as atoms.

Alternatives stand from the longest to the shortest. Those of group `nothing` take words away from
later ones: fiscal years, `this time last year`.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

from ctx_pipeline.stages.discover.period_words import (
    DAY,
    YEAR,
    Atom,
    Maker,
    add,
    atoms_of,
    calendar,
    dated,
    day_of_week,
    first_of,
    fixed,
    iso_date,
    iso_week,
    short_year,
    to_date,
    window,
)

MONTHS: Final = {
    name: number
    for number, names in enumerate(
        (
            *(
                "january jan",
                "february feb",
                "march mar",
                "april apr",
                "may",
                "june jun",
                "july jul",
                "august aug",
            ),
            *("september sept sep", "october oct", "november nov", "december dec"),
        ),
        start=1,
    )
    for name in names.split()
}
_CLEAR = frozenset(["january", "february", "july", "september", "october", "november", "december"])
"""Months whose names, with a capital, are hardly anything else."""
_WEEKDAYS = {
    name: day
    for day, name in enumerate(
        ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
    )
}
_WORDS = {
    **{
        word: n
        for n, word in enumerate(
            [
                "one",
                "two",
                "three",
                "four",
                "five",
                "six",
                "seven",
                "eight",
                "nine",
                "ten",
                "eleven",
                "twelve",
            ],
            1,
        )
    },
    "a": 1,
    "an": 1,
    "fifteen": 15,
    "twenty": 20,
    "thirty": 30,
    "sixty": 60,
    "ninety": 90,
    "a couple of": 2,
    "couple of": 2,
    "couple": 2,
}
_SHORT = {"h": "hour", "d": "day", "w": "week"}
_NUMBER = rf"\d{{1,3}}|{'|'.join(sorted(_WORDS, key=len, reverse=True))}"
_UNIT = r"(?:minute|hour|day|week|month|quarter|year)"
_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
_WEEKDAY = "|".join(_WEEKDAYS)
_DAY = r"(?:st|nd|rd|th)?"
"""What may follow the number of a day."""
_ENGLISH: Final = re.compile(
    rf"""(?<![\w.'’])(?:
    # What looks like a time and is none, or one that is not known: fiscal years, `week but one`.
    (?P<nothing>
        (?:fy|fiscal(?:\ (?:year|quarter))?)[\s'-]*\d{{0,4}}(?:[\s-]*q[1-4])?
      | q[1-4]\s*(?:of\s+)?(?:fy|fiscal)[\s']*\d*
      | this\ time\ last\ year
      | usa\ today
      | (?:last|this|past|next|previous)\ {_UNIT}\ but\ one
      | (?:{_NUMBER}|weekend)\ (?:{_UNIT}s?\ )?before\ last)
    # A day: `three years ago today`, `this day last week`.
  | (?P<anniv>
        (?P<vn>{_NUMBER})\ (?P<vu>day|week|month|year)s?
        \ (?:ago\ (?:today|to\ the\ day)|before\ today)
      | (?:this\ day|today|(?:the\ )?same\ day)\ last\ (?P<vl>week|month|year))
    # `this month last year`.
  | (?P<thislast>this\ (?P<tlu>month|quarter)\ (?:of\ |in\ )?(?:last|the\ previous)\ year)
    # `the week after next`.
  | (?P<afternext>(?:the\ )?(?P<au2>week|month|quarter|year)\ after\ next)
    # ISO weeks: `week 12 of 2026`, `2026-W12`, `W12 2026`.
  | (?P<isoweek>
        (?:iso\ )?week\ (?P<wk>\d{{1,2}})(?:,|\ of|\ in)?\ (?P<wky>{YEAR})
      | (?P<wky2>{YEAR})-?w(?P<wk2>\d{{2}})
      | w(?P<wk3>\d{{2}})[-\ ](?P<wky3>{YEAR}))
    # `the year ended 31 March 2026`.
  | (?P<ended>
        (?:the\ )?
        (?:(?P<eu>year|quarter|half)|(?P<en>twelve|12|nine|9|six|6|three|3)\ months)
        \ (?:ended|ending)\ (?:on\ )?
        (?:(?P<ed>3[01]|[12]\d|0?[1-9]){_DAY}\ )?
        (?P<em>{_MONTH})\.?
        (?:\ (?P<ed2>3[01]|[12]\d|0?[1-9]){_DAY})?,?
        \ (?P<ey>{YEAR}))
    # The same without a year, which bounds nothing.
  | (?P<open>
        (?:the\ )?(?:year|quarter|half|{_NUMBER}\ months)\ (?:ended|ending)\ (?:on\ )?
        (?:\w+\ )?(?:{_MONTH})\.?(?:\ \d{{1,2}})?)
    # `the same period last year`.
  | (?P<same>
        (?:the\ )?same\ (?:period|time|days?|weeks?|months?|quarter)\ (?:
            (?:of\ |in\ )?(?:the\ )?(?:last|previous|prior)\ year
          | (?:a|one)\ year\ (?:ago|earlier|before)))
    # `2026-10-31`, `2026/10`.
  | (?P<iso>
        (?P<iy>{YEAR})(?P<sep>[-/])(?P<im>0?[1-9]|1[0-2])
        (?:(?P=sep)(?P<id>3[01]|[12]\d|0?[1-9]))?(?![\w/]|[.-]\d))
    # `the week before last`.
  | (?P<twice>(?:the\ )?(?P<tu>week|month|quarter|year)\ before\ last)
  | (?P<soon>day\ before\ yesterday|day\ after\ tomorrow|yesterday|tomorrow|today)
    # `last 30 days`, `trailing 12 months`, `past 7d`.
  | (?P<window>
        (?P<wdir>last|past|previous|prior|preceding|trailing|rolling|next|coming)\ (?:the\ )?
        (?:(?P<wn>{_NUMBER})[\s-]+(?P<wu>{_UNIT})s?|(?P<sn>\d{{1,3}})(?P<su>[hdw])))
    # `over the last month`, `past week`: they end with today.
  | (?P<rolling>
        (?:in|over|within|during)\ the\ (?:last|past)\ (?P<ru>{_UNIT})
      | (?:the\ )?past\ (?P<pu>{_UNIT}))
  | (?P<ago>(?P<an>{_NUMBER})\ (?P<au>day|week|month|year)s?\ ago)
    # Up to today: `year to date`, `YTD`, `so far this month`.
  | (?P<date>
        (?P<du>week|month|quarter|year)[\s-]to[\s-]date
      | (?P<dx>[wmqy])td
      | so\ far\ this\ (?P<df>week|month|quarter|year)
      | since\ the\ (?:start|beginning)\ of\ (?:the|this)\ (?P<ds>week|month|quarter|year)
      | this\ (?P<dt>week|month|quarter|year)(?:\ so\ far|\ to\ date))
    # `last Monday`, `last Monday to Friday`.
  | (?P<weekday>
        (?P<kdir>last|this|next)\ (?P<kd>{_WEEKDAY})
        (?:\s*(?:to|through|thru|until|till|[-–])\s*(?:the\ following\ )?(?P<kl>{_WEEKDAY}))?)
    # `last month`, `current quarter`.
  | (?P<rel>
        (?P<rdir>last|this|current|next|coming|previous|prior|preceding)
        \ (?P<runit>week|month|quarter|year))
    # Years of two digits: `Q3'26`, `3Q26`, `H1-26`, `1H26`, `Oct '26`.
  | (?P<short>
        q(?P<sq>[1-4])(?P<sgap>\s?['’]\s?|[-/]|\ )(?P<sy>\d{{2}})(?![\d%:.,]\d|\d|%|[-/]\d)
      | (?P<sq2>[1-4])q\s?['’]?(?P<sy2>\d{{2}}|{YEAR})
      | h(?P<sh>[12])(?:\s?['’]\s?|-)(?P<sy3>\d{{2}})
      | (?P<sh2>[12])h\s?['’]?(?P<sy4>\d{{2}}|{YEAR})
      | (?P<sm>{_MONTH})\.?\s?['’](?P<sy5>\d{{2}}))
  | (?P<quarter>q(?P<qn>[1-4])|(?P<qo>first|second|third|fourth|1st|2nd|3rd|4th)\ quarter)
    # `2026Q3`.
  | (?P<yquarter>(?P<yqy>{YEAR})[\s-]?q(?P<yqn>[1-4]))
  | (?P<half>(?:the\ )?(?P<ho>first|second|1st|2nd)\ half|h(?P<hn>[12]))
    # `31st of October, 2026`.
  | (?P<dmonth>
        (?P<dd>[12]\d|3[01]|0?[1-9]){_DAY}\ (?:of\ )?
        (?P<dm>{_MONTH})\.?(?:,?\ (?P<dy>{YEAR}))?)
    # `last October`, `October 3-5, 2026`.
  | (?P<month>
        (?:(?P<mdir>last|this|next)\ )?(?P<mm>{_MONTH})\.?
        (?:
            \ (?P<md>[12]\d|3[01]|0?[1-9]){_DAY}
            (?:\s?[-–]\s?(?P<ml>[12]\d|3[01]|0?[1-9]){_DAY})?(?![\d:%]|[.,]\d))?
        (?:,?\ (?P<my>{YEAR}))?)
  | (?P<year>{YEAR})
    # Nothing that goes on as a word, nor, after a hyphen, as one that is no month or quarter.
    )(?!\w)(?!-(?!(?:{_MONTH}|q[1-4])(?!\w))[a-z])""",
    re.IGNORECASE | re.VERBOSE,
)
_ENDED = {"year": 12, "half": 6, "quarter": 3}
NEAR_YEARS = 6
"""Years from now up to which two digits after a blank are taken for a year."""
_ORDINAL = {
    "first": 1,
    "1st": 1,
    "second": 2,
    "2nd": 2,
    "third": 3,
    "3rd": 3,
    "fourth": 4,
    "4th": 4,
}
_DIRECTION = {
    "last": -1,
    "previous": -1,
    "prior": -1,
    "preceding": -1,
    "this": 0,
    "current": 0,
    "next": 1,
    "coming": 1,
}
_SOON = {
    "day before yesterday": -2,
    "yesterday": -1,
    "today": 0,
    "tomorrow": 1,
    "day after tomorrow": 2,
}
_BEFORE_MONTH = re.compile(
    r"\b(?:in|since|during|for|from|until|till|through|of|after|before|by|to|between|and|vs\.?|"
    r"versus|with|than|compare|show|mid|early|late)"
    r"[\s-]+(?:early[\s-]|mid[\s-]|late[\s-])?$",
    re.IGNORECASE,
)
_BEFORE_LOWER = re.compile(r"\b(?:in|since|during)\s+$", re.IGNORECASE)
_BEFORE_YEAR = re.compile(
    r"\b(?:in|during|since|throughout|year|before|after|until|by)\s+$", re.IGNORECASE
)
_COUNTED = re.compile(
    r"\s+(?:rows|items|steps|tokens|words|users|orders|records|characters|lines|files|people|"
    r"bytes|pixels|"
    r"customers|products|times|points|ms|milliseconds|seconds|entries|units|%|percent)\b",
    re.IGNORECASE,
)
_NAME_AFTER = re.compile(r"\s+[A-Z][a-z]+")


def english(text: str, now: datetime) -> list[Atom]:
    """Return the English time words of a text, in order."""
    return atoms_of(_ENGLISH, _EN_MAKERS, text, now)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else _WORDS[text.lower()]


def _en_window(m: re.Match[str], _text: str, _today: datetime, now: datetime) -> dict[str, Any]:
    number = _number(m["wn"] or m["sn"])
    unit = (m["wu"] or _SHORT[m["su"].lower()]).lower()
    return fixed(window(unit, number, now, ahead=m["wdir"].lower() in ("next", "coming")))


def _en_rolling(m: re.Match[str], _text: str, _today: datetime, now: datetime) -> dict[str, Any]:
    return fixed(window((m["ru"] or m["pu"]).lower(), 1, now))


def _en_ago(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any] | None:
    vague = m["an"].lower() in ("a", "an", "one") and m["au"].lower() != "day"
    return None if vague else fixed(calendar(m["au"].lower(), today, -_number(m["an"])))


def _en_date(
    m: re.Match[str], _text: str, today: datetime, _now: datetime
) -> dict[str, Any] | None:
    if m["dx"] is not None:
        if not m["date"].isupper():
            return None
        return fixed(
            to_date({"W": "week", "M": "month", "Q": "quarter", "Y": "year"}[m["dx"]], today)
        )
    return fixed(to_date((m["du"] or m["df"] or m["ds"] or m["dt"]).lower(), today))


def _en_weekday(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    day, direction = _WEEKDAYS[m["kd"].lower()], m["kdir"].lower()
    if direction == "this":
        start = day_of_week(day, first_of("week", today))
    elif direction == "last":
        start = today - DAY * ((today.weekday() - day - 1) % 7 + 1)
    else:
        start = today + DAY * ((day - today.weekday() - 1) % 7 + 1)
    days = 1 if m["kl"] is None else (_WEEKDAYS[m["kl"].lower()] - day) % 7 + 1
    return fixed((start, start + DAY * days))


def _en_anniversary(
    m: re.Match[str], _text: str, today: datetime, _now: datetime
) -> dict[str, Any]:
    unit, number = (m["vl"], 1) if m["vl"] else (m["vu"], _number(m["vn"]))
    return fixed(calendar("day", add(unit.lower(), today, -number), 0))


def _en_this_last(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    return fixed(calendar(m["tlu"].lower(), add("year", today, -1), 0))


def _en_week(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    year = m["wky"] or m["wky2"] or m["wky3"]
    return iso_week(int(year), int(m["wk"] or m["wk2"] or m["wk3"]), today)


def _en_ended(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    day, month = m["ed"] or m["ed2"], MONTHS[m["em"].lower()]
    span = dated(int(m["ey"]), month, int(day) if day else None, today)["span"]
    months = _ENDED[m["eu"].lower()] if m["eu"] else _number(m["en"])
    return {"span": (add("month", span[1], -months), span[1]), "absolute": True}


def _en_short(
    m: re.Match[str], text: str, today: datetime, _now: datetime
) -> dict[str, Any] | None:
    year = short_year(m["sy"] or m["sy2"] or m["sy3"] or m["sy4"] or m["sy5"])
    # `Q4 25` is a year only where the number is near to ours, and counts nothing.
    bare = m["sgap"] is not None and not m["sgap"].strip()
    if bare and (abs(year - today.year) > NEAR_YEARS or _COUNTED.match(text[m.end() :])):
        return None
    if m["sm"]:
        part = (MONTHS[m["sm"].lower()], 1)
    elif m["sq"] or m["sq2"]:
        part = (int(m["sq"] or m["sq2"]) * 3 - 2, 3)
    else:
        part = (int(m["sh"] or m["sh2"]) * 6 - 5, 6)
    start = today.replace(year=year, month=part[0], day=1)
    return {"span": (start, add("month", start, part[1])), "absolute": True}


def _en_rel(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    direction, unit = m["rdir"].lower(), m["runit"].lower()
    if direction in ("previous", "prior", "preceding"):
        return {"before": unit}
    span = calendar(unit, today, _DIRECTION[direction])
    return {"span": span, "year": span[0].year if unit == "year" else None}


def _en_quarter(
    m: re.Match[str], text: str, _today: datetime, _now: datetime
) -> dict[str, Any] | None:
    if text[m.end() :].startswith(":"):  # questions and answers are numbered so
        return None
    number = int(m["qn"]) if m["qn"] else _ORDINAL[m["qo"].lower()]
    return {"part": (number * 3 - 2, 3), "absolute": True}


def _en_yquarter(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    start = today.replace(year=int(m["yqy"]), month=int(m["yqn"]) * 3 - 2, day=1)
    return {"span": (start, add("quarter", start, 1)), "absolute": True}


def _en_half(m: re.Match[str], _text: str, _today: datetime, _now: datetime) -> dict[str, Any]:
    number = int(m["hn"]) if m["hn"] else _ORDINAL[m["ho"].lower()]
    return {"part": (number * 6 - 5, 6), "firm": False, "absolute": True}


def _en_dmonth(
    m: re.Match[str], _text: str, today: datetime, _now: datetime
) -> dict[str, Any] | None:
    month = MONTHS[m["dm"].lower()]
    if m["dy"]:
        return dated(int(m["dy"]), month, int(m["dd"]), today)
    return (
        {"part": (month, 1), "day": int(m["dd"]), "absolute": True}
        if m["dm"][0].isupper()
        else None
    )


def _en_month(
    m: re.Match[str], text: str, today: datetime, _now: datetime
) -> dict[str, Any] | None:
    name, before, after = m["mm"], text[: m.start()], text[m.end() :]
    month, day = MONTHS[name.lower()], int(m["md"]) if m["md"] else None
    last = int(m["ml"]) if m["ml"] else None
    if m["my"]:
        if last is None:
            return dated(int(m["my"]), month, day, today)
        return {
            "part": (month, 1),
            "day": day,
            "last_day": last,
            "year": int(m["my"]),
            "absolute": True,
        }
    if m["mdir"] and name == "may":  # the verb
        return None
    if m["mdir"]:
        return _named_month(m["mdir"].lower(), month, today) if day is None else None
    capital = name[0].isupper()
    if day is not None:
        return (
            {"part": (month, 1), "day": day, "last_day": last, "absolute": True}
            if capital
            else None
        )
    if re.match(r"\s\d", after):
        return None
    clear = capital and (name.lower() in _CLEAR or _BEFORE_MONTH.search(before) is not None)
    context = clear or _BEFORE_LOWER.search(before) is not None
    named = capital and _NAME_AFTER.match(after) is not None
    return (
        {"part": (month, 1), "firm": context and not named, "absolute": True}
        if capital or context
        else None
    )


def _named_month(direction: str, month: int, today: datetime) -> dict[str, Any]:
    start = today.replace(month=month, day=1)
    if direction == "last" and add("month", start, 1) > today:
        start = add("year", start, -1)
    if direction == "next" and start <= today:
        start = add("year", start, 1)
    return fixed((start, add("month", start, 1)))


def _en_year(m: re.Match[str], text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    start = today.replace(year=int(m["year"]), month=1, day=1)
    firm = (
        _BEFORE_YEAR.search(text[: m.start()]) is not None
        and _COUNTED.match(text[m.end() :]) is None
    )
    return {
        "span": (start, add("year", start, 1)),
        "year": start.year,
        "firm": firm,
        "absolute": True,
    }


_EN_MAKERS: dict[str, Maker] = {
    "nothing": lambda _m, _t, _d, _n: None,
    "anniv": _en_anniversary,
    "thislast": _en_this_last,
    "afternext": lambda m, _t, today, _n: fixed(calendar(m["au2"].lower(), today, 2)),
    "isoweek": _en_week,
    "ended": _en_ended,
    "open": lambda _m, _t, _d, _n: None,
    "short": _en_short,
    "same": lambda _m, _t, _d, _n: {"shift": ("year", -1)},
    "iso": iso_date,
    "twice": lambda m, _t, today, _n: fixed(calendar(m["tu"].lower(), today, -2)),
    "soon": lambda m, _t, today, _n: fixed(calendar("day", today, _SOON[m["soon"].lower()])),
    "window": _en_window,
    "rolling": _en_rolling,
    "ago": _en_ago,
    "date": _en_date,
    "weekday": _en_weekday,
    "rel": _en_rel,
    "quarter": _en_quarter,
    "yquarter": _en_yquarter,
    "half": _en_half,
    "dmonth": _en_dmonth,
    "month": _en_month,
    "year": _en_year,
}
