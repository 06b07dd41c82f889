"""What leaves the published state gets its events and its recall notice once, whatever happens in
between.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ctx_pipeline import ContextRequest, Task
from ctx_pipeline.contracts import ContextItem, Lifecycle, LifecycleEvent, Trust
from ctx_pipeline.ledger import RecallNotice, SourceObservation
from ctx_pipeline.lifecycle.sweep import Sweep, record_evictions
from testing.artifacts import (
    ANA,
    NOW,
    append_overlay,
    build_index,
    make_item,
    make_project,
    open_project,
    open_workspace,
    overlay,
    store_items,
)

REFUNDS = "document:handbook/refunds"
DAY = timedelta(days=1)


def _created(home: Path, items: Sequence[ContextItem]) -> None:
    events = [
        LifecycleEvent(
            tenant=item.scope.tenant or "",
            item_id=item.item_id,
            version=item.version,
            from_state=None,
            to_state=Lifecycle.CREATED,
            reason="test",
            at=NOW,
            actor="test",
        )
        for item in items
    ]
    with open_workspace(home) as workspace:
        workspace.ledger.append_events(events)


def _project(home: Path, *items: ContextItem, head: str = "", **source: Any) -> Path:
    make_project(home, items, {"handbook": source}, head)
    _created(home, items)
    return home


def _show(home: Path, at: datetime = NOW) -> str:
    """Assemble a pack that shows what there is, and return its snapshot's id."""
    with open_project(home) as project:
        request = ContextRequest(task=Task(text="refunds 退款 shipping"), identity=ANA)
        return project.assemble(request, at=at, durable=True).snapshot_id


def _sweep(home: Path, at: datetime = NOW, **options: Any) -> Sweep:
    with open_workspace(home, at) as workspace:
        return record_evictions(workspace, **options)


def _life(home: Path, item_id: str = REFUNDS, version: str = "1") -> list[str]:
    with open_workspace(home) as workspace:
        return [
            e.to_state.value
            for e in workspace.ledger.events_for("acme", item_id)
            if e.version == version
        ]


def _recalls(home: Path) -> list[tuple[str, str, int, tuple[str, ...]]]:
    with open_workspace(home) as workspace:
        return [
            (r.version, r.code, r.snapshots, r.snapshot_ids)
            for r in workspace.ledger.recalls("acme")
        ]


def _read(home: Path, at: datetime) -> None:
    """Record that the source was read."""
    with open_workspace(home) as workspace:
        workspace.ledger.record_source(
            SourceObservation(
                name="handbook",
                kind="documents",
                observed_at=at,
                fingerprint="f",
                status="ok",
                items=1,
            )
        )


def test_a_superseded_version_leaves_and_is_recalled_from_the_snapshots_that_showed_it(
    tmp_path: Path,
) -> None:
    home = _project(
        tmp_path,
        make_item("refunds", "refunds take 30 days 退款"),
        make_item("shipping", "shipping"),
    )
    first, second = _show(home), _show(home, NOW + timedelta(minutes=1))
    after = make_item("refunds", "refunds take 14 days 退款", version="2")
    store_items(home, [after])
    _created(home, [after])
    build_index(home)
    sweep = _sweep(home)
    assert (sweep.recorded, [r.item_id for r in sweep.recalls], sweep.finished) == (
        2,
        [REFUNDS],
        True,
    )
    assert _life(home) == ["created", "superseded", "evicted"]
    assert _recalls(home) == [("1", "superseded", 2, (second, first))]


@pytest.mark.parametrize(
    ("code", "state"), [("retired", "retired"), ("quarantined", "quarantined")]
)
def test_what_the_overlay_takes_out_leaves_before_any_build(
    tmp_path: Path, code: str, state: str
) -> None:
    home = _project(tmp_path, make_item("refunds", "refunds 退款"))
    shown = _show(home)
    append_overlay(home, overlay(code, REFUNDS))
    _sweep(home)
    assert _life(home) == ["created", state, "evicted"]
    assert _recalls(home) == [("1", code, 1, (shown,))]


