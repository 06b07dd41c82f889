from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest

from ctx_pipeline.errors import InvalidRequest, NotFound
from ctx_pipeline.ledger import Ledger, PrunedSnapshot
from tests.ledger.builders import BLOBS, NOW, recall, snapshot

DAY = timedelta(days=1)


def fill(ledger: Ledger) -> None:
    """Three days with a snapshot each; each shares a blob with the next."""
    for number in range(3):
        ledger.submit_snapshot(
            snapshot(f"s{number}", number=number, created_at=NOW + number * DAY), durable=True
        )


def test_days_and_exposures_follow_the_time_at_which_snapshots_were_made(url: str) -> None:
    with Ledger.open(url) as ledger:
        assert ledger.snapshot_days() == ()
        fill(ledger)
        late = datetime.combine(date(2026, 12, 4), datetime.max.time(), NOW.tzinfo)
        ledger.submit_snapshot(snapshot("late", created_at=late))
        days = (date(2026, 11, 30), date(2026, 12, 1), date(2026, 12, 2), date(2026, 12, 4))
        assert ledger.snapshot_days() == days
        ledger.report_used("s1", ["item-1"], NOW)
        assert ledger.exposures(NOW + DAY, NOW + 2 * DAY) == (
            ("acme", "item-1", "v1", 1, 0, 1),
            ("acme", "item-x", "v1", 0, 1, 0),
        )
        assert [row[1:5] for row in ledger.exposures(until=NOW + DAY)] == [
            ("item-0", "v1", 1, 0),
            ("item-x", "v1", 0, 1),
        ]
        assert ledger.exposures(since=late + DAY) == ()
        assert ledger.exposures() == ledger.exposures(since=NOW)


def test_pruning_deletes_the_oldest_with_what_only_they_needed(url: str) -> None:
    with Ledger.open(url) as ledger:
        fill(ledger)
        ledger.put_blobs({"by itself": "text", "block-1": BLOBS["block-1"]})
        ledger.report_used("s0", ["item-0"], NOW)
        ledger.report_usage("s0", {"input_tokens": 1}, NOW)
        assert ledger.prune_snapshots(NOW) == 0
        assert ledger.prune_snapshots(NOW + 2 * DAY, limit=1) == 1
        assert set(ledger.get_blobs([*BLOBS, "by itself"])) == {
            "block-1",
            "block-2",
            "block-3",
            "by itself",
        }
        assert ledger.prune_snapshots(NOW + 2 * DAY) == 1
        assert ledger.prune_snapshots(NOW + 2 * DAY) == 0
        assert [record.snapshot_id for record in ledger.snapshots("acme")] == ["s2"]
        # What was stored by itself stays, whoever else needed it.
        assert set(ledger.get_blobs([*BLOBS, "by itself"])) == {
            "block-1",
            "block-2",
            "block-3",
            "by itself",
        }
        assert ledger.used_counts("acme") == {}
        assert ledger.exposure("acme", "item-x").excluded == 1
        report = ledger.integrity()
        assert report["ok"]
        assert (report["counts"]["snapshot_items"], report["counts"]["usage"]) == (2, 0)


def test_a_pruned_snapshot_is_known_as_such_and_named_so_by_a_recall(url: str) -> None:
    with Ledger.open(url) as ledger:
        fill(ledger)
        ledger.append_events(
            [], recalls=[recall("item-x", snapshots=3, snapshot_ids=("s2", "s1", "s0"))]
        )
        ledger.prune_snapshots(NOW + 2 * DAY)
        assert ledger.snapshot("s0") is None
        assert ledger.pruned("s0") == PrunedSnapshot(
            snapshot_id="s0", tenant="acme", principal="ana", created_at=NOW
        )
        assert ledger.pruned("s2") is None
        (notice,) = ledger.recalls()
        assert (notice.snapshot_ids, notice.pruned_ids) == (("s2", "s1", "s0"), ("s1", "s0"))
        with pytest.raises(NotFound) as told:
            ledger.report_used("s0", ["item-0"], NOW)
        assert told.value.stable_code == "snapshot_pruned"


def test_another_process_stores_a_pruned_text_again(url: str) -> None:
    with Ledger.open(url) as ledger, Ledger.open(url) as other:
        other.submit_snapshot(snapshot("s0"), durable=True)
        assert ledger.prune_snapshots(NOW + DAY) == 1
        assert ledger.get_blobs(BLOBS) == {}
        # `other` remembers that it had stored these texts; that must not be believed now.
        record = snapshot("s8", number=8, created_at=NOW + DAY)
        other.submit_snapshot(record, durable=True)
        assert other.get_blobs(BLOBS) == record.blobs
        # The same snapshot, delivered late, is stored once more and pruned once more.
        other.submit_snapshot(snapshot("s0"), durable=True)
        assert ledger.snapshot("s0") is not None
        assert ledger.prune_snapshots(NOW + DAY) == 1
        assert ledger.get_blobs(BLOBS) == record.blobs


def test_what_is_queued_is_pruned_too_and_a_time_without_zone_is_refused(url: str) -> None:
    with Ledger.open(url) as ledger:
        ledger.submit_snapshot(snapshot("s0"))
        with pytest.raises(InvalidRequest):
            ledger.prune_snapshots(datetime(2026, 12, 1))
        assert ledger.prune_snapshots(NOW + DAY) == 1
        assert ledger.snapshots("acme") == ()
