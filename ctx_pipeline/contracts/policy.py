"""Context policy: per source, per task and phase, per model, per risk. Versioned by semver and content hash."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field

from ctx_pipeline.contracts.base import SCHEMA_VERSION, Contract, Text
from ctx_pipeline.contracts.codes import GateCheck, ItemKind, Trust, WhenToLoad
from ctx_pipeline.text import canonical_json, short_hash

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Name = Annotated[Text, Field(min_length=1, max_length=512)]
Risk = Literal["low", "medium", "high"]
DataSection = Literal["state", "domain", "evidence", "history", "observations"]
"""Sections whose place a policy may change. What instructs stands first, and the goal last, whatever a policy says."""
Window = Annotated[str, Field(pattern=r"^[0-9]{1,9}[smhd]$")]
"""A duration such as `24h`."""

DEFAULT_SHARES: dict[str, float] = {
    "policy": 0.15,
    "task_state": 0.20,
    "history": 0.20,
    "retrieved": 0.20,
    "observations": 0.15,
    "tools": 0.10,
}
"""Section shares of the specification; what one section leaves, another may take."""

DEFAULT_PHASES = (
    "default",
    "discover",
    "explore",
    "decide",
    "plan",
    "understand",
    "query",
    "build",
    "edit",
    "analyse",
    "verify",
    "ship",
)


class RankWeights(Contract):
    """Weights of the ranking features; each feature lies in 0 to 1."""

    relevance: float = 1.0
    authority: float = 0.25
    freshness: float = 0.10
    confidence: float = 0.10
    dependency: float = 0.30
    task_fit: float = 0.10
    recency: float = 0.10


def _one_or_more(value: Any) -> Any:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, (list, tuple)) and not value:
        raise ValueError("names nothing: leave the key out where it does not matter")
    return cast("Any", value)


class PolicyCase(Contract):
    """When a rule applies: every key that is given has to match. A list matches when one of its values does."""

    task_type: Annotated[tuple[Name, ...] | None, BeforeValidator(_one_or_more)] = None
    """Types of task."""
    phase: Annotated[tuple[Name, ...] | None, BeforeValidator(_one_or_more)] = None
    """Phases, which `phases` has to know."""
    role: Annotated[tuple[Name, ...] | None, BeforeValidator(_one_or_more)] = None
    """Roles of the agent."""
    model: Annotated[tuple[Name, ...] | None, BeforeValidator(_one_or_more)] = None
    """Model profiles; `*` stands for any text, as in `gpt-5*`."""
    risk: Annotated[tuple[Risk, ...] | None, BeforeValidator(_one_or_more)] = None
    """How much is at stake."""


class WeightChange(Contract):
    """Ranking weights that a rule changes; the others keep their value."""

    relevance: float | None = None
    authority: float | None = None
    freshness: float | None = None
    confidence: float | None = None
    dependency: float | None = None
    task_fit: float | None = None
    recency: float | None = None


class PolicyChange(Contract):
    """What a rule sets; what it does not name keeps its value."""

    shares: dict[Text, Share] | None = None
    """Shares of single sections."""
    weights: WeightChange | None = None
    """Single ranking weights."""
    candidate_limit: Annotated[int, Field(ge=1, le=1_000)] | None = None
    """Most search hits that become candidates."""
    min_relevance: Share | None = None
    """Search hits below this share of the best hit's relevance are `low_rank`."""
    min_value: Share | None = None
    """Share of the best hit's score that a hit must have after endless better ones; 0: as many as fit."""
    required_types: tuple[ItemKind, ...] | None = None
    """Kinds of items that the pack must have, besides those that the request requires."""
    order: tuple[DataSection, ...] | None = None
    """Data sections in the order in which they are shown."""
    hard_gates: tuple[GateCheck, ...] | None = None
    """Preflight checks whose failure is an error."""
    exclude_stale: bool | None = None
    """True: items past their source's fail window stay out."""
    max_observation_tokens: Annotated[int, Field(ge=16)] | None = None
    """A single observation above this is shown in its compact rendition."""


