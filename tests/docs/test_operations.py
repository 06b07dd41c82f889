"""The procedures of docs/operations.md, as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ctx_pipeline.contracts import ContextPack, ContextRequest, Task
from ctx_pipeline.definitions import make_definitions
from ctx_pipeline.errors import Conflict
from ctx_pipeline.ledger import Ledger
from ctx_pipeline.ledger.copy import copy_ledger
from testing.artifacts import ANA, NOW, build_index, make_item, make_project, open_project, overlay
from testing.postgres_server import PASSWORD, Server

REPOSITORY = Path(__file__).resolve().parents[2]
SNIPPETS = REPOSITORY / "docs" / "src"
ITEM = "document:handbook/refunds"


def run(name: str, here: Path, *arguments: object, **variables: str) -> str:
    """Run one procedure in a project's folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(SNIPPETS / name), *map(str, arguments)],
        cwd=here,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY), **variables},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def needs(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def ask(home: Path) -> ContextPack:
    with open_project(home) as project:
        request = ContextRequest(task=Task(text="refunds 退款"), identity=ANA)
        return project.assemble(request, at=NOW, durable=True)


def serves_again(home: Path, asked: ContextPack) -> None:
    """The record is whole: what was asked replays, what is built is the same, and it goes on."""
    assert build_index(home)[1] == 0
    with open_project(home) as project:
        assert project.replay(asked.snapshot_id, ANA).hash == asked.hash
        assert project.ledger.integrity()["ok"]
    assert ask(home).hash == asked.hash
    with open_project(home) as project:
        before = project.ledger.overlay_sequence()
        assert project.ledger.append_overlay([overlay("retired", ITEM)]) == before + 1


RUNBOOK = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")


def test_the_runbook_says_what_to_do_about_every_error_that_is_not_the_callers() -> None:
    errors = (REPOSITORY / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\d, ]+) \| ", errors, re.MULTILINE)
    operators = {code for code, exits in rows if {"5", "6", "7"} & set(exits.split(", "))}
    assert "ledger_behind" in operators
    assert {code for code in operators if f"`{code}`" not in RUNBOOK} == set()


def test_the_runbook_knows_every_sensor_schedule_and_check_of_the_graph(home: Path) -> None:
    definitions = make_definitions(home)
    sensors = {sensor.name for sensor in definitions.sensors or ()}
    schedules = {schedule.name for schedule in definitions.schedules or ()}
    checks = {key.name for key in definitions.resolve_asset_graph().asset_check_keys}
    assert sensors
    assert checks
    assert {name for name in sensors | schedules | checks if f"`{name}`" not in RUNBOOK} == set()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = make_project(
        tmp_path / "shop", [make_item("refunds", "refunds take three days, 退款需要三天")]
    )
    with open_project(home) as project:
        project.ledger.append_overlay([overlay("retired", "document:handbook/other")])
    return home


def test_a_backup_of_a_project_in_use_is_restored_in_another_folder(
    home: Path, tmp_path: Path
) -> None:
    needs("flock", "sqlite3")
    asked = ask(home)
    with open_project(home) as project:
        project.assemble(ContextRequest(task=Task(text="still in use"), identity=ANA), at=NOW)
        run("backup.bash", home, tmp_path / "backup")
    serves_again(tmp_path / "backup", asked)


def test_a_ledger_is_moved_to_postgres_and_from_there_backed_up_and_restored(
    home: Path, tmp_path: Path, postgres_server: Server
) -> None:
    needs("flock", "pg_dump", "pg_restore")
    asked, url = ask(home), postgres_server.database()
    told = run("move_ledger.bash", home, CTX_LEDGER__URL=url)
    assert "snapshots 1\n" in told
    assert PASSWORD not in told
    assert not (home / ".ctx" / "state" / "ledger.db").exists()
    settings = (home / "ctx.toml").read_text(encoding="utf-8")
    (home / "ctx.toml").write_text(f'{settings}[ledger]\nurl = "{url}"\n', encoding="utf-8")
    serves_again(home, asked)
    secrets = {"PGPASSWORD": PASSWORD}
    bare = url.replace(f":{PASSWORD}", "")
    run("backup_postgres.bash", home, tmp_path / "backup", CTX_LEDGER__URL=bare, **secrets)
    again, empty = tmp_path / "again", postgres_server.database()
    again.mkdir()
    (again / "ctx.toml").write_text(f'{settings}[ledger]\nurl = "{empty}"\n', encoding="utf-8")
    bare = empty.replace(f":{PASSWORD}", "")
    run("restore_postgres.bash", again, tmp_path / "backup", again, CTX_LEDGER__URL=bare, **secrets)
    with Ledger.open(url) as moved, Ledger.open(empty) as restored:
        assert restored.integrity()["counts"] == moved.integrity()["counts"]
        assert restored.overlay_since(0) == moved.overlay_since(0)
    build_index(again)
    with open_project(again) as project:
        assert project.replay(asked.snapshot_id, ANA).hash == asked.hash


def test_a_ledger_is_never_copied_over_another_one(home: Path, postgres_server: Server) -> None:
    asked, source, url = (
        ask(home),
        home / ".ctx" / "state" / "ledger.db",
        postgres_server.database(),
    )
    counts = copy_ledger(source, url)
    assert counts["snapshots"] == 1
    with pytest.raises(Conflict) as refused:
        copy_ledger(source, url)
    assert refused.value.stable_code == "ledger_not_empty"
    with Ledger.open(source) as before, Ledger.open(url) as after:
        for ledger in (before, after):
            (stored,) = ledger.snapshots("acme")
            assert stored.snapshot_id == asked.snapshot_id
        assert after.reserve(1) == before.reserve(1)
