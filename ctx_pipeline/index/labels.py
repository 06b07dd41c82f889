"""Who may see each row, and when: the columns that the visibility predicate reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from ctx_pipeline.contracts import ContextItem
from ctx_pipeline.index.catalogue import References, Row, declared_version
from ctx_pipeline.index.overlay import ItemKey, Patch, apply_patch
from ctx_pipeline.security.visibility import (
    ALWAYS,
    NEVER,
    STATE_LIVE,
    ScopeLabel,
    StateColumns,
    micros,
)

if TYPE_CHECKING:
    import pyarrow as pa

TIME_COLUMNS = (
    "valid_from",
    "valid_until",
    "superseded_at",
    "known_from",
    "known_superseded_at",
    "retired_at",
)


def label_table(rows: Sequence[Row], patches: Mapping[ItemKey, Patch]) -> tuple[pa.Table, StateColumns]:
    """Return the labels and times of every row as a table, and as columns.

    Columns: scope, state and the times of `StateColumns`; the labels are in the schema's metadata as JSON.
    """
    import pyarrow as pa

    labels, columns = state_columns(rows, patches)
    tenants = {tenant: number for number, tenant in enumerate(dict.fromkeys(row.tenant for row in rows))}
    table = pa.table(
        {
            "scope": pa.array(columns.scope, pa.int32()),
            "state": pa.array(columns.state, pa.uint8()),
            **{name: pa.array(getattr(columns, name), pa.int64()) for name in TIME_COLUMNS},
        }
    )
    text = json.dumps([asdict(label) for label in labels], ensure_ascii=False)
    return table.replace_schema_metadata({"labels": text, "tenants": json.dumps(tenants, ensure_ascii=False)}), columns


def labels_of(table: pa.Table) -> tuple[list[ScopeLabel], dict[str, int]]:
    """Return the labels and the tenant numbers that `label_table` put beside its columns."""
    metadata = table.schema.metadata or {}
    labels = [
        ScopeLabel(**{name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()})
        for entry in json.loads(metadata[b"labels"])
    ]
    return labels, json.loads(metadata[b"tenants"])


def state_columns(rows: Sequence[Row], patches: Mapping[ItemKey, Patch]) -> tuple[list[ScopeLabel], StateColumns]:
    """Compute labels and times of every row from the items and what the overlay says of them."""
    numbers: dict[ScopeLabel, int] = {}
    scope = np.fromiter(
        (numbers.setdefault(scope_label(row.item, row.tenant), len(numbers)) for row in rows), np.int32, len(rows)
    )
    columns = StateColumns(
        scope=scope,
        state=np.full(len(rows), STATE_LIVE, np.uint8),
        valid_from=np.fromiter((_from(row.item) for row in rows), np.int64, len(rows)),
        valid_until=np.fromiter((_until(row.item) for row in rows), np.int64, len(rows)),
        superseded_at=np.full(len(rows), NEVER, np.int64),
        known_from=np.full(len(rows), ALWAYS, np.int64),
        known_superseded_at=np.full(len(rows), NEVER, np.int64),
        retired_at=np.full(len(rows), NEVER, np.int64),
    )
    _known_from(rows, columns)
    _supersede_chains(rows, columns)
    _supersede_named(rows, columns)
    labels = list(numbers)
    _apply_overlay(rows, columns, labels, patches)
    return labels, columns


def scope_label(item: ContextItem, tenant: str) -> ScopeLabel:
    """Return what permission rules look at."""
    return ScopeLabel(
        tenant=tenant or None,
        principals=tuple(sorted(item.scope.principals)),
        groups=tuple(sorted(item.scope.groups)),
        sensitivity=None if item.sensitivity is None else item.sensitivity.value,
        environment=item.scope.environment,
        task_types=tuple(sorted(item.scope.task_types)),
        agent_visibility=tuple(sorted(item.scope.agent_visibility)),
        trust=item.trust.value,
    )


def _from(item: ContextItem) -> int:
    return ALWAYS if item.valid_from is None else micros(item.valid_from)


def _until(item: ContextItem) -> int:
    return NEVER if item.valid_until is None else micros(item.valid_until)


def is_current(columns: StateColumns, at: int) -> bool:
    return columns.superseded_at[at] > ALWAYS and columns.retired_at[at] == NEVER and columns.state[at] == STATE_LIVE


def _known_from(rows: Sequence[Row], columns: StateColumns) -> None:
    """A version without `valid_from` counts, for `as_of`, from when it was recorded; the first one, since ever."""
    for at, row in enumerate(rows):
        if row.item.valid_from is not None:
            columns.known_from[at] = columns.valid_from[at]
        elif at and rows[at - 1].chain == row.chain:
            columns.known_from[at] = row.recorded_at


def _supersede_chains(rows: Sequence[Row], columns: StateColumns) -> None:
    """A version ends when the first later version of its item begins, or at once when that has no beginning."""
    for at in range(len(rows) - 2, -1, -1):
        after = at + 1
        if rows[at].chain != rows[after].chain:
            continue
        columns.superseded_at[at] = columns.superseded_at[after]
        columns.known_superseded_at[at] = columns.known_superseded_at[after]
        if not _is_tie(rows[at], rows[after]):
            columns.superseded_at[at] = min(columns.valid_from[after], columns.superseded_at[after])
            columns.known_superseded_at[at] = min(columns.known_from[after], columns.known_superseded_at[after])


def _is_tie(older: Row, newer: Row) -> bool:
    """Two declared versions that compare equal (`2` and `v2.0`) conflict; neither replaces the other by chance."""
    first, second = declared_version(older.item.version), declared_version(newer.item.version)
    if first is None or second is None:
        return False
    width = max(len(first), len(second))
    padded = [version + (0,) * (width - len(version)) for version in (first, second)]
    return padded[0] == padded[1] and older.item.valid_from == newer.item.valid_from


def _supersede_named(rows: Sequence[Row], columns: StateColumns) -> None:
    if not any(row.item.supersedes for row in rows):
        return
    references = References(rows)
    for at, row in enumerate(rows):
        for reference in row.item.supersedes:
            for target in references.superseded(row, reference):
                if rows[target].chain != row.chain and not _same_file(rows[target], row):
                    columns.superseded_at[target] = min(columns.superseded_at[target], columns.valid_from[at])
                    known = columns.known_from[at] if row.item.valid_from is not None else row.recorded_at
                    columns.known_superseded_at[target] = min(columns.known_superseded_at[target], known)


def _same_file(one: Row, other: Row) -> bool:
    path = one.item.provenance.locator.path
    return path is not None and path == other.item.provenance.locator.path


def _apply_overlay(
    rows: Sequence[Row], columns: StateColumns, labels: list[ScopeLabel], patches: Mapping[ItemKey, Patch]
) -> None:
    if not patches:
        return
    positions: dict[ItemKey, list[int]] = {}
    for at, row in enumerate(rows):
        for key in ((row.tenant, row.item.item_id, None), (row.tenant, row.item.item_id, row.item.version)):
            if key in patches:
                positions.setdefault(key, []).append(at)
    for key, patch in patches.items():
        if key in positions:
            apply_patch(columns, labels, np.asarray(positions[key], np.intp), patch)
