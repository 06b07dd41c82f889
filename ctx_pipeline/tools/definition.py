"""A tool's definition in one form, whatever dialect it came in: MCP, OpenAI functions, Anthropic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, cast

from pydantic import AliasChoices, Field

from ctx_pipeline.contracts import ImportedContract
from ctx_pipeline.contracts.base import Text
from ctx_pipeline.text import canonical_json, normalise


class ToolDefinition(ImportedContract):
    """A tool definition; `parameters` and `inputSchema` are other names of `input_schema`."""

    name: Annotated[Text, Field(min_length=1, max_length=512, pattern=r"^[^\n\t]+$")]
    description: Text | None = None
    input_schema: dict[str, Any] | None = Field(
        default=None, validation_alias=AliasChoices("inputSchema", "input_schema", "parameters")
    )
    output_schema: dict[str, Any] | None = Field(
        default=None, validation_alias=AliasChoices("outputSchema", "output_schema")
    )
    annotations: dict[str, Any] | None = None


def flatten_tools(value: Any) -> Iterator[Any]:
    """Yield the tool objects of a list, a `tools/list` result, its JSON-RPC response, or a single tool."""
    if isinstance(value, list):
        for part in cast("list[Any]", value):
            yield from flatten_tools(part)
        return
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        for key in ("tools", "result", "functions"):
            if isinstance(mapping.get(key), dict | list) and "name" not in mapping:
                yield from flatten_tools(mapping[key])
                return
        if mapping.get("type", "function") == "function" and isinstance(mapping.get("function"), dict):
            yield mapping["function"]
            return
    yield value


def tool_content(tool: ToolDefinition) -> str:
    """Return a tool as the one line of JSON that is hashed, counted and shown.

    It has `name`, `description`, `input_schema` and `annotations`, and `output_schema` where the tool has one.
    """
    definition: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description or "",
        "input_schema": tool.input_schema or {},
        "annotations": tool.annotations or {},
    }
    if tool.output_schema is not None:
        definition["output_schema"] = tool.output_schema
    return normalise(canonical_json(definition))
