from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from ctx_pipeline.errors import Corrupt, Unavailable
from ctx_pipeline.ledger.group_commit import Entry, GroupCommit


class Store:
    """Takes batches, and refuses while `refusal` is set."""

    def __init__(self) -> None:
        self.refusal: Exception | None = None
        self.stored: list[str] = []
        self.attempted = threading.Event()

    def commit(self, batch: Sequence[Entry[str]]) -> None:
        self.attempted.set()
        if self.refusal is not None:
            raise self.refusal
        self.stored += [entry.build() for entry in batch]


def entry(name: str, *, waited_for: bool = False) -> Entry[str]:
    return Entry(name, lambda: name, waited_for=waited_for)


@pytest.mark.parametrize(
    "refusal",
    [Unavailable("disk is full", code="disk_full"), Corrupt("damaged"), ValueError("bug")],
)
def test_what_the_store_refuses_is_kept_reported_and_committed_once_it_can_be(
    refusal: Exception,
) -> None:
    store = Store()
    store.refusal = refusal
    queue = GroupCommit(store.commit)
    queue.submit(entry("first"))
    with pytest.raises(Unavailable, match="1 snapshot"):
        queue.flush()
    with pytest.raises(Unavailable, match="1 snapshot"):
        queue.submit(entry("not taken"))
    assert queue.pending("first")
    store.refusal = None
    queue.flush()
    queue.submit(entry("second", waited_for=True))
    queue.close()
    assert store.stored == ["first", "second"]
    assert not queue.pending()


def test_the_thread_tries_again_by_itself_also_when_only_a_waiting_caller_was_refused() -> None:
    store = Store()
    store.refusal = Unavailable("disk is full")
    queue = GroupCommit(store.commit)
    with pytest.raises(Unavailable, match="disk is full"):
        queue.submit(entry("first", waited_for=True))
    store.refusal = None
    for _ in range(200):
        if not queue.pending():
            break
        store.attempted.clear()
        store.attempted.wait(0.05)
    assert store.stored == ["first"]
    queue.close()


def test_closing_while_the_store_refuses_is_an_error_once() -> None:
    store = Store()
    store.refusal = Unavailable("disk is full")
    queue = GroupCommit(store.commit)
    queue.submit(entry("first"))
    with pytest.raises(Unavailable, match="1 snapshot"):
        queue.close()
    queue.close()


def test_callers_that_wait_share_commits() -> None:
    batches: list[int] = []
    first, gate = threading.Event(), threading.Event()

    def commit(batch: Sequence[Entry[str]]) -> None:
        first.set()
        assert gate.wait(20)
        batches.append(len(batch))

    queue = GroupCommit(commit)
    threads = [
        threading.Thread(target=queue.submit, args=(entry(str(n), waited_for=True),))
        for n in range(8)
    ]
    threads[0].start()
    assert first.wait(20)
    for thread in threads[1:]:
        thread.start()
    while len(queue._queue) < 8:
        threading.Event().wait(0.002)
    gate.set()
    for thread in threads:
        thread.join(20)
    queue.close()
    assert batches == [1, 7]
