"""What a source asset does when its source cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ctx_pipeline.assets import sources as assets
from ctx_pipeline.config.settings import SourceConfig
from ctx_pipeline.definitions import make_definitions
from ctx_pipeline.errors import CtxError, InvalidRequest, Unavailable
from ctx_pipeline.orchestration.build import open_instance
from ctx_pipeline.workspace import Workspace

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"
PROJECT = f"""\
[project]
name = "shop"
tenant = "acme"
[[sources]]
name = "far"
kind = "sql"
url = "{NOWHERE}"
sensitivity = "internal"
groups = ["*"]
[[sources]]
name = "near"
kind = "documents"
path = "documents"
sensitivity = "internal"
groups = ["*"]
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ctx.toml").write_text(PROJECT, encoding="utf-8")
    monkeypatch.setattr(
        "ctx_pipeline.assets.sources.NETWORK_RETRIES", dg.RetryPolicy(max_retries=2, delay=0)
    )
    return tmp_path


def _read(home: Path, source: str) -> tuple[dg.ExecuteInProcessResult, int]:
    """Read one source, and return how often that was tried."""
    job = make_definitions(home).resolve_job_def("build_all")
    with open_instance(home) as instance:
        result = job.execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey(["sources", source])],
            raise_on_error=False,
        )
    kinds = [event.event_type_value for event in result.all_events]
    return result, 1 + kinds.count("STEP_RESTARTED")


def test_a_source_that_cannot_be_reached_is_tried_again_and_then_reported(home: Path) -> None:
    pytest.importorskip("psycopg")
    result, attempts = _read(home, "far")
    assert (result.success, attempts) == (False, 3)
    checks = {check.check_name: check.passed for check in result.get_asset_check_evaluations()}
    assert not checks["every_file_loaded"]


def test_a_folder_that_is_not_there_is_reported_at_once(home: Path) -> None:
    result, attempts = _read(home, "near")
    assert (result.success, attempts) == (False, 1)


@pytest.mark.parametrize(
    ("source", "raised", "attempts"),
    [
        ("far", Unavailable("later"), 3),
        ("far", InvalidRequest("never"), 1),
        ("near", Unavailable("the store is busy"), 1),
    ],
)
def test_an_error_is_tried_again_only_where_that_can_help(
    home: Path, monkeypatch: pytest.MonkeyPatch, source: str, raised: CtxError, attempts: int
) -> None:
    def broken(workspace: Workspace, name: str) -> object:
        raise raised

    monkeypatch.setattr(assets, "refresh_source", broken)
    result, tried = _read(home, source)
    assert (result.success, tried) == (False, attempts)
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    data: Any = failure.step_failure_data.user_failure_data
    assert data.metadata["code"].value == raised.stable_code


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"kind": "sql", "url": NOWHERE}, True),
        ({"kind": "sql", "url": "sqlite:///a.db"}, False),
        ({"kind": "web", "url": "https://example.com"}, True),
        ({"kind": "documents", "path": "s3://bucket/docs"}, True),
        ({"kind": "documents", "path": "docs"}, False),
        ({"kind": "documents", "path": "zip://docs::a.zip"}, False),
        ({"kind": "documents", "path": "zip://docs::s3://bucket/a.zip"}, True),
    ],
)
def test_sources_elsewhere_are_known(settings: dict[str, str], expected: bool) -> None:
    from ctx_pipeline.assets.sources import is_remote

    assert is_remote(SourceConfig.model_validate({"name": "s", **settings})) is expected
