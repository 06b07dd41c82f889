"""One folder of LanceDB tables: who may write, what was committed, and typed errors for what
LanceDB raises.

LanceDB is imported when a table is first used.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ctx_pipeline.errors import Corrupt, Unavailable
from ctx_pipeline.machine_faults import is_denied, system_error
from ctx_pipeline.text import canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    import pyarrow as pa
    from lancedb.db import DBConnection
    from lancedb.expr import Expr
    from lancedb.table import Table

FORMAT_VERSION: Final = 1
"""Layout of the folder; a newer one is refused by name."""

LOCK_TIMEOUT_SECONDS: Final = 120.0
"""How long a writer waits for another one; compacting a million rows takes a few seconds."""

T = TypeVar("T")

_DEFERRING = Lock()
_LANCE_ERRORS = (OSError, RuntimeError, ValueError)
"""All that LanceDB raises, whatever went wrong."""


class LanceFolder:
    """The tables of one folder. Cheap to make; safe to share between threads."""

    def __init__(self, folder: Path) -> None:
        from filelock import FileLock

        self._folder = folder
        self._file_lock = FileLock(folder / ".write.lock")
        self._tables: dict[str, Table] = {}
        self._tables_lock = Lock()
        self._connection: DBConnection | None = None

    @contextmanager
    def writer(self, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> Generator[None]:
        """Hold the one right to write, across threads and processes; may be nested in a thread.

        Raises:
            Unavailable: another writer held it for `timeout_seconds`, or the folder cannot be
                written.
        """
        from filelock import Timeout

        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file_lock.acquire(timeout=timeout_seconds)
        except Timeout as error:
            raise _unavailable("another writer holds the store", "try again later") from error
        except (OSError, NotImplementedError) as error:
            raise system_error(error, self._folder) or _unavailable(
                "the store's folder cannot be locked", "make it a writable local folder"
            ) from error
        try:
            yield
        finally:
            self._file_lock.release()

    def open(self, name: str) -> Table | None:
        """Return a table, or None when nothing was ever written to it.

        Raises:
            Corrupt: it has data and cannot be opened.
            Unavailable: a newer release wrote the folder.
        """
        if (table := self._tables.get(name)) is not None:
            return table
        folder = self._folder / f"{name}.lance"
        if not folder.is_dir():
            return None
        self.metadata()
        table = reading(name, lambda: self._open_existing(name))
        if table is None:
            # Without a manifest: a creation that was cut off, or, when there is data, a manifest
            # that was lost.
            if any((folder / "data").glob("*")):
                raise _corrupt(name)
            return None
        with self._tables_lock:
            return self._tables.setdefault(name, table)

    def append(self, name: str, rows: pa.Table) -> None:
        """Add rows to a table in one commit; call it as the writer."""
        table = self.open(name)
        with _writing(self._folder):
            if table is None:
                self.save_metadata(self.metadata())
                table = self._database().create_table(name, schema=rows.schema, exist_ok=True)
            cast("Any", table).add(rows)

    def replace(self, name: str, rows: pa.Table) -> None:
        """Put `rows` in the place of everything a table holds, in one commit; call it as the
        writer.
        """
        with _writing(self._folder):
            table = self._database().create_table(name, data=rows, mode="overwrite")
        with self._tables_lock:
            self._tables[name] = table

    def compact(self, name: str, keep_old: timedelta) -> None:
        """Merge a table's fragments and drop versions made longer ago than `keep_old`; call it as
        the writer.
        """
        table = self.open(name)
        if table is not None:
            with _writing(self._folder):
                table.optimize(cleanup_older_than=keep_old)

    def fragments(self, name: str) -> int:
        """Return the number of fragments of a table."""
        table = self.open(name)
        if table is None:
            return 0
        stats: Any = table.stats()
        return int(stats["fragment_stats"]["num_fragments"])

    def metadata(self) -> dict[str, Any]:
        """Return what is known of the folder beside its tables: `format` and `models`."""
        path = self._folder / "store.json"
        try:
            metadata = json.loads(path.read_text(encoding="utf-8"))
            version = int(metadata["format"])
        except (FileNotFoundError, NotADirectoryError):
            return {"format": FORMAT_VERSION, "models": []}
        except PermissionError as error:
            fix = "give this user the right to read .ctx/state"
            raise Unavailable(
                "'store.json' may not be read", where="store", fix=fix, code="cannot_read"
            ) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _corrupt("store.json") from error
        if version > FORMAT_VERSION:
            raise Unavailable(
                f"the store has format {version}, this release reads up to {FORMAT_VERSION}",
                where="store",
                fix="upgrade ctx-pipeline",
                code="newer_format",
            )
        return metadata

    def save_metadata(self, metadata: dict[str, Any]) -> None:
        """Replace the metadata; call it as the writer."""
        path = self._folder / "store.json"
        partial = path.with_suffix(".tmp")
        with _writing(self._folder):
            with partial.open("w", encoding="utf-8") as file:
                file.write(canonical_json(metadata))
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)

    def _database(self) -> Any:
        # LanceDB's annotations name types of packages that are not installed: untyped for the
        # checker's sake.
        return self._connect()

    def _connect(self) -> DBConnection:
        with self._tables_lock:
            if self._connection is None:
                with models_built_when_used():
                    import lancedb

                # Zero: every read looks for commits of other processes (0.4 ms).
                self._connection = lancedb.connect(
                    self._folder, read_consistency_interval=timedelta(0)
                )
            return self._connection

    def _open_existing(self, name: str) -> Table | None:
        try:
            return self._connect().open_table(name)
        except ValueError as error:
            if "was not found" in str(error):
                return None
            raise


@contextmanager
def models_built_when_used() -> Generator[None]:
    """Let pydantic build what is defined in the block when it is first used, as its setting
    `defer_build` does.

    LanceDB imports the client of a remote service with it, some 400 models and 400 checked
    functions, which take a third of a second of CPU time in every process and which no local table
    uses. What another thread defines meanwhile is built at its first use too. It can go when
    `import lancedb` loads that client lazily.
    """
    import pydantic

    # One thread at a time: a second one would take the first one's stand-in for pydantic's own, and
    # fail in the midst of an import, which then fails for every thread.
    _DEFERRING.acquire()
    settings, check = pydantic.BaseModel.model_config, pydantic.validate_call
    deferred = pydantic.ConfigDict(defer_build=True)
    pydantic.BaseModel.model_config = settings | deferred
    pydantic.validate_call = lambda function: check(config=deferred)(function)  # type: ignore[assignment]  # of all its forms this is the one that is used
    try:
        yield
    finally:
        pydantic.BaseModel.model_config = settings
        pydantic.validate_call = check
        _DEFERRING.release()


def select(table: Table, columns: list[str], where: Expr | None = None) -> pa.Table:
    """Return some columns of the rows that `where` lets through, or of all rows."""
    return _query(table, columns, where).to_arrow().select(columns)


def select_batches(
    table: Table, columns: list[str], where: Expr | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield what `select` returns in batches, so that a large table never is in memory twice."""
    yield from _query(table, columns, where).to_batches()


