"""A context project in somebody's own code location, mounted by YAML and loaded by Dagster's own
loader.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from ctx_pipeline.errors import ConfigError
from ctx_pipeline.orchestration.component import folder_of

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = """\
[project]
name = "shop"
tenant = "acme"
[[sources]]
name = "handbook"
kind = "documents"
path = "documents"
sensitivity = "internal"
groups = ["*"]
"""
COMPONENT = (REPOSITORY / "docs" / "src" / "component.yaml").read_text(encoding="utf-8")
OWN = """\
import dagster as dg


@dg.asset(group_name="sources", automation_condition=dg.AutomationCondition.eager())
def orders() -> None:
    raise ValueError("not of the context project")


@dg.definitions
def defs() -> dg.Definitions:
    return dg.Definitions(
        assets=[orders],
        resources={"project": "theirs", "session": "theirs"},
        executor=dg.multiprocess_executor,
        sensors=[dg.AutomationConditionSensorDefinition("theirs", target=[orders])],
    )
"""


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a team's own project, with assets beside the component."""
    (tmp_path / "shop" / "documents").mkdir(parents=True)
    (tmp_path / "shop" / "ctx.toml").write_text(PROJECT, encoding="utf-8")
    document = tmp_path / "shop" / "documents" / "refunds.md"
    document.write_text("# Refunds\nWithin 30 days. 三十天内。\n", encoding="utf-8")
    here = tmp_path / "team_location" / "defs"
    (here / "context").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "team_location"\n',
        encoding="utf-8",
    )
    for folder in (here.parent, here):
        (folder / "__init__.py").write_text("", encoding="utf-8")
    (here / "context" / "defs.yaml").write_text(COMPONENT, encoding="utf-8")
    (here / "own.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "team_location"]:
        del sys.modules[name]


def test_a_project_is_mounted_by_yaml_and_its_source_is_read(team: Path) -> None:
    location = dg.load_from_defs_folder(path_within_project=team)
    dg.Definitions.validate_loadable(location)
    source = dg.AssetKey(["sources", "handbook"])
    job = location.resolve_job_def("build_all")
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(instance=instance, asset_selection=[source])
        event = instance.get_latest_materialization_event(source)
    assert result.success
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.metadata["dagster/row_count"].value == 1
    assert (team / "shop" / ".ctx" / "state" / "store").is_dir()


def test_a_mounted_project_leaves_the_rest_of_the_code_location_alone(team: Path) -> None:
    location = dg.load_from_defs_folder(path_within_project=team)
    assert location.executor is dg.multiprocess_executor
    assert not location.loggers
    assert {"project", "session"} <= set(location.resources or ())
    graph, orders = location.resolve_asset_graph(), dg.AssetKey("orders")
    assert graph.has(orders)
    built = location.resolve_job_def("build_all").asset_layer.executable_asset_keys
    assert dg.AssetKey(["stages", "assembled_items"]) in built
    assert orders not in built
    automation = location.get_repository_def().get_sensor_def("freshness_automation")
    assert automation.asset_selection is not None
    assert orders not in automation.asset_selection.resolve(graph)


def test_a_folder_without_a_project_is_refused_by_its_name(team: Path) -> None:
    (team / "shop" / "ctx.toml").unlink()
    # Dagster says in its own words where the component stands.
    with pytest.raises(Exception, match="ContextProjectComponent") as refused:
        dg.load_from_defs_folder(path_within_project=team)
    cause: BaseException | None = refused.value
    while cause is not None and not isinstance(cause, ConfigError):
        cause = cause.__cause__
    assert cause is not None
    assert cause.stable_code == "no_project"


def test_a_relative_folder_starts_at_the_file_of_the_component(tmp_path: Path) -> None:
    (tmp_path / "defs.yaml").touch()
    assert folder_of("shop", tmp_path) == tmp_path / "shop"
    assert folder_of("shop", tmp_path / "defs.yaml") == tmp_path / "shop"
    assert folder_of(str(tmp_path / "other"), tmp_path) == tmp_path / "other"


def test_dg_finds_the_component_by_the_entry_point_of_the_package(tmp_path: Path) -> None:
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    points = tomllib.loads(text)["project"]["entry-points"]["dagster_dg_cli.registry_modules"]
    # As an installer writes them, so that the test needs no installation of this very tree.
    installed = tmp_path / "ctx_pipeline_of_this_tree-0.dist-info"
    installed.mkdir()
    lines = [f"{name} = {module}" for name, module in points.items()]
    (installed / "entry_points.txt").write_text(
        "\n".join(["[dagster_dg_cli.registry_modules]", *lines, ""]), encoding="utf-8"
    )
    (installed / "METADATA").write_text("Name: ctx_pipeline_of_this_tree\nVersion: 0\n", "utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(tmp_path), str(REPOSITORY))),
        "HOME": str(tmp_path),
        # Dagster counts its users unless it runs in a gate.
        "CI": "true",
    }
    command = [sys.executable, "-m", "dagster_dg_cli.cli", "list", "components", "--json"]
    found = subprocess.run(
        command, capture_output=True, check=True, cwd=tmp_path, env=environment, timeout=55
    )
    listed = {item["key"]: item["summary"] for item in json.loads(found.stdout)["items"]}
    assert "Mounts a context project" in listed["ctx_pipeline.ContextProjectComponent"]


def test_the_name_is_known_without_loading_dagster() -> None:
    script = (
        "import sys, ctx_pipeline\n"
        "assert 'ContextProjectComponent' in dir(ctx_pipeline)\n"
        "import ctx_pipeline.project\n"
        "assert 'dagster' not in sys.modules\n"
        "ctx_pipeline.ContextProjectComponent\n"
        "assert 'dagster' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=REPOSITORY, timeout=55)
