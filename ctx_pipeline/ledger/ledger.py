"""The ledger's public face."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from sqlalchemy import func, select, text

from ctx_pipeline.contracts.trace import LifecycleEvent
from ctx_pipeline.errors import Corrupt, InvalidRequest
from ctx_pipeline.ledger import journal, retention
from ctx_pipeline.ledger.counters import draw
from ctx_pipeline.ledger.database import Database
from ctx_pipeline.ledger.lives import (
    Life,
    count_created,
    select_last_created,
    select_life,
    select_lives,
)
from ctx_pipeline.ledger.migrations import stored_version
from ctx_pipeline.ledger.recalls import check_recalls, insert_recalls, select_recalls
from ctx_pipeline.ledger.records import (
    Exposure,
    OverlayEntry,
    PrunedSnapshot,
    RecallNotice,
    SnapshotRecord,
    SourceObservation,
)
from ctx_pipeline.ledger.rollup import DayMark, select_marks, select_tokens
from ctx_pipeline.ledger.schema import (
    BLOBS,
    COUNTERS,
    EVENTS,
    IDENTITY,
    OVERLAY,
    RECALLS,
    SNAPSHOT_ITEMS,
    SNAPSHOTS,
    SOURCES,
    USAGE,
    USED,
)
from ctx_pipeline.ledger.snapshots import SnapshotStore

_COUNTED = (EVENTS, OVERLAY, RECALLS, SOURCES, BLOBS, SNAPSHOTS, SNAPSHOT_ITEMS, USED, USAGE)
_OPEN: weakref.WeakKeyDictionary[Ledger, tuple[SnapshotStore, Database]] = (
    weakref.WeakKeyDictionary()
)


class Ledger:
    """The durable record beside the item store: one file, many processes, many threads.

    What a call acknowledges is synced to disk, except snapshots submitted without `durable`, which
    follow.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._snapshots = SnapshotStore(database)
        self._times: tuple[int, dict[str, datetime]] = (-1, {})
        self._identity: str | None = None
        self.after_overlay: Callable[[], None] | None = None
        """Called when changes of visibility have been committed."""
        # Runs at `close`, when the object is no longer referenced, or when the interpreter exits.
        self._finalizer = weakref.finalize(self, _shut, self._snapshots, database)
        _OPEN[self] = (self._snapshots, database)

    @classmethod
    def open(cls, url_or_path: str | Path, *, readonly: bool = False) -> Ledger:
        """Open a ledger by path or database URL, creating or upgrading its schema when needed.

        Raises:
            Unavailable: missing or older while `readonly`, written by a later release, or not
                reachable.
            Corrupt: the file is damaged or no ledger.
        """
        database = Database(url_or_path, readonly=readonly)
        try:
            database.prepare()
        except BaseException:
            database.close()
            raise
        return cls(database)

    @property
    def readonly(self) -> bool:
        """Whether nothing can be recorded."""
        return self._database.readonly

    def close(self) -> None:
        """Commit what is queued and release the file. Idempotent.

        Raises:
            Unavailable: something queued could not be stored.
        """
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- sequence and lifecycle

    def reserve(self, n: int) -> int:
        """Take `n` consecutive sequence numbers that nobody else gets; return the first."""
        if n < 1:
            raise InvalidRequest(f"cannot reserve {n} numbers", fix="reserve at least 1")
        with self._database.write() as connection:
            return draw(connection, n)[0]

    def append_events(
        self, events: Sequence[LifecycleEvent], *, recalls: Sequence[RecallNotice] = ()
    ) -> None:
        """Append lifecycle events and recall notices, all or none.

        An event delivered before, with its sequence, changes nothing. Nor does a second notice
        about the same tenant, item, version and code, until the version is restored.

        Raises:
            Conflict: a step is not legal (`illegal_transition`), or another event has a sequence
                (`sequence_reused`).
            InvalidRequest: a notice counts fewer snapshots than it names.
        """
        journal.check_events(events)
        check_recalls(recalls)
        if events or recalls:
            with self._database.write() as connection:
                if events:
                    journal.insert_events(connection, events)
                if recalls:
                    insert_recalls(connection, recalls)

    def recalls(
        self, tenant: str | None = None, *, since: int = 0, limit: int = 100
    ) -> tuple[RecallNotice, ...]:
        """Return recall notices after the number `since`, in order; of every tenant when `tenant`
        is None.

        A notice keeps the ids of snapshots that were pruned later, and says which they are.
        """
        with self._database.read() as connection:
            return select_recalls(connection, tenant, since, limit)

    def events_for(self, tenant: str, item_id: str) -> tuple[LifecycleEvent, ...]:
        """Return the life of an item, all versions, by sequence."""
        with self._database.read() as connection:
            return journal.select_events(connection, tenant, item_id)

    def life(self, tenant: str, item_id: str, version: str) -> Life:
        """Return the states of a version since it was last created or restored; empty when the log
        has none.
        """
        with self._database.read() as connection:
            return select_life(connection, tenant, item_id, version)

    def lives(self) -> dict[tuple[str, str, str], Life]:
        """Return, by tenant, item and version, the lives of versions that anything happened to
        after `created`.
        """
        with self._database.read() as connection:
            return select_lives(connection)

    def last_created(self) -> int:
        """Return the number of the last item version that the log knows; 0 when there is none."""
        with self._database.read() as connection:
            return select_last_created(connection)

    def created_after(self, sequence: int) -> int:
        """Return how many item versions were recorded after a number of the item store."""
        with self._database.read() as connection:
            return count_created(connection, sequence)

    # --- overlay

    def append_overlay(self, entries: Sequence[OverlayEntry]) -> int:
        """Append changes of visibility, all or none; from this return on every process sees them.

        Returns:
            The overlay's new sequence.
        """
        journal.check_overlay(entries)
        if not entries:
            return self.overlay_sequence()
        with self._database.write() as connection:
            sequence = journal.insert_overlay(connection, entries)
        if self.after_overlay is not None:
            self.after_overlay()
        return sequence

    def overlay_since(self, sequence: int) -> tuple[OverlayEntry, ...]:
        """Return the overlay's entries after `sequence`, in order; the last one's number is the new
        position.
        """
        if sequence >= self.overlay_sequence():
            return ()
        with self._database.read() as connection:
            return journal.select_overlay(connection, sequence)

    def overlay_sequence(self) -> int:
        """Return the number of the last committed overlay entry of any process; 0 when there is
        none. Cheap.
        """
        return self._database.counters()[0]

    # --- what it is

    def identity(self) -> str:
        """Return what tells this ledger from every other; a copy of it has the same."""
        if self._identity is None:
            with self._database.read() as connection:
                self._identity = str(connection.execute(select(IDENTITY.c.ledger_id)).scalar_one())
        return self._identity

    def last_number(self) -> int:
        """Return the last number that was given away; 0 for a ledger in which nothing has ever
        happened.
        """
        with self._database.read() as connection:
            return int(connection.execute(select(COUNTERS.c.sequence)).scalar_one())

    # --- sources

    def record_source(self, source: SourceObservation) -> None:
        """Keep this as the last look at its source."""
        with self._database.write() as connection:
            journal.upsert_source(connection, source)

    def sources(self) -> dict[str, SourceObservation]:
        """Return the last look at every source, by name."""
        with self._database.read() as connection:
            return journal.select_sources(connection)

    def source_times(self) -> dict[str, datetime]:
        """Return when each source was last observed with success. Cheap: read anew only after a
        change.
        """
        revision, times = self._times
        now = self._database.counters()[1]
        if now != revision:
            # Newer than `now` at worst, and then read once more; never older.
            with self._database.read() as connection:
                times = journal.select_source_times(connection)
            self._times = (now, times)
        return dict(times)

    # --- blobs

    def put_blobs(self, blobs: Mapping[str, str]) -> None:
        """Store texts by their hash, each once."""
        if blobs:
            self._snapshots.put_blobs(blobs)

    def get_blobs(self, hashes: Iterable[str]) -> dict[str, str]:
        """Return the stored texts of these hashes; what is not stored is absent."""
        return self._snapshots.blobs(hashes)

    def erase_blobs(self, hashes: Iterable[str]) -> int:
        """Delete texts for good, from the file and its log; return how many there were.

        Other readers of the file delay the truncation of the log until they are done.
        """
        self._snapshots.queue.flush()
        erased = self._snapshots.erase_blobs(hashes)
        self._database.truncate_log()
        return erased

    # --- snapshots

    def submit_snapshot(
        self,
        snapshot: SnapshotRecord | Callable[[], SnapshotRecord],
        *,
        snapshot_id: str | None = None,
        durable: bool = False,
    ) -> None:
        """Store a snapshot: committed before return when `durable`, else with the next commit of
        this process.

        That is within 50 ms where disk and processor are free, and later where they are not. A
        process that is killed loses what it has queued: never more than its 256 newest snapshots,
        because the next call waits for room.

        A callable is run by the writer, so that serialising costs the caller nothing; it needs
        `snapshot_id`. What it reads must not change. The same snapshot again changes nothing. When
        the queue is full the call waits.

        Raises:
            Unavailable: an earlier snapshot could not be stored. That one is still queued and is
                tried again (or, as `snapshot_rejected`, never can be stored); this one was not
                taken.
            Conflict: with `durable`, another snapshot has this id (`snapshot_id_reused`).
            InvalidRequest: with `durable`, this one cannot be serialised or stored.
        """
        if isinstance(snapshot, SnapshotRecord):
            record = snapshot
            self._snapshots.submit(record.snapshot_id, lambda: record, durable=durable, owner=self)
        elif snapshot_id is None:
            raise InvalidRequest(
                "a snapshot to be built later needs its id now", fix="pass snapshot_id="
            )
        else:
            self._snapshots.submit(snapshot_id, snapshot, durable=durable, owner=self)

    def flush(self) -> None:
        """Return when every submitted snapshot is committed.

        Raises:
            Unavailable: something could not be stored.
        """
        self._snapshots.queue.flush()

    def snapshot(self, snapshot_id: str) -> SnapshotRecord | None:
        """Return one snapshot without its blobs and items, also when it is still queued in this
        process.
        """
        return self._snapshots.get(snapshot_id)

    def snapshots(
        self, tenant: str, principal: str | None = None, limit: int = 50, before: str | None = None
    ) -> tuple[SnapshotRecord, ...]:
        """Return snapshots, newest first; `before` is the id of the last one of the page before."""
        return self._snapshots.page(tenant, principal, limit=limit, before=before)

    def exposure(
        self, tenant: str, item_id: str, *, version: str | None = None, limit: int = 20
    ) -> Exposure:
        """Return how often an item (or one version) was shown, left out and cited, and where it was
        shown last.
        """
        return self._snapshots.exposure(tenant, item_id, version=version, limit=limit)

    def audience(
        self, tenant: str, item_id: str, version: str
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the principals and the agents that were ever shown an item
        version, each in order.
        """
        return self._snapshots.audience(tenant, item_id, version)

    def exposures(
        self, since: datetime | None = None, until: datetime | None = None
    ) -> tuple[tuple[str, str, str, int, int, int], ...]:
        """Return (tenant, item, version, shown, left out, cited) of every item version that was a
        candidate.

        Counted are the stored snapshots made from `since` on and before `until`; None is no limit.
        """
        return self._snapshots.exposures(since, until)

    def snapshot_days(self) -> tuple[date, ...]:
        """Return the UTC days on which stored snapshots were made, in order."""
        self._snapshots.queue.settle()
        with self._database.read() as connection:
            return retention.select_days(connection)

    def day_marks(self) -> dict[date, DayMark]:
        """Return, by UTC day of which snapshots are stored, what tells whether anything was added
        to it.
        """
        self._snapshots.queue.settle()
        with self._database.read() as connection:
            return select_marks(connection)

    def shown_tokens(self, since: datetime, until: datetime) -> dict[tuple[str, str, str], int]:
        """Return, by tenant, item and version, the tokens it took in packs made from `since` on and
        before `until`.
        """
        self._snapshots.queue.settle()
        with self._database.read() as connection:
            return select_tokens(connection, since, until)

    def prune_snapshots(self, before: datetime, *, limit: int = 1000) -> int:
        """Delete the oldest snapshots made before an instant, at most `limit`; return how many
        there were.

        With each go its items, its reports, and the texts that no other snapshot needs. What other
        writers do waits meanwhile: call again until it returns less than `limit`. The file keeps
        its size; the room is used again.
        """
        self._snapshots.queue.flush()
        with self._database.write() as connection:
            return retention.prune(connection, before, limit)

    def pruned(self, snapshot_id: str) -> PrunedSnapshot | None:
        """Return what is left of a snapshot that was pruned; None when it was not."""
        with self._database.read() as connection:
            return retention.select_pruned(connection, snapshot_id)

    # --- what agents report back

    def report_used(self, snapshot_id: str, item_ids: Sequence[str], at: datetime) -> None:
        """Record which shown items an answer cited, all or none. The same report again changes
        nothing.

        Raises:
            NotFound: no such snapshot.
            InvalidRequest: an item was not shown in it (`not_visible`).
        """
        self._settle(snapshot_id)
        with self._database.write() as connection:
            journal.insert_used(connection, snapshot_id, item_ids, at)

    def report_usage(
        self, snapshot_id: str, usage: Mapping[str, Any], at: datetime | None = None
    ) -> None:
        """Record a provider's figures for a call. The same figures again change nothing.

        Raises:
            NotFound: no such snapshot.
        """
        self._settle(snapshot_id)
        with self._database.write() as connection:
            journal.insert_usage(connection, snapshot_id, usage, at or datetime.now(UTC))

    def usage(self, snapshot_id: str) -> tuple[dict[str, Any], ...]:
        """Return the usage reports of a snapshot, oldest first."""
        with self._database.read() as connection:
            return journal.select_usage(connection, snapshot_id)

    def used_counts(self, tenant: str) -> dict[str, int]:
        """Return, by item, in how many snapshots it was cited."""
        with self._database.read() as connection:
            return journal.select_used_counts(connection, tenant)

    def _settle(self, snapshot_id: str) -> None:
        if self._snapshots.queue.pending(snapshot_id):
            self._snapshots.queue.flush()

    # --- health

    def integrity(self) -> dict[str, Any]:
        """Return a report on the stored bytes: `ok`, `problems`, `schema_version`, `counts`,
        `where`.
        """
        report: dict[str, Any] = {"ok": True, "where": self._database.where, "problems": []}
        try:
            with self._database.read() as connection:
                if connection.dialect.name == "sqlite":
                    found = connection.execute(text("PRAGMA integrity_check")).scalars().all()
                    broken = connection.execute(text("PRAGMA foreign_key_check")).all()
                    report["problems"] = [line for line in found if line != "ok"]
                    report["problems"] += [f"{row[0]}: row without its {row[2]}" for row in broken]
                    report["journal_mode"] = connection.execute(
                        text("PRAGMA journal_mode")
                    ).scalar()
                report["schema_version"] = stored_version(connection)
                report["counts"] = {
                    table.name: connection.execute(
                        select(func.count()).select_from(table)
                    ).scalar_one()
                    for table in _COUNTED
                }
        except Corrupt as error:
            report["problems"] = [*report["problems"], error.message]
        report["ok"] = not report["problems"]
        return report


def _shut(snapshots: SnapshotStore, database: Database) -> None:
    try:
        snapshots.queue.close()
    finally:
        database.close()


class _Fork:
    """Keeps ledgers usable on both sides of a fork."""

    held: ClassVar[list[tuple[SnapshotStore, Database]]] = []

    @classmethod
    def before(cls) -> None:
        cls.held = list(_OPEN.values())
        for _, database in cls.held:
            database.pause()

    @classmethod
    def in_parent(cls) -> None:
        for _, database in cls.held:
            database.resume()
        cls.held = []

    @classmethod
    def in_child(cls) -> None:
        for snapshots, database in cls.held:
            database.reset_after_fork()
            # What is queued belongs to the parent.
            snapshots.queue.reset()
        cls.held = []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_Fork.before, after_in_parent=_Fork.in_parent, after_in_child=_Fork.in_child
    )
