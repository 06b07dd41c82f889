"""Intake: what comes with a request, without characters that a model reads and nobody sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from ctx_pipeline.contracts import ContextRequest, PackWarning, Task
from ctx_pipeline.contracts.request import Message, Observation
from ctx_pipeline.text import legible, legible_json, spelled, unreadable

SHOWN_PARTS = 8


def legible_request(request: ContextRequest) -> ContextRequest:
    """Return a request whose texts are legible; one that is so already is returned as it is."""
    if next(_hidden(request), None) is None:
        return request
    return request.model_copy(
        update={
            "task": _legible_task(request.task),
            "state": legible_json(request.state),
            "response_format": legible_json(request.response_format),
            "messages": tuple(_legible_message(message) for message in request.messages),
            "observations": tuple(_legible_observation(seen) for seen in request.observations),
            "tools": None
            if request.tools is None
            else tuple(legible_json(tool) for tool in request.tools),
        }
    )


def _legible_task(task: Task) -> Task:
    update = {
        "type": legible(task.type),
        "text": legible(task.text),
        "constraints": tuple(legible(line) for line in task.constraints),
        "goal": None if task.goal is None else legible(task.goal),
        "todo": tuple(legible(line) for line in task.todo),
    }
    return task.model_copy(update=update)


def _legible_message(message: Message) -> Message:
    update = {
        "content": legible(message.content)
        if isinstance(message.content, str)
        else tuple(legible_json(part) for part in message.content),
        "name": None if message.name is None else legible(message.name),
        "tool_call_id": None if message.tool_call_id is None else legible(message.tool_call_id),
        "tool_calls": tuple(legible_json(call) for call in message.tool_calls),
    }
    return message.model_copy(update=update)


def _legible_observation(seen: Observation) -> Observation:
    update = {
        "observation_id": spelled(seen.observation_id),
        "content": legible(seen.content),
        "tool": None if seen.tool is None else legible(seen.tool),
        "phase": None if seen.phase is None else legible(seen.phase),
    }
    return seen.model_copy(update=update)


def warnings_of(request: ContextRequest) -> tuple[PackWarning, ...]:
    """Warn of the parts of a request that had characters which nobody sees, or
    which are no text.
    """
    parts = list(_hidden(request))
    if not parts:
        return ()
    more = len(parts) - SHOWN_PARTS
    named = ", ".join(parts[:SHOWN_PARTS]) + (f" and {more} more" if more > 0 else "")
    message = (
        "characters that nobody sees, or that are no text, were taken "
        f"out or are shown as U+FFFD: {named}"
    )
    return (PackWarning(code="hidden_characters", message=message),)


def _hidden(request: ContextRequest) -> Iterator[str]:
    """Yield the names of the parts that are not legible."""
    task = request.task
    if _any(task.text, task.type, task.goal, *task.constraints, *task.todo):
        yield "task"
    for name in ("state", "response_format"):
        if _any(getattr(request, name)):
            yield name
    for number, message in enumerate(request.messages):
        if _any(message.content, message.name, message.tool_call_id, *message.tool_calls):
            yield f"messages[{number}]"
    for number, seen in enumerate(request.observations):
        if _any(seen.content, seen.observation_id, seen.tool, seen.phase):
            yield f"observations[{number}]"
    for number, tool in enumerate(request.tools or ()):
        if _any(tool):
            yield f"tools[{number}]"


def _any(*values: Any) -> bool:
    """Whether a text among the values, at any depth, is not legible."""
    for value in values:
        if isinstance(value, str):
            if unreadable(value):
                return True
        elif isinstance(value, dict):
            pairs = cast("dict[str, Any]", value).items()
            if any(_any(key, part) for key, part in pairs):
                return True
        elif isinstance(value, list | tuple) and _any(*cast("list[Any]", value)):
            return True
    return False
