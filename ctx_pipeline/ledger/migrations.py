"""Brings a database to the schema of this release. The steps are Alembic revisions in `versions/`.

A revision, once released, is never edited. Alembic is loaded only when there is something to do. No
`env.py`, `alembic.ini` or module-level proxy (`alembic.op`, `alembic.context`) is used: the
connection is the caller's, and two threads may migrate two ledgers at the same time.
"""

# pyright: reportPrivateUsage=false
# `ScriptDirectory._upgrade_revs` is what Alembic's documentation of programmatic use calls.

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import inspect, text
from sqlalchemy.engine import Connection

from ctx_pipeline.errors import Corrupt, Unavailable

if TYPE_CHECKING:
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext

SCHEMA_VERSION = 4
"""Number of the newest revision in `versions/`; a test holds the two together."""
VERSION_TABLE = "ledger_version"
"""Not Alembic's default: whoever shares the database may use that."""
VERSIONS = Path(__file__).parent / "versions"

_FORMER_TABLE = "meta"
"""Where the version was kept before revision 0003."""


def run(op: Operations, statements: str) -> None:
    """Execute statements that end in semicolons, with the words in which
    databases differ put in.
    """
    on_sqlite = op.get_context().dialect.name == "sqlite"
    # In SQLite only `INTEGER PRIMARY KEY` is the row's own key, and a table clustered by its key
    # needs one tree only.
    words = {
        "int64": "INTEGER" if on_sqlite else "BIGINT",
        "clustered": " WITHOUT ROWID" if on_sqlite else "",
    }
    for statement in statements.format(**words).split(";"):
        op.execute(statement)


def stored_version(connection: Connection) -> int:
    """Return the schema version of this database; 0 when it is empty.

    Raises:
        Corrupt: there are tables, but they are not a ledger's (`not_a_ledger`).
    """
    tables = inspect(connection).get_table_names()
    if not tables:
        return 0
    version: Any = None
    if VERSION_TABLE in tables:
        version = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608
    elif _FORMER_TABLE in tables:
        version = connection.execute(text(f"SELECT schema_version FROM {_FORMER_TABLE}")).scalar()  # noqa: S608
    if not str(version).isdecimal():
        raise Corrupt(
            "the database is not a ledger", fix="name another file or database", code="not_a_ledger"
        )
    return int(version)


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


def migrate(connection: Connection, versions: Path = VERSIONS) -> None:
    """Bring the schema up to date inside the caller's transaction, which excludes other writers.
    Idempotent.
    """
    from alembic.operations import Operations
    from alembic.script import ScriptDirectory

    script = ScriptDirectory(str(versions.parent), version_locations=[str(versions)])
    newest = int(script.get_current_head() or 0)
    version = stored_version(connection)
    require_known(version, newest)

    def upgrades(revision: Any, _: Any) -> Any:
        return script._upgrade_revs("head", revision)  # pyright: ignore[reportPrivateUsage]

    context = migration_context(connection, fn=upgrades)
    if version and not inspect(connection).has_table(VERSION_TABLE):
        context.stamp(script, f"{version:04}")
    context.run_migrations(op=Operations(context))


def migration_context(connection: Connection, **options: Any) -> MigrationContext:
    """Return Alembic's view of this ledger."""
    from alembic.runtime.migration import MigrationContext

    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, **options})