class PolicyRule(Contract):
    """One exception: in these cases, these values.

    Of rules that match, the one with more keys in `when` wins, then the later one.
    """

    name: Name | None = None
    """Names the rule in packs, in `ctx policy show`, and for a later file that replaces it. None: its case."""
    when: PolicyCase = PolicyCase()
    """The case."""
    set: PolicyChange = PolicyChange()
    """The values."""

    @cached_property
    def label(self) -> str:
        """Its name, else its case in words."""
        return self.name or " ".join(f"{key}={'|'.join(values)}" for key, values in self.conditions) or "always"

    @cached_property
    def conditions(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The keys of `when` that are given, with their values."""
        given = ((key, getattr(self.when, key)) for key in PolicyCase.model_fields)
        return tuple((key, values) for key, values in given if values is not None)

    @cached_property
    def changes(self) -> dict[str, Any]:
        """What it sets, flat: `min_relevance`, `shares.history`, `weights.freshness`."""
        found: dict[str, Any] = {}
        for key in PolicyChange.model_fields:
            value: Any = getattr(self.set, key)
            if isinstance(value, WeightChange):
                value = value.model_dump(exclude_none=True)
            if isinstance(value, dict):
                found |= {f"{key}.{part}": inner for part, inner in cast("dict[str, Any]", value).items()}
            elif value is not None:
                found[key] = value
        return found


def _tokens_or_share(value: Any) -> Any:
    tokens = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not tokens and not (isinstance(value, float) and 0.0 < value <= 1.0):
        raise ValueError("should be whole tokens such as 800, or a share of the window such as 0.25")
    return value


class SourceScope(Contract):
    """Who may see what a source holds, where its entry in `ctx.toml` does not say so."""

    tenant: Name | None = None
    """The one tenant."""
    principals: tuple[Name, ...] | None = None
    """Single principals."""
    groups: tuple[Name, ...] | None = None
    """Groups; `"*"` is every principal of the tenant."""
    environment: Name | None = None
    """The one environment it is for."""
    task_types: tuple[Name, ...] | None = None
    """The task types or purposes it is for."""
    agent_visibility: tuple[Name, ...] | None = None
    """The agent roles that may see it."""


class SourcePolicy(Contract):
    """How one source, or every source of a kind, is treated.

    The first five are defaults of the source's entry in `ctx.toml`: what the entry says wins, and a change needs
    a build.
    """

    when_to_load: WhenToLoad | None = None
    """When its items are considered."""
    authority: Annotated[int, Field(ge=0, le=100)] | None = None
    """0 (a guess) to 100 (the truth)."""
    trust: Trust | None = None
    """How far its content may be believed."""
    freshness: Window | None = None
    """How old it may get before it is stale; the warning comes at three quarters."""
    scope: SourceScope | None = None
    """Who may see it."""
    max_budget: Annotated[int | float, BeforeValidator(_tokens_or_share)] | None = None
    """Most tokens of a pack, or share of what it aims for (a number with a point). An item that would go beyond it is
    shown shorter, then not at all; what is protected or required counts and is never cut."""
    retention: Window | None = None
    """How long its items are kept. Stored and checked, not used yet."""
    compaction: Literal["keep", "summarise", "pointer", "drop"] | None = None
    """What becomes of its items when a conversation is compacted. Stored and checked, not used yet."""
    subagent_visibility: Literal["inherit", "pointer", "none"] | None = None
    """What agents that work is delegated to see of it. Stored and checked, not used yet."""


ADDED = ("roles", "required_types", "order", "rules", "sources", "min_value")
"""Fields that `policy_version` counts only where they are not the default: a policy from before them keeps its
version."""

ADDED_TO_RULES = ("min_value",)
"""The same for what a rule sets."""


class ContextPolicy(Contract):
    """How packs are made. `policy_version` names it in every snapshot."""

    schema_version: str = SCHEMA_VERSION
    name: Text = "default"
    version: Text = "1.0.0"
    shares: dict[Text, Share] = DEFAULT_SHARES
    weights: RankWeights = RankWeights()
    phases: tuple[Text, ...] = DEFAULT_PHASES
    """Phases this policy knows; another one gets the default rules and a warning."""
    candidate_limit: Annotated[int, Field(ge=1, le=1_000)] = 64
    """Most search hits that become candidates."""
    min_relevance: Share = 0.35
    """Search hits below this share of the best hit's relevance are `low_rank`."""
    min_value: Share = 0.8
    """Share of the best hit's score that a hit must have after endless better ones; 0: as many as fit. The first 2,000
    tokens of each share are free of it, and half of it holds after 1,000 more."""
    trust_floor: Trust = Trust.TOOL_UNTRUSTED
    """Least trust an item needs to be seen at all."""
    hard_gates: tuple[GateCheck, ...] = (
        GateCheck.REQUIRED_CONTEXT_PRESENT,
        GateCheck.SENSITIVE_SCOPE_OK,
        GateCheck.TOKEN_BUDGET_OK,
        GateCheck.AUTHORITY_ORDER_VALID,
    )
    exclude_stale: bool = False
    """True: items past their source's fail window stay out (`stale`); False: they stay in with a warning."""
    max_observation_tokens: Annotated[int, Field(ge=16)] = 2_000
    """A single observation above this is shown in its compact rendition."""
    roles: tuple[Text, ...] = ()
    """Roles of agents that rules may name. Empty: any."""
    required_types: tuple[ItemKind, ...] = ()
    """Kinds of items that every pack must have, besides those that the request requires."""
    order: tuple[DataSection, ...] = ()
    """Data sections in the order in which they are shown; the others follow in the usual order."""
    rules: tuple[PolicyRule, ...] = ()
    """Exceptions for tasks, phases, roles, models and risks."""
    sources: dict[Text, SourcePolicy] = {}
    """How sources are treated, by name or kind; the name wins."""

    @cached_property
    def policy_version(self) -> str:
        """`<name>@<semver>+<hash of the content>`."""
        silent = {key for key in ADDED if getattr(self, key) == ContextPolicy.model_fields[key].default}
        content = self.model_dump(mode="json", exclude=silent)
        for rule in content.get("rules", ()):
            rule["set"] = {k: v for k, v in rule["set"].items() if k not in ADDED_TO_RULES or v is not None}
        digest = short_hash(canonical_json(content), 8)
        return f"{self.name}@{self.version}+{digest}"
