"""What every test shares: how many examples, on how many cores, in which order, and the folder of
public corpora.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from testing.examples import load_profile
from testing.postgres_server import Server, running_server

REPOSITORY = Path(__file__).resolve().parent.parent

PROFILE = load_profile()
LONG_SECONDS = 3_600
"""Of one test in a profile with more examples than each change is tried with."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run the whole suite on every core; what is named stays in this process,
    which starts at once.
    """
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return 0
    # One more than cores: some tests wait for processes of their own, a minute for a daemon.
    return (psutil.cpu_count() or 1) + 1


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that have slow tests, so that no core is left alone
    with one at the end.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    if PROFILE != "ci":
        for item in items:
            item.add_marker(pytest.mark.timeout(LONG_SECONDS), append=False)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """Run one Postgres server for the whole session; each test makes a
    database of its own in it.
    """
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def corpora() -> Path:
    """Return the folder of public corpora (`CTX_CORPORA`); skips the test when it is not there."""
    folder = Path(os.environ.get("CTX_CORPORA", REPOSITORY.parent / "shared" / "corpora"))
    if not folder.is_dir():
        pytest.skip(f"no corpora in {folder}: set CTX_CORPORA to their folder")
    return folder
