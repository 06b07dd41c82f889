"""Who may see each row, and when: the columns that the visibility predicate reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter

from ctx_pipeline.contracts import ContextItem
from ctx_pipeline.index.overlay import ItemKey, Patch, apply_patch, supersede_chain
from ctx_pipeline.index.replacements import replacements
from ctx_pipeline.index.rows import Row, declared_version
from ctx_pipeline.security.narrowing import within_ceiling
from ctx_pipeline.security.visibility import (
    ALWAYS,
    NEVER,
    STATE_LIVE,
    ScopeLabel,
    StateColumns,
)

if TYPE_CHECKING:
    import pyarrow as pa

TIME_COLUMNS = (
    "valid_from",
    "valid_until",
    "superseded_at",
    "known_from",
    "known_superseded_at",
    "known_withdrawn_from",
    "known_withdrawn_until",
    "replaced_at",
    "known_replaced_at",
    "marked_at",
    "retired_at",
)


def label_table(
    rows: Sequence[Row],
    patches: Mapping[ItemKey, Patch],
    *,
    gone: frozenset[str] = frozenset(),
    source_labels: Mapping[str, ScopeLabel] | None = None,
    may_widen: frozenset[str] = frozenset(),
) -> pa.Table:
    """Return the labels and times of every row.

    `gone` are sources that the project no longer has: their items are retired, but still judged
    when a snapshot that showed them is read back. Columns: scope, state, tied and the times of
    `StateColumns`; the labels are in the schema's metadata as JSON.
    """
    import pyarrow as pa

    labels, columns = state_columns(
        rows, patches, gone=gone, source_labels=source_labels, may_widen=may_widen
    )
    table = pa.table(
        {
            "scope": pa.array(columns.scope, pa.int32()),
            "state": pa.array(columns.state, pa.uint8()),
            "tied": pa.array(columns.tied.astype(np.uint8), pa.uint8()),
            **{name: pa.array(getattr(columns, name), pa.int64()) for name in TIME_COLUMNS},
        }
    )
    text = json.dumps([asdict(label) for label in labels], ensure_ascii=False)
    return table.replace_schema_metadata({"labels": text})


def labels_of(table: pa.Table) -> list[ScopeLabel]:
    """Return the labels that `label_table` put beside its columns."""
    metadata: Any = table.schema.metadata or {}
    return TypeAdapter(list[ScopeLabel]).validate_json(metadata[b"labels"])


def state_columns(
    rows: Sequence[Row],
    patches: Mapping[ItemKey, Patch],
    *,
    gone: frozenset[str] = frozenset(),
    source_labels: Mapping[str, ScopeLabel] | None = None,
    may_widen: frozenset[str] = frozenset(),
) -> tuple[list[ScopeLabel], StateColumns]:
    """Compute labels and times of every row from the items and what the overlay says of them.

    `gone` are sources that the project no longer has; `source_labels` is what each source grants
    today, which bounds its items but for those of `may_widen`.
    """
    numbers: dict[ScopeLabel, int] = {}
    own_labels = within_sources(rows, source_labels or {}, may_widen)
    scope = np.fromiter(
        (numbers.setdefault(label, len(numbers)) for label in own_labels), np.int32, len(rows)
    )
    columns = StateColumns(
        scope=scope.copy(),
        state=np.full(len(rows), STATE_LIVE, np.uint8),
        valid_from=np.fromiter((row.valid_from for row in rows), np.int64, len(rows)),
        valid_until=np.fromiter((row.valid_until for row in rows), np.int64, len(rows)),
        superseded_at=np.full(len(rows), NEVER, np.int64),
        known_from=np.full(len(rows), ALWAYS, np.int64),
        known_superseded_at=np.full(len(rows), NEVER, np.int64),
        known_withdrawn_from=np.full(len(rows), NEVER, np.int64),
        known_withdrawn_until=np.full(len(rows), NEVER, np.int64),
        replaced_at=np.full(len(rows), NEVER, np.int64),
        known_replaced_at=np.full(len(rows), NEVER, np.int64),
        marked_at=np.full(len(rows), NEVER, np.int64),
        retired_at=np.full(len(rows), NEVER, np.int64),
        tied=np.zeros(len(rows), np.bool_),
    )
    own = list(numbers)
    _known_from(rows, columns)
    _narrow_older(rows, columns, numbers)
    labels = list(numbers)
    _apply_overlay(rows, columns, labels, patches)
    columns.retired_at[[at for at, row in enumerate(rows) if row.source in gone]] = ALWAYS
    _narrow_retired(rows, columns, labels, source_labels or {})
    numbers_of: list[int] = scope.tolist()
    _replace_named(rows, columns, [own[number] for number in numbers_of])
    _supersede_chains(rows, columns)
    return labels, columns


def within_sources(
    rows: Sequence[Row], source_labels: Mapping[str, ScopeLabel], may_widen: frozenset[str]
) -> Iterator[ScopeLabel]:
    """Yield the label of each row, bounded by what its source grants."""
    # Equal labels are one object, and comparing them costs more; the first of each is kept so that
    # its id is its own.
    known: dict[tuple[int, str], tuple[ScopeLabel, ScopeLabel]] = {}
    for row in rows:
        key = (id(row.label), row.source)
        if key not in known:
            ceiling = None if row.source in may_widen else source_labels.get(row.source)
            known[key] = (
                row.label,
                row.label if ceiling is None else within_ceiling(row.label, ceiling),
            )
        yield known[key][1]


def _known_from(rows: Sequence[Row], columns: StateColumns) -> None:
    """A version without `valid_from` counts, for `as_of`, from when it was recorded; the first one,
    since ever.
    """
    for at, row in enumerate(rows):
        if row.valid_from > ALWAYS:
            columns.known_from[at] = columns.valid_from[at]
        elif at and rows[at - 1].chain == row.chain:
            columns.known_from[at] = row.recorded_at


def _supersede_chains(rows: Sequence[Row], columns: StateColumns) -> None:
    """Let every item's later versions supersede its earlier ones."""
    columns.superseded_at[:] = np.minimum(columns.replaced_at, columns.marked_at)
    columns.known_superseded_at[:] = np.minimum(columns.known_replaced_at, columns.marked_at)
    first = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or rows[at].chain != rows[first].chain:
            if at - first > 1:
                for older in range(first, at - 1):
                    columns.tied[older] = is_tie(rows[older], rows[older + 1])
                supersede_chain(columns, first, at)
            first = at


