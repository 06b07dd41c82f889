"""What the sensor of evictions shows in the graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ctx_pipeline import ContextRequest, Task
from ctx_pipeline.contracts import Lifecycle, LifecycleEvent
from ctx_pipeline.definitions import make_definitions
from ctx_pipeline.index.artifact import Layout
from ctx_pipeline.resources import ContextProjectResource
from ctx_pipeline.sensors.evictions import evictions
from ctx_pipeline.text import reference
from testing.artifacts import (
    ANA,
    NOW,
    append_overlay,
    make_item,
    make_project,
    open_project,
    open_workspace,
    overlay,
)


def _look(home: Path, cursor: str | None = None) -> dg.SensorResult | dg.SkipReason:
    project = ContextProjectResource(home=str(home))
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(
            instance=instance, cursor=cursor, resources={"ctx_project": project}
        ) as context,
    ):
        result = evictions(context)
    assert isinstance(result, (dg.SensorResult, dg.SkipReason))
    return result


def _tick(home: Path, cursor: str | None = None) -> dg.SensorResult:
    result = _look(home, cursor)
    assert isinstance(result, dg.SensorResult)
    return result


def _run(home: Path, instance: dg.DagsterInstance) -> dict[str, Any]:
    """Run the job, and return the numbers that it tells unless they are 0."""
    job = make_definitions(home).resolve_job_def("record_evictions")
    result = job.execute_in_process(instance=instance)
    (output,) = [event for event in result.all_node_events if event.is_successful_output]
    told = {name: value.value for name, value in output.step_output_data.metadata.items()}
    return {name: number for name, number in told.items() if number}


def _observed(instance: dg.DagsterInstance) -> dg.AssetObservation:
    key = dg.AssetKey(["stages", "context_snapshots"])
    (record,) = instance.fetch_observations(key, limit=5).records
    assert record.asset_observation is not None
    return record.asset_observation


def _created(item_id: str) -> LifecycleEvent:
    return LifecycleEvent(
        tenant="acme",
        item_id=item_id,
        version="1",
        from_state=None,
        to_state=Lifecycle.CREATED,
        reason="test",
        at=NOW,
        actor="test",
    )


def test_recalls_are_observed_once_by_id_and_forgotten_ids_are_only_counted(tmp_path: Path) -> None:
    items = [
        make_item(name, f"退款 {name}", title=f"title of {name}")
        for name in ("refunds", "shipping", "erased")
    ]
    home = make_project(tmp_path, items, head="[policy]\nmin_relevance = 0.0")
    with open_workspace(home) as workspace:
        workspace.ledger.append_events([_created(item.item_id) for item in items])
    with open_project(home) as project:
        request = ContextRequest(task=Task(text="退款"), identity=ANA)
        shown = project.assemble(request, at=NOW, durable=True).snapshot_id
    codes = ("retired", "quarantined", "forgotten")
    append_overlay(
        home, *(overlay(code, item.item_id) for code, item in zip(codes, items, strict=True))
    )
    first, again = _tick(home), _tick(home)
    (request,) = first.run_requests or []
    assert [asked.run_key for asked in again.run_requests or []] == [request.run_key]
    with dg.DagsterInstance.ephemeral() as instance:
        told = _run(home, instance)
        observed = _observed(instance)
    assert told == {"versions": 3, "lifecycle_events": 5, "recall_notices": 3}
    metadata = {name: value.value for name, value in observed.metadata.items()}
    assert (metadata["recall_notices"], metadata["not_named"], metadata["snapshots"]) == (3, 1, 3)
    table = str(metadata["recalls"])
    assert f"| {reference('document:handbook/refunds')} | 1 | retired | 1 | {shown} |" in table
    assert "handbook" not in table
    assert "erased" not in table
    assert "title of" not in table
    with dg.DagsterInstance.ephemeral() as instance:
        assert _run(home, instance) == {}
    quiet = _tick(home)
    for cursor in (quiet.cursor, None):
        again = _tick(home, cursor)
        assert again.run_requests == []
        assert "nothing new" in str(again.skip_reason)


def test_the_same_change_after_another_one_is_a_run_of_its_own(tmp_path: Path) -> None:
    home = make_project(tmp_path, [make_item("refunds", "退款")])
    keys: list[str | None] = []
    with open_workspace(home) as workspace:
        workspace.ledger.append_events([_created("document:handbook/refunds")])
    for code in ("retired", "restored", "retired"):
        append_overlay(home, overlay(code, "document:handbook/refunds"))
        (request,) = _tick(home).run_requests or []
        keys.append(request.run_key)
        with dg.DagsterInstance.ephemeral() as instance:
            assert _run(home, instance)["versions"] == 1
    assert len(set(keys)) == 3


def test_before_the_first_build_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    assert isinstance(_look(tmp_path), dg.SkipReason)
    (tmp_path / "ctx.toml").write_text('[project]\nname = "x"\n', encoding="utf-8")
    assert _tick(tmp_path).run_requests == []
    with dg.DagsterInstance.ephemeral() as instance:
        assert _run(tmp_path, instance) == {}


@pytest.mark.parametrize("damage", ["pointer", "part"])
def test_a_damaged_artifact_is_a_reason_to_skip_and_not_a_failed_tick(
    tmp_path: Path, damage: str
) -> None:
    home = make_project(tmp_path, [make_item("refunds", "退款")])
    pointer = Layout(home).pointer
    if damage == "pointer":
        pointer.write_text("{}", encoding="utf-8")
    else:
        part = (
            Layout(home).artifacts / json.loads(pointer.read_text())["artifact"] / "filtered.arrow"
        )
        part.write_bytes(part.read_bytes()[:100])
    skipped = _look(home)
    assert isinstance(skipped, dg.SkipReason)
    assert "(corrupt)" in str(skipped.skip_message)


def test_a_version_whose_log_was_never_begun_asks_for_no_run(tmp_path: Path) -> None:
    home = make_project(tmp_path, [make_item("refunds", "退款")])
    append_overlay(home, overlay("retired", "document:handbook/refunds"))
    assert _tick(home).run_requests == []
