"""What the child processes of the ledger's tests do."""

from __future__ import annotations

import os
import resource
import threading
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ctx_pipeline.errors import CtxError
from ctx_pipeline.ledger import Ledger
from tests.ledger.builders import overlay, snapshot


def submit_until_killed(url: str, run: int, acknowledged: Connection) -> None:
    """Acknowledge each snapshot after it is durable, beside others that nobody waits for."""
    ledger = Ledger.open(url)
    for number in count():
        record = snapshot(f"run{run}-{number}", number=number)
        ledger.submit_snapshot(snapshot(f"run{run}-{number}-queued", number=number))
        ledger.submit_snapshot(
            lambda record=record: record, snapshot_id=record.snapshot_id, durable=True
        )
        acknowledged.send(record.snapshot_id)


def append_overlay_and_snapshots(url: str, worker: int, rounds: int) -> None:
    with Ledger.open(url) as ledger:
        for number in range(rounds):
            ledger.append_overlay([overlay(f"item-{worker}-{number}")])
            ledger.submit_snapshot(
                snapshot(f"w{worker}-{number}", number=number), durable=number % 3 == 0
            )


def append_when_asked(url: str, pipe: Connection) -> None:
    with Ledger.open(url) as ledger:
        while (item_id := pipe.recv()) is not None:
            pipe.send(ledger.append_overlay([overlay(item_id)]))


def fill_the_disk(path: str, answer: Connection) -> None:
    """Let the file grow no further, write until refused, read, then let it grow again."""
    ledger = Ledger.open(path)
    ledger.submit_snapshot(snapshot("before"), durable=True)
    room = max(file.stat().st_size for file in Path(path).parent.iterdir()) + 100_000
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    report: dict[str, Any] = {"acknowledged": ["before"]}
    try:
        for number in range(1_000):
            record = snapshot(f"full-{number}", number=number, trace_json="x" * 20_000)
            ledger.submit_snapshot(record, durable=True)
            report["acknowledged"].append(record.snapshot_id)
    except CtxError as error:
        report["durable"] = error.as_dict()
    for name, call in {
        "next": lambda: ledger.submit_snapshot(snapshot("after")),
        "flush": ledger.flush,
        "overlay": lambda: ledger.append_overlay([overlay(reason="r" * 200_000)]),
    }.items():
        try:
            call()
        except CtxError as error:
            report[name] = error.as_dict()
    report["readable"] = [name for name in report["acknowledged"] if ledger.snapshot(name)]
    report["listed"] = len(ledger.snapshots("acme", limit=10_000))
    report["integrity"] = ledger.integrity()
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    ledger.flush()
    report["after_recovery"] = ledger.snapshot(f"full-{number}") is not None
    ledger.close()
    answer.send(report)


def fork_while_writing(url: str, answer: Connection) -> None:
    """Fork again and again while threads write; every child writes too."""
    ledger = Ledger.open(url)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            ledger.append_overlay([overlay("from-parent")])

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    results: list[int] = []
    for _ in range(5):
        child = os.fork()
        if child == 0:
            ledger.append_overlay([overlay("from-child")])
            os._exit(0)
        results.append(os.waitpid(child, 0)[1])
    stop.set()
    for thread in threads:
        thread.join()
    ledger.close()
    answer.send(results)


def fork_with_a_queue(url: str, answer: Connection) -> None:
    """Fork while a snapshot cannot leave the queue; both sides go on with the same object."""
    ledger = Ledger.open(url)
    ledger.overlay_sequence()
    queue = ledger._snapshots.queue
    with queue._drain:
        ledger.submit_snapshot(snapshot("parent"))
        child = os.fork()
    if child == 0:
        inherited = queue.pending()
        ledger.append_overlay([overlay("from-child")])
        ledger.submit_snapshot(snapshot("child", number=1), durable=True)
        os._exit(1 if inherited else 0)
    _, status = os.waitpid(child, 0)
    ledger.close()
    answer.send(status)
