"""How new item versions get their numbers, and their beginning in the lifecycle log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from ctx_pipeline.contracts import ContextItem, Lifecycle, LifecycleEvent
from ctx_pipeline.errors import Corrupt
from ctx_pipeline.index.facts import start_of
from ctx_pipeline.index.rows import chain_order
from ctx_pipeline.index.store import StoredItem
from ctx_pipeline.ledger.retirements import BUILD as ACTOR

if TYPE_CHECKING:
    from ctx_pipeline.index.store import Store
    from ctx_pipeline.ledger import Ledger


def numbered_rows(
    items: Sequence[ContextItem], ledger: Ledger, last: int, now: datetime
) -> list[StoredItem]:
    """Return the rows of item versions under numbers of the ledger; several of one item in version
    order.

    Raises:
        Corrupt: the ledger is older than the store, whose last number is `last` (`ledger_behind`).
    """
    if not items:
        return []
    ordered = _in_chain_order(items)
    first = ledger.reserve(len(ordered))
    if first <= last:
        raise Corrupt(
            f"the ledger is older than the item store: it gives number {first}, the store already "
            f"has {last}",
            where=".ctx/state",
            fix="restore .ctx/state from a backup as a whole; ledger and store belong together",
            code="ledger_behind",
        )
    return [
        StoredItem.from_item(item, seq=first + at, recorded_at=now)
        for at, item in enumerate(ordered)
    ]


def _in_chain_order(items: Sequence[ContextItem]) -> list[ContextItem]:
    groups: dict[tuple[str, str], list[ContextItem]] = {}
    for item in items:
        groups.setdefault((item.scope.tenant or "", item.item_id), []).append(item)
    return [
        group[at]
        for group in groups.values()
        for at in chain_order([(item.version, start_of(item), at) for at, item in enumerate(group)])
    ]


def finish_log(store: Store, ledger: Ledger) -> None:
    """Log the beginning of stored versions that a killed process has stored and not logged.

    Call it holding the store's writer lock, before anything is appended: then only the last rows
    can lack it.
    """
    import pyarrow.compute as pc

    last = ledger.last_created()
    if store.max_seq() <= last:
        return
    keys = store.scan_keys()
    lacking = keys.filter(pc.greater(keys.column("seq"), last))
    names = ("tenant", "item_id", "version", "source", "seq", "recorded_at")
    rows = zip(*(lacking.column(name).to_pylist() for name in names), strict=True)
    ledger.append_events([_created(*row) for row in rows])


def created_events(rows: Sequence[StoredItem]) -> list[LifecycleEvent]:
    """Return the beginning of each stored version in the lifecycle log."""
    return [
        _created(row.tenant, row.item_id, row.version, row.source, row.seq, row.recorded_at)
        for row in rows
    ]


def _created(
    tenant: str, item_id: str, version: str, source: str, seq: int, at: datetime
) -> LifecycleEvent:
    return LifecycleEvent(
        tenant=tenant,
        item_id=item_id,
        version=version,
        from_state=None,
        to_state=Lifecycle.CREATED,
        reason=f"read from source {source}",
        at=at,
        actor=ACTOR,
        sequence=seq,
    )
