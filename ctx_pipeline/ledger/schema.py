"""The tables as this release reads and writes them. `versions/` makes them; a test holds the two
together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    insert,
    text,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Connection

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

METADATA = MetaData()
MAX_PARAMETERS = 500
"""Values in one IN list; SQLite before 3.32 took 999."""

Key = TypeVar("Key", str, int)

_INT64 = BigInteger().with_variant(Integer, "sqlite")


def _key(name: str) -> Column[str]:
    return Column(name, Text, primary_key=True)


def _text(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, Text, nullable=nullable)


def _int(name: str, *, key: bool = False, nullable: bool = False) -> Column[int]:
    return Column(name, _INT64, primary_key=key, nullable=nullable, autoincrement=False)


def _snapshot() -> Column[int]:
    return Column(
        "snapshot_sequence",
        _INT64,
        ForeignKey("snapshots.sequence"),
        primary_key=True,
        autoincrement=False,
    )


COUNTERS = Table(
    "counters",
    METADATA,
    _int("id", key=True),
    _int("sequence"),
    _int("overlay_sequence"),
    _int("source_revision"),
    _int("blob_revision"),
)
"""One row. A number is drawn inside the transaction that uses it, so order of numbers is order of
commits."""

IDENTITY = Table("identity", METADATA, _key("ledger_id"))
"""One row: what tells this ledger from every other."""

EVENTS = Table(
    "events",
    METADATA,
    _int("sequence", key=True),
    *(_text(name) for name in ("tenant", "item_id", "version")),
    _text("from_state", nullable=True),
    _text("to_state"),
    _text("reason"),
    _int("at"),
    _text("actor"),
    _text("snapshot_id", nullable=True),
    _text("schema_version"),
    Index("events_by_item", "tenant", "item_id"),
)

OVERLAY = Table(
    "overlay",
    METADATA,
    _int("sequence", key=True),
    *(_text(name) for name in ("code", "tenant", "item_id")),
    *(_text(name, nullable=True) for name in ("version", "principal", "group_name")),
    _int("effective_at"),
    _int("recorded_at"),
    _text("actor"),
    _text("reason"),
)

SOURCES = Table(
    "sources",
    METADATA,
    _key("name"),
    _text("kind"),
    _int("observed_at"),
    _int("succeeded_at", nullable=True),
    _text("fingerprint"),
    _text("status"),
    _int("items"),
    _text("errors_json"),
    _text("files_json"),
)

BLOBS = Table("blobs", METADATA, _key("hash"), _text("text"))

SNAPSHOTS = Table(
    "snapshots",
    METADATA,
    _int("sequence", key=True),
    Column("snapshot_id", Text, nullable=False, unique=True),
    *(_text(name) for name in ("tenant", "principal")),
    _int("created_at"),
    *(_text(name) for name in ("run_id", "turn_id")),
    _text("session_id", nullable=True),
    *(_text(name) for name in ("hash", "snapshot_json")),
    _text("pack_json", nullable=True),
    *(_text(name) for name in ("trace_json", "request_json", "status")),
    Index("snapshots_by_owner", "tenant", "principal", "sequence"),
    Index("snapshots_by_tenant", "tenant", "sequence"),
    Index("snapshots_by_time", "created_at"),
)

SNAPSHOT_ITEMS = Table(
    "snapshot_items",
    METADATA,
    _key("tenant"),
    _key("item_id"),
    _snapshot(),
    _key("version"),
    _text("rendition", nullable=True),
    Column("selected", Boolean, nullable=False),
    Index("snapshot_items_by_snapshot", "snapshot_sequence", "selected"),
)

USED = Table(
    "used",
    METADATA,
    _key("tenant"),
    _key("item_id"),
    _snapshot(),
    _int("used_at"),
    Index("used_by_snapshot", "snapshot_sequence"),
)

USAGE = Table(
    "usage",
    METADATA,
    _snapshot(),
    _key("digest"),
    _int("sequence"),
    _int("reported_at"),
    _text("usage_json"),
)


SNAPSHOT_BLOBS = Table(
    "snapshot_blobs",
    METADATA,
    _int("snapshot_sequence", key=True),
    _key("hash"),
    Index("snapshot_blobs_by_hash", "hash"),
)
"""Which snapshot needs which blob; sequence 0 stands for a text that was stored by itself and is
always needed."""

PRUNED = Table(
    "pruned",
    METADATA,
    _key("snapshot_id"),
    *(_text(name) for name in ("tenant", "principal")),
    _int("created_at"),
)

RECALLS = Table(
    "recalls",
    METADATA,
    _int("sequence", key=True),
    *(_text(name) for name in ("tenant", "item_id", "version", "code")),
    _int("since"),
    _text("reason"),
    _int("at"),
    _text("actor"),
    _int("snapshots"),
    _text("snapshot_ids_json"),
    UniqueConstraint("tenant", "item_id", "version", "code", "since"),
)
"""`since` is the event that created or last restored the version: one notice of each code until it
is restored."""


def chunks(values: Iterable[Key], size: int = MAX_PARAMETERS) -> list[list[Key]]:
    """Return the distinct values in lists of at most `size`."""
    distinct = list(dict.fromkeys(values))
    return [distinct[start : start + size] for start in range(0, len(distinct), size)]


def insert_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert many small rows with the same columns in one statement."""
    if not rows:
        return
    if connection.dialect.name != "postgresql":
        connection.execute(insert(table), list(rows))
        return
    # One array for each column: the driver would send a message for each row.
    names = list(rows[0])
    arrays = [
        f"CAST(:{name} AS {table.c[name].type.compile(connection.dialect)}[])" for name in names
    ]
    statement = (
        f"INSERT INTO {table.name} ({', '.join(names)}) SELECT * FROM unnest({', '.join(arrays)})"  # noqa: S608
    )
    connection.execute(text(statement), {name: [row[name] for row in rows] for name in names})


def upsert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Return an insert that has `on_conflict_do_nothing` and `on_conflict_do_update` on this
    database.
    """
    if connection.dialect.name != "postgresql":
        return sqlite.insert(table)
    # Loads six drivers' halves, which a project with a file never needs.
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)
