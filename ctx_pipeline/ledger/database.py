"""The one way to the ledger's database: SQLite in WAL mode by default, or any database by URL."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import create_engine, event, func, select
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool, QueuePool

from ctx_pipeline.errors import ConfigError, Unavailable
from ctx_pipeline.ledger.faults import typed_errors
from ctx_pipeline.ledger.migrations import SCHEMA_VERSION, migrate, require_known, stored_version
from ctx_pipeline.ledger.schema import COUNTERS
from ctx_pipeline.ledger.server import ONE_STATEMENT, ONE_VIEW, make_server_engine
from ctx_pipeline.machine_faults import can_write

BUSY_TIMEOUT_SECONDS = 15.0
WAL_CHECKPOINT_PAGES = 4_000
"""16 MB: item rows of many snapshots touch the same pages, which a rarer checkpoint writes back
once."""

_MIGRATION_LOCK = 0x637478
"""Any number that every release uses alike."""
_READ_ONLY = "ctx_read"
_COUNTERS_SQL = "SELECT overlay_sequence, source_revision FROM counters WHERE id = 1"


class _Reader:
    """One thread's own SQLite connection for the read that every request makes."""

    __slots__ = ("__weakref__", "connection", "pid")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.pid = os.getpid()

    def close(self) -> None:
        # SQLite connections must not be used, not even closed, in a forked child.
        if self.pid == os.getpid():
            self.connection.close()

    def __del__(self) -> None:
        with suppress(sqlite3.Error):
            self.close()


