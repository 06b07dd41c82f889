"""Maintenance does what is due, a part at a time, and takes away nothing that anybody needs."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ctx_pipeline import build
from ctx_pipeline.definitions import make_definitions
from ctx_pipeline.errors import Corrupt
from ctx_pipeline.index.artifact import Layout
from ctx_pipeline.ledger import SnapshotRecord
from ctx_pipeline.orchestration.build import BUILD_TAG, open_instance
from ctx_pipeline.resources import ContextProjectResource, build_lock
from ctx_pipeline.resources.retention import prune_events
from ctx_pipeline.sensors.maintenance import MANY_RUNS, maintenance
from ctx_pipeline.workspace import Workspace
from testing.artifacts import build_index, make_item, store_items, write_config


def _ask(home: Path, instance: dg.DagsterInstance) -> bool:
    """Return whether the sensor asks for a run."""
    project = ContextProjectResource(home=str(home))
    with dg.build_sensor_context(instance=instance, resources={"ctx_project": project}) as context:
        asked = maintenance(context)
    assert isinstance(asked, (dg.RunRequest, dg.SkipReason))
    return isinstance(asked, dg.RunRequest)


def _run(home: Path, instance: dg.DagsterInstance) -> dict[str, Any]:
    """Run the job, and return what its steps say they did."""
    job = make_definitions(home).resolve_job_def("maintain")
    result = job.execute_in_process(instance=instance)
    outputs = [event for event in result.all_node_events if event.is_successful_output]
    told = {
        name: value.value
        for event in outputs
        for name, value in event.step_output_data.metadata.items()
    }
    return {name: value for name, value in told.items() if value}


def test_a_tidy_project_has_nothing_due(home: Path, instance: dg.DagsterInstance) -> None:
    assert not _ask(home, instance)
    assert _run(home, instance) == {}


def test_a_look_changes_nothing_and_its_run_is_asked_for_once_an_hour(
    home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx_pipeline.lifecycle.maintenance.MAX_FRAGMENTS", 1)
    project = ContextProjectResource(home=str(home))
    with dg.build_sensor_context(instance=instance, resources={"ctx_project": project}) as context:
        first, second = maintenance(context), maintenance(context)
    assert isinstance(first, dg.RunRequest)
    assert isinstance(second, dg.RunRequest)
    assert first.run_key == second.run_key
    with Workspace.open(home) as workspace:
        assert workspace.store.fragments() == 2


def test_a_fragmented_store_is_merged_but_not_under_a_build(
    home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx_pipeline.lifecycle.maintenance.MAX_FRAGMENTS", 1)
    with build_lock(home, 0.0):
        assert _run(home, instance) == {"left_alone": "build_busy"}
    assert _ask(home, instance)
    assert _run(home, instance) == {"fragments_merged": 2}
    with Workspace.open(home) as workspace:
        assert workspace.store.fragments() == 1
    assert not _ask(home, instance)
    assert _run(home, instance) == {}


def test_old_artifacts_and_leftovers_go_and_what_is_served_stays(tmp_path: Path) -> None:
    write_config(tmp_path, {"handbook": {}}, "[artifact]\nkeep = 3")
    for number in range(3):
        store_items(tmp_path, [make_item("refunds", f"退款 {number}", version=str(number))])
        served, _ = build_index(tmp_path)
    write_config(tmp_path, {"handbook": {}}, "[artifact]\nkeep = 1")
    layout = Layout(tmp_path)
    dead = [
        layout.artifacts / ".killed",
        layout.derived / "staging" / "older",
        layout.derived / "x.1.tmp",
    ]
    dead[0].mkdir()
    dead[1].mkdir()
    dead[2].write_text("torn", encoding="utf-8")
    young = layout.derived / "y.1.tmp"
    young.write_text("being written", encoding="utf-8")
    for path in dead:
        os.utime(path, (0, 0))
    with open_instance(tmp_path) as instance:
        assert _ask(tmp_path, instance)
        assert _run(tmp_path, instance) == {"artifacts_removed": 2, "leftovers_removed": 3}
        assert not _ask(tmp_path, instance)
    assert [path.name for path in layout.artifacts.iterdir()] == [served[:32]]
    assert young.exists()
    assert not any(path.exists() for path in dead)


def test_runs_of_other_peoples_instances_are_left_alone(home: Path) -> None:
    with (home / "ctx.toml").open("a", encoding="utf-8") as config:
        config.write("[retention]\nruns = 1\n")
    with dg.DagsterInstance.ephemeral() as foreign:
        for run in [foreign.add_run(dg.DagsterRun("other")) for _ in range(MANY_RUNS + 1)]:
            foreign.report_run_failed(run, "test")
        assert not _ask(home, foreign)
        assert _run(home, foreign) == {}
        assert foreign.get_runs_count() == MANY_RUNS + 2


def test_old_runs_go_but_not_those_that_an_asset_was_built_by(
    home: Path, instance: dg.DagsterInstance
) -> None:
    with (home / "ctx.toml").open("a", encoding="utf-8") as config:
        config.write("[retention]\nruns = 1\n")
    runs = [
        instance.add_run(dg.DagsterRun("other", run_id=f"{n:08x}-0000-4000-8000-000000000000"))
        for n in range(3)
    ]
    for run in runs:
        instance.report_run_failed(run, "test")
    built = {run.run_id for run in instance.get_runs(dg.RunsFilter(tags={BUILD_TAG: "in_process"}))}
    assert not _ask(home, instance)
    assert _run(home, instance) == {"runs_removed": 2}
    left = {run.run_id for run in instance.get_runs()}
    needed = {
        record.run_id
        for name in ("handbook", "notes")
        if (record := instance.get_latest_materialization_event(dg.AssetKey(["sources", name])))
        is not None
    }
    assert needed <= built & left
    assert runs[2].run_id in left


def test_many_old_runs_are_worth_a_run(home: Path, instance: dg.DagsterInstance) -> None:
    with (home / "ctx.toml").open("a", encoding="utf-8") as config:
        config.write("[retention]\nruns = 1\n")
    for run in [instance.add_run(dg.DagsterRun("other")) for _ in range(MANY_RUNS + 1)]:
        instance.report_run_failed(run, "test")
    assert _ask(home, instance)
    assert _run(home, instance) == {"runs_removed": MANY_RUNS}
    assert not _ask(home, instance)


def test_snapshots_go_when_a_time_is_set(home: Path, instance: dg.DagsterInstance) -> None:
    old = datetime.now(UTC) - timedelta(days=181)
    for number, at in enumerate((old, datetime.now(UTC))):
        with Workspace.open(home) as workspace:
            workspace.ledger.submit_snapshot(_snapshot(f"snap_{number}", at), durable=True)
    assert _run(home, instance) == {}
    with (home / "ctx.toml").open("a", encoding="utf-8") as config:
        config.write('[retention]\nsnapshots = "180d"\n')
    assert _run(home, instance) == {"snapshots_deleted": 1}
    with Workspace.open(home) as workspace:
        assert [kept.snapshot_id for kept in workspace.ledger.snapshots("acme")] == ["snap_1"]


def _snapshot(name: str, at: datetime) -> SnapshotRecord:
    empty = json.dumps({})
    return SnapshotRecord(
        snapshot_id=name, tenant="acme", principal="ana", created_at=at, run_id="r", turn_id="t",
        hash=name,
        snapshot_json=empty, pack_json=None, trace_json="[]", request_json=empty, status="ok",
    )  # fmt: skip


def test_old_observations_go_and_materialisations_stay(
    home: Path, instance: dg.DagsterInstance
) -> None:
    key = dg.AssetKey(["stages", "context_snapshots"])
    instance.report_runless_asset_event(dg.AssetObservation(asset_key=key))
    instance.report_runless_asset_event(dg.AssetMaterialization(asset_key=key))
    assert prune_events(instance, datetime.now(UTC) - timedelta(days=1)) == 0
    assert prune_events(instance, datetime.now(UTC) + timedelta(seconds=1)) == 1
    assert instance.fetch_observations(key, limit=5).records == []
    assert len(instance.fetch_materializations(key, limit=5).records) == 1


def test_a_partition_keeps_the_run_that_built_it(home: Path) -> None:
    with (home / "ctx.toml").open("a", encoding="utf-8") as config:
        config.write("[retention]\nruns = 1\n[usage]\nsince = 2026-11-01\n")
    from ctx_pipeline.orchestration.backfill import build_partitions

    build_partitions(home, "2026-11-01..2026-11-03", progress=False)
    build(home, select="sources/handbook", progress=False)
    report = build_partitions(home, "2026-11-01..2026-11-04", progress=False)
    assert (report.assets[0].built, report.assets[0].skipped) == (("2026-11-04",), 3)


@pytest.mark.parametrize("content", ["", "{}"])
def test_an_unreadable_pointer_keeps_artifacts_and_stops_nothing_else(
    home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setattr("ctx_pipeline.lifecycle.maintenance.MAX_FRAGMENTS", 1)
    with (home / "ctx.toml").open("a", encoding="utf-8") as config:
        config.write('[retention]\nsnapshots = "180d"\n')
    with Workspace.open(home) as workspace:
        old = _snapshot("snap_0", datetime.now(UTC) - timedelta(days=181))
        workspace.ledger.submit_snapshot(old, durable=True)
        workspace.layout.derived.mkdir(parents=True, exist_ok=True)
        workspace.layout.pointer.write_text(content, encoding="utf-8")
    assert _run(home, instance) == {
        "fragments_merged": 2,
        "problem": "corrupt",
        "snapshots_deleted": 1,
    }


def test_a_step_that_cannot_be_helped_fails_at_once_with_the_code_of_its_error(
    home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(workspace: Workspace) -> object:
        raise Corrupt("torn")

    monkeypatch.setattr("ctx_pipeline.lifecycle.maintenance.tidy", broken)
    job = make_definitions(home).resolve_job_def("maintain")
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    (failure,) = [event for event in result.all_node_events if event.is_step_failure]
    data = failure.step_failure_data.user_failure_data
    assert data is not None
    assert (failure.step_key, data.metadata["code"].value) == ("tidy_store", "corrupt")
    # One step's trouble does not keep the other from its work.
    assert [event.step_key for event in result.get_step_success_events()] == ["prune_history"]
