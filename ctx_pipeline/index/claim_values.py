"""What one clause claims: a default, an inclusion, a formula, quantities, a permission, one of a set of opposites."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ctx_pipeline.index.claim_words import QUANTITY, words
from ctx_pipeline.index.quantities import Quantity, quantities


@dataclass(frozen=True, slots=True)
class Found:
    """A claim of a clause; `about` and `object` are text, `more` are words of the kind of value."""

    attribute: str
    value: str
    about: str
    object: str = ""
    more: tuple[str, ...] = ()
    event: bool = False
    """It tells what happened once: it contradicts others only about a subject that both name."""


def clause_claims(text: str, *, defining: bool) -> Iterator[Found]:
    """Yield the claims of a folded clause. `defining`: its item says what one subject is, so that few words will do."""
    default = _default(text)
    if default is not None:
        yield default
        return
    included = list(_inclusions(text, defining=defining))
    if included:
        yield from included
        return
    formula = _formula(text)
    if formula is not None:
        yield formula
        return
    quantified = list(_quantified(text))
    yield from quantified
    if not quantified:
        yield from _polar(text)
        yield from _opposites(text)


# --- defaults

_DEFAULT = re.compile(
    r"\b(?:defaults? to|default(?:s)?(?: value| setting)?(?: of)?\s*(?:is|:|=|was set to|is set to)|is by default|by default(?: is)?)\s+"
    r"(?P<en>.+)$|(?:默认值?|缺省值?)(?:设置|设定)?\s*(?:为|是|:|=)?\s*(?P<zh>.+)$"
)
_DEFAULT_OF = re.compile(
    r"^(?:the )?default (?:value |setting )?(?:of|for) (?P<what>.+?) (?:is|was)(?: set to)? (?P<en>.+)$"
)
_BY_DEFAULT = re.compile(r"^(?P<what>.+?) (?:is|are|stays?|remains?)(?: set to)? (?P<en>\S+) by default$")
_DEFAULT_FIRST = re.compile(r"^(?:by default|默认情况下|默认)\s*,?\s*(?P<what>.+?)\s*(?:is|are|为|是)\s*(?:set to )?(?P<en>\S+)$")
_YES: Final = frozenset(["on", "true", "yes", "enabled", "enable", "1", "开启", "打开", "启用", "是", "开"])
_NO: Final = frozenset(["off", "false", "no", "disabled", "disable", "0", "关闭", "禁用", "停用", "否", "关"])


def _default(text: str) -> Found | None:
    if "default" not in text and "默认" not in text and "缺省" not in text:
        return None
    for pattern in (_DEFAULT_OF, _BY_DEFAULT, _DEFAULT_FIRST):
        match = pattern.match(text)
        if match:
            value = _setting(match["en"])
            return None if value is None else Found("default", value, match["what"])
    match = _DEFAULT.search(text)
    if match is None:
        return None
    value = _setting(match["en"] or match["zh"])
    about = text[: match.start()]
    return None if value is None or not about.strip() else Found("default", value, about)


def _setting(written: str) -> str | None:
    """Return a value as it is compared: a quantity, yes or no, else one word."""
    written = written.strip(" .。\"'`“”「」")
    found = quantities(written)
    if found and found[0].start == 0 and len(found) == 1 and found[0].end >= len(written) - 12:
        return f"{found[0].dimension}={found[0].value}"
    word = re.match(r"[\w./+-]+", written)
    if word is None:
        return None
    value = word.group().rstrip(".")
    if len(written) - len(value) > 24 or len(value) > 40:
        return None
    return "yes" if value in _YES else "no" if value in _NO else value


# --- what is included

_IN = (
    r"includ(?:es?|ed|ing)|contain(?:s|ed|ing)?|counts? in|covers?|(?:is|are) inclusive of|inclusive of|gross of|before deducting|"
    r"takes? in|adds? in|counts"
)
_OUT = (
    r"exclud(?:es?|ed|ing)|omits?|leaves? out|(?:is|are)? ?exclusive of|net of|after deducting|deducts?|subtracts?|"
    r"removes?|minus|ignores?|strips? out|without"
)
_NOT = r"(?:(?:does|do|did|is|are|was|were|has|have|should|must|will|can)(?: not|n't)|never|no longer|not|cannot)"
_ACTIVE = re.compile(
    rf"^(?P<what>.*?)\b(?:(?P<not>{_NOT})\s+)?(?:(?P<in>{_IN})|(?P<out>{_OUT}))\b(?: the| any| all| its)?\s+(?P<object>.+)$"
)
_PASSIVE = re.compile(
    r"^(?P<object>.+?)\s+(?:(?:is|are|was|were|get|be|being|will be|must be|should be)\s+)?(?P<not>not |never |no longer |(?:isn't|aren't) )?"
    r"(?:(?P<in>included|counted|counted in)|(?P<out>excluded|deducted|subtracted|removed|left out|omitted|netted out|ignored|stripped out))"
    r"\b(?:\s+(?:in|from|of|out of|into|toward|towards|as part of)\s+(?P<what>.+))?$"
)
_COUNT = re.compile(
    rf"^(?P<object>.+?)\s+(?P<not>{_NOT}\s+)?(?:count|counts|go|goes)\s+(?:toward|towards|into|as part of|in)\s+(?P<what>.+)$"
)
_PART = re.compile(rf"^(?P<object>.+?)\s+(?:is|are|was|were)\s+(?P<not>not |no longer )?(?P<in>(?:a )?part of)\s+(?P<what>.+)$")
_WITH = re.compile(r"^(?P<what>\S+(?: \S+){0,3}?) (?:(?P<in>with)|(?P<out>without)) (?P<object>\S+(?: \S+)?)$")
_ZH_ACTIVE = re.compile(
    r"^(?P<what>.*?)(?P<not>不应|不再|不会|不|未|没有|没|并不|并未|从不)?(?:(?P<in>包含|包括|计入|算上|算入|算进|纳入|含)|"
    r"(?P<out>剔除|扣除|排除|去除|除去|减去|扣减|去掉|不计))(?:了|有|所有|全部|任何)?(?P<object>[^的]{1,16}?)(?:的?(?:金额|部分|订单|在内|后|之后|款项|数据))?$"
)
_ZH_PASSIVE = re.compile(
    r"^(?P<object>\S{1,12}?)(?:金额|部分|款项)?(?P<not>不应|不再|不会|不|未|没有|并不|并未)?(?:被|会|要|需|均|都|也|应)?"
    r"(?:(?P<in>计入|算入|算进|纳入|包含在|包括在|算在)|(?P<out>从.{1,12}(?:扣除|剔除|排除)))(?P<what>[^,，]{0,14}?)(?:内|中|之内|里)?$"
)
_AND: Final = re.compile(r"\s+(?:and|or|nor|as well as|&)\s+|\s*[、/]\s*|和|与|及|以及|或")
_STOP_OBJECT = re.compile(
    r"\b(?:in|at|for|on|since|when|if|because|which|that|as|from|by|due|per|under|until|before|after)\b.*$"
)
_GENERIC: Final = frozenset({"order", "amount", "product", "transaction", "quantity", "part", "fee", "sale", "total"})
_PRONOUNS: Final = frozenset(
    ["it", "them", "they", "this", "these", "those", "everything", "nothing", "all", "both", "它", "其"]
)


def _inclusions(text: str, *, defining: bool) -> Iterator[Found]:
    patterns = [_PART, _PASSIVE, _COUNT, _ACTIVE] if text.isascii() else [_PASSIVE, _ACTIVE, _ZH_PASSIVE, _ZH_ACTIVE]
    if defining and text.isascii():
        patterns.append(_WITH)
    for pattern in patterns:
        match = pattern.match(text)
        if match is None:
            continue
        groups = match.groupdict()
        left_out = bool(groups.get("out")) != bool(groups.get("not"))
        about = match["what"] or ""
        if len(words(about)) > 8 or (not defining and not about.strip()):
            return
        stop = _STOP_OBJECT.search(match["object"])
        if stop:
            about = f"{about} {stop.group()}"
        objects = [_object(part) for part in _AND.split(_STOP_OBJECT.sub("", match["object"]))]
        for thing in objects:
            if thing:
                yield Found("include", "no" if left_out else "yes", about, thing)
        return


def _object(text: str) -> str:
    """Return what is included as its words; nothing for a pronoun or a whole sentence."""
    named = [word for word in words(text) if word[0] != "~" and word not in _PRONOUNS]
    telling = [word for word in named if word not in _GENERIC] or named
    return " ".join(telling) if 0 < len(telling) <= 4 and not re.search(r"\d", text) else ""


# --- formulas

_IS = r"(?:\s*(?:=|:=|≈)\s*|\s+(?:equals|is (?:calculated|computed|defined|measured|given) (?:as|by)|is the ratio of|means|is)\s+|\s*(?:等于|的?计算公式(?:为|是)|(?:按|按照)?计算为|定义为|的?公式(?:为|是)|为|是)\s*)"
_FORMULA = re.compile(rf"^(?P<what>[^=]{{1,60}}?){_IS}(?P<right>.+)$")
_DEFINED = re.compile(
    r"^(?:we |they |the team )?(?:define|defines|calculate|calculates|compute|computes|measure) (?P<what>.{1,60}?) (?:as|by|with) (?P<right>.+)$"
)
_OPERATORS: Final = (
    (re.compile(r"\s+(?:divided by|over|as a share of)\s+|\s*除以\s*|\s*÷\s*"), "/"),
    (re.compile(r"\s+(?:multiplied by|times)\s+|\s*乘以?\s*|\s*[×]\s*"), "*"),
    (re.compile(r"\s+(?:plus)\s+|\s*(?:加上|加)\s*"), "+"),
    (re.compile(r"\s+(?:minus|less)\s+|\s*(?:减去|减)\s*"), "-"),
)
_SPLIT = re.compile(r"(?<!\w)([-+*/])(?!\w)|(?<=\s)([-+*/])(?=\s)|([/*+])")
_CODE = re.compile(r"[a-z_]+\s*\(|[a-z]+_[a-z_]+|\bfilter\b")


def _formula(text: str) -> Found | None:
    match = _DEFINED.match(text) or _FORMULA.match(text)
    if match is None:
        return None
    right = match["right"].strip(" .。")
    written = "=" in text[: match.start("right")]
    literal = _LITERAL.match(right)
    if literal:
        return Found("formula:literal", literal[1], match["what"])
    if _CODE.search(right) and re.search(r"[(/*+]|\s-\s", right):
        return Found("formula:code", plain_code(right), match["what"])
    for pattern, sign in _OPERATORS:
        right = pattern.sub(f" {sign} ", right)
    parts = [part for part in _SPLIT.split(right) if part]
    signs = [part for part in parts if part in ("+", "-", "*", "/")]
    operands = [_operand(part) for part in parts if part not in ("+", "-", "*", "/")]
    if signs and len(operands) == len(signs) + 1 and all(operands):
        if set(signs) <= {"+"} or set(signs) <= {"*"}:
            operands.sort()
        value = "".join(part for pair in zip(operands, [*signs, ""], strict=True) for part in pair)
        return Found("formula:words", value, match["what"])
    if written and not signs and len(operands) == 1 and operands[0] and not quantities(right) and len(right) <= 40:
        return Found("formula:words", operands[0], match["what"], event=True)
    return None


_LITERAL = re.compile(r"^['\"`“]([\w][\w .-]{0,30})['\"`”]$")
_WRITTEN_OTHERWISE: Final = (
    (re.compile(r"sum_boolean\(([^()]+)\)"), r"sum(casewhen\1then1else0end)"),
    (re.compile(r"median\(([^()]+)\)"), r"percentile(\1)[agg_params.percentile=0.5]"),
    (re.compile(r"count\((?!distinct)([a-z_][\w.]*)\)"), r"sum(casewhen\1isnotnullthen1else0end)"),
    (re.compile(r"group_by="), ""),
    (re.compile(r'"'), "'"),
)
"""Two spellings of one aggregation, as dbt's semantic manifests of two generations have them."""


