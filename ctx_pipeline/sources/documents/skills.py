"""Skills: folders with a `SKILL.md` of the agentskills format. One item per skill, more for a long
body.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field, StringConstraints, ValidationError
from pydantic_core import PydanticCustomError

from ctx_pipeline.contracts import FileCode, FileError, ItemKind
from ctx_pipeline.sources.files import FoundFile, read_text
from ctx_pipeline.sources.formats.front_matter import FrontMatter, split_front_matter
from ctx_pipeline.sources.formats.splitting import Chunk, Outline, is_cjk, split_text
from ctx_pipeline.sources.formats.yaml_lines import YamlProblem
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.reading import ReadingBuilder, SourceReading
from ctx_pipeline.sources.record_item import (
    Draft,
    FreeText,
    Label,
    RecordFields,
    make_item,
    record_error,
)
from ctx_pipeline.text import normalise, repair, short_hash

SKILL_FILE = "skill.md"
"""Name, in lower case, of the file that makes a folder a skill."""

MAX_SKILL_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 4_096
"""The format allows 1,024; what is a little longer is still a description."""

WHOLE_BODY_CHARS = 4_000
"""A body up to this length stays whole in its skill's item: about 1,000 tokens. Half of it for
mostly CJK text."""

MAX_RESOURCES = 40
"""Bundled files that an item lists by name; the rest is counted."""

TOOL_KEYS = {"allowedtools": "allowed-tools", "disallowedtools": "disallowed-tools"}
"""Keys that restrict tools, without case, hyphens and underscores, and as they must be written."""

_TOOL = re.compile(r"(?P<name>[^\W\d][\w.:/*-]*)(?:\((?P<rule>[^()]*(?:\([^()]*\)[^()]*)*)\))?")
_PLAIN = re.compile(r"[^\W\d][\w.-]*")
_NAME = re.compile(r"[^\s/\\#@:*?\"<>|]+(?: [^\s/\\#@:*?\"<>|]+)*")


def _tools(value: Any) -> tuple[str, ...]:
    """Read `Read, Grep`, `Read Bash(git:*)` or a YAML list; what is not surely a tool name is
    refused.
    """
    if value is None:
        raise PydanticCustomError(
            "empty_tools", "is empty: give tool names, [] for none, or remove the key"
        )
    if isinstance(value, str):
        tools = tuple(_split_tools(value))
    elif isinstance(value, list) and all(
        isinstance(part, str) for part in cast("list[Any]", value)
    ):
        tools = tuple(normalise(part).strip() for part in cast("list[str]", value))
    else:
        raise PydanticCustomError(
            "bad_tools", "is not a list of tool names: write names with commas between them"
        )
    if any(_TOOL.fullmatch(tool) is None for tool in tools):
        raise PydanticCustomError(
            "bad_tools", "has an entry that is not a tool name: write Name or Name(rule)"
        )
    return tuple(dict.fromkeys(tools))


def _split_tools(text: str) -> Iterator[str]:
    """Cut at commas and blanks outside parentheses."""
    depth, tool = 0, ""
    for char in normalise(text):
        depth += (char == "(") - (char == ")")
        if depth == 0 and (char.isspace() or char in ",，"):
            if tool:
                yield tool
            tool = ""
        else:
            tool += char
    if tool:
        yield tool


def _skill_name(value: Any) -> Any:
    if isinstance(value, str) and _NAME.fullmatch(value.strip()) is None:
        raise PydanticCustomError(
            "bad_name", "has characters that a skill's name cannot have: use a-z, 0-9 and -"
        )
    return value


Tools = Annotated[tuple[str, ...], BeforeValidator(_tools)]
SkillName = Annotated[
    Label, StringConstraints(max_length=MAX_SKILL_NAME_CHARS), BeforeValidator(_skill_name)
]
Description = Annotated[FreeText, StringConstraints(min_length=1, max_length=MAX_DESCRIPTION_CHARS)]


class SkillFields(RecordFields):
    """Front matter of a skill; other keys are ignored."""

    name: SkillName
    description: Description
    license: FreeText | None = None
    compatibility: FreeText | None = None
    allowed_tools: Annotated[Tools | None, Field(alias="allowed-tools")] = None
    disallowed_tools: Annotated[Tools | None, Field(alias="disallowed-tools")] = None


@dataclass(frozen=True, slots=True)
class _Skill:
    found: FoundFile
    fields: SkillFields
    body: str
    body_line: int
    resources: tuple[FoundFile, ...]
    source_version: str
    key_lines: Mapping[str, int]


def read_skills(files: tuple[FoundFile, ...], origin: Origin) -> SourceReading:
    """Turn each skill into an item `skill:<source>/<name>`, and the rest of a long body into
    `...#2` and on.

    The item says name, description, tools and bundled files, then the body. A head with an unquoted
    `: ` in a value or tabs for indentation is read with that value quoted. A head that is not
    closed, lacks a name or a description, or whose tools cannot be read is refused with its line: a
    skill is never loaded without what restricts it. Of two skills with one name the first is kept.
    Bundled files are listed with their sizes, not loaded.
    """
    batch = ReadingBuilder()
    heads = {str(PurePosixPath(found.name).parent): found for found in files if _is_head(found)}
    bundled = _bundled(files, heads)
    names: dict[str, FoundFile] = {}
    for found in files:
        if not _is_head(found):
            continue
        batch.open(found)
        skill = _load(found, tuple(bundled.get(found.shown, ())), origin.limit_bytes)
        if isinstance(skill, _Skill):
            taken = names.setdefault(
                unicodedata.normalize("NFKC", skill.fields.name).casefold(), found
            )
            if taken is found:
                batch.add(found, *(make_item(draft, origin) for draft in _drafts(skill, origin)))
                continue
            message = f"its name is taken by the skill in {taken.shown}, which is kept: rename one"
            skill = FileError(path=found.shown, line=2, code=FileCode.DUPLICATE_ID, message=message)
        batch.fail(found, skill)
    _account(batch, files, heads)
    return batch.build()


def _is_head(found: FoundFile) -> bool:
    return PurePosixPath(found.name).name.casefold() == SKILL_FILE


def _owner(found: FoundFile, heads: dict[str, FoundFile]) -> FoundFile | None:
    """Return the head of the nearest skill folder that a file lies in."""
    return next(
        (
            heads[folder]
            for folder in map(str, PurePosixPath(found.name).parents)
            if folder in heads
        ),
        None,
    )


def _bundled(
    files: tuple[FoundFile, ...], heads: dict[str, FoundFile]
) -> dict[str, list[FoundFile]]:
    bundled: dict[str, list[FoundFile]] = {}
    for found in files:
        owner = None if _is_head(found) else _owner(found, heads)
        if owner is not None:
            bundled.setdefault(owner.shown, []).append(found)
    return bundled


def _account(
    batch: ReadingBuilder, files: tuple[FoundFile, ...], heads: dict[str, FoundFile]
) -> None:
    for found in files:
        if not _is_head(found):
            owner = _owner(found, heads)
            where = (
                f"bundled with {owner.shown}: listed, not loaded"
                if owner
                else "lies in no folder with a SKILL.md"
            )
            batch.skip(found, where)


def _load(
    found: FoundFile, resources: tuple[FoundFile, ...], limit_bytes: int
) -> _Skill | FileError:
    text = read_text(found, limit_bytes)
    if isinstance(text, FileError):
        return text
    try:
        front = split_front_matter(repair(text))
    except YamlProblem as problem:
        return _bad_head(found, problem.line, problem.message)
    problem = _head_problem(front)
    if problem is not None:
        return _bad_head(found, *problem)
    try:
        fields = SkillFields.model_validate(_with_metadata(front.values))
    except ValidationError as error:
        return record_error(
            error, found, line=1, key_lines=front.key_lines, code=FileCode.BAD_FRONT_MATTER
        )
    version = short_hash(repair(text))
    return _Skill(found, fields, front.body, front.body_line, resources, version, front.key_lines)


def _bad_head(found: FoundFile, line: int | None, message: str) -> FileError:
    return FileError(path=found.shown, line=line, code=FileCode.BAD_FRONT_MATTER, message=message)


def _head_problem(front: FrontMatter) -> tuple[int, str] | None:
    """Say what would lose a restriction or leave nothing to find the skill by,
    and on which line.
    """
    if not front.values:
        return (
            1,
            (
                "has no front matter that is closed by a line ---: begin "
                "with ---, name, description, ---"
            ),
        )
    for key, line in front.key_lines.items():
        wanted = TOOL_KEYS.get(re.sub(r"[\s_-]", "", key).casefold())
        if wanted is not None and key != wanted:
            return line, f"a key looks like {wanted} and would be ignored: write it so"
        if wanted is not None and front.values[key] is None:
            return line, f"{key} is empty: give tool names, [] for none, or remove the key"
    return None


def _with_metadata(values: dict[str, Any]) -> dict[str, Any]:
    """Add what `metadata` says of version, validity and permissions; keys of the head win."""
    metadata = values.get("metadata")
    if not isinstance(metadata, dict):
        return dict(values)
    pairs = cast("dict[str, Any]", metadata).items()
    known = {
        key: part for key, part in pairs if key in RecordFields.model_fields and part is not None
    }
    return {**known, **values}


def _drafts(skill: _Skill, origin: Origin) -> Iterator[Draft]:
    fields, name = skill.fields, skill.fields.name
    first, *others = _parts(skill.body)
    outline = Outline(skill.body)
    lines = _LineCounter(skill)
    content = "\n\n".join(
        part for part in (_summary(skill), first.content if first else "") if part
    )
    plain = (tool for tool in fields.allowed_tools or () if _PLAIN.fullmatch(tool))
    yield _draft(
        skill,
        name=name,
        title=name,
        content=normalise(content),
        line_start=1,
        line_end=lines.last(first) if first else skill.body_line,
        depends_on=tuple(f"tool:*/{tool}" for tool in plain),
    )
    for number, chunk in enumerate(others, start=2):
        assert chunk is not None
        path = outline.above(chunk.start, chunk.end)
        yield _draft(
            skill,
            name=f"{name}#{number}",
            title=f"{name} > {path[-1] if path else number}",
            heading_path=path,
            content=normalise(chunk.content),
            line_start=lines.first(chunk),
            line_end=lines.last(chunk),
            depends_on=(origin.item_id(ItemKind.SKILL.value, name),),
        )


def _draft(
    skill: _Skill,
    *,
    name: str,
    title: str,
    content: str,
    line_start: int,
    line_end: int,
    depends_on: tuple[str, ...],
    heading_path: tuple[str, ...] = (),
) -> Draft:
    return Draft(
        found=skill.found,
        kind=ItemKind.SKILL,
        name=name,
        title=title,
        content=content,
        fields=skill.fields,
        key_lines=skill.key_lines,
        subject=f"skill:{skill.fields.name}",
        source_version=skill.source_version,
        line_start=line_start,
        line_end=max(line_start, line_end),
        depends_on=depends_on,
        heading_path=heading_path,
    )


def _parts(body: str) -> tuple[Chunk | None, ...]:
    """Return the part of a body that stands in the skill's own item, and the others."""
    text = body.strip()
    if not text:
        return (None,)
    if len(text) <= (WHOLE_BODY_CHARS // 2 if is_cjk(text) else WHOLE_BODY_CHARS):
        start = body.index(text)
        return (Chunk(start, start + len(text), text),)
    return split_text(body, markdown=True)


@dataclass(frozen=True, slots=True)
class _LineCounter:
    skill: _Skill

    def first(self, chunk: Chunk) -> int:
        return self.skill.body_line + self.skill.body.count("\n", 0, chunk.start)

    def last(self, chunk: Chunk) -> int:
        return self.skill.body_line + self.skill.body.count("\n", 0, chunk.end - 1)


def _summary(skill: _Skill) -> str:
    fields = skill.fields
    lines = [f"Skill: {fields.name}", f"Description: {fields.description}"]
    for label, tools in (
        ("Allowed tools", fields.allowed_tools),
        ("Disallowed tools", fields.disallowed_tools),
    ):
        if tools is not None:
            lines.append(f"{label}: {', '.join(tools) or 'none'}")
    if fields.compatibility:
        lines.append(f"Compatibility: {fields.compatibility}")
    if fields.license:
        lines.append(f"License: {fields.license}")
    lines.append(f"Folder: {PurePosixPath(skill.found.shown).parent}")
    return "\n".join([*lines, *_resource_lines(skill)])


def _resource_lines(skill: _Skill) -> Iterator[str]:
    if not skill.resources:
        return
    yield "Bundled files (not loaded):"
    folder = PurePosixPath(skill.found.name).parent
    for found in skill.resources[:MAX_RESOURCES]:
        name = PurePosixPath(found.name).relative_to(folder)
        yield f"- {normalise(str(name))} ({found.size_bytes:,} bytes)"
    rest = len(skill.resources) - MAX_RESOURCES
    if rest > 0:
        yield f"- and {rest:,} more files"
