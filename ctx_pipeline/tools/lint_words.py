"""Lint of names, descriptions and annotations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ctx_pipeline.language.word_lists import words_of
from ctx_pipeline.tools.findings import LintTool, ToolFinding, others_of
from ctx_pipeline.tools.traits import returns_of
from ctx_pipeline.tools.words import (
    AMBIGUOUS,
    DESTROYING,
    DESTROYING_ZH,
    READING,
    READING_ZH,
    WRITING,
    WRITING_ZH,
    content_words,
    name_words,
    verb_of,
)

SHORT_WORDS, SHORT_CHARS, SHORT_HAN = 4, 12, 6
"""Below this many words, characters, or Han characters a description says too little."""
LONG_CHARS = 600
"""Above this a description crowds out others; a third of it for Chinese. OpenAI refuses more than
1,024 characters."""

_VALID_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VAGUE_WORDS = frozenset(words_of(__file__, "vague_names"))
_BARE_VERBS = frozenset(words_of(__file__, "bare_verbs"))
"""Verbs that name no tool by themselves."""
_VAGUE_HAN = re.compile(r"^(?:处理|工具|执行|操作|数据|功能|方法|函数|通用|测试|助手|杂项)+$")
_VAGUE_TEXT = re.compile(
    r"\b(?:stuff|things?|misc(?:ellaneous)?|whatever|something|"
    # what somebody meant to write
    r"todo|tbd|fixme|lorem ipsum|placeholder|"
    # what says nothing
    r"self[- ]explanatory|does what it says|"
    r"various (?:things|operations|tasks)|"
    r"helper (?:function|tool|method)|"
    r"utility (?:function|tool|method)|"
    r"handles? (?:it|data|requests?|everything)|"
    r"description (?:here|goes here))\b"
    # the same in Chinese
    r"|待补充|待定|占位|杂项|各种(?:操作|事情|功能)|处理(?:一下|数据|事情)"
    r"|一些(?:操作|事情|东西)|这个工具$",
    re.IGNORECASE,
)
_HAN = re.compile("[\u3400-\u9fff]")
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def name_findings(tool: LintTool) -> Iterator[ToolFinding]:
    """Find names that providers refuse or that say nothing."""
    if not _VALID_NAME.fullmatch(tool.name):
        yield tool.finding(
            "invalid_name",
            "the name has characters or a length that some providers refuse",
            at="name",
        )
    words = [word for word in name_words(tool.name) if not word.isdigit()]
    says_nothing = (len(words) == 1 and words[0] in _BARE_VERBS) or all(
        word in _VAGUE_WORDS or _VAGUE_HAN.match(word) for word in words
    )
    if says_nothing or (len("".join(words)) < 3 and not _HAN.search(tool.name)):
        yield tool.finding("vague_name", "the name does not say what the tool does", at="name")


def description_findings(tool: LintTool) -> Iterator[ToolFinding]:
    """Find descriptions that say too little, too much, or something else than the name."""
    text = " ".join(tool.description.split())
    if not text or not any(char.isalnum() for char in text):
        yield tool.finding("missing_description", "there is no description", at="description")
        return
    han = len(_HAN.findall(text))
    words = name_words(text)
    is_han = han * 3 > len(text)
    if han < SHORT_HAN if is_han else len(words) < SHORT_WORDS or len(text) < SHORT_CHARS:
        yield tool.finding(
            "short_description", f"the description has {len(text)} characters", at="description"
        )
    elif set(content_words(text)) <= set(content_words(tool.name)):
        yield tool.finding(
            "repeats_name", "the description says what the name says", at="description"
        )
    if len(text) > (LONG_CHARS // 3 if is_han else LONG_CHARS):
        yield tool.finding(
            "long_description", f"the description has {len(text)} characters", at="description"
        )
    if _VAGUE_TEXT.search(text) and len(words) < 15:
        yield tool.finding(
            "vague_description", "the description does not say what the tool does", at="description"
        )
    if _is_other(verb_of(tool.name, ""), verb_of("", tool.description)):
        message = "name and description begin with verbs that do different things"
        yield tool.finding("name_contradicts_description", message, at="description")
    title: Any = (tool.definition.annotations or {}).get("title")
    if isinstance(title, str) and _is_other(verb_of(tool.name, ""), verb_of("", title)):
        message = "name and title begin with verbs that do different things"
        yield tool.finding("name_contradicts_description", message, at="annotations/title")


_CLASS = {
    "get": 0,
    "list": 0,
    "search": 0,
    "create": 1,
    "update": 1,
    "merge": 1,
    "send": 1,
    "delete": 2,
}


def _is_other(named: str | None, said: str | None) -> bool:
    """Whether two verbs do things of different kinds, as far as both are known."""
    first, second = _CLASS.get(named or ""), _CLASS.get(said or "")
    return first is not None and second is not None and first != second


def result_findings(tools: Sequence[LintTool]) -> Iterator[ToolFinding]:
    """Find the tools that do not say what they return: each where most of the others do, else all
    of them in one.
    """
    silent = [
        tool
        for tool in tools
        if tool.description.strip()
        and returns_of(tool.description, tool.definition.output_schema) is None
    ]
    if len(silent) * 2 <= len(tools):
        for tool in silent:
            yield tool.finding(
                "no_return_semantics", "nothing says what a call returns", at="description"
            )
        return
    first, *rest = silent
    message = f"of {len(tools)} tools, {len(silent)} do not say what a call returns"
    yield first.finding("no_return_semantics", message, others=others_of(first, rest))


def _first_verb(text: str) -> str:
    word = next(iter(name_words(text)), "")
    known = READING | WRITING | DESTROYING
    return next(
        (form for form in (word, word.removesuffix("s"), word.removesuffix("es")) if form in known),
        word,
    )


def annotation_findings(tool: LintTool) -> Iterator[ToolFinding]:
    """Find hints that contradict each other, the name or the description."""
    hints = tool.definition.annotations or {}
    for hint in _HINTS:
        if hint in hints and not isinstance(hints[hint], bool):
            yield tool.finding(
                "invalid_annotation", f"{hint} is not true or false", at=f"annotations/{hint}"
            )
    read_only, destructive = hints.get("readOnlyHint"), hints.get("destructiveHint")
    if read_only is True and destructive is True:
        yield tool.finding(
            "hints_contradict", "it claims to be read-only and destructive", at="annotations"
        )
    does = _does(tool)
    if does and does != "read" and read_only is True:
        message = (
            "it claims to be read-only, and its name or description says that it changes things"
        )
        yield tool.finding("read_only_contradicted", message, at="annotations/readOnlyHint")
    elif does == "destroy" and destructive is not True:
        severity = "error" if destructive is False else "warn" if tool.is_mcp else "info"
        message = "it destroys something and does not say so"
        yield tool.finding(
            "destructive_unmarked", message, at="annotations/destructiveHint", severity=severity
        )
    if does == "read" and (destructive is True or read_only is False):
        yield tool.finding(
            "reader_marked",
            "it is named like one that only reads, and marked otherwise",
            at="annotations",
        )


def _does(tool: LintTool) -> str | None:
    """Return `destroy`, `write` or `read` where the name says so, else where the description begins
    with it.
    """
    words = name_words(tool.name)
    opening = tool.description.strip()[:8]
    first = _first_verb(tool.description)
    if any(word in DESTROYING for word in words) or any(
        verb in tool.name for verb in DESTROYING_ZH
    ):
        return "destroy"
    if first in DESTROYING or opening.startswith(DESTROYING_ZH):
        return "destroy"
    if (words and words[0] in WRITING - AMBIGUOUS) or tool.name.startswith(WRITING_ZH):
        return "write"
    if (words and words[0] in READING) or tool.name.startswith(READING_ZH):
        # What a name calls reading and a description calls writing is not known to be either.
        return None if first in WRITING - AMBIGUOUS else "read"
    return "write" if first in WRITING - AMBIGUOUS or opening.startswith(WRITING_ZH) else None
