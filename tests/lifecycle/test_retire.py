"""Retirement: a source in doubt keeps what it had until a person confirms it, and what a person
retires stays out.
"""

from __future__ import annotations

import json
import shlex
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ctx_pipeline.cli.app import app
from ctx_pipeline.contracts import FileCode, SourceReport
from ctx_pipeline.errors import InvalidRequest, NotFound
from ctx_pipeline.lifecycle.retire import restore_item, retire_item, retire_source
from testing.artifacts import ANA, NOW, build_index, open_project, open_workspace, write_config
from tests.building.test_ingest import METRIC, SECOND, Home

REFUNDS = "document:docs/0.md#1"


def make_home(folder: Path, pages: int = 4, **settings: object) -> Home:
    home = Home(folder, {"docs": settings})
    for number in range(pages):
        home.write(f"docs/{number}.md", f"# Page {number}\n\nrefund rule {number}\n")
    home.refresh()
    home.build()
    return home


def lose(home: Home, *numbers: int) -> SourceReport:
    for number in numbers:
        home.remove(f"docs/{number}.md")
    return home.refresh()


def confirm(home: Home, name: str = "docs", *, confirmed: bool = True) -> int:
    home.now += timedelta(hours=1)
    with open_workspace(home.folder, at=home.now) as workspace:
        return retire_source(workspace, name, confirmed=confirmed, actor="ana").count


def steps(home: Home, item_id: str) -> list[tuple[str, str]]:
    with open_workspace(home.folder) as workspace:
        return [
            (event.to_state.value, event.actor)
            for event in workspace.ledger.events_for("acme", item_id)
        ]


def test_the_way_back_is_a_command_that_takes_back_what_was_retired(tmp_path: Path):
    home = make_home(tmp_path, pages=1)
    runner = CliRunner()
    with open_workspace(home.folder) as workspace:
        (version,) = workspace.store.scan_keys().column("version").to_pylist()
    flags = ["--version", version, "--tenant", "acme", "--reason", "错", "--home", str(tmp_path)]
    done = runner.invoke(app, ["retire", REFUNDS, *flags])
    assert done.exit_code == 0, done.stderr
    assert not home.shown("refund")
    back = shlex.split(done.stdout.splitlines()[-1])
    assert back[:6] == ["ctx", "retire", "--undo", REFUNDS, "--version", version]
    assert runner.invoke(app, back[1:]).exit_code == 0
    assert len(home.shown("refund")) == 1


@pytest.mark.parametrize(("lost", "share"), [(2, 0.5), (3, 0.75), (4, 1.0)])
def test_a_loss_up_to_the_share_is_retired(tmp_path: Path, lost: int, share: float):
    home = make_home(tmp_path, max_shrink=share)
    report = lose(home, *range(lost))
    assert (report.retired, report.withheld, report.errors) == (lost, 0, ())
    assert len(home.shown("refund")) == 4 - lost


def test_a_larger_loss_is_withheld_named_and_served_and_what_is_new_is_stored(tmp_path: Path):
    home = make_home(tmp_path)
    home.write("docs/new.md", "# New\n\nrefund rule new\n")
    report = lose(home, 0, 1, 2)
    (error,) = report.errors
    assert (report.added, report.retired, report.withheld) == (1, 0, 3)
    assert (error.code, error.path, error.items) == (FileCode.SOURCE_SHRANK, "docs", 3)
    assert "3 of 4" in error.message
    assert "ctx retire --source docs" in error.message
    home.build()
    assert len(home.shown("refund")) == 5
    with open_project(home.folder) as project:
        assert [source.withheld for source in project.status(at=NOW).sources] == [3]
    assert lose(home).withheld == 3


