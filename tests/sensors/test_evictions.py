"""What the sensor of evictions shows in the graph."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest

from ctx_pipeline import ContextRequest, Task
from ctx_pipeline.contracts import Lifecycle, LifecycleEvent
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
    open_pipeline,
    open_project,
    overlay,
)


def _tick(home: Path, cursor: str | None = None) -> dg.SensorResult | dg.SkipReason:
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


def test_recalls_are_observed_once_by_id_and_forgotten_ids_are_only_counted(tmp_path: Path) -> None:
    items = [
        make_item(name, f"退款 {name}", title=f"title of {name}")
        for name in ("refunds", "shipping", "erased")
    ]
    home = make_project(tmp_path, items, head="[policy]\nmin_relevance = 0.0")
    with open_pipeline(home) as pipeline:
        pipeline.ledger.append_events(
            [
                LifecycleEvent(
                    tenant="acme", item_id=item.item_id, version="1", from_state=None, to_state=Lifecycle.CREATED,
                    reason="test", at=NOW, actor="test",
                )
                for item in items
            ]
        )  # fmt: skip
    with open_project(home) as project:
        request = ContextRequest(task=Task(text="退款"), identity=ANA)
        shown = project.assemble(request, at=NOW, durable=True).snapshot_id
    codes = ("retired", "quarantined", "forgotten")
    append_overlay(
        home, *(overlay(code, item.item_id) for code, item in zip(codes, items, strict=True))
    )
    first = _tick(home)
    assert isinstance(first, dg.SensorResult)
    (observed,) = first.asset_events
    assert observed.asset_key == dg.AssetKey(["stages", "context_snapshots"])
    metadata = {name: value.value for name, value in observed.metadata.items()}
    assert (metadata["recall_notices"], metadata["not_named"], metadata["snapshots"]) == (3, 1, 3)
    table = str(metadata["recalls"])
    assert f"| {reference('document:handbook/refunds')} | 1 | retired | 1 | {shown} |" in table
    assert "handbook" not in table
    assert "erased" not in table
    assert "title of" not in table
    for cursor in (first.cursor, None):
        again = _tick(home, cursor)
        assert isinstance(again, dg.SensorResult)
        assert (again.asset_events, "nothing new" in str(again.skip_reason)) == ([], True)


def test_before_the_first_build_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    assert isinstance(_tick(tmp_path), dg.SkipReason)
    (tmp_path / "ctx.toml").write_text('[project]\nname = "x"\n', encoding="utf-8")
    result = _tick(tmp_path)
    assert isinstance(result, dg.SensorResult)
    assert result.asset_events == []


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
    skipped = _tick(home)
    assert isinstance(skipped, dg.SkipReason)
    assert "(corrupt)" in str(skipped.skip_message)
