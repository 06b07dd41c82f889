from __future__ import annotations

from dataclasses import replace

import pytest

from ctx_pipeline.contracts import Lifecycle
from ctx_pipeline.errors import Conflict, InvalidRequest
from ctx_pipeline.ledger import Ledger
from ctx_pipeline.ledger.records import MAX_RECALL_IDS
from tests.ledger.builders import event, recall, snapshot

S = Lifecycle


def test_a_notice_comes_back_with_the_events_of_its_transaction(url: str) -> None:
    with Ledger.open(url) as ledger:
        assert ledger.recalls() == ()
        ledger.submit_snapshot(snapshot("s1", number=1), durable=True)
        ledger.append_events([event()])
        ledger.append_events(
            [event(from_state=S.CREATED, to_state=S.SUPERSEDED)], recalls=[recall()]
        )
        (notice,) = ledger.recalls()
        assert replace(notice, sequence=None) == recall()
        assert notice.sequence is not None
        ledger.append_events([event("item-2")])
        assert ledger.recalls() == (notice,)
        assert ledger.recalls(since=notice.sequence) == ()


def test_the_same_notice_changes_nothing_until_the_version_is_restored(url: str) -> None:
    """Ours: promise P6."""
    with Ledger.open(url) as ledger:
        ledger.append_events([event()], recalls=[recall()])
        ledger.append_events(
            [],
            recalls=[recall(reason="again"), recall(), recall(code="retired"), recall(tenant="b")],
        )
        assert [(n.tenant, n.code, n.reason) for n in ledger.recalls()] == [
            ("acme", "superseded", "新版本"),
            ("acme", "retired", "新版本"),
            ("b", "superseded", "新版本"),
        ]
        # Another version that begins is not this one's restoration.
        ledger.append_events([event(version="v2")], recalls=[recall()])
        assert len(ledger.recalls("acme")) == 2
        restored = event(from_state=S.SUPERSEDED, to_state=S.RESTORED)
        ledger.append_events([restored], recalls=[recall(), recall()])
        assert [notice.code for notice in ledger.recalls("acme")] == [
            "superseded",
            "retired",
            "superseded",
        ]


def test_an_illegal_step_stores_no_notice_and_a_bad_notice_no_event(url: str) -> None:
    with Ledger.open(url) as ledger:
        with pytest.raises(Conflict):
            ledger.append_events([event(to_state=S.USED)], recalls=[recall()])
        with pytest.raises(InvalidRequest):
            ledger.append_events([event()], recalls=[recall(), recall(snapshots=0)])
        with pytest.raises((InvalidRequest, Conflict)):
            ledger.append_events([event()], recalls=[recall(), recall(code=None)])
        assert ledger.recalls() == ()
        assert ledger.events_for("acme", "item-1") == ()


def test_notices_are_read_by_page_and_tenant_and_name_a_bounded_number_of_snapshots(
    url: str,
) -> None:
    with Ledger.open(url) as ledger:
        ids = tuple(f"s{number}" for number in range(MAX_RECALL_IDS + 20))
        ledger.append_events(
            [], recalls=[recall(f"item-{n}", tenant="ab"[n % 2]) for n in range(6)]
        )
        ledger.append_events([], recalls=[recall("many", snapshot_ids=ids, snapshots=500)])
        page = ledger.recalls(limit=4)
        assert [notice.item_id for notice in page] == ["item-0", "item-1", "item-2", "item-3"]
        rest = ledger.recalls(since=page[-1].sequence or 0)
        assert [notice.item_id for notice in rest] == ["item-4", "item-5", "many"]
        assert (rest[-1].snapshots, rest[-1].snapshot_ids) == (500, ids[:MAX_RECALL_IDS])
        assert [notice.item_id for notice in ledger.recalls("b")] == ["item-1", "item-3", "item-5"]
