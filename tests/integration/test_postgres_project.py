"""A project whose ledger and whose Dagster instance are in Postgres."""

from __future__ import annotations

import json
import multiprocessing
import os
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ctx_pipeline.config.settings import load_config
from ctx_pipeline.contracts import ContextPack, ContextRequest, Task
from ctx_pipeline.errors import ConfigError, Unavailable
from ctx_pipeline.ledger import OverlayEntry
from ctx_pipeline.orchestration.build import BUILD_TAG, build, open_instance
from ctx_pipeline.orchestration.dev import start_dev
from ctx_pipeline.orchestration.instance import (
    STORAGE_LINE,
    STORAGE_VARIABLE,
    dagster_url,
    storage_variable,
    write_instance,
)
from ctx_pipeline.project import ContextProject
from testing.postgres_server import PASSWORD, Server

AT = datetime(2026, 11, 30, tzinfo=UTC)
PROJECT = """\
[project]
name = "shop"
tenant = "acme"
[identity]
principal = "ana"
clearance = "confidential"
[[sources]]
name = "notes"
kind = "memories"
path = "notes.jsonl"
sensitivity = "internal"
groups = ["*"]
"""
REQUEST = ContextRequest(task=Task(text="short answers, 周报"))
NOTES = [
    '{"id": "m1", "text": "Ana likes short answers"}',
    '{"id": "m2", "text": "周报在周一发布"}',
]


def make_home(home: Path, *, ledger: str = "", dagster: str = "") -> Path:
    home.mkdir(exist_ok=True)
    tables = [
        f'[{name}]\nurl = "{url}"\n'
        for name, url in (("ledger", ledger), ("dagster", dagster))
        if url
    ]
    (home / "ctx.toml").write_text(PROJECT + "".join(tables), encoding="utf-8")
    (home / "notes.jsonl").write_text("\n".join(NOTES), encoding="utf-8")
    return home


def ask(home: Path) -> ContextPack:
    with ContextProject.open(home) as project:
        return project.assemble(REQUEST, at=AT, durable=True)


def ask_elsewhere(home: str, answers: multiprocessing.Queue[str]) -> None:
    answers.put(ask(Path(home)).model_dump_json())


def test_a_project_with_everything_in_postgres_builds_answers_replays_and_retires(
    tmp_path: Path, postgres_server: Server
) -> None:
    home = make_home(
        tmp_path / "shop", ledger=postgres_server.database(), dagster=postgres_server.database()
    )
    first, second = build(home, progress=False), build(home, progress=False)
    assert (first.items, first.embedded, second.reused) == (2, 2, 2)
    assert second.artifact == first.artifact
    # Both runs and what they materialised are in the one instance, and nothing is in SQLite.
    with open_instance(home) as instance:
        assert len(instance.get_runs()) == 2
        assert {run.status.value for run in instance.get_runs()} == {"SUCCESS"}
        assert all(BUILD_TAG in run.tags for run in instance.get_runs())
        keys = {key.to_user_string() for key in instance.all_asset_keys()}
        assert {"sources/notes", "stages/assembled_items"} <= keys
    assert [*(home / ".ctx").rglob("*.db")] == []
    pack = ask(home)
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[str] = context.Queue()
    other = context.Process(target=ask_elsewhere, args=(str(home), answers))
    other.start()
    assert ContextPack.model_validate_json(answers.get(timeout=50)).hash == pack.hash
    other.join(30)
    with ContextProject.open(home) as project:
        assert project.replay(pack.snapshot_id).hash == pack.hash
        shown = "memory:notes/m1"
        assert shown in {item.item_id for item in pack.items}
        entry = OverlayEntry(
            code="retired",
            tenant="acme",
            item_id=shown,
            effective_at=AT,
            recorded_at=AT,
            actor="ana",
            reason="下线",
        )
        project.ledger.append_overlay([entry])
        assert shown not in {item.item_id for item in project.assemble(REQUEST, at=AT).items}
    assert shown not in {item.item_id for item in ask(home).items}


def test_no_file_holds_the_password_and_the_process_forgets_the_variable(
    tmp_path: Path, postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home(tmp_path / "shop")
    monkeypatch.setenv(STORAGE_VARIABLE, postgres_server.database())
    build(home, progress=False)
    files = [path for path in home.rglob("*") if path.is_file()]
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []
    assert STORAGE_LINE in (home / ".ctx" / "dagster" / "dagster.yaml").read_text(encoding="utf-8")
    monkeypatch.delenv(STORAGE_VARIABLE)
    with storage_variable(
        f"{postgres_server.address}/postgres".replace("postgresql:", "postgresql+psycopg2:")
    ):
        assert STORAGE_VARIABLE in os.environ
    assert STORAGE_VARIABLE not in os.environ


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_asset_graph_is_served_from_postgres(tmp_path: Path, postgres_server: Server) -> None:
    home = make_home(tmp_path / "shop", dagster=postgres_server.database())
    build(home, progress=False)
    query = {"query": "{ runsOrError { ... on Runs { results { status } } } instance { info } }"}
    with start_dev(home) as server:
        request = urllib.request.Request(
            f"{server.url}/graphql",
            json.dumps(query).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
    data = json.loads(text)["data"]
    assert data["runsOrError"]["results"] == [{"status": "SUCCESS"}]
    storages = ("PostgresRunStorage", "PostgresEventLogStorage", "PostgresScheduleStorage")
    assert all(name in data["instance"]["info"] for name in storages)
    assert PASSWORD not in text


def test_the_instance_file_follows_the_setting_and_keeps_what_people_wrote(tmp_path: Path) -> None:
    file = write_instance(tmp_path) / "dagster.yaml"
    fresh = file.read_text(encoding="utf-8")
    write_instance(tmp_path, "postgresql://host/db")
    assert file.read_text(encoding="utf-8") == fresh + STORAGE_LINE
    write_instance(tmp_path, "postgresql://host/db")
    assert file.read_text(encoding="utf-8").count("storage:") == 1
    write_instance(tmp_path)
    assert file.read_text(encoding="utf-8") == fresh
    file.write_text("storage: {sqlite: {base_dir: elsewhere}}", encoding="utf-8")
    assert write_instance(tmp_path) == file.parent
    with pytest.raises(ConfigError):
        write_instance(tmp_path, "postgresql://host/db")
    assert file.read_text(encoding="utf-8") == "storage: {sqlite: {base_dir: elsewhere}}"


@pytest.mark.parametrize(
    "settings",
    [
        {"dagster": "mysql://ana:hunter2@host/runs"},
        {
            "dagster": "postgresql://ana:hunter2@host/one",
            "ledger": "postgresql+psycopg://eve:other@host/one",
        },
        {"dagster": "postgresql://ana:hunter2@host:port/runs"},
    ],
)
def test_a_url_that_dagster_cannot_use_is_a_configuration_error(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    home = make_home(tmp_path / "shop", **settings)
    with pytest.raises(ConfigError) as refused, open_instance(home):
        pass
    assert "hunter2" not in str(refused.value)


def test_a_server_that_cannot_be_reached_is_unavailable_at_once(tmp_path: Path) -> None:
    home = make_home(tmp_path / "shop", dagster="postgresql://ana:hunter2@127.0.0.1:1/runs")
    with pytest.raises(Unavailable) as refused, open_instance(home):
        pass
    assert refused.value.stable_code == "dagster_unreachable"
    assert "hunter2" not in str(refused.value)
    assert (
        dagster_url(load_config(home).config)
        == "postgresql+psycopg2://ana:hunter2@127.0.0.1:1/runs"
    )
