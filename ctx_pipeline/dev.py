"""Run a project's asset graph for people: the Dagster web server and its daemon, until interrupted."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ctx_pipeline.config import load_config
from ctx_pipeline.errors import InvalidRequest, Unavailable

MODULE = "ctx_pipeline.definitions"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
START_SECONDS = 180.0
"""How long the web server may take to answer; it imports the project's code twice on a busy machine."""
STOP_SECONDS = 15.0
"""How long a process may take to end after it was asked to, before it is killed."""

_POLL_SECONDS = 0.25
_DIE_WITH_PARENT = (
    "import ctypes, runpy, signal, sys; sys.platform != 'linux' or ctypes.CDLL(None).prctl(1, signal.SIGTERM); "
    "sys.argv = sys.argv[1:]; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
"""Runs a module in a process that the kernel ends with its parent (prctl(2), PR_SET_PDEATHSIG = 1), even one killed."""


@dataclass(frozen=True, slots=True)
class DevServer:
    """A running web server and daemon."""

    url: str
    processes: tuple[subprocess.Popen[bytes], ...]

    def wait(self) -> None:
        """Return when one of the processes has ended.

        Raises:
            Unavailable: it ended by itself (`dev_ended`).
        """
        while all(process.poll() is None for process in self.processes):
            time.sleep(_POLL_SECONDS)
        raise _ended(self.processes, "has ended")


def dev(home: str | Path, host: str = "127.0.0.1", port: int | None = None, *, log_level: str = "warning") -> None:
    """Serve the project's asset graph at `http://host:port` until Ctrl-C, and keep it fresh meanwhile.

    The URL goes to stderr when it answers. `port` None takes a free one. Nobody is asked who they are, so `host` has to
    be a loopback address.

    Raises:
        ConfigError: there is no `ctx.toml`, or it is wrong.
        InvalidRequest: the host is not loopback (`not_loopback`).
        Unavailable: the server did not start (`dev_not_started`) or ended by itself (`dev_ended`), or the port is
            taken (`port_taken`).
    """
    with suppress(KeyboardInterrupt), start_dev(home, host, port, log_level=log_level) as server:
        sys.stderr.write(f"asset graph: {server.url}\nCtrl-C stops it\n")
        sys.stderr.flush()
        server.wait()


@contextmanager
def start_dev(
    home: str | Path, host: str = "127.0.0.1", port: int | None = None, *, log_level: str = "warning"
) -> Generator[DevServer]:
    """Run the web server and the daemon while the block runs; both have ended when it returns."""
    home = Path(home).expanduser().resolve()
    load_config(home)
    if host not in LOOPBACK:
        raise InvalidRequest(
            "the asset graph has no login, so it is served on loopback alone",
            where="host",
            fix="use 127.0.0.1, behind a proxy that asks who it is",
            code="not_loopback",
        )
    from ctx_pipeline.builder import write_instance

    folder = write_instance(home)
    number = _free_port(host, port)
    environment = {**os.environ, "CTX_HOME": str(home), "DAGSTER_HOME": str(folder)}
    arguments = ["-m", MODULE, "--log-level", log_level, "--code-server-log-level", log_level]
    address = f"[{host}]" if ":" in host else host
    commands = (
        ["dagster_webserver", "-h", host, "-p", str(number), *arguments],
        ["dagster._daemon", "run", *arguments],
    )
    with _terminations_interrupt(), _running(commands, environment, home) as processes:
        server = DevServer(f"http://{address}:{number}", processes)
        _wait_until_up(server)
        yield server


def _free_port(host: str, port: int | None) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port or 0))
        except OSError as refused:
            raise Unavailable(
                f"port {port} cannot be used: {refused.strerror}",
                where="port",
                fix="choose another one, or leave it out to take a free one",
                code="port_taken",
            ) from refused
        return int(probe.getsockname()[1])


@contextmanager
def _terminations_interrupt() -> Generator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does, so that the children are stopped.

    SIGINT gets its default handler too: a shell that starts a command in the background has it ignored.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    try:
        before = {number: signal.signal(number, interrupt) for number in numbers}
    except ValueError:
        # Not the main thread: its owner handles signals.
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _running(
    commands: Sequence[Sequence[str]], environment: dict[str, str], folder: Path
) -> Generator[tuple[subprocess.Popen[bytes], ...]]:
    """Run modules as children, each leader of its own process group; the groups are gone afterwards."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.extend(_start(command, environment, folder) for command in commands)
        yield tuple(processes)
    finally:
        _stop(processes)


def _start(command: Sequence[str], environment: dict[str, str], folder: Path) -> subprocess.Popen[bytes]:
    # The arguments are ours; the host and the port were checked.
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", _DIE_WITH_PARENT, *command],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno() if _has_descriptor(sys.stderr) else subprocess.DEVNULL,
        # A group of its own: Ctrl-C reaches the children through us, once, and the group is stopped as a whole.
        process_group=0,
    )


def _has_descriptor(stream: object) -> bool:
    try:
        return isinstance(stream.fileno(), int)  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return False


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask every process to end, then end what is left of its group."""
    asked: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)
    with _uninterrupted():
        for number in asked:
            for process in processes:
                if process.poll() is None:
                    process.send_signal(number)
            _wait_for(processes, STOP_SECONDS / len(asked))
        for process in processes:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGTERM)
        _wait_until(lambda: not any(_group_lives(process.pid) for process in processes), STOP_SECONDS / 3)
        for process in processes:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def _uninterrupted() -> Generator[None]:
    """Ignore a second Ctrl-C while the children are stopped; they would be left behind."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _wait_for(processes: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    _wait_until(lambda: all(process.poll() is not None for process in processes), seconds)


def _wait_until(done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _wait_until_up(server: DevServer) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if any(process.poll() is not None for process in server.processes):
            raise _ended(server.processes, "did not start")
        with suppress(urllib.error.URLError, OSError), opener.open(f"{server.url}/server_info", timeout=5):
            return
        time.sleep(_POLL_SECONDS)
    raise Unavailable(
        f"the asset graph does not answer after {START_SECONDS:.0f} s",
        where=server.url,
        fix="look at the messages above; `dg check defs` shows what is wrong with the graph",
        code="dev_not_started",
    )


def _ended(processes: Sequence[subprocess.Popen[bytes]], what: str) -> Unavailable:
    names = ("web server", "daemon")
    codes = [(name, process.poll()) for name, process in zip(names, processes, strict=True)]
    ended = [f"{name} (exit {code})" for name, code in codes if code is not None]
    return Unavailable(
        f"the {' and the '.join(ended)} {what}",
        where="ctx dev",
        fix="look at the messages above; `dg check defs` shows what is wrong with the graph",
        code="dev_not_started" if what == "did not start" else "dev_ended",
    )
