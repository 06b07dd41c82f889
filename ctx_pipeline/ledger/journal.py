"""The append-only logs (lifecycle events, overlay), source observations, and what agents report
back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, cast

from pydantic import TypeAdapter
from sqlalchemy import func, insert, select
from sqlalchemy.engine import Connection, RowMapping

from ctx_pipeline.contracts.codes import Lifecycle
from ctx_pipeline.contracts.report import FileError, SourceFile
from ctx_pipeline.contracts.trace import LifecycleEvent
from ctx_pipeline.errors import Conflict, InvalidRequest, NotFound
from ctx_pipeline.ledger.counters import draw, draw_overlay, touch_sources
from ctx_pipeline.ledger.records import (
    OVERLAY_CODES,
    OverlayEntry,
    SourceObservation,
    from_micros,
    to_micros,
)
from ctx_pipeline.ledger.retention import select_pruned
from ctx_pipeline.ledger.schema import (
    EVENTS,
    OVERLAY,
    SNAPSHOT_ITEMS,
    SNAPSHOTS,
    SOURCES,
    USAGE,
    USED,
    insert_rows,
    upsert,
)
from ctx_pipeline.ledger.transitions import check_transition
from ctx_pipeline.text import canonical_json, repair, sha256_hex

_ERRORS = TypeAdapter(tuple[FileError, ...])
_FILES = TypeAdapter(tuple[SourceFile, ...])

# --- lifecycle events


def insert_events(connection: Connection, events: Sequence[LifecycleEvent]) -> None:
    """Append events; those without a sequence get the next numbers, those delivered before change
    nothing.
    """
    numbered = _not_stored(connection, [event for event in events if event.sequence is not None])
    unnumbered = [event for event in events if event.sequence is None]
    rows = [_event_row(event, cast(int, event.sequence)) for event in numbered]
    if unnumbered:
        first, _ = draw(connection, len(unnumbered))
        rows += [_event_row(event, first + n) for n, event in enumerate(unnumbered)]
    if rows:
        insert_rows(connection, EVENTS, rows)


def check_events(events: Iterable[LifecycleEvent]) -> None:
    """Refuse the whole batch when one of its steps is illegal."""
    for step in {(event.from_state, event.to_state) for event in events}:
        check_transition(*step)


def select_events(connection: Connection, tenant: str, item_id: str) -> tuple[LifecycleEvent, ...]:
    """Return an item's events by sequence."""
    query = (
        select(EVENTS)
        .where(EVENTS.c.tenant == tenant, EVENTS.c.item_id == item_id)
        .order_by(EVENTS.c.sequence)
    )
    return tuple(_event(row) for row in connection.execute(query).mappings())


def _not_stored(connection: Connection, events: Sequence[LifecycleEvent]) -> list[LifecycleEvent]:
    if not events:
        return []
    by_sequence = {cast(int, event.sequence): event for event in events}
    query = select(EVENTS).where(EVENTS.c.sequence.between(min(by_sequence), max(by_sequence)))
    stored = {row["sequence"]: _event(row) for row in connection.execute(query).mappings()}
    for event in events:
        number = cast(int, event.sequence)
        if by_sequence[number] != event or stored.get(number, event) != event:
            raise Conflict(
                f"another event has sequence {number}",
                fix="take numbers from reserve()",
                code="sequence_reused",
            )
    return [event for number, event in by_sequence.items() if number not in stored]


def _event_row(event: LifecycleEvent, sequence: int) -> dict[str, Any]:
    return {
        "sequence": sequence,
        "tenant": event.tenant,
        "item_id": event.item_id,
        "version": event.version,
        "from_state": event.from_state.value if event.from_state else None,
        "to_state": event.to_state.value,
        "reason": event.reason,
        "at": to_micros(event.at),
        "actor": event.actor,
        "snapshot_id": event.snapshot_id,
        "schema_version": event.schema_version,
    }