def test_what_comes_back_is_restored_and_a_second_leave_is_told_again(tmp_path: Path) -> None:
    home = _project(tmp_path, make_item("refunds", "refunds 退款"))
    shown = _show(home)
    for code in ("retired", "restored", "retired"):
        append_overlay(home, overlay(code, REFUNDS))
        _sweep(home)
    assert _life(home) == ["created", "retired", "evicted", "restored", "retired", "evicted"]
    assert _recalls(home) == [("1", "retired", 1, (shown,))] * 2


def test_what_is_forgotten_is_recalled_before_and_after_the_build_that_drops_it(
    tmp_path: Path,
) -> None:
    items = (make_item("refunds", "refunds 退款"), make_item("shipping", "shipping"))
    home = _project(tmp_path, *items)
    _show(home)
    append_overlay(home, overlay("forgotten", REFUNDS))
    _sweep(home)
    append_overlay(home, overlay("forgotten", items[1].item_id))
    build_index(home)
    _sweep(home)
    _sweep(home)
    assert [_life(home, item.item_id) for item in items] == [["created", "forgotten"]] * 2
    assert [(version, code) for version, code, _, _ in _recalls(home)] == [("1", "forgotten")] * 2


def test_a_version_expires_when_its_time_is_over(tmp_path: Path) -> None:
    home = _project(tmp_path, make_item("refunds", "refunds 退款", valid_until=NOW + DAY))
    _show(home)
    early = _sweep(home)
    assert early.recorded == 0
    assert _sweep(home, NOW + DAY / 2, cursor=early.cursor).examined == 0
    late = _sweep(home, NOW + DAY, cursor=early.cursor)
    assert late.recalls[0].code == "expired"
    assert late.recalls[0].reason == "it was valid until 2026-12-01T12:00:00Z"
    assert _life(home) == ["created", "stale", "evicted"]


def test_a_stale_item_is_marked_evicted_when_stale_items_stay_out_and_restored_when_read(
    tmp_path: Path,
) -> None:
    home = _project(tmp_path, make_item("refunds", "refunds 退款"), freshness="24h")
    _read(home, NOW)
    shown = _show(home)
    _sweep(home, NOW + DAY)
    assert _life(home) == ["created"]
    soft = _sweep(home, NOW + DAY + timedelta(seconds=1))
    assert (_life(home), soft.recalls) == (["created", "stale"], ())
    with (home / "ctx.toml").open("a", encoding="utf-8") as config:
        config.write("[policy]\nexclude_stale = true\n")
    _sweep(home, NOW + 2 * DAY, cursor=soft.cursor)
    assert _life(home) == ["created", "stale", "evicted"]
    assert _recalls(home) == [("1", "stale", 1, (shown,))]
    _read(home, NOW + 2 * DAY)
    _sweep(home, NOW + 2 * DAY)
    assert _life(home) == ["created", "stale", "evicted", "restored"]


def test_a_version_that_left_and_turns_out_dangerous_is_recalled_once_more(tmp_path: Path) -> None:
    home = _project(tmp_path, make_item("refunds", "refunds 退款"))
    _show(home)
    for code in ("retired", "superseded", "quarantined"):
        append_overlay(home, overlay(code, REFUNDS))
        _sweep(home)
    assert _life(home) == ["created", "retired", "evicted", "quarantined"]
    assert [code for _, code, _, _ in _recalls(home)] == ["retired", "quarantined"]


def test_what_was_never_shown_leaves_without_a_notice_and_what_has_no_log_is_left_alone(
    tmp_path: Path,
) -> None:
    home = make_project(tmp_path, [make_item("refunds"), make_item("shipping")])
    _created(home, [make_item("refunds")])
    append_overlay(
        home, overlay("retired", REFUNDS), overlay("retired", "document:handbook/shipping")
    )
    assert _sweep(home).recorded == 2
    assert (_life(home), _life(home, "document:handbook/shipping"), _recalls(home)) == (
        ["created", "retired", "evicted"],
        [],
        [],
    )


