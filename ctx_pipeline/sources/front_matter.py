"""YAML front matter of a document: its values, its body, and on which line the body starts."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import cast

from ctx_pipeline.sources.records import PERMISSION_KEYS
from ctx_pipeline.sources.yaml_lines import LineDict, YamlProblem, load_yaml
from ctx_pipeline.text import normalise

_KEY_LINE = re.compile(r"^([A-Za-z_][\w-]*):[ \t]+(\S.*?)[ \t]*$")
_PERMISSION_LINE = re.compile(rf"^[ \t]*(?:{'|'.join(PERMISSION_KEYS)})[ \t]*:")


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

    A head is what stands between a first line `---` and the next line `---` or `...`. Without the closing line, or if
    the head is not a mapping, the whole text is body. A head with an unquoted `: ` in a value, a value that only
    begins like a list, or tabs for indentation is read again with those values quoted.

    Raises:
        YamlProblem: the head cannot be read, or permissions stand in it that would be lost.
    """
    lines = text.split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if lines[first].rstrip() != "---":
        return FrontMatter(text)
    last = next((n for n in range(first + 1, len(lines)) if lines[n].rstrip() in ("---", "...")), None)
    if last is None:
        _refuse_lost_permissions(lines[first + 1 :], first + 2)
        return FrontMatter(text)
    values = _load_head(lines[first + 1 : last], first + 2)
    if values is None:
        _refuse_lost_permissions(lines[first + 1 : last], first + 2)
        return FrontMatter(text)
    for key in PERMISSION_KEYS:
        if key in values and values[key] is None:
            raise YamlProblem(values.key_lines[key], f"{key} is empty: give a value or remove the key")
    return FrontMatter("\n".join(lines[last + 1 :]), last + 2, values)


def _load_head(lines: list[str], first_line: int) -> LineDict | None:
    """Return the head's mapping with lines of the file; None if it is something else than a mapping."""
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


def _refuse_lost_permissions(lines: list[str], first_line: int) -> None:
    """Refuse a broken head whose leading lines restrict who may see the document."""
    for number, line in enumerate(lines):
        if not line.strip():
            return
        if _PERMISSION_LINE.match(line):
            message = "front matter with permissions is not closed by a line ---, or is not key: value lines"
            raise YamlProblem(first_line + number, message)
