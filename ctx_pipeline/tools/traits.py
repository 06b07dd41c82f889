"""What a tool's definition says beside its words: how risky it is, in which phases it belongs, what
it returns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from ctx_pipeline.tools.words import (
    AMBIGUOUS,
    DESTROYING,
    DESTROYING_ZH,
    READING,
    READING_ZH,
    WRITING,
    WRITING_ZH,
    name_words,
)

RISKS: Final = ("low", "medium", "high")
"""How much a call can do, from reading to destroying; each is the number of its place."""

_RETURNS = re.compile(
    r"\b(?:returns?|returning|returned|responds? with|response|outputs?|yields?|"
    r"results? (?:is|are|in|include|contain)"
    r"|gives? back|produces?|emits?)\b|返回|输出|结果|响应",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]?")
_FIRST_WORD = re.compile(r"^\W*(\w+)")
MAX_RETURN_CHARS = 400


_NEGATED = r"(?<!\bnot )(?<!\bnever )(?<!n't )(?<!\bno )(?<!\bwithout )"
_DESTROYS = re.compile(
    rf"{_NEGATED}\b(?:deletes|removes|erases|destroys|drops|purges|wipes|truncates|uninstalls|"
    r"revokes|terminates|kills"
    r"|overwrites|shreds)\b"
    r"|(?:^|[.;:!?,]\s|\b(?:and|then|to|will|can|may|also|which|that|or)\s)(?:\w{1,20}ly\s)?"
    r"(?:delete|erase|destroy|drop|purge|wipe|truncate|uninstall|revoke|overwrite|shred)\s+"
    r"(?:the|an?|all|every|any|each"
    r"|your|our|its|their|old|existing|data|files?|records?|rows?|tables?|users?)\b",
    re.IGNORECASE,
)
_MONEY = r"\b(?:money|funds?|payments?|cash|dollars|usd|euros?|crypto(?:currency)?|bitcoins?)\b"
_PAYS = re.compile(
    rf"{_NEGATED}\b(?:wires|transfers|sends|pays|withdraws|moves|charges|debits|refunds|"
    rf"remits)\b.{{0,30}}{_MONEY}"
    r"|(?:^|[.;:!?,]\s|\b(?:and|then|to|will|can|may|also|which|that|or)\s)(?:\w{1,20}ly\s)?"
    rf"(?:wire|transfer|send|withdraw|move|charge|debit|refund|remit|make)\s.{{0,30}}{_MONEY}|"
    r"\b(?:pays|pay)\s+(?:the|an?|all"
    r"|every|any|each|your|someone|somebody|bills?|invoices?)\b",
    re.IGNORECASE,
)
_DOES_ZH = re.compile(
    r"(?:^|[，。；、！,.;!\s]|会|并|将|可以?|来|用于|用来|然后|同时|直接|自动|批量|永久|彻底|全部)"
    r"(?:删除|清空|销毁|抹除|擦除|格式化|卸载|吊销|转账|汇款|打款|付款|支付|扣款|提现|转走|转出)"
    r"(?!记录|状态|历史|的|日志|列表|信息|时间|方式|失败|成功|情况|结果|明细|单)"
)
_PAYING_NAMES = frozenset({"pay", "payout", "remit"})
_MOVING_NAMES = frozenset(
    {
        "transfer",
        "wire",
        "send",
        "withdraw",
        "refund",
        "charge",
        "move",
        "make",
        "submit",
        "execute",
        "deposit",
    }
)
_MONEY_NAMES = frozenset(
    {"money", "fund", "funds", "payment", "payments", "cash", "balance", "dollars", "usd"}
)
_PAYING_ZH = ("转账", "汇款", "打款", "付款", "支付", "扣款", "提现")
LOOKED_CHARS = 4_000
"""What of a description is looked at for what a tool does."""


def risk_of(
    name: str, description: str, annotations: Mapping[str, Any], *, trusted: bool = True
) -> str:
    """Return `low` (it only reads), `medium` (it writes) or `high` (what it does may not be
    undone).

    What the annotations say counts, but never against the name or the first verb of the
    description: `delete_file` is `high` even where it claims to be read-only, and so is what pays.
    Without annotations the verbs of the name decide, then what the description says that it does; a
    tool of which nothing is known is `medium`. English and Chinese.

    The annotations of a tool that is not `trusted` may raise its risk and never lower it.
    """
    named = _verb_risk(name_words(name), name)
    said = _verb_risk(_first_words(description), description[:12])
    read_only, destructive = annotations.get("readOnlyHint"), annotations.get("destructiveHint")
    if destructive is True or 2 in (named, said) or _pays(name):
        return RISKS[2]
    believed = trusted and (read_only is True or destructive is False)
    if not believed and _does_harm(description):
        return RISKS[2]
    if trusted and read_only is True:
        first = next(iter(name_words(name)), "")
        return RISKS[1 if first in WRITING - AMBIGUOUS else 0]
    if read_only is False:
        return RISKS[1]
    known = [risk for risk in (named, said) if risk is not None]
    return RISKS[1 if not known else known[0] if trusted else max(known)]


def _does_harm(description: str) -> bool:
    """Whether a description says that the tool destroys something or moves money."""
    text = description[:LOOKED_CHARS]
    return bool(_DESTROYS.search(text) or _PAYS.search(text) or _DOES_ZH.search(text))


def _pays(name: str) -> bool:
    """Whether a name says that money moves; `get_payment` and `查询支付` only look."""
    words = name_words(name)
    if (words and words[0] in READING) or any(verb in name for verb in READING_ZH):
        return False
    paid = any(verb in name for verb in _PAYING_ZH) or bool(words and words[0] in _PAYING_NAMES)
    return paid or bool(_MOVING_NAMES.intersection(words[:1]) and _MONEY_NAMES.intersection(words))


def _verb_risk(words: Sequence[str], text: str) -> int | None:
    """Return the risk of the verbs in some words: one that destroys, else the first word, else one
    that reads.

    What may be a noun or only read (`order`, `run`) counts only where no other word says what is
    done.
    """
    if any(word in DESTROYING for word in words) or any(verb in text for verb in DESTROYING_ZH):
        return 2
    if words and words[0] in WRITING - AMBIGUOUS:
        return 1
    if any(word in READING for word in words):
        return 0
    if any(word in WRITING for word in words):
        return 1
    if any(verb in text for verb in WRITING_ZH):
        return 1
    return 0 if any(verb in text for verb in READING_ZH) else None


def _first_words(description: str) -> tuple[str, ...]:
    """Return the first word of a description, without the ending that a third person gives it."""
    found = _FIRST_WORD.match(description)
    word = found.group(1).lower() if found else ""
    return (word, word.removesuffix("s"), word.removesuffix("es"))


def phases_of(annotations: Mapping[str, Any], meta: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the phases that a definition declares (`_meta.phases`, else `annotations.phases`);
    empty: every phase.
    """
    for holder in (meta, annotations):
        for key in ("phases", "phase"):
            value = holder.get(key)
            if isinstance(value, str) and value:
                return (value,)
            if isinstance(value, list | tuple):
                return tuple(
                    dict.fromkeys(
                        part for part in cast("Sequence[Any]", value) if isinstance(part, str)
                    )
                )
    return ()


def returns_of(description: str, output_schema: Mapping[str, Any] | None) -> str | None:
    """Return what a definition says of the result: its sentences about that, else what the output
    schema names.
    """
    said = [
        sentence.strip() for sentence in _SENTENCE.findall(description) if _RETURNS.search(sentence)
    ]
    if said:
        return " ".join(said)[:MAX_RETURN_CHARS]
    if not output_schema:
        return None
    words = output_schema.get("description")
    if isinstance(words, str) and words.strip():
        return words.strip()[:MAX_RETURN_CHARS]
    names: Any = output_schema.get("properties")
    if isinstance(names, dict) and names:
        return ("fields: " + ", ".join(sorted(map(str, cast("dict[str, Any]", names)))))[
            :MAX_RETURN_CHARS
        ]
    return f"type: {output_schema['type']}" if isinstance(output_schema.get("type"), str) else None
