"""Turns what the database says into typed errors with a fix. No message repeats a stored value."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import exc

from ctx_pipeline.errors import Conflict, Corrupt, CtxError, InvalidRequest, Unavailable

_CORRUPT_FIX = "run `ctx doctor`; restore .ctx/state/ from a backup"

_UNAVAILABLE: dict[int, tuple[str, str, str]] = {
    sqlite3.SQLITE_BUSY: ("ledger_busy", "another writer holds the ledger", "try again; look for a hung process"),
    sqlite3.SQLITE_LOCKED: ("ledger_busy", "another writer holds the ledger", "try again; look for a hung process"),
    sqlite3.SQLITE_FULL: ("disk_full", "the disk is full", "free space; nothing acknowledged was lost"),
    sqlite3.SQLITE_READONLY: ("ledger_readonly", "the ledger cannot be written", "check permissions and the mount"),
    sqlite3.SQLITE_PERM: ("ledger_readonly", "the ledger cannot be written", "check permissions and the mount"),
    sqlite3.SQLITE_IOERR: ("disk_error", "the disk refused a read or write", "check free space, quota and the disk"),
    sqlite3.SQLITE_CANTOPEN: ("ledger_unreachable", "the ledger cannot be opened", "check that its folder exists"),
    sqlite3.SQLITE_NOMEM: ("out_of_memory", "the ledger ran out of memory", "free memory and try again"),
}
"""By primary SQLite result code: our code, what is wrong, what to do."""


def typed(error: Exception, where: str) -> CtxError:
    """Return the typed form of a database error."""
    cause = error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error
    if isinstance(cause, sqlite3.Error):
        return _from_sqlite(cause, where)
    if isinstance(cause, UnicodeEncodeError):
        return InvalidRequest("text holds lone surrogates", where=where, fix="pass it through text.repair")
    if isinstance(cause, OverflowError) or isinstance(error, exc.DataError):
        return InvalidRequest("a value cannot be stored", where=where, fix="check numbers, and text for NUL")
    if isinstance(error, exc.IntegrityError):
        return Conflict("a row with this key exists, or what it points to does not", where=where)
    return Unavailable(f"the ledger failed ({type(cause).__name__})", where=where, fix="check the database and retry")


def _from_sqlite(error: sqlite3.Error, where: str) -> CtxError:
    code = getattr(error, "sqlite_errorcode", None)
    if not isinstance(code, int):  # raised by the Python module, which was given something it cannot bind
        return InvalidRequest("a value has a type that cannot be stored", where=where, fix="pass text and numbers")
    primary = code & 0xFF
    if primary in _UNAVAILABLE:
        name, message, fix = _UNAVAILABLE[primary]
        return Unavailable(message, where=where, fix=fix, code=name)
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Corrupt("the ledger file is damaged", where=where, fix=_CORRUPT_FIX, code="ledger_corrupt")
    if primary == sqlite3.SQLITE_ERROR:
        return Corrupt("the ledger lacks a table or column", where=where, fix=_CORRUPT_FIX, code="ledger_corrupt")
    if primary == sqlite3.SQLITE_CONSTRAINT:
        return Conflict("a row with this key exists, or what it points to does not", where=where)
    if primary == sqlite3.SQLITE_TOOBIG:
        return InvalidRequest("a text is larger than the ledger can hold", where=where, fix="store it as an artifact")
    return Unavailable(f"the ledger failed ({type(error).__name__})", where=where, fix="check the database and retry")


@contextmanager
def typed_errors(where: str) -> Generator[None]:
    """Raise every database error inside the block as a typed one."""
    try:
        yield
    except (exc.SQLAlchemyError, sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
        raise typed(error, where) from error
