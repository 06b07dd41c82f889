"""Units of quantities: which dimension each measures, and how many of the dimension's base unit it
is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

SECONDS: Final = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
YEAR: Final = 365 * SECONDS["day"]
MONTH: Final = YEAR / 12
"""Nominal: texts that say `a month` mean 28 to 31 days."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What a unit measures."""

    dimension: str
    factor: float
    """How many of the base unit it is."""
    step: float = 0.0
    """How exact a nominal unit, as a month, is in base units; 0 for an exact one."""


UNITS: Final[dict[str, Unit]] = {}
"""Each unit as it is written, in lower case."""


def _add(dimension: str, factor: float, names: str, step: float = 0.0) -> None:
    for name in names.split():
        UNITS[name.replace("_", " ")] = Unit(dimension, factor, step)


_DAY: Final = SECONDS["day"]
_add("duration", 1, "second seconds sec secs s 秒 秒钟")
_add("duration", 0.001, "millisecond milliseconds ms 毫秒")
_add("duration", 60, "minute minutes min mins 分钟")
_add("duration", 900, "刻钟")
_add("duration", 3_600, "hour hours hr hrs h 小时 个小时 钟头 个钟头 个钟")
_add("duration", _DAY, "day days d 天 日 日历日 自然日 calendar_day calendar_days")
_add("duration", SECONDS["week"], "week weeks wk wks 周 个星期 星期 个周 个礼拜 礼拜")
_add("duration", 2 * SECONDS["week"], "fortnight fortnights")
_add("duration", MONTH, "month months 个月 月", 3 * _DAY)
_add("duration", 3 * MONTH, "quarter quarters 个季度 季度", 5 * _DAY)
_add("duration", YEAR, "year years yr yrs 年 周年", 6 * _DAY)
_add("duration", 10 * YEAR, "decade decades", 60 * _DAY)
_add(
    "workdays",
    1,
    "business_day business_days working_day working_days workday workdays 工作日 个工作日",
)
_add("percent", 1, "% percent per_cent pct")
_add("percent", 0.1, "‰ permille per_mille")
_add("percent", 10, "成")
_add("points", 1, "percentage_point percentage_points 个百分点 百分点")
_add("points", 0.01, "basis_point basis_points bp bps 个基点 基点")
_add("bytes", 1, "byte bytes 字节")
_add("bytes", 2**10, "kb kib kilobyte kilobytes")
_add("bytes", 2**20, "mb mib megabyte megabytes")
_add("bytes", 2**30, "gb gib gigabyte gigabytes")
_add("bytes", 2**40, "tb tib terabyte terabytes")
_add("bits", 10**3, "kbps kbit/s")
_add("bits", 10**6, "mbps mbit/s")
_add("bits", 10**9, "gbps gbit/s")
_add("length", 0.001, "mm millimetre millimetres millimeter millimeters 毫米")
_add("length", 0.01, "cm centimetre centimetres centimeter centimeters 厘米 公分")
_add("length", 1, "m metre metres meter meters 米")
_add("length", 1_000, "km kilometre kilometres kilometer kilometers 公里 千米")
_add("length", 0.0254, "inch inches 英寸")
_add("length", 0.3048, "foot feet ft 英尺")
_add("length", 1_609.344, "mile miles 英里")
_add("area", 1, "m2 sqm square_metre square_metres square_meter square_meters 平方米 平米")
_add(
    "area",
    10**6,
    "km2 square_kilometre square_kilometres square_kilometer square_kilometers 平方公里",
)
_add("mass", 0.001, "mg milligram milligrams 毫克")
_add("mass", 1, "g gram grams gramme grammes 克")
_add("mass", 500, "斤 市斤")
_add("mass", 1_000, "kg kgs kilo kilos kilogram kilograms 公斤 千克")
_add("mass", 10**6, "t tonne tonnes metric_ton metric_tons 吨")
_add("mass", 453.592, "lb lbs")
_add("volume", 0.001, "ml millilitre millilitres milliliter milliliters 毫升")
_add("volume", 1, "l litre litres liter liters 升")
_add("degrees", 1, "degree degrees degrees_celsius degree_celsius °c ° 度 摄氏度")
_add("fahrenheit", 1, "degrees_fahrenheit degree_fahrenheit °f 华氏度")
_add("power", 1, "watt watts 瓦")
_add("power", 1_000, "kw kilowatt kilowatts 千瓦")
_add("energy", 1, "wh")
_add("energy", 1_000, "kwh kilowatt_hour kilowatt_hours 千瓦时")
_add("frequency", 1, "hz hertz 赫兹")
_add("frequency", 10**3, "khz")
_add("frequency", 10**6, "mhz")
_add("frequency", 10**9, "ghz")
_add("cny", 1, "yuan cny rmb 元 块 块钱 人民币 元人民币")
_add("cny", 0.1, "角 毛钱")
_add("usd", 1, "dollar dollars usd 美元 美金")
_add("eur", 1, "euro euros eur 欧元")
_add("gbp", 1, "pound pounds gbp 英镑")
_add("jpy", 1, "yen jpy 日元")
_add("times", 1, "times 次")
_add("people", 1, "people persons 人")
_add("number", 12, "打")

CURRENCY: Final = {
    "$": "usd",
    "us$": "usd",
    "usd": "usd",
    "€": "eur",
    "eur": "eur",
    "£": "gbp",
    "gbp": "gbp",
    "jpy": "jpy",
}
"""Dimension of each sign before an amount; others are yuan."""
EXACT: Final = frozenset({"duration", "workdays", "bytes", "times", "people"})
"""Dimensions whose whole numbers are meant exactly; those of others are often rounded."""


_SPACED: Final = frozenset({"g", "l", "t"})
"""Units that letters behind a number only are where a blank parts them: `5g` is a network, too."""


def pattern(names: dict[str, Unit]) -> str:
    """Return a pattern of units as they are written, the longest first."""
    return "|".join(
        (r"(?<=\s)" if name in _SPACED else "")
        + re.escape(name)
        + (r"(?![a-z])" if name[-1].isascii() and name[-1].isalnum() else "")
        for name in sorted(names, key=len, reverse=True)
    )


SHORT: Final = {
    "duration": {
        "分": Unit("duration", 60),
        "m": Unit("duration", 60),
        "刻": Unit("duration", 900),
    },
    "cny": {"毛": Unit("cny", 0.1), "分": Unit("cny", 0.01), "分钱": Unit("cny", 0.01)},
}
"""Units that mean so behind a larger one alone: 两小时一刻, 1h30m, 5元5角3分."""
