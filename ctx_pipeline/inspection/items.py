"""Look at items outside a pack: list, expand, probe. Everything goes through the one visibility
predicate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ctx_pipeline.contracts import Exclusion, PackItem, Rendition, ToolContextItem
from ctx_pipeline.errors import NotFound
from ctx_pipeline.index.view import ServingView
from ctx_pipeline.security.visibility import UNNAMED_CODES, Clock, Viewer, code_of
from ctx_pipeline.stages.codebook import KINDS
from ctx_pipeline.text import sha256_hex
from ctx_pipeline.tools.catalogue import tool_items

if TYPE_CHECKING:
    from ctx_pipeline.ledger import RecallNotice


@dataclass(frozen=True, slots=True)
class ItemRow:
    """One visible item in a list."""

    item_id: str
    version: str
    kind: str
    source: str
    title: str
    authority: int
    trust: str
    tokens: int
    """Exact tokens of the full rendition."""
    shown: int
    """Snapshots that showed this version."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What the predicate says of one item version."""

    item_id: str
    version: str
    visible: bool
    code: Exclusion | None


def _not_found(item_id: str) -> NotFound:
    # The id is the caller's own word; whether it exists for somebody else is not said.
    return NotFound(
        "no such item for this identity",
        where=f"item {sha256_hex(item_id)[:8]}" if len(item_id) > 200 else f"item {item_id!r}",
        fix="list what you can see: ctx items",
    )


def inspect_why_not(
    view: ServingView, item_id: str, viewer: Viewer, clock: Clock
) -> tuple[Probe, ...]:
    """Return the predicate's word on every version of an item, oldest first.

    Raises:
        NotFound: no version that this viewer may know of.
    """
    rows = view.reader.find(viewer.tenant, item_id)
    codes = view.codes(np.asarray(rows, np.intp), viewer, clock).tolist()
    probes = tuple(
        Probe(item_id, view.reader.text("version", row), code == 0, code_of(code))
        for row, code in zip(rows, codes, strict=True)
        if code_of(code) not in UNNAMED_CODES
    )
    if not probes:
        raise _not_found(item_id)
    return probes


def inspect_recalls(
    view: ServingView,
    notices: Iterable[RecallNotice],
    viewer: Viewer,
    clock: Clock,
    is_own: Callable[[str], bool],
) -> tuple[RecallNotice, ...]:
    """Return the notices about versions that this viewer may know of, each with the viewer's own
    snapshots.

    `snapshots` still counts those of the whole tenant.
    """

    @cache
    def named(item_id: str) -> frozenset[str]:
        try:
            return frozenset(
                probe.version for probe in inspect_why_not(view, item_id, viewer, clock)
            )
        except NotFound:
            return frozenset()

    return tuple(
        replace(
            notice,
            snapshot_ids=tuple(filter(is_own, notice.snapshot_ids)),
            pruned_ids=tuple(filter(is_own, notice.pruned_ids)),
        )
        for notice in notices
        if notice.tenant == viewer.tenant and notice.version in named(notice.item_id)
    )


def inspect_expand(
    view: ServingView,
    item_id: str,
    rendition: Rendition,
    viewer: Viewer,
    clock: Clock,
    encoding: str,
) -> PackItem:
    """Return the visible version of an item.

    Raises:
        NotFound: no version is visible now.
    """
    reader = view.reader
    rows = reader.find(viewer.tenant, item_id)
    codes = view.codes(np.asarray(rows, np.intp), viewer, clock).tolist()
    visible = [row for row, code in zip(rows, codes, strict=True) if code == 0]
    if not visible:
        raise _not_found(item_id)
    row = visible[-1]
    tokens = reader.tokens[encoding][row].tolist()
    shown = rendition if tokens[list(Rendition).index(rendition)] else Rendition.FULL
    return PackItem(
        item_id=item_id,
        version=reader.text("version", row),
        kind=KINDS[int(reader.kind[row])],
        title=reader.text("title", row),
        rendition=shown,
        tokens=tokens[list(Rendition).index(shown)],
        text=reader.block(row, shown),
    )


def inspect_items(
    view: ServingView,
    viewer: Viewer,
    clock: Clock,
    *,
    kind: str | None,
    source: str | None,
    limit: int,
    encoding: str,
    shown: Mapping[tuple[str, str], int],
) -> tuple[ItemRow, ...]:
    """Return the visible items of a viewer, by item id, at most `limit`."""
    reader = view.reader
    first, last = reader.tenants.get(viewer.tenant, (0, 0))
    codes = view.codes(slice(first, last), viewer, clock)
    wanted = codes == 0
    if kind is not None:
        wanted &= reader.kind[first:last] == (KINDS.index(kind) if kind in KINDS else -1)
    if source is not None:
        numbers = [number for number, facts in enumerate(reader.sources) if facts["name"] == source]
        wanted &= np.isin(reader.source[first:last], numbers)
    rows = (np.flatnonzero(wanted)[:limit] + first).tolist()
    return tuple(
        ItemRow(
            item_id=reader.text("item_id", row),
            version=reader.text("version", row),
            kind=KINDS[int(reader.kind[row])],
            source=reader.sources[int(reader.source[row])]["name"],
            title=reader.text("title", row),
            authority=int(reader.authority[row]),
            trust=view.labels[view.state.scope[row]].trust,
            tokens=int(reader.tokens[encoding][row][0]),
            shown=shown.get((reader.text("item_id", row), reader.text("version", row)), 0),
        )
        for row in rows
    )


def inspect_tools(view: ServingView, viewer: Viewer, clock: Clock) -> tuple[ToolContextItem, ...]:
    """Return what the catalogue knows of the tools that a viewer can see, by item id."""
    known = tool_items(view.reader.tool_table)
    codes = view.codes(np.fromiter((row for row, _ in known), np.intp), viewer, clock).tolist()
    return tuple(
        _own_groups([item for (_, item), code in zip(known, codes, strict=True) if code == 0])
    )


def _own_groups(tools: Sequence[ToolContextItem]) -> list[ToolContextItem]:
    """Name each group of tools that do the same by its first member here: others may be hidden from
    the viewer.
    """
    members: dict[str, list[str]] = defaultdict(list)
    for tool in tools:
        if tool.semantic_overlap_group is not None:
            members[tool.semantic_overlap_group].append(tool.tool_id)
    heads = {group: min(ids) for group, ids in members.items() if len(ids) > 1}
    return [
        tool.model_copy(
            update={"semantic_overlap_group": heads.get(tool.semantic_overlap_group or "")}
        )
        for tool in tools
    ]
