"""The published artifact, kept up with its pointer and the overlay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ctx_pipeline.errors import Corrupt, Unavailable
from ctx_pipeline.index.artifact import (
    Layout,
    read_pointer,
)
from ctx_pipeline.index.overlay import Entry
from ctx_pipeline.index.reader import ArtifactReader
from ctx_pipeline.index.view import ServingView

if TYPE_CHECKING:
    from ctx_pipeline.security.policy_service import PolicyGuard


def _opened(directory: Path, content_hash: str) -> ArtifactReader:
    reader = ArtifactReader(directory)
    if reader.content_hash != content_hash:
        raise Corrupt(
            "the index pointer names another content than the artifact has",
            where=directory.name,
            fix="delete .ctx/derived and run `ctx build`",
        )
    return reader


class ServingIndex:
    """Opens the published artifact and keeps up with its pointer and the overlay."""

    def __init__(
        self,
        home: Path,
        *,
        overlay_sequence: Callable[[], int],
        overlay_since: Callable[[int], Iterable[Entry]],
        guard: PolicyGuard | None = None,
    ) -> None:
        self._guard = guard
        self._layout = Layout(home)
        self._overlay_sequence = overlay_sequence
        self._overlay_since = overlay_since
        self._lock = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self._view: ServingView | None = None
        self._pinned = False

    def view(self) -> ServingView:
        """Return the current artifact under the current overlay, for one operation: the next one
        asks again.

        Raises:
            Unavailable: nothing has been built yet.
        """
        with self._lock:
            stamp = self._pointer_stamp()
            if self._view is None or stamp != self._stamp:
                reader = self._open()
                # After the artifact: one that was published meanwhile knows entries that were not
                # there before.
                self._view = self._at(reader, self._overlay_sequence())
                self._stamp = stamp
            elif (sequence := self._overlay_sequence()) != self._view.overlay_sequence:
                self._view = self._at(self._view.reader, sequence)
            return self._view if self._guard is None else self._view.guarded(self._guard)

    def _at(self, reader: ArtifactReader, sequence: int) -> ServingView:
        if sequence < reader.overlay_sequence:
            raise Corrupt(
                f"the ledger is older than the index: it ends at {sequence}, the "
                f"index knows {reader.overlay_sequence}",
                where=".ctx/state",
                fix="restore .ctx/state from a backup as a whole",
                code="ledger_behind",
            )
        entries = self._overlay_since(reader.overlay_sequence)
        if self._pinned:
            # Who goes back to an older artifact wants the versions that have been replaced since.
            entries = [entry for entry in entries if entry.code != "superseded"]
        return ServingView(reader, sequence, entries)

    def _pointer_stamp(self) -> tuple[int, int]:
        try:
            stat = self._layout.pointer.stat()
        except FileNotFoundError:
            raise Unavailable(
                "this project has no index yet",
                where=".ctx/derived",
                fix="run `ctx build`",
                code="no_index",
            ) from None
        return stat.st_mtime_ns, stat.st_ino

    def _open(self) -> ArtifactReader:
        for attempt in range(3):
            pointer = read_pointer(self._layout)
            if pointer is None:
                break
            directory = self._layout.artifacts / pointer["artifact"]
            self._pinned = "pin" in pointer
            if self._view is not None and self._view.reader.directory == directory:
                return self._view.reader
            try:
                return _opened(directory, pointer["content_hash"])
            except Corrupt:
                # The pointer may have moved on and the old artifact gone between the two reads.
                if attempt == 2:
                    raise
        raise Unavailable(
            "this project has no index yet",
            where=".ctx/derived",
            fix="run `ctx build`",
            code="no_index",
        )
