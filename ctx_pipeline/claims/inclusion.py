"""What a clause says is part of something, or left out of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ctx_pipeline.claims.sentences import Found
from ctx_pipeline.claims.words import words

_IN = "|".join(
    (
        *("includ(?:es?|ed|ing)", "contain(?:s|ed|ing)?", "counts? in", "covers?"),
        *("(?:(?:is|are) )?inclusive of", "gross of"),
        # "measured before discounts": they are in it
        *("before deduct(?:ing|ion of)", "(?:measured|reported|counted) before"),
        *("takes? in", "adds? in", "counts"),
    )
)
_OUT = "|".join(
    (
        *("exclud(?:es?|ed|ing)", "omits?", "leaves? out"),
        *("(?:(?:is|are) )?exclusive of", "net of"),
        *("after deduct(?:ing|ion of)", "(?:measured|reported|counted) after"),
        *("deducts?", "subtracts?", "removes?", "minus", "ignores?", "strips? out", "without"),
    )
)
_OUT_PASSIVE = (
    r"excluded|deducted|subtracted|removed|left out|omitted|netted out|ignored|stripped out"
)
_NOT = (
    r"(?:(?:does|do|did|is|are|was|were|has|have|should|must|will|can)(?: not|n't)"
    r"|never|no longer|not|cannot)"
)
_NOT_BEFORE = r"(?P<not>not |never |no longer |(?:isn't|aren't) )?"
_BE = r"(?:is|are|was|were|get|be|being|will be|must be|should be)"
_ACTIVE = re.compile(  # "GMV does not include the refunds"
    rf"^(?P<what>.*?)\b(?:(?P<not>{_NOT})\s+)?(?:(?P<in>{_IN})|(?P<out>{_OUT}))\b"
    r"(?: the| any| all| its)?\s+(?P<object>.+)$"
)
_PASSIVE = re.compile(  # "refunds are excluded from GMV"
    rf"^(?P<object>.+?)\s+(?:{_BE}\s+)?{_NOT_BEFORE}"
    rf"(?:(?P<in>included|counted|counted in)|(?P<out>{_OUT_PASSIVE}))\b"
    r"(?:\s+(?:in|from|of|out of|into|toward|towards|as part of)\s+(?P<what>.+))?$"
)
_COUNT = re.compile(  # "refunds do not count toward GMV"
    rf"^(?P<object>.+?)\s+(?P<not>{_NOT}\s+)?(?:count|counts|go|goes)\s+"
    r"(?:toward|towards|into|as part of|in)\s+(?P<what>.+)$"
)
_PART = re.compile(  # "refunds are no longer part of GMV"
    r"^(?P<object>.+?)\s+(?:is|are|was|were)\s+(?P<not>not |no longer )?"
    r"(?P<in>(?:a )?part of)\s+(?P<what>.+)$"
)
_WITH = re.compile(  # "GMV without refunds"
    r"^(?P<what>\S+(?: \S+){0,3}?) (?:(?P<in>with)|(?P<out>without)) (?P<object>\S+(?: \S+)?)$"
)
_BEFORE = re.compile(  # "revenue before tax"
    r"^(?P<what>[a-z]+(?: \S+){0,4}?) (?:(?P<in>before)|(?P<out>after)) "
    r"(?P<object>(?:any |all |the )?[a-z]+(?: [a-z]+){0,3})$"
)
_ZH_NOT = "(?P<not>不应|不再|不会|不|未|没有|没|并不|并未|从不)?"
_ZH_ACTIVE = re.compile(
    rf"^(?P<what>.*?){_ZH_NOT}(?:(?P<in>包含|包括|计入|算上|算入|算进|纳入|含|中有|里有)|"
    r"(?P<out>剔除|扣除|排除|去除|除去|减去|扣减|去掉|不计|中没有|里没有))(?:了|有|所有|全部|任何)?"
    r"(?P<object>[^的]{1,16}?)(?:的?(?:金额|部分|订单|在内|后|之后|款项|数据))?$"
)
_ZH_PASSIVE = re.compile(
    r"^(?!.*(?:统计|计算|核算|时)不?(?:计入|算入|算进|纳入))"
    rf"(?P<object>\S{{1,12}}?)(?:金额|部分|款项)?{_ZH_NOT}(?:被|会|要|需|均|都|也|应)?"
    r"(?:(?P<in>计入|算入|算进|纳入|包含在|包括在|算在|属于)|(?P<out>从.{1,12}(?:扣除|剔除|排除)))"
    r"(?P<what>[^,，]{0,14}?)(?:内|中|之内|里)?$"
)
_PARTS: Final = (
    *(
        "includ",
        "contain",
        "count",
        "cover",
        "inclus",
        "gross",
        "before",
        "take",
        "add",
        "part of",
        "go",
    ),
    *(
        "exclud",
        "omit",
        "leave",
        "left",
        "exclus",
        "net",
        "after",
        "deduct",
        "subtract",
        "remove",
        "minus",
    ),
    *("ignore", "strip", "with"),
)
"""One of these stands in whatever the patterns of English find."""
_PARTS_OF_BOTH: Final = (*"包含计算纳有除减去属", *_PARTS)
_AND: Final = re.compile(r"\s+(?:and|or|nor|as well as|&)\s+|\s*[、/]\s*|和|与|及|以及|或")
_STOP_OBJECT = re.compile(
    r"\b(?:in|at|for|on|since|when|if|because|which|that|as|from|by|due|per|under|until|before|"
    r"after)\b.*$"
)
_NONE = re.compile(r"^(?:no|none of(?: the)?)\s+")
_GENERIC: Final = frozenset(
    {
        "order",
        "amount",
        "product",
        "transaction",
        "quantity",
        "part",
        "fee",
        "sale",
        "total",
        "cost",
    }
)
_PRONOUNS: Final = frozenset(
    [
        "it",
        "them",
        "they",
        "this",
        "these",
        "those",
        "everything",
        "nothing",
        "all",
        "both",
        "它",
        "其",
    ]
)


MAX_ABOUT_WORDS: Final = 8
"""Words before the verb above which a clause says more than what includes what."""


def inclusions(text: str, *, defining: bool) -> Iterator[Found]:
    """Yield what a folded clause includes or leaves out, one claim each.

    `defining`: what includes it may be left unsaid, and `with` and `without` will do.
    """
    if not any(part in text for part in (_PARTS if text.isascii() else _PARTS_OF_BOTH)):
        return
    head, mark, tail = text.partition(" = ")
    if mark:
        text, before = tail, f"{head} "
    else:
        before = ""
    patterns = (
        [_PART, _PASSIVE, _COUNT, _ACTIVE]
        if text.isascii()
        else [_PASSIVE, _ACTIVE, _ZH_PASSIVE, _ZH_ACTIVE]
    )
    if defining and text.isascii():
        patterns += [_WITH, _BEFORE]
    for pattern in patterns:
        match = pattern.match(text)
        if match is None:
            continue
        groups = match.groupdict()
        left_out = (bool(groups.get("out")) != bool(groups.get("not"))) != bool(
            _NONE.match(match["object"])
        )
        about = before + (match["what"] or "")
        if len(words(about)) > MAX_ABOUT_WORDS or (not defining and not about.strip()):
            return
        stop = _STOP_OBJECT.search(match["object"])
        if stop:
            about = f"{about} {stop.group()}"
        listed = _NONE.sub("", _STOP_OBJECT.sub("", match["object"]))
        objects = [_object(part) for part in _AND.split(listed)]
        for thing in objects:
            if thing:
                yield Found("include", "no" if left_out else "yes", about, thing)
        return


def _object(text: str) -> str:
    """Return what is included as its words; nothing for a pronoun or a whole sentence."""
    named = [word for word in words(text) if word[0] != "~" and word not in _PRONOUNS]
    telling = [word for word in named if word not in _GENERIC] or named
    return " ".join(telling) if 0 < len(telling) <= 4 and not re.search(r"\d", text) else ""
