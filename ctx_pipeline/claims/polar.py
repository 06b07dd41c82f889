"""What a clause permits, demands or denies, and which of a set of opposite words it uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ctx_pipeline.claims.sentences import Found
from ctx_pipeline.claims.words import words

# --- permissions, obligations and facts with their negation

_IS = r"(?:is|are)"
_IS_NOW = r"(?:is|are|has been|have been)"
_POLAR: Final = tuple(
    (re.compile(pattern), attribute, value)
    for attribute, value, pattern in (
        (
            "require",
            "no",
            r"\b(?:need not|(?:do|does) not (?:need|have) to|"
            rf"{_IS} not (?:required|mandatory|necessary|obligatory)|"
            rf"{_IS} (?:optional|never required))\b(?: to\b)?|"
            r"无需|无须|不必|不需要|不强制|非必|可选|选填",
        ),
        (
            "permit",
            "no",
            rf"\b(?:must not|mustn't|may not|can ?not|can't|shall not|should not|"
            rf"{_IS} (?:not|never) (?:allowed|permitted)|"
            rf"{_IS} (?:forbidden|prohibited|banned|disallowed)|never be)\b(?: to\b)?|"
            r"不得|禁止|不可以|不能|不允许|严禁|不可|不准",
        ),
        (
            "require",
            "yes",
            r"\b(?:must|(?:has|have|need|needs) to|shall|"
            rf"{_IS} (?:required|mandatory|obligatory))\b(?: to\b)?|"
            r"必须|务必|强制|必填|必需",
        ),
        (
            "permit",
            "yes",
            rf"\b(?:may|can|{_IS} (?:allowed|permitted))\b(?: to\b)?|可以|允许|准许|能够",
        ),
        (
            "enabled",
            "no",
            (
                rf"\b{_IS_NOW} (?:disabled|turned off|switched off|deactivated|inactive)\b|"
                r"已?(?:禁用|关闭|停用)"
            ),
        ),
        (
            "enabled",
            "yes",
            (
                rf"\b{_IS_NOW} (?:enabled|turned on|switched on|activated|active)\b|"
                r"已?(?:启用|开启|打开)"
            ),
        ),
        ("is", "no", r"\b(?:is|are|was|were) (?:not|never|no longer)\b|\b(?:isn't|aren't)\b"),
        ("does", "no", r"\b(?:does|do|did) not\b|\b(?:doesn't|don't|didn't)\b|\bnever\b"),
        ("is", "no", r"\bnon-?(?=[a-z])"),
        (
            "does",
            "no",
            (
                r"不再|"
                r"不会|"
                r"不(?=支持|适用|接受|提供|收取|参与|享受|计|退|发|允|公开|加密|开放|收费|生效|"
                r"包邮|"
                r"报销)|"
                r"未(?=启用|加密|支持)"
            ),
        ),
    )
)
"""Attribute and value by what a clause says; the first that is found counts."""
_DOES = re.compile(
    r"\b(?:appl(?:y|ies)|supports?|ships?|accepts?|offers?|charges?|covers?|stores?|logs?|"
    r"encrypts?|expires?|renews?|"
    r"refunds?|shares?|sells?|allows?|requires?|qualif(?:y|ies)|"
    r"earns?)\b|支持|适用|接受|提供|收取|参与|享受|公开|加密|开放|收费|生效|包邮|报销"
)
_STATES = (
    "supported|available|refundable|eligible|encrypted|taxable|included|billable|deductible|"
    "transferable|returnable|"
    "public|valid|stored|logged|shared|covered|applicable|cached|compressed|unique|final|free"
)
_IS_STATE = re.compile(rf"\b{_IS} (?=(?:\w+ly )?(?:{_STATES}|\w{{3,}}(?:ed|en))\b)")
_POLAR_AGAIN = re.compile(
    r"\bnot\b|n't\b|\bnever\b|\bno\b|\bunless\b|\bonly\b|不|未|无|仅|只有|除非"
)
MAX_POLAR_WORDS: Final = 14


def polar(text: str) -> Iterator[Found]:
    """Yield what a short folded clause permits, demands, switches on or denies.

    One that says so twice, or but for a case, is left alone; one with a single other word needs a
    subject.
    """
    for pattern, attribute, value in _POLAR:
        match = pattern.search(text)
        if match:
            rest = f"{text[: match.start()]} {text[match.end() :]}"
            # `cannot` and `must` answer one question, `must` and `need not` another.
            left = len(words(rest))
            if 1 <= left <= MAX_POLAR_WORDS and not _POLAR_AGAIN.search(rest):
                yield Found(f"polar:{attribute}", value, rest, event=left < 2)
                if (attribute, value) == ("require", "yes"):
                    yield Found("polar:permit", "yes", rest, event=left < 2)
            return
    for pattern, attribute in ((_IS_STATE, "is"), (_DOES, "does")):
        match = pattern.search(text)
        if match and 2 <= len(words(text)) <= MAX_POLAR_WORDS:
            rest = f"{text[: match.start()]} {text[match.end() :]}" if attribute == "is" else text
            yield Found(f"polar:{attribute}", "yes", rest)
            return


# --- one of a set

_CADENCE = (
    "hourly|daily|weekly|biweekly|monthly|quarterly|yearly|annually|every day|every week|"
    "every month|every hour|"
    "每小时|每日|每天|每周|每月|每季度|每年"
)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SETS: Final = {
    "state": "paid|placed|shipped|delivered|completed|settled|invoiced|booked",
    "net": "gross|net",
    "cadence": _CADENCE,
    "order": "ascending|descending|升序|降序",
    "access": "public|private|公开|私有",
    "mode": "manually|manual|automatically|automatic|手动|自动|人工",
    "liking": "loves?|likes|enjoys?|adores?|hates?|dislikes?|detests?|"
    "喜欢|喜爱|热爱|讨厌|厌恶|反感",
    "weekday": f"{'|'.join(_DAYS)}|周[一二三四五六日]|星期[一二三四五六日]",
    "zone": r"(?:asia|europe|america)/\w+|utc|gmt|cst|pst|est|local time|北京时间|当地时间",
}
_SAME_LINES: Final = """
likes: love loves enjoy enjoys adore adores 喜欢 喜爱 热爱
hates: hate dislike dislikes detest detests 讨厌 厌恶 反感
daily: 每日 每天 every_day
weekly: 每周 every_week
monthly: 每月 every_month
hourly: 每小时 every_hour
quarterly: 每季度
yearly: 每年 annually
ascending: 升序
descending: 降序
public: 公开
private: 私有
manual: manually 手动 人工
automatic: automatically 自动
local time: 当地时间
cst: 北京时间
"""
_SAME: Final[dict[str, str]] = {
    other.replace("_", " "): name
    for name, _, others in (line.partition(":") for line in _SAME_LINES.strip().splitlines())
    for other in others.split()
} | {
    f"{week}{day}": name
    for week in ("周", "星期")
    for day, name in zip("一二三四五六日", _DAYS, strict=True)
}
_SET = {
    name: re.compile(
        "|".join(rf"\b(?:{word})s?\b" if word.isascii() else word for word in pattern.split("|"))
    )
    for name, pattern in _SETS.items()
}


_LETTERS = re.compile("[a-z]+")
_MEMBERS: Final = [
    word for pattern in _SETS.values() for word in re.sub(r"[()?:]|/\\w\+", "", pattern).split("|")
]
_IN_SETS: Final = frozenset(
    f"{word.split()[0]}{s}" for word in _MEMBERS if word.isascii() for s in ("", "s")
)
"""Words that the words of a set begin with: a clause without one of them uses none."""
_IN_SETS_ZH = re.compile("|".join(word for word in _MEMBERS if not word.isascii()))


_BASIS = re.compile(
    r"\b(?:calculated|computed|measured|counted|based) (?:by|on|per)(?: the)? "
    r"(?P<en>[a-z]+(?: [a-z]+){0,2})$|"
    r"按照?(?P<zh>[^\s,，。按]{1,10}?)(?:来)?(?:计算|统计|核算|计价|计费)"
)
_ORDINAL = re.compile(r"\b(\d{1,3})(?:st|nd|rd|th)\b|(?:\bday |第)(\d{1,3})\b")
_DENIED = re.compile(r"\bnot\b|n't\b|\bnever\b|不|非|未")


def opposites(text: str) -> Iterator[Found]:
    """Yield which word of a set a short clause uses; the rest of it has to agree to the word."""
    if _IN_SETS.isdisjoint(_LETTERS.findall(text)) and (
        text.isascii() or not _IN_SETS_ZH.search(text)
    ):
        return
    for name, pattern in _SET.items():
        found: list[str] = pattern.findall(text)
        if (
            len(found) == 1
            and not _DENIED.search(text)
            and 2 <= len(words(text)) <= MAX_POLAR_WORDS
        ):
            day = found[0].removesuffix("s")
            word = day if day in _DAYS else found[0]
            yield Found(f"one:{name}", _SAME.get(word, word), pattern.sub(" ", text))


def bases(text: str) -> Iterator[Found]:
    """Yield what a clause says something is calculated by, and which of a sequence it names."""
    basis = _BASIS.search(text)
    if basis:
        value = " ".join(words(basis["en"] or basis["zh"]))
        yield Found("one:basis", value, text[: basis.start()])
    ordinals: list[tuple[str, str]] = _ORDINAL.findall(text)
    if len(ordinals) == 1:
        yield Found("one:ordinal", "".join(ordinals[0]), _ORDINAL.sub(" ", text), event=True)
