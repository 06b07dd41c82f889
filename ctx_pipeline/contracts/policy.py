"""Context policy: per source, per task and phase, per model, per risk. Versioned by semver and
content hash.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field

from ctx_pipeline.contracts.base import SCHEMA_VERSION, Contract, Text
from ctx_pipeline.contracts.codes import GateCheck, ItemKind, Trust, WhenToLoad
from ctx_pipeline.text import canonical_json, short_hash

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Name = Annotated[Text, Field(min_length=1, max_length=512)]
Risk = Literal["low", "medium", "high"]
DataSection = Literal["state", "domain", "evidence", "history", "observations"]
"""Sections whose place a policy may change. What instructs stands first, and the goal last,
whatever a policy says."""
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

DEFAULT_FUSION: dict[str, float] = {
    **dict.fromkeys((kind.value for kind in ItemKind), 0.5),
    ItemKind.TOOL.value: 0.7,
    ItemKind.DOCUMENT.value: 0.7,
    ItemKind.MEMORY.value: 0.4,
    ItemKind.SCHEMA.value: 0.3,
}
"""Share of meaning in relevance by kind of item; the rest is words. Requests say what a tool is for
in other words than the tool does, and name columns by their names. Chosen on one half of the
questions of `bench.retrieval`."""

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
    period_fit: float = 0.15
    cost: float = 0.03
    conflict_risk: float = 0.05


def _one_or_more(value: Any) -> Any:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, (list, tuple)) and not value:
        raise ValueError("names nothing: leave the key out where it does not matter")
    return cast("Any", value)


class PolicyCase(Contract):
    """When a rule applies: every key that is given has to match. A list matches when one of its
    values does.
    """

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
    period_fit: float | None = None
    cost: float | None = None
    conflict_risk: float | None = None


class ToolRules(Contract):
    """Which tools of the catalogue are shown. Seeing a tool never grants it."""

    max_risk: Risk | None = None
    """Riskiest tools that are shown: `low` reads, `medium` writes, `high` may not be undone. None:
    `medium` in phases that only look around (`discover`, `explore`, `understand`, `verify`), else
    `high`."""
    strong_relevance: Share | None = None
    """A riskier tool is shown all the same when its relevance is above this share of the most
    relevant tool's. None: 0.9, and never where `max_risk` is given."""
    poisoned: Literal["withhold", "warn"] | None = None
    """What becomes of a tool whose texts work on the model that reads them, as `ctx tools lint`
    finds it: it is left out, or shown with a warning. None: left out where its trust is
    `retrieved_external` or `tool_untrusted`."""
    candidates: Annotated[int, Field(ge=0, le=1_000)] | None = None
    """Most tools that compete for the model's `tool_schema_budget`. None: every one that is
    relevant."""


Criterion = Literal["authority", "validity", "freshness"]
"""What decides between two claims: rank of the source, which began to be valid later, which was
verified later."""
ConflictAction = Literal["resolve", "show_both", "ask"]
"""The winner alone is shown, both are shown and the winner is named, or both are shown and somebody
is to decide."""


def _distinct(value: tuple[Criterion, ...]) -> tuple[Criterion, ...]:
    if len(set(value)) != len(value):
        raise ValueError("names a criterion twice")
    return value


class ConflictPolicy(Contract):
    """What becomes of items that contradict each other."""

    order: Annotated[tuple[Criterion, ...], AfterValidator(_distinct)] = ()
    """Criteria in the order in which they decide; what is left out decides nothing. Empty:
    `authority`, `validity`, `freshness`."""
    actions: dict[Name, ConflictAction] = {}
    """What is done, by the beginning of a subject (`metric:`) or the kind of the losing item
    (`document`); the longest beginning wins, then the most careful action. Others: `resolve`."""


class PolicyChange(Contract):
    """What a rule sets; what it does not name keeps its value."""

    shares: dict[Text, Share] | None = None
    """Shares of single sections."""
    weights: WeightChange | None = None
    """Single ranking weights."""
    fit: dict[ItemKind, Share] | None = None
    """How well single kinds of items fit the case, 0 to 1."""
    fusion: dict[ItemKind, Share] | None = None
    """Shares of meaning of single kinds of items."""
    candidate_limit: Annotated[int, Field(ge=1, le=1_000)] | None = None
    """Most search hits that become candidates."""
    min_relevance: Share | None = None
    """Search hits below this share of the best hit's relevance are `low_rank`."""
    min_value: Share | None = None
    """Share of the best hit's score that a hit must have after endless better ones; 0: as many as
    fit."""
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
    tools: ToolRules | None = None
    """Which tools are shown."""
    conflicts: ConflictPolicy | None = None
    """What becomes of items that contradict each other; single actions keep those of the policy
    beside them."""


class PolicyRule(Contract):
    """One exception: in these cases, these values.

    Of rules that match, the one with more keys in `when` wins, then the later one.
    """

    name: Name | None = None
    """Names the rule in packs, in `ctx policy show`, and for a later file that replaces it. None:
    its case."""
    when: PolicyCase = PolicyCase()
    """The case."""
    set: PolicyChange = PolicyChange()
    """The values."""

    @cached_property
    def label(self) -> str:
        """Its name, else its case in words."""
        return (
            self.name
            or " ".join(f"{key}={'|'.join(values)}" for key, values in self.conditions)
            or "always"
        )

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
            if isinstance(value, WeightChange | ToolRules):
                value = value.model_dump(exclude_none=True)
            if isinstance(value, ConflictPolicy):
                value = flat_conflicts(value)
            if isinstance(value, dict):
                found |= {
                    f"{key}.{part}": inner for part, inner in cast("dict[str, Any]", value).items()
                }
            elif value is not None:
                found[key] = value
        return found


