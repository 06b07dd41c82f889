"""A changed source is read by one run, and no change is missed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import dagster as dg
import pytest

from ctx_pipeline import build
from ctx_pipeline.assets import sources as assets
from ctx_pipeline.definitions import make_definitions
from ctx_pipeline.resources import ContextProjectResource
from ctx_pipeline.sensors.source_changes import MAX_ATTEMPTS, source_changes, tag_of
from ctx_pipeline.workspace import Workspace
from tests.sensors.conftest import write_old


def _tick(home: Path, instance: dg.DagsterInstance, cursor: str | None = None) -> dg.SensorResult:
    project = ContextProjectResource(home=str(home))
    with dg.build_sensor_context(
        instance=instance, cursor=cursor, resources={"ctx_project": project}
    ) as context:
        result = source_changes(context)
    assert isinstance(result, dg.SensorResult)
    return result


def _keys(request: dg.RunRequest) -> set[str]:
    return {key.to_user_string() for key in request.asset_selection or ()}


def test_a_source_that_looks_as_it_was_read_is_left_alone(
    home: Path, instance: dg.DagsterInstance
) -> None:
    result = _tick(home, instance)
    assert not result.run_requests
    assert "2 sources look as they were read" in str(result.skip_reason)


def test_changed_sources_share_one_run_and_a_replayed_tick_asks_for_the_same(
    home: Path, instance: dg.DagsterInstance
) -> None:
    write_old(home / "documents" / "shipping.md", "# Shipping\n三天。\n")
    (one,) = _tick(home, instance).run_requests or []
    assert _keys(one) == {"sources/handbook"}
    write_old(home / "notes.jsonl", '{"id": "m1", "text": "Ana likes long answers"}\n')
    (both,) = _tick(home, instance).run_requests or []
    assert _keys(both) == {"sources/handbook", "sources/notes"}
    (again,) = _tick(home, instance, cursor="not a cursor").run_requests or []
    assert (again.run_key, again.tags) == (both.run_key, both.tags)
    assert both.run_key != one.run_key
    build(home, select="sources/*", progress=False)
    assert not _tick(home, instance).run_requests


def test_a_file_that_was_just_written_to_has_to_look_the_same_twice(
    home: Path, instance: dg.DagsterInstance
) -> None:
    file = home / "documents" / "refunds.md"
    ahead = file.stat().st_mtime + 86_400
    file.write_text("# Refunds\nWithin 14", encoding="utf-8")
    os.utime(file, (ahead, ahead))
    first = _tick(home, instance)
    assert not first.run_requests
    assert "still being written: handbook" in str(first.skip_reason)
    file.write_text("# Refunds\nWithin 14 days. 十四天内。", encoding="utf-8")
    os.utime(file, (ahead, ahead))
    second = _tick(home, instance, first.cursor)
    assert not second.run_requests
    assert len(_tick(home, instance, second.cursor).run_requests or []) == 1


def test_a_change_while_the_source_is_read_is_read_too(
    home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = assets.refresh_source

    def reading(workspace: Workspace, name: str) -> object:
        report = read(workspace, name)
        write_old(home / "documents" / "late.md", "# Late\n迟到。\n")
        return report

    with monkeypatch.context() as patched:
        patched.setattr(assets, "refresh_source", reading)
        build(home, select="sources/handbook", progress=False)
    (request,) = _tick(home, instance).run_requests or []
    assert "sources/handbook" in _keys(request)


def test_a_change_that_cannot_be_read_is_tried_a_few_times(
    home: Path, instance: dg.DagsterInstance
) -> None:
    write_old(home / "documents" / "shipping.md", "# Shipping\n")
    job = make_definitions(home).resolve_job_def("build_all")
    run_keys: set[str | None] = set()
    for _ in range(MAX_ATTEMPTS):
        (request,) = _tick(home, instance).run_requests or []
        run_keys.add(request.run_key)
        run = instance.create_run_for_job(job, tags=request.tags)
        assert "being read: handbook" in str(_tick(home, instance).skip_reason)
        instance.report_run_failed(run, "no disk")
    assert len(run_keys) == MAX_ATTEMPTS
    assert "3 runs did not read: handbook" in str(_tick(home, instance).skip_reason)
    write_old(home / "documents" / "shipping.md", "# Shipping\nagain\n")
    assert len(_tick(home, instance).run_requests or []) == 1


def test_a_source_that_was_never_read_is_left_to_the_automation(
    home: Path, instance: dg.DagsterInstance
) -> None:
    write_old(home / "rules.md", "# Rules\n")
    with (home / "ctx.toml").open("a", encoding="utf-8") as config:
        config.write(
            '[[sources]]\nname = "rules"\nkind = "instructions"\npath '
            '= "rules.md"\ngroups = ["*"]\n'
        )
    result = _tick(home, instance)
    assert not result.run_requests
    assert "1 cannot be looked at" in str(result.skip_reason)


@pytest.mark.parametrize("source", ["handbook", "手册", "h" * 60])
def test_a_run_is_tagged_in_the_style_of_all_runs_whatever_its_source_is_called(
    source: str,
) -> None:
    assert re.fullmatch(r"ctx/[A-Za-z0-9_.-]{1,63}", tag_of(source))


def test_every_run_of_the_project_says_its_kind_of_work(home: Path) -> None:
    automation = make_definitions(home).get_repository_def().get_sensor_def("freshness_automation")
    assert isinstance(automation, dg.AutomationConditionSensorDefinition)
    assert automation.run_tags == {"ctx/kind": "freshness"}
