"""What a tool's definition says beside its words: how risky it is, in which phases it belongs, what it returns."""

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
    r"\b(?:returns?|returning|returned|responds? with|response|outputs?|yields?|results? (?:is|are|in|include|contain)"
    r"|gives? back|produces?|emits?)\b|返回|输出|结果|响应",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]?")
_FIRST_WORD = re.compile(r"^\W*(\w+)")
MAX_RETURN_CHARS = 400


def risk_of(name: str, description: str, annotations: Mapping[str, Any]) -> str:
    """Return `low` (it only reads), `medium` (it writes) or `high` (what it does may not be undone).

    What the annotations say counts, but never against the name or the first verb of the description: `delete_file` is
    `high` even where it claims to be read-only. Without annotations the verbs of the name decide, then that of the
    description; a tool of which nothing is known is `medium`. English and Chinese.
    """
    named = _verb_risk(name_words(name), name)
    said = _verb_risk(_first_words(description), description[:12])
    named = 2 if said == 2 else named
    if annotations.get("destructiveHint") is True or named == 2:
        return RISKS[2]
    if annotations.get("readOnlyHint") is True:
        first = next(iter(name_words(name)), "")
        return RISKS[1 if first in WRITING - AMBIGUOUS else 0]
    if annotations.get("readOnlyHint") is False:
        return RISKS[1]
    known = said if named is None else named
    return RISKS[1 if known is None else known]


def _verb_risk(words: Sequence[str], text: str) -> int | None:
    """Return the risk of the verbs in some words: one that destroys, else the first word, else one that reads.

    What may be a noun or only read (`order`, `run`) counts only where no other word says what is done.
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
    """Return the phases that a definition declares (`_meta.phases`, else `annotations.phases`); empty: every phase."""
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
    """Return what a definition says of the result: its sentences about that, else what the output schema names."""
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