def _tokens_or_share(value: Any) -> Any:
    tokens = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not tokens and not (isinstance(value, float) and 0.0 < value <= 1.0):
        raise ValueError(
            "should be whole tokens such as 800, or a share of the window such as 0.25"
        )
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

    The first five are defaults of the source's entry in `ctx.toml`: what the entry says wins, and a
    change needs a build.
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
    """Most tokens of a pack, or share of what it aims for (a number with a point). An item that
    would go beyond it is shown shorter, then not at all; what is protected or required counts and
    is never cut."""
    retention: Window | None = None
    """How long its items are kept. Stored and checked, not used yet."""
    compaction: Literal["keep", "summarise", "pointer", "drop"] | None = None
    """What becomes of its items when a conversation is compacted. Stored and checked, not used yet.
    """
    subagent_visibility: Literal["inherit", "pointer", "none"] | None = None
    """What agents that work is delegated to see of it. Stored and checked, not used yet."""


def flat_conflicts(conflicts: ConflictPolicy) -> dict[str, Any]:
    """Return what it says, flat: `order`, `actions.metric:`."""
    order = {"order": conflicts.order} if conflicts.order else {}
    return {**order, **{f"actions.{name}": action for name, action in conflicts.actions.items()}}


ADDED = (
    "roles",
    "required_types",
    "order",
    "rules",
    "sources",
    "min_value",
    "tools",
    "fit",
    "conflicts",
    "fusion",
)
"""Fields that `policy_version` counts only where they are not the default: a policy from before
them keeps its version."""
ADDED_WEIGHTS = ("period_fit", "cost", "conflict_risk")
"""Weights that it counts only where they are not the default."""
ADDED_CHANGES = ("min_value", "tools", "fit", "conflicts", "fusion")
"""Keys of a rule that it counts only where they are given."""


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
    """Share of the best hit's score that a hit must have after endless better ones; 0: as many as
    fit. The first 2,000 tokens of each share are free of it, and half of it holds after 1,000 more.
    """
    trust_floor: Trust = Trust.TOOL_UNTRUSTED
    """Least trust an item needs to be seen at all."""
    hard_gates: tuple[GateCheck, ...] = (
        GateCheck.REQUIRED_CONTEXT_PRESENT,
        GateCheck.SENSITIVE_SCOPE_OK,
        GateCheck.TOKEN_BUDGET_OK,
        GateCheck.AUTHORITY_ORDER_VALID,
    )
    exclude_stale: bool = False
    """True: items past their source's fail window stay out (`stale`); False: they stay in with a
    warning."""
    max_observation_tokens: Annotated[int, Field(ge=16)] = 2_000
    """A single observation above this is shown in its compact rendition."""
    roles: tuple[Text, ...] = ()
    """Roles of agents that rules may name. Empty: any."""
    required_types: tuple[ItemKind, ...] = ()
    """Kinds of items that every pack must have, besides those that the request requires."""
    order: tuple[DataSection, ...] = ()
    """Data sections in the order in which they are shown; the others follow in the usual order."""
    fusion: dict[ItemKind, Share] = {}
    """Share of meaning in the relevance of a kind of item: 1 is meaning alone, 0 words alone. Kinds
    that are not named keep their default."""
    rules: tuple[PolicyRule, ...] = ()
    """Exceptions for tasks, phases, roles, models and risks."""
    sources: dict[Text, SourcePolicy] = {}
    """How sources are treated, by name or kind; the name wins."""
    tools: ToolRules | None = None
    """Which tools are shown."""
    fit: dict[ItemKind, Share] = {}
    """How well kinds of items fit the task, 0 to 1, whatever the phase; rules say it for phases and
    roles. What neither names goes by a built-in table of phases, and is 0.5 where that has none."""
    conflicts: ConflictPolicy | None = None
    """What becomes of items that contradict each other. None: all are resolved in the usual order.
    """

    @cached_property
    def policy_version(self) -> str:
        """`<name>@<semver>+<hash of the content>`."""
        silent = {
            key for key in ADDED if getattr(self, key) == ContextPolicy.model_fields[key].default
        }
        content = self.model_dump(mode="json", exclude=silent)
        usual = RankWeights().model_dump()
        content["weights"] = {
            k: v for k, v in content["weights"].items() if k not in ADDED_WEIGHTS or v != usual[k]
        }
        for rule in content.get("rules", ()):
            _drop_unsaid(rule["set"])
        digest = short_hash(canonical_json(content), 8)
        return f"{self.name}@{self.version}+{digest}"


def _drop_unsaid(change: dict[str, Any]) -> None:
    """Take out of a rule's values the keys that older rules could not say and this one does not."""
    for name in ADDED_CHANGES:
        if change[name] is None:
            del change[name]
    for name in ADDED_WEIGHTS:
        if change["weights"] is not None and change["weights"][name] is None:
            del change["weights"][name]
