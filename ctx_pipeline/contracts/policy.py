"""Context policy: per source, per task and phase, per model, per risk. Versioned by semver and content hash."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

from pydantic import Field

from ctx_pipeline.contracts.base import SCHEMA_VERSION, Contract, Text
from ctx_pipeline.contracts.codes import GateCheck, Trust
from ctx_pipeline.text import canonical_json, short_hash

Share = Annotated[float, Field(ge=0.0, le=1.0)]

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

    @cached_property
    def policy_version(self) -> str:
        """`<name>@<semver>+<hash of the content>`."""
        digest = short_hash(canonical_json(self.model_dump(mode="json")), 8)
        return f"{self.name}@{self.version}+{digest}"