class Database:
    """Connections, transactions and typed errors; knows no table but the counters.

    Safe to share between threads. Writers of one process queue on a lock, writers of several on
    SQLite's own.
    """

    def __init__(self, url: str | Path, *, readonly: bool = False) -> None:
        self._url = _as_url(url)
        self.path = (
            Path(self._url.database or "").absolute()
            if self._url.get_backend_name() == "sqlite"
            else None
        )
        self.where = str(self.path) if self.path else self._url.render_as_string(hide_password=True)
        self.readonly = readonly
        self._still = readonly and self.path is not None and not is_writable(self.path)
        """Whether nothing beside the file can be made, which reading a write-ahead log otherwise
        needs."""
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._write_lock = threading.Lock()
        self._local = threading.local()
        self._readers: weakref.WeakSet[_Reader] = weakref.WeakSet()
        self._readers_lock = threading.Lock()
        self._engine = self._make_engine()

    def pause(self) -> None:
        """Wait for the transaction in progress and let no other begin, until `resume` or
        `reset_after_fork`.

        For a fork: in the child's copy of SQLite's memory a transaction in progress would hold its
        lock for ever.
        """
        self._write_lock.acquire()

    def resume(self) -> None:
        """End a `pause`."""
        self._write_lock.release()

    def reset_after_fork(self) -> None:
        """Forget, without closing, every connection of the parent process."""
        self._engine.dispose(close=False)
        self._reset()

    def _make_engine(self) -> Engine:
        # Statements carry content: a driver's error text must never repeat it.
        if self.path is None:
            return make_server_engine(self._url, self.where)
        # Where the file may change under us without a lock, each read opens it anew.
        pool = NullPool if self._still else QueuePool
        engine = create_engine(
            "sqlite://", creator=self._connect, poolclass=pool, hide_parameters=True
        )
        event.listen(engine, "begin", _begin)
        return engine

    def _connect(self) -> sqlite3.Connection:
        mode = "ro" if self.readonly else "rwc"
        if self._still and not _has_log(self.path):
            # SQLite would make the log's index beside the file. Without a log, the file is all
            # there is.
            mode = "ro&immutable=1"
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode={mode}",
            uri=True,
            timeout=BUSY_TIMEOUT_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        # FULL: with NORMAL a power cut takes back what was acknowledged since the last checkpoint.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        # Erased text must not stay readable in free pages.
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_CHECKPOINT_PAGES}")
        return connection

    def prepare(self) -> None:
        """Create or upgrade the schema.

        Raises:
            Unavailable: missing while `readonly` (`no_ledger`), older while `readonly`
                (`ledger_too_old`), written by a later release (`ledger_too_new`), or not reachable.
            Corrupt: the file is damaged or no ledger.
        """
        with typed_errors(self.where):
            if self.readonly:
                self._require_ready()
                return
            if self.path is not None:
                self._make_wal_file(self.path)
            with self.read() as connection:
                version = stored_version(connection)
                require_known(version)
            if version < SCHEMA_VERSION:
                with self.write() as connection:
                    if (
                        connection.dialect.name == "postgresql"
                    ):  # elsewhere the transaction itself excludes others
                        connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
                    migrate(connection)

    def _require_ready(self) -> None:
        missing = Unavailable(
            "there is no ledger here",
            where=self.where,
            fix="run `ctx init` or `ctx build`",
            code="no_ledger",
        )
        if self.path is not None and not self.path.is_file():
            raise missing
        with self.read() as connection:
            version = stored_version(connection)
        require_known(version)
        if version == 0:
            raise missing
        if version < SCHEMA_VERSION:
            raise Unavailable(
                f"the ledger has schema version {version}, this release reads {SCHEMA_VERSION}",
                where=self.where,
                fix="open it once for writing, for example with `ctx status`",
                code="ledger_too_old",
            )

    def _make_wal_file(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(
                "the ledger's folder cannot be made",
                where=self.where,
                fix="check permissions",
                code="ledger_readonly",
            ) from error
        deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
        with closing(self._connect()) as connection:
            # SQLite does not wait for its busy timeout here when two processes create the file at
            # the same time.
            while True:
                try:
                    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                    break
                except sqlite3.OperationalError as error:
                    if (
                        error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY
                        or time.monotonic() > deadline
                    ):
                        raise
                    time.sleep(0.01)
        if mode != "wal":
            raise Unavailable(
                "this file system cannot hold a write-ahead log",
                where=self.where,
                fix="put the project on a local disk, or name a Postgres URL",
                code="ledger_unreachable",
            )

    @contextmanager
    def read(self) -> Generator[Connection]:
        """Open one consistent view of the database."""
        self._require_open()
        with typed_errors(self.where), self._engine.connect() as raw:
            connection = raw.execution_options(**({_READ_ONLY: True} if self.path else ONE_VIEW))
            with connection.begin():
                yield connection

    @contextmanager
    def write(self) -> Generator[Connection]:
        """Open a transaction that commits, synced to disk, when the block ends, and changes nothing
        when it raises.
        """
        self.require_writable()
        with self._write_lock, typed_errors(self.where), self._engine.begin() as connection:
            yield connection

    def counters(self) -> tuple[int, int]:
        """Return (overlay sequence, source revision) as committed now, by any process. Tens of
        microseconds.
        """
        if self._still:
            with self.read() as connection:
                row = connection.execute(
                    select(COUNTERS.c.overlay_sequence, COUNTERS.c.source_revision)
                ).one()
            return int(row[0]), int(row[1])
        if self.path is None:
            self._require_open()
            # One round trip: no transaction is begun and ended around it.
            with (
                typed_errors(self.where),
                self._engine.connect().execution_options(**ONE_STATEMENT) as connection,
            ):
                row = connection.execute(
                    select(COUNTERS.c.overlay_sequence, COUNTERS.c.source_revision)
                ).one()
            return int(row[0]), int(row[1])
        try:
            row: Any = self._local.reader.connection.execute(_COUNTERS_SQL).fetchone()
        except (AttributeError, sqlite3.Error):
            # First call of this thread, or the reader was closed: the slow way says what is wrong,
            # if anything.
            with typed_errors(self.where):
                row = self._open_reader().connection.execute(_COUNTERS_SQL).fetchone()
        return row[0], row[1]

    def _open_reader(self) -> _Reader:
        self._require_open()
        reader = _Reader(self._connect())
        with self._readers_lock:
            self._readers.add(reader)
        self._local.reader = reader
        return reader

    def truncate_log(self) -> None:
        """Write the log back into the file and empty it, so that erased text is in neither. Does
        nothing elsewhere.
        """
        if self.path is not None:
            with self._write_lock, typed_errors(self.where), closing(self._connect()) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def require_writable(self) -> None:
        """Refuse a write early.

        Raises:
            Unavailable: closed, or opened for reading only.
        """
        self._require_open()
        if self._still:
            fix = "give this user the right to write there, or mount it for writing"
            raise Unavailable(
                "the ledger cannot be written", where=self.where, fix=fix, code="ledger_readonly"
            )
        if self.readonly:
            where, fix = self.where, "open it for writing"
            raise Unavailable(
                "the ledger was opened for reading only",
                where=where,
                fix=fix,
                code="ledger_readonly",
            )

    def _require_open(self) -> None:
        if self._closed:
            raise Unavailable(
                "the ledger is closed", where=self.where, fix="open it again", code="ledger_closed"
            )

    def close(self) -> None:
        """Close every connection. Idempotent."""
        self._closed = True
        with self._readers_lock:
            readers = list(self._readers)
        for reader in readers:
            reader.close()
        self._engine.dispose()


def is_writable(url: str | Path) -> bool:
    """Return whether a ledger can be written, as far as its folder tells; a server is asked when
    something is written.

    One that is not there yet counts as writable: making it says what is wrong.
    """
    parsed = _as_url(url)
    if parsed.get_backend_name() != "sqlite":
        return True
    path = Path(parsed.database or "").absolute()
    return not path.is_file() or (can_write(path) and can_write(path.parent))


def _has_log(path: Path | None) -> bool:
    """Return whether a write-ahead log lies beside a file, with changes that the file has not."""
    try:
        return path is not None and path.with_name(f"{path.name}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def _begin(connection: Connection) -> None:
    # IMMEDIATE: a transaction that starts as a reader and then writes fails at once when somebody
    # wrote in between.
    read = connection.get_execution_options().get(_READ_ONLY)
    connection.exec_driver_sql("BEGIN" if read else "BEGIN IMMEDIATE")


def _as_url(url: str | Path) -> URL:
    if isinstance(url, Path) or "://" not in url:
        return URL.create("sqlite", database=str(url))
    fix = "write sqlite:///path or postgresql://user@host/database"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Neither the URL nor the cause's text is repeated: there may be a password in it.
        raise ConfigError("the ledger's URL cannot be read", where="ledger URL", fix=fix) from None
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise ConfigError(
            f"no ledger can be kept in {parsed.get_backend_name()!r}", where="ledger URL", fix=fix
        )
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ConfigError(
            "the ledger needs a file", where="ledger URL", fix="write sqlite:///path/to/ledger.db"
        )
    return parsed
