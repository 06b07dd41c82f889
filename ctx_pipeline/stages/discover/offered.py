"""Offered tools: what the caller offers instead of the catalogue's."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache

from pydantic import ValidationError

from ctx_pipeline.contracts import ContextRequest, ItemKind, Trust
from ctx_pipeline.errors import InvalidRequest
from ctx_pipeline.stages.blocks import Blocks
from ctx_pipeline.stages.candidates import REQUEST_SOURCE, Candidate
from ctx_pipeline.stages.sections import TOOLS
from ctx_pipeline.text import short_hash
from ctx_pipeline.tools.compact import compact_tool
from ctx_pipeline.tools.definition import ToolDefinition, flatten_tools, tool_content


def offered_tools(request: ContextRequest, tokens_of: Callable[[str], int]) -> list[Candidate]:
    """Return the caller's own tools, in the caller's order.

    Raises:
        InvalidRequest: one of them is no tool definition, or has the name of an earlier one.
    """
    made: list[Candidate] = []
    places: dict[str, int] = {}
    for number, value in enumerate(flatten_tools(list(request.tools or ()))):
        try:
            content = tool_content(ToolDefinition.model_validate(value))
        except ValidationError as cause:
            raise InvalidRequest(
                "a tool of the request is no tool definition",
                where=f"tools[{number}]",
                fix="give name, description and input_schema (or parameters), as MCP or OpenAI functions do",
                code="invalid_tool",
            ) from cause
        name = str(json.loads(content)["name"])
        first = places.setdefault(name, number)
        if first != number:
            raise InvalidRequest(
                f"a tool of the request repeats the name of tools[{first}]",
                where=f"tools[{number}]",
                fix="give every tool its own name",
                code="invalid_tool",
            )
        full, compact = content + "\n", _compact_line(content)
        made.append(
            Candidate(
                item_id=f"{ItemKind.TOOL.value}:{REQUEST_SOURCE}/{name}",
                version=short_hash(content),
                kind=ItemKind.TOOL.value,
                title=name,
                source=REQUEST_SOURCE,
                section=TOOLS,
                authority=50,
                trust=Trust.USER.value,
                tokens=(tokens_of(full), 0 if compact is None else tokens_of(compact), 0),
                blocks=Blocks(full=full, compact=compact, pointer=""),
                order=number,
                discovered_by=(REQUEST_SOURCE,),
            )
        )
    return made


@lru_cache(maxsize=1_024)
def _compact_line(content: str) -> str | None:
    """Return a tool's compact rendition; callers offer the same tools again and again."""
    short = compact_tool(content)
    return None if short is None else short + "\n"
