"""Quantities in English and Chinese text as comparable numbers: durations, money, percentages, sizes, counts, dates.

`30 days`, `thirty days`, `30天` and `三十天` are one quantity; `1 month` and `30 days` are too near to contradict.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

SECONDS: Final = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
MONTH, YEAR = 30 * SECONDS["day"], 365 * SECONDS["day"]
"""Nominal: texts that say `a month` mean 28 to 31 days."""

_SMALL: Final = {
    word: value
    for value, word in enumerate(
        """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
        seventeen eighteen nineteen""".split()  # noqa: SIM905 - a list would be one line for each
    )
}
_TENS: Final = {
    word: 10 * value
    for value, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)  # noqa: SIM905 - as above
}
_SCALES = {"hundred": 100, "thousand": 1_000, "million": 10**6, "billion": 10**9}
_SUFFIXES = {
    "k": 10**3,
    "m": 10**6,
    "bn": 10**9,
    "万": 10**4,
    "亿": 10**8,
    "千": 10**3,
    "百万": 10**6,
    **_SCALES,
}

_WORDS = "|".join(sorted((*_SMALL, *_TENS, *_SCALES), key=len, reverse=True))
_ENGLISH = rf"\b(?:{_WORDS})(?:(?:[\s-]|\sand\s)+(?:{_WORDS}))*\b"
_HAN = r"[零〇一二两三四五六七八九十百千万亿]+(?:点[零一二三四五六七八九]+)?"
_CHINESE = rf"(?<![第每之周期个]){_HAN}"
_ARABIC = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_DIGITS = rf"(?<![a-z_0-9.,/:#+-])-?{_ARABIC}"
_SCALE = r"(?:\s?(?:k|bn|hundred|thousand|million|billion)\b|m\b|百万|[万亿千])?"
_MONEY_SIGN = r"[$€£¥]|us\$|cny|usd|eur|gbp|rmb|jpy|人民币"

_UNITS: Final[dict[str, tuple[str, float, float]]] = {}
"""Unit as written: dimension, how many of the base unit it is, and how exact that is, in base units."""


def _add(dimension: str, factor: float, names: str, step: float = 0.0) -> None:
    for name in names.split():
        _UNITS[name.replace("_", " ")] = (dimension, factor, step)


_add("duration", 1, "second seconds sec secs s 秒 秒钟")
_add("duration", 0.001, "millisecond milliseconds ms 毫秒")
_add("duration", 60, "minute minutes min mins 分钟")
_add("duration", 3_600, "hour hours hr hrs h 小时 个小时 钟头")
_add("duration", SECONDS["day"], "day days d 天 日 日历日 自然日 calendar_day calendar_days")
_add("duration", SECONDS["week"], "week weeks 周 个星期 星期 个周")
_add("duration", MONTH, "month months 个月", 3 * SECONDS["day"])
_add("duration", 3 * MONTH, "quarter quarters 个季度", 5 * SECONDS["day"])
_add("duration", YEAR, "year years yr yrs 年", 6 * SECONDS["day"])
_add(
    "workdays",
    1,
    "business_day business_days working_day working_days workday workdays 工作日 个工作日",
)
_add("percent", 1, "% percent per_cent pct")
_add("points", 1, "percentage_point percentage_points 个百分点 百分点")
_add("bytes", 1, "byte bytes 字节")
_add("bytes", 2**10, "kb kib")
_add("bytes", 2**20, "mb mib")
_add("bytes", 2**30, "gb gib")
_add("bytes", 2**40, "tb tib")
_add("cny", 1, "yuan cny rmb 元 块 人民币 元人民币")
_add("usd", 1, "dollar dollars usd 美元")
_add("eur", 1, "euro euros eur 欧元")
_add("gbp", 1, "pound pounds gbp 英镑")
_add("jpy", 1, "yen jpy 日元")
_add("times", 1, "times 次")
_add("people", 1, "people persons 人")
_CURRENCY = {
    "$": "usd",
    "us$": "usd",
    "usd": "usd",
    "€": "eur",
    "eur": "eur",
    "£": "gbp",
    "gbp": "gbp",
    "jpy": "jpy",
}
_EXACT = frozenset({"duration", "workdays", "bytes", "times", "people"})
_UNIT = "|".join(
    (re.escape(name) + (r"(?![a-z])" if name[-1].isascii() and name[-1].isalpha() else ""))
    for name in sorted(_UNITS, key=len, reverse=True)
)
_NUMBER = rf"(?:(?:{_DIGITS}){_SCALE}|{_ENGLISH}|{_CHINESE})"
_QUANTITY = re.compile(
    rf"(?P<date>\b(?:19|20)\d\d-\d\d-\d\d\b|(?:19|20)\d\d\s?年\s?\d{{1,2}}\s?月\s?\d{{1,2}}\s?日)"
    rf"|(?P<sign>{_MONEY_SIGN})\s?(?P<amount>{_NUMBER})"
    rf"|百分之(?P<hundredths>{_HAN}|{_ARABIC})"
    rf"|(?P<low>{_NUMBER})(?:\s?(?:-|–|~|to|到|至)\s?(?P<high>{_ARABIC}|{_NUMBER}))?(?:[\s-]?(?P<unit>{_UNIT}))?"
)
_YEAR = re.compile(r"(?:19|20)\d\d")


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity of a text, at `start` to `end`."""

    start: int
    end: int
    dimension: str
    """`duration`, `percent`, a currency ..., `number` without a known unit, `year` or `date`."""
    value: str
    """`<number>~<step>` in base units, `<low>..<high>` for a range, else the year or the ISO date."""


