"""Numbers drawn inside the transaction that uses them, so that order of numbers is order of
commits.
"""

from __future__ import annotations

from sqlalchemy import update
from sqlalchemy.engine import Connection

from ctx_pipeline.ledger.schema import COUNTERS


def draw(connection: Connection, count: int) -> tuple[int, int]:
    """Take `count` consecutive sequence numbers; return the first, and the blob revision."""
    row = connection.execute(
        update(COUNTERS)
        .values(sequence=COUNTERS.c.sequence + count)
        .returning(COUNTERS.c.sequence, COUNTERS.c.blob_revision)
    ).one()
    return row[0] - count + 1, row[1]


def draw_overlay(connection: Connection, count: int) -> int:
    """Take `count` consecutive overlay numbers; return the first."""
    last = connection.execute(
        update(COUNTERS)
        .values(overlay_sequence=COUNTERS.c.overlay_sequence + count)
        .returning(COUNTERS.c.overlay_sequence)
    ).scalar_one()
    return last - count + 1


def touch_sources(connection: Connection) -> None:
    """Tell every process that a source was observed."""
    connection.execute(update(COUNTERS).values(source_revision=COUNTERS.c.source_revision + 1))


def touch_blobs(connection: Connection) -> None:
    """Tell every process that blobs were erased."""
    connection.execute(update(COUNTERS).values(blob_revision=COUNTERS.c.blob_revision + 1))
