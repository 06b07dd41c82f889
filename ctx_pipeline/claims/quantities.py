"""Quantities in English and Chinese text as comparable numbers: durations, money, shares, sizes,
counts, dates.

`30 days`, `thirty days`, `30天` and `三十天` are one quantity, and so are `1h30m` and `90 minutes`;
`1 month` and `30 days` are too near to contradict. A number of which a part is not understood is
none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ctx_pipeline.claims.numbers import ARABIC, HAN, NUMBER, SIGN, Number, number
from ctx_pipeline.claims.units import CURRENCY, EXACT, SHORT, UNITS, Unit, pattern

_MONEY_SIGN = r"[$€£¥]|us\$|cny|usd|eur|gbp|rmb|jpy|人民币"
_UNIT = pattern(UNITS)
_TO = r"\s?(?:-|\u2013|\u2014|~|到|至|\bto\b|\bor\b|或|、)\s?"
_BEGIN = r"(?:(?<![a-z_0-9./:#+\u2044-])(?<!\d,)(?=[-\u2212\d])|(?![-\u2212\d]))"
"""Digits begin no number behind letters, digits and what joins them."""
_QUANTITY = re.compile(
    r"(?!\s|(?<=[a-z])[a-z])(?:"
    rf"(?P<date>\b(?:19|20)\d\d-\d\d-\d\d\b|(?:19|20)\d\d\s?年\s?\d{{1,2}}\s?月\s?\d{{1,2}}\s?日)"
    rf"|(?P<money>{_MONEY_SIGN})\s?(?P<amount>{NUMBER})(?:{_TO}(?P<most>{NUMBER}))?"
    rf"|(?P<of>[百千万])分之(?P<parts>{HAN}|{ARABIC})(?:{_TO}(?P<rest>{HAN}|{ARABIC}))?"
    rf"|(?P<whole>{HAN}|{ARABIC})分之(?P<part>{HAN}|{ARABIC})"
    rf"|\b(?:a\s)?half[\s-](?:an?\s)?(?P<half>{_UNIT})"
    r"|\b(?:(?P<count>a|one|three|two)\s)(?P<share>quarters?|thirds?)\sof\san?\s"
    rf"(?P<shared>{_UNIT})"
    rf"|\ban?\s(?P<single>{_UNIT})\sand\sa\s(?P<plus>half|quarter)\b"
    rf"|{_BEGIN}(?P<sign>{SIGN})?(?P<low>{NUMBER})(?:{_TO}(?P<high>{NUMBER}))?"
    rf"(?:[\s-]?(?P<unit>{_UNIT}))?)"
)
_NEXT = re.compile(
    rf"(?:,?\s+and\s+|,\s+|\s+|又|零)?(?P<number>{NUMBER})\s?(?P<unit>{_UNIT}|[分刻毛]|m(?![a-z]))"
)
_AND_A_HALF = re.compile(r"\s+and\s+a\s+(?P<part>half|quarter)\b|(?P<han>半)(?![价径数额程个])")
_PER = re.compile(
    rf"\s?/\s?(?P<unit>{_UNIT})"
    r"|\s(?:per|an?|each|every)\s(?P<word>second|minute|hour|day|week|month|quarter|year)\b"
    r"|\s?每个?(?P<han>秒|分钟|小时|天|日|周|月|季度|年)"
)
_EACH = re.compile(r"每个?(?P<unit>秒|分钟|小时|天|日|周|星期|月|季度|年)[\s,为是]?$")
_YEAR = re.compile(r"(?:19|20)\d\d")
_UNFINISHED = re.compile(
    # 十几, 三百多; a digit that goes on
    r"[半几多余来]|[零〇一二两三四五六七八九十百千万亿](?!般|样|起|旦|律|致|定|直|切|共)"
    # 10+, ±, 10-ish, a fraction's bar
    r"|\+|\u00b1|-?ish\b|\u2044"
    r"|\s(?:odd|plus or minus)\b"
    # "5 dozen"
    r"|\s?(?:hundred|thousand|lakh|million|crore|billion|trillion|dozen)s?\b"
    # "5 and a half", "2 thirds"
    r"|\s(?:and\s)?(?:a\s)?(?:half|quarter|third)s?\b"
    r"|\s?(?:thirds|fourths|fifths|tenths|hundredths)\b"
    r"|\d"
)
_OPEN = re.compile(r"[几数上好][几]?$")
_NEGATED = re.compile(
    r"(?:^|[\s,;:(=]|为|是|至|到|于)"
    r"(?:is|are|was|be|of|to|at|than|under|over|below|above|reach|reaches|and)?\s*$"
)
_BELOW_ZERO = re.compile(r"\s?(?:below (?:zero|freezing)|under zero)")
_PARTS: Final = {"half": 0.5, "quarter": 0.25, "third": 1 / 3}


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity of a text, at `start` to `end`."""

    start: int
    end: int
    dimension: str
    """`duration`, `percent`, a currency ..., `number` without a known unit, `year` or `date`; two
    for a rate."""
    value: str
    """`<number>~<step>` in base units, `<low>..<high>~<step>` for a range, with a `c` behind it
    where the unit is one of the calendar; else the year or the ISO date."""