def test_a_bounded_sweep_goes_on_where_it_stopped_and_a_lost_cursor_doubles_nothing(
    tmp_path: Path,
) -> None:
    items = [make_item(f"refunds-{number}", f"refunds 退款 {number}") for number in range(5)]
    home = _project(tmp_path, *items)
    _show(home)
    append_overlay(home, *(overlay("retired", item.item_id) for item in items))
    first = _sweep(home, limit=2)
    assert (first.recorded, first.examined, first.finished) == (4, 2, False)
    again = _sweep(home, limit=2)
    assert (again.recorded, again.finished) == (4, False)
    last = _sweep(home, cursor=again.cursor, limit=2)
    assert (last.recorded, last.finished) == (2, True)
    assert _sweep(home, cursor=last.cursor).examined == 0
    assert _sweep(home).recorded == 0
    assert len({notice[:2] for notice in _recalls(home)}) == 1
    assert len(_recalls(home)) == len(items)
    everything = _sweep(home).cursor
    for unreadable in (
        "{",
        "{}",
        "[",
        "[1]",
        '["", 1e999, null, true]',
        '["", 1, ["a"], true]',
        "[" * 100_000,
    ):
        assert _sweep(home, cursor=unreadable).cursor == everything


def test_two_sweeps_at_once_record_each_event_once(tmp_path: Path) -> None:
    items = [make_item(f"refunds-{number}", f"refunds 退款 {number}") for number in range(8)]
    home = _project(tmp_path, *items)
    _show(home)
    append_overlay(home, *(overlay("retired", item.item_id) for item in items))
    barrier = threading.Barrier(2)

    def run() -> None:
        barrier.wait()
        for _ in range(8):
            _sweep(home, limit=3)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(_life(home, item.item_id) == ["created", "retired", "evicted"] for item in items)
    recalled: list[RecallNotice] = []
    with open_workspace(home) as workspace:
        recalled.extend(workspace.ledger.recalls())
    assert sorted(notice.item_id for notice in recalled) == sorted(item.item_id for item in items)


def test_a_version_that_is_not_yet_valid_has_not_left(tmp_path: Path) -> None:
    home = _project(
        tmp_path, make_item("refunds", "refunds", valid_from=NOW + DAY, trust=Trust.USER)
    )
    assert _sweep(home).recorded == 0
    assert _sweep(home, NOW + 2 * DAY).recorded == 0


def test_a_caller_sees_recalls_of_what_it_may_know_of_with_its_own_snapshots(
    tmp_path: Path,
) -> None:
    open_item, closed = (
        make_item("refunds", "refunds 退款"),
        make_item("s", "退款 2", principals=("ana",), groups=()),
    )
    home = _project(tmp_path, open_item, closed, head="[policy]\nmin_relevance = 0.0")
    mine = _show(home)
    bob = ANA.model_copy(update={"principal": "bob"})
    append_overlay(home, overlay("retired", REFUNDS), overlay("retired", closed.item_id))
    _sweep(home)
    with open_project(home) as project:
        seen = project.recalls(identity=ANA)
        assert [(n.item_id, n.snapshot_ids) for n in seen] == [
            (REFUNDS, (mine,)),
            (closed.item_id, (mine,)),
        ]
        assert project.recalls(identity=ANA, since=seen[0].sequence or 0) == seen[1:]
        assert project.recalls(identity=ANA, limit=1) == seen[:1]
        assert [
            (n.item_id, n.snapshots, n.snapshot_ids) for n in project.recalls(identity=bob)
        ] == [(REFUNDS, 1, ())]
        assert project.recalls(identity=ANA.model_copy(update={"tenant": "other"})) == ()
