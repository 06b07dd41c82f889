"""Connections to a Postgres server: how long they wait, and how they come back
after it was away.
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, Engine
from sqlalchemy.exc import ArgumentError, DisconnectionError

from ctx_pipeline.errors import Unavailable

CONNECT_SECONDS = 10
LOCK_MILLISECONDS = 15_000
"""How long a writer waits for another one; the same as for SQLite."""
ABANDONED_MILLISECONDS = 60_000
"""After how long the server ends a transaction whose process does nothing; it would hold up every
other writer."""
IDLE_SECONDS = 5.0
"""A connection that was not used for longer is tried out before it is handed out."""

ONE_VIEW: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
"""Options of a connection whose statements all see the same state."""
ONE_STATEMENT: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"}


def make_server_engine(url: URL, where: str) -> Engine:
    """Return an engine for a server. What the URL's query says wins over the waiting times above.

    Raises:
        Unavailable: the driver is not installed (`no_driver`).
    """
    try:
        engine = create_engine(_patient(url), hide_parameters=True)
    except (ArgumentError, ImportError) as missing:
        fix = (
            "install the driver that the URL names, for example `pip "
            "install 'ctx-pipeline[postgres]'`"
        )
        raise Unavailable(
            f"no driver for {url.drivername!r}", where=where, fix=fix, code="no_driver"
        ) from missing
    _come_back(engine)
    return engine


def _patient(url: URL) -> URL:
    given = url.query.get("options", "")
    options = (
        (
            f"-c lock_timeout={LOCK_MILLISECONDS} -c "
            f"idle_in_transaction_session_timeout={ABANDONED_MILLISECONDS}"
        ),
        *((given,) if isinstance(given, str) else given),
    )
    defaults = {"connect_timeout": str(CONNECT_SECONDS), "application_name": "ctx-ledger"}
    return url.set(query={**defaults, **url.query, "options": " ".join(options).strip()})


def _come_back(engine: Engine) -> None:
    """Replace a connection that broke while nobody used it, for example because the server was
    started anew.
    """

    def note_time(connection: Any, record: Any) -> None:
        record.info["idle_since"] = time.monotonic()

    def try_out(connection: Any, record: Any, proxy: Any) -> None:
        since = record.info.get("idle_since")
        if since is None or time.monotonic() - since < IDLE_SECONDS:
            return
        try:
            alive = engine.dialect.do_ping(connection)
        except Exception as broken:  # a driver's own, of which there are several
            raise DisconnectionError from broken
        if not alive:
            raise DisconnectionError

    event.listen(engine, "checkin", note_time)
    event.listen(engine, "checkout", try_out)