def quantities(text: str) -> list[Quantity]:
    """Return the quantities of a text that is NFKC-normalised and in lower case, in order."""
    found: list[Quantity] = []
    at = 0
    while (match := _QUANTITY.search(text, at)) is not None:
        made = _quantity(match, text)
        if made is not None:
            found.append(made)
        at = max(match.end(), made.end if made is not None else 0)
    return found


_IN_TWO = re.compile(
    r"(?<=[a-z]), (?:and )?"
    r"(?=\d[\d.]*\s?(?:months?|weeks?|days?|hours?|hrs?|minutes?|mins?|seconds?|secs?)\b)"
)
_SIDE_BY_SIDE = re.compile(
    "(?<=[一二两三四五六七八九])、(?=[二三四五六七八九][^零一二三四五六七八九、])"
)


def whole_amounts(sentence: str) -> str:
    """Return a sentence without the marks that part an amount: `2 hours, 15 minutes`, 三、四天."""
    if "、" in sentence:
        sentence = _SIDE_BY_SIDE.sub("", sentence)
    return _IN_TWO.sub(" ", sentence) if ", " in sentence else sentence


def same_value(left: str, right: str) -> bool:
    """Return whether two values of one dimension can both be right.

    They can where they are equal, where one is the other rounded, and where one lies in the range
    that the other is.
    """
    if left == right:
        return True
    one, other = _span_of(left), _span_of(right)
    if one is None or other is None:
        return False
    if one.nominal and other.nominal:
        # Of months and years none is more exact than the other.
        slack = 1e-6 * max(abs(one.high), abs(other.high))
    elif one.step == other.step:
        slack = 0.0
    else:
        # Half a step is a value of its own: 2.5 % is not 2 %.
        slack = max(one.step, other.step) * 0.4999
    slack = max(slack, 1e-9 * max(abs(one.high), abs(other.high)))
    if one.low < one.high and other.low < other.high:
        return abs(one.low - other.low) <= slack and abs(one.high - other.high) <= slack
    return one.low - slack <= other.high and other.low - slack <= one.high


@dataclass(frozen=True, slots=True)
class _Span:
    low: float
    high: float
    step: float
    nominal: bool


def _span_of(value: str) -> _Span | None:
    ends, mark, step = value.partition("~")
    if not mark:
        return None
    low, _, high = ends.partition("..")
    return _Span(float(low), float(high or low), float(step.rstrip("c")), step.endswith("c"))


def _quantity(match: re.Match[str], text: str) -> Quantity | None:
    start, end = match.span()
    if match["date"]:
        year, month, day = (int(part) for part in re.findall(r"\d+", match["date"]))
        return Quantity(start, end, "date", f"{year:04}-{month:02}-{day:02}")
    amount = _Amount.none() if match["low"] else _of_parts(match)
    if amount is None:
        return None
    if match["low"]:
        year = _a_year(match, text)
        if year is not None or _names_something(match, text):
            return year
        amount = _plain(match, text)
        if amount is None:
            return None
    return _finished(amount, start, end, text)