def plain_code(text: str) -> str:
    """Return an expression without what does not change it: case, white space, quotes around it, its spelling."""
    code = "".join(text.lower().split()).strip("`")
    for pattern, plain in _WRITTEN_OTHERWISE:
        code = pattern.sub(plain, code)
    return code


def _operand(text: str) -> str:
    """Return an operand as its words in a fixed order; how many of a thing is the thing."""
    named = [word for word in words(text) if word[0] != "~"] or text.split()
    return " ".join(sorted({word for word in named if word != "quantity"} or set(named)))


# --- quantities

_ABOUT = re.compile(r"(?:about|around|approximately|roughly|nearly|almost|some|circa|约|大约|大概|近|将近|~)\s*$")
_LEAST = re.compile(r"(?:at least|no less than|not less than|a minimum of|minimum of|至少|最少|不少于|不低于)\s*$")
_ABOVE = re.compile(r"(?:more than|over|above|exceeds?|exceeding|greater than|larger than|>|超过|高于|大于|满)\s*$")
_BELOW = re.compile(r"(?:less than|under|below|fewer than|smaller than|<|低于|少于|小于|不足)\s*$")
_COUNTED = re.compile(
    r"(?:step|section|chapter|page|version|phase|level|figure|table|line|item|no\.?|number|#|part|day|week|v|top|第)\s*$"
)
_ONES: Final = frozenset({"1~1", "1~0"})


