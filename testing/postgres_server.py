"""A throw-away Postgres server on a free loopback port, where its programs are installed.

`CTX_REQUIRE_POSTGRES=1` turns a skip for want of a server into a failure.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

SERVER_USER = "postgres"
"""The server refuses to run as root."""
PASSWORD = "throw-away"


def programs() -> Path | None:
    """Return the folder of the newest installed server's programs."""
    folders = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr/pgsql").glob("*/bin")]
    folders.sort(key=lambda path: float(path.parent.name))
    if (found := shutil.which("initdb")) is not None:
        folders.insert(0, Path(found).resolve().parent)
    complete = [
        folder
        for folder in folders
        if (folder / "initdb").exists() and (folder / "postgres").exists()
    ]
    return complete[-1] if complete else None


def unavailable(reason: str) -> None:
    """Skip the test, or fail it where a server has to be there."""
    if os.environ.get("CTX_REQUIRE_POSTGRES", "") not in ("", "0"):
        pytest.fail(f"CTX_REQUIRE_POSTGRES is set, but {reason}")
    pytest.skip(reason)


class Server:
    """A running server; `address` is its SQLAlchemy URL without a database name."""

    def __init__(self, binaries: Path, folder: Path, user: str | None) -> None:
        self._binaries, self._folder, self._user = binaries, folder, user
        self._data = folder / "data"
        self._numbers = count(1)
        self.port = _free_port()
        self.address = f"postgresql://owner:{PASSWORD}@127.0.0.1:{self.port}"

    def create(self) -> None:
        """Make the server's data."""
        password = self._folder / "password"
        password.write_text(f"{PASSWORD}\n", encoding="utf-8")
        password.chmod(0o644)
        access = ("-U", "owner", "-A", "scram-sha-256", f"--pwfile={password}")
        self._run(
            "initdb", "-D", self._data, *access, "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"
        )

    def start(self, *settings: str) -> None:
        """Start the server and return when it answers."""
        fixed = (
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "fsync=off",
            "shared_buffers=16MB",
        )
        options = " ".join(
            [f"-p {self.port}", *(f"-c {setting}" for setting in (*fixed, *settings))]
        )
        log = self._folder / "log"
        self._run("pg_ctl", "-D", self._data, "-w", "-t", "50", "-l", log, "-o", options, "start")

    def stop(self) -> None:
        """End the server as a power cut would; it recovers when it is started again."""
        self._run("pg_ctl", "-D", self._data, "-w", "-t", "50", "-m", "immediate", "stop")

    def database(self) -> str:
        """Make an empty database and return its URL."""
        import psycopg

        name = f"db{next(self._numbers)}"
        with psycopg.connect(f"{self.address}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"{self.address}/{name}"

    def program(self, name: str) -> Path:
        """Return one of the server's programs, such as `pg_dump`."""
        return self._binaries / name

    def _run(self, program: str, *arguments: object) -> None:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = [str(self._binaries / program), *(str(part) for part in arguments)]
        subprocess.run(command, check=True, user=self._user, cwd=self._folder, **quiet)


@contextmanager
def running_server() -> Iterator[Server]:
    """Run a server with data of its own while the block runs. Skips the test where none is
    installed.
    """
    try:
        import psycopg  # noqa: F401
    except ImportError:
        unavailable("psycopg is not installed: pip install 'ctx-pipeline[postgres]'")
    binaries = programs()
    if binaries is None:
        unavailable(
            "no Postgres server in /usr/lib/postgresql or on PATH: apt-get install postgresql"
        )
    user = SERVER_USER if os.getuid() == 0 else None
    # Not below pytest's own folder, which no other user may enter.
    with tempfile.TemporaryDirectory(prefix="ctx-postgres-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if user:
            shutil.chown(folder, user)
        server = Server(binaries, folder, user)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