def _narrow_older(
    rows: Sequence[Row], columns: StateColumns, numbers: dict[ScopeLabel, int]
) -> None:
    """Let an older version be seen only by those who may see the one that replaced it, too.

    Older versions show only with `as_of`, which sees old facts with today's rights. A version that
    had not begun when it was recorded narrows nothing: until it begins, the older one is the
    current one.
    """
    labels = list(numbers)
    newest: ScopeLabel | None = None
    for at in range(len(rows) - 2, -1, -1):
        if rows[at].chain != rows[at + 1].chain:
            newest = None
            continue
        if newest is None and columns.valid_from[at + 1] <= rows[at + 1].recorded_at:
            newest = labels[int(columns.scope[at + 1])]
        own = labels[int(columns.scope[at])]
        if newest is not None and newest != own:
            columns.scope[at] = numbers.setdefault(replace(own, also=newest), len(numbers))


def _narrow_retired(
    rows: Sequence[Row],
    columns: StateColumns,
    labels: list[ScopeLabel],
    source_labels: Mapping[str, ScopeLabel],
) -> None:
    """Let what a source no longer has be seen only by those whom the source grants something today.

    What is live was read under today's settings; what is retired kept those of its day. A source
    whose records name tenants of their own keeps them apart as long as it has something of that
    tenant.
    """
    retired = columns.retired_at < NEVER
    live_tenants = {(row.source, row.tenant) for at, row in enumerate(rows) if not retired[at]}
    numbers: dict[ScopeLabel, int] = {}
    for at in np.flatnonzero(retired).tolist():
        row = rows[at]
        today = source_labels.get(row.source)
        if today is None:
            continue
        if (row.source, row.tenant) in live_tenants:
            today = replace(today, tenant=row.tenant or None)
        own = labels[int(columns.scope[at])]
        narrowed = replace(own, also=replace(today, trust=own.trust, also=own.also))
        if narrowed not in numbers:
            numbers[narrowed] = len(labels)
            labels.append(narrowed)
        columns.scope[at] = numbers[narrowed]


def is_tie(older: Row | ContextItem, newer: Row | ContextItem) -> bool:
    """Two declared versions that compare equal (`2` and `v2.0`) conflict; neither replaces the
    other by chance.
    """
    first, second = declared_version(older.version), declared_version(newer.version)
    if first is None or second is None or "+" in older.version + newer.version:
        return False
    width = max(len(first), len(second))
    padded = [version + (0,) * (width - len(version)) for version in (first, second)]
    return padded[0] == padded[1] and older.valid_from == newer.valid_from


def _replace_named(rows: Sequence[Row], columns: StateColumns, own: Sequence[ScopeLabel]) -> None:
    """Let an item replace the others that it names in `supersedes`, as far as it may: see
    `replacements`.
    """
    found = replacements(
        rows, own, lambda row: is_served(columns.retired_at[row], columns.state[row])
    )
    for at, target in found.pairs:
        row = rows[at]
        columns.replaced_at[target] = min(columns.replaced_at[target], columns.valid_from[at])
        known = columns.known_from[at] if row.valid_from > ALWAYS else row.recorded_at
        columns.known_replaced_at[target] = min(columns.known_replaced_at[target], known)


def is_served(retired_at: int, state: int) -> bool:
    """Return whether a row is neither retired nor set aside."""
    return retired_at >= NEVER and state == STATE_LIVE


def _apply_overlay(
    rows: Sequence[Row],
    columns: StateColumns,
    labels: list[ScopeLabel],
    patches: Mapping[ItemKey, Patch],
) -> None:
    if not patches:
        return
    positions: dict[ItemKey, list[int]] = {}
    for at, row in enumerate(rows):
        for key in ((row.tenant, row.item_id, None), (row.tenant, row.item_id, row.version)):
            if key in patches:
                positions.setdefault(key, []).append(at)
    for key, patch in patches.items():
        if key in positions:
            apply_patch(columns, labels, np.asarray(positions[key], np.intp), patch)
