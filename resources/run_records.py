"""Dagster's SQLite storage for one process that runs a build: the same files, opened once.

Dagster opens, compiles for and closes a database for each of the some two hundred events of a build, and closing the
last connection of a database writes it back. Other processes (the daemon, the web interface) use Dagster's own classes
beside this one.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportIncompatibleMethodOverride=false
# Dagster's storages are private, and its annotations leave type parameters out. There is no public
# way to keep their databases open. Where a release moves or renames them, every build fails at its
# start: `tests/orchestration/test_run_records.py` says so, and without the line of `_records` in
# `ctx_pipeline/orchestration/build.py` builds go on with Dagster's own classes, only slower.

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from dagster._core.storage.event_log.schema import SqlEventLogStorageMetadata
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.event_log.sqlite.sqlite_event_log import (
    INDEX_SHARD_NAME,
    SqliteEventLogStorage,
)
from dagster._core.storage.runs.sqlite.sqlite_run_storage import SqliteRunStorage
from dagster._core.storage.schedules.sqlite.sqlite_schedule_storage import SqliteScheduleStorage
from dagster._core.storage.sql import get_alembic_config
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS, create_db_conn_string
from dagster._core.storage.sqlite_storage import (
    DagsterSqliteStorage,
    _event_logs_directory,
    _runs_directory,
    _schedule_directory,
)
from dagster._serdes import ConfigurableClassData
from sqlalchemy import Connection, Engine, create_engine, event


class BuildRunStorage(SqliteRunStorage):
    """Runs, through one connection."""

    _engine: Engine | None = None

    @classmethod
    def opened(cls, base_dir: str) -> BuildRunStorage:
        """Open the runs in a folder; only where there are none yet, ask for the steps of their schema."""
        if (Path(base_dir) / "runs.db").is_file():
            storage = cls(create_db_conn_string(base_dir, "runs"))
            with storage.connect() as connection:
                if MigrationContext.configure(connection).get_current_revision() is not None:
                    return storage
            storage.dispose()
        return cls.from_local(base_dir)

    @contextmanager
    def connect(self) -> Generator[Connection]:
        """Yield a connection in a transaction."""
        if self._engine is None:
            self._engine = _open(self._conn_string)
        with self._engine.begin() as connection:
            yield connection

    def dispose(self) -> None:
        """Close the connection."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None


class BuildEventLog(SqliteEventLogStorage):
    """Events: the index of all runs stays open, and so does the file of the run that was used last."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._engines: dict[str, Engine] = {}
        super().__init__(base_dir, inst_data)

    def _initdb(self, engine: Engine, for_index_shard: bool = False) -> None:
        if for_index_shard:
            super()._initdb(engine, for_index_shard)
            return
        # As the parent does it, with the steps of Dagster's schema read once instead of at each question.
        with engine.connect() as connection:
            context = MigrationContext.configure(connection)
            if context.get_current_revision() is None:
                SqlEventLogStorageMetadata.create_all(connection)
                context.stamp(_schema_steps(), "head")
            connection.commit()

    @contextmanager
    def _connect(self, shard: str) -> Generator[Connection]:
        with self._db_lock:
            engine = self._opened(shard)
            if shard not in self._initialized_dbs:
                self._initdb(engine)
                self._initialized_dbs.add(shard)
            with engine.begin() as connection:
                yield connection

    def _opened(self, shard: str) -> Engine:
        engine = self._engines.get(shard)
        if engine is None:
            for other in set(self._engines) - {INDEX_SHARD_NAME}:
                self._engines.pop(other).dispose()
            engine = self._engines[shard] = _open(self.conn_string_for_shard(shard))
        return engine

    def dispose(self) -> None:
        """Close the connections."""
        with self._db_lock:
            while self._engines:
                self._engines.popitem()[1].dispose()
        super().dispose()


class BuildRecords(DagsterSqliteStorage):
    """Runs, events and schedules of a project's own instance, for the process that runs a build."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        # Not that of the parent, which would open all three with Dagster's classes.
        super(DagsterSqliteStorage, self).__init__()
        self.base_dir = base_dir
        runs, schedules = _runs_directory(base_dir), _schedule_directory(base_dir)
        self._run_storage = BuildRunStorage.opened(runs)
        self._event_log_storage = BuildEventLog(_event_logs_directory(base_dir))
        self._schedule_storage = SqliteScheduleStorage.from_local(schedules)
        self._inst_data = inst_data

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: dict[str, Any]
    ) -> BuildRecords:
        """Open the storage that a configuration names; what Dagster calls."""
        return cls.from_local(inst_data=inst_data, **config_value)


@cache
def _schema_steps() -> ScriptDirectory:
    return ScriptDirectory.from_config(get_alembic_config(sqlite_event_log.__file__))


def _open(url: str) -> Engine:
    engine = create_engine(url, connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS})
    event.listen(engine, "connect", _relax)
    return engine


def _relax(connection: Any, _: object) -> None:
    # A power cut may take the last events of a run with it, never damage the file: that a build was recorded is worth
    # no wait for the disk at each event. Our own record is synced.
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
