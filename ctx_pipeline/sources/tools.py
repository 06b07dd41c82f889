"""Tool definitions: MCP `tools/list` results, single MCP tools and OpenAI or Anthropic function definitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from pydantic import AliasChoices, Field, ValidationError

from ctx_pipeline.contracts import ContextItem, FileCode, FileError, ImportedContract, ItemKind
from ctx_pipeline.sources.base import SourceBatch
from ctx_pipeline.sources.batch import BatchBuilder
from ctx_pipeline.sources.files import FoundFile, read_text, suffix_of
from ctx_pipeline.sources.json_lines import JsonProblem, load_json
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.records import Draft, FreeText, Label, make_item, record_error
from ctx_pipeline.text import canonical_json, normalise, short_hash

TOOL_SUFFIXES = (".json", ".jsonl", ".snap")


class ToolFields(ImportedContract):
    """A tool definition; `parameters` and `inputSchema` are other names of `input_schema`."""

    name: Label
    description: FreeText | None = None
    input_schema: dict[str, Any] | None = Field(
        default=None, validation_alias=AliasChoices("inputSchema", "input_schema", "parameters")
    )
    output_schema: dict[str, Any] | None = Field(
        default=None, validation_alias=AliasChoices("outputSchema", "output_schema")
    )
    annotations: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Record:
    value: Any
    line: int | None


def read_tools(files: tuple[FoundFile, ...], origin: Origin) -> SourceBatch:
    """Turn each tool into an item `tool:<source>/<name>` whose content is its canonical JSON.

    The content has `name`, `description`, `input_schema` and `annotations`, and `output_schema` where the tool has
    one. A name that comes again with another definition is reported and the first is kept.
    """
    batch = BatchBuilder()
    kept: dict[str, ContextItem] = {}
    for found in files:
        if suffix_of(found) not in TOOL_SUFFIXES:
            batch.skip(found, f"suffix {suffix_of(found)!r} is not a tool definition")
            continue
        batch.open(found)
        records = _records(found, origin.limit_bytes)
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
                message = f"the tool is defined otherwise in {kept[item.item_id].provenance.locator.path}: rename one"
                code = FileCode.DUPLICATE_ID
                batch.fail(found, FileError(path=found.shown, line=record.line, code=code, message=message))
    return batch.build()


def _records(found: FoundFile, limit_bytes: int) -> tuple[_Record, ...] | FileError:
    text = read_text(found, limit_bytes)
    if isinstance(text, FileError):
        return text
    if not text.strip():
        return ()
    try:
        return tuple(_Record(tool, None) for tool in _flatten(load_json(text)))
    except JsonProblem as whole:
        problem = whole
    try:
        return tuple(_json_lines(text))
    except JsonProblem as lines:
        # A file whose first line is JSON by itself was meant as lines; otherwise the error of the whole says more.
        error = lines if lines.line and lines.line > 1 and not text.lstrip().startswith(("{\n", "[\n")) else problem
        return FileError(path=found.shown, line=error.line, code=FileCode.BAD_JSON, message=error.message)


def _json_lines(text: str) -> Iterator[_Record]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = load_json(line)
        except JsonProblem as problem:
            raise JsonProblem(number, problem.message) from None
        yield from (_Record(tool, number) for tool in _flatten(value))


def _flatten(value: Any) -> Iterator[Any]:
    """Yield the tool objects of a list, a `tools/list` result, its JSON-RPC response, or a single tool."""
    if isinstance(value, list):
        for part in cast("list[Any]", value):
            yield from _flatten(part)
        return
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        for key in ("tools", "result", "functions"):
            if isinstance(mapping.get(key), dict | list) and "name" not in mapping:
                yield from _flatten(mapping[key])
                return
        if mapping.get("type", "function") == "function" and isinstance(mapping.get("function"), dict):
            yield mapping["function"]
            return
    yield value


def _item(found: FoundFile, record: _Record, origin: Origin) -> ContextItem | FileError:
    try:
        tool = ToolFields.model_validate(record.value)
    except ValidationError as problem:
        return record_error(problem, found, line=record.line)
    definition: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description or "",
        "input_schema": tool.input_schema or {},
        "annotations": tool.annotations or {},
    }
    if tool.output_schema is not None:
        definition["output_schema"] = tool.output_schema
    content = normalise(canonical_json(definition))
    version = short_hash(content)
    draft = Draft(
        found=found,
        kind=ItemKind.TOOL,
        name=tool.name,
        title=tool.name,
        content=content,
        subject=f"tool:{tool.name}",
        version=version,
        source_version=version,
        line_start=record.line,
        line_end=record.line,
    )
    return make_item(draft, origin)
