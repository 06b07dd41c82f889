"""Turns what the database says into typed errors with a fix. No message repeats a stored value."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import exc

from ctx_pipeline.errors import Conflict, Corrupt, CtxError, InvalidRequest, Unavailable
from ctx_pipeline.machine_faults import can_write, is_full, may

_CORRUPT_FIX = "run `ctx doctor`; restore .ctx/state/ from a backup"

_UNAVAILABLE: dict[int, tuple[str, str, str]] = {
    sqlite3.SQLITE_BUSY: (
        "ledger_busy",
        "another writer holds the ledger",
        "try again; look for a hung process",
    ),
    sqlite3.SQLITE_LOCKED: (
        "ledger_busy",
        "another writer holds the ledger",
        "try again; look for a hung process",
    ),
    sqlite3.SQLITE_FULL: (
        "disk_full",
        "the disk is full",
        "free space; nothing acknowledged was lost",
    ),
    sqlite3.SQLITE_READONLY: (
        "ledger_readonly",
        "the ledger cannot be written",
        "check permissions and the mount",
    ),
    sqlite3.SQLITE_PERM: (
        "ledger_readonly",
        "the ledger cannot be written",
        "check permissions and the mount",
    ),
    sqlite3.SQLITE_IOERR: (
        "disk_error",
        "the disk refused a read or write",
        "check free space, quota and the disk",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "ledger_unreachable",
        "the ledger cannot be opened",
        "check the rights of its file",
    ),
    sqlite3.SQLITE_NOMEM: (
        "out_of_memory",
        "the ledger ran out of memory",
        "free memory and try again",
    ),
}
"""By primary SQLite result code: our code, what is wrong, what to do."""

_BUSY = (
    "ledger_busy",
    "other writers hold what this one needs",
    "try again; look for a hung process",
)
_GONE = (
    "ledger_unreachable",
    "the database cannot be reached",
    "check that it runs and what its log says; try again: a change under way may have been stored",
)
_READONLY = (
    "ledger_readonly",
    "the database takes no writes from this user",
    "check the user's rights, and the role",
)
_SERVER: dict[str, tuple[str, str, str]] = {
    "08": _GONE,
    "25P03": _GONE,
    "57P": _GONE,
    "25006": _READONLY,
    "42501": _READONLY,
    "28": ("ledger_denied", "the database refused this user", "check user and password in the URL"),
    "3D": (
        "ledger_unreachable",
        "there is no such database",
        "create it, or check the name in the URL",
    ),
    "40": _BUSY,
    "55P03": _BUSY,
    "53100": (
        "disk_full",
        "the disk is full",
        "free space on the server; nothing acknowledged was lost",
    ),
    "53200": ("out_of_memory", "the database ran out of memory", "free memory and try again"),
    "53300": (
        "ledger_busy",
        "the database has no connection left",
        "try again; raise max_connections",
    ),
    "57014": (
        "ledger_timeout",
        "the database gave up on a statement",
        "try again; look at its statement_timeout",
    ),
    "58": ("disk_error", "the disk refused a read or write", "check the server's log and its disk"),
}
"""By the start of the SQLSTATE, the longest that fits (PostgreSQL, appendix A): our code, what is
wrong, what to do."""
_SERVER_CORRUPT = ("XX001", "XX002", "42P01", "42703")
"""Damaged data, damaged index, no such table, no such column."""
_REFUSED = (
    ("authentication failed", "28P01"),
    ("no password supplied", "28P01"),
    ("no pg_hba.conf entry", "28000"),
    ("does not exist", "3D000"),
    ("too many", "53300"),
    ("remaining connection slots", "53300"),
)
"""The driver keeps no SQLSTATE of a refused connection: what its text says in English, and the
state that it means."""


def typed(error: Exception, where: str) -> CtxError:
    """Return the typed form of a database error."""
    cause = error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error
    if isinstance(cause, sqlite3.Error):
        return _from_sqlite(cause, where)
    if type(cause).__module__.startswith("psycopg"):
        return _from_server(cause, error, where)
    if isinstance(error, exc.TimeoutError):
        return Unavailable(
            "every connection to the database is in use",
            where=where,
            fix="try again",
            code="ledger_busy",
        )
    if isinstance(cause, UnicodeEncodeError):
        return InvalidRequest(
            "text holds lone surrogates", where=where, fix="pass it through text.repair"
        )
    if isinstance(cause, OverflowError) or isinstance(error, exc.DataError):
        return InvalidRequest(
            "a value cannot be stored", where=where, fix="check numbers, and text for NUL"
        )
    if isinstance(error, exc.IntegrityError):
        return _conflict(where)
    return Unavailable(
        f"the ledger failed ({type(cause).__name__})",
        where=where,
        fix="check the database and retry",
    )


def _conflict(where: str) -> Conflict:
    fix = "look at what is stored under this key"
    return Conflict(
        "a row with this key exists, or what it points to does not", where=where, fix=fix
    )


def _from_sqlite(error: sqlite3.Error, where: str) -> CtxError:
    code = getattr(error, "sqlite_errorcode", None)
    if not isinstance(
        code, int
    ):  # raised by the Python module, which was given something it cannot bind
        return InvalidRequest(
            "a value has a type that cannot be stored", where=where, fix="pass text and numbers"
        )
    primary = code & 0xFF
    if primary in _UNAVAILABLE:
        name, message, fix = _of_place(primary, Path(where)) or _UNAVAILABLE[primary]
        return Unavailable(message, where=where, fix=fix, code=name)
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Corrupt(
            "the ledger file is damaged", where=where, fix=_CORRUPT_FIX, code="ledger_corrupt"
        )
    if primary == sqlite3.SQLITE_ERROR:
        return Corrupt(
            "the ledger lacks a table or column",
            where=where,
            fix=_CORRUPT_FIX,
            code="ledger_corrupt",
        )
    if primary == sqlite3.SQLITE_CONSTRAINT:
        return _conflict(where)
    if primary == sqlite3.SQLITE_TOOBIG:
        return InvalidRequest(
            "a text is larger than the ledger can hold", where=where, fix="store it as an artifact"
        )
    return Unavailable(
        f"the ledger failed ({type(error).__name__})",
        where=where,
        fix="check the database and retry",
    )


def _of_place(primary: int, path: Path) -> tuple[str, str, str] | None:
    """Return what is wrong with where the file lies, which SQLite does not tell apart; None when it
    is not that.
    """
    if primary == sqlite3.SQLITE_IOERR and is_full(path):
        return _UNAVAILABLE[sqlite3.SQLITE_FULL]
    if primary != sqlite3.SQLITE_CANTOPEN:
        return None
    if not path.parent.is_dir():
        return (
            "ledger_unreachable",
            "the ledger's folder is not there",
            "check the path; `ctx build` makes the folder",
        )
    if path.exists() and not path.is_file():
        return "ledger_unreachable", "what lies in the ledger's place is no file", "move it away"
    if is_full(path):
        return _UNAVAILABLE[sqlite3.SQLITE_FULL]
    if path.is_file() and not may(path, os.R_OK):
        return (
            "ledger_unreachable",
            "the ledger's file cannot be read",
            "give this user the right to read it",
        )
    if not can_write(path.parent):
        fix = "give this user the right to write there, or mount it for writing"
        return "ledger_readonly", "the ledger's folder cannot be written", fix
    return None


def _from_server(cause: BaseException, error: Exception, where: str) -> CtxError:
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    if not isinstance(state, str):
        state = _state_without_code(cause, error)
    if state in _SERVER_CORRUPT:
        fix = "restore the database from a backup"
        return Corrupt(
            "the ledger's database is damaged", where=where, fix=fix, code="ledger_corrupt"
        )
    for length in (5, 3, 2):
        if (known := _SERVER.get(state[:length])) is not None:
            code, message, fix = known
            return Unavailable(message, where=where, fix=fix, code=code)
    if state.startswith("23"):
        return _conflict(where)
    if state.startswith(("22", "42804")):
        return InvalidRequest(
            "a value cannot be stored", where=where, fix="check types and numbers, and text for NUL"
        )
    if state.startswith("54"):
        return InvalidRequest(
            "a text is larger than the database can hold",
            where=where,
            fix="store it as an artifact",
        )
    name = type(cause).__name__
    return Unavailable(
        f"the ledger failed ({name} {state})", where=where, fix="check the database's log and retry"
    )


def _state_without_code(cause: BaseException, error: Exception) -> str:
    """Return the SQLSTATE of an error that the driver itself raised."""
    if isinstance(error, (exc.DataError, exc.ProgrammingError)):
        return "22000"
    if isinstance(error, exc.DBAPIError) and error.connection_invalidated:
        return "08006"
    text = str(cause)
    refused = next((state for words, state in _REFUSED if words in text), None)
    if refused is not None:
        return refused
    return "08001" if isinstance(error, (exc.OperationalError, exc.InterfaceError)) else ""


@contextmanager
def typed_errors(where: str) -> Generator[None]:
    """Raise every database error inside the block as a typed one."""
    try:
        yield
    except (exc.SQLAlchemyError, sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
        raise typed(error, where) from error
