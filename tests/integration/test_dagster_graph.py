"""The asset graph, without running it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from ctx_pipeline.definitions import NO_PROJECT, defs, make_definitions
from ctx_pipeline.orchestration.instance import INSTANCE_TEMPLATE, write_instance

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
freshness = "48h"
owner = "Docs Team"
when_to_load = "on_match"
[[sources]]
name = "notes"
kind = "memories"
path = "notes.jsonl"
sensitivity = "internal"
groups = ["*"]
freshness = {warn = "1h", fail = "2h"}
owner = "ana@example.com"
[[sources]]
name = "rules"
kind = "instructions"
path = "AGENTS.md"
sensitivity = "internal"
groups = ["*"]
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "ctx.toml").write_text(PROJECT, encoding="utf-8")
    return tmp_path


def test_the_asset_graph_has_the_shape_we_reviewed(home: Path) -> None:
    sources = "sources/handbook sources/notes sources/rules"
    assert _rows(make_definitions(home)) == [
        ("sources/handbook", "", "sources", "documents lancedb", "team:docs-team", "36h 48h"),
        ("sources/notes", "", "sources", "lancedb memories", "ana@example.com", "1h 2h"),
        ("sources/rules", "", "sources", "instructions lancedb", "", ""),
        (
            "stages/discovered_items",
            sources,
            "stages",
            "arrow lancedb python",
            "team:context-platform",
            "1h 2h",
        ),
        ("stages/filtered_items", "stages/discovered_items", "stages", "arrow python", *_STAGE),
        ("stages/ranked_items", "stages/discovered_items", "stages", "arrow python", *_STAGE),
        ("stages/transformed_items", "stages/discovered_items", "stages", "arrow python", *_STAGE),
        (
            "stages/budgeted_items",
            "stages/transformed_items",
            "stages",
            "arrow python tiktoken",
            *_STAGE,
        ),
        (
            "stages/assembled_items",
            "stages/budgeted_items stages/discovered_items "
            "stages/filtered_items stages/ranked_items "
            "stages/transformed_items",
            "stages",
            "arrow python",
            *_STAGE,
        ),
        (
            "stages/context_snapshots",
            "stages/assembled_items usage/daily_exposure",
            "stages",
            "arrow python sqlite",
            *_STAGE,
        ),
        ("usage/daily_exposure", "", "usage", "arrow python", "team:context-platform", ""),
    ]


_STAGE = ("team:context-platform", "1h 2h")


def _rows(definitions: dg.Definitions) -> list[tuple[str, str, str, str, str, str]]:
    graph = definitions.resolve_asset_graph()
    rows: list[tuple[str, str, str, str, str, str]] = []
    for key in graph.toposorted_asset_keys:
        node = graph.get(key)
        window: Any = node.freshness_policy
        rows.append(
            (
                key.to_user_string(),
                " ".join(sorted(parent.to_user_string() for parent in node.parent_keys)),
                str(node.group_name),
                " ".join(sorted(node.kinds)),
                " ".join(sorted(node.owners or ())),
                "" if window is None else _hours(window),
            )
        )
    return sorted(rows, key=lambda row: (row[2], _ORDER.index(row[0])))


_ORDER = (
    *("sources/handbook", "sources/notes", "sources/rules"),
    *(
        "stages/discovered_items",
        "stages/filtered_items",
        "stages/ranked_items",
        "stages/transformed_items",
    ),
    *("stages/budgeted_items", "stages/assembled_items", "stages/context_snapshots"),
    "usage/daily_exposure",
)


def _hours(window: Any) -> str:
    limits = (window.warn_window, window.fail_window)
    return " ".join(f"{limit.to_timedelta().total_seconds() / 3600:g}h" for limit in limits)


def test_every_asset_says_what_it_is_for_and_which_code_wrote_it(home: Path) -> None:
    graph = make_definitions(home).resolve_asset_graph()
    for key in graph.toposorted_asset_keys:
        node = graph.get(key)
        assert len(node.description or "") > 100, key
        assert node.automation_condition is not None, key
        assert node.code_version, key


def test_writers_of_the_store_and_of_the_pointer_take_a_pool(home: Path) -> None:
    graph = make_definitions(home).resolve_asset_graph()
    pools = {key.to_user_string(): graph.get(key).pools for key in graph.toposorted_asset_keys}
    assert {name: found for name, found in pools.items() if found} == {
        "sources/handbook": {"ctx_store"},
        "sources/notes": {"ctx_store"},
        "sources/rules": {"ctx_store"},
        "stages/discovered_items": {"ctx_store"},
        "stages/assembled_items": {"ctx_artifact"},
    }


def test_jobs_sensors_and_schedules_have_the_status_we_reviewed(home: Path) -> None:
    repository = make_definitions(home).get_repository_def()
    jobs = {job.name for job in repository.get_all_jobs() if not job.name.startswith("__")}
    assert jobs == {"build_all", "assemble_context_job", "maintain", "record_evictions"}
    sensors = {sensor.name: sensor.default_status.value for sensor in repository.sensor_defs}
    names = (
        "evictions",
        "maintenance",
        "run_failed",
        "source_changes",
        "superseded_versions",
        "freshness_automation",
    )
    assert sensors == dict.fromkeys(names, "RUNNING")
    schedules = {
        schedule.name: schedule.default_status.value for schedule in repository.schedule_defs
    }
    assert schedules == {
        "build_all_daily": "STOPPED",
        "maintain_daily": "RUNNING",
        "record_evictions_daily": "RUNNING",
    }
    assert repository.get_sensor_def("superseded_versions").minimum_interval_seconds == 30


def test_every_job_says_what_it_does_and_is_tagged_with_its_kind_of_work(home: Path) -> None:
    repository = make_definitions(home).get_repository_def()
    jobs = {job.name: job for job in repository.get_all_jobs() if not job.name.startswith("__")}
    assert {name: job.tags["ctx/kind"] for name, job in jobs.items()} == {
        "build_all": "build",
        "assemble_context_job": "assemble",
        "maintain": "maintenance",
        "record_evictions": "evictions",
    }
    for job in jobs.values():
        assert len(job.description or "") > 50, job.name
    for each in (*repository.schedule_defs, *repository.sensor_defs):
        assert len(each.description or "") > 50, each.name


def test_the_code_location_loads_without_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CTX_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    empty = defs()
    dg.Definitions.validate_loadable(empty)
    groups = {node.group_name for node in empty.resolve_asset_graph().asset_nodes}
    assert groups == {"stages", "usage"}
    assert empty.resolve_job_def("build_all").description == NO_PROJECT


def test_the_code_location_reads_the_project_that_ctx_home_names(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTX_HOME", str(home))
    assert dg.AssetKey(["sources", "handbook"]) in set(
        defs().resolve_asset_graph().get_all_asset_keys()
    )


def test_a_source_that_never_was_read_is_read_and_a_failing_one_is_tried_once_an_hour(
    home: Path,
) -> None:
    definitions = make_definitions(home)
    start = datetime(2026, 11, 30, 9, 30, tzinfo=UTC)
    sources = ["sources/handbook", "sources/notes", "sources/rules"]
    wanted: list[list[str]] = []
    cursor = None
    with dg.DagsterInstance.ephemeral() as instance:
        for minutes in (0, 1, 29, 31, 32):
            result = dg.evaluate_automation_conditions(
                defs=definitions,
                instance=instance,
                asset_selection=dg.AssetSelection.groups("sources", "stages"),
                evaluation_time=start + timedelta(minutes=minutes),
                cursor=cursor,
            )
            cursor = result.cursor
            wanted.append(
                sorted(
                    found.key.to_user_string() for found in result.results if found.true_subset.size
                )
            )
    assert wanted == [sources, [], [], sources, []]


def test_an_equal_data_version_of_a_source_rebuilds_nothing(home: Path) -> None:
    definitions = make_definitions(home)
    cursor = None
    with dg.DagsterInstance.ephemeral() as instance:
        for _ in range(3):
            for key in definitions.resolve_asset_graph().get_all_asset_keys():
                tags = {"dagster/data_version": "same"}
                instance.report_runless_asset_event(
                    dg.AssetMaterialization(asset_key=key, tags=tags)
                )
            result = dg.evaluate_automation_conditions(
                defs=definitions,
                instance=instance,
                asset_selection=dg.AssetSelection.groups("sources", "stages"),
                cursor=cursor,
            )
            cursor = result.cursor
            assert result.total_requested == 0


def test_finished_days_are_rolled_up_once_and_today_is_not(home: Path) -> None:
    with (home / "ctx.toml").open("a", encoding="utf-8") as config:
        config.write("[usage]\nsince = 2026-11-01\n")
    definitions = make_definitions(home)
    usage = dg.AssetSelection.groups("usage")
    now = datetime(2026, 11, 30, 9, 30, tzinfo=UTC)
    with dg.DagsterInstance.ephemeral() as instance:
        first = dg.evaluate_automation_conditions(
            defs=definitions, instance=instance, asset_selection=usage, evaluation_time=now
        )
        (found,) = first.results
        days = sorted(found.true_subset.expensively_compute_partition_keys())
        assert (days[0], days[-1], len(days)) == ("2026-11-23", "2026-11-29", 7)
        again = dg.evaluate_automation_conditions(
            defs=definitions,
            instance=instance,
            asset_selection=usage,
            evaluation_time=now,
            cursor=first.cursor,
        )
        assert again.total_requested == 0


def test_a_new_instance_is_the_one_of_the_repository_and_an_edited_one_is_kept(home: Path) -> None:
    template, repository = (
        yaml.safe_load(text)
        for text in (INSTANCE_TEMPLATE, (REPOSITORY / "dagster.yaml").read_text(encoding="utf-8"))
    )
    assert {**template, "nux": None} == {**repository, "nux": None}
    folder = write_instance(home)
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    assert write_instance(home) == folder
    assert (folder / "dagster.yaml").read_text(encoding="utf-8") == "telemetry: {enabled: false}\n"
