"""The tools that a caller offers with its request, as candidates."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple

from pydantic import ValidationError

from ctx_pipeline.contracts import ContextRequest, ItemKind, Trust
from ctx_pipeline.errors import InvalidRequest
from ctx_pipeline.stages.blocks import Blocks
from ctx_pipeline.stages.candidates import REQUEST_SOURCE, Candidate, CountTokens
from ctx_pipeline.stages.sections import TOOLS
from ctx_pipeline.text import short_hash
from ctx_pipeline.tools.compact import compact_tool
from ctx_pipeline.tools.definition import ToolDefinition, flatten_tools, read_content, tool_content
from ctx_pipeline.tools.provider_form import plain_names, provider_form, renamed


def offered_tools(request: ContextRequest, tokens_of: CountTokens) -> list[Candidate]:
    """Return the caller's own tools, in the caller's order.

    Raises:
        InvalidRequest: one of them is no tool definition, or has the name of an earlier one.
    """
    contents: dict[str, str] = {}
    for number, value in enumerate(flatten_tools(list(request.tools or ()))):
        try:
            content = tool_content(ToolDefinition.model_validate(value))
        except ValidationError as cause:
            raise InvalidRequest(
                "a tool of the request is no tool definition",
                where=f"tools[{number}]",
                fix=(
                    "give name, description and input_schema (or parameters), "
                    "as MCP or OpenAI functions do"
                ),
                code="invalid_tool",
            ) from cause
        name = str(json.loads(content)["name"])
        if name in contents:
            raise InvalidRequest(
                f"a tool of the request repeats the name of tools[{list(contents).index(name)}]",
                where=f"tools[{number}]",
                fix="give every tool its own name",
                code="invalid_tool",
            )
        contents[name] = content
    names = plain_names(list(contents))
    return [
        _offered_tool(name, content, shown, number, tokens_of)
        for number, ((name, content), shown) in enumerate(zip(contents.items(), names, strict=True))
    ]


def _offered_tool(
    name: str, content: str, shown: str, number: int, tokens_of: CountTokens
) -> Candidate:
    looked = _looked_at(content, shown)
    full, compact = looked.blocks.full, looked.blocks.compact
    return Candidate(
        item_id=f"{ItemKind.TOOL.value}:{REQUEST_SOURCE}/{name}",
        version=short_hash(content),
        kind=ItemKind.TOOL.value,
        title=name,
        source=REQUEST_SOURCE,
        section=TOOLS,
        authority=50,
        trust=Trust.USER.value,
        tokens=(tokens_of(full), 0 if compact is None else tokens_of(compact), 0),
        blocks=looked.blocks,
        refusal=looked.refusal,
        poison=looked.poison,
        order=number,
        discovered_by=(REQUEST_SOURCE,),
    )


class _Looked(NamedTuple):
    """A tool of the caller, looked at."""

    blocks: Blocks
    refusal: str | None
    poison: tuple[str, ...]


@lru_cache(maxsize=1_024)
def _looked_at(content: str, shown: str) -> _Looked:
    """Return a tool's renditions and what is wrong with it; callers offer the same tools again and
    again.
    """
    # Compiling its patterns takes 10 ms, and few requests bring tools.
    from ctx_pipeline.tools.poison import poison_of

    form = provider_form(content)
    text = renamed(form.content, shown)
    short = compact_tool(text)
    blocks = Blocks(full=text + "\n", compact=None if short is None else short + "\n", pointer="")
    return _Looked(blocks, form.refusal, poison_of(read_content(content)))
