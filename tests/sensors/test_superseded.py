"""The sensor of the stages takes an artifact that cannot be served for none,
and its run mends it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from ctx_pipeline.definitions import make_definitions
from ctx_pipeline.index.artifact import Layout
from ctx_pipeline.resources import ContextProjectResource
from ctx_pipeline.sensors.superseded import GENERATION_TAG, superseded_versions


def _tick(home: Path, instance: dg.DagsterInstance) -> dg.SensorResult:
    project = ContextProjectResource(home=str(home))
    with dg.build_sensor_context(instance=instance, resources={"ctx_project": project}) as context:
        result = superseded_versions(context)
    assert isinstance(result, dg.SensorResult)
    return result


def _run(home: Path, instance: dg.DagsterInstance) -> None:
    """Run what the sensor asks for."""
    (request,) = _tick(home, instance).run_requests or []
    definitions = make_definitions(home)
    keys = dg.AssetSelection.groups("stages").resolve(definitions.resolve_asset_graph())
    job = definitions.resolve_implicit_job_def_def_for_assets(list(keys))
    assert job is not None
    assert job.execute_in_process(
        instance=instance, asset_selection=list(keys), tags=request.tags
    ).success


def _served(home: Path) -> Path:
    layout = Layout(home)
    return layout.artifacts / json.loads(layout.pointer.read_text(encoding="utf-8"))["artifact"]


DAMAGES: dict[str, Callable[[Path], object]] = {
    "an empty pointer": lambda home: Layout(home).pointer.write_text("", encoding="utf-8"),
    "a pointer of nothing": lambda home: Layout(home).pointer.write_text("{}", encoding="utf-8"),
    "no manifest": lambda home: (_served(home) / "manifest.json").unlink(),
    "a lost part": lambda home: (_served(home) / "filtered.arrow").unlink(),
    "no full-text index": lambda home: shutil.rmtree(_served(home) / "lexical"),
    "no artifact": lambda home: shutil.rmtree(_served(home)),
}


def test_what_cannot_be_served_counts_as_not_built_within_the_limit_of_attempts(
    home: Path, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    _run(home, instance)
    assert not _tick(home, instance).run_requests
    derived, whole = Layout(home).derived, tmp_path / "whole"
    shutil.copytree(derived, whole)
    tags: dict[str, str] = {}
    for damage in DAMAGES.values():
        damage(home)
        (request,) = _tick(home, instance).run_requests or []
        tags = {GENERATION_TAG: request.tags[GENERATION_TAG]}
        shutil.rmtree(derived)
        shutil.copytree(whole, derived)
    assert not _tick(home, instance).run_requests
    for number in range(2):
        run = dg.DagsterRun("other", run_id=f"{number:08x}-0000-4000-8000-000000000000", tags=tags)
        instance.report_run_failed(instance.add_run(run), "test")
    Layout(home).pointer.write_text("{}", encoding="utf-8")
    assert "3 runs did not publish" in str(_tick(home, instance).skip_reason)


@pytest.mark.parametrize("damage", ["an empty pointer", "a lost part"])
def test_the_run_mends_it(home: Path, instance: dg.DagsterInstance, damage: str) -> None:
    _run(home, instance)
    served = _served(home).name
    DAMAGES[damage](home)
    _run(home, instance)
    assert _served(home).name == served
    assert not _tick(home, instance).run_requests
