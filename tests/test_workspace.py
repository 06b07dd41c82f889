"""What was retired, revoked or quarantined stays so when its ledger is lost: nothing is served
beside another one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ctx_pipeline.building.refresh import refresh_source
from ctx_pipeline.contracts import ContextRequest, Task
from ctx_pipeline.errors import Corrupt, CtxError, NotFound
from ctx_pipeline.index.artifact import Layout
from ctx_pipeline.ledger import Ledger
from ctx_pipeline.lifecycle.retire import retire_item
from ctx_pipeline.orchestration.doctor import diagnose
from ctx_pipeline.orchestration.publish import check
from ctx_pipeline.workspace import Workspace
from testing.artifacts import (
    ANA,
    NOW,
    build_index,
    make_item,
    make_project,
    open_project,
    open_workspace,
    write_config,
)
from testing.postgres_server import Server

SECRET, OPEN = "document:handbook/secret", "document:handbook/open"
ITEMS = [
    make_item("secret", "The refund code is 4711. 退款口令是 4711。"),
    make_item("open", "Refunds take two days."),
]
IDENTITY = '[identity]\nprincipal = "ana"\ntenant = "acme"\n'
Damage = Callable[[Path], None]


def project_of(folder: Path, head: str = "") -> Path:
    """A project in which a person has retired one of two documents after the build."""
    home = make_project(folder, ITEMS, head=IDENTITY + head)
    with open_workspace(home) as workspace:
        retire_item(workspace, SECRET, reason="leaked")
    return home


def state(home: Path) -> Path:
    return home / ".ctx" / "state"


def delete(home: Path) -> None:
    for file in state(home).glob("ledger.db*"):
        file.unlink()


def empty(home: Path) -> None:
    delete(home)
    Ledger.open(state(home) / "ledger.db").close()


def of_another_project(home: Path) -> None:
    other = make_project(
        home.parent / "other", [*ITEMS, *(make_item(f"{n}", f"more {n}") for n in range(20))]
    )
    delete(home)
    shutil.copy(state(other) / "ledger.db", state(home) / "ledger.db")


def without_index(damage: Damage) -> Damage:
    def both(home: Path) -> None:
        damage(home)
        shutil.rmtree(Layout(home).derived)

    return both


def without_mark(damage: Damage) -> Damage:
    def both(home: Path) -> None:
        damage(home)
        (state(home) / "record.json").unlink()

    return both


def the_whole_state(home: Path) -> None:
    shutil.rmtree(state(home))


DAMAGES: dict[str, Damage] = {
    "deleted": delete,
    "empty": empty,
    "of another project": of_another_project,
    "deleted with the index": without_index(delete),
    "empty without an index": without_index(empty),
    "of another project without an index": without_index(of_another_project),
    "deleted with the mark": without_mark(delete),
    "empty without a mark": without_mark(empty),
    "of another project without a mark": without_mark(of_another_project),
    "deleted with the store": the_whole_state,
}


def codes(home: Path) -> dict[str, str]:
    """The code with which each way into a project refuses."""
    request = ContextRequest(task=Task(text="What is the refund code? 退款口令"), identity=ANA)
    ways: dict[str, Callable[[], object]] = {
        "assemble": lambda: open_project(home).assemble(request, at=NOW),
        "expand": lambda: open_project(home).expand(SECRET, identity=ANA, at=NOW),
        "items": lambda: open_project(home).items(identity=ANA, at=NOW),
        "why not": lambda: open_project(home).why_not(SECRET, identity=ANA, at=NOW),
        "snapshots": lambda: open_project(home).snapshots(identity=ANA),
        "status": lambda: open_project(home).status(at=NOW),
        "build": lambda: build_index(home),
        "refresh": lambda: refresh_source(open_workspace(home), "handbook"),
    }
    if (state(home) / "store").exists():
        ways["retire"] = lambda: retire_item(open_workspace(home), OPEN, reason="old")
    found: dict[str, str] = {}
    for name, way in ways.items():
        with pytest.raises(CtxError) as refused:
            way()
        assert isinstance(refused.value, Corrupt), name
        assert "4711" not in str(refused.value)
        found[name] = refused.value.stable_code
    doctor = next(each for each in diagnose(home).checks if each.name == "ledger")
    assert (doctor.state, doctor.exit_code) == ("fail", Corrupt.exit_code)
    return {**found, "doctor": doctor.code}


@pytest.mark.parametrize("damage", DAMAGES)
def test_beside_a_ledger_that_knows_nothing_of_it_nothing_is_served(tmp_path: Path, damage: str):
    home = project_of(tmp_path / "home")
    DAMAGES[damage](home)
    for _ in range(2):
        assert set(codes(home).values()) == {"ledger_missing"}


def test_a_project_is_not_checked_against_a_ledger_that_is_not_its_own_before_publishing(
    tmp_path: Path,
):
    metric = (
        "metrics: [{name: gmv, version: 1, description: value, table: orders, expression: sum(a)}]"
    )
    home = tmp_path / "home"
    write_config(home, {"metrics": {"kind": "semantic_registry", "path": "semantic"}}, IDENTITY)
    (home / "semantic").mkdir()
    (home / "gmv.yaml").write_text(metric, encoding="utf-8")
    assert not check(home, [home / "gmv.yaml"]).published
    make_project(tmp_path / "built", ITEMS)
    shutil.copytree(tmp_path / "built" / ".ctx", home / ".ctx", dirs_exist_ok=True)
    delete(home)
    with pytest.raises(Corrupt) as refused:
        check(home, [home / "gmv.yaml"])
    assert refused.value.stable_code == "ledger_missing"


def test_a_ledger_of_before_a_retirement_is_refused_although_the_index_is_as_old(tmp_path: Path):
    home = make_project(tmp_path / "home", ITEMS, head=IDENTITY)
    older = tmp_path / "older.db"
    with Ledger.open(state(home) / "ledger.db") as ledger:
        ledger.flush()
    shutil.copy(state(home) / "ledger.db", older)
    with open_workspace(home) as workspace:
        retire_item(workspace, SECRET, reason="leaked")
    delete(home)
    shutil.copy(older, state(home) / "ledger.db")
    assert set(codes(home).values()) == {"ledger_behind"}
    shutil.rmtree(Layout(home).derived)
    assert set(codes(home).values()) == {"ledger_behind"}


def test_a_backup_of_the_whole_state_is_served_again(tmp_path: Path):
    home = project_of(tmp_path / "home")
    backup = shutil.copytree(state(home), tmp_path / "backup")
    delete(home)
    assert set(codes(home).values()) == {"ledger_missing"}
    shutil.rmtree(state(home))
    shutil.copytree(backup, state(home))
    with open_project(home) as project:
        assert project.expand(OPEN, identity=ANA, at=NOW).item_id == OPEN
        with pytest.raises(NotFound):
            project.expand(SECRET, identity=ANA, at=NOW)


def test_who_moves_the_record_away_begins_anew(tmp_path: Path):
    home = tmp_path / "home"
    write_config(home, {"docs": {"path": "docs"}}, IDENTITY)
    (home / "docs").mkdir()
    (home / "docs" / "a.md").write_text("# Refunds\n\nTwo days. 两天。\n", encoding="utf-8")
    for _ in range(2):
        with open_workspace(home) as workspace:
            assert refresh_source(workspace, "docs").items == 1
        build_index(home)
        with open_project(home) as project:
            assert len(project.items(identity=ANA)) == 1
        state(home).rename(home / "lost-state")
        Layout(home).derived.rename(home / "lost-derived")
        shutil.rmtree(home / "lost-state")
        shutil.rmtree(home / "lost-derived")


def test_a_new_project_and_one_that_has_lost_an_empty_record_begin_without_a_word(tmp_path: Path):
    write_config(tmp_path, {"docs": {"path": "docs"}}, IDENTITY)
    for _ in range(2):
        assert (
            next(each for each in diagnose(tmp_path).checks if each.name == "ledger").state == "ok"
        )
        with Workspace.open(tmp_path) as workspace:
            assert workspace.ledger.overlay_sequence() == 0
        delete(tmp_path)


def test_a_record_that_says_nothing_of_its_ledger_is_taken_over_with_it(tmp_path: Path):
    """As earlier releases wrote it."""
    home = project_of(tmp_path / "home")
    (state(home) / "record.json").unlink()
    pointer = json.loads(Layout(home).pointer.read_text(encoding="utf-8"))
    del pointer["generation"]["ledger"]
    Layout(home).pointer.write_text(json.dumps(pointer), encoding="utf-8")
    with open_project(home) as project:
        assert project.expand(OPEN, identity=ANA, at=NOW).item_id == OPEN
    shutil.rmtree(Layout(home).derived)
    empty(home)
    assert set(codes(home).values()) == {"ledger_missing"}


def test_a_mark_that_cannot_be_read_opens_nothing(tmp_path: Path):
    home = project_of(tmp_path / "home")
    (state(home) / "record.json").write_text("{", encoding="utf-8")
    assert set(codes(home).values()) == {"corrupt"}


def test_a_ledger_on_a_server_is_known_as_well(tmp_path: Path, postgres_server: Server):
    def ledger_at(url: str) -> str:
        return f'[ledger]\nurl = "{url}"\n'

    url, other = postgres_server.database(), postgres_server.database()
    home = project_of(tmp_path / "home", ledger_at(url))
    with open_project(home) as project, pytest.raises(NotFound):
        project.expand(SECRET, identity=ANA, at=NOW)
    settings = (home / "ctx.toml").read_text(encoding="utf-8")
    (home / "ctx.toml").write_text(settings.replace(url, other), encoding="utf-8")
    for way in (
        lambda: open_project(home).expand(SECRET, identity=ANA, at=NOW),
        lambda: build_index(home),
    ):
        with pytest.raises(Corrupt) as refused:
            way()
        assert refused.value.stable_code == "ledger_missing"
    assert (
        next(each for each in diagnose(home).checks if each.name == "ledger").code
        == "ledger_missing"
    )
