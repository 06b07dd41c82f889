"""The parts of a pack that a model reads: blocks in sections, and tools."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from ctx_pipeline.contracts.base import Contract
from ctx_pipeline.contracts.codes import Rendition, Zone

Tokens = Annotated[int, Field(ge=0)]


class PackItem(Contract):
    """One item as it is shown."""

    item_id: str
    version: str
    kind: str
    title: str
    rendition: Rendition
    tokens: Tokens
    """Exact tokens of `text`."""
    text: str
    """The whole block, delimiters included."""


class PackSection(Contract):
    """Blocks of one role, in order."""

    name: str
    role: str
    zone: Zone
    heading: str
    """The line that opens the section; its tokens count."""
    heading_tokens: Tokens
    items: tuple[PackItem, ...]


class Capability(Contract):
    """A tool the model may see. Seeing a tool never grants it."""

    item_id: str
    version: str
    name: str
    description: str
    input_schema: dict[str, Any]
    tokens: Tokens
    risk_level: str
    """`low` reads, `medium` writes, `high` may not be undone."""
    schema_hash: str
    rendition: Rendition = Rendition.FULL
    """`compact`: descriptions are shorter, and the same arguments are accepted."""
    server: str | None = None
    """Who offers it. None: the caller, or an index that does not say."""
    tool_name: str | None = None
    """What `server` calls it; differs from `name` where two servers have a tool of that name, or
    where providers do not take it. None: as `name`."""
