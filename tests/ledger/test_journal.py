from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_pipeline.contracts import FileCode, FileError, FileStatus, Lifecycle, SourceFile
from ctx_pipeline.errors import Conflict, InvalidRequest
from ctx_pipeline.ledger import Ledger, SourceObservation, check_transition
from ctx_pipeline.ledger.records import from_micros, to_micros
from ctx_pipeline.ledger.transitions import TRANSITIONS
from tests.ledger.builders import NOW, event, overlay, snapshot

S = Lifecycle


def source(**changes: Any) -> SourceObservation:
    values: dict[str, Any] = {
        "name": "docs",
        "kind": "documents",
        "observed_at": NOW,
        "fingerprint": "f1",
        "status": "ok",
        "items": 3,
        "errors": (FileError(path="a.md", line=3, code=FileCode.BAD_YAML, message="写错了"),),
        "files": (SourceFile(path="a.md", status=FileStatus.FAILED, bytes=12, reason="bad_yaml"),),
    }
    return SourceObservation(**(values | changes))


def test_the_life_of_the_specification_is_legal() -> None:
    """Spec: the main line, with each of its alternatives."""
    for left in (S.STALE, S.SUPERSEDED):
        for kept in (S.COMPRESSED, S.EXTERNALIZED):
            life = [
                None,
                S.CREATED,
                S.DISCOVERED,
                S.SELECTED,
                S.VISIBLE,
                S.USED,
                left,
                kept,
                S.EVICTED,
            ]
            for before, after in pairwise(life):
                check_transition(before, cast(Lifecycle, after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, S.USED), (S.CREATED, S.VISIBLE), (S.CREATED, S.USED), (S.DISCOVERED, S.VISIBLE),
        (S.SELECTED, S.USED),
        (S.EVICTED, S.VISIBLE), (S.QUARANTINED, S.DISCOVERED), (S.RETIRED, S.DISCOVERED),
        (S.USED, S.CREATED),
        (S.SUPERSEDED, S.SUPERSEDED), (S.CREATED, S.EVICTED),
    ],
)  # fmt: skip
def test_a_step_that_skips_or_goes_back_is_refused(
    before: Lifecycle | None, after: Lifecycle
) -> None:
    with pytest.raises(Conflict) as refused:
        check_transition(before, after)
    assert refused.value.stable_code == "illegal_transition"


def test_forgotten_is_final_and_reachable_from_every_other_state_and_nothing_is_created_twice() -> (
    None
):
    assert set(TRANSITIONS) == {None, *S}
    assert TRANSITIONS[S.FORGOTTEN] == frozenset()
    assert all(S.FORGOTTEN in TRANSITIONS[state] for state in S if state is not S.FORGOTTEN)
    assert [state for state in TRANSITIONS if S.CREATED in TRANSITIONS[state]] == [None]


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=8, minutes=30))])))
def test_a_time_survives_its_stored_form_to_the_microsecond(value: datetime) -> None:
    assert from_micros(to_micros(value)) == value


def test_events_come_back_by_sequence_whatever_their_clocks_say(url: str) -> None:
    """Ours: promise P23."""
    with Ledger.open(url) as ledger:
        first = ledger.reserve(2)
        late = event(
            sequence=first + 1, from_state=S.CREATED, to_state=S.SUPERSEDED, snapshot_id="s"
        )
        early = event(sequence=first)
        ledger.append_events([late])
        ledger.append_events([early, event("other")])
        ledger.append_events([event(from_state=S.SUPERSEDED, to_state=S.RETIRED)])
        life = ledger.events_for("acme", "item-1")
        assert life[:2] == (early, late)
        assert [step.to_state for step in life] == [S.CREATED, S.SUPERSEDED, S.RETIRED]
        assert ledger.events_for("other", "item-1") == ()


def test_an_illegal_step_stores_nothing_of_its_batch(url: str) -> None:
    with Ledger.open(url) as ledger:
        with pytest.raises(Conflict) as refused:
            ledger.append_events([event(), event(from_state=S.CREATED, to_state=S.USED)])
        assert refused.value.stable_code == "illegal_transition"
        assert ledger.events_for("acme", "item-1") == ()
        ledger.append_events([])


