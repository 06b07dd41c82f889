"""Run a project's asset graph for people: Dagster's web server, daemon and code server, until
interrupted.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from ctx_pipeline.config.settings import load_config
from ctx_pipeline.errors import InvalidRequest, Unavailable

MODULE = "ctx_pipeline.definitions"
LOCATION = "ctx_pipeline"
"""Name of the code location; part of a sensor's identity, so that its state survives restarts."""
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
START_SECONDS = 180.0
"""How long a process may take to answer; most of it is imports on a busy machine."""
STOP_SECONDS = 3.0
"""How long a process may take to end after it was asked to, before it is asked once more."""
GROUP_SECONDS = 2.0
"""How long the rest of its group, such as a run, may take before it is killed."""

_POLL_SECONDS = 0.25
_DIE_WITH_PARENT = (
    "import ctypes, runpy, signal, sys; sys.platform != 'linux' or "
    "ctypes.CDLL(None).prctl(1, signal.SIGTERM); "
    "sys.argv = sys.argv[1:]; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
"""Runs a module in a process that the kernel ends with its parent (prctl(2), PR_SET_PDEATHSIG = 1),
even one killed."""


class DevServer:
    """A running web server, with its daemon and code server."""

    def __init__(self, url: str, group: _Group) -> None:
        self.url = url
        self._group = group

    @property
    def processes(self) -> dict[str, int]:
        """The process ids by what they are; each leads a process group."""
        return {name: process.pid for name, process in self._group.processes.items()}

    def wait(self) -> None:
        """Wait until interrupted.

        Raises:
            Unavailable: one of the processes ended by itself (`dev_ended`).
        """
        while not (ended := self._group.ended()):
            time.sleep(_POLL_SECONDS)
        raise _unavailable(f"{ended} ended", "dev_ended")


def dev(
    home: str | Path,
    host: str = "127.0.0.1",
    port: int | None = None,
    *,
    log_level: str = "warning",
) -> None:
    """Serve the project's asset graph at `http://host:port` until Ctrl-C, and keep it fresh
    meanwhile.

    The URL goes to stderr when it answers. `port` None takes a free one. Nobody is asked who they
    are, so `host` has to be a loopback address.

    Raises:
        ConfigError: there is no `ctx.toml`, or it is wrong.
        InvalidRequest: the host is not loopback (`not_loopback`).
        Unavailable: the server did not start (`dev_not_started`) or ended by itself (`dev_ended`),
            or the port is taken (`port_taken`).
    """
    with suppress(KeyboardInterrupt), start_dev(home, host, port, log_level=log_level) as server:
        _say(f"\nasset graph: {server.url}\nCtrl-C stops it\n")
        server.wait()
    _say("Stopped")


@contextmanager
def start_dev(
    home: str | Path,
    host: str = "127.0.0.1",
    port: int | None = None,
    *,
    log_level: str = "warning",
) -> Generator[DevServer]:
    """Run the asset graph while the block runs; every process has ended when it returns."""
    home = Path(home).expanduser().resolve()
    config = load_config(home).config
    if host not in LOOPBACK:
        raise InvalidRequest(
            "the asset graph has no login, so it is served on loopback alone",
            where="host",
            fix="use 127.0.0.1, behind a proxy that asks who it is",
            code="not_loopback",
        )
    from ctx_pipeline.orchestration.instance import dagster_url, storage_variable, write_instance

    url = dagster_url(config)
    with storage_variable(url):
        folder = write_instance(home, url)
        number = _free_port(host, port)
        environment = {**os.environ, "CTX_HOME": str(home), "DAGSTER_HOME": str(folder)}
    address = f"http://[{host}]:{number}" if ":" in host else f"http://{host}:{number}"
    # A folder of our own: the socket has no login, its path has to be short (108 bytes, unix(7)),
    # and a process that starts in a project would import the project's files under the names of
    # libraries.
    with tempfile.TemporaryDirectory(prefix="ctx-dev-") as scratch, _terminations_interrupt():
        group = _Group(environment, Path(scratch))
        try:
            _start_all(group, Path(scratch), host, number, log_level)
            server = DevServer(address, group)
            _wait_until_up(group, lambda: _answers(f"{address}/server_info"))
            yield server
        finally:
            group.stop()


def _say(words: str) -> None:
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def _start_all(group: _Group, scratch: Path, host: str, port: int, log_level: str) -> None:
    """Start the code server, and when it is up the web server and the daemon, which share it.

    Without it each of the two would load the definitions in a process of its own, and the daemon
    anew every minute.
    """
    socket_path = scratch / "code.sock"
    workspace = scratch / "workspace.yaml"
    workspace.write_text(
        f'load_from:\n  - grpc_server: {{socket: "{socket_path}", location_name: {LOCATION}}}\n',
        encoding="utf-8",
    )
    code = [
        "-m",
        MODULE,
        "-s",
        str(socket_path),
        "--location-name",
        LOCATION,
        "--log-level",
        log_level,
    ]
    group.start(
        "code server",
        ["dagster", "code-server", "start", "--use-python-environment-entry-point", *code],
    )
    _wait_until_up(group, lambda: _accepts(socket_path))
    level = ["--log-level", log_level]
    group.start(
        "web server",
        ["dagster_webserver", "-h", host, "-p", str(port), "-w", str(workspace), *level],
    )
    # What `dagster-daemon` runs; where that script lies, nobody knows. A move breaks `ctx dev`.
    group.start("daemon", ["dagster._daemon", "run", "-w", str(workspace), *level])


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

    SIGINT gets its default handler too: a shell that starts a command in the background has it
    ignored.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = [
        signal.SIGINT,
        signal.SIGTERM,
        *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []),
    ]
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