@dataclass(frozen=True, slots=True)
class _Amount:
    """What has been read of a quantity so far, in base units."""

    dimension: str
    low: float
    high: float
    step: float
    nominal: bool
    unit: Unit | None

    @classmethod
    def none(cls) -> _Amount:
        return cls("number", 0.0, 0.0, 0.0, False, None)

    @classmethod
    def of(cls, value: Number, unit: Unit | None, dimension: str = "number") -> _Amount:
        dimension, factor, step = (
            (unit.dimension, unit.factor, unit.step) if unit else (dimension, 1.0, 0.0)
        )
        # Whole days or bytes are meant exactly; whole percents and sums are often rounded.
        rounded = value.digit * (1.0 if dimension == "number" else factor)
        if dimension in EXACT and value.digit == 1.0:
            rounded = 0.0
        step = max(step * abs(value.high), rounded)
        return cls(
            dimension, value.low * factor, value.high * factor, step, bool(unit and unit.step), unit
        )

    def plus(self, other: _Amount) -> _Amount:
        return _Amount(
            self.dimension,
            self.low + other.low,
            self.high + other.high,
            max(self.step, other.step) if self.nominal else other.step,
            self.nominal,
            other.unit,
        )

    def negative(self) -> _Amount:
        return _Amount(self.dimension, -self.high, -self.low, self.step, self.nominal, self.unit)


def _exactly(value: float) -> Number:
    return Number(value, value, 0.0)


def _of_parts(match: re.Match[str]) -> _Amount | None:
    """Read what is no plain number with a unit: money with its sign before it, shares, halves and
    quarters.
    """
    if match["money"]:
        value = _range(match["amount"], match["most"])
        return (
            None if value is None else _Amount.of(value, None, CURRENCY.get(match["money"], "cny"))
        )
    if match["of"]:
        value = _range(match["parts"], match["rest"])
        share = Unit("percent", {"百": 1.0, "千": 0.1, "万": 0.01}[match["of"]])
        return None if value is None else _Amount.of(value, share)
    if match["whole"]:
        whole, part = number(match["whole"]), number(match["part"])
        if whole is None or part is None or whole.low <= part.low:
            return None
        return _Amount.of(_exactly(100 * part.low / whole.low), None, "percent")
    if match["half"]:
        return _Amount.of(_exactly(0.5), UNITS[match["half"]])
    if match["share"]:
        count = {"two": 2, "three": 3}.get(match["count"], 1)
        return _Amount.of(
            _exactly(count * _PARTS[match["share"].removesuffix("s")]), UNITS[match["shared"]]
        )
    return _Amount.of(_exactly(1 + _PARTS[match["plus"]]), UNITS[match["single"]])


def _a_year(match: re.Match[str], text: str) -> Quantity | None:
    low, unit = match["low"], match["unit"]
    if (
        match["high"] is None
        and not match["sign"]
        and (unit is None or unit == "年")
        and _YEAR.fullmatch(low)
    ):
        return Quantity(*match.span(), "year", low)
    return None


def _names_something(match: re.Match[str], text: str) -> bool:
    """Return whether a number is part of a name or of a date, or is only a word."""
    start, end = match.span()
    unit, low = match["unit"], match["low"]
    if unit is None and (match["high"] is not None or _part_of_name(text, match.start("low"), end)):
        return True
    if unit == "月" and low[-1] not in "半个俩仨":
        return True
    if unit == "日" and text[:start].rstrip().endswith("月"):
        return True
    years = _YEAR.fullmatch(low) and match["high"] is not None and _YEAR.fullmatch(match["high"])
    return (
        bool(_OPEN.search(text[:start]) and low[0] in "十百千万亿")
        or text[:start].endswith("几")
        or bool(years)
    )


def _plain(match: re.Match[str], text: str) -> _Amount | None:
    value = _range(match["low"], match["high"])
    if value is None or (match["low"][0] in "百千万亿"):
        return None
    amount = _Amount.of(value, UNITS[match["unit"]] if match["unit"] else None)
    if not match["sign"]:
        return amount
    before = text[: match.start()]
    if match["sign"].strip() in ("minus", "negative") and not _NEGATED.search(before):
        return None
    return amount.negative()


