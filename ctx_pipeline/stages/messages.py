"""Messages: what one says, which tools it calls and which calls it answers, in the forms that
providers use.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from ctx_pipeline.contracts import Message
from ctx_pipeline.text import canonical_json, repair_json

Part = str | dict[str, Any]
_TEXT_KEYS = ("text", "refusal", "thinking", "reasoning")
_CALL_TYPES, _RESULT_TYPES = ("tool_use", "tool_call", "function_call"), ("tool_result",)
MAX_DEPTH = 4
"""Levels of parts inside of results that are looked into."""


class CallName(NamedTuple):
    """What a call or its result is known by; empty where a message does not say it."""

    call_id: str
    name: str


def message_text(message: Message) -> str:
    """Return a message as the model reads it: who, which call it answers, the text, then one line
    for each call.
    """
    known = (
        {"tool_call_id": message.tool_call_id, "name": message.name}
        if message.role == "tool"
        else {}
    )
    answers = {name: value for name, value in known.items() if value}
    head = f"{message.role} {canonical_json(answers)}" if answers else message.role
    calls = [f"tool_call {canonical_json(_call(call))}" for call in message.tool_calls]
    return "\n".join([f"{head}: {content_text(message.content)}", *calls])


def content_text(content: str | Sequence[Part]) -> str:
    """Return the text of a content: parts joined, and what is no text referred to by its type."""
    if isinstance(content, str):
        return content
    return "\n".join(_part_text(part, 0) for part in content)


def calls_of(message: Message) -> Iterator[CallName]:
    """Yield the calls that a message makes."""
    for call in (*message.tool_calls, *_parts_of(message, _CALL_TYPES)):
        said = _call(call)
        yield CallName(
            str(call.get("id") or call.get("call_id") or ""), str(said.get("name") or "")
        )


def answers_of(message: Message) -> Iterator[CallName]:
    """Yield the calls that a message answers, by what it says of them."""
    if message.role == "tool":
        yield CallName(message.tool_call_id or "", message.name or "")
    for part in _parts_of(message, _RESULT_TYPES):
        yield CallName(str(part.get("tool_use_id") or part.get("tool_call_id") or ""), "")


def _parts_of(message: Message, types: Sequence[str]) -> Iterator[dict[str, Any]]:
    if not isinstance(message.content, str):
        for part in message.content:
            if isinstance(part, dict) and part.get("type") in types:
                yield part


def _part_text(part: Part, depth: int) -> str:
    if isinstance(part, str):
        return part
    kind = str(part.get("type") or "part")
    if kind in _CALL_TYPES:
        return f"tool_call {canonical_json(_call(part))}"
    if kind in _RESULT_TYPES:
        answers = canonical_json({"tool_call_id": str(part.get("tool_use_id") or "")})
        return f"tool {answers}: {_inner_text(part.get('content'), depth)}"
    text = next((part[key] for key in _TEXT_KEYS if isinstance(part.get(key), str)), None)
    return f"[{_described(kind, part)}]" if text is None else text


def _inner_text(content: Any, depth: int) -> str:
    if isinstance(content, list) and depth < MAX_DEPTH:
        parts: list[Any] = [p for p in cast("list[Any]", content) if isinstance(p, (str, dict))]
        return "\n".join(_part_text(part, depth + 1) for part in parts)
    if content is None:
        return ""
    return content if isinstance(content, str) else canonical_json(content)


def _described(kind: str, part: Mapping[str, Any]) -> str:
    """Return the type of a part, with its media type, name or address where it says one; never its
    bytes.
    """
    words = [kind]
    inner = part.get("source", part.get(kind, part))
    for known in (
        part,
        cast("dict[str, Any]", inner) if isinstance(inner, dict) else {"url": inner},
    ):
        for key in (
            "media_type",
            "mime_type",
            "format",
            "title",
            "filename",
            "name",
            "file_id",
            "url",
        ):
            value = known.get(key)
            if isinstance(value, str) and value and not value.startswith("data:"):
                words.append(value[:200])
    return " ".join(dict.fromkeys(words))


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return id, name and arguments of a call, nested or flat; a call of another form stays as it
    is.
    """
    inner: Any = call.get("function", call)
    if not isinstance(inner, dict) or "name" not in inner:
        return dict(call)
    function = cast("dict[str, Any]", inner)
    arguments = function.get("arguments", function.get("input"))
    known = {
        "id": call.get("id") or call.get("call_id"),
        "name": function["name"],
        "arguments": _arguments(arguments),
    }
    return {name: value for name, value in known.items() if value is not None}


def _arguments(value: Any) -> Any:
    """Return arguments as a value, so that blanks and the order of keys make no difference; else
    the text as it is.
    """
    if not isinstance(value, str):
        return value
    try:
        return repair_json(json.loads(value))
    except (ValueError, RecursionError):
        return value
