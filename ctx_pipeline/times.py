"""The wall clock, for the shell: everything below it is handed its time."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Return the wall clock."""
    return datetime.now(UTC)
