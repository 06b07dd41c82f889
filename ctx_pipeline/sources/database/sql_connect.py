"""Connections that can only read: one transaction, with limits, closed at the end. No error repeats
an address.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ctx_pipeline.config.source_rules import DATABASE_FIX, database_fault, database_kind
from ctx_pipeline.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine import URL

STATEMENT_SECONDS = 5
"""Of one statement; what takes longer is not worth a statistic."""
LOCK_SECONDS = 2
CONNECT_SECONDS = 10
SQLITE_STEPS = 10_000
"""Instructions of SQLite's machine between two looks at the clock."""
POSTGRES_EXTRA = "postgres"


class Unreachable(Exception):
    """The database cannot be opened; the message names neither its address nor its user."""


def parse_url(url: str | None, source: str) -> tuple[str, URL]:
    """Return the kind of database and its parsed address.

    Raises:
        ConfigError: there is no url, or it is not one of a supported database; the message does not
            repeat it.
    """
    from sqlalchemy.engine import make_url

    where = f"ctx.toml, source {source!r}"
    if not url:
        raise ConfigError("the source has no url", where=where, fix=DATABASE_FIX)
    if (fault := database_fault(url)) is not None:
        raise ConfigError(fault.message, where=where, fix=fault.fix, code=fault.code)
    return database_kind(url) or "", make_url(url)


@contextmanager
def connect_postgres(url: URL) -> Generator[Connection]:
    """Open a read-only transaction with timeouts.

    Raises:
        Unreachable: the driver is missing, or the server refuses.
    """
    from sqlalchemy import create_engine, text
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.pool import NullPool

    try:
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            poolclass=NullPool,
            hide_parameters=True,
            connect_args={"connect_timeout": CONNECT_SECONDS, "application_name": "ctx_pipeline"},
        )
    except ImportError:
        raise Unreachable(
            f"the Postgres driver is missing: pip install 'ctx-pipeline[{POSTGRES_EXTRA}]'"
        ) from None
    except (SQLAlchemyError, TypeError, ValueError):
        raise Unreachable(
            "the url has a part that the Postgres driver does not take: check it"
        ) from None
    with _opened(engine) as connection:
        connection = connection.execution_options(postgresql_readonly=True)
        for setting in (
            f"statement_timeout = '{STATEMENT_SECONDS}s'",
            f"lock_timeout = '{LOCK_SECONDS}s'",
            "idle_in_transaction_session_timeout = '300s'",
            "TimeZone = 'UTC'",
            "DateStyle = 'ISO, YMD'",
            "IntervalStyle = 'postgres'",
        ):
            connection.execute(text(f"SET LOCAL {setting}"))
        yield connection


@contextmanager
def connect_sqlite(path: Path) -> Generator[Connection]:
    """Open a file that can only be read; it is never created.

    Raises:
        Unreachable: it cannot be opened.
    """
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import NullPool

    started = [time.monotonic()]

    def connect() -> sqlite3.Connection:
        # check_same_thread: SQLAlchemy closes in whichever thread is last.
        raw = sqlite3.connect(
            f"file:{quote(path.as_posix())}?mode=ro",
            uri=True,
            timeout=LOCK_SECONDS,
            check_same_thread=False,
        )
        raw.text_factory = _text
        raw.execute("PRAGMA query_only = ON")
        raw.execute("PRAGMA trusted_schema = OFF")
        raw.set_progress_handler(
            lambda: time.monotonic() - started[0] > STATEMENT_SECONDS, SQLITE_STEPS
        )
        return raw

    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool, hide_parameters=True)

    def restart(*_: Any) -> None:
        started[0] = time.monotonic()

    event.listen(engine, "before_cursor_execute", restart)
    with _opened(engine) as connection:
        yield connection


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


@contextmanager
def _opened(engine: Engine) -> Generator[Connection]:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        try:
            connection = engine.connect()
        except (SQLAlchemyError, sqlite3.Error, OSError, ValueError, UnicodeError) as error:
            raise Unreachable(
                f"the database cannot be opened ({error_name(error)}): {_ADVICE}"
            ) from None
        with connection:
            yield connection
            connection.rollback()
    finally:
        engine.dispose()


_ADVICE = "check that it is there, the url, the user's rights and the password"


def error_name(error: Exception) -> str:
    """Return the class of an error, of the driver's own where there is one: never its text."""
    return type(getattr(error, "orig", None) or error).__name__
