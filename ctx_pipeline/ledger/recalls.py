"""Recall notices: which calls had shown an item version that is no longer right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.engine import Connection, RowMapping

from ctx_pipeline.contracts.codes import Lifecycle
from ctx_pipeline.errors import InvalidRequest
from ctx_pipeline.ledger.counters import draw
from ctx_pipeline.ledger.records import MAX_RECALL_IDS, RecallNotice, from_micros, to_micros
from ctx_pipeline.ledger.schema import EVENTS, RECALLS, SNAPSHOTS, chunks, upsert
from ctx_pipeline.text import repair

_BEGINS = (Lifecycle.CREATED.value, Lifecycle.RESTORED.value)


def check_recalls(recalls: Sequence[RecallNotice]) -> None:
    """Refuse the whole batch when one notice counts fewer snapshots than it names."""
    for notice in recalls:
        if notice.snapshots < len(notice.snapshot_ids):
            raise InvalidRequest(
                f"a recall counts {notice.snapshots} snapshots and names "
                f"{len(notice.snapshot_ids)}",
                where=f"item {notice.item_id[:200]!r}",
                fix="count every snapshot that showed the version",
            )


def insert_recalls(connection: Connection, recalls: Sequence[RecallNotice]) -> None:
    """Append notices. One with the same item version and code, since the version was created or
    restored, stays.

    The events of the same transaction have to be stored before.
    """
    first, _ = draw(connection, len(recalls))
    rows = [_row(notice, first + n, _since(connection, notice)) for n, notice in enumerate(recalls)]
    connection.execute(upsert(connection, RECALLS).on_conflict_do_nothing(), rows)


def select_recalls(
    connection: Connection, tenant: str | None, since: int, limit: int
) -> tuple[RecallNotice, ...]:
    """Return notices after `since`, in order."""
    query = (
        select(RECALLS).where(RECALLS.c.sequence > since).order_by(RECALLS.c.sequence).limit(limit)
    )
    if tenant is not None:
        query = query.where(RECALLS.c.tenant == tenant)
    rows = connection.execute(query).mappings().all()
    named = {row["sequence"]: tuple[str, ...](json.loads(row["snapshot_ids_json"])) for row in rows}
    stored = _stored(connection, {key for ids in named.values() for key in ids})
    return tuple(_notice(row, named[row["sequence"]], stored) for row in rows)


def _since(connection: Connection, notice: RecallNotice) -> int:
    table = EVENTS.c
    same = (
        table.tenant == notice.tenant,
        table.item_id == notice.item_id,
        table.version == notice.version,
    )
    query = select(func.coalesce(func.max(table.sequence), 0)).where(
        *same, table.to_state.in_(_BEGINS)
    )
    return int(connection.execute(query).scalar_one())


def _stored(connection: Connection, ids: set[str]) -> set[str]:
    stored: set[str] = set()
    for part in chunks(sorted(ids)):
        query = select(SNAPSHOTS.c.snapshot_id).where(SNAPSHOTS.c.snapshot_id.in_(part))
        stored.update(connection.execute(query).scalars())
    return stored


def _row(notice: RecallNotice, sequence: int, since: int) -> dict[str, Any]:
    return {
        "sequence": sequence,
        "tenant": notice.tenant,
        "item_id": notice.item_id,
        "version": notice.version,
        "code": notice.code,
        "since": since,
        "reason": repair(notice.reason),
        "at": to_micros(notice.at),
        "actor": notice.actor,
        "snapshots": notice.snapshots,
        "snapshot_ids_json": json.dumps(notice.snapshot_ids[:MAX_RECALL_IDS]),
    }


def _notice(row: RowMapping, ids: tuple[str, ...], stored: set[str]) -> RecallNotice:
    return RecallNotice(
        sequence=row["sequence"],
        tenant=row["tenant"],
        item_id=row["item_id"],
        version=row["version"],
        code=row["code"],
        reason=row["reason"],
        at=from_micros(row["at"]),
        actor=row["actor"],
        snapshots=row["snapshots"],
        snapshot_ids=ids,
        pruned_ids=tuple(key for key in ids if key not in stored),
    )