def test_a_document_counts_once_and_only_when_all_of_it_is_gone(tmp_path: Path):
    home = Home(tmp_path, {"docs": {}})
    text = "\n\n".join(f"## Part {n}\n\n{'refund sentence. ' * 200}" for n in range(6))
    for name in ("a", "b", "c"):
        home.write(f"docs/{name}.md", text)
    before = home.refresh()
    assert before.items > 9
    home.write("docs/a.md", "## Part 0\n\nrefund\n")
    home.remove("docs/b.md")
    after = home.refresh()
    assert (after.withheld, after.retired) == (0, before.items * 2 // 3 - 1)


def test_an_empty_source_always_asks_unless_it_may_lose_everything(tmp_path: Path):
    home = make_home(tmp_path, pages=2, max_shrink=0.99)
    assert lose(home, 0, 1).withheld == 2
    home.configure({"docs": {"max_shrink": 1}})
    assert home.refresh().retired == 2


def test_a_source_that_cannot_be_read_is_never_taken_to_be_empty(tmp_path: Path):
    home = make_home(tmp_path, max_shrink=1)
    shutil.move(tmp_path / "docs", tmp_path / "away")
    report = home.refresh()
    assert [error.code for error in report.errors] == [FileCode.MISSING, FileCode.SOURCE_SHRANK]
    assert (report.retired, report.withheld) == (0, 4)
    shutil.move(tmp_path / "away", tmp_path / "docs")
    assert (home.refresh().withheld, home.refresh().errors) == (0, ())


def test_a_version_withdrawn_before_its_item_went_stays_so_when_a_reading_is_in_doubt(
    tmp_path: Path,
):
    home = Home(
        tmp_path, {"registry": {"kind": "semantic_registry", "path": "*.yaml", "max_shrink": 0.4}}
    )
    for name in ("a", "b"):
        home.write(f"{name}.yaml", METRIC.replace("gmv", name))
    home.write("metrics.yaml", METRIC + SECOND)
    home.refresh("registry")
    home.write("metrics.yaml", METRIC)
    home.refresh("registry")
    home.remove("metrics.yaml")
    home.refresh("registry")
    home.build()
    home.write("metrics.yaml", METRIC)
    home.remove("a.yaml")
    assert home.refresh("registry").withheld == 1
    for _ in range(2):
        assert home.codes("metric:registry/gmv") == {"1": None, "2": "retired"}
        home.build()


def test_confirming_says_what_would_go_and_changes_nothing_until_it_is_confirmed(tmp_path: Path):
    home = make_home(tmp_path)
    lose(home, 0, 1, 2)
    with pytest.raises(
        InvalidRequest, match=r"3 of 4 items would be retired: document:docs/0.md#1"
    ) as asked:
        confirm(home, confirmed=False)
    assert asked.value.stable_code == "not_confirmed"
    assert len(home.shown("refund")) == 4
    assert confirm(home) == 3
    assert list(home.shown("refund")) == ["document:docs/3.md#1"]
    assert steps(home, REFUNDS) == [("created", "build"), ("retired", "ana")]
    with open_project(home.folder) as project:
        assert [source.withheld for source in project.status(at=NOW).sources] == [0]
    assert confirm(home) == 0


def test_what_a_source_lost_for_certain_comes_back_with_the_source(tmp_path: Path):
    home = make_home(tmp_path)
    lose(home, 0, 1, 2)
    confirm(home)
    home.write("docs/0.md", "# Page 0\n\nrefund rule 0\n")
    home.refresh()
    assert REFUNDS in home.shown("refund")
    assert steps(home, REFUNDS) == [("created", "build"), ("retired", "ana"), ("restored", "build")]


def test_a_source_whose_path_is_gone_can_be_confirmed(tmp_path: Path):
    home = make_home(tmp_path)
    shutil.rmtree(tmp_path / "docs")
    home.refresh()
    assert confirm(home) == 4
    assert home.shown("refund") == {}


def test_a_source_that_the_settings_no_longer_name_can_be_confirmed(tmp_path: Path):
    home = make_home(tmp_path)
    write_config(tmp_path, {"other": {}})
    with pytest.raises(InvalidRequest, match="4 of 4"):
        confirm(home, confirmed=False)
    assert len(home.shown("refund")) == 4
    assert confirm(home) == 4
    assert home.shown("refund") == {}
    with pytest.raises(NotFound) as unknown:
        confirm(home, "never")
    assert unknown.value.stable_code == "no_source"


def test_what_a_person_retires_is_hidden_at_once_and_stays_so_until_it_is_taken_back(
    tmp_path: Path,
):
    home = make_home(tmp_path)
    with open_project(tmp_path) as serving:
        assert serving.why_not(REFUNDS, identity=ANA, at=NOW)[0].visible
        with open_workspace(tmp_path) as workspace:
            for count in (1, 0):
                assert (
                    retire_item(workspace, REFUNDS, reason="wrong since May", actor="ana").count
                    == count
                )
        assert not serving.why_not(REFUNDS, identity=ANA, at=NOW)[0].visible
    for _ in range(2):
        home.refresh()
        assert REFUNDS not in home.shown("refund")
        home.build()
    with open_workspace(tmp_path) as workspace:
        restore_item(workspace, REFUNDS, actor="bo")
    assert REFUNDS in home.shown("refund")
    home.refresh()
    home.build()
    assert REFUNDS in home.shown("refund")
    assert steps(home, REFUNDS) == [("created", "build"), ("retired", "ana"), ("restored", "bo")]


def test_an_item_that_goes_and_comes_back_meanwhile_is_still_retired(tmp_path: Path):
    home = make_home(tmp_path)
    with open_workspace(tmp_path) as workspace:
        retire_item(workspace, REFUNDS, reason="wrong", actor="ana")
    lose(home, 0)
    home.write("docs/0.md", "# Page 0\n\nrefund rule 0 again\n")
    home.refresh()
    home.build()
    assert REFUNDS not in home.shown("refund")


def test_a_version_that_a_person_retired_outlives_the_return_of_its_item(tmp_path: Path):
    home = Home(tmp_path, {"registry": {"kind": "semantic_registry", "path": "*.yaml"}})
    home.write("metrics.yaml", METRIC + SECOND)
    home.write("other.yaml", METRIC.replace("gmv", "orders"))
    home.refresh("registry")
    home.build()
    gmv = "metric:registry/gmv"
    with open_workspace(tmp_path) as workspace:
        retire_item(workspace, gmv, version="2", reason="wrong formula", actor="ana")
    assert home.codes(gmv) == {"1": None, "2": "retired"}
    home.remove("metrics.yaml")
    home.refresh("registry")
    assert set(home.codes(gmv).values()) == {"retired"}
    home.write("metrics.yaml", METRIC + SECOND)
    home.refresh("registry")
    for _ in range(2):
        assert home.codes(gmv) == {"1": None, "2": "retired"}
        home.build()
    with open_workspace(tmp_path) as workspace:
        restore_item(workspace, gmv, version="2", actor="ana")
    assert home.codes(gmv) == {"1": "superseded", "2": None}


def test_taking_a_retirement_back_does_not_bring_back_what_the_source_lost(tmp_path: Path):
    home = make_home(tmp_path)
    lose(home, 0)
    with open_workspace(tmp_path) as workspace:
        retire_item(workspace, REFUNDS, reason="wrong", actor="ana")
        restore_item(workspace, REFUNDS, actor="ana")
    assert REFUNDS not in home.shown("refund")
    home.write("docs/0.md", "# Page 0\n\nrefund rule 0\n")
    home.refresh()
    assert REFUNDS in home.shown("refund")


def test_what_cannot_be_retired_or_restored_is_refused_and_changes_nothing(tmp_path: Path):
    home = make_home(tmp_path, pages=1)
    with open_workspace(tmp_path) as workspace:
        before = workspace.ledger.overlay_sequence()
        for refused, code, call in (
            (InvalidRequest, "no_reason", lambda: retire_item(workspace, REFUNDS, reason=" ")),
            (NotFound, "no_item", lambda: retire_item(workspace, "document:docs/none", reason="x")),
            (NotFound, "no_item", lambda: retire_item(workspace, REFUNDS, version="9", reason="x")),
            (
                NotFound,
                "no_item",
                lambda: retire_item(workspace, REFUNDS, tenant="globex", reason="x"),
            ),
            (NotFound, "not_retired", lambda: restore_item(workspace, REFUNDS)),
        ):
            with pytest.raises(refused) as raised:
                call()
            assert raised.value.stable_code == code
        assert workspace.ledger.overlay_sequence() == before
        retire_item(workspace, REFUNDS, reason="wrong")
        (version,) = home.codes(REFUNDS)
        with pytest.raises(InvalidRequest) as whole:
            restore_item(workspace, REFUNDS, version=version)
        assert whole.value.stable_code == "item_retired"


def test_a_build_finishes_the_retirement_that_was_cut_off_before_its_events(tmp_path: Path):
    home = make_home(tmp_path)
    with open_workspace(tmp_path) as workspace, pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(workspace.ledger), "append_events", lambda *_: json.loads(""))
        with pytest.raises(ValueError, match="Expecting value"):
            retire_item(workspace, REFUNDS, reason="wrong", actor="ana")
    assert REFUNDS not in home.shown("refund")
    with open_workspace(tmp_path) as workspace:
        retire_item(workspace, REFUNDS, reason="wrong", actor="ana")
    assert steps(home, REFUNDS) == [("created", "build"), ("retired", "ana")]
    build_index(tmp_path)


def test_taking_a_retirement_back_leaves_out_what_the_source_dropped_meanwhile(tmp_path: Path):
    home = make_home(tmp_path)
    with open_workspace(tmp_path) as workspace:
        retire_item(workspace, REFUNDS, reason="old", tenant="acme", actor="ana")
    home.remove("docs/0.md")
    home.refresh()
    with open_workspace(tmp_path) as workspace:
        restore_item(workspace, REFUNDS, tenant="acme", actor="ana")
    assert REFUNDS not in home.shown("refund rule 0")
    home.write("docs/0.md", "# Page 0\n\nrefund rule 0\n")
    home.refresh()
    assert REFUNDS in home.shown("refund rule 0")
