"""Deletes snapshots whose time has passed, with everything that only they needed."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.engine import Connection

from ctx_pipeline.ledger.counters import touch_blobs
from ctx_pipeline.ledger.records import PrunedSnapshot, from_micros, to_micros
from ctx_pipeline.ledger.schema import (
    BLOBS,
    PRUNED,
    SNAPSHOT_BLOBS,
    SNAPSHOT_ITEMS,
    SNAPSHOTS,
    USAGE,
    USED,
    chunks,
    upsert,
)

DAY_MICROS = 86_400_000_000
_FIRST_DAY = datetime(1970, 1, 1, tzinfo=UTC)


def prune(connection: Connection, before: datetime, limit: int) -> int:
    """Delete the oldest snapshots made before an instant, at most `limit`; return how many there
    were.

    Of each stays its id, its owner and its time, so that a question after it can be answered.
    """
    # First: until this transaction ends, no process may count on a blob that is deleted here.
    touch_blobs(connection)
    columns = (
        SNAPSHOTS.c.sequence,
        SNAPSHOTS.c.snapshot_id,
        SNAPSHOTS.c.tenant,
        SNAPSHOTS.c.principal,
    )
    query = (
        select(*columns, SNAPSHOTS.c.created_at)
        .where(SNAPSHOTS.c.created_at < to_micros(before))
        .order_by(SNAPSHOTS.c.created_at, SNAPSHOTS.c.sequence)
        .limit(limit)
    )
    rows = [dict(row) for row in connection.execute(query).mappings()]
    if not rows:
        return 0
    sequences = [row.pop("sequence") for row in rows]
    _delete_blobs(connection, sequences)
    for part in chunks(sequences):
        for table in (SNAPSHOT_ITEMS, USED, USAGE):
            connection.execute(delete(table).where(table.c.snapshot_sequence.in_(part)))
        connection.execute(delete(SNAPSHOTS).where(SNAPSHOTS.c.sequence.in_(part)))
    connection.execute(upsert(connection, PRUNED).on_conflict_do_nothing(), rows)
    return len(rows)


def _delete_blobs(connection: Connection, sequences: list[int]) -> None:
    """Delete the blobs that these snapshots need and no other does."""
    needed: set[str] = set()
    for part in chunks(sequences):
        links = SNAPSHOT_BLOBS.c.snapshot_sequence.in_(part)
        needed.update(
            connection.execute(select(SNAPSHOT_BLOBS.c.hash).where(links).distinct()).scalars()
        )
        connection.execute(delete(SNAPSHOT_BLOBS).where(links))
    still = select(SNAPSHOT_BLOBS.c.hash).where(SNAPSHOT_BLOBS.c.hash == BLOBS.c.hash).exists()
    for part in chunks(sorted(needed)):
        connection.execute(delete(BLOBS).where(BLOBS.c.hash.in_(part), ~still))


def select_pruned(connection: Connection, snapshot_id: str) -> PrunedSnapshot | None:
    """Return what is left of a pruned snapshot."""
    row = (
        connection.execute(select(PRUNED).where(PRUNED.c.snapshot_id == snapshot_id))
        .mappings()
        .first()
    )
    if row is None:
        return None
    return PrunedSnapshot(
        snapshot_id=snapshot_id,
        tenant=row["tenant"],
        principal=row["principal"],
        created_at=from_micros(row["created_at"]),
    )


def select_days(connection: Connection) -> tuple[date, ...]:
    """Return the UTC days on which snapshots were made, in order."""
    day = SNAPSHOTS.c.created_at // DAY_MICROS
    numbers = connection.execute(select(day).distinct().order_by(day)).scalars()
    return tuple((_FIRST_DAY + timedelta(days=int(number))).date() for number in numbers)