def test_events_delivered_twice_are_stored_once_and_a_number_is_never_reused(url: str) -> None:
    """Ours: promise P6."""
    with Ledger.open(url) as ledger:
        first = ledger.reserve(3)
        batch = [event(f"item-{n}", sequence=first + n) for n in range(3)]
        ledger.append_events(batch[:2])
        ledger.append_events([*batch, batch[0]])
        assert [ledger.events_for("acme", f"item-{n}") for n in range(3)] == [
            (step,) for step in batch
        ]
        with pytest.raises(Conflict) as refused:
            ledger.append_events([event("item-9"), event("item-8", sequence=first)])
        assert refused.value.stable_code == "sequence_reused"
        assert ledger.events_for("acme", "item-9") == ()


def test_reserved_numbers_are_given_to_one_caller_only(url: str) -> None:
    with Ledger.open(url) as ledger:
        taken: list[range] = []

        def work() -> None:
            for size in (1, 7, 3):
                first = ledger.reserve(size)
                taken.append(range(first, first + size))

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(number for part in taken for number in part) == list(range(1, 67))
        with pytest.raises(InvalidRequest):
            ledger.reserve(0)


def test_one_bad_overlay_entry_stores_nothing_of_its_batch(url: str) -> None:
    with Ledger.open(url) as ledger:
        for bad in (
            overlay(code="unheard-of"),
            overlay(effective_at=datetime(2026, 1, 1)),
            overlay(tenant=None),
        ):
            with pytest.raises((InvalidRequest, Conflict)):
                ledger.append_overlay([overlay(), bad])
        assert ledger.overlay_sequence() == 0
        assert ledger.append_overlay([]) == 0
        assert (
            ledger.append_overlay(
                [overlay(), overlay(code="revoked", group="finance", version="v2")]
            )
            == 2
        )


def test_the_overlay_number_does_not_move_with_other_writes(url: str) -> None:
    with Ledger.open(url) as ledger:
        ledger.append_overlay([overlay()])
        ledger.append_events([event()])
        ledger.submit_snapshot(snapshot("s1"), durable=True)
        ledger.record_source(source())
        assert ledger.overlay_sequence() == 1


def test_reading_the_overlay_number_holds_no_lock_on_the_log(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger, closing(sqlite3.connect(path, isolation_level=None)) as other:
        assert ledger.overlay_sequence() == 0
        ledger.append_overlay([overlay()])
        assert ledger.overlay_sequence() == 1
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


def test_every_thread_reads_the_overlay_number(url: str) -> None:
    with Ledger.open(url) as ledger:
        seen: list[int] = []
        for _ in range(5):
            ledger.append_overlay([overlay()])
            thread = threading.Thread(target=lambda: seen.append(ledger.overlay_sequence()))
            thread.start()
            thread.join()
        assert seen == [1, 2, 3, 4, 5]


def test_a_source_keeps_its_last_look_and_a_failed_look_does_not_make_it_fresh(url: str) -> None:
    with Ledger.open(url) as ledger:
        assert ledger.source_times() == {}
        ledger.record_source(source(name="never", status="failed"))
        ledger.record_source(source())
        later = NOW + timedelta(hours=1)
        failed = source(status="failed", observed_at=later, items=0, fingerprint="")
        ledger.record_source(failed)
        stored = ledger.sources()
        assert list(stored) == ["docs", "never"]
        assert stored["docs"] == source(
            status="failed", observed_at=later, items=0, fingerprint="", succeeded_at=NOW
        )
        assert ledger.source_times() == {"docs": NOW}


def test_source_times_follow_another_handle_and_are_the_callers_to_keep(url: str) -> None:
    with Ledger.open(url) as ledger, Ledger.open(url) as other:
        ledger.record_source(source())
        assert other.source_times() == {"docs": NOW}
        other.source_times().clear()
        assert other.source_times() == {"docs": NOW}
        ledger.record_source(source(observed_at=NOW + timedelta(days=1)))
        assert other.source_times() == {"docs": NOW + timedelta(days=1)}