def _quantified(text: str) -> Iterator[Found]:
    found = quantities(text)
    values = [q for q in found if q.dimension not in ("year", "date") and not _skipped(q, text)]
    if not values:
        if len(found) == 1 and found[0].dimension == "date":
            yield Found("quantity:date", found[0].value, _without(text, found), more=())
        return
    if len(values) > 3:
        return
    dates = tuple(f"@{q.value}" for q in found if q.dimension in ("year", "date"))
    event = bool(_ONCE.search(text))
    for one in values:
        others = tuple(
            f"{q.dimension}={q.value}" for q in found if q is not one and q.dimension not in ("year", "date")
        )
        more = (*_bound(one, text), *others, *dates)
        yield Found(f"quantity:{one.dimension}", one.value, _without(text, found), more=more, event=event)


_ONCE = re.compile(r"\b(?:was|were|did|had|has been|have been)\b")


def _skipped(found: Quantity, text: str) -> bool:
    before = text[: found.start]
    plain = found.dimension == "number"
    return bool(_ABOUT.search(before)) or (plain and (bool(_COUNTED.search(before)) or found.value in _ONES))


def _bound(found: Quantity, text: str) -> tuple[str, ...]:
    before, after = text[: found.start], text[found.end :]
    if _LEAST.search(before):
        return ("#least",)
    if _ABOVE.search(before) or after.startswith("以上"):
        return ("#above",)
    if _BELOW.search(before) or after.startswith("以下"):
        return ("#below",)
    return ()


