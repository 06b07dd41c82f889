"""One build at a time: the session in which assets write to a project, whoever started the run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from ctx_pipeline.errors import CtxError, Unavailable
from ctx_pipeline.machine_faults import system_error, typed_system_errors

if TYPE_CHECKING:
    from filelock import FileLock

    from ctx_pipeline.building.pipeline import Pipeline
    from ctx_pipeline.building.progress import BuildProgress
    from ctx_pipeline.building.stage_result import StageResult
    from ctx_pipeline.contracts import SourceReport
    from ctx_pipeline.workspace import Workspace

RUN_LOCK_SECONDS = 3_600.0
"""How long a launched run waits for the build before it."""

_POLL_SECONDS = 0.25


@dataclass(slots=True)
class BuildSession:
    """What the assets of one run share: the project's build half, who is told, and what each of them found."""

    pipeline: Pipeline
    progress: BuildProgress
    sources: list[SourceReport] = field(default_factory=list["SourceReport"])
    stages: dict[str, StageResult] = field(default_factory=dict[str, "StageResult"])
    errors: dict[str, BaseException] = field(default_factory=dict[str, BaseException])
    """What assets raised, the first one first."""
    unread: set[str] = field(default_factory=set[str])
    """Steps of sources of which nothing could be read."""

    @property
    def workspace(self) -> Workspace:
        """The project that the run writes to."""
        return self.pipeline.workspace

    @contextmanager
    def step(self, asset: str) -> Generator[None]:
        """Tell of one asset's work, and keep what it raises: Dagster keeps only its text.

        A typed error fails the step with its code; the step is tried again only when that can help.
        """
        self.progress.started(asset)
        try:
            yield
        except Exception as raised:  # an asset may raise anything
            typed = (
                raised
                if isinstance(raised, CtxError)
                else system_error(raised, self.workspace.home / ".ctx")
            )
            self.errors[asset] = typed or raised
            if typed is None:
                raise
            raise dg.Failure(
                str(typed), metadata={"code": typed.stable_code}, allow_retries=typed.retryable
            ) from typed
        except BaseException as raised:
            self.errors[asset] = raised
            raise
        # An earlier attempt may have failed.
        self.errors.pop(asset, None)
        self.progress.finished(asset)


@contextmanager
def build_lock(
    home: Path, timeout: float, *, on_wait: Callable[[], None] | None = None
) -> Generator[None]:
    """Hold a project's build lock; it is released when the process ends, however it ends.

    `timeout` is in seconds; `on_wait` is called once when another build holds the lock.

    Raises:
        Unavailable: another build still runs after `timeout` (`build_busy`), the folder cannot be written
            (`cannot_write`), or the disk is full (`disk_full`).
    """
    from filelock import FileLock, Timeout

    path = home / ".ctx" / "build.lock"
    # A soft lock would outlive a killed process.
    lock = FileLock(path, fallback_to_soft=False)
    try:
        with typed_system_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            _acquire(lock, timeout, on_wait)
    except Timeout:
        raise Unavailable(
            f"another build of this project still runs after {timeout:.0f} s",
            where=str(home),
            fix="wait for it, or look at its run in `ctx dev`",
            code="build_busy",
        ) from None
    try:
        yield
    finally:
        lock.release()


def _acquire(lock: FileLock, timeout: float, on_wait: Callable[[], None] | None) -> None:
    from filelock import Timeout

    try:
        lock.acquire(timeout=0)
    except Timeout:
        if on_wait is not None:
            on_wait()
        lock.acquire(timeout=timeout, poll_interval=_POLL_SECONDS)


@contextmanager
def open_session(home: Path, progress: BuildProgress) -> Generator[BuildSession]:
    """Open a build session on a project whose build lock is held."""
    from ctx_pipeline.building.pipeline import Pipeline
    from ctx_pipeline.workspace import Workspace

    with Workspace.open(home) as workspace:
        yield BuildSession(Pipeline(workspace, progress=progress.advanced), progress)


def session_resource(
    home: Path, *, lock_seconds: float = RUN_LOCK_SECONDS
) -> dg.ResourceDefinition:
    """Return the resource that gives the assets of one run their session.

    The project's build lock is held until the run ends; `lock_seconds` is how long a run waits for another build.
    """

    @dg.resource(
        description="One build at a time: the project's build half and its lock, for the time of a run."
    )
    def build_session(context: dg.InitResourceContext) -> Iterator[BuildSession]:
        from ctx_pipeline.building.progress import SilentProgress

        log = context.log

        def waiting() -> None:
            if log is not None:
                log.info("another build of this project is running; waiting for it")

        with (
            build_lock(home, lock_seconds, on_wait=waiting),
            open_session(home, SilentProgress()) as session,
        ):
            yield session

    return build_session
