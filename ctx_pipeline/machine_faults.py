"""Turns what the machine refuses into typed errors: a full disk, a folder that cannot be written.

Libraries raise classes of their own for it, some of them with nothing but the words of the
operating system.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from ctx_pipeline.errors import CtxError, Unavailable

FULL_BYTES = 256 * 1024
"""With less than this free, what a database calls an error of input or output is a full disk: its
log cannot grow."""
MAX_CAUSES = 16

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
_READ_ONLY = frozenset((errno.EROFS, errno.EACCES, errno.EPERM))
_IN_WORDS = re.compile(r"(?:os error |\[Errno )(\d+)")
"""How Rust and C++ libraries name an error of the system."""
_PLACE_IN_DOUBT = frozenset((sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR))


def disk_full(where: str | Path) -> Unavailable:
    """Return the error of a full disk."""
    fix = "free some disk space, then run the same command again; nothing acknowledged was lost"
    return Unavailable("the disk is full", where=str(where), fix=fix, code="disk_full")


def cannot_write(where: str | Path) -> Unavailable:
    """Return the error of a folder that cannot be written."""
    place = Path(where)
    folder = next((above for above in (place, *place.parents) if above.is_dir()), place)
    fix = "give this user the right to write there, or mount it for writing"
    return Unavailable(
        "the folder cannot be written to", where=str(folder), fix=fix, code="cannot_write"
    )


def can_write(path: Path) -> bool:
    """Return whether a file can be written, or made in the nearest folder
    above it that there is.
    """
    if path.is_file():
        return may(path, os.W_OK)
    folder = next((place for place in (path, *path.parents) if place.exists()), None)
    return folder is not None and may(folder, os.W_OK | os.X_OK)


def may(path: Path, mode: int) -> bool:
    """Return whether the user that this process acts for may do something to a path."""
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def is_full(path: Path) -> bool:
    """Return whether the disk below a path has no room for anything."""
    place = next((folder for folder in (path, *path.parents) if folder.exists()), None)
    try:
        return place is not None and shutil.disk_usage(place).free < FULL_BYTES
    except OSError:
        return False


def system_error(error: BaseException, folder: Path) -> CtxError | None:
    """Return the typed form of an error behind which the machine stands; None for every other
    error.

    `folder` is what was written to, for errors that name no place.
    """
    for cause in _causes(error):
        if isinstance(cause, CtxError):
            return cause
        number = _number(cause)
        if number in _FULL:
            return disk_full(folder)
        if number in _READ_ONLY:
            return _refused(cause, folder)
        if isinstance(cause, sqlite3.Error) and (found := _of_database(cause, folder)) is not None:
            return found
    return None


def is_denied(error: BaseException) -> bool:
    """Return whether the system refused because of missing rights."""
    return any(_number(cause) in (errno.EACCES, errno.EPERM) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen and len(seen) < MAX_CAUSES:
        seen.append(current)
        yield current
        current = current.__cause__ or current.__context__


def _number(error: BaseException) -> int | None:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    # A short look: such messages are short, and a long one quotes something.
    found = (
        _IN_WORDS.search(str(error)[:2_000])
        if isinstance(error, (OSError, RuntimeError, ValueError))
        else None
    )
    return int(found.group(1)) if found else None


def _refused(error: BaseException, folder: Path) -> Unavailable:
    named = getattr(error, "filename", None)
    place = Path(os.fsdecode(named)) if isinstance(named, (str, bytes)) else folder
    if place.is_file() and may(place, os.W_OK) and not may(place, os.R_OK):
        fix = "give this user the right to read it"
        return Unavailable("the file cannot be read", where=str(place), fix=fix, code="cannot_read")
    return cannot_write(place)


def _of_database(error: sqlite3.Error, folder: Path) -> Unavailable | None:
    code = getattr(error, "sqlite_errorcode", None)
    primary = code & 0xFF if isinstance(code, int) else None
    if primary == sqlite3.SQLITE_FULL or (primary in _PLACE_IN_DOUBT and is_full(folder)):
        return disk_full(folder)
    if primary == sqlite3.SQLITE_READONLY or (primary in _PLACE_IN_DOUBT and not can_write(folder)):
        return cannot_write(folder)
    return None


@contextmanager
def typed_system_errors(folder: Path) -> Generator[None]:
    """Raise what the machine refuses inside the block as a typed error; every other error passes as
    it is.
    """
    try:
        yield
    except CtxError:
        raise
    except Exception as error:  # each library has classes of its own for a full disk
        typed = system_error(error, folder)
        if typed is None:
            raise
        raise typed from error
