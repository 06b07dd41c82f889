from __future__ import annotations

import gc
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from ctx_pipeline.errors import Conflict, InvalidRequest, NotFound, Unavailable
from ctx_pipeline.ledger import Ledger, SnapshotRecord
from ctx_pipeline.ledger.counters import touch_sources
from ctx_pipeline.ledger.group_commit import MAX_BATCH, MAX_QUEUED
from tests.ledger.builders import BLOBS, NOW, snapshot, stored_ids


def test_a_snapshot_comes_back_as_it_was_submitted(url: str) -> None:
    record = snapshot("s1", session_id="会话", pack_json=None)
    with Ledger.open(url) as ledger:
        ledger.submit_snapshot(record, durable=True)
        assert ledger.snapshot("s1") == replace(record, blobs={}, items=())
        assert ledger.get_blobs([*record.blobs, "unknown"]) == record.blobs
        assert ledger.snapshot("s2") is None


def test_a_queued_snapshot_is_seen_by_its_own_process(url: str) -> None:
    with Ledger.open(url) as ledger:
        for number in range(20):
            record = snapshot(f"s{number}", number=number)
            ledger.submit_snapshot(lambda record=record: record, snapshot_id=record.snapshot_id)
            assert ledger.snapshot(record.snapshot_id) is not None
        ledger.submit_snapshot(snapshot("last", number=30))
        assert ledger.snapshots("acme", limit=1)[0].snapshot_id == "last"
        ledger.submit_snapshot(snapshot("shown", number=31))
        assert ledger.exposure("acme", "item-31").snapshot_ids == ("shown",)
        ledger.submit_snapshot(snapshot("blob", blobs={"only here": "text"}))
        assert ledger.get_blobs(["only here"]) == {"only here": "text"}


def test_a_submitted_snapshot_is_committed_without_anybody_asking(url: str) -> None:
    with Ledger.open(url) as ledger:
        ledger.submit_snapshot(snapshot("s1"))
        deadline = time.monotonic() + 20
        while stored_ids(url) != ["s1"] and time.monotonic() < deadline:
            threading.Event().wait(0.005)
        assert stored_ids(url) == ["s1"]


def test_what_many_threads_submit_is_all_there_after_a_flush(url: str) -> None:
    each = MAX_BATCH
    with Ledger.open(url) as ledger:

        def work(worker: int) -> None:
            for number in range(each):
                ledger.submit_snapshot(
                    snapshot(f"{worker}-{number}", number=number), durable=number == each - 1
                )

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ledger.flush()
        assert sorted(stored_ids(url)) == sorted(f"{w}-{n}" for w in range(6) for n in range(each))
        assert ledger.get_blobs(BLOBS) == BLOBS


def test_a_full_queue_makes_the_caller_wait_and_loses_nothing(url: str) -> None:
    with Ledger.open(url) as ledger, Ledger.open(url) as other, ExitStack() as held:
        touch_sources(held.enter_context(other._database.write()))
        submitted: list[int] = []

        def work() -> None:
            for number in range(MAX_QUEUED + 10):
                ledger.submit_snapshot(snapshot(f"s{number}", number=number))
                submitted.append(number)

        thread = threading.Thread(target=work)
        thread.start()
        deadline = time.monotonic() + 20
        while len(submitted) < MAX_QUEUED and time.monotonic() < deadline:
            threading.Event().wait(0.005)
        thread.join(0.1)
        assert thread.is_alive()
        assert len(submitted) == MAX_QUEUED
        held.close()
        thread.join(30)
        ledger.flush()
        assert stored_ids(url) == [f"s{number}" for number in range(MAX_QUEUED + 10)]


def test_the_same_snapshot_twice_is_one_and_another_under_its_id_is_refused(url: str) -> None:
    """Ours: promise P6."""
    with Ledger.open(url) as ledger:
        ledger.submit_snapshot(snapshot("s1"), durable=True)
        ledger.submit_snapshot(snapshot("s1"), durable=True)
        ledger.submit_snapshot(snapshot("s1"))
        ledger.submit_snapshot(snapshot("s1"))
        ledger.flush()
        assert ledger.exposure("acme", "item-0").selected == 1
        with pytest.raises(Conflict) as refused:
            ledger.submit_snapshot(snapshot("s1", hash="other"), durable=True)
        assert refused.value.stable_code == "snapshot_id_reused"
        assert stored_ids(url) == ["s1"]
        stored = ledger.snapshot("s1")
        assert stored is not None
        assert stored.hash == "hash-s1"


