"""The graph shows what is served: a reading outside of a run, as by publishing, leaves no stage
unsynced.
"""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest

from ctx_pipeline import build
from ctx_pipeline.building.generation import current_generation
from ctx_pipeline.definitions import make_definitions
from ctx_pipeline.index.history import published_generation
from ctx_pipeline.publish import DefinitionFile, publish
from ctx_pipeline.resources import ContextProjectResource
from ctx_pipeline.sensors.superseded import superseded_versions
from ctx_pipeline.sources.units import reading_version
from ctx_pipeline.workspace import Workspace
from testing.artifacts import write_config

STAGE = dg.AssetKey(["stages", "discovered_items"])
REGISTRY = dg.AssetKey(["sources", "registry"])


def _definition(version: int) -> DefinitionFile:
    metric = {
        "name": "gmv",
        "version": version,
        "table": "orders",
        "expression": f"sum(a) + {version}",
    }
    document = {"metrics": [{**metric, "description": "成交总额"}]}
    return DefinitionFile("gmv.yaml", content=json.dumps(document, ensure_ascii=False).encode())


@pytest.fixture(scope="session")
def _read(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("agreement") / "shop"
    write_config(home, {"registry": {"kind": "semantic_registry", "path": "semantic"}})
    publish(home, [_definition(1)], build=False)
    build(home, progress=False)
    return home


def _unsynced(home: Path, instance: dg.DagsterInstance) -> list[str]:
    """What the web interface shows as unsynced; Dagster computes it in private classes alone."""
    graph = make_definitions(home).resolve_asset_graph()
    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    keys = [key for key in graph.toposorted_asset_keys if not graph.get(key).is_partitioned]
    return [key.to_user_string() for key in keys if resolver.get_status(key).value != "FRESH"]


def _tick(home: Path, instance: dg.DagsterInstance) -> dg.RunRequest | None:
    project = ContextProjectResource(home=str(home))
    with dg.build_sensor_context(instance=instance, resources={"ctx_project": project}) as context:
        result = superseded_versions(context)
    assert isinstance(result, dg.SensorResult)
    return result.run_requests[0] if result.run_requests else None


def _run(home: Path, instance: dg.DagsterInstance, keys: list[dg.AssetKey]) -> None:
    definitions = make_definitions(home)
    job = definitions.resolve_implicit_job_def_def_for_assets(keys)
    assert job is not None
    assert job.execute_in_process(instance=instance, asset_selection=keys).success


def _run_of(request: dg.RunRequest | None) -> list[dg.AssetKey]:
    assert request is not None
    return list(request.asset_selection or ())


def test_the_run_after_a_publish_without_a_build_leaves_nothing_unsynced(
    home: Path, instance: dg.DagsterInstance
) -> None:
    publish(home, [_definition(2)], build=False)
    keys = _run_of(_tick(home, instance))
    assert REGISTRY in keys
    _run(home, instance, keys)
    assert _unsynced(home, instance) == []
    assert _tick(home, instance) is None


def test_a_source_that_is_read_after_the_stages_were_built_from_it_is_caught_up_with(
    home: Path, instance: dg.DagsterInstance
) -> None:
    publish(home, [_definition(2)], build=False)
    stages = [key for key in _run_of(_tick(home, instance)) if key != REGISTRY]
    _run(home, instance, stages)
    _run(home, instance, [REGISTRY])
    with Workspace.open(home) as workspace:
        assert current_generation(workspace) == published_generation(workspace.layout)
    assert _unsynced(home, instance)[0] == STAGE.to_user_string()
    keys = _run_of(_tick(home, instance))
    assert (STAGE in keys, REGISTRY in keys) == (True, False)
    _run(home, instance, keys)
    assert _unsynced(home, instance) == []
    assert _tick(home, instance) is None


def test_a_release_that_reads_otherwise_is_shown_until_its_sources_are_read_again(
    home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _unsynced(home, instance) == []
    reading_version.cache_clear()
    monkeypatch.setattr("ctx_pipeline.sources.units.version", lambda name: f"{name} of tomorrow")
    try:
        assert "sources/registry" in _unsynced(home, instance)
        build(home, select="sources/registry+", progress=False)
        assert _unsynced(home, instance) == []
    finally:
        reading_version.cache_clear()
