"""What one clause claims: a default, an inclusion, a formula, quantities, a permission, one of a
set of opposites.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ctx_pipeline.claims.inclusion import inclusions
from ctx_pipeline.claims.polar import bases, opposites, polar
from ctx_pipeline.claims.quantities import Quantity, quantities
from ctx_pipeline.claims.sentences import Found
from ctx_pipeline.claims.words import QUANTITY, words


def clause_claims(text: str, *, defining: bool) -> Iterator[Found]:
    """Yield the claims of a folded clause. `defining`: its item says what one subject is, so that
    few words will do.
    """
    yield from bases(text)
    default = _default(text)
    if default is not None:
        yield default
        return
    included = list(inclusions(text, defining=defining))
    if included:
        yield from included
        yield from (found for found in polar(text) if found.attribute in _MODAL)
        yield from _quantified(text)
        return
    formula = _formula(text)
    if formula is not None:
        yield formula
        return
    quantified = list(_quantified(text))
    yield from quantified
    if not quantified:
        yield from polar(text)
    if all((found.attribute, found.value) == ("quantity:times", "1~0") for found in quantified):
        yield from opposites(text)


_MODAL: Final = ("polar:require", "polar:permit")


# --- defaults

_DEFAULT = re.compile(
    # "the timeout defaults to 30 s", "the default value is 5"
    r"\b(?:defaults? to|defaults?(?: value| setting)?(?: of)?\s*(?:is|:|=|was set to|is set to)"
    r"|is by default|by default is)\s+(?P<en>.+)$"
    # 默认值为 5
    r"|(?:默认值?|缺省值?)(?:设置|设定)?\s*(?:为|是|:|=)?\s*(?P<zh>.+)$"
)
_DEFAULT_OF = re.compile(  # "the default of the timeout is 30 s"
    r"^(?:the )?default (?:value |setting )?(?:of|for) (?P<what>.+?) (?:is|was)(?: set to)? "
    r"(?P<en>.+)$"
)
_BY_DEFAULT = re.compile(  # "the timeout is 30 by default"
    r"^(?P<what>.+?) (?:is|are|stays?|remains?)(?: set to)? (?P<en>\S+) by default(?P<more>\s.+)?$"
)
_DEFAULT_FIRST = re.compile(  # "by default, the timeout is 30"
    r"^(?:by default|默认情况下|默认)\s*,?\s*(?P<what>.+?)\s*(?:is|are|为|是)\s*(?:set to )?"
    r"(?P<en>\S+)$"
)
_DEFAULT_NAMED = re.compile(
    # "the default timeout is 30"
    r"^(?P<pre>.*?)\bdefault (?P<what>(?!value|setting)[a-z][a-z -]{1,40}?) ?(?:is|are|=)"
    r"(?: set to)? (?P<en>\S+)$"
    # 默认超时为 30
    r"|^(?P<before>.{0,12}?)(?:的)?默认(?P<named>[^为是=]{1,12}?)\s?(?:为|是|=)\s?(?P<zh>\S+)$"
)
_DEFAULT_WITH = re.compile(r"默认(?:以|使用|采用|用)\s?(?P<zh>[a-z0-9][a-z0-9./_+-]*)")
_YES: Final = frozenset(
    ["on", "true", "yes", "enabled", "enable", "1", "开启", "打开", "启用", "是", "开"]
)
_NO: Final = frozenset(
    ["off", "false", "no", "disabled", "disable", "0", "关闭", "禁用", "停用", "否", "关"]
)


def _default(text: str) -> Found | None:
    if "default" not in text and "默认" not in text and "缺省" not in text:
        return None
    for pattern in (_DEFAULT_OF, _BY_DEFAULT, _DEFAULT_FIRST):
        match = pattern.match(text)
        if match:
            value = _setting(match["en"])
            more = match.groupdict().get("more") or ""
            return None if value is None else Found("default", value, match["what"] + more)
    used = _DEFAULT_WITH.search(text)
    if used:
        return Found("default", used["zh"], f"{text[: used.start()]} {text[used.end() :]}")
    named = _DEFAULT_NAMED.match(text)
    if named:
        value = _setting(named["en"] or named["zh"])
        about = " ".join(
            filter(None, (named["pre"], named["before"], named["what"], named["named"]))
        )
        return None if value is None else Found("default", value, about)
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


# --- formulas

_IS = (
    r"(?:\s*(?:=|:=|≈)\s*|"
    r"\s+(?:equals|is (?:calculated|computed|defined|measured|given) (?:as|by)|means|is)\s+|"
    r"\s*(?:等于|的?计算公式(?:为|是)|(?:按|按照)?计算为|定义为|的?公式(?:为|是)|为|是)\s*)"
)
_FORMULA = re.compile(rf"^(?P<what>[^=]{{1,60}}?){_IS}(?P<right>.+)$")
_DIVIDED = re.compile(
    r"^用?(?P<right>.{1,30}?除以.{1,30}?)(?:就|即)?(?:得到|得出|等于|就是|是)(?P<what>.{1,40})$"
)
_DEFINED = re.compile(
    r"^(?:we |they |the team )?(?:defines?|calculates?|computes?|measure) (?P<what>.{1,60}?) "
    r"(?:as|by|with) "
    r"(?P<right>.+)$"
)
_OPERATORS: Final = (
    (re.compile(r"^(?:the )?ratio of (.+?) to (.+)$"), r"\1 / \2"),
    (re.compile(r"^(.+?)(?:与|和)(.+?)之比$"), r"\1 / \2"),
    (
        re.compile(
            r"\s+(?:divided by|over(?! (?:an? |the )?(?:last |past )?\d)|as a share of)\s+|"
            r"\s*除以\s*|"
            r"\s*÷\s*"
        ),
        "/",
    ),
    (re.compile(r"\s+(?:multiplied by|times)\s+|\s*乘以?\s*|\s*[×]\s*"), "*"),
    (re.compile(r"\s+(?:plus)\s+|\s*(?:加上|加)\s*"), "+"),
    (re.compile(r"\s+(?:minus|less)\s+|\s*(?:减去|减)\s*"), "-"),
)
_SPLIT = re.compile(r"(?<!\w)([-+*/])(?!\w)|(?<=\s)([-+*/])(?=\s)|([/*+])")
_CODE = re.compile(r"[a-z_]+\s*\(|[a-z]+_[a-z_]+|\bfilter\b")


def described_formula(text: str) -> str | None:
    """Return the formula that a description without a name is, `revenue divided by orders`; None if
    it is none.
    """
    found = None if quantities(text) or _formula(text) else _formula(f"x = {text}")
    return (
        found.value
        if found is not None and found.attribute == "formula:words" and not found.event
        else None
    )


def _formula(text: str) -> Found | None:
    match = _DEFINED.match(text) or _DIVIDED.match(text) or _FORMULA.match(text)
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
        right = pattern.sub(sign if "\\" in sign else f" {sign} ", right)
    parts = [part for part in _SPLIT.split(right) if part]
    signs = [part for part in parts if part in ("+", "-", "*", "/")]
    operands = [_operand(part) for part in parts if part not in ("+", "-", "*", "/")]
    if signs and len(operands) == len(signs) + 1 and all(operands):
        if set(signs) <= {"+"} or set(signs) <= {"*"}:
            operands.sort()
        value = "".join(part for pair in zip(operands, [*signs, ""], strict=True) for part in pair)
        return Found("formula:words", value, match["what"])
    if (
        written
        and not signs
        and len(operands) == 1
        and operands[0]
        and not quantities(right)
        and len(right) <= 40
    ):
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
    """Return an expression without what does not change it: case, white space, quotes around it,
    its spelling.
    """
    code = "".join(text.lower().split()).strip("`")
    for pattern, plain in _WRITTEN_OTHERWISE:
        code = pattern.sub(plain, code)
    return code


def _operand(text: str) -> str:
    """Return an operand as its words in a fixed order; how many of a thing is the thing."""
    named = [word for word in words(text) if word[0] != "~"] or text.split()
    return " ".join(sorted({word for word in named if word != "quantity"} or set(named)))


# --- quantities

_ABOUT = re.compile(
    r"(?:about|around|approximately|approx\.?|roughly|nearly|almost|some|circa|ca\.|close to|"
    r"an estimated|"
    r"约|约莫|大约|大概|大致|估计|差不多|近|将近|接近|~|\u2248)\s*$"
)
_OR_SO = re.compile(
    r"\s?(?:or so|or thereabouts|more or less|give or take|左右|上下|前后|出头|开外)"
)
_LEAST = re.compile(
    r"(?:at least|no less than|not less than|a minimum of|minimum of|至少|最少|不少于|不低于)\s*$"
)
_ABOVE = re.compile(
    r"(?:more than|over|above|exceeds?|exceeding|greater than|larger than|>|超过|高于|大于|满)\s*$"
)
_BY = re.compile(r"\bby\s*$|(?:增加|减少|增长|下降|上升|提高|降低|缩短|延长)了?\s*$")
_BELOW = re.compile(r"(?:less than|under|below|fewer than|smaller than|<|低于|少于|小于|不足)\s*$")
_COUNTED = re.compile(
    r"(?:step|section|chapter|page|version|phase|level|figure|table|line|item|no\.?|number|#|"
    r"part|day|week|v|top|第)\s*$"
)
MAX_BEFORE_CHARS: Final = 32
_ONES: Final = frozenset({"1~1", "1~0"})


def _quantified(text: str) -> Iterator[Found]:
    found = quantities(text)
    values = [q for q in found if q.dimension not in ("year", "date") and not _skipped(q, text)]
    if not values:
        if len(found) == 1 and found[0].dimension == "date":
            yield Found("quantity:date", found[0].value, _without(text, found), more=())
        return
    if len(values) == 2 and _RAISED.match(text[values[0].end : values[1].start]):
        values = values[1:]
        found = [q for q in found if q.end <= values[0].end and q.start >= values[0].start]
    if len(values) > 3:
        return
    dates = tuple(f"@{q.value}" for q in found if q.dimension in ("year", "date"))
    event = bool(_ONCE.search(text))
    for one in values:
        others = tuple(
            f"{q.dimension}={q.value}"
            for q in found
            if q is not one and q.dimension not in ("year", "date")
        )
        more = (*_bound(one, text), *others, *dates)
        yield Found(
            f"quantity:{one.dimension}", one.value, _without(text, found), more=more, event=event
        )


_RAISED = re.compile(
    r"^\s*(?:提高|上调|增加|降低|下调|减少|调整|修改|改)?(?:到|至|为|成)\s*$|"
    r"^\s*(?:up |down )?to\s*$"
)
"""Between an old value and the new one."""
_ONCE = re.compile(r"\b(?:was|were|did|had|has been|have been)\b")


def _skipped(found: Quantity, text: str) -> bool:
    before = _before(found, text)
    plain = found.dimension == "number"
    vague = _ABOUT.search(before) or _OR_SO.match(text, found.end)
    return bool(vague) or (plain and (bool(_COUNTED.search(before)) or found.value in _ONES))


def _before(found: Quantity, text: str) -> str:
    """Return what stands right before a quantity: more than any pattern of it
    takes, blanks aside.
    """
    return text[: found.start].rstrip()[-MAX_BEFORE_CHARS:]


def _bound(found: Quantity, text: str) -> tuple[str, ...]:
    before, after = _before(found, text), text[found.end :]
    if _LEAST.search(before):
        return ("#least",)
    if _ABOVE.search(before) or after.startswith("以上"):
        return ("#above",)
    if _BY.search(before):
        return ("#by",)
    if _BELOW.search(before) or after.startswith("以下"):
        return ("#below",)
    return ()


_BOUNDS = re.compile(
    r"\b(?:at least|no less than|not less than|no more than|not more than|at most|up to|"
    r"a maximum of|a minimum of|"
    r"more than|less than|fewer than|greater than|within|over|under|above|below|"
    r"exceed(?:s|ing)?)\b|"
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
