"""What every test shares: deterministic Hypothesis profiles and the folder of public corpora."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from testing.postgres_server import Server, running_server

REPOSITORY = Path(__file__).resolve().parent.parent

# The same examples on every machine; `HYPOTHESIS_PROFILE=explore` looks for new ones.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """Run one Postgres server for the whole session; each test makes a database of its own in it."""
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def corpora() -> Path:
    """Return the folder of public corpora (`CTX_CORPORA`); skips the test when it is not there."""
    folder = Path(os.environ.get("CTX_CORPORA", REPOSITORY.parent / "shared" / "corpora"))
    if not folder.is_dir():
        pytest.skip(f"no corpora in {folder}: set CTX_CORPORA to their folder")
    return folder
