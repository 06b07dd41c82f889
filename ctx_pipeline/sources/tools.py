"""Tool definitions: MCP `tools/list` results, single MCP tools and OpenAI or Anthropic function
definitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ctx_pipeline.contracts import ContextItem, FileCode, FileError, ItemKind
from ctx_pipeline.sources.files import FoundFile, read_text, suffix_of
from ctx_pipeline.sources.formats.json_lines import JsonProblem, load_json
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.reading import ReadingBuilder, SourceReading
from ctx_pipeline.sources.record_item import Draft, make_item, record_error
from ctx_pipeline.text import short_hash
from ctx_pipeline.tools.definition import ToolDefinition, flatten_tools, tool_content

TOOL_SUFFIXES = (".json", ".jsonl", ".snap")


@dataclass(frozen=True, slots=True)
class ToolRecord:
    """One value that should be a tool, and the line it stands on where each has its own."""

    value: Any
    line: int | None


def read_tools(files: tuple[FoundFile, ...], origin: Origin) -> SourceReading:
    """Turn each tool into an item `tool:<source>/<name>` whose content is its canonical JSON.

    Where a catalogue names its server, the item is `tool:<source>/<server>/<name>`.

    The content is that of `tool_content`. A name that comes again with another definition is
    reported and the first is kept.
    """
    batch = ReadingBuilder()
    kept: dict[str, ContextItem] = {}
    for found in files:
        if suffix_of(found) not in TOOL_SUFFIXES:
            batch.skip(found, f"suffix {suffix_of(found)!r} is not a tool definition")
            continue
        batch.open(found)
        records = tool_records(found, origin.limit_bytes)
        if isinstance(records, FileError):
            batch.fail(found, records)
            continue
        for record in records:
            item = _item(found, record, origin)
            if isinstance(item, FileError):
                batch.fail(found, item)
            elif item.item_id not in kept:
                kept[item.item_id] = item
                batch.add(found, item)
            elif item.content == kept[item.item_id].content:
                batch.repeat(found)
            else:
                message = (
                    "the tool is defined otherwise in "
                    f"{kept[item.item_id].provenance.locator.path}: rename one"
                )
                code = FileCode.DUPLICATE_ID
                batch.fail(
                    found, FileError(path=found.shown, line=record.line, code=code, message=message)
                )
    return batch.build()


def tool_records(found: FoundFile, limit_bytes: int) -> tuple[ToolRecord, ...] | FileError:
    """Return what a file holds, not checked yet: JSON, or JSON on each line."""
    text = read_text(found, limit_bytes)
    if isinstance(text, FileError):
        return text
    if not text.strip():
        return ()
    try:
        return tuple(ToolRecord(tool, None) for tool in flatten_tools(load_json(text)))
    except JsonProblem as whole:
        problem = whole
    try:
        return tuple(_json_lines(text))
    except JsonProblem as lines:
        # A file whose first line is JSON by itself was meant as lines; otherwise the error of the
        # whole says more.
        error = (
            lines
            if lines.line and lines.line > 1 and not text.lstrip().startswith(("{\n", "[\n"))
            else problem
        )
        return FileError(
            path=found.shown, line=error.line, code=FileCode.BAD_JSON, message=error.message
        )


def _json_lines(text: str) -> Iterator[ToolRecord]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = load_json(line)
        except JsonProblem as problem:
            raise JsonProblem(number, problem.message) from None
        yield from (ToolRecord(tool, number) for tool in flatten_tools(value))


def _item(found: FoundFile, record: ToolRecord, origin: Origin) -> ContextItem | FileError:
    try:
        tool = ToolDefinition.model_validate(record.value)
    except ValidationError as problem:
        return record_error(problem, found, line=record.line)
    content = tool_content(tool)
    version = short_hash(content)
    draft = Draft(
        found=found,
        kind=ItemKind.TOOL,
        name=f"{server}/{tool.name}" if (server := tool.declared.get("server")) else tool.name,
        title=tool.name,
        content=content,
        subject=f"tool:{tool.name}",
        version=version,
        source_version=version,
        line_start=record.line,
        line_end=record.line,
        supersedes=tool.replaced,
    )
    return make_item(draft, origin)
