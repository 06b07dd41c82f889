"""Snapshots, their blobs and the exposure of items: group-committed writes, and reads that see what
is queued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, cast

from sqlalchemy import JSON, Select, and_, case, delete, func, insert, select, type_coerce
from sqlalchemy import cast as sql_cast
from sqlalchemy.engine import Connection, RowMapping

from ctx_pipeline.errors import Conflict, Corrupt, CtxError, InvalidRequest, Unavailable
from ctx_pipeline.ledger.counters import draw, touch_blobs
from ctx_pipeline.ledger.database import Database
from ctx_pipeline.ledger.group_commit import Entry, GroupCommit
from ctx_pipeline.ledger.records import Exposure, SnapshotRecord, from_micros, to_micros
from ctx_pipeline.ledger.schema import (
    BLOBS,
    SNAPSHOT_BLOBS,
    SNAPSHOT_ITEMS,
    SNAPSHOTS,
    USED,
    chunks,
    insert_rows,
    upsert,
)
from ctx_pipeline.text import repair

MAX_KNOWN_BLOBS = 32_768
"""Hashes remembered as stored; about 8 MB."""

_TEXTS = ("snapshot_json", "pack_json", "trace_json", "request_json")
_PLAIN = (
    "snapshot_id",
    "tenant",
    "principal",
    "run_id",
    "turn_id",
    "session_id",
    "hash",
    *_TEXTS,
    "status",
)


@dataclass(slots=True)
class _Prepared:
    """A record and its rows, which lack only the sequence."""

    record: SnapshotRecord
    row: dict[str, Any]
    items: list[dict[str, Any]]


_Entry = Entry[_Prepared]


class SnapshotStore:
    """Writes snapshots in batches and reads them back."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: set[str] = set()
        self._blob_revision = -1
        self.queue: GroupCommit[_Prepared] = GroupCommit(self._commit)

    # --- writing

    def submit(
        self,
        snapshot_id: str,
        build: Callable[[], SnapshotRecord],
        *,
        durable: bool,
        owner: object = None,
    ) -> None:
        """Queue one snapshot; see `Ledger.submit_snapshot`. `owner` lives until it is committed."""
        self._database.require_writable()
        self.queue.submit(
            Entry(
                snapshot_id, lambda: _prepare(snapshot_id, build()), waited_for=durable, owner=owner
            )
        )

    def _commit(self, batch: Sequence[_Entry]) -> None:
        ready = [entry for entry in batch if _built(entry)]
        try:
            self._store([cast(_Prepared, entry.record) for entry in ready])
        except (Unavailable, Corrupt):
            raise
        except CtxError:
            # One record cannot be stored: find out which, so that the others are.
            for entry in ready:
                self._commit_alone(entry)

    def _commit_alone(self, entry: _Entry) -> None:
        prepared = cast(_Prepared, entry.record)
        try:
            self._store([_repaired(prepared)])
        except (Unavailable, Corrupt):
            raise
        except CtxError as error:
            error.where = f"snapshot {entry.key!r}"
            entry.error = error

    def _store(self, batch: Sequence[_Prepared]) -> None:
        if not batch:
            return
        with self._database.write() as connection:
            fresh = _not_stored(connection, batch)
            first, blob_revision = draw(connection, len(fresh))
            if blob_revision != self._blob_revision:
                # Somebody erased blobs: what was known to be stored may be gone.
                self._known.clear()
                self._blob_revision = blob_revision
            blobs = {
                key: text
                for p in fresh
                for key, text in p.record.blobs.items()
                if key not in self._known
            }
            insert_blobs(connection, blobs)
            _insert_fresh(connection, fresh, first)
        # Only now: before the commit they are not stored.
        if len(self._known) + len(blobs) > MAX_KNOWN_BLOBS:
            self._known.clear()
        self._known.update(blobs)

    # --- reading

    def get(self, snapshot_id: str) -> SnapshotRecord | None:
        """Return one snapshot without its blobs and items."""
        if self.queue.pending(snapshot_id):
            self.queue.flush()
        with self._database.read() as connection:
            query = select(SNAPSHOTS).where(SNAPSHOTS.c.snapshot_id == snapshot_id)
            row = connection.execute(query).mappings().first()
        return None if row is None else _record(row)

    def page(
        self, tenant: str, principal: str | None, *, limit: int, before: str | None
    ) -> tuple[SnapshotRecord, ...]:
        """Return snapshots, newest first."""
        self.queue.settle()
        query = select(SNAPSHOTS).where(SNAPSHOTS.c.tenant == tenant)
        if principal is not None:
            query = query.where(SNAPSHOTS.c.principal == principal)
        if before is not None:
            cursor = (
                select(SNAPSHOTS.c.sequence)
                .where(SNAPSHOTS.c.snapshot_id == before)
                .scalar_subquery()
            )
            query = query.where(SNAPSHOTS.c.sequence < cursor)
        with self._database.read() as connection:
            rows = connection.execute(
                query.order_by(SNAPSHOTS.c.sequence.desc()).limit(limit)
            ).mappings()
            return tuple(_record(row) for row in rows)

    def blobs(self, hashes: Iterable[str]) -> dict[str, str]:
        """Return the stored blobs of these hashes."""
        self.queue.settle()
        found: dict[str, str] = {}
        with self._database.read() as connection:
            for part in chunks(hashes):
                rows = connection.execute(
                    select(BLOBS.c.hash, BLOBS.c.text).where(BLOBS.c.hash.in_(part))
                )
                found.update((row[0], row[1]) for row in rows)
        return found

    def exposure(self, tenant: str, item_id: str, *, version: str | None, limit: int) -> Exposure:
        """Count how often an item was selected and excluded."""
        self.queue.settle()
        table = SNAPSHOT_ITEMS.c
        matches = and_(table.tenant == tenant, table.item_id == item_id)
        used = and_(USED.c.tenant == tenant, USED.c.item_id == item_id)
        if version is not None:
            matches = and_(matches, table.version == version)
            used = and_(
                used, USED.c.snapshot_sequence.in_(select(table.snapshot_sequence).where(matches))
            )
        with self._database.read() as connection:
            counts = {
                bool(row[0]): int(row[1])
                for row in connection.execute(
                    select(table.selected, func.count()).where(matches).group_by(table.selected)
                )
            }
            ids = tuple(row[0] for row in connection.execute(_last_selecting(matches, limit)))
            cited = connection.execute(
                select(func.count()).select_from(USED).where(used)
            ).scalar_one()
        return Exposure(
            selected=counts.get(True, 0),
            excluded=counts.get(False, 0),
            used=cited,
            snapshot_ids=ids,
        )

    def audience(
        self, tenant: str, item_id: str, version: str
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return who was shown an item version."""
        self.queue.settle()
        table = SNAPSHOT_ITEMS.c
        shown = and_(
            table.tenant == tenant,
            table.item_id == item_id,
            table.version == version,
            table.selected,
        )
        sequences = select(table.snapshot_sequence).where(shown)
        with self._database.read() as connection:
            as_json = type_coerce if connection.dialect.name == "sqlite" else sql_cast
            agent = as_json(SNAPSHOTS.c.snapshot_json, JSON)["agent_id"].as_string()
            rows = connection.execute(
                select(SNAPSHOTS.c.principal, agent)
                .where(SNAPSHOTS.c.sequence.in_(sequences))
                .distinct()
            ).all()
        agents = {str(row[1]) for row in rows if row[1] is not None}
        return tuple(sorted({str(row[0]) for row in rows})), tuple(sorted(agents))

    # --- blobs apart from snapshots

    def exposures(
        self, since: datetime | None, until: datetime | None
    ) -> tuple[tuple[str, str, str, int, int, int], ...]:
        """Return (tenant, item, version, shown, left out, cited) of every item version that was a
        candidate.
        """
        self.queue.flush()
        items = SNAPSHOT_ITEMS.c
        shown = func.sum(case((items.selected, 1), else_=0))
        cited = func.count(USED.c.item_id)
        same = and_(
            USED.c.snapshot_sequence == items.snapshot_sequence,
            USED.c.item_id == items.item_id,
            items.selected,
        )
        keys = (items.tenant, items.item_id, items.version)
        query = (
            select(*keys, shown, func.count() - shown, cited)
            .select_from(SNAPSHOT_ITEMS.outerjoin(USED, same))
            .group_by(*keys)
            .order_by(*keys)
        )
        if since is not None or until is not None:
            query = query.where(items.snapshot_sequence.in_(_made(since, until)))
        with self._database.read() as connection:
            return tuple(
                (row[0], row[1], row[2], int(row[3]), int(row[4]), int(row[5]))
                for row in connection.execute(query)
            )

    def put_blobs(self, blobs: Mapping[str, str]) -> None:
        """Store each text once, synced before return."""
        with self._database.write() as connection:
            insert_blobs(connection, blobs)
            rows = [{"snapshot_sequence": 0, "hash": key} for key in sorted(blobs)]
            connection.execute(upsert(connection, SNAPSHOT_BLOBS).on_conflict_do_nothing(), rows)

    def erase_blobs(self, hashes: Iterable[str]) -> int:
        """Delete blobs; every process forgets that they were stored."""
        erased = 0
        with self._database.write() as connection:
            # First: until this transaction ends, no process may count on a blob that is deleted
            # here.
            touch_blobs(connection)
            for part in chunks(hashes):
                erased += connection.execute(delete(BLOBS).where(BLOBS.c.hash.in_(part))).rowcount
                connection.execute(delete(SNAPSHOT_BLOBS).where(SNAPSHOT_BLOBS.c.hash.in_(part)))
        return erased


def _built(entry: _Entry) -> bool:
    if entry.record is None and entry.error is None:
        try:
            entry.record = entry.build()
        except CtxError as error:
            entry.error = error
        except (
            Exception
        ) as error:  # the caller's code runs here; whatever it raises must reach a caller
            entry.error = InvalidRequest(
                f"a snapshot could not be serialised ({type(error).__name__})"
            )
            entry.error.__cause__ = error
        if entry.error is not None:
            entry.error.where = f"snapshot {entry.key!r}"
    return entry.record is not None


def _prepare(snapshot_id: str, record: SnapshotRecord) -> _Prepared:
    if record.snapshot_id != snapshot_id:
        raise InvalidRequest("a snapshot was built with another id than it was submitted with")
    return _Prepared(record, _row(record), _item_rows(record))


def _repaired(prepared: _Prepared) -> _Prepared:
    # Blobs are left alone: a repaired text would no longer be what its hash says.
    texts = {name: repair(text) for name in _TEXTS if (text := prepared.row[name]) is not None}
    return replace(prepared, row=prepared.row | texts)


def _insert_fresh(connection: Connection, fresh: Sequence[_Prepared], first: int) -> None:
    if not fresh:
        return
    for number, prepared in enumerate(fresh, first):
        prepared.row["sequence"] = number
        for item in prepared.items:
            item["snapshot_sequence"] = number
    connection.execute(insert(SNAPSHOTS), [prepared.row for prepared in fresh])
    insert_rows(connection, SNAPSHOT_ITEMS, [item for prepared in fresh for item in prepared.items])
    links = [
        {"snapshot_sequence": p.row["sequence"], "hash": key}
        for p in fresh
        for key in p.record.blobs
    ]
    insert_rows(connection, SNAPSHOT_BLOBS, links)


def _not_stored(connection: Connection, batch: Sequence[_Prepared]) -> list[_Prepared]:
    """Leave out what an earlier delivery stored; refuse another snapshot under a stored id."""
    query = select(SNAPSHOTS.c.snapshot_id, SNAPSHOTS.c.hash)
    stored: dict[str, str] = {}
    for part in chunks(prepared.record.snapshot_id for prepared in batch):
        stored.update(
            (row[0], row[1])
            for row in connection.execute(query.where(SNAPSHOTS.c.snapshot_id.in_(part)))
        )
    fresh: list[_Prepared] = []
    for prepared in batch:
        record = prepared.record
        if record.snapshot_id not in stored:
            fresh.append(prepared)
        elif stored[record.snapshot_id] != record.hash:
            raise Conflict("another snapshot has this id", code="snapshot_id_reused")
        stored[record.snapshot_id] = record.hash
    return fresh


def insert_blobs(connection: Connection, blobs: Mapping[str, str]) -> None:
    """Insert the blobs that are not stored yet."""
    if blobs:
        # In one order: two transactions that insert the same rows in different orders wait for each
        # other.
        rows = [{"hash": key, "text": blobs[key]} for key in sorted(blobs)]
        connection.execute(upsert(connection, BLOBS).on_conflict_do_nothing(), rows)


def _row(record: SnapshotRecord) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(record, name) for name in _PLAIN}
    return row | {"created_at": to_micros(record.created_at)}


def _item_rows(record: SnapshotRecord) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for item_id, version, rendition, selected in record.items:
        # Exposure counts a version once a snapshot; where it was both left out and shown, it was
        # shown.
        if selected or (item_id, version) not in rows:
            rows[item_id, version] = {
                "tenant": record.tenant,
                "item_id": item_id,
                "version": version,
                "rendition": rendition,
                "selected": selected,
            }
    return list(rows.values())


def _record(row: RowMapping) -> SnapshotRecord:
    return SnapshotRecord(
        created_at=from_micros(row["created_at"]), **{name: row[name] for name in _PLAIN}
    )


def _made(since: datetime | None, until: datetime | None) -> Select[int]:
    query = select(SNAPSHOTS.c.sequence)
    if since is not None:
        query = query.where(SNAPSHOTS.c.created_at >= to_micros(since))
    return query if until is None else query.where(SNAPSHOTS.c.created_at < to_micros(until))


def _last_selecting(matches: Any, limit: int) -> Select[str]:
    table = SNAPSHOT_ITEMS.c
    return (
        select(SNAPSHOTS.c.snapshot_id)
        .join(SNAPSHOT_ITEMS, table.snapshot_sequence == SNAPSHOTS.c.sequence)
        .where(matches, table.selected)
        .order_by(SNAPSHOTS.c.sequence.desc())
        .limit(limit)
    )
