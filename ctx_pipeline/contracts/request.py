"""What a caller asks for: one model call of one agent."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ctx_pipeline.contracts.base import SCHEMA_VERSION, Contract, JsonObject, Text, UtcDatetime
from ctx_pipeline.contracts.codes import Sensitivity
from ctx_pipeline.contracts.profile import ModelProfile

Name = Annotated[Text, Field(min_length=1, max_length=512)]
MAX_TEXT_CHARS = 4_000_000
"""Longest single text of a request; more belongs in an artifact."""
LongText = Annotated[Text, Field(max_length=MAX_TEXT_CHARS)]


class Identity(Contract):
    """Who asks. It comes from the caller's credential, never from an agent's request body."""

    principal: Name
    tenant: Name
    groups: tuple[Text, ...] = ()
    clearance: Sensitivity = Sensitivity.INTERNAL
    environment: Text | None = None
    purpose: Text | None = None


class Task(Contract):
    """What the agent is to do now."""

    type: Text = "general"
    text: LongText
    constraints: tuple[Text, ...] = ()
    goal: Text | None = None
    todo: tuple[Text, ...] = ()


def _no_null(value: Any) -> Any:
    return "" if value is None else value


class Message(Contract):
    """One message of the conversation so far, oldest first."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Annotated[LongText | tuple[LongText | JsonObject, ...], BeforeValidator(_no_null)] = ""
    """Text, or parts as providers have them: text is joined, what is none is referred to by its
    type."""
    name: Text | None = None
    tool_call_id: Text | None = None
    tool_calls: tuple[JsonObject, ...] = ()


class Observation(Contract):
    """One result of a tool or of the environment."""

    observation_id: Name
    content: LongText
    tool: Text | None = None
    phase: Text | None = None
    observed_at: UtcDatetime | None = None
    is_error: bool = False


class ContextRequest(Contract):
    """One request for a pack."""

    schema_version: str = SCHEMA_VERSION
    run_id: Name = "run"
    turn_id: Name = "turn"
    session_id: Name | None = None
    agent_id: Name = "agent"
    agent_role: Text | None = None
    task: Task
    phase: Text = "default"
    model_profile: Text | ModelProfile | None = None
    """A profile's name, or the profile itself; None: the project's default model."""
    token_budget: Annotated[int, Field(ge=1)] | None = None
    """Most tokens that `render("text")` plus visible tool schemas may take."""
    identity: Identity | None = None
    state: JsonObject = {}
    """Facts of the run that the Runtime owns: rendered, never kept as items. `path` names the file
    at hand: then the instructions of the folders above it apply."""
    tool_context: dict[str, Any] = Field(default={}, repr=False)
    """Execution-only values (connections, trace ids): carried beside the pack, never rendered,
    stored or hashed."""
    response_format: JsonObject | None = None
    cost_budget: Annotated[float, Field(ge=0)] | None = None
    deadline_ms: Annotated[int, Field(ge=1)] | None = None
    required_types: tuple[Text, ...] = ()
    messages: tuple[Message, ...] = ()
    observations: tuple[Observation, ...] = ()
    tools: tuple[JsonObject, ...] | None = None
    """Tools offered by the caller; None: the project's catalogue."""
    as_of: UtcDatetime | None = None
    """Valid time: which version of the world. None: the clock."""
    risk: Literal["low", "medium", "high"] = "low"
