"""What a roll-up of exposure by days asks of the stored snapshots."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from ctx_pipeline.ledger.records import to_micros
from ctx_pipeline.ledger.schema import SNAPSHOTS, USED

_DAY_MICROS = 86_400_000_000
_FIRST_DAY = date(1970, 1, 1)
_FETCHED_ROWS = 200
"""Packs in memory at a time; one takes some tens of kilobytes."""

Key = tuple[str, str, str]
"""Tenant, item id, version."""


@dataclass(frozen=True, slots=True)
class DayMark:
    """What tells whether anything was added to a day: both numbers only grow, until snapshots are
    pruned.
    """

    last_sequence: int
    """Of the day's snapshots."""
    cited: int
    """Reports of cited items in the day's snapshots."""


def day_bounds(day: date) -> tuple[datetime, datetime]:
    """Return the first moment of a UTC day and that of the next."""
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return start, start + timedelta(days=1)


def select_marks(connection: Connection) -> dict[date, DayMark]:
    """Return the mark of every UTC day of which snapshots are stored, in order."""
    day = SNAPSHOTS.c.created_at // _DAY_MICROS
    last = connection.execute(
        select(day, func.max(SNAPSHOTS.c.sequence)).group_by(day).order_by(day)
    ).all()
    join = USED.join(SNAPSHOTS, SNAPSHOTS.c.sequence == USED.c.snapshot_sequence)
    cited = {
        row[0]: row[1]
        for row in connection.execute(select(day, func.count()).select_from(join).group_by(day))
    }
    return {
        _FIRST_DAY + timedelta(days=int(number)): DayMark(int(sequence), int(cited.get(number, 0)))
        for number, sequence in last
    }


def select_tokens(connection: Connection, since: datetime, until: datetime) -> dict[Key, int]:
    """Return how many tokens each item version took in the packs made from `since` on and before
    `until`.
    """
    query = select(SNAPSHOTS.c.tenant, SNAPSHOTS.c.pack_json).where(
        SNAPSHOTS.c.created_at >= to_micros(since),
        SNAPSHOTS.c.created_at < to_micros(until),
        SNAPSHOTS.c.pack_json.is_not(None),
    )
    tokens: Counter[Key] = Counter()
    rows = connection.execution_options(yield_per=_FETCHED_ROWS).execute(query)
    for tenant, folded in rows:
        pack: dict[str, Any] = json.loads(folded)
        for section in pack.get("sections", ()):
            for item in section["items"]:
                tokens[tenant, item["item_id"], item["version"]] += int(item["tokens"])
    return dict(tokens)
