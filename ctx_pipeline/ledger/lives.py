"""Where the lives of item versions stand: what the sweep of evictions asks the lifecycle log."""

from __future__ import annotations

from sqlalchemy import and_, func, select
from sqlalchemy.engine import Connection

from ctx_pipeline.contracts.codes import Lifecycle
from ctx_pipeline.ledger.schema import EVENTS

Life = tuple[Lifecycle, ...]
"""States of a version, in order, since it was last created or restored."""

_BEGINS = frozenset({Lifecycle.CREATED, Lifecycle.RESTORED})


def select_lives(connection: Connection) -> dict[tuple[str, str, str], Life]:
    """Return, by tenant, item and version, the lives of all versions that anything happened to
    after `created`.
    """
    table, other = EVENTS.c, EVENTS.alias().c
    # Most versions were created and nothing else: they are left where they are.
    changed = select(other.version).where(
        and_(
            other.tenant == table.tenant,
            other.item_id == table.item_id,
            other.version == table.version,
            other.to_state != Lifecycle.CREATED.value,
        )
    )
    query = select(table.tenant, table.item_id, table.version, table.to_state)
    lives: dict[tuple[str, str, str], Life] = {}
    for tenant, item_id, version, state in connection.execute(
        query.where(changed.exists()).order_by(table.sequence)
    ):
        _go_on(lives, (tenant, item_id, version), Lifecycle(state))
    return lives


def select_life(connection: Connection, tenant: str, item_id: str, version: str) -> Life:
    """Return the life of one version; empty when the log does not know it."""
    table = EVENTS.c
    query = select(table.to_state).where(
        table.tenant == tenant, table.item_id == item_id, table.version == version
    )
    lives: dict[tuple[str, str, str], Life] = {}
    key = (tenant, item_id, version)
    for state in connection.execute(query.order_by(table.sequence)).scalars():
        _go_on(lives, key, Lifecycle(state))
    return lives.get(key, ())


def select_last_created(connection: Connection) -> int:
    """Return the highest number of a version that the log knows; 0 when there is none."""
    created = EVENTS.c.to_state == Lifecycle.CREATED.value
    query = select(EVENTS.c.sequence).where(created).order_by(EVENTS.c.sequence.desc()).limit(1)
    return connection.execute(query).scalar() or 0


def count_created(connection: Connection, after: int) -> int:
    """Return how many item versions were recorded under a number above `after`."""
    created = EVENTS.c.to_state == Lifecycle.CREATED.value
    query = select(func.count()).select_from(EVENTS).where(EVENTS.c.sequence > after, created)
    return connection.execute(query).scalar() or 0


def _go_on(
    lives: dict[tuple[str, str, str], Life], key: tuple[str, str, str], state: Lifecycle
) -> None:
    lives[key] = (state,) if state in _BEGINS else (*lives.get(key, ()), state)
