"""Maintenance does what is due, a part at a time, and takes away nothing that anybody needs."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from ctx_pipeline import build
from ctx_pipeline.building.pipeline import Pipeline
from ctx_pipeline.index.artifact import Layout
from ctx_pipeline.ledger import SnapshotRecord
from ctx_pipeline.orchestration.build import BUILD_TAG, open_instance
from ctx_pipeline.resources import ContextProjectResource, build_lock
from ctx_pipeline.resources.retention import prune_events
from ctx_pipeline.sensors.maintenance import maintenance
from testing.artifacts import build_index, make_item, store_items, write_config


def _tick(home: Path, instance: dg.DagsterInstance) -> str:
    project = ContextProjectResource(home=str(home))
    with dg.build_sensor_context(instance=instance, resources={"ctx_project": project}) as context:
        return str(maintenance(context).skip_message)


def test_a_tidy_project_has_nothing_due(home: Path, instance: dg.DagsterInstance) -> None:
    assert _tick(home, instance) == "nothing was due"


def test_a_fragmented_store_is_merged_but_not_under_a_build(
    home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx_pipeline.lifecycle.maintenance.MAX_FRAGMENTS", 1)
    with build_lock(home, 0.0):
        assert "left alone (build_busy)" in _tick(home, instance)
    assert "2 fragments of the store merged" in _tick(home, instance)
    with Pipeline(home) as pipeline:
        assert pipeline.store.fragments() == 1
    assert _tick(home, instance) == "nothing was due"


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
        assert (
            _tick(tmp_path, instance)
            == "2 old artifacts removed; 3 leftovers of dead builds removed"
        )
    assert [path.name for path in layout.artifacts.iterdir()] == [served[:32]]
    assert young.exists()
    assert not any(path.exists() for path in dead)


def test_runs_of_other_peoples_instances_are_left_alone(home: Path) -> None:
    with dg.DagsterInstance.ephemeral() as foreign:
        assert "not the project's own" in _tick(home, foreign)


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
    assert "2 old runs removed" in _tick(home, instance)
    left = {run.run_id for run in instance.get_runs()}
    needed = {
        record.run_id
        for name in ("handbook", "notes")
        if (record := instance.get_latest_materialization_event(dg.AssetKey(["sources", name])))
        is not None
    }
    assert needed <= built & left
    assert runs[2].run_id in left


def test_snapshots_go_when_a_time_is_set(home: Path, instance: dg.DagsterInstance) -> None:
    old = datetime.now(UTC) - timedelta(days=181)
    for number, at in enumerate((old, datetime.now(UTC))):
        with Pipeline(home) as pipeline:
            pipeline.ledger.submit_snapshot(_snapshot(f"snap_{number}", at), durable=True)
    assert _tick(home, instance) == "nothing was due"
    with (home / "ctx.toml").open("a", encoding="utf-8") as config:
        config.write('[retention]\nsnapshots = "180d"\n')
    assert _tick(home, instance) == "1 snapshots past their time deleted"
    with Pipeline(home) as pipeline:
        assert [kept.snapshot_id for kept in pipeline.ledger.snapshots("acme")] == ["snap_1"]


def _snapshot(name: str, at: datetime) -> SnapshotRecord:
    empty = json.dumps({})
    return SnapshotRecord(
        snapshot_id=name, tenant="acme", principal="ana", created_at=at, run_id="r", turn_id="t", hash=name,
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
    with Pipeline(home) as pipeline:
        old = _snapshot("snap_0", datetime.now(UTC) - timedelta(days=181))
        pipeline.ledger.submit_snapshot(old, durable=True)
        pipeline.layout.derived.mkdir(parents=True, exist_ok=True)
        pipeline.layout.pointer.write_text(content, encoding="utf-8")
    done = _tick(home, instance)
    assert "2 fragments of the store merged; artifacts were left alone" in done
    assert "1 snapshots past their time deleted" in done
