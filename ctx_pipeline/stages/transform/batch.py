"""What is handed out: every rendition of every row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ctx_pipeline.contracts import ContextItem, ItemKind
from ctx_pipeline.stages.blocks import BlockLabels, Blocks, make_blocks, time_text
from ctx_pipeline.text import legible
from ctx_pipeline.tools.compact import compact_tool
from ctx_pipeline.tools.provider_form import provider_form

if TYPE_CHECKING:
    import pyarrow as pa


def render_item(item: ContextItem) -> Blocks:
    """Return every rendition of an item; those of a tool, but its pointer, are JSON that providers
    take.
    """
    content = item.content if item.content is not None else item.content_ref or ""
    labels = BlockLabels(
        item_id=item.item_id,
        version=item.version,
        title=item.title,
        source=item.provenance.source_id,
        trust=item.trust.value,
        times=_times(item),
    )
    blocks = make_blocks(labels, content)
    if item.kind is ItemKind.TOOL:
        content = provider_form(legible(content)).content
        short = compact_tool(content)
        return Blocks(
            full=content + "\n",
            compact=None if short is None else short + "\n",
            pointer=blocks.pointer,
        )
    return blocks


def _times(item: ContextItem) -> tuple[tuple[str, str], ...]:
    """Return the times of what somebody said or saw once, which a newer one
    may have made untrue.
    """
    if item.kind not in (ItemKind.MEMORY, ItemKind.OBSERVATION):
        return ()
    known = (
        ("created", item.created_at),
        ("observed", item.observed_at),
        ("verified", item.last_verified_at),
        ("since", item.valid_from),
    )
    return tuple((name, time_text(time)) for name, time in known if time is not None)


def batch(items: Sequence[ContextItem]) -> pa.Table:
    """Render every item.

    Columns: full, compact (null where it saves too little), pointer.
    """
    import pyarrow as pa

    rendered = [render_item(item) for item in items]
    return pa.table(
        {
            "full": pa.array([blocks.full for blocks in rendered], pa.large_string()),
            "compact": pa.array([blocks.compact for blocks in rendered], pa.large_string()),
            "pointer": pa.array([blocks.pointer for blocks in rendered], pa.large_string()),
        }
    )
