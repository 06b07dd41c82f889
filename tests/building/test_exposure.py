"""Days that are rolled up and days that are not add up to the same as counting everything."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest

from ctx_pipeline import ContextRequest, Task
from ctx_pipeline.building.exposure import (
    day_file,
    first_day,
    roll_up_day,
    shown_counts,
    write_totals,
)
from ctx_pipeline.index.artifact import Layout, read_table
from ctx_pipeline.ledger.rollup import DayMark
from testing.artifacts import ANA, NOW, make_item, make_project, open_project, open_workspace

REFUNDS = ("document:handbook/refunds", "1")
DAY = timedelta(days=1)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A project with calls on three days: two on the 28th, one on the 29th, one on the 30th."""
    home = make_project(tmp_path, [make_item("refunds", "refunds 退款")])
    for days, minutes in ((2, 0), (2, 1), (1, 0), (0, 0)):
        _show(home, days, minutes)
    return home


def _show(home: Path, days: int, minutes: int) -> str:
    with open_project(home) as project:
        request = ContextRequest(task=Task(text="refunds 退款"), identity=ANA)
        at = NOW - days * DAY + timedelta(minutes=minutes)
        return project.assemble(request, at=at, durable=True).snapshot_id


def _shown(home: Path) -> int:
    with open_workspace(home) as workspace:
        return shown_counts(workspace.layout.derived, workspace.ledger, "acme")[REFUNDS]


def _roll_up(home: Path, day: date) -> int:
    with open_workspace(home) as workspace:
        return roll_up_day(workspace.layout.derived, workspace.ledger, day).shown


def test_a_day_holds_what_its_calls_showed_and_the_tokens_it_took(home: Path) -> None:
    with open_workspace(home) as workspace:
        done = roll_up_day(workspace.layout.derived, workspace.ledger, date(2026, 11, 28))
        table = read_table(day_file(workspace.layout.derived, date(2026, 11, 28)))
        assert first_day(workspace.layout.derived, workspace.ledger) == date(2026, 11, 28)
    (row,) = [row for row in table.to_pylist() if row["item_id"] == REFUNDS[0]]
    assert (row["tenant"], row["version"], row["selected"], row["used"]) == ("acme", "1", 2, 0)
    assert row["tokens"] > 0
    assert done.tokens == sum(row["tokens"] for row in table.to_pylist())


def test_the_sum_is_the_same_with_every_mix_of_days(home: Path) -> None:
    assert _shown(home) == 4
    for days in (1, 2, 0):
        _roll_up(home, (NOW - days * DAY).date())
        assert _shown(home) == 4
        with open_workspace(home) as workspace:
            write_totals(workspace.layout.derived, workspace.ledger)
        assert _shown(home) == 4


def test_a_day_that_got_a_late_call_or_report_is_counted_again(home: Path) -> None:
    for days in (2, 1):
        _roll_up(home, (NOW - days * DAY).date())
    late = _show(home, 2, 5)
    assert _shown(home) == 5
    with open_project(home) as project:
        project.report_used(late, [REFUNDS[0]], identity=ANA)
    assert _roll_up(home, date(2026, 11, 28)) == 3 * _items_of(home)
    assert _shown(home) == 5
    with open_workspace(home) as workspace:
        marks = workspace.ledger.day_marks()
    assert marks[date(2026, 11, 28)].cited == 1


def _items_of(home: Path) -> int:
    with open_workspace(home) as workspace:
        rows = workspace.ledger.exposures()
    return sum(1 for row in rows if row[3])


def test_finished_days_are_not_counted_again_and_outlive_their_snapshots(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for days in (2, 1):
        _roll_up(home, (NOW - days * DAY).date())
    with open_workspace(home) as workspace:
        workspace.ledger.prune_snapshots(NOW - DAY)
        asked: list[object] = []
        counted = workspace.ledger.exposures
        monkeypatch.setattr(
            workspace.ledger, "exposures", lambda *span: asked.append(span) or counted(*span)
        )
        counts = shown_counts(workspace.layout.derived, workspace.ledger, "acme")
    assert counts[REFUNDS] == 4
    assert [(since.day, until.day) for since, until in asked] == [(30, 1)]


def test_a_damaged_day_is_counted_from_the_record(home: Path) -> None:
    _roll_up(home, date(2026, 11, 28))
    day_file(Layout(home).derived, date(2026, 11, 28)).write_bytes(b"torn")
    assert _shown(home) == 4


def test_the_marks_of_days_tell_of_every_addition(home: Path) -> None:
    with open_workspace(home) as workspace:
        before = workspace.ledger.day_marks()
    _show(home, 1, 9)
    with open_workspace(home) as workspace:
        after = workspace.ledger.day_marks()
    assert before[date(2026, 11, 28)] == after[date(2026, 11, 28)]
    assert isinstance(after[date(2026, 11, 29)], DayMark)
    assert after[date(2026, 11, 29)].last_sequence > before[date(2026, 11, 29)].last_sequence
