"""Why each candidate went in or stayed out, and what is kept of one call."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ctx_pipeline.contracts.base import SCHEMA_VERSION, Contract, UtcDatetime
from ctx_pipeline.contracts.codes import Exclusion, Lifecycle, Rendition
from ctx_pipeline.contracts.pack import PolicyDecision


class FilterStep(Contract):
    """One visibility rule and its outcome."""

    rule: str
    passed: bool
    code: Exclusion | None = None


class ContextDecisionTrace(Contract):
    """One candidate of one call. Discovered = selected + excluded, each item version once."""

    schema_version: str = SCHEMA_VERSION
    item_id: str
    version: str
    kind: str
    title: str
    discovered_by: tuple[str, ...]
    filters: tuple[FilterStep, ...]
    features: dict[str, float]
    score: float
    authority: int
    freshness: float
    token_cost: Annotated[int, Field(ge=0)]
    """Tokens of the chosen rendition, or of the smallest one when excluded."""
    rendition: Rendition | None = None
    selected: bool
    selected_reason: str | None = None
    excluded_reason: Exclusion | None = None
    transforms: tuple[str, ...] = ()
    parent_item_id: str | None = None
    counterfactual: str | None = None
    """What would have let it in, for example `+312 tokens`."""
    decision_id: str | None = None
    """Decision of the policy service that let it be a candidate. None: no service was asked about
    it."""


class SnapshotItem(Contract):
    """One item version as shown."""

    item_id: str
    version: str
    rendition: Rendition
    block_hash: str


class ContextSnapshot(Contract):
    """What one call saw, without the text; blobs hold each block once."""

    schema_version: str = SCHEMA_VERSION
    snapshot_id: str
    pack_id: str
    run_id: str
    turn_id: str
    session_id: str | None
    agent_id: str
    model_id: str
    tenant: str
    principal: str
    items: tuple[SnapshotItem, ...]
    tool_ids: tuple[str, ...]
    total_tokens: int
    policy_version: str
    policy_rules: tuple[str, ...] = ()
    """Rules of the policy that applied, in order."""
    policy_decision: PolicyDecision | None = None
    """What the policy service decided. None: there is none."""
    ranking_version: str
    compaction_version: str
    index_version: str
    overlay_sequence: int
    tokenizer: str
    hash: str
    clock: UtcDatetime
    as_of: UtcDatetime | None
    request_hash: str


class LifecycleEvent(Contract):
    """One step in an item version's life. Append-only."""

    schema_version: str = SCHEMA_VERSION
    tenant: str
    item_id: str
    version: str
    from_state: Lifecycle | None
    to_state: Lifecycle
    reason: str
    at: UtcDatetime
    actor: str
    snapshot_id: str | None = None
    sequence: int | None = None


class DiffEntry(Contract):
    """One difference between two snapshots."""

    item_id: str
    version: str
    reason: str
    before: str | None = None
    after: str | None = None


class SnapshotDiff(Contract):
    """What changed from snapshot `a` to snapshot `b`, each with its reason."""

    schema_version: str = SCHEMA_VERSION
    a: str
    b: str
    entered: tuple[DiffEntry, ...]
    left: tuple[DiffEntry, ...]
    rendition_changed: tuple[DiffEntry, ...]
    moved: tuple[DiffEntry, ...]
