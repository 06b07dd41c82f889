"""A context item: one immutable version of one thing a model may see."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from ctx_pipeline.contracts.base import SCHEMA_VERSION, Contract, Text, UtcDatetime
from ctx_pipeline.contracts.codes import ItemKind, Sensitivity, Trust
from ctx_pipeline.text import sha256_hex

Authority = Annotated[int, Field(ge=0, le=100)]
"""0 (a guess) to 100 (the source of truth)."""

Confidence = Annotated[float, Field(ge=0.0, le=1.0)]


class Locator(Contract):
    """Where in its source an item was found."""

    path: Text | None = None
    """Path relative to the project, with forward slashes."""
    page: Annotated[int, Field(ge=1)] | None = None
    line_start: Annotated[int, Field(ge=1)] | None = None
    """First line, counted from 1."""
    line_end: Annotated[int, Field(ge=1)] | None = None
    """Last line, inclusive."""
    url: Text | None = None
    heading_path: tuple[Text, ...] = ()
    """Headings above the item, outermost first."""


class Provenance(Contract):
    """Which system, document and version an item came from."""

    source_type: Text
    source_id: Text
    """Name of the `[[sources]]` entry."""
    source_version: Text | None = None
    locator: Locator = Locator()
    derived_from: tuple[Text, ...] = ()
    summarised_by: Text | None = None


class Scope(Contract):
    """Who may see an item. Missing tenant, or neither principals nor groups, denies everyone."""

    tenant: Text | None = None
    principals: tuple[Text, ...] = ()
    groups: tuple[Text, ...] = ()
    """`*` stands for every principal of the tenant."""
    environment: Text | None = None
    """None: every environment."""
    task_types: tuple[Text, ...] = ()
    """Empty: every task type."""
    agent_visibility: tuple[Text, ...] = ()
    """Agent roles that may see it; empty: every role."""


class Media(Contract):
    """Content that is not text."""

    type: Text
    bytes: Annotated[int, Field(ge=0)]
    ref: Text


class ContextItem(Contract):
    """One version of one thing. It never changes; a later version supersedes it."""

    schema_version: str = SCHEMA_VERSION
    item_id: Text
    """`<kind>:<source>/<stable name>`."""
    version: Text
    kind: ItemKind
    subject: Text | None = None
    """What it is about, for example `metric:gmv`; items with one subject can conflict."""
    title: Text
    content: Text | None = None
    content_ref: Text | None = None
    content_hash: str = ""
    """SHA-256 of `content` (or of `content_ref`); filled in when empty."""
    provenance: Provenance
    authority: Authority
    trust: Trust
    sensitivity: Sensitivity | None = None
    """None denies: nobody said who may see it."""
    scope: Scope
    created_at: UtcDatetime | None = None
    observed_at: UtcDatetime | None = None
    valid_from: UtcDatetime | None = None
    """None: since ever."""
    valid_until: UtcDatetime | None = None
    """First instant at which it is no longer valid. None: for ever."""
    last_verified_at: UtcDatetime | None = None
    mutable: bool = False
    confidence: Confidence = 1.0
    depends_on: tuple[Text, ...] = ()
    """Item ids that it needs to be understood, for example a metric's table."""
    supersedes: tuple[Text, ...] = ()
    """Other item ids that this version replaces."""
    synonyms: tuple[Text, ...] = ()
    """Other names it is searched by; never rendered on their own."""
    media: Media | None = None

    @model_validator(mode="after")
    def _fill_hash(self) -> ContextItem:
        if self.content is None and self.content_ref is None:
            raise ValueError("an item needs content or content_ref")
        if not self.content_hash:
            text = self.content if self.content is not None else self.content_ref or ""
            object.__setattr__(self, "content_hash", sha256_hex(text))
        return self


class ToolContextItem(Contract):
    """What the catalogue knows about a tool beside its description."""

    schema_version: str = SCHEMA_VERSION
    tool_id: Text
    description_tokens: Annotated[int, Field(ge=0)]
    schema_tokens: Annotated[int, Field(ge=0)]
    risk_level: Text
    phase: tuple[Text, ...] = ()
    semantic_overlap_group: Text | None = None
    server: Text | None = None
    schema_hash: str
    return_semantics: Text | None = None
