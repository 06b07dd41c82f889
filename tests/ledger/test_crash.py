from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from ctx_pipeline.ledger import Ledger
from testing.children import processes
from tests.ledger import children
from tests.ledger.builders import BLOBS, overlay, snapshot

ROOT = Path(__file__).parents[2]
KILLS = 10


def acknowledged_before_kill(url: str, run: int, after: int) -> list[str]:
    ours, theirs = processes().Pipe(duplex=False)
    child = processes().Process(target=children.submit_until_killed, args=(url, run, theirs))
    child.start()
    theirs.close()
    names = [ours.recv() for _ in range(after)]
    # The kill lands wherever the child is by now: between two calls, in a transaction, in a sync.
    os.kill(child.pid, signal.SIGKILL)
    child.join(30)
    try:
        while True:
            names.append(ours.recv())
    except (EOFError, OSError):
        return names


def test_a_killed_process_loses_no_acknowledged_snapshot_and_leaves_no_half_record(
    url: str,
) -> None:
    """Ours: promise P1."""
    chance = random.Random(7)
    acknowledged: list[str] = []
    for run in range(KILLS):
        acknowledged += acknowledged_before_kill(url, run, after=chance.randint(1, 12))
    with Ledger.open(url) as ledger:
        stored = {record.snapshot_id: record for record in ledger.snapshots("acme", limit=100_000)}
        assert len(acknowledged) >= KILLS
        assert [name for name in acknowledged if name not in stored] == []
        for record in stored.values():
            number = int(record.turn_id)
            whole = snapshot(record.snapshot_id, number=number)
            assert record.snapshot_json == whole.snapshot_json
            assert ledger.get_blobs(whole.blobs) == whole.blobs
        assert ledger.exposure("acme", "item-x").excluded == len(stored)
        assert sum(ledger.exposure("acme", f"item-{n}").selected for n in range(1_000)) == len(
            stored
        )
        assert ledger.integrity()["ok"]


def test_four_processes_append_at_once_and_nothing_is_lost(url: str) -> None:
    """Ours. They also create the file together."""
    workers, rounds = 4, 15
    running = [
        processes().Process(
            target=children.append_overlay_and_snapshots, args=(url, worker, rounds)
        )
        for worker in range(workers)
    ]
    for child in running:
        child.start()
    for child in running:
        child.join(50)
    assert [child.exitcode for child in running] == [0] * workers
    with Ledger.open(url) as ledger:
        entries = ledger.overlay_since(0)
        assert [entry.sequence for entry in entries] == list(range(1, workers * rounds + 1))
        assert {entry.item_id for entry in entries} == {
            f"item-{w}-{n}" for w in range(workers) for n in range(rounds)
        }
        names = {record.snapshot_id for record in ledger.snapshots("acme", limit=1_000)}
        assert names == {f"w{w}-{n}" for w in range(workers) for n in range(rounds)}
        assert ledger.get_blobs(BLOBS) == BLOBS


def test_an_overlay_entry_is_seen_by_another_process_as_soon_as_it_is_acknowledged(
    url: str,
) -> None:
    """Ours: promise P12."""
    ours, theirs = processes().Pipe()
    with Ledger.open(url) as ledger:
        assert ledger.overlay_sequence() == 0
        child = processes().Process(target=children.append_when_asked, args=(url, theirs))
        child.start()
        for number in range(1, 6):
            ours.send(f"item-{number}")
            assert ours.recv() == number * 2 - 1 == ledger.overlay_sequence()
            assert [entry.item_id for entry in ledger.overlay_since(number * 2 - 2)] == [
                f"item-{number}"
            ]
            assert ledger.append_overlay([overlay()]) == number * 2
        ours.send(None)
        child.join(30)
        assert child.exitcode == 0


def test_a_full_disk_is_an_error_with_a_fix_and_loses_nothing(tmp_path: Path) -> None:
    """Ours: promise P22."""
    path = tmp_path / "ledger.db"
    ours, theirs = processes().Pipe(duplex=False)
    child = processes().Process(target=children.fill_the_disk, args=(str(path), theirs))
    child.start()
    theirs.close()
    report = ours.recv()
    child.join(30)
    for call in ("durable", "next", "flush", "overlay"):
        assert report[call]["code"] in {"disk_full", "disk_error"}
        assert report[call]["retryable"] is True
        assert report[call]["fix"]
    assert report["readable"] == report["acknowledged"]
    assert report["listed"] == len(report["acknowledged"])
    assert report["integrity"]["ok"]
    assert report["after_recovery"]
    with Ledger.open(path) as ledger:
        assert all(ledger.snapshot(name) for name in report["acknowledged"])
        assert ledger.snapshot("after") is None


def test_a_forked_child_uses_the_ledger_and_leaves_the_parents_queue_alone(url: str) -> None:
    ours, theirs = processes().Pipe(duplex=False)
    child = processes().Process(target=children.fork_with_a_queue, args=(url, theirs))
    child.start()
    theirs.close()
    assert ours.recv() == 0
    child.join(30)
    with Ledger.open(url) as ledger:
        assert {record.snapshot_id for record in ledger.snapshots("acme")} == {"parent", "child"}
        assert [entry.item_id for entry in ledger.overlay_since(0)] == ["from-child"]
        assert ledger.integrity()["ok"]


def test_a_child_forked_in_the_middle_of_a_write_can_write(url: str) -> None:
    ours, theirs = processes().Pipe(duplex=False)
    child = processes().Process(target=children.fork_while_writing, args=(url, theirs))
    child.start()
    theirs.close()
    assert ours.recv() == [0] * 5
    child.join(30)
    with Ledger.open(url) as ledger:
        entries = ledger.overlay_since(0)
        assert sum(entry.item_id == "from-child" for entry in entries) == 5
        assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))


def test_a_program_that_ends_without_closing_has_stored_what_it_submitted(url: str) -> None:
    program = (
        "import sys; from ctx_pipeline.ledger import Ledger; from "
        "tests.ledger.builders import snapshot\n"
        "ledger = Ledger.open(sys.argv[1])\n"
        "for n in range(5): ledger.submit_snapshot(snapshot(f's{n}', number=n))\n"
    )
    subprocess.run([sys.executable, "-c", program, url], cwd=ROOT, check=True, timeout=50)
    with Ledger.open(url) as ledger:
        assert [record.snapshot_id for record in ledger.snapshots("acme")] == [
            "s4",
            "s3",
            "s2",
            "s1",
            "s0",
        ]
