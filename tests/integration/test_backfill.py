"""Partitions are built once each, whatever ends the process. Dagster's own backfill:
`test_dagster_ui.py`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ctx_pipeline.building.exposure import day_file
from ctx_pipeline.errors import InvalidRequest, Unavailable
from ctx_pipeline.index.artifact import Layout
from ctx_pipeline.orchestration.backfill import (
    MAX_PARTITIONS,
    build_partitions,
    partitions_in_range,
)
from ctx_pipeline.orchestration.build import build, open_instance

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = '[project]\nname = "shop"\ntenant = "acme"\n[usage]\nsince = 2026-11-01\n'
DAYS = [f"2026-11-{day:02d}" for day in range(1, 7)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "ctx.toml").write_text(PROJECT, encoding="utf-8")
    return tmp_path


def _done(home: Path) -> list[str]:
    return sorted(
        day for day in DAYS if day_file(Layout(home).derived, date.fromisoformat(day)).exists()
    )


def _runs(home: Path) -> list[str]:
    """Return the partitions of all successful runs, oldest first."""
    with open_instance(home) as instance:
        runs = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS]))
    return [run.tags["dagster/partition"] for run in reversed(runs)]


def test_a_killed_backfill_goes_on_with_what_is_missing(home: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "import ctx_pipeline.building.exposure as exposure\n"
        "write = exposure.roll_up_day\n"
        "def roll_up_day(derived, ledger, day):\n"
        "    if day.day == 3:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return write(derived, ledger, day)\n"
        "exposure.roll_up_day = roll_up_day\n"
        "from ctx_pipeline.orchestration.backfill import build_partitions\n"
        "build_partitions(sys.argv[1], '2026-11-01..2026-11-06', progress=False)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    killed = subprocess.run(
        [sys.executable, "-c", script, str(home)], check=False, timeout=55, env=environment
    )
    assert killed.returncode == -signal.SIGKILL
    assert _done(home) == DAYS[:2]
    report = build_partitions(home, "2026-11-01..2026-11-06", progress=False)
    assert (report.assets[0].built, report.assets[0].skipped) == (tuple(DAYS[2:]), 2)
    assert _runs(home) == DAYS
    with open_instance(home) as instance:
        dead = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
        assert [run.tags["dagster/partition"] for run in dead] == ["2026-11-03"]
        assert {run.tags["ctx/kind"] for run in instance.get_runs()} == {"backfill"}
        event = instance.get_latest_materialization_event(dg.AssetKey(["usage", "daily_exposure"]))
        assert event is not None
        assert event.asset_materialization is not None
        numbers = {"dagster/partition_row_count", "shown", "left_out", "cited", "tokens", "seconds"}
        assert numbers <= set(event.asset_materialization.metadata)
    again = build_partitions(home, "2026-11-05..2026-11-06", progress=False, again=True)
    assert (again.assets[0].built, _runs(home)) == (tuple(DAYS[4:]), [*DAYS, *DAYS[4:]])


def test_ctrl_c_leaves_the_finished_days_done(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ctx_pipeline.building import exposure

    write = exposure.roll_up_day

    def interrupted(derived: Path, ledger: Any, day: date) -> object:
        if day.day == 2:
            signal.raise_signal(signal.SIGINT)
        return write(derived, ledger, day)

    with monkeypatch.context() as patched:
        patched.setattr(exposure, "roll_up_day", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build_partitions(home, "2026-11-01..2026-11-03", progress=False)
    assert _done(home)[:1] == DAYS[:1]
    assert build_partitions(home, "2026-11-01..2026-11-03", progress=False).assets[
        0
    ].built == tuple(DAYS[1:3])


def test_progress_names_each_partition(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    build_partitions(home, "2026-11-01..2026-11-02")
    out, err = capfd.readouterr()
    assert (out, err) == (
        "",
        "[1/2] usage/daily_exposure 2026-11-01\n[2/2] usage/daily_exposure 2026-11-02\n",
    )


WRONG = {
    "2026-10-01..2026-10-31": "no finished day lies in the range",
    "2999-01-01": "no finished day lies in the range",
    "昨天": "'昨天' is not a day",
    "a..b": "'a' is not a day",
    "2026-13-45": "'2026-13-45' is not a day",
    "20261101": "'20261101' is not a day",
    "2026-11-05..2026-11-01": "ends before it begins",
    "2026-12-31..2026-01-01": "ends before it begins",
    "2026-11-01..2026-11-02..2026-11-03": "3 partitions are named",
    "2026-11-01..": "one end of the range is missing",
    "..": "no partition is named",
    "": "no partition is named",
    "x" * 100_000: "x…. is not a day",
}


def test_a_range_may_reach_beyond_what_there_is_and_one_that_misses_it_is_refused(
    home: Path,
) -> None:
    assert build_partitions(home, "2026-10-30..2026-11-01", progress=False).assets[0].built == (
        "2026-11-01",
    )
    days = [f"2026-11-{day:02}" for day in range(1, 30)]
    for wrong, message in WRONG.items():
        with pytest.raises(InvalidRequest, match=message.replace("'", ".")) as refused:
            partitions_in_range(days, wrong, "usage/daily_exposure")
        assert refused.value.stable_code == "invalid_partitions"
        assert "2026-" in refused.value.fix
        assert len(str(refused.value)) < 300
    with pytest.raises(InvalidRequest, match="no finished day") as refused:
        build_partitions(home, "2026-10-01", progress=False)
    assert "usage/daily_exposure has 2026-11-01.." in refused.value.fix
    with pytest.raises(InvalidRequest, match="usage/daily_exposure") as refused:
        build_partitions(home, "2026-11-01", "stages/ranked_items", progress=False)
    assert refused.value.stable_code == "invalid_selection"
    with pytest.raises(InvalidRequest, match="--partitions"):
        build(home, "usage/daily_exposure", progress=False)


def test_a_huge_range_is_what_there_is_of_it_and_bounded() -> None:
    start = date(2000, 1, 1)
    days = [(start + timedelta(days=number)).isoformat() for number in range(MAX_PARTITIONS + 1)]
    with pytest.raises(InvalidRequest, match="3661 partitions") as refused:
        partitions_in_range(days, "0001-01-01..9999-12-31", "x")
    part = refused.value.fix.split(" ")
    assert partitions_in_range(days, f"{part[6]}..{part[8]}", "x") == days[:-1]
    assert partitions_in_range(days[:5], "0001-01-01..9999-12-31", "x") == days[:5]


def test_two_backfills_do_not_run_at_once(home: Path) -> None:
    from filelock import FileLock

    (home / ".ctx").mkdir()
    with (
        FileLock(home / ".ctx" / "backfill.lock", fallback_to_soft=False),
        pytest.raises(Unavailable) as busy,
    ):
        build_partitions(home, "2026-11-01", progress=False)
    assert busy.value.stable_code == "build_busy"


def test_what_a_partition_raises_reaches_the_caller_with_its_code(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> object:
        raise Unavailable("no room", code="disk_full")

    monkeypatch.setattr("ctx_pipeline.building.exposure.roll_up_day", full)
    with pytest.raises(Unavailable) as failed:
        build_partitions(home, "2026-11-01", progress=False)
    assert failed.value.stable_code == "disk_full"
    monkeypatch.setattr("ctx_pipeline.building.exposure.roll_up_day", lambda *_: 1 / 0)
    with pytest.raises(Unavailable, match="2026-11-01: ZeroDivisionError") as failed:
        build_partitions(home, "2026-11-01", progress=False)
    assert failed.value.stable_code == "build_failed"