_BOUNDS = re.compile(
    r"\b(?:at least|no less than|not less than|no more than|not more than|at most|up to|a maximum of|a minimum of|"
    r"more than|less than|fewer than|greater than|within|over|under|above|below|exceed(?:s|ing)?)\b|"
    r"至少|最少|不少于|不低于|不超过|最多|至多|超过|高于|大于|低于|少于|小于|以上|以下|满|不足"
)


def _without(text: str, found: list[Quantity]) -> str:
    """Return the text around its quantities."""
    kept: list[str] = []
    at = 0
    for one in found:
        kept.append(text[at : one.start])
        at = one.end
    return _BOUNDS.sub(" ", f" {QUANTITY} ".join([*kept, text[at:]]))


# --- permissions, obligations and facts with their negation

_POLAR: Final = tuple(
    (re.compile(pattern), attribute, value)
    for pattern, attribute, value in (
        (
            r"\b(?:need not|(?:do|does) not (?:need|have) to|(?:is|are) not (?:required|mandatory|necessary|obligatory)|(?:is|are) optional|"
            r"(?:is|are) never required)\b(?: to\b)?|无需|无须|不必|不需要|不强制|可选",
            "require",
            "no",
        ),
        (
            r"\b(?:must not|mustn't|may not|can ?not|can't|shall not|should not|(?:is|are) (?:not|never) (?:allowed|permitted)|(?:is|are) "
            r"(?:forbidden|prohibited|banned|disallowed)|never be)\b(?: to\b)?|不得|禁止|不可以|不能|不允许|严禁|不可|不准",
            "permit",
            "no",
        ),
        (
            r"\b(?:must|(?:has|have|need|needs) to|shall|(?:is|are) (?:required|mandatory|obligatory))\b(?: to\b)?|必须|务必|强制",
            "require",
            "yes",
        ),
        (r"\b(?:may|can|(?:is|are) (?:allowed|permitted))\b(?: to\b)?|可以|允许|准许|能够", "permit", "yes"),
        (
            r"\b(?:is|are) (?:disabled|turned off|switched off|deactivated|inactive)\b|已?(?:禁用|关闭|停用)",
            "enabled",
            "no",
        ),
        (r"\b(?:is|are) (?:enabled|turned on|switched on|activated|active)\b|已?(?:启用|开启|打开)", "enabled", "yes"),
        (r"\b(?:is|are|was|were) (?:not|never|no longer)\b|\b(?:isn't|aren't)\b", "is", "no"),
        (r"\b(?:does|do|did) not\b|\b(?:doesn't|don't|didn't)\b|\bnever\b", "does", "no"),
        (r"\bnon-?(?=[a-z])", "is", "no"),
        (r"不再|不会|不(?=支持|适用|接受|提供|收取|参与|享受|计|退|发|允)|未(?=启用|加密|支持)", "does", "no"),
    )
)
_DOES = re.compile(
    r"\b(?:appl(?:y|ies)|supports?|ships?|accepts?|offers?|charges?|covers?|stores?|logs?|encrypts?|expires?|renews?|"
    r"refunds?|shares?|sells?|allows?|requires?|qualif(?:y|ies)|earns?)\b|支持|适用|接受|提供|收取|参与|享受"
)
_IS_STATE = re.compile(
    r"\b(?:is|are) (?=(?:\w+ly )?(?:supported|available|refundable|eligible|encrypted|taxable|included|billable|deductible|"
    r"transferable|returnable|public|valid|stored|logged|shared|covered|applicable|cached|compressed|unique|final|free)\b)"
)
MAX_POLAR_WORDS: Final = 14


