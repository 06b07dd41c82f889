"""What a build leaves in the project's Dagster instance, written by storage of its own and read by
Dagster's.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from ctx_pipeline import build
from ctx_pipeline.orchestration.build import open_instance
from ctx_pipeline.orchestration.instance import INSTANCE_CONFIG, keeps_own_files, write_instance
from ctx_pipeline.resources.run_records import BuildEventLog

PROJECT = """\
[project]
name = "shop"
tenant = "acme"
[[sources]]
name = "notes"
kind = "memories"
path = "notes.jsonl"
sensitivity = "internal"
groups = ["*"]
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "ctx.toml").write_text(PROJECT, encoding="utf-8")
    lines = (
        '{"id": "a", "text": "退款需要三天。"}',
        '{"id": "b", "text": "Refunds take three days."}',
    )
    (tmp_path / "notes.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def _as_dagster_reads(home: Path) -> dg.DagsterInstance:
    return dg.DagsterInstance.local_temp(str(home / ".ctx" / "dagster"))


def test_dagster_reads_the_runs_and_events_of_builds(home: Path) -> None:
    build(home, progress=False)
    build(home, progress=False)
    with _as_dagster_reads(home) as instance:
        runs = instance.get_runs()
        assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS] * 2
        for run in runs:
            kinds = [entry.dagster_event_type for entry in instance.all_logs(run.run_id)]
            assert kinds.count(dg.DagsterEventType.ASSET_MATERIALIZATION) == 8
            assert dg.DagsterEventType.RUN_SUCCESS in kinds
        notes = instance.fetch_materializations(dg.AssetKey(["sources", "notes"]), limit=9).records
        assert [record.run_id for record in notes] == [run.run_id for run in runs]


def test_a_build_goes_on_where_dagster_itself_made_the_databases(home: Path) -> None:
    write_instance(home)
    with _as_dagster_reads(home) as instance:
        assert instance.get_runs() == []
    build(home, progress=False)
    with _as_dagster_reads(home) as instance:
        assert len(instance.get_runs()) == 1


def test_the_file_of_a_run_has_the_schema_that_dagster_gives_it(home: Path) -> None:
    build(home, progress=False)
    folder = home / ".ctx" / "dagster" / "history" / "runs"
    found: dict[str, set[str]] = {}
    for file in folder.glob("*.db"):
        with sqlite3.connect(file) as connection:
            revision = connection.execute("SELECT version_num FROM alembic_version").fetchall()
            tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
            assert connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
        connection.close()
        found[file.stem] = {str(revision), *(name for (name,) in tables)}
    index = found.pop("index")
    assert len(found) == 1
    assert found.popitem()[1] <= index


def test_an_instance_with_a_storage_of_its_own_keeps_it(home: Path) -> None:
    folder = write_instance(home)
    assert keeps_own_files(folder)
    with open_instance(home) as instance:
        assert isinstance(instance.event_log_storage, BuildEventLog)
    other = home / "elsewhere"
    with (folder / INSTANCE_CONFIG).open("a", encoding="utf-8") as file:
        file.write(f"storage: {{sqlite: {{base_dir: '{other.as_posix()}'}}}}\n")
    assert not keeps_own_files(folder)
    with open_instance(home) as instance:
        assert not isinstance(instance.event_log_storage, BuildEventLog)
        assert other.is_dir()


def test_loading_lancedb_leaves_pydantic_as_it_was() -> None:
    code = (
        "import pydantic; before = (pydantic.BaseModel.model_config, pydantic.validate_call)\n"
        "from ctx_pipeline.index.lance import models_built_when_used\n"
        "with models_built_when_used():\n    import lancedb\n"
        "assert (pydantic.BaseModel.model_config, pydantic.validate_call) == before\n"
        "from lance_namespace import CreateTableRequest, ListTablesRequest\n"
        "assert ListTablesRequest(id=['a']).id == ['a']\n"
        "try:\n    ListTablesRequest(id=3)\n"
        "except pydantic.ValidationError: print('checked')"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "checked\n"
