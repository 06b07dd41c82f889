"""Numbers as English and Chinese texts write them, in digits, in words and mixed. What is not
understood is None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

_SMALL: Final = {
    word: value
    for value, word in enumerate(
        """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
        fifteen sixteen seventeen eighteen nineteen""".split()  # noqa: SIM905 - a list would be one line for each
    )
}
_TENS: Final = {
    word: 10 * value
    for value, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)  # noqa: SIM905 - as above
}
_SCALES: Final = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 10**3,
    "lakh": 10**5,
    "million": 10**6,
    "crore": 10**7,
    "billion": 10**9,
    "trillion": 10**12,
}
_SUFFIXES: Final = {"k": 10**3, "m": 10**6, "mn": 10**6, "bn": 10**9, "tn": 10**12, **_SCALES}
_PARTS: Final = {"half": 0.5, "third": 1 / 3, "quarter": 0.25, "quarters": 0.25, "thirds": 1 / 3}
_HAN_DIGITS: Final = {
    **{char: value for value, char in enumerate("零一二三四五六七八九")},
    "〇": 0,
    "两": 2,
    "俩": 2,
    "仨": 3,
}
_HAN_SCALES: Final = {"十": 10, "百": 100, "千": 1_000, "万": 10**4, "亿": 10**8}

_SCALE_WORDS = "|".join(_SCALES)
_WORDS = "|".join(sorted((*_SMALL, *_TENS, *_SCALES), key=len, reverse=True))
_DIGIT_WORDS = "|".join(list(_SMALL)[:10])
_MORE = r"(?:\s+and\s+(?:(?:a|one)\s+(?:half|quarter|third)|three\s+quarters|two\s+thirds))?"
_ENGLISH = (
    rf"\b(?:{_WORDS})(?:(?:[\s-]|\sand\s)+(?:{_WORDS}))*"
    rf"(?:\s+point(?:\s+(?:{_DIGIT_WORDS}))+)?\b{_MORE}"
    rf"|\bhalf\s+an?\s+(?:{_SCALE_WORDS})\b|\ba\s+(?:dozen|{_SCALE_WORDS})\b"
)
HAN: Final = r"[零〇一二两三四五六七八九十百千万亿]+(?:点[零〇一二三四五六七八九]+)?"
_CHINESE = (
    rf"(?<![第每之周期个点零〇一二两三四五六七八九十百千万亿]){HAN}(?:个半)?|"
    r"[俩仨]|"
    r"半(?=个?[^\s个价径数])个?"
)
ARABIC: Final = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_HAN_SCALE = r"(?:(?!百分)[十百千万亿])+"
_FRACTION = r"(?:\d+\s+)?\d+[/\u2044]\d+(?=[\s-]?[a-z\u3400-\u9fff])"
_SCALE = (
    rf"(?:{_HAN_SCALE}(?:零?{ARABIC}{_HAN_SCALE})*|个半"
    rf"|\s?(?:k|mn|bn|tn|(?:{_SCALE_WORDS})s?)\b|m\b|{_MORE[3:-2]})?"
)
SIGN: Final = r"(?:(?:minus|negative)\s+|[-\u2212]|负|零下\s?)"
_DIGITS = rf"(?:{_FRACTION}|{ARABIC}{_SCALE})"
NUMBER: Final = rf"(?:{_DIGITS}|{_ENGLISH}|{_CHINESE})"
"""Matches one number without its sign, for `number`."""

_IN_DIGITS = re.compile(rf"({ARABIC})\s*(.*)", re.DOTALL)
_IN_PARTS = re.compile(r"(?:(\d+)\s+)?(\d+)[/\u2044](\d+)")
_MIXED = re.compile(rf"({ARABIC})({_HAN_SCALE})零?")


@dataclass(frozen=True, slots=True)
class Number:
    """What a text says a number is."""

    low: float
    high: float
    """Other than `low` where the text leaves it open: 七八."""
    digit: float
    """The size of the last written digit; 0 for what is meant exactly, as `half`."""
    scaled: float = 1.0
    """The factor that a word behind it, as `million`, multiplies it by."""

    def times(self, factor: float) -> Number:
        """Return the number multiplied by a factor."""
        return Number(
            self.low * factor, self.high * factor, self.digit * factor, self.scaled * factor
        )


@lru_cache(maxsize=4096)
def number(written: str) -> Number | None:
    """Return the number that a text matched by `NUMBER` writes; None where a part of it is not
    understood.
    """
    text = written.strip()
    if text[0].isdigit():
        return _fraction(text) if re.search(r"[/\u2044]", text) else _digits(text)
    return _english(text) if text[0].isascii() else _chinese(text)


def _one(value: float, digit: float, scaled: float = 1.0) -> Number:
    return Number(value, value, digit, scaled)


def _fraction(text: str) -> Number | None:
    match = _IN_PARTS.fullmatch(text)
    if match is None or int(match[3]) == 0 or int(match[2]) >= int(match[3]):
        return None
    return _one(int(match[1] or 0) + int(match[2]) / int(match[3]), 0.0)


def _digits(text: str) -> Number | None:
    match = _IN_DIGITS.fullmatch(text)
    assert match is not None, "the pattern of numbers begins so"
    value = float(match[1].replace(",", ""))
    digit = 10.0 ** -len(match[1].partition(".")[2])
    suffix = match[2]
    if not suffix:
        return _one(value, digit)
    if suffix == "个半":
        return _one(value + 0.5, 0.0) if digit == 1.0 else None
    if suffix.startswith("and "):
        return _one(value + _part(suffix), 0.0) if digit == 1.0 else None
    if suffix[0] in _HAN_SCALES:
        return _mixed(text)
    scale = _SUFFIXES.get(suffix) or _SUFFIXES.get(suffix.removesuffix("s"))
    if scale is None:
        return None
    # A dozen is counted, a thousand is often rounded.
    return _one(value * scale, digit if scale == _SCALES["dozen"] else digit * scale, scale)


def _part(text: str) -> float:
    """Return what `and a half`, `and three quarters` adds."""
    words = text.split()
    return _SMALL.get(words[-2], 1) * _PARTS[words[-1]]


def _mixed(text: str) -> Number | None:
    """Read digits with Chinese scales: 1.5万, 1亿5000万, 3千万."""
    total, digit, scale, last = 0.0, 1.0, 1.0, float("inf")
    end = 0
    for match in _MIXED.finditer(text):
        scale = 1.0
        for char in match[2]:
            scale *= _HAN_SCALES[char]
        if match.start() != end or scale >= last:
            return None
        total += float(match[1].replace(",", "")) * scale
        digit = 10.0 ** -len(match[1].partition(".")[2]) * scale
        end, last = match.end(), scale
    return (
        _one(total, digit, scale if total and last == scale else 1.0) if end == len(text) else None
    )


def _english(text: str) -> Number | None:
    if text.startswith("half"):
        return _one(_SCALES[text.split()[-1]] / 2, 0.0)
    if text.startswith("a "):
        return _one(float(_SCALES[text.split()[-1]]), 0.0)
    whole, added, rest = text.partition(" and a ")
    if not added:
        found = re.search(
            r"\sand\s(?:one\s(?:half|quarter|third)|three\squarters|two\sthirds)$", text
        )
        whole, rest = (text[: found.start()], text[found.start() :]) if found else (text, "")
    whole, point, decimals = whole.partition(" point ")
    total, group, scale = 0, 0, 1.0
    for word in re.findall(r"[a-z]+", whole):
        if word in _SMALL or word in _TENS:
            group += _SMALL.get(word, 0) + _TENS.get(word, 0)
        elif word == "hundred":
            group = max(group, 1) * 100
        elif word in _SCALES:
            total, group, scale = total + max(group, 1) * _SCALES[word], 0, float(_SCALES[word])
    value = float(total + group)
    if point:
        digits = "".join(str(_SMALL[word]) for word in decimals.split())
        return _one(value + float(f"0.{digits}"), 10.0 ** -len(digits)) if digits else None
    if rest:
        last = rest.split()[-1]
        return _one(value + (_part(f"and {rest}") if not added else _PARTS[last]), 0.0)
    return _one(value, 1.0, scale if group == 0 else 1.0)


def _chinese(text: str) -> Number | None:
    if text[0] == "半":
        return _one(0.5, 0.0)
    if text.endswith("个半"):
        whole = _chinese(text[:-2])
        return None if whole is None or whole.low != whole.high else _one(whole.low + 0.5, 0.0)
    whole_text, point, decimals = text.partition("点")
    if point:
        whole = _chinese(whole_text)
        digits = "".join(str(_HAN_DIGITS[char]) for char in decimals)
        return (
            None if whole is None else _one(whole.low + float(f"0.{digits}"), 10.0 ** -len(digits))
        )
    if not set(whole_text) & set(_HAN_SCALES):
        return _digit_row(whole_text)
    pair = next(
        (
            at
            for at, both in enumerate(pairwise(whole_text))
            if set(both) <= set("一二两三四五六七八九")
        ),
        None,
    )
    if pair is None:
        value = _scaled(whole_text)
        return None if value is None else _one(value, 1.0)
    ends = [
        _scaled(whole_text[:pair] + char + whole_text[pair + 2 :])
        for char in whole_text[pair : pair + 2]
    ]
    return _open(*ends)


def _digit_row(text: str) -> Number | None:
    """Read digits without scales: one, two that leave it open (七八), or a row
    of them (二〇二六).
    """
    values = [_HAN_DIGITS[char] for char in text]
    if len(values) == 2 and 0 not in values:
        return _open(float(values[0]), float(values[1]))
    if len(values) > 2 and text[0] in "零〇":
        return None
    return _one(float("".join(map(str, values))), 1.0)


def _open(low: float | None, high: float | None) -> Number | None:
    """Return a number between two neighbours; 三五 is between three and five."""
    if low is None or high is None or not low < high:
        return None
    return Number(low, high, 0.0)


def _scaled(text: str) -> float | None:
    """Read digits with scales: 一千二百, 三十, 两万五 (25,000); None for what is no number."""
    total, section, digit, last = 0.0, 0.0, None, 10**9
    below = 1
    for char in text:
        if char in _HAN_DIGITS:
            if digit is not None and digit != 0:
                return None
            digit = _HAN_DIGITS[char]
            continue
        scale = _HAN_SCALES[char]
        if scale >= 10**4:
            amount = section + (digit or 0)
            if amount == 0 or (total and scale > 10**4 > total):
                return None
            total = (total + amount) * scale if scale > 10**4 and total else total + amount * scale
            section, last = 0.0, 10**9
        else:
            if (digit is None and scale != 10) or digit == 0 or scale >= last:
                return None
            section += (1 if digit is None else digit) * scale
            last = scale
        below, digit = scale, None
    if digit and below >= 100 and len(text) > 1 and text[-2] in _HAN_SCALES:
        return total + section + digit * below / 10
    return total + section + (digit or 0)
