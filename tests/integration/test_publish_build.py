"""Publishing through real Dagster: the build that follows, and the check that stands on the
registry's asset.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ctx_pipeline import build
from ctx_pipeline.orchestration.build import open_instance
from ctx_pipeline.orchestration.publish import DefinitionFile, publish
from ctx_pipeline.resources import build_lock
from testing.artifacts import write_config

GMV = {
    "name": "gmv",
    "version": 1,
    "table": "orders",
    "expression": "sum(amount)",
    "description": "成交总额 secret-word",
}


def file(name: str, *metrics: dict[str, Any]) -> DefinitionFile:
    return DefinitionFile(
        name, content=json.dumps({"metrics": metrics}, ensure_ascii=False).encode()
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("publish") / "shop"
    registry = {"kind": "semantic_registry", "path": "semantic"}
    write_config(
        folder,
        {"registry": registry, "warehouse": {"kind": "schema_metadata", "path": "orders.csv"}},
    )
    (folder / "orders.csv").write_text("id,amount\n1,2\n", encoding="utf-8")
    return folder


def evaluation(home: Path) -> Any:
    key = dg.AssetCheckKey(dg.AssetKey(["sources", "registry"]), "definitions_are_valid")
    with open_instance(home) as instance:
        (record,) = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
        assert record.event is not None
        return record.event.dagster_event.asset_check_evaluation_data  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.slow
def test_publishing_builds_what_depends_on_the_registry_and_the_asset_shows_the_check(home: Path):
    build(home, select="sources/warehouse", progress=False)
    report = publish(home, [file("gmv.yaml", GMV)])
    assert report.served
    assert report.build is not None
    assert report.build.artifact is not None
    assert [source.name for source in report.build.sources] == ["registry"]
    found = evaluation(home)
    assert (found.passed, found.severity) == (True, dg.AssetCheckSeverity.ERROR)
    assert found.metadata["definitions"].value == 1

    with build_lock(home, 1.0):
        two = [file("gmv.yaml", {**GMV, "version": 2, "expression": "max(amount)"})]
        busy = publish(home, two, lock_seconds=0.1)
    assert (busy.published, busy.served, busy.build) == (True, False, None)
    assert "another build runs" in busy.note

    (home / "semantic" / "bad.yaml").write_text(
        json.dumps({"metrics": [{**GMV, "name": "bad", "expression": "sum(secret_amount)"}]}),
        encoding="utf-8",
    )
    built = build(home, progress=False)
    assert built.artifact is not None, "the check blocks nothing"
    found = evaluation(home)
    assert (found.passed, found.metadata["errors"].value) == (False, 1)
    assert "| error | unknown_column | semantic/bad.yaml | 1 |" in found.metadata["findings"].value
    assert "secret" not in repr(found.metadata)
