"""How far a build is, on stderr: a bar on a terminal, plain lines elsewhere, nothing when nobody
asked.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

LINE_SECONDS = 10.0
"""Least time between two plain lines about one step."""


class BuildProgress(Protocol):
    """Is told how a build advances."""

    def waiting(self) -> None:
        """Another build runs; this one waits for it."""

    def total(self, assets: int) -> None:
        """So many assets will be built."""

    def started(self, asset: str) -> None:
        """An asset begins."""

    def advanced(self, step: str, done: int, total: int) -> None:
        """The running asset has done `done` of `total` of a step."""

    def finished(self, asset: str) -> None:
        """An asset is materialised."""


class SilentProgress:
    """Tells nobody."""

    def waiting(self) -> None:
        """Do nothing."""

    def total(self, assets: int) -> None:
        """Do nothing."""

    def started(self, asset: str) -> None:
        """Do nothing."""

    def advanced(self, step: str, done: int, total: int) -> None:
        """Do nothing."""

    def finished(self, asset: str) -> None:
        """Do nothing."""


class _Lines:
    """One line per asset, and one now and then about a long step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._assets = 0
        self._done = 0
        self._told = 0.0

    def waiting(self) -> None:
        self._say("another build of this project is running; waiting for it")

    def total(self, assets: int) -> None:
        self._assets = assets

    def started(self, asset: str) -> None:
        self._told = time.monotonic()
        self._say(f"[{self._done + 1}/{self._assets}] {asset}")

    def advanced(self, step: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._told >= LINE_SECONDS:
            self._told = now
            self._say(f"  {step} {done} of {total}")

    def finished(self, asset: str) -> None:
        self._done += 1

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False)


class _Bar:
    """A bar over the assets, and one below it while an asset reports steps."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._assets: TaskID = bars.add_task("building", total=None)
        self._step: TaskID | None = None

    def waiting(self) -> None:
        self._bars.update(self._assets, description="waiting for another build of this project")

    def total(self, assets: int) -> None:
        self._bars.update(self._assets, total=assets, description="building")

    def started(self, asset: str) -> None:
        self._bars.update(self._assets, description=asset)

    def advanced(self, step: str, done: int, total: int) -> None:
        if self._step is None:
            self._step = self._bars.add_task(f"  {step}", total=total)
        self._bars.update(self._step, completed=done, total=total)

    def finished(self, asset: str) -> None:
        if self._step is not None:
            self._bars.remove_task(self._step)
            self._step = None
        self._bars.advance(self._assets)


@contextmanager
def open_progress(*, shown: bool) -> Generator[BuildProgress]:
    """Open what tells a person on stderr how far a build is."""
    if not shown:
        yield SilentProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(file=sys.stderr)
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        yield _Bar(bars)
