"""A pack in the forms that providers take. Pure: the same pack gives the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from ctx_pipeline.contracts.base import JsonObject
from ctx_pipeline.contracts.sections import Capability, PackSection
from ctx_pipeline.errors import InvalidRequest

SECTION_FOOTER = "</section>\n"
FORMATS = ("text", "openai_chat", "openai_responses", "anthropic", "langchain")


def sections_text(sections: Sequence[PackSection]) -> str:
    """Return the text a model sees."""
    parts: list[str] = []
    for section in sections:
        parts.append(section.heading)
        parts.extend(item.text for item in section.items)
        parts.append(SECTION_FOOTER)
    return "".join(parts)


class OpenAIChat(TypedDict):
    """Messages and tools, as OpenAI's chat completions take them."""

    messages: list[dict[str, str]]
    tools: list[JsonObject]


class OpenAIResponses(TypedDict):
    """Instructions, input and tools, as OpenAI's responses take them."""

    instructions: str
    input: list[JsonObject]
    tools: list[JsonObject]


class Anthropic(TypedDict):
    """System blocks, messages and tools, as Anthropic takes them."""

    system: list[JsonObject]
    messages: list[JsonObject]
    tools: list[JsonObject]


Rendering = str | OpenAIChat | OpenAIResponses | Anthropic | list[dict[str, str]]
"""A pack in one of `FORMATS`; the last one is `langchain`."""


def render(
    sections: Sequence[PackSection], capabilities: Sequence[Capability], format: str
) -> Rendering:
    """Return a pack in a provider's form; pure and deterministic.

    Raises:
        InvalidRequest: the format is unknown.
    """
    if format == "text":
        return sections_text(sections)
    if format not in FORMATS:
        raise InvalidRequest(
            f"unknown format {format!r}",
            where="render",
            fix=f"use one of {', '.join(FORMATS)}",
            code="unknown_format",
        )
    system = sections_text([s for s in sections if s.role == "system"])
    user = sections_text([s for s in sections if s.role != "system"])
    match format:
        case "openai_chat":
            return OpenAIChat(
                messages=_messages(system, user, "role"),
                tools=[_openai_tool(tool) for tool in capabilities],
            )
        case "openai_responses":
            return OpenAIResponses(
                instructions=system,
                input=[{"role": "user", "content": [{"type": "input_text", "text": user}]}],
                tools=[{"type": "function", **_function(tool)} for tool in capabilities],
            )
        case "anthropic":
            return _anthropic(system, user, capabilities)
        case _:
            return _messages(system, user, "type")


def _anthropic(system: str, user: str, capabilities: Sequence[Capability]) -> Anthropic:
    block = {"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}
    return Anthropic(
        system=[block] if system else [],
        messages=[{"role": "user", "content": [{"type": "text", "text": user}]}],
        tools=[
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.input_schema,
            }
            for tool in capabilities
        ],
    )


def _messages(system: str, user: str, key: str) -> list[dict[str, str]]:
    names = {"role": ("system", "user"), "type": ("system", "human")}[key]
    texts = ((names[0], system), (names[1], user))
    return [{key: name, "content": text} for name, text in texts if text]


def _function(tool: Capability) -> JsonObject:
    return {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}


def _openai_tool(tool: Capability) -> JsonObject:
    return {"type": "function", "function": _function(tool)}
