"""A tool's definition in one form, whatever dialect it came in: MCP, OpenAI
functions, Anthropic.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, cast

from pydantic import AliasChoices, Field

from ctx_pipeline.contracts import ImportedContract
from ctx_pipeline.contracts.base import Text
from ctx_pipeline.text import canonical_json, normalise, repair
from ctx_pipeline.tools.traits import phases_of

MAX_SERVER_CHARS = 200


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
    meta: Any = Field(default=None, validation_alias=AliasChoices("_meta", "meta"))
    server: Any = None
    """The MCP server that offers it, where the catalogue says so: its name, or an object that has
    one."""
    supersedes: Any = None
    """Tools of the same server that it replaces; `_meta` may say it as well."""

    @property
    def replaced(self) -> tuple[str, ...]:
        """Names of the tools that it replaces."""
        given: Any = self.meta
        meta = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        said = self.supersedes if self.supersedes is not None else meta.get("supersedes")
        names = cast("list[Any]", said) if isinstance(said, list) else [said]
        return tuple(
            repair(name.strip()) for name in names if isinstance(name, str) and name.strip()
        )

    @property
    def declared(self) -> dict[str, Any]:
        """What of `_meta` counts: `server`, and the `phases` in which the tool is offered."""
        said: Any = self.meta
        meta = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
        found: dict[str, Any] = {}
        server = _server_name(meta.get("server")) or _server_name(self.server)
        if server:
            found["server"] = server
        if phases := phases_of(self.annotations or {}, meta):
            found["phases"] = list(phases)
        return found


def _server_name(value: Any) -> str:
    """Return a server's name, from the name itself or from an object that has it; empty where there
    is none.
    """
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value).get("name")
    return repair(" ".join(value.split()))[:MAX_SERVER_CHARS] if isinstance(value, str) else ""


def flatten_tools(value: Any) -> Iterator[Any]:
    """Yield the tool objects of a list, a `tools/list` result, its JSON-RPC response, or a single
    tool.
    """
    if isinstance(value, list):
        for part in cast("list[Any]", value):
            yield from flatten_tools(part)
        return
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        for key in ("tools", "result", "functions"):
            if isinstance(mapping.get(key), dict | list) and "name" not in mapping:
                yield from _of_server(mapping, flatten_tools(mapping[key]))
                return
        if mapping.get("type", "function") == "function" and isinstance(
            mapping.get("function"), dict
        ):
            yield mapping["function"]
            return
    yield value


def _of_server(catalogue: dict[str, Any], tools: Iterator[Any]) -> Iterator[Any]:
    """Name the server of tools whose catalogue says it: `server`, or MCP's `serverInfo`."""
    server = _server_name(catalogue.get("serverInfo")) or _server_name(catalogue.get("server"))
    for tool in tools:
        named = server and isinstance(tool, dict) and "server" not in tool
        yield {**cast("dict[str, Any]", tool), "server": server} if named else tool


def read_content(content: str) -> dict[str, Any]:
    """Return what `tool_content` wrote; an item that holds no definition gives an empty one."""
    try:
        value: Any = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def tool_content(tool: ToolDefinition) -> str:
    """Return a tool as the one line of JSON that is hashed, counted and shown.

    It has `name`, `description`, `input_schema` and `annotations`, and `output_schema` and what
    counts of `_meta` where the tool has them.
    """
    definition: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description or "",
        "input_schema": tool.input_schema or {},
        "annotations": tool.annotations or {},
    }
    if tool.output_schema is not None:
        definition["output_schema"] = tool.output_schema
    if tool.declared:
        definition["_meta"] = tool.declared
    return normalise(canonical_json(definition))