def _range(low: str, high: str | None) -> Number | None:
    """Return a number, or all between two; of `1-2 million` the scale belongs to both."""
    first = number(low)
    if first is None or high is None:
        return first
    last = number(high)
    if last is None:
        return None
    if first.scaled == 1.0 and last.scaled > 1.0 and first.low < last.low / last.scaled:
        first = first.times(last.scaled)
    return (
        Number(first.low, last.high, max(first.digit, last.digit))
        if first.low < last.high
        else None
    )


def _finished(amount: _Amount, start: int, end: int, text: str) -> Quantity | None:
    """Read on behind a quantity: smaller units, halves, what it counts per; None where something is
    left of it.
    """
    amount, end = _with_smaller(amount, end, text)
    if (more := _AND_A_HALF.match(text, end)) is not None and amount.unit is not None:
        part = _exactly(_PARTS["half" if more["han"] else more["part"]])
        amount, end = amount.plus(_Amount.of(part, amount.unit)), more.end()
    if _UNFINISHED.match(text, end) or (
        amount.unit is None and text[end : end + 2].strip()[:1].isdigit()
    ):
        return None
    if (below := _BELOW_ZERO.match(text, end)) is not None and amount.low > 0:
        amount, end = amount.negative(), below.end()
    dimension, low, high, step = amount.dimension, amount.low, amount.high, amount.step
    start, end, per = _per(amount, start, end, text)
    if per is not None:
        dimension, low, high = f"{dimension}/{per.dimension}", low / per.factor, high / per.factor
        step = max(step / per.factor, abs(high) * per.step / per.factor)
    ends = f"{low:.12g}" if low == high else f"{low:.12g}..{high:.12g}"
    mark = "c" if amount.nominal or (per is not None and per.step) else ""
    return Quantity(start, end, dimension, f"{ends}~{step:.12g}{mark}")


def _with_smaller(amount: _Amount, end: int, text: str) -> tuple[_Amount, int]:
    """Add what follows in smaller units of the same dimension: `1h30m`, `1 year and 6 months`,
    两小时一刻.
    """
    while amount.unit is not None and (following := _NEXT.match(text, end)) is not None:
        name = following["unit"]
        shorter = SHORT.get(amount.dimension, {}).get(name)
        unit = (
            shorter
            if shorter is not None and shorter.factor < amount.unit.factor <= 3_600
            else UNITS.get(name)
        )
        value = number(following["number"])
        if (
            unit is None
            or value is None
            or unit.dimension != amount.dimension
            or unit.factor >= amount.unit.factor
        ):
            break
        if name == "月" and following["number"][-1] not in "半个俩仨":
            break
        amount, end = amount.plus(_Amount.of(value, unit)), following.end()
    return amount, end


def _per(amount: _Amount, start: int, end: int, text: str) -> tuple[int, int, Unit | None]:
    """Return where a quantity with what it counts per begins and ends, and that."""
    if amount.unit is None and amount.dimension == "number":
        return start, end, None
    behind = _PER.match(text, end)
    if behind is not None:
        unit = UNITS[behind["unit"] or behind["word"] or behind["han"]]
        if unit.dimension != amount.dimension:
            return start, behind.end(), unit
    before = _EACH.search(text[max(0, start - 8) : start])
    if before is not None and amount.dimension != "duration":
        return start - (len(before.group())), end, UNITS[before["unit"]]
    return start, end, None


def _part_of_name(text: str, start: int, end: int) -> bool:
    """A number glued to letters is part of a name; a Chinese numeral without a unit is mostly a
    word.
    """
    after = text[end : end + 1]
    if text[start] in "零〇一二两三四五六七八九十百千万亿半俩仨":
        return True
    if text[max(0, start - 2) : start].strip().isdigit():
        return True
    glued = after in ".-_/:" and text[end + 1 : end + 2].isalnum()
    return bool(after) and (
        glued or (after.isascii() and after.isalpha()) or text[end : end + 2].isdigit()
    )