def _query(table: Table, columns: list[str], where: Expr | None) -> Any:
    query = cast("Any", table).search().select(columns)
    return query if where is None else query.where(where)


def reading(what: str, read: Callable[[], T]) -> T:
    """Return what `read` returns; what LanceDB raises for unreadable bytes becomes `Corrupt`.

    Tries twice: another process may have compacted the table and dropped the version that the first
    try had opened.
    """
    try:
        return read()
    except _LANCE_ERRORS:
        pass
    try:
        return read()
    except _LANCE_ERRORS as error:
        if is_denied(error):
            fix = "give this user the right to read .ctx/state"
            raise Unavailable(
                f"{what!r} may not be read", where="store", fix=fix, code="cannot_read"
            ) from error
        raise _corrupt(what) from error


@contextmanager
def _writing(folder: Path) -> Generator[None]:
    """Turn what LanceDB raises for a failed write into `Unavailable`: a commit that failed left
    nothing behind.
    """
    try:
        yield
    except _LANCE_ERRORS as error:
        raise system_error(error, folder) or _unavailable(
            "the store could not be written", "free disk space or make the folder writable"
        ) from error


def _corrupt(what: str) -> Corrupt:
    return Corrupt(
        f"stored bytes of {what!r} cannot be read",
        where="store",
        fix="run `ctx doctor`, then restore from a backup",
    )


def _unavailable(message: str, fix: str) -> Unavailable:
    return Unavailable(message, where="store", fix=fix)