def test_one_that_cannot_be_serialised_is_reported_and_the_others_are_stored(url: str) -> None:

    def broken() -> SnapshotRecord:
        raise TypeError("the caller's content")

    with Ledger.open(url) as ledger:
        ledger.submit_snapshot(snapshot("s1"))
        ledger.submit_snapshot(broken, snapshot_id="bad")
        ledger.submit_snapshot(snapshot("s2"))
        with pytest.raises(Unavailable) as told:
            ledger.flush()
        assert told.value.stable_code == "snapshot_rejected"
        assert "'bad'" in told.value.where
        assert "content" not in str(told.value)
        ledger.flush()
        assert stored_ids(url) == ["s1", "s2"]
        with pytest.raises(InvalidRequest):
            ledger.submit_snapshot(broken, snapshot_id="bad", durable=True)
        with pytest.raises(InvalidRequest):
            ledger.submit_snapshot(lambda: snapshot("s3"), snapshot_id="s4", durable=True)
        ledger.submit_snapshot(snapshot("s5"))
    assert stored_ids(url) == ["s1", "s2", "s5"]


def test_one_that_the_database_refuses_does_not_hold_up_its_batch(url: str) -> None:
    ledger = Ledger.open(url)
    ledger.submit_snapshot(snapshot("s1"))
    ledger.submit_snapshot(snapshot("surrogate blob", blobs={"b": "\ud800"}))
    ledger.submit_snapshot(snapshot("wrong type", run_id={"not": "text"}))
    ledger.submit_snapshot(snapshot("surrogate json", request_json='"\ud800"'))
    with pytest.raises(Unavailable, match="2 earlier"):
        ledger.close()
    ledger.close()
    assert stored_ids(url) == ["s1", "surrogate json"]
    with Ledger.open(url) as again:
        repaired = again.snapshot("surrogate json")
        assert repaired is not None
        assert repaired.request_json == '"\ufffd"'


def test_a_blob_of_a_refused_snapshot_is_not_believed_to_be_stored(url: str) -> None:
    with Ledger.open(url) as ledger:
        with pytest.raises(InvalidRequest):
            ledger.submit_snapshot(snapshot("s1", run_id={"not": "text"}), durable=True)
        assert ledger.get_blobs(BLOBS) == {}
        ledger.submit_snapshot(snapshot("s2"), durable=True)
        assert ledger.get_blobs(BLOBS) == snapshot("s2").blobs


def test_a_closed_ledger_says_so(url: str) -> None:
    ledger = Ledger.open(url)
    assert ledger.overlay_sequence() == 0
    ledger.close()
    ledger.close()
    for call in (
        ledger.overlay_sequence,
        ledger.source_times,
        lambda: ledger.snapshot("s"),
        lambda: ledger.submit_snapshot(snapshot("s")),
        lambda: ledger.submit_snapshot(snapshot("s"), durable=True),
    ):
        with pytest.raises(Unavailable) as told:
            call()
        assert told.value.stable_code == "ledger_closed"


def test_a_ledger_that_nobody_holds_any_more_has_stored_what_was_submitted(url: str) -> None:
    Ledger.open(url).submit_snapshot(snapshot("s1"))
    deadline = time.monotonic() + 20
    while stored_ids(url) != ["s1"] and time.monotonic() < deadline:
        threading.Event().wait(0.005)
    assert stored_ids(url) == ["s1"]


def test_a_ledger_that_is_collected_in_the_middle_of_its_own_commit_does_not_block(
    url: str,
) -> None:
    ledger = Ledger.open(url)
    ledger.itself = ledger  # type: ignore[attr-defined]

    def build() -> SnapshotRecord:
        gc.collect()
        return snapshot("s1")

    ledger.submit_snapshot(build, snapshot_id="s1")
    del ledger
    deadline = time.monotonic() + 20
    while stored_ids(url) != ["s1"] and time.monotonic() < deadline:
        threading.Event().wait(0.005)
    assert stored_ids(url) == ["s1"]
    gc.collect()


def test_snapshots_are_listed_newest_first_by_page_and_owner(url: str) -> None:
    with Ledger.open(url) as ledger:
        for number in range(6):
            # Later ones carry earlier times: order is the ledger's, not the clock's.
            record = snapshot(f"s{number}", number=6 - number, principal=["ana", "bob"][number % 2])
            ledger.submit_snapshot(record)
        ledger.submit_snapshot(snapshot("foreign", tenant="other"))
        page = [record.snapshot_id for record in ledger.snapshots("acme", limit=4)]
        assert page == ["s5", "s4", "s3", "s2"]
        assert [r.snapshot_id for r in ledger.snapshots("acme", limit=4, before=page[-1])] == [
            "s1",
            "s0",
        ]
        assert [r.snapshot_id for r in ledger.snapshots("acme", "ana")] == ["s4", "s2", "s0"]
        assert ledger.snapshots("nobody") == ()
        assert ledger.snapshots("acme", before="unknown") == ()


