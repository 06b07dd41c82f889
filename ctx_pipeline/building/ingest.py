"""Bring a source's items into the store: only what changed is written, and nothing is lost to a bad
file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from ctx_pipeline.building.numbering import created_events, finish_log, numbered_rows
from ctx_pipeline.contracts import (
    ContextItem,
    Lifecycle,
    SourceReport,
)
from ctx_pipeline.index.facts import start_of
from ctx_pipeline.index.overlay import ItemKey
from ctx_pipeline.ledger.retirements import BUILD as ACTOR
from ctx_pipeline.ledger.retirements import (
    entries_of,
    said_again,
    steps,
)
from ctx_pipeline.sources.units import KnownItem
from ctx_pipeline.text import short_hash

if TYPE_CHECKING:
    from ctx_pipeline.config.settings import SourceConfig
    from ctx_pipeline.index.store import Store, StoredItem
    from ctx_pipeline.ledger import Ledger, OverlayEntry
    from ctx_pipeline.sources import SourceReading

from ctx_pipeline.building.source_plan import newest, plan_refresh, versioned
from ctx_pipeline.building.source_record import Key, Record, is_retired, read_record


def refresh(
    source: SourceConfig,
    reading: SourceReading,
    store: Store,
    ledger: Ledger,
    now: datetime,
    *,
    confirmed_by: str | None = None,
    record: Record | None = None,
    ceiling: Callable[[ContextItem], ContextItem] | None = None,
    remember: Callable[[Mapping[bytes, tuple[KnownItem, ...]]], None] | None = None,
) -> SourceReport:
    """Store what is new in a reading, retire what the source no longer has, and report every file.

    A source that lost more than it plausibly would (`max_shrink`), or could not be read at all,
    retires nothing until `confirmed_by` names the person who says that it is right. The store's
    append is the commit point; the overlay and the lifecycle events follow and are repeated safely
    by the next refresh. One writer at a time; readers are never blocked. `record` is what was known
    before the source was read; `remember` is told what each unit of it says, as it is stored now.
    `ceiling`, for a source whose grants have changed, narrows what stays without having been read
    under the new ones.
    """
    with store.writer():
        finish_log(store, ledger)
        if record is None or record.at != (store.max_seq(), ledger.overlay_sequence()):
            record = read_record(source.name, store, ledger)
        changes = plan_refresh(
            source, reading, record, store, now, confirmed=confirmed_by is not None
        )
        closed = [] if ceiling is None else _narrowed(changes.unconfirmed, record, store, ceiling)
        rows = numbered_rows([*changes.new, *closed], ledger, store.max_seq(), now)
        if rows:
            store.append(rows)
        ledger.append_events(created_events(rows))
        apply_changes(
            record,
            changes.withdrawn,
            changes.restored,
            ledger,
            now,
            overtaken=changes.overtaken,
            confirmed_by=confirmed_by,
        )
        if remember is not None:
            remember(_known_units(reading, record, rows))
    return SourceReport(
        name=source.name,
        kind=source.kind.value,
        items=reading.count,
        added=len(changes.new),
        reused=changes.reused,
        retired=len(changes.withdrawn),
        withheld=len(changes.withheld),
        files=reading.files,
        errors=(*reading.errors, *changes.errors),
    )


def _narrowed(
    keys: Iterable[Key], record: Record, store: Store, ceiling: Callable[[ContextItem], ContextItem]
) -> list[ContextItem]:
    """Return the stored versions of some items that the ceiling changes, as it leaves them."""
    stored = [
        entry.seq
        for key in keys
        for entry in record.stored[key]
        if not is_retired(record.patches, (*key, entry.version))
    ]
    items = store.read_seqs(stored)
    closed = ((item, ceiling(item)) for _, item in sorted(items.items()))
    return [narrow for item, narrow in closed if narrow != item]


def apply_changes(
    record: Record,
    withdrawn: Sequence[ItemKey],
    restored: Sequence[ItemKey],
    ledger: Ledger,
    now: datetime,
    *,
    overtaken: Sequence[tuple[ItemKey, datetime]] = (),
    confirmed_by: str | None = None,
) -> None:
    """Tell the ledger what a source no longer has and what it has again; every reader sees it from
    here on.

    What an item that is there again had been before stays hidden until its new version is built: it
    is said to be superseded in the same step.
    """
    gone, back = "the source no longer has it", "the source has it again"
    if confirmed_by is not None:
        gone = f"{gone}; confirmed by {confirmed_by}"
    ledger.append_overlay(
        [
            *entries_of("restored", restored, actor=ACTOR, reason=back, now=now),
            *said_again(restored, record.held),
            *_superseded(overtaken, now),
            *entries_of("retired", withdrawn, actor=ACTOR, reason=gone, now=now),
        ]
    )
    versions = record.versions()
    out = {*withdrawn, *record.held}
    returned = [
        (*key, version)
        for key in dict.fromkeys(key[:2] for key in restored)
        for version in versions.get(key, ())
        if (*key, version) not in out
    ]
    who = confirmed_by or ACTOR
    ledger.append_events(
        [
            *steps(
                ledger, returned, versions, Lifecycle.RESTORED, actor=ACTOR, reason=back, now=now
            ),
            *steps(ledger, withdrawn, versions, Lifecycle.RETIRED, actor=who, reason=gone, now=now),
        ]
    )


def _superseded(
    overtaken: Iterable[tuple[ItemKey, datetime]], now: datetime
) -> Iterator[OverlayEntry]:
    from ctx_pipeline.ledger import OverlayEntry

    for (tenant, item_id, version), begins in overtaken:
        yield OverlayEntry(
            code="superseded",
            tenant=tenant,
            item_id=item_id,
            version=version,
            effective_at=begins,
            recorded_at=now,
            actor=ACTOR,
            reason="the source has the item again, in a later version",
        )


def still_stored(known: KnownItem, record: Record) -> bool:
    """Return whether an item is stored as it was when its unit was read last, and nothing newer of
    it.
    """
    last = newest(known.version, record.stored.get(known.key, ()))
    return last is not None and (last.version, last.seq, last.content_hash) == (
        known.version,
        known.seq,
        known.content_hash,
    )


def _known_units(
    reading: SourceReading, record: Record, rows: Sequence[StoredItem]
) -> dict[bytes, tuple[KnownItem, ...]]:
    """Return what each unit says as it is stored now; a unit that says something refused is left
    out.
    """
    fresh = {(row.tenant, row.item_id, row.version): row.seq for row in rows}
    units: dict[bytes, tuple[KnownItem, ...]] = {}
    for unit, said in reading.units.items():
        known = [
            entry if isinstance(entry, KnownItem) else _known_item(entry, record, fresh)
            for entry in said
        ]
        stored = tuple(entry for entry in known if entry is not None)
        if len(stored) == len(said):
            units[unit] = stored
    return units


def _known_item(
    item: ContextItem, record: Record, fresh: Mapping[tuple[str, str, str], int]
) -> KnownItem | None:
    key = (item.scope.tenant or "", item.item_id)
    versions = record.stored.get(key, ())
    named = versioned(item, versions)
    if named is None:
        return None
    seq = fresh.get((*key, named.version)) or next(
        (v.seq for v in versions if v.version == named.version), None
    )
    return (
        None
        if seq is None
        else KnownItem(*key, named.version, seq, item.content_hash, start_of(item))
    )


def fingerprint(reading: SourceReading) -> str:
    """Return a hash of what a source holds, whatever the order and whatever was parsed again."""
    said = [
        f"{i.item_id}@{i.version.partition('+')[0]}:{i.content_hash}"
        for i in (*reading.items, *reading.kept)
    ]
    return short_hash("\n".join(sorted(said)), 16)
