"""A small project through real Dagster: build, sensor, assembly. Each test has its own copy of one
built project.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import dagster as dg
import pytest

from ctx_pipeline import BuildReport, ContextProject, ContextRequest, Task, build
from ctx_pipeline.building.generation import current_generation
from ctx_pipeline.building.pipeline import Pipeline
from ctx_pipeline.definitions import make_definitions
from ctx_pipeline.errors import ConfigError, CtxError, InvalidRequest, NotPermitted, Unavailable
from ctx_pipeline.index.artifact import Layout, read_pointer
from ctx_pipeline.ledger.records import OverlayEntry
from ctx_pipeline.orchestration.build import BUILD_TAG, IN_PROCESS, open_instance
from ctx_pipeline.resources import ContextProjectResource, build_lock
from ctx_pipeline.sensors.superseded import GENERATION_TAG, superseded_versions
from ctx_pipeline.workspace import Workspace

AT = datetime(2026, 11, 30, tzinfo=UTC)

PROJECT = """\
[project]
name = "shop"
tenant = "acme"
[identity]
principal = "ana"
groups = ["analysts"]
clearance = "confidential"
[[sources]]
name = "handbook"
kind = "documents"
path = "documents"
freshness = "24h"
trust = "enterprise_trusted"
sensitivity = "internal"
groups = ["*"]
[[sources]]
name = "notes"
kind = "memories"
path = "notes.jsonl"
sensitivity = "internal"
groups = ["*"]
"""


def _document(version: int, days: int) -> str:
    return (
        f"---\ntitle: Refunds\nversion: {version}\n---\n# Refunds\nRefunds "
        f"take {days} days. 退款需要{days}天。\n"
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BuildReport]:
    home = tmp_path_factory.mktemp("shop")
    (home / "ctx.toml").write_text(PROJECT, encoding="utf-8")
    (home / "documents").mkdir()
    (home / "documents" / "refunds.md").write_text(_document(1, 30), encoding="utf-8")
    notes = [
        '{"id": "m1", "text": "Ana likes short answers"}',
        '{"id": "m2", "text": "周报在周一发布"}',
        "not json",
    ]
    (home / "notes.jsonl").write_text("\n".join(notes), encoding="utf-8")
    return home, build(home, progress=False)


@pytest.fixture
def home(built: tuple[Path, BuildReport], tmp_path: Path) -> Path:
    return shutil.copytree(built[0], tmp_path / "shop")


def test_a_first_build_reports_items_errors_and_the_artifact(
    built: tuple[Path, BuildReport],
) -> None:
    home, report = built
    assert (report.items, report.embedded, report.reused, report.retired) == (3, 3, 0, 0)
    assert [(error.path, error.line, error.code) for error in report.errors] == [
        ("notes.jsonl", 3, "bad_json")
    ]
    assert [source.name for source in report.sources] == ["handbook", "notes"]
    pointer = read_pointer(Layout(home))
    assert pointer is not None
    assert report.artifact == pointer["content_hash"]


def test_a_second_build_embeds_nothing_and_publishes_the_same_artifact(
    home: Path, built: tuple[Path, BuildReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(home / "elsewhere"))
    again = build(home, progress=False)
    assert (again.items, again.embedded, again.reused, again.artifact) == (
        3,
        0,
        3,
        built[1].artifact,
    )
    assert not (home / "elsewhere").exists()


def test_a_deleted_derived_folder_is_built_again_without_embedding(
    home: Path, built: tuple[Path, BuildReport]
) -> None:
    shutil.rmtree(home / ".ctx" / "derived")
    again = build(home, progress=False)
    assert (again.embedded, again.artifact) == (0, built[1].artifact)


def test_materialisations_show_counts_versions_and_errors_and_no_content(home: Path) -> None:
    with open_instance(home) as instance:
        notes = _metadata(instance, "sources/notes")
        assert (notes["dagster/row_count"], notes["added"], notes["errors"]) == (2, 2, 1)
        assert "| notes.jsonl | 3 | bad_json |" in notes["error_table"]
        assert notes["sample_ids"] == [
            "memory:notes/m2@" + _version(home, "m2"),
            "memory:notes/m1@" + _version(home, "m1"),
        ]
        assembled = _metadata(instance, "stages/assembled_items")
        assert all(numbers["seconds"] > 0 for numbers in (notes, assembled))
        assert (assembled["dagster/row_count"], assembled["live"]) == (3, 3)
        budgeted = _metadata(instance, "stages/budgeted_items")
        assert [column.name for column in budgeted["dagster/column_schema"].columns][:2] == [
            "full_o200k_base",
            "full_cl100k_base",
        ]
        events = [record.event_log_entry.to_json() for record in _materializations(instance)]
    assert len(events) == 9
    for secret in ("short answers", "周报", "退款"):
        assert not [
            event for event in events if secret in event or json.dumps(secret)[1:-1] in event
        ]


def test_a_file_error_is_a_warning_of_the_source_and_the_run_succeeds(home: Path) -> None:
    with open_instance(home) as instance:
        (run,) = instance.get_runs()
        assert (run.job_name, run.status, run.tags[BUILD_TAG]) == (
            "build_all",
            dg.DagsterRunStatus.SUCCESS,
            IN_PROCESS,
        )
        key = dg.AssetCheckKey(dg.AssetKey(["sources", "notes"]), "every_file_loaded")
        (record,) = instance.event_log_storage.get_asset_check_execution_history(key, limit=5)
        evaluation = (
            record.event.dagster_event.asset_check_evaluation_data if record.event else None
        )
        assert evaluation is not None
        assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.WARN)


def test_a_selection_builds_only_what_it_names(home: Path) -> None:
    (home / "documents" / "refunds.md").write_text(_document(2, 14), encoding="utf-8")
    one = build(home, select="sources/handbook", progress=False)
    assert ([source.name for source in one.sources], one.artifact, one.items, one.embedded) == (
        ["handbook"],
        None,
        3,
        0,
    )
    rest = build(home, select="sources/handbook+ and not sources/*", progress=False)
    assert (rest.sources, rest.items, rest.embedded) == ((), 3, 1)
    assert rest.artifact is not None


@pytest.mark.parametrize("select", ["sources/handbok", "((", 'group:"nothing"', ""])
def test_a_selection_that_names_nothing_is_refused_with_the_names(home: Path, select: str) -> None:
    with pytest.raises(InvalidRequest, match="sources/handbook") as refused:
        build(home, select=select, progress=False)
    assert refused.value.stable_code == "invalid_selection"


def test_a_folder_without_a_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        build(tmp_path, progress=False)
    assert refused.value.stable_code == "no_project"
    assert list(tmp_path.iterdir()) == []


def test_a_build_waits_for_another_one_and_then_says_so(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with build_lock(home, 0.0), pytest.raises(Unavailable) as busy:
        build(home, lock_seconds=0.1)
    assert busy.value.stable_code == "build_busy"
    assert "another build of this project is running" in capsys.readouterr().err


def test_what_an_asset_raises_reaches_the_caller_with_its_code(home: Path) -> None:
    config = home / "ctx.toml"
    config.write_text(
        config.read_text(encoding="utf-8") + '[embedder]\nmodel = "/no/such/model"\n',
        encoding="utf-8",
    )
    with pytest.raises(CtxError) as raised:
        build(home, progress=False)
    assert raised.value.stable_code == "model_unavailable"
    with open_instance(home) as instance:
        assert instance.get_runs(limit=1)[0].status is dg.DagsterRunStatus.FAILURE


def test_progress_goes_to_stderr_line_by_line_where_there_is_no_terminal(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    build(home, select="sources/handbook")
    out, err = capfd.readouterr()
    assert (out, err) == ("", "[1/1] sources/handbook\n")


def test_a_killed_build_is_failed_by_the_next_one_which_does_not_wait_for_it(home: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from ctx_pipeline.building.pipeline import Pipeline\n"
        "Pipeline.discovered_items = lambda self: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from ctx_pipeline import build\n"
        "build(sys.argv[1], progress=False)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(home)], check=False, timeout=50)
    assert killed.returncode == -9
    report = build(home, progress=False)
    assert report.embedded == 0
    with open_instance(home) as instance:
        newest, dead, _ = instance.get_runs()
        assert newest.status is dg.DagsterRunStatus.SUCCESS
        assert dead.status is dg.DagsterRunStatus.FAILURE
        assert not instance.event_log_storage.get_concurrency_info("ctx_store").active_run_ids


def test_an_interrupted_build_raises_the_interrupt_and_the_next_one_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(
            Pipeline, "discovered_items", lambda self: signal.raise_signal(signal.SIGINT)
        )
        with pytest.raises(KeyboardInterrupt):
            build(home, progress=False)
    assert build(home, progress=False).embedded == 0


def test_a_failure_of_another_kind_names_the_asset_and_not_what_it_says(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Pipeline) -> None:
        raise OSError("content of a source")

    monkeypatch.setattr(Pipeline, "ranked_items", broken)
    with pytest.raises(Unavailable, match="stages/ranked_items: OSError") as failed:
        build(home, progress=False)
    assert failed.value.stable_code == "build_failed"
    assert "content" not in str(failed.value)


def test_old_runs_go_except_the_last_one_of_each_asset(home: Path) -> None:
    with (home / "ctx.toml").open("a", encoding="utf-8") as config:
        config.write("[retention]\nruns = 1\n")
    for _ in range(3):
        build(home, select="sources/handbook", progress=False)
    with open_instance(home) as instance:
        newest, first = instance.get_runs()
        assert newest.asset_selection == {dg.AssetKey(["sources", "handbook"])}
        assert _metadata(instance, "sources/notes")["dagster/row_count"] == 2
        files = {
            path.stem for path in (home / ".ctx" / "dagster" / "history" / "runs").glob("?*-*.db")
        }
        assert files == {newest.run_id, first.run_id}


# --- the sensor


def test_the_sensor_is_silent_while_the_artifact_is_current(home: Path) -> None:
    result = _tick(home)
    assert result.run_requests == []
    assert "up to date" in str(result.skip_reason)


def test_the_sensor_requests_one_run_per_generation_and_a_replayed_tick_the_same_one(
    home: Path,
) -> None:
    _quarantine(home, "memory:notes/m1")
    first, again = _tick(home), _tick(home)
    (request,) = first.run_requests or []
    assert (again.run_requests or [])[0].run_key == request.run_key
    with Workspace.open(home) as workspace:
        assert request.run_key == current_generation(workspace).name
    build(home, select='group:"stages"', progress=False)
    assert _tick(home).run_requests == []


def test_the_sensor_tries_a_failed_generation_again_but_not_for_ever(home: Path) -> None:
    _quarantine(home, "memory:notes/m1")
    with open_instance(home) as instance:
        keys: list[str | None] = []
        for _ in range(4):
            requests = _tick(home, instance).run_requests or []
            keys.extend(request.run_key for request in requests)
            for request in requests:
                job = make_definitions(home).resolve_job_def("build_all")
                run = instance.create_run_for_job(job, tags=request.tags)
                assert GENERATION_TAG in run.tags
                assert (_tick(home, instance).run_requests or []) == []
                instance.report_run_failed(run, "no disk")
    name = str(keys[0])
    assert keys == [name, f"{name}:2", f"{name}:3"]


def test_the_sensor_leaves_a_running_build_alone(home: Path) -> None:
    _quarantine(home, "memory:notes/m1")
    with build_lock(home, 0.0):
        assert "a build is running" in str(_tick(home).skip_reason)


def test_the_sensor_has_nothing_to_do_before_the_first_build(tmp_path: Path) -> None:
    (tmp_path / "ctx.toml").write_text(PROJECT, encoding="utf-8")
    assert "no source has been read" in str(_tick(tmp_path).skip_reason)


# --- the assembly op


def test_the_assembly_op_is_the_engine_of_every_other_surface(home: Path) -> None:
    request = ContextRequest(
        task=Task(text="How long do refunds take? 退款要多久"), token_budget=2_000
    )
    with ContextProject.open(home) as project:
        direct = project.assemble(request, at=AT, durable=True)
    config = {"request": request.model_dump(mode="json", exclude_none=True), "at": AT.isoformat()}
    with open_instance(home) as instance:
        result = _assemble(home, instance, config)
        pack = cast("dict[str, Any]", result.output_for_node("assemble_context"))
        metadata = {
            name: value.value
            for event in result.get_step_success_events()
            for name, value in _output_metadata(result, str(event.step_key)).items()
        }
    assert (pack["hash"], pack["snapshot_id"]) == (direct.hash, direct.snapshot_id)
    assert direct.items
    assert (metadata["hash"], metadata["snapshot_id"]) == (direct.hash, direct.snapshot_id)
    assert "| section | planned tokens | used tokens |" in str(metadata["budget"])
    kept = [path for path in (home / ".ctx" / "dagster").rglob("*") if path.is_file()]
    assert not [path for path in kept if "退款需要".encode() in path.read_bytes()]


def test_the_configuration_that_the_launchpad_begins_with_runs_as_it_is(home: Path) -> None:
    job = make_definitions(home).resolve_job_def("assemble_context_job")
    with open_instance(home) as instance:
        assert job.execute_in_process(instance=instance).success
    assert job.run_config is not None
    assert job.run_config["ops"]["assemble_context"]["config"]["request"]["task"]["text"]


def test_a_bad_request_fails_the_run_and_says_where(home: Path) -> None:
    config = {"request": {"task": {"text": "x"}, "token_budget": 0}}
    with (
        open_instance(home) as instance,
        pytest.raises(InvalidRequest, match=r"request\.token_budget"),
    ):
        _assemble(home, instance, config)


@pytest.mark.parametrize(
    "who",
    [
        {"principal": "ana", "tenant": "globex"},
        {"principal": "bo", "tenant": "acme"},
        {"principal": "ana", "tenant": "acme", "groups": ["analysts", "board"]},
        {"principal": "ana", "tenant": "acme", "groups": ["*"]},
        {"principal": "ana", "tenant": "acme", "clearance": "restricted"},
        {"principal": "ana", "tenant": "acme", "environment": "production"},
        {"principal": "ana", "tenant": "acme", "purpose": "审计"},
    ],
)
def test_who_launches_a_run_cannot_choose_who_looks(home: Path, who: dict[str, Any]) -> None:
    config = {"request": {"task": {"text": "退款要多久"}, "identity": who}}
    with open_instance(home) as instance, pytest.raises(NotPermitted) as refused:
        _assemble(home, instance, config)
    assert refused.value.stable_code == "identity_not_configured"


def test_who_launches_a_run_may_look_with_less(home: Path) -> None:
    less = {"principal": "ana", "tenant": "acme", "groups": ["analysts"], "clearance": "public"}
    with open_instance(home) as instance:
        result = _assemble(
            home, instance, {"request": {"task": {"text": "退款要多久"}, "identity": less}}
        )
        pack = cast("dict[str, Any]", result.output_for_node("assemble_context"))
    shown = {item["item_id"] for section in pack["sections"] for item in section["items"]}
    assert not {item_id for item_id in shown if item_id.startswith("document:")}


def test_a_project_without_an_identity_lets_nobody_look_in_a_run(home: Path) -> None:
    config = (home / "ctx.toml").read_text(encoding="utf-8")
    without = config.replace(config[config.index("[identity]") : config.index("[[sources]]")], "")
    (home / "ctx.toml").write_text(without, encoding="utf-8")
    asked = {
        "request": {"task": {"text": "退款"}, "identity": {"principal": "ana", "tenant": "acme"}}
    }
    with open_instance(home) as instance, pytest.raises(NotPermitted) as refused:
        _assemble(home, instance, asked)
    assert refused.value.stable_code == "no_identity"


def test_who_launches_a_run_cannot_choose_another_project(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "ctx.toml").write_text(
        PROJECT.replace('tenant = "acme"', 'tenant = "globex"'), encoding="utf-8"
    )
    chosen = {"ctx_project": {"config": {"home": str(other)}}}
    with open_instance(home) as instance:
        result = _assemble(
            home, instance, {"request": {"task": {"text": "退款要多久"}}}, resources=chosen
        )
        pack = cast("dict[str, Any]", result.output_for_node("assemble_context"))
    assert "退款需要30天" in json.dumps(pack, ensure_ascii=False)


# --- helpers


def _assemble(
    home: Path, instance: dg.DagsterInstance, config: dict[str, Any], **more: dict[str, Any]
) -> dg.ExecuteInProcessResult:
    job = make_definitions(home).resolve_job_def("assemble_context_job")
    run_config = {"ops": {"assemble_context": {"config": config}}, **more}
    return job.execute_in_process(instance=instance, run_config=run_config)


def _output_metadata(
    result: dg.ExecuteInProcessResult, step: str
) -> dict[str, dg.MetadataValue[Any]]:
    outputs = [
        event
        for event in result.all_node_events
        if event.is_successful_output and event.step_key == step
    ]
    return dict(outputs[0].step_output_data.metadata)


def _tick(home: Path, instance: dg.DagsterInstance | None = None) -> dg.SensorResult:
    """Evaluate the sensor once, without a cursor."""
    if instance is None:
        with open_instance(home) as opened:
            return _tick(home, opened)
    project = ContextProjectResource(home=str(home))
    with dg.build_sensor_context(instance=instance, resources={"ctx_project": project}) as context:
        result = superseded_versions(context)
    assert isinstance(result, dg.SensorResult)
    return result


def _quarantine(home: Path, item_id: str) -> None:
    now = datetime.now(UTC)
    entry = OverlayEntry(
        code="quarantined",
        tenant="acme",
        item_id=item_id,
        effective_at=now,
        recorded_at=now,
        actor="test",
        reason="test",
    )
    with Workspace.open(home) as workspace:
        workspace.ledger.append_overlay([entry])


def _version(home: Path, name: str) -> str:
    with Workspace.open(home) as workspace:
        (event,) = workspace.ledger.events_for("acme", f"memory:notes/{name}")
    return event.version


def _materializations(instance: dg.DagsterInstance) -> Iterator[dg.EventLogRecord]:
    for key in instance.all_asset_keys():
        yield from instance.fetch_materializations(key, limit=10).records


def _metadata(instance: dg.DagsterInstance, key: str) -> dict[str, Any]:
    event = instance.get_latest_materialization_event(dg.AssetKey(key.split("/")))
    assert event is not None
    assert event.asset_materialization is not None
    metadata = event.asset_materialization.metadata
    return {name: getattr(value, "schema", None) or value.value for name, value in metadata.items()}


def test_a_source_that_cannot_be_read_is_fresh_nowhere_and_the_others_are_built(home: Path) -> None:
    """Dagster, `ctx status` and packs tell one story: the last good reading counts."""
    key = dg.AssetKey(["sources", "handbook"])
    with ContextProject.open(home) as project:
        before = {source.name: source.refreshed_at for source in project.status().sources}
    with open_instance(home) as instance:
        read = len(instance.fetch_materializations(key, limit=10).records)
    shutil.rmtree(home / "documents")
    (home / "notes.jsonl").write_text(
        '{"id": "m1", "text": "Ana likes long answers"}\n', encoding="utf-8"
    )
    report = build(home, progress=False)
    assert {"missing", "source_shrank"} <= {error.code for error in report.errors}
    with open_instance(home) as instance:
        assert len(instance.fetch_materializations(key, limit=10).records) == read
        (check,) = instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(key, "nothing_vanished"), limit=1
        )
        assert check.status.value == "FAILED"
    with ContextProject.open(home) as project:
        after = {source.name: source.refreshed_at for source in project.status().sources}
        asked = [
            ContextRequest(task=Task(text=text))
            for text in ("refunds take days", "what does Ana like?")
        ]
        text = "".join(project.assemble(request).render("text") for request in asked)
    assert after["handbook"] == before["handbook"]
    assert after["notes"] != before["notes"]
    assert "30 days" in text
    assert "long answers" in text
