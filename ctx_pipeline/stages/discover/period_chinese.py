"""The time words of Chinese, as atoms.

Alternatives stand from the longest to the shortest. Those of group `nothing` take words away from
later ones: 每年, 五月天.
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
    day_of_week,
    first_of,
    fixed,
    iso_date,
    iso_week,
    short_year,
    to_date,
    window,
)

_HAN_DIGITS = "零一二三四五六七八九"
_HAN = r"[一二两三四五六七八九十]{1,3}"
_UP = r"(?<![以加马路线晚早海网身陆之楼向版])上"
_DOWN = r"(?<![以线地天当如之乡楼向版])下"
_OWN = r"(?<![成基根样版资日课书剧文])本"
_HAN_WEEKDAYS = "一二三四五六日"
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
_HAN_DAYS = {"大前": -3, "大后": 3, "前": -2, "昨": -1, "今": 0, "明": 1, "后": 2}
_HAN_YEARS = {"大前": -3, "前": -2, "去": -1, "上": -1, "今": 0, "本": 0, "明": 1, "后": 2}
_MONTH_NUMBER = r"1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九]"
_DAY_NUMBER = r"3[01]|[12]\d|0?[1-9]|三十一?|二?十[一二三四五六七八九]?|[一二三四五六七八九]"
_TO = r"\s*(?:到|至|[-~～–—－]+)\s*"
_WEEK = "(?:周|星期|礼拜)"
_CHINESE: Final = re.compile(
    rf"""
    # 每月1日, 五月天, 上半年报, 三月饼: what repeats, or is no time
    (?P<nothing>
        前前+[年天日月]
      | 五月天
      | (?:每个?|逐|各|单|按)(?:年|季度|月|周|日|天)(?:第?{_HAN}季度|\d+月|\d+日)?
      | {_UP}?半年报
      | (?:{_HAN}|\d+)月\s*(?:饼|球|亮|瓜|一次|两次))
    # 去年今天, 上个月的同一天
  | (?P<anniv>
        (?P<vd>去年|前年|{_UP}个?月|{_UP}个?(?:周|星期))的?(?:今天|今日|这一?天|同一天))
    # 去年本月
  | (?P<thislast>(?P<ty>去年|前年)的?(?:本|这个?|同)(?P<tu>月|季度)(?!份?同期))
    # 2026年第12周
  | (?P<isoweek>
        (?:(?P<wy>{YEAR})年?|(?P<wr>去年|今年|前年|本年))的?
        (?:第(?P<wk>\d{{1,2}}|{_HAN})|(?P<wk2>\d{{1,2}}))周(?![年岁]))
    # 去年同期
  | (?P<same>(?:去年|上年)同期|{_UP}个?(?P<su>月|周|季度)同期)
    # 2026-10-31, 2026/10
  | (?P<iso>
        (?<![A-Za-z\d_.-])(?P<iy>{YEAR})(?P<sep>[-/])(?P<im>0?[1-9]|1[0-2])
        (?:(?P=sep)(?P<id>3[01]|[12]\d|0?[1-9]))?(?![A-Za-z\d_/]|[.-]\d))
    # 昨天, 大后天
  | (?P<soon>(?P<sd>大前|大后|前|昨|今|明|(?<![之以今])后)(?:天|日(?!期)))
    # 最近7天, 未来三个月, 近半年
  | (?P<window>
        (?<![附将接临靠])(?:最近|近|过去|(?P<ahead>未来|接下来|今后))的?
        (?:
            (?P<wh>半年)
          | (?P<wn>\d{{1,3}}|{_HAN})\s*
            (?:
                个?(?P<wu>分钟|小时|天|日|周|星期|礼拜|季度|年)(?!级|期|代)
              | 个?(?P<wm>月)(?!份))))
    # 三天前
  | (?P<ago>
        (?<![\u4e00-\u9fff])(?<!\d)(?P<an>\d{{1,3}}|{_HAN})
        (?:(?P<au>天|日|周|年)|个(?P<am>月|星期))(?:之前|以前|前)(?![\d一-十]))
    # 年初至今
  | (?P<date>(?:今年|本年)?年初至今|(?:本月|这个月)?月初至今|本周初?至今)
    # 上周五, 上周一到周三, 这个周末
  | (?P<weekday>
        (?:(?P<kup>{_UP}+个?)|(?P<kdown>{_DOWN}下*个?)|(?:{_OWN}|这个?)){_WEEK}
        (?:
            (?P<kd>[一二三四五六])(?![\u4e00-\u9fff]?[级期])
          | (?P<ks>日|天)(?!期)
          | (?P<kw>末))
        (?:{_TO}(?:(?:本|这|当)?{_WEEK})?(?P<kl>[一二三四五六日天])(?![期月季年个]))?)
    # 上个月, 本季度, 下周
  | (?P<rel>
        (?:(?P<rup>{_UP}上*)|(?P<rdown>{_DOWN}下*)|(?P<rown>{_OWN}|这))(?:一个?|个)?
        (?:
            (?P<ru>
                周(?![期边围末岁])
              | 星期(?![一二三四五六日天])
              | 礼拜(?![一二三四五六日天])
              | 季度)
          | (?P<rm>月(?![球饼亮份光台])|月份)))
    # 26年三季度: two digits are a year only before a part of one
  | (?P<short>
        (?<![\d.A-Za-z近过去来历这前后])['’]?(?P<sy>\d{{2}})年
        (?=度?(?:
            第?[一二三四1-4]个?季
          | [Qq][1-4]
          | [上下]半年
          | 前[两二三23]
          | \d
          | [一二三四五六七八九十]{{1,2}}月
          | 双)))
    # Q3'26
  | (?P<cshort>(?<![A-Za-z\d_.])[Qq](?P<cq>[1-4])\s?['’]\s?(?P<cy>\d{{2}})(?!\d))
    # 2026年, 二〇二六年, 去年, 上一年
  | (?P<year>
        (?<![\d.])(?P<yn>{YEAR})\s*年度?(?![级代龄号])
      | (?<![{_HAN_DIGITS}〇])(?P<yh>[一二][〇{_HAN_DIGITS}]{{3}})年度?(?![级代龄])
      | (?P<yr>大前|今|去|(?<![之以])前|明|(?<![之以])后)年度?(?![级代龄])
      | (?:{_OWN}|(?P<yu>{_UP}一?))年度?(?![级代龄限轻])(?!年))
    # 前三个季度
  | (?P<first>前(?P<fn>[二两三23])个?季度)
    # 第三季度, Q3
  | (?P<quarter>
        (?<![前后近续一二三四两])(?:第(?P<q1>[一二三四1-4])个?|(?P<q2>[一二三四]))季度
      | (?<![A-Za-z\d_.])[Qq](?P<q3>[1-4])(?![A-Za-z\d_]))
    # 上半年
  | (?P<half>(?P<hx>{_UP}|{_DOWN})半年度?(?!报))
    # 3月到5月
  | (?P<months>
        (?<![\d.])(?P<m1>{_MONTH_NUMBER})(?:月份?)?{_TO}
        (?P<m2>{_MONTH_NUMBER})月份?(?!\d*[日号饼球]))
    # 十月, 10月3日, 10月3日到5日
  | (?P<month>
        (?<![\d.第每几多数{_HAN_DIGITS}十百正个])(?P<mm>{_MONTH_NUMBER})月
        (?:
            份
          | (?P<md>{_DAY_NUMBER})[日号](?:{_TO}(?P<ml>{_DAY_NUMBER})[日号])?
        )?(?![饼球亮瓜天花饭租]))
    """,
    re.VERBOSE,
)


def chinese(text: str, now: datetime) -> list[Atom]:
    """Return the Chinese time words of a text, in order."""
    return atoms_of(_CHINESE, _ZH_MAKERS, text, now)


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
        return fixed(window("half", 1, now, ahead=ahead))
    return fixed(window(_HAN_UNIT[m["wu"] or m["wm"]], _han(m["wn"]), now, ahead=ahead))


def _zh_ago(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    return fixed(calendar(_HAN_UNIT[m["au"] or m["am"]], today, -_han(m["an"])))


def _zh_date(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    unit = "year" if "年初" in m["date"] else "week" if "周" in m["date"] else "month"
    return fixed(to_date(unit, today))


def _zh_weekday(
    m: re.Match[str], _text: str, today: datetime, _now: datetime
) -> dict[str, Any] | None:
    weeks = -m["kup"].count("上") if m["kup"] else m["kdown"].count("下") if m["kdown"] else 0
    week = add("week", first_of("week", today), weeks)
    if m["kw"]:
        saturday = day_of_week(5, week)
        return None if m["kl"] else fixed((saturday, saturday + DAY * 2))
    start = day_of_week(6 if m["ks"] else _han(m["kd"]) - 1, week)
    last = (
        start
        if m["kl"] is None
        else day_of_week(_HAN_WEEKDAYS.index(m["kl"].replace("天", "日")), week)
    )
    return fixed((start, last + DAY)) if last >= start else None


def _zh_rel(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    number = -len(m["rup"]) if m["rup"] else len(m["rdown"] or "")
    unit = "month" if m["rm"] else _HAN_UNIT[m["ru"]]
    return fixed(calendar(unit, today, number))


def _zh_year(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    if m["yn"]:
        year = int(m["yn"])
    elif m["yh"]:
        year = int("".join(str(_HAN_DIGITS.index(digit)) for digit in m["yh"].replace("〇", "零")))
    else:
        year = today.year + (_HAN_YEARS[m["yr"]] if m["yr"] else -1 if m["yu"] else 0)
    start = today.replace(year=year, month=1, day=1)
    return {"span": (start, add("year", start, 1)), "year": year}


def _zh_short(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    year = short_year(m["sy"])
    start = today.replace(year=year, month=1, day=1)
    # Two digits and 年 may be a length of time: a year only beside a part of one.
    return {"span": (start, add("year", start, 1)), "year": year, "firm": False}


def _zh_quarter_of_short(
    m: re.Match[str], _text: str, today: datetime, _now: datetime
) -> dict[str, Any]:
    start = today.replace(year=short_year(m["cy"]), month=int(m["cq"]) * 3 - 2, day=1)
    return {"span": (start, add("quarter", start, 1)), "absolute": True}


def _zh_anniversary(
    m: re.Match[str], _text: str, today: datetime, _now: datetime
) -> dict[str, Any]:
    back = m["vd"]
    unit = "year" if "年" in back else "month" if "月" in back else "week"
    return fixed(calendar("day", add(unit, today, -2 if back == "前年" else -1), 0))


def _zh_this_last(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    years = -2 if m["ty"] == "前年" else -1
    return fixed(calendar(_HAN_UNIT[m["tu"]], add("year", today, years), 0))


def _zh_week(m: re.Match[str], _text: str, today: datetime, _now: datetime) -> dict[str, Any]:
    year = int(m["wy"]) if m["wy"] else today.year + _HAN_YEARS[m["wr"][0]]
    return iso_week(year, _han(m["wk"] or m["wk2"]), today)


def _zh_quarter(m: re.Match[str], *_: Any) -> dict[str, Any]:
    return {"part": (_han(m["q1"] or m["q2"] or m["q3"]) * 3 - 2, 3)}


def _zh_months(m: re.Match[str], *_: Any) -> dict[str, Any] | None:
    first, last = _han(m["m1"]), _han(m["m2"])
    return {"part": (first, last - first + 1)} if first < last else None


def _zh_month(m: re.Match[str], *_: Any) -> dict[str, Any]:
    day, last = (_han(m[name]) if m[name] else None for name in ("md", "ml"))
    return {"part": (_han(m["mm"]), 1), "day": day, "last_day": last}


_ZH_MAKERS: dict[str, Maker] = {
    "nothing": lambda _m, _t, _d, _n: None,
    "anniv": _zh_anniversary,
    "thislast": _zh_this_last,
    "isoweek": _zh_week,
    "short": _zh_short,
    "cshort": _zh_quarter_of_short,
    "same": _zh_same,
    "iso": iso_date,
    "soon": lambda m, _t, today, _n: fixed(calendar("day", today, _HAN_DAYS[m["sd"]])),
    "window": _zh_window,
    "ago": _zh_ago,
    "date": _zh_date,
    "weekday": _zh_weekday,
    "rel": _zh_rel,
    "year": _zh_year,
    "first": lambda m, _t, _d, _n: {"part": (1, _han(m["fn"]) * 3)},
    "quarter": _zh_quarter,
    "half": lambda m, _t, _d, _n: {"part": (1 if m["hx"] == "上" else 7, 6)},
    "months": _zh_months,
    "month": _zh_month,
}