def _polar(text: str) -> Iterator[Found]:
    for pattern, attribute, value in _POLAR:
        match = pattern.search(text)
        if match:
            rest = f"{text[: match.start()]} {text[match.end() :]}"
            # `cannot` and `must` answer one question, `must` and `need not` another.
            if 2 <= len(words(rest)) <= MAX_POLAR_WORDS and not _POLAR_AGAIN.search(rest):
                yield Found(f"polar:{attribute}", value, rest)
                if (attribute, value) == ("require", "yes"):
                    yield Found("polar:permit", "yes", rest)
            return
    for pattern, attribute in ((_IS_STATE, "is"), (_DOES, "does")):
        match = pattern.search(text)
        if match and 2 <= len(words(text)) <= MAX_POLAR_WORDS:
            rest = f"{text[: match.start()]} {text[match.end() :]}" if attribute == "is" else text
            yield Found(f"polar:{attribute}", "yes", rest)
            return


_POLAR_AGAIN = re.compile(r"\bnot\b|n't\b|\bnever\b|\bno\b|\bunless\b|\bonly\b|不|未|无|仅|只有|除非")


# --- one of a set

_SETS: Final = {
    "state": "paid|placed|shipped|delivered|completed|settled|invoiced|booked",
    "net": "gross|net",
    "cadence": "hourly|daily|weekly|biweekly|monthly|quarterly|yearly|annually|every day|every week|every month|every hour|每小时|每日|每天|每周|每月|每季度|每年",
    "order": "ascending|descending|升序|降序",
    "access": "public|private|公开|私有",
    "mode": "manually|manual|automatically|automatic|手动|自动|人工",
    "weekday": "monday|tuesday|wednesday|thursday|friday|saturday|sunday|周一|周二|周三|周四|周五|周六|周日|星期[一二三四五六日]",
    "zone": "utc|gmt|cst|pst|est|local time|北京时间|当地时间",
}
_SAME: Final = {
    "every day": "daily", "每日": "daily", "每天": "daily", "every week": "weekly", "每周": "weekly", "every month": "monthly",
    "每月": "monthly", "every hour": "hourly", "每小时": "hourly", "每季度": "quarterly", "每年": "yearly", "annually": "yearly",
    "升序": "ascending", "降序": "descending", "公开": "public", "私有": "private", "manually": "manual", "手动": "manual",
    "人工": "manual", "automatically": "automatic", "自动": "automatic", "当地时间": "local time", "北京时间": "cst",
    **{zh: en for zh, en in zip(["周一", "周二", "周三", "周四", "周五", "周六", "周日"],
        ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"], strict=True)},
    **{f"星期{zh}": en for zh, en in zip("一二三四五六日",
        ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"], strict=True)},
}  # fmt: skip
_SET = {
    name: re.compile("|".join(rf"\b(?:{word})s?\b" if word.isascii() else word for word in pattern.split("|")))
    for name, pattern in _SETS.items()
}


def _opposites(text: str) -> Iterator[Found]:
    """Yield which word of a set a short clause uses; the rest of it has to agree to the word."""
    for name, pattern in _SET.items():
        found = pattern.findall(text)
        if len(found) == 1 and 2 <= len(words(text)) <= MAX_POLAR_WORDS:
            word = found[0].removesuffix("s") if found[0].removesuffix("s") in _SETS["weekday"] else found[0]
            yield Found(f"one:{name}", _SAME.get(word, word), pattern.sub(" ", text))
