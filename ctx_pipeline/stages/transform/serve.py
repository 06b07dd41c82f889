"""Transform: raw content becomes renditions.

The batch half renders every row; the serve half hands out the rendition that the budget chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ctx_pipeline.contracts import ContextItem, ItemKind, Rendition
from ctx_pipeline.stages.blocks import BlockLabels, Blocks, make_blocks
from ctx_pipeline.stages.candidates import Candidate
from ctx_pipeline.tools.compact import compact_tool

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.index.reader import ArtifactReader


def render_item(item: ContextItem) -> Blocks:
    """Return every rendition of an item; a tool's full and compact ones are one line of JSON each."""
    content = item.content if item.content is not None else item.content_ref or ""
    labels = BlockLabels(
        item_id=item.item_id,
        version=item.version,
        title=item.title,
        source=item.provenance.source_id,
        trust=item.trust.value,
    )
    blocks = make_blocks(labels, content)
    if item.kind is ItemKind.TOOL:
        short = compact_tool(content)
        return Blocks(
            full=content + "\n",
            compact=None if short is None else short + "\n",
            pointer=blocks.pointer,
        )
    return blocks


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


def serve(candidate: Candidate, reader: ArtifactReader | None) -> str:
    """Return the text of a candidate's chosen rendition."""
    rendition = candidate.rendition or Rendition.FULL
    if candidate.blocks is not None:
        blocks = candidate.blocks
        chosen = {
            Rendition.FULL: blocks.full,
            Rendition.COMPACT: blocks.compact,
            Rendition.POINTER: blocks.pointer,
        }
        return chosen[rendition] or blocks.full
    assert reader is not None, "an indexed candidate needs its index"
    return reader.block(candidate.row, rendition)