def quantities(text: str) -> list[Quantity]:
    """Return the quantities of a text that is NFKC-normalised and in lower case, in order."""
    return [
        found for match in _QUANTITY.finditer(text) if (found := _quantity(match, text)) is not None
    ]


def same_value(left: str, right: str) -> bool:
    """Return whether two values of one dimension can both be right: equal, or one is the other rounded."""
    if left == right:
        return True
    one, other = _number_of(left), _number_of(right)
    if one is None or other is None:
        return False
    (first, first_step), (second, second_step) = one, other
    # Half a step is a value of its own: 2.5 % is not 2 %.
    return first_step != second_step and abs(first - second) < max(first_step, second_step) * 0.4999


def _number_of(value: str) -> tuple[float, float] | None:
    number, mark, step = value.partition("~")
    return (float(number), float(step)) if mark else None


def _quantity(match: re.Match[str], text: str) -> Quantity | None:
    start, end = match.span()
    if match["date"]:
        year, month, day = (int(part) for part in re.findall(r"\d+", match["date"]))
        return Quantity(start, end, "date", f"{year:04}-{month:02}-{day:02}")
    if match["hundredths"]:
        return _made(start, end, "percent", match["hundredths"], 1.0, 0.0)
    if match["sign"]:
        return _made(start, end, _CURRENCY.get(match["sign"], "cny"), match["amount"], 1.0, 0.0)
    low, high, unit = match["low"], match["high"], match["unit"]
    if unit is None and (match["high"] is not None or _part_of_name(text, start, end)):
        return None
    if high is None and (unit is None or unit == "年") and _YEAR.fullmatch(low):
        return Quantity(start, end, "year", low)
    dimension, factor, step = _UNITS[unit] if unit else ("number", 1.0, 0.0)
    if unit == "日" and text[:start].rstrip().endswith("月"):
        return None
    if high is None:
        return _made(start, end, dimension, low, factor, step)
    ends = (_value(low), _value(high))
    if ends[0] is None or ends[1] is None:
        return None
    return Quantity(
        start,
        end,
        dimension,
        "..".join(f"{value[0] * factor:g}" for value in ends if value is not None),
    )


def _part_of_name(text: str, start: int, end: int) -> bool:
    """A number glued to letters is part of a name; a Chinese numeral without a unit is mostly a word."""
    after = text[end : end + 1]
    if text[start] in "零〇一二两三四五六七八九十百千万亿":
        return True
    glued = after in "-_/:" and text[end + 1 : end + 2].isalnum()
    return bool(after) and (
        glued or (after.isascii() and after.isalpha()) or text[end : end + 2].isdigit()
    )


def _made(
    start: int, end: int, dimension: str, number: str, factor: float, step: float
) -> Quantity | None:
    value = _value(number)
    if value is None:
        return None
    amount, digits = value
    # Whole days or bytes are meant exactly; whole percents and sums are often rounded.
    rounded = 0.0 if dimension in _EXACT and digits == 1.0 else digits * factor
    return Quantity(
        start, end, dimension, f"{amount * factor:.12g}~{max(step * amount, rounded):.12g}"
    )


@lru_cache(maxsize=4096)
def _value(written: str) -> tuple[float, float] | None:
    """Return a number and the size of its last written digit."""
    text = written.strip()
    if text[0].isdigit() or text[0] == "-":
        found = re.match(r"-?[\d,]+(?:\.(\d+))?", text)
        assert found is not None, "the pattern of numbers begins so"
        suffix = text[found.end() :].strip()
        scale = _SUFFIXES.get(suffix, 1)
        return float(found[0].replace(",", "")) * scale, 10.0 ** -len(found[1] or "") * scale
    return _english(text) if text[0].isascii() else _chinese(text)


def _english(text: str) -> tuple[float, float] | None:
    total, group = 0, 0
    for word in re.findall(r"[a-z]+", text):
        if word in _SMALL or word in _TENS:
            group += _SMALL.get(word, 0) + _TENS.get(word, 0)
        elif word == "hundred":
            group = max(group, 1) * 100
        elif word in _SCALES:
            total, group = total + max(group, 1) * _SCALES[word], 0
    return float(total + group), 1.0


def _chinese(text: str) -> tuple[float, float] | None:
    import cn2an

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(cn2an.cn2an(text, "smart")), 1.0
    except ValueError:
        return None
