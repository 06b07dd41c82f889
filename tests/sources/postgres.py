"""A throw-away Postgres server on a free loopback port, where its programs are installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SERVER_USER = "postgres"
"""The server refuses to run as root."""


def programs() -> Path | None:
    """Return the folder of the newest installed server's programs."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    found = [folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()]
    return found[-1] if found else None


@contextmanager
def server() -> Iterator[str]:
    """Start a server with data of its own; yield its SQLAlchemy address without a database name.

    Skips the test where no server is installed.
    """
    pytest.importorskip("psycopg")
    binaries = programs()
    if binaries is None:
        pytest.skip("no Postgres server in /usr/lib/postgresql: apt-get install postgresql")
    user = SERVER_USER if os.getuid() == 0 else None
    # Not below pytest's own folder, which no other user may enter.
    with tempfile.TemporaryDirectory(prefix="ctx-postgres-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if user:
            shutil.chown(folder, user)
        with _running(folder, binaries, user) as address:
            yield address


@contextmanager
def _running(folder: Path, binaries: Path, user: str | None) -> Iterator[str]:
    def run(*command: object) -> None:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([str(part) for part in command], check=True, user=user, cwd=folder, **quiet)

    password = folder / "password"
    password.write_text("throw-away\n", encoding="utf-8")
    password.chmod(0o644)
    data, port = folder / "data", _free_port()
    access = ("-U", "owner", "-A", "scram-sha-256", f"--pwfile={password}")
    run(binaries / "initdb", "-D", data, *access, "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off -c shared_buffers=16MB"
    control = (binaries / "pg_ctl", "-D", data, "-w", "-t", "50")
    run(*control, "-l", folder / "log", "-o", options, "start")
    try:
        yield f"postgresql://owner:throw-away@127.0.0.1:{port}"
    finally:
        run(*control, "-m", "immediate", "stop")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