class _Group:
    """Child processes, each leader of its own process group."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._environment = environment
        self._folder = folder

    def start(self, name: str, command: Sequence[str]) -> None:
        """Run a Python module as a child."""
        # The arguments are ours; the host and the port were checked.
        self.processes[name] = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", _DIE_WITH_PARENT, *command],
            env=self._environment,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno() if _has_descriptor(sys.stderr) else subprocess.DEVNULL,
            # A group of its own: Ctrl-C reaches the children through us, once, and the group is
            # stopped as a whole.
            process_group=0,
        )

    def ended(self) -> str:
        """Return which processes have ended by themselves; empty when none has."""
        codes = ((name, process.poll()) for name, process in self.processes.items())
        return " and ".join(f"the {name} (exit {code})" for name, code in codes if code is not None)

    def stop(self) -> None:
        """Ask every process to end, the last one first, then end what is left of their groups: run
        workers too.
        """
        with _uninterrupted():
            # The code server last: the other two complain when it is gone before them.
            for names in (("daemon", "web server"), ("code server",)):
                _end([self.processes[name] for name in names if name in self.processes])
            for process in self.processes.values():
                _signal_group(process.pid, signal.SIGTERM)
            _wait_until(
                lambda: not any(_group_lives(p.pid) for p in self.processes.values()), GROUP_SECONDS
            )
            for process in self.processes.values():
                _signal_group(process.pid, signal.SIGKILL)
                process.wait()


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for number, seconds in ((signal.SIGINT, STOP_SECONDS), (signal.SIGTERM, GROUP_SECONDS)):
        running = [process for process in processes if process.poll() is None]
        for process in running:
            process.send_signal(number)
        if running:
            _wait_until(lambda: all(process.poll() is not None for process in processes), seconds)


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _has_descriptor(stream: object) -> bool:
    try:
        return isinstance(stream.fileno(), int)  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return False


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


def _wait_until(done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _wait_until_up(group: _Group, is_up: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_up():
        if ended := group.ended():
            raise _unavailable(f"{ended} did not start", "dev_not_started")
        if time.monotonic() > deadline:
            raise _unavailable(
                f"the asset graph does not answer after {START_SECONDS:.0f} s", "dev_not_started"
            )
        time.sleep(_POLL_SECONDS)


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def _unavailable(message: str, code: str) -> Unavailable:
    return Unavailable(
        message,
        where="ctx dev",
        fix="look at the messages above; `dg check defs` shows what is wrong with the graph",
        code=code,
    )