def _event(row: RowMapping) -> LifecycleEvent:
    before = row["from_state"]
    return LifecycleEvent(
        schema_version=row["schema_version"],
        tenant=row["tenant"],
        item_id=row["item_id"],
        version=row["version"],
        from_state=Lifecycle(before) if before is not None else None,
        to_state=Lifecycle(row["to_state"]),
        reason=row["reason"],
        at=from_micros(row["at"]),
        actor=row["actor"],
        snapshot_id=row["snapshot_id"],
        sequence=row["sequence"],
    )


# --- overlay


def check_overlay(entries: Iterable[OverlayEntry]) -> None:
    """Refuse the whole batch when one entry has an unknown code."""
    for entry in entries:
        if entry.code not in OVERLAY_CODES:
            raise InvalidRequest(
                f"overlay code {entry.code!r} is unknown",
                fix=f"use one of {', '.join(sorted(OVERLAY_CODES))}",
            )


def insert_overlay(connection: Connection, entries: Sequence[OverlayEntry]) -> int:
    """Append entries and return the sequence of the last one."""
    first = draw_overlay(connection, len(entries))
    connection.execute(
        insert(OVERLAY), [_overlay_row(entry, first + n) for n, entry in enumerate(entries)]
    )
    return first + len(entries) - 1


def select_overlay(connection: Connection, sequence: int) -> tuple[OverlayEntry, ...]:
    """Return the entries after `sequence`, in order."""
    query = select(OVERLAY).where(OVERLAY.c.sequence > sequence).order_by(OVERLAY.c.sequence)
    return tuple(_overlay_entry(row) for row in connection.execute(query).mappings())


def _overlay_row(entry: OverlayEntry, sequence: int) -> dict[str, Any]:
    return {
        "sequence": sequence,
        "code": entry.code,
        "tenant": entry.tenant,
        "item_id": entry.item_id,
        "version": entry.version,
        "principal": entry.principal,
        "group_name": entry.group,
        "effective_at": to_micros(entry.effective_at),
        "recorded_at": to_micros(entry.recorded_at),
        "actor": entry.actor,
        "reason": repair(entry.reason),
    }


def _overlay_entry(row: RowMapping) -> OverlayEntry:
    return OverlayEntry(
        sequence=row["sequence"],
        code=row["code"],
        tenant=row["tenant"],
        item_id=row["item_id"],
        version=row["version"],
        principal=row["principal"],
        group=row["group_name"],
        effective_at=from_micros(row["effective_at"]),
        recorded_at=from_micros(row["recorded_at"]),
        actor=row["actor"],
        reason=row["reason"],
    )


# --- sources


def upsert_source(connection: Connection, source: SourceObservation) -> None:
    """Keep this as the last look at its source; a failed look leaves the time of
    the last good one.
    """
    row = {
        "name": source.name,
        "kind": source.kind,
        "observed_at": to_micros(source.observed_at),
        "succeeded_at": to_micros(source.observed_at) if source.status == "ok" else None,
        "fingerprint": source.fingerprint,
        "status": source.status,
        "items": source.items,
        "errors_json": repair(_ERRORS.dump_json(source.errors).decode()),
        "files_json": repair(_FILES.dump_json(source.files).decode()),
    }
    statement = upsert(connection, SOURCES).values(row)
    updated: dict[str, Any] = {name: statement.excluded[name] for name in row if name != "name"}
    updated["succeeded_at"] = func.coalesce(statement.excluded.succeeded_at, SOURCES.c.succeeded_at)
    connection.execute(
        statement.on_conflict_do_update(index_elements=[SOURCES.c.name], set_=updated)
    )
    touch_sources(connection)


def select_sources(connection: Connection) -> dict[str, SourceObservation]:
    """Return the last look at every source, by name."""
    rows = connection.execute(select(SOURCES).order_by(SOURCES.c.name)).mappings()
    return {row["name"]: _source(row) for row in rows}


def select_source_times(connection: Connection) -> dict[str, datetime]:
    """Return when each source was last observed with success; one that never was is absent."""
    query = select(SOURCES.c.name, SOURCES.c.succeeded_at).where(
        SOURCES.c.succeeded_at.is_not(None)
    )
    return {row[0]: from_micros(row[1]) for row in connection.execute(query)}


