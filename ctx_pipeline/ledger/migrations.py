"""Numbered changes of the stored schema. A migration, once released, is never edited."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import inspect, text
from sqlalchemy.engine import Connection

from ctx_pipeline.errors import Corrupt, Unavailable

Migration = Callable[[Connection], None]

_V1 = """
CREATE TABLE counters (
    id {int64} PRIMARY KEY CHECK (id = 1),
    sequence {int64} NOT NULL, overlay_sequence {int64} NOT NULL,
    source_revision {int64} NOT NULL, blob_revision {int64} NOT NULL);
INSERT INTO counters VALUES (1, 0, 0, 0, 0);
CREATE TABLE events (
    sequence {int64} PRIMARY KEY, tenant TEXT NOT NULL, item_id TEXT NOT NULL, version TEXT NOT NULL,
    from_state TEXT, to_state TEXT NOT NULL, reason TEXT NOT NULL, at {int64} NOT NULL, actor TEXT NOT NULL,
    snapshot_id TEXT, schema_version TEXT NOT NULL);
CREATE INDEX events_by_item ON events (tenant, item_id);
CREATE TABLE overlay (
    sequence {int64} PRIMARY KEY, code TEXT NOT NULL, tenant TEXT NOT NULL, item_id TEXT NOT NULL, version TEXT,
    principal TEXT, group_name TEXT, effective_at {int64} NOT NULL, recorded_at {int64} NOT NULL,
    actor TEXT NOT NULL, reason TEXT NOT NULL);
CREATE TABLE sources (
    name TEXT PRIMARY KEY NOT NULL, kind TEXT NOT NULL, observed_at {int64} NOT NULL, succeeded_at {int64},
    fingerprint TEXT NOT NULL, status TEXT NOT NULL, items {int64} NOT NULL,
    errors_json TEXT NOT NULL, files_json TEXT NOT NULL);
CREATE TABLE blobs (hash TEXT PRIMARY KEY NOT NULL, text TEXT NOT NULL);
CREATE TABLE snapshots (
    sequence {int64} PRIMARY KEY, snapshot_id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, principal TEXT NOT NULL,
    created_at {int64} NOT NULL, run_id TEXT NOT NULL, turn_id TEXT NOT NULL, session_id TEXT, hash TEXT NOT NULL,
    snapshot_json TEXT NOT NULL, pack_json TEXT, trace_json TEXT NOT NULL, request_json TEXT NOT NULL,
    status TEXT NOT NULL);
CREATE INDEX snapshots_by_owner ON snapshots (tenant, principal, sequence);
CREATE INDEX snapshots_by_tenant ON snapshots (tenant, sequence);
CREATE TABLE snapshot_items (
    tenant TEXT NOT NULL, item_id TEXT NOT NULL,
    snapshot_sequence {int64} NOT NULL REFERENCES snapshots (sequence), version TEXT NOT NULL,
    rendition TEXT, selected BOOLEAN NOT NULL,
    PRIMARY KEY (tenant, item_id, snapshot_sequence, version)){clustered};
CREATE TABLE used (
    tenant TEXT NOT NULL, item_id TEXT NOT NULL,
    snapshot_sequence {int64} NOT NULL REFERENCES snapshots (sequence), used_at {int64} NOT NULL,
    PRIMARY KEY (tenant, item_id, snapshot_sequence)){clustered};
CREATE TABLE usage (
    snapshot_sequence {int64} NOT NULL REFERENCES snapshots (sequence), digest TEXT NOT NULL,
    sequence {int64} NOT NULL, reported_at {int64} NOT NULL, usage_json TEXT NOT NULL,
    PRIMARY KEY (snapshot_sequence, digest)){clustered}
"""

_V2 = """
CREATE TABLE recalls (
    sequence {int64} PRIMARY KEY, tenant TEXT NOT NULL, item_id TEXT NOT NULL, version TEXT NOT NULL,
    code TEXT NOT NULL, since {int64} NOT NULL, reason TEXT NOT NULL, at {int64} NOT NULL, actor TEXT NOT NULL,
    snapshots {int64} NOT NULL, snapshot_ids_json TEXT NOT NULL,
    UNIQUE (tenant, item_id, version, code, since));
CREATE TABLE pruned (
    snapshot_id TEXT PRIMARY KEY NOT NULL, tenant TEXT NOT NULL, principal TEXT NOT NULL,
    created_at {int64} NOT NULL){clustered};
CREATE TABLE snapshot_blobs (
    snapshot_sequence {int64} NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (snapshot_sequence, hash)){clustered};
CREATE INDEX snapshot_blobs_by_hash ON snapshot_blobs (hash);
CREATE INDEX snapshots_by_time ON snapshots (created_at);
CREATE INDEX snapshot_items_by_snapshot ON snapshot_items (snapshot_sequence, selected);
CREATE INDEX used_by_snapshot ON used (snapshot_sequence);
INSERT INTO snapshot_blobs (snapshot_sequence, hash)
    SELECT COALESCE((SELECT sequence FROM snapshots ORDER BY created_at DESC, sequence DESC LIMIT 1), 0), hash
    FROM blobs
"""
"""Which snapshot needs which of the blobs stored so far is not known: they are kept as long as the newest snapshot."""


def _run(connection: Connection, statements: str) -> None:
    on_sqlite = connection.dialect.name == "sqlite"
    # In SQLite only `INTEGER PRIMARY KEY` is the row's own key, and a table clustered by its key needs one tree only.
    words = {"int64": "INTEGER" if on_sqlite else "BIGINT", "clustered": " WITHOUT ROWID" if on_sqlite else ""}
    for statement in statements.format(**words).split(";"):
        connection.execute(text(statement))


def to_version_1(connection: Connection) -> None:
    """Create the first schema."""
    _run(connection, _V1)


def to_version_2(connection: Connection) -> None:
    """Add recall notices, and what pruning by age needs."""
    _run(connection, _V2)


MIGRATIONS: tuple[Migration, ...] = (to_version_1, to_version_2)
"""The function at index n takes version n to version n + 1."""

SCHEMA_VERSION = len(MIGRATIONS)


def stored_version(connection: Connection) -> int:
    """Return the schema version of this database; 0 when it is empty.

    Raises:
        Corrupt: there are tables, but they are not a ledger's (`not_a_ledger`).
    """
    tables = inspect(connection).get_table_names()
    if not tables:
        return 0
    version = connection.execute(text("SELECT schema_version FROM meta")).scalar() if "meta" in tables else None
    if not isinstance(version, int):
        raise Corrupt("the database is not a ledger", fix="name another file or database", code="not_a_ledger")
    return version


def require_known(version: int, newest: int = SCHEMA_VERSION) -> None:
    """Refuse a schema that a later release wrote.

    Raises:
        Unavailable: the version is newer than this release knows (`ledger_too_new`).
    """
    if version > newest:
        raise Unavailable(
            f"the ledger has schema version {version}, this release knows up to {newest}",
            fix="upgrade ctx-pipeline; the ledger was not touched",
            code="ledger_too_new",
        )


def migrate(connection: Connection, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Bring the schema up to date inside the caller's transaction and return its version. Idempotent."""
    version = stored_version(connection)
    require_known(version, len(migrations))
    if version == 0:
        connection.execute(text("CREATE TABLE meta (schema_version INTEGER NOT NULL)"))
        connection.execute(text("INSERT INTO meta VALUES (0)"))
    for step in migrations[version:]:
        step(connection)
    if version < len(migrations):
        connection.execute(text("UPDATE meta SET schema_version = :version"), {"version": len(migrations)})
    return len(migrations)
