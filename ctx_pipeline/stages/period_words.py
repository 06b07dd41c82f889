"""The time words of English and Chinese: what in a text may name a period, as atoms that `periods` puts together.

Alternatives stand from the longest to the shortest. Those of group `nothing` take words away from later ones: fiscal
years, `this time last year`, 五月天.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

Span = tuple[datetime, datetime]
Part = tuple[int, int]
"""First month and number of months."""
DAY: Final = timedelta(days=1)


class Atom(NamedTuple):
    """One time word: a span, or a part of a year that is still to be found, or a year, or a shift of another one."""

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


def first_of(unit: str, today: datetime) -> datetime:
    """Return the first day of the week (Monday), month, quarter or year of a day; the day itself for `day`."""
    if unit == "week":
        return today - DAY * today.weekday()
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
    """Return the last so many units: whole days that end with today, or hours and minutes that end now.

    `ahead`: the next ones, from tomorrow or from now.
    """
    if unit in ("hour", "minute"):
        return (now, add(unit, now, number)) if ahead else (add(unit, now, -number), now)
    tomorrow = _midnight(now) + DAY
    return (tomorrow, add(unit, tomorrow, number)) if ahead else (add(unit, tomorrow, -number), tomorrow)


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


MONTHS: Final = {
    name: number
    for number, names in enumerate(
        (
            *("january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug"),
            *("september sept sep", "october oct", "november nov", "december dec"),
        ),
        start=1,
    )
    for name in names.split()
}
_CLEAR = frozenset(["january", "february", "july", "september", "october", "november", "december"])
"""Months whose names, with a capital, are hardly anything else."""
_WEEKDAYS = {
    name: day for day, name in enumerate(["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"])
}
_WORDS = {
    **{
        word: n
        for n, word in enumerate(
            ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"], 1
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
_YEAR = r"(?:199\d|20\d\d)"
_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
_ENGLISH: Final = re.compile(
    rf"""(?<![\w.'’])(?:
    (?P<nothing>(?:fy|fiscal(?:\ (?:year|quarter))?)[\s'-]*\d{{0,4}}(?:[\s-]*q[1-4])?
      |q[1-4]\s*(?:of\s+)?(?:fy|fiscal)[\s']*\d* |this\ time\ last\ year |usa\ today
      |(?:last|this|past|next|previous)\ {_UNIT}\ but\ one)
    |(?P<same>(?:the\ )?same\ (?:period|time|days?|weeks?|months?|quarter)\ (?:
      (?:of\ |in\ )?(?:the\ )?(?:last|previous|prior)\ year|(?:a|one)\ year\ (?:ago|earlier|before)))
    |(?P<iso>(?P<iy>{_YEAR})(?P<sep>[-/])(?P<im>0?[1-9]|1[0-2])(?:(?P=sep)(?P<id>3[01]|[12]\d|0?[1-9]))?(?![\w/]|[.-]\d))
    |(?P<twice>(?:the\ )?(?P<tu>week|month|quarter|year)\ before\ last)
    |(?P<soon>day\ before\ yesterday|day\ after\ tomorrow|yesterday|tomorrow|today)
    |(?P<window>(?P<wdir>last|past|previous|prior|preceding|trailing|rolling|next|coming)\ (?:the\ )?
      (?:(?P<wn>{_NUMBER})[\s-]+(?P<wu>{_UNIT})s?|(?P<sn>\d{{1,3}})(?P<su>[hdw])))
    |(?P<rolling>(?:in|over|within|during)\ the\ (?:last|past)\ (?P<ru>{_UNIT})|(?:the\ )?past\ (?P<pu>{_UNIT}))
    |(?P<ago>(?P<an>{_NUMBER})\ (?P<au>day|week|month|year)s?\ ago)
    |(?P<date>(?P<du>week|month|quarter|year)[\s-]to[\s-]date|(?P<dx>[wmqy])td
      |so\ far\ this\ (?P<df>week|month|quarter|year)
      |since\ the\ (?:start|beginning)\ of\ (?:the|this)\ (?P<ds>week|month|quarter|year)
      |this\ (?P<dt>week|month|quarter|year)(?:\ so\ far|\ to\ date))
    |(?P<weekday>(?P<kdir>last|this|next)\ (?P<kd>{"|".join(_WEEKDAYS)}))
    |(?P<rel>(?P<rdir>last|this|current|next|coming|previous|prior|preceding)\ (?P<runit>week|month|quarter|year))
    |(?P<quarter>q(?P<qn>[1-4])|(?P<qo>first|second|third|fourth|1st|2nd|3rd|4th)\ quarter)
    |(?P<yquarter>(?P<yqy>{_YEAR})[\s-]?q(?P<yqn>[1-4]))
    |(?P<half>(?:the\ )?(?P<ho>first|second|1st|2nd)\ half|h(?P<hn>[12]))
    |(?P<dmonth>(?P<dd>[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?\ (?:of\ )?(?P<dm>{_MONTH})\.?(?:,?\ (?P<dy>{_YEAR}))?)
    |(?P<month>(?:(?P<mdir>last|this|next)\ )?(?P<mm>{_MONTH})\.?
      (?:\ (?P<md>[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?
        (?:\s?[-–]\s?(?P<ml>[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?)?(?![\d:%]|[.,]\d))?
      (?:,?\ (?P<my>{_YEAR}))?)
    |(?P<year>{_YEAR})
    )(?!\w)(?!-(?!(?:{_MONTH}|q[1-4])(?!\w))[a-z])""",
    re.IGNORECASE | re.VERBOSE,
)
_ORDINAL = {"first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4}
_DIRECTION = {"last": -1, "previous": -1, "prior": -1, "preceding": -1, "this": 0, "current": 0, "next": 1, "coming": 1}
_SOON = {"day before yesterday": -2, "yesterday": -1, "today": 0, "tomorrow": 1, "day after tomorrow": 2}
_BEFORE_MONTH = re.compile(
    r"\b(?:in|since|during|for|from|until|till|through|of|after|before|by|to|between|and|vs\.?|versus|with|than|compare|show|mid|early|late)"
    r"[\s-]+(?:early[\s-]|mid[\s-]|late[\s-])?$",
    re.IGNORECASE,
)
_BEFORE_LOWER = re.compile(r"\b(?:in|since|during)\s+$", re.IGNORECASE)
_BEFORE_YEAR = re.compile(r"\b(?:in|during|since|throughout|year|before|after|until|by)\s+$", re.IGNORECASE)
_COUNTED = re.compile(
    r"\s+(?:rows|items|steps|tokens|words|users|orders|records|characters|lines|files|people|bytes|pixels|"
    r"customers|products|times|points|ms|milliseconds|seconds|entries|units|%|percent)\b",
    re.IGNORECASE,
)
_NAME_AFTER = re.compile(r"\s+[A-Z][a-z]+")


def english(text: str, now: datetime) -> list[Atom]:
    """Return the English time words of a text, in order."""
    return _atoms(_ENGLISH, _EN_MAKERS, text, now)


def _atoms(pattern: re.Pattern[str], makers: dict[str, Any], text: str, now: datetime) -> list[Atom]:
    found: list[Atom] = []
    today = _midnight(now)
    for match in pattern.finditer(text):
        make = makers.get(next(name for name in makers if match[name] is not None) if match.lastgroup else "")
        if make is None:
            continue
        try:
            values = make(match, text, today, now)
        except (ValueError, OverflowError):  # 30 February, or a time outside of the calendar
            continue
        if values is not None:
            found.append(Atom(match.start(), match.end(), **values))
    return found


def _span(span: Span) -> dict[str, Any]:
    return {"span": span}


def _day(year: int, month: int, day: int | None, today: datetime) -> dict[str, Any]:
    start = today.replace(year=year, month=month, day=day or 1)
    return {"span": (start, add("month" if day is None else "day", start, 1)), "absolute": True}


def _number(text: str) -> int:
    return int(text) if text.isdigit() else _WORDS[text.lower()]


def _en_iso(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    return _day(int(m["iy"]), int(m["im"]), int(m["id"]) if m["id"] else None, today)


def _en_window(m: re.Match[str], _text: str, _today: datetime, now: datetime) -> dict[str, Any]:
    number = _number(m["wn"] or m["sn"])
    unit = (m["wu"] or _SHORT[m["su"].lower()]).lower()
    return _span(window(unit, number, now, ahead=m["wdir"].lower() in ("next", "coming")))


def _en_rolling(m: re.Match[str], _text: str, _today: datetime, now: datetime) -> dict[str, Any]:
    return _span(window((m["ru"] or m["pu"]).lower(), 1, now))


def _en_ago(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any] | None:
    vague = m["an"].lower() in ("a", "an", "one") and m["au"].lower() != "day"
    return None if vague else _span(calendar(m["au"].lower(), today, -_number(m["an"])))


def _en_date(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any] | None:
    if m["dx"] is not None:
        if not m["date"].isupper():
            return None
        return _span(to_date({"W": "week", "M": "month", "Q": "quarter", "Y": "year"}[m["dx"]], today))
    return _span(to_date((m["du"] or m["df"] or m["ds"] or m["dt"]).lower(), today))


def _en_weekday(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    day, direction = _WEEKDAYS[m["kd"].lower()], m["kdir"].lower()
    if direction == "this":
        start = first_of("week", today) + DAY * day
    elif direction == "last":
        start = today - DAY * ((today.weekday() - day - 1) % 7 + 1)
    else:
        start = today + DAY * ((day - today.weekday() - 1) % 7 + 1)
    return _span((start, start + DAY))


def _en_rel(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    direction, unit = m["rdir"].lower(), m["runit"].lower()
    if direction in ("previous", "prior", "preceding"):
        return {"before": unit}
    span = calendar(unit, today, _DIRECTION[direction])
    return {"span": span, "year": span[0].year if unit == "year" else None}


def _en_quarter(m: re.Match[str], text: str, _today: datetime, _now: datetime) -> dict[str, Any] | None:
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


def _en_dmonth(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any] | None:
    month = MONTHS[m["dm"].lower()]
    if m["dy"]:
        return _day(int(m["dy"]), month, int(m["dd"]), today)
    return {"part": (month, 1), "day": int(m["dd"]), "absolute": True} if m["dm"][0].isupper() else None


def _en_month(m: re.Match[str], text: str, today: datetime, _now: datetime) -> dict[str, Any] | None:
    name, before, after = m["mm"], text[: m.start()], text[m.end() :]
    month, day = MONTHS[name.lower()], int(m["md"]) if m["md"] else None
    last = int(m["ml"]) if m["ml"] else None
    if m["my"]:
        if last is None:
            return _day(int(m["my"]), month, day, today)
        return {"part": (month, 1), "day": day, "last_day": last, "year": int(m["my"]), "absolute": True}
    if m["mdir"]:
        return _named_month(m["mdir"].lower(), month, today) if day is None else None
    capital = name[0].isupper()
    if day is not None:
        return {"part": (month, 1), "day": day, "last_day": last, "absolute": True} if capital else None
    if re.match(r"\s\d", after):
        return None
    clear = capital and (name.lower() in _CLEAR or _BEFORE_MONTH.search(before) is not None)
    context = clear or _BEFORE_LOWER.search(before) is not None
    named = capital and _NAME_AFTER.match(after) is not None
    return {"part": (month, 1), "firm": context and not named, "absolute": True} if capital or context else None


def _named_month(direction: str, month: int, today: datetime) -> dict[str, Any]:
    start = today.replace(month=month, day=1)
    if direction == "last" and add("month", start, 1) > today:
        start = add("year", start, -1)
    if direction == "next" and start <= today:
        start = add("year", start, 1)
    return _span((start, add("month", start, 1)))


def _en_year(m: re.Match[str], text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    start = today.replace(year=int(m["year"]), month=1, day=1)
    firm = _BEFORE_YEAR.search(text[: m.start()]) is not None and _COUNTED.match(text[m.end() :]) is None
    return {"span": (start, add("year", start, 1)), "year": start.year, "firm": firm, "absolute": True}


_EN_MAKERS: dict[str, Any] = {
    "nothing": lambda *_: None,
    "same": lambda *_: {"shift": ("year", -1)},
    "iso": _en_iso,
    "twice": lambda m, _t, today, _n: _span(calendar(m["tu"].lower(), today, -2)),
    "soon": lambda m, _t, today, _n: _span(calendar("day", today, _SOON[m["soon"].lower()])),
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

_HAN_DIGITS = "零一二三四五六七八九"
_HAN = r"[一二两三四五六七八九十]{1,3}"
_UP = r"(?<![以加马路线晚早海网身陆之楼向版])上"
_DOWN = r"(?<![以线地天当如之乡楼向版])下"
_OWN = r"(?<![成基根样版资日课书剧文])本"
_HAN_UNIT = {
    "分钟": "minute",
    "小时": "hour",
    "天": "day",
    "日": "day",
    "周": "week",
    "星期": "week",
    "礼拜": "week",
    "月": "month",
    "季度": "quarter",
    "季": "quarter",
    "年": "year",
}
_HAN_DAYS = {"大前": -3, "前": -2, "昨": -1, "今": 0, "明": 1, "后": 2}
_HAN_YEARS = {"前": -2, "去": -1, "上": -1, "今": 0, "本": 0, "明": 1, "后": 2}
_MONTH_NUMBER = r"1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九]"
_DAY_NUMBER = r"3[01]|[12]\d|0?[1-9]|三十一?|二?十[一二三四五六七八九]?|[一二三四五六七八九]"
_TO = r"\s*(?:到|至|[-~～–—－]+)\s*"
_CHINESE: Final = re.compile(
    rf"""
    (?P<nothing>大前年|五月天|(?:每个?|逐|各|单|按)(?:年|季度|月|周|日|天)(?:第?{_HAN}季度|\d+月|\d+日)?|{_UP}?半年报
      |(?:{_HAN}|\d+)月\s*(?:饼|球|亮|瓜|一次|两次))
    |(?P<same>(?:去年|上年)同期|{_UP}个?(?P<su>月|周|季度)同期)
    |(?P<iso>(?<![\w.-])(?P<iy>{_YEAR})(?P<sep>[-/])(?P<im>0?[1-9]|1[0-2])(?:(?P=sep)(?P<id>3[01]|[12]\d|0?[1-9]))?(?![A-Za-z\d_/]|[.-]\d))
    |(?P<soon>(?P<sd>大前|前|昨|今|明|(?<![之以今])后)(?:天|日(?!期)))
    |(?P<window>(?<![附将接临靠])(?:最近|近|过去|(?P<ahead>未来|接下来|今后))的?(?:(?P<wh>半年)|
      (?P<wn>\d{{1,3}}|{_HAN})\s*(?:个?(?P<wu>分钟|小时|天|日|周|星期|礼拜|季度|年)(?!级|期|代)|个?(?P<wm>月)(?!份))))
    |(?P<ago>(?<![\u4e00-\u9fff])(?<!\d)(?P<an>\d{{1,3}}|{_HAN})(?:(?P<au>天|日|周|年)|个(?P<am>月|星期))(?:之前|以前|前)(?![\d一-十]))
    |(?P<date>(?:今年|本年)?年初至今|(?:本月|这个月)?月初至今|本周初?至今)
    |(?P<weekday>(?:(?P<kup>{_UP}+个?)|(?P<kdown>{_DOWN}个?)|(?:{_OWN}|这个?))(?:周|星期|礼拜)(?:(?P<kd>[一二三四五六])(?![\u4e00-\u9fff]?[级期])|(?P<ks>日|天)(?!期)|(?P<kw>末)))
    |(?P<rel>(?:(?P<rup>{_UP}上?)|(?P<rdown>{_DOWN})|(?P<rown>{_OWN}|这))(?:一个?|个)?
      (?:(?P<ru>周(?![期边围末岁])|星期(?![一二三四五六日天])|礼拜(?![一二三四五六日天])|季度)|(?P<rm>月(?![球饼亮份光台])|月份)))
    |(?P<year>(?<![\d.])(?P<yn>{_YEAR})\s*年度?(?![级代龄])|(?<![{_HAN_DIGITS}〇])(?P<yh>[一二][〇{_HAN_DIGITS}]{{3}})年度?(?![级代龄])
      |(?P<yr>今|去|(?<![之以])前|明|(?<![之以])后)年度?(?![级代龄])|(?:{_OWN}|(?P<yu>{_UP}一?))年度?(?![级代龄限轻])(?!年))
    |(?P<first>前(?P<fn>[二两三23])个?季度)
    |(?P<quarter>(?<![前后近续一二三四两])(?:第(?P<q1>[一二三四1-4])个?|(?P<q2>[一二三四]))季度|(?<![A-Za-z\d_.])[Qq](?P<q3>[1-4])(?![A-Za-z\d_]))
    |(?P<half>(?P<hx>{_UP}|{_DOWN})半年度?(?!报))
    |(?P<months>(?<![\d.])(?P<m1>{_MONTH_NUMBER})(?:月份?)?{_TO}(?P<m2>{_MONTH_NUMBER})月份?(?!\d*[日号饼球]))
    |(?P<month>(?<![\d.第每几多数{_HAN_DIGITS}十百正个])(?P<mm>{_MONTH_NUMBER})月(?:份|(?P<md>{_DAY_NUMBER})[日号](?:{_TO}(?P<ml>{_DAY_NUMBER})[日号])?)?(?![饼球亮瓜天花饭租]))
    """,
    re.VERBOSE,
)


def chinese(text: str, now: datetime) -> list[Atom]:
    """Return the Chinese time words of a text, in order."""
    return _atoms(_CHINESE, _ZH_MAKERS, text, now)


def _han(text: str) -> int:
    """Return a number below 100 in digits or in Chinese.

    Raises:
        ValueError: it is none.
    """
    if text.isdigit() and text.isascii():
        return int(text)
    tens, ten, ones = text.replace("两", "二").rpartition("十")
    if not ten:
        return _HAN_DIGITS.index(ones)
    return (_HAN_DIGITS.index(tens) if tens else 1) * 10 + (_HAN_DIGITS.index(ones) if ones else 0)


def _zh_same(m: re.Match[str], *_: Any) -> dict[str, Any]:
    return {"shift": ("year" if m["su"] is None else _HAN_UNIT[m["su"]], -1)}


def _zh_window(m: re.Match[str], _text: str, _today: datetime, now: datetime) -> dict[str, Any]:
    ahead = m["ahead"] is not None
    if m["wh"]:
        return _span(window("half", 1, now, ahead=ahead))
    return _span(window(_HAN_UNIT[m["wu"] or m["wm"]], _han(m["wn"]), now, ahead=ahead))


def _zh_ago(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    return _span(calendar(_HAN_UNIT[m["au"] or m["am"]], today, -_han(m["an"])))


def _zh_date(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    unit = "year" if "年初" in m["date"] else "week" if "周" in m["date"] else "month"
    return _span(to_date(unit, today))


def _zh_weekday(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    weeks = -m["kup"].count("上") if m["kup"] else 1 if m["kdown"] else 0
    monday = add("week", first_of("week", today), weeks)
    if m["kw"]:
        return _span((monday + DAY * 5, monday + DAY * 7))
    start = monday + DAY * (6 if m["ks"] else _han(m["kd"]) - 1)
    return _span((start, start + DAY))


def _zh_rel(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    number = -len(m["rup"]) if m["rup"] else 1 if m["rdown"] else 0
    unit = "month" if m["rm"] else _HAN_UNIT[m["ru"]]
    return _span(calendar(unit, today, number))


def _zh_year(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    if m["yn"]:
        year = int(m["yn"])
    elif m["yh"]:
        year = int("".join(str(_HAN_DIGITS.index(digit)) for digit in m["yh"].replace("〇", "零")))
    else:
        year = today.year + (_HAN_YEARS[m["yr"]] if m["yr"] else -1 if m["yu"] else 0)
    start = today.replace(year=year, month=1, day=1)
    return {"span": (start, add("year", start, 1)), "year": year}


def _zh_quarter(m: re.Match[str], *_: Any) -> dict[str, Any]:
    return {"part": (_han(m["q1"] or m["q2"] or m["q3"]) * 3 - 2, 3)}


def _zh_months(m: re.Match[str], *_: Any) -> dict[str, Any] | None:
    first, last = _han(m["m1"]), _han(m["m2"])
    return {"part": (first, last - first + 1)} if first < last else None


def _zh_month(m: re.Match[str], *_: Any) -> dict[str, Any]:
    day, last = (_han(m[name]) if m[name] else None for name in ("md", "ml"))
    return {"part": (_han(m["mm"]), 1), "day": day, "last_day": last}


_ZH_MAKERS: dict[str, Any] = {
    "nothing": lambda *_: None,
    "same": _zh_same,
    "iso": _en_iso,
    "soon": lambda m, _t, today, _n: _span(calendar("day", today, _HAN_DAYS[m["sd"]])),
    "window": _zh_window,
    "ago": _zh_ago,
    "date": _zh_date,
    "weekday": _zh_weekday,
    "rel": _zh_rel,
    "year": _zh_year,
    "first": lambda m, *_: {"part": (1, _han(m["fn"]) * 3)},
    "quarter": _zh_quarter,
    "half": lambda m, *_: {"part": (1 if m["hx"] == "上" else 7, 6)},
    "months": _zh_months,
    "month": _zh_month,
}