def _source(row: RowMapping) -> SourceObservation:
    succeeded = row["succeeded_at"]
    return SourceObservation(
        name=row["name"],
        kind=row["kind"],
        observed_at=from_micros(row["observed_at"]),
        fingerprint=row["fingerprint"],
        status=cast(Literal["ok", "failed"], row["status"]),
        items=row["items"],
        errors=_ERRORS.validate_json(row["errors_json"]),
        files=_FILES.validate_json(row["files_json"]),
        succeeded_at=from_micros(succeeded) if succeeded is not None else None,
    )


# --- what agents report back


def insert_used(
    connection: Connection, snapshot_id: str, item_ids: Sequence[str], at: datetime
) -> None:
    """Record which shown items the answer cited; all or none."""
    sequence, tenant = _require_snapshot(connection, snapshot_id)
    table = SNAPSHOT_ITEMS.c
    shown: set[str] = set()
    for item_id in dict.fromkeys(item_ids):
        key = (
            table.tenant == tenant,
            table.item_id == item_id,
            table.snapshot_sequence == sequence,
        )
        if connection.execute(select(table.item_id).where(*key, table.selected).limit(1)).first():
            shown.add(item_id)
    unknown = [item_id for item_id in item_ids if item_id not in shown]
    if unknown:
        raise InvalidRequest(
            f"{len(unknown)} of {len(item_ids)} items were not shown, the first is {unknown[0]!r}",
            where=f"snapshot {snapshot_id!r}",
            fix="report only items of the pack",
            code="not_visible",
        )
    if shown:
        micros = to_micros(at)
        rows = [
            {"tenant": tenant, "item_id": item_id, "snapshot_sequence": sequence, "used_at": micros}
            for item_id in sorted(shown)
        ]
        connection.execute(upsert(connection, USED).on_conflict_do_nothing(), rows)


def insert_usage(
    connection: Connection, snapshot_id: str, usage: Mapping[str, Any], at: datetime
) -> None:
    """Record the provider's figures for one call; the same figures twice are one report."""
    snapshot_sequence, _ = _require_snapshot(connection, snapshot_id)
    text = repair(canonical_json(dict(usage)))
    sequence, _ = draw(connection, 1)
    row = {
        "snapshot_sequence": snapshot_sequence,
        "digest": sha256_hex(text),
        "sequence": sequence,
        "reported_at": to_micros(at),
        "usage_json": text,
    }
    connection.execute(upsert(connection, USAGE).values(row).on_conflict_do_nothing())


def select_usage(connection: Connection, snapshot_id: str) -> tuple[dict[str, Any], ...]:
    """Return the usage reports of one snapshot, oldest first."""
    query = (
        select(USAGE.c.usage_json)
        .join(SNAPSHOTS, SNAPSHOTS.c.sequence == USAGE.c.snapshot_sequence)
        .where(SNAPSHOTS.c.snapshot_id == snapshot_id)
        .order_by(USAGE.c.sequence)
    )
    return tuple(json.loads(text) for text in connection.execute(query).scalars())


def select_used_counts(connection: Connection, tenant: str) -> dict[str, int]:
    """Return, by item, in how many snapshots it was cited."""
    query = (
        select(USED.c.item_id, func.count()).where(USED.c.tenant == tenant).group_by(USED.c.item_id)
    )
    return {row[0]: row[1] for row in connection.execute(query.order_by(USED.c.item_id))}


def _require_snapshot(connection: Connection, snapshot_id: str) -> tuple[int, str]:
    query = select(SNAPSHOTS.c.sequence, SNAPSHOTS.c.tenant).where(
        SNAPSHOTS.c.snapshot_id == snapshot_id
    )
    row = connection.execute(query).first()
    if row is None:
        if (pruned := select_pruned(connection, snapshot_id)) is not None:
            raise pruned.error()
        raise NotFound(
            "no such snapshot",
            where=f"snapshot {snapshot_id!r}",
            fix="use the snapshot_id of a pack",
        )
    return row[0], row[1]
