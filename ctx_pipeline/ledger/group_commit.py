"""Group commit: many callers, one writer thread, one synced transaction for all that is queued.
Knows no database.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Generic, TypeVar

from ctx_pipeline.errors import CtxError, Unavailable

T = TypeVar("T")

WINDOW_SECONDS = 0.015
"""How long the first of a batch waits for others; a synced commit of 4 to 12 ms follows where the
disk is free."""
MAX_QUEUED = 256
"""Entries that may wait, and so the most that a killed process loses; the next caller waits for
room. Each holds one call's pack in memory."""
MAX_BATCH = 64
RETRY_SECONDS = 0.5
"""Pause between attempts while the store fails."""
IDLE_SECONDS = 5.0
"""The thread ends after this long without work and starts again when there is some."""


class Entry(Generic[T]):
    """One queued record; `build` makes it when its batch is committed, once."""

    __slots__ = ("build", "done", "error", "key", "owner", "queued_at", "record", "waited_for")

    def __init__(
        self, key: str, build: Callable[[], T], *, waited_for: bool, owner: object = None
    ) -> None:
        self.key = key
        self.build = build
        self.record: T | None = None
        self.error: CtxError | None = None
        """Why this one can never be committed; its batch is committed without it."""
        self.done = False
        self.waited_for = waited_for
        self.owner = owner
        """Kept alive while this is queued: an object whose finaliser flushes must not end before.
        """
        self.queued_at = time.monotonic()


class GroupCommit(Generic[T]):
    """A bounded queue whose entries leave it only when they are committed, or rejected with an
    error that is raised.

    `commit` stores a whole batch or raises and stores nothing; it sets `error` on entries that it
    had to leave out. Whoever holds the drain lock commits: the thread, a caller that waits for its
    own entry, or `flush`. So nothing depends on the thread being able to run, not even while the
    interpreter exits.
    """

    def __init__(self, commit: Callable[[Sequence[Entry[T]]], None]) -> None:
        self._commit = commit
        self.reset()

    def reset(self) -> None:
        """Start empty, without a thread. For a forked child: what is queued
        belongs to the parent.
        """
        self._state = threading.Condition()
        self._drain = threading.Lock()
        self._queue: deque[Entry[T]] = deque()
        self._keys: dict[str, int] = {}
        self._rejected: list[CtxError] = []
        self._failure: CtxError | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def pending(self, key: str | None = None) -> bool:
        """Tell whether anything, or anything called `key`, is still to be committed."""
        return bool(self._queue) if key is None else key in self._keys

    def submit(self, entry: Entry[T]) -> None:
        """Queue one entry; return at once, or when it is committed if it is `waited_for`.

        Raises:
            CtxError: an earlier entry could not be stored, and this one was not taken; or this one
                was rejected.
        """
        with self._state:
            self._raise_trouble()
            while len(self._queue) >= MAX_QUEUED:
                self._state.wait(RETRY_SECONDS)
                self._raise_trouble()
            self._queue.append(entry)
            self._keys[entry.key] = self._keys.get(entry.key, 0) + 1
            if not entry.waited_for:
                self._wake()
        if entry.waited_for:
            self._drain_until(entry)
            if entry.error is not None:
                raise entry.error

    def flush(self) -> None:
        """Commit everything that is queued.

        Raises:
            CtxError: something could not be stored. What the store refused stays queued and is
                tried again.
        """
        self.settle(although_failing=True)
        with self._state:
            self._raise_trouble()

    def settle(self, *, although_failing: bool = False) -> None:
        """Commit what is queued, for a reader. An error is kept for the next `submit`, `flush` or
        `close`.
        """
        if although_failing or self._failure is None:
            with suppress(CtxError):
                self._drain_until(None)

    def close(self) -> None:
        """Flush and take nothing more. Idempotent.

        Raises:
            CtxError: something could not be stored; it is lost when the process ends.
        """
        if self._closed:
            return
        try:
            self.flush()
        finally:
            with self._state:
                self._closed = True
                self._state.notify_all()

    def _raise_trouble(self) -> None:
        if self._closed:
            raise Unavailable("the ledger is closed", fix="open it again", code="ledger_closed")
        if self._failure is not None:
            cause = self._failure
            raise Unavailable(
                f"{len(self._queue)} snapshot(s) wait to be stored: {cause.message}",
                where=cause.where,
                fix=cause.fix,
                code=cause.stable_code,
            ) from cause
        if self._rejected:
            rejected, self._rejected = self._rejected, []
            raise Unavailable(
                f"{len(rejected)} earlier snapshot(s) could not be stored: {rejected[0].message}",
                where=rejected[0].where,
                fix=rejected[0].fix,
                code="snapshot_rejected",
            ) from rejected[0]

    def _wake(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="ctx-ledger-writer", daemon=True)
            with suppress(RuntimeError):  # the interpreter exits: the closing flush commits
                thread.start()
                self._thread = thread
        elif len(self._queue) in (1, MAX_BATCH):
            self._state.notify_all()

    def _run(self) -> None:
        while self._await_batch():
            try:
                with self._drain:
                    self._commit_batch()
            except CtxError:
                with self._state:
                    self._state.wait(RETRY_SECONDS)

    def _await_batch(self) -> bool:
        with self._state:
            if not self._queue and not self._closed:
                self._state.wait(IDLE_SECONDS)
            if not self._queue or self._closed:
                self._thread = None
                return False
            until = self._queue[0].queued_at + WINDOW_SECONDS
            while self._queue and len(self._queue) < MAX_BATCH and not self._closed:
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._state.wait(left)
            return True

    def _drain_until(self, entry: Entry[T] | None) -> None:
        if not self._queue:
            return
        with self._drain:
            while self._queue and not (entry and entry.done):
                self._commit_batch()

    def _commit_batch(self) -> None:
        with self._state:
            batch = list(islice(self._queue, MAX_BATCH))
        if not batch:
            return
        try:
            self._commit(batch)
        except Exception as error:
            failure = (
                error
                if isinstance(error, CtxError)
                else Unavailable(f"commit failed ({type(error).__name__})")
            )
            with self._state:
                self._failure = failure
                self._wake()
                self._state.notify_all()
            if failure is error:
                raise
            raise failure from error
        with self._state:
            self._failure = None
            for entry in batch:
                self._leave(entry)
            self._state.notify_all()

    def _leave(self, entry: Entry[T]) -> None:
        self._queue.popleft()
        self._keys[entry.key] -= 1
        if not self._keys[entry.key]:
            del self._keys[entry.key]
        entry.done = True
        if entry.error is not None and not entry.waited_for:
            self._rejected.append(entry.error)
