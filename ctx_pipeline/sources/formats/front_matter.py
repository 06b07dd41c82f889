"""YAML front matter of a document: its values, its body, and on which line the body starts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from ctx_pipeline.sources.formats.yaml_lines import LineDict, YamlProblem, load_yaml
from ctx_pipeline.sources.record_item import (
    PERMISSION_KEYS,
    lost_permission_message,
    meant_permission,
)
from ctx_pipeline.text import normalise

_KEY_LINE = re.compile(r"^([A-Za-z_][\w-]*):[ \t]+(\S.*?)[ \t]*$")
_ASSIGNMENT = re.compile(r"^[\s\-*+#%><!\ufeff\u200b]*[\"']?(\w[\w -]{0,40}?)[\"']?\s*[:=：]")
_TOP_KEY = re.compile(r"^[\"']?(\w[\w-]{0,40})[\"']?\s*:")
_FENCE_LIKE = re.compile(r"^[\s\ufeff\u200b]*(?:---|\+\+\+|%YAML|<!--)", re.IGNORECASE)
_FENCE = re.compile(r"^\s*(?:-{3,}|\+{3,}|\.{3})(?:\s|$)")
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+\S")
_INVISIBLE = "\ufeff\u200b \t\r\x0b\x0c\x1c\x1d\x1e\x85\xa0\u3000\u2028\u2029"
_HEAD_LINES = 30
"""So many lines of a text that begins like a head are searched for permissions."""


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """A document's head and body. Lines count from 1 in the file."""

    body: str
    body_line: int = 1
    values: LineDict = field(default_factory=LineDict)

    @property
    def key_lines(self) -> dict[str, int]:
        """Line of each key in the file."""
        return getattr(self.values, "key_lines", {})


def split_front_matter(text: str) -> FrontMatter:
    """Separate front matter from the body.

    A head is what stands between a first line `---` and the next line `---` or `...`. Without the
    closing line, or if the head is not a mapping, the whole text is body. A head with an unquoted
    `: ` in a value, a value that only begins like a list, or tabs for indentation is read again
    with those values quoted.

    Raises:
        YamlProblem: the head cannot be read, or permissions stand in it that would be lost.
    """
    lines = text.split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    last = None
    if lines[first].rstrip() == "---":
        last = next(
            (n for n in range(first + 1, len(lines)) if lines[n].rstrip() in ("---", "...")), None
        )
    values = None if last is None else _load_head(lines[first + 1 : last], first + 2)
    if last is None or values is None:
        _refuse_lost_permissions(lines, last)
        return FrontMatter(text)
    _refuse_unread_keys(values, lines[first + 1 : last], first + 2)
    return FrontMatter("\n".join(lines[last + 1 :]), last + 2, values)


def _refuse_unread_keys(values: LineDict, head: list[str], first_line: int) -> None:
    """Refuse a head with a permission that is empty, nearly a permission key, or not among what was
    read.
    """
    for key, line in _keys(values):
        wanted = meant_permission(key)
        if wanted is not None:
            raise YamlProblem(line, lost_permission_message(wanted))
        if key in PERMISSION_KEYS and key in values and values[key] is None:
            raise YamlProblem(
                values.key_lines[key], f"{key} is empty: give a value or remove the key"
            )
    for number, line in enumerate(head, start=first_line):
        for part in line.splitlines():
            match = _TOP_KEY.match(part)
            key = match.group(1) if match else ""
            if key not in values and (key in PERMISSION_KEYS or meant_permission(key)):
                raise YamlProblem(
                    number,
                    "front matter has a permission that is part of another value: correct it",
                )


def _keys(values: LineDict) -> Iterator[tuple[str, int]]:
    """Yield the keys of the head and of its `metadata`, where skills keep theirs, with lines of the
    file.
    """
    yield from values.key_lines.items()
    metadata: Any = values.get("metadata")
    if isinstance(metadata, LineDict):
        for key in metadata:
            yield key, values.key_lines["metadata"]


def _load_head(lines: list[str], first_line: int) -> LineDict | None:
    """Return the head's mapping with lines of the file; None if it is something else than a
    mapping.
    """
    head = [normalise(line) for line in lines]
    try:
        documents = load_yaml("\n".join(head))
    except YamlProblem as problem:
        if problem.message.startswith("a key is given twice"):
            raise YamlProblem((problem.line or 1) + first_line - 1, problem.message) from None
        try:
            documents = load_yaml("\n".join(_quoted(line) for line in head))
        except YamlProblem as second:
            line = second.line or problem.line or 1
            raise YamlProblem(line + first_line - 1, f"front matter {second.message}") from None
    values = documents[0] if documents else None
    if values is None:
        values = LineDict()
        values.key_lines = {}
    if not isinstance(values, LineDict):
        return None
    values.key_lines = {key: line + first_line - 1 for key, line in values.key_lines.items()}
    return values


def _quoted(line: str) -> str:
    """Quote the value of a top-level `key: value` line where YAML would stumble over it."""
    spaced = line.expandtabs(2) if line.startswith(("\t", " ")) else line
    match = _KEY_LINE.match(spaced)
    if match is None:
        return spaced
    key, value = cast("tuple[str, str]", match.groups())
    structured = value[0] in "[{" and value[-1] in "]}"
    if value[0] in "'\"|>" or structured or (key in PERMISSION_KEYS and value[0] in "[{!&"):
        return spaced
    return f"{key}: {json.dumps(value, ensure_ascii=False)}"


def _refuse_lost_permissions(lines: list[str], last: int | None) -> None:
    """Refuse a text that begins like a head, was not read as one, and whose first lines restrict
    who may see it.

    Searched are `_HEAD_LINES` lines, and all of a head that is closed on line `last` or that no
    blank line ends, up to the first heading outside of fences. Every line break of Unicode ends a
    line.
    """
    written = next((line for line in lines if line.strip(_INVISIBLE)), "")
    if not _FENCE_LIKE.match(written):
        return
    parts = [(n, part) for n, line in enumerate(lines) for part in line.splitlines() or [""]]
    start = next(i for i, (_, part) in enumerate(parts) if part.strip(_INVISIBLE))
    blank = next((i for i in range(start, len(parts)) if not parts[i][1].strip()), len(parts))
    end = max(start + _HEAD_LINES, blank)
    fences = [
        i for i, (n, part) in enumerate(parts) if (i < end or n == last) and _FENCE.match(part)
    ]
    end = max(end, fences[-1] if fences else 0)
    fenced = fences[1] if len(fences) > 1 else blank
    for i, (number, part) in enumerate(parts[start:end], start=start):
        if _assigns_permission(part):
            message = (
                "permissions stand in front matter that is not closed by a "
                "line ---, or is not key: value lines"
            )
            raise YamlProblem(number + 1, message)
        if (i > fenced or not fences) and _HEADING.match(part):
            return


def _assigns_permission(line: str) -> bool:
    for part in re.split(r"[{,]", line) if "{" in line else [line]:
        match = _ASSIGNMENT.match(part)
        key = match.group(1) if match else ""
        if key in PERMISSION_KEYS or meant_permission(key):
            return True
    return False
