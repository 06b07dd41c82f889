"""The databases that a ledger may live in."""

from __future__ import annotations

from pathlib import Path

import pytest

DATABASES = ("sqlite", "postgres")


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return where a ledger can be opened that is not there yet: on each database in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state' / 'ledger.db'}"
    return str(request.getfixturevalue("postgres_server").database())