def test_exposure_counts_each_version_once_a_snapshot_and_one_tenant_only(url: str) -> None:
    with Ledger.open(url) as ledger:
        twice = (
            ("gmv", "v1", None, False),
            ("gmv", "v1", "full", True),
            ("gmv", "v2", None, False),
        )
        ledger.submit_snapshot(snapshot("s1", items=twice))
        ledger.submit_snapshot(snapshot("s2", items=(("gmv", "v2", "full", True),)))
        ledger.submit_snapshot(snapshot("s3", items=(("gmv", "v2", "full", True),), tenant="other"))
        ledger.report_used("s2", ["gmv"], NOW)
        every = ledger.exposure("acme", "gmv")
        assert (every.selected, every.excluded, every.used, every.snapshot_ids) == (
            2,
            1,
            1,
            ("s2", "s1"),
        )
        first = ledger.exposure("acme", "gmv", version="v1")
        assert (first.selected, first.excluded, first.used, first.snapshot_ids) == (
            1,
            0,
            0,
            ("s1",),
        )


def test_reports_of_use_are_counted_once_and_refused_for_what_was_not_shown(url: str) -> None:
    with Ledger.open(url) as ledger:
        ledger.submit_snapshot(snapshot("s1", number=1))
        ledger.report_used("s1", ["item-1", "item-1"], NOW)
        ledger.report_used("s1", ["item-1"], NOW)
        ledger.submit_snapshot(snapshot("s2", number=1))
        ledger.report_used("s2", ["item-1"], NOW)
        for items in (["item-1", "item-x"], ["nothing"]):
            with pytest.raises(InvalidRequest) as refused:
                ledger.report_used("s1", items, NOW)
            assert refused.value.stable_code == "not_visible"
        with pytest.raises(NotFound):
            ledger.report_used("s9", ["item-1"], NOW)
        assert ledger.used_counts("acme") == {"item-1": 2}
        assert ledger.used_counts("other") == {}


def test_usage_reports_are_kept_in_order_and_the_same_one_once(url: str) -> None:
    with Ledger.open(url) as ledger:
        ledger.submit_snapshot(snapshot("s1"))
        first, second = {"input_tokens": 10, "cached_input_tokens": 4}, {"input_tokens": 9}
        for report in (first, second, first):
            ledger.report_usage("s1", report, NOW)
        assert ledger.usage("s1") == (first, second)
        with pytest.raises(NotFound):
            ledger.report_usage("s9", first)


def test_erased_blobs_are_in_no_file_and_are_stored_again_when_submitted_again(
    url: str, tmp_path: Path
) -> None:
    canary = "canary-4711"
    with Ledger.open(url) as ledger, Ledger.open(url) as other:
        blobs = {"secret": f"{canary} " * 500, "kept": "text"}
        other.submit_snapshot(snapshot("s1", blobs=blobs), durable=True)
        assert ledger.erase_blobs(["secret", "unknown"]) == 1
        assert ledger.get_blobs(blobs) == {"kept": "text"}
        files = [file for file in tmp_path.rglob("*") if file.is_file()]
        assert [file.name for file in files if canary.encode() in file.read_bytes()] == []
        # `other` remembers that it had stored this blob; that must not be believed now.
        other.submit_snapshot(snapshot("s2", blobs=blobs), durable=True)
        assert other.get_blobs(blobs) == blobs


def test_blobs_are_stored_once_and_never_changed(url: str) -> None:
    with Ledger.open(url) as ledger:
        many = {f"h{number}": f"t{number}" for number in range(1_200)}
        ledger.put_blobs(many)
        ledger.put_blobs({"h0": "other"})
        assert ledger.get_blobs(many) == many
        assert ledger.integrity()["counts"]["blobs"] == 1_200


def test_a_time_without_zone_is_refused(url: str) -> None:
    with Ledger.open(url) as ledger, pytest.raises(InvalidRequest) as refused:
        ledger.submit_snapshot(snapshot("s1", created_at=datetime(2026, 1, 1)), durable=True)
    assert refused.value.stable_code == "naive_time"
