"""`ctx publish` as people, programs and hooks use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from ctx_pipeline.building.generation import current_generation
from ctx_pipeline.cli.app import app
from ctx_pipeline.index.history import roll_back
from ctx_pipeline.workspace import Workspace
from testing.artifacts import write_config

REPOSITORY = Path(__file__).resolve().parents[2]
GMV = {
    "name": "gmv",
    "version": 1,
    "table": "orders",
    "expression": "sum(amount)",
    "synonyms": ["成交总额"],
}

runner = CliRunner()


def text(*metrics: dict[str, Any]) -> str:
    return json.dumps({"metrics": metrics}, ensure_ascii=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_config(tmp_path / "shop", {"registry": {"kind": "semantic_registry", "path": "semantic"}})
    (tmp_path / "gmv.yaml").write_text(text(GMV), encoding="utf-8")
    return tmp_path / "shop"


def ctx(home: Path, *words: str | Path, stdin: str | None = None) -> Result:
    line = ["publish", *map(str, words), "--home", str(home)]
    return runner.invoke(app, line, input=stdin, env={"CTX_HOME": None, "CTX_DEBUG": None})


def test_a_check_of_a_fresh_project_passes_and_writes_nothing(home: Path):
    result = ctx(home, "--check", home.parent / "gmv.yaml")
    assert result.exit_code == 0, result.stderr
    assert "added   metric:registry/gmv" in result.stdout
    assert "not_checked" in result.stdout
    assert "Checked; nothing was written" in result.stdout
    assert sorted(path.name for path in home.iterdir()) == ["ctx.toml"]


def test_a_file_is_published_and_the_report_is_one_document(home: Path):
    result = ctx(home, home.parent / "gmv.yaml", "--no-build", "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["source"], report["published"], report["added"], report["build"]) == (
        "registry",
        True,
        1,
        None,
    )
    assert "sensor" in report["note"]
    assert (home / "semantic" / "gmv.yaml").read_text(encoding="utf-8") == text(GMV)


def test_several_files_are_checked_at_once_and_one_error_fails_them(home: Path):
    (home.parent / "bad.yaml").write_text(
        text({**GMV, "name": "bad", "expression": "sum("}), encoding="utf-8"
    )
    for flags in (("--check",), ("--no-build",)):
        result = ctx(home, home.parent / "gmv.yaml", home.parent / "bad.yaml", *flags)
        assert result.exit_code == 2
        assert "error semantic/bad.yaml:1 bad_expression" in result.stdout
        assert "1 error" in result.stderr
        assert not (home / "semantic").exists()


def test_standard_input_needs_a_name(home: Path):
    assert ctx(home, "-", stdin=text(GMV)).exit_code == 2
    result = ctx(home, "-", "--as", "sales/指标.yaml", "--no-build", "--json", stdin=text(GMV))
    assert result.exit_code == 0, result.stderr
    assert (home / "semantic" / "sales" / "指标.yaml").exists()
    twice = ctx(home, "-", home.parent / "gmv.yaml", "--json", stdin="")
    assert twice.exit_code == 2
    assert json.loads(twice.stdout)["error"]["code"] == "usage"


def test_a_removal_is_an_error_without_yes(home: Path):
    ctx(home, home.parent / "gmv.yaml", "--no-build")
    other = ("-", "--as", "gmv.yaml", "--no-build", "--json")
    refused = ctx(home, *other, stdin=text({**GMV, "name": "other"}))
    assert (refused.exit_code, json.loads(refused.stdout)["error"]["code"]) == (
        2,
        "removal_not_confirmed",
    )
    done = ctx(home, *other, "--yes", stdin=text({**GMV, "name": "other"}))
    assert json.loads(done.stdout)["removed"] == 1


def test_a_changed_definition_is_shown_with_its_difference(home: Path):
    ctx(home, home.parent / "gmv.yaml", "--no-build")
    changed = {**GMV, "version": 2, "expression": "sum(net)"}
    result = ctx(home, "-", "--as", "gmv.yaml", "--no-build", stdin=text(changed))
    lines = result.stdout.splitlines()
    assert {
        "  -version: 1",
        "  +version: 2",
        "  -expression: sum(amount)",
        "  +expression: sum(net)",
    } <= set(lines)
    # Nothing is built yet: what is published waits, and the command says so.
    assert "Published, not served yet; until then: metric:registry/gmv@1" in result.stdout
    assert "Warning: not built: the next `ctx build`" in result.stdout


@pytest.mark.parametrize("content", ["", "# 稍后再写\n", "metrics: []\n", "a: 1\n"])
def test_a_new_file_without_a_definition_is_refused_and_leaves_no_folder(home: Path, content: str):
    ctx(home, home.parent / "gmv.yaml", "--no-build")
    result = ctx(home, "-", "--as", "sales/new/x.yaml", "--no-build", stdin=content)
    assert result.exit_code == 2, result.stdout
    assert "error semantic/sales/new/x.yaml no_definitions" in result.stdout
    (home.parent / "link.yaml").symlink_to(home / "ctx.toml")
    assert ctx(home, home.parent / "link.yaml", "--no-build").exit_code == 2
    assert [path.name for path in (home / "semantic").iterdir()] == ["gmv.yaml"]
    emptied = ctx(home, "-", "--as", "gmv.yaml", "--no-build", "--json", stdin=content)
    assert json.loads(emptied.stdout)["error"]["code"] == "removal_not_confirmed"
    assert ctx(home, "-", "--as", "gmv.yaml", "--no-build", "--yes", stdin=content).exit_code == 0
    assert ctx(home, "--check", home / "semantic" / "gmv.yaml").exit_code == 0


def test_a_version_that_begins_later_is_said_to_count_from_then_and_may_be_taken_back(home: Path):
    ctx(home, home.parent / "gmv.yaml", "--no-build")
    later = {**GMV, "version": 2, "valid_from": "2999-01-01T00:00:00Z", "expression": "sum(net)"}
    result = ctx(home, "-", "--as", "gmv.yaml", "--no-build", stdin=text(GMV, later))
    assert (
        "not served yet\nmetric:registry/gmv@1 counts until 2999-01-01 00:00:00Z" in result.stdout
    )
    assert "replaced" not in result.stdout
    back = ctx(home, "--check", home.parent / "gmv.yaml")
    assert "taken back  metric:registry/gmv  2     1" in back.stdout
    assert "0 removed, 1 taken back" in back.stdout


def test_what_is_published_under_a_pinned_index_is_told_with_the_way_out(home: Path):
    ctx(home, home.parent / "gmv.yaml")
    with Workspace.open(home) as workspace:
        artifact = json.loads(workspace.layout.pointer.read_text(encoding="utf-8"))["content_hash"]
        now = workspace.clock()
        roll_back(
            workspace.layout,
            current_generation(workspace),
            workspace.store,
            at=now,
            artifact=artifact,
        )
    changed = {**GMV, "version": 2, "expression": "sum(net)"}
    result = ctx(home, "-", "--as", "gmv.yaml", stdin=text(changed))
    assert result.exit_code == 0, result.stderr
    assert "nothing new is served: the index is pinned" in result.stdout
    assert "ctx index unpin" in result.stdout
    assert "None" not in result.stdout
    assert "Published, not served yet; until then: metric:registry/gmv@1" in result.stdout


def test_status_warns_of_what_waits_for_a_build_until_it_is_built(home: Path):
    def status() -> str:
        return runner.invoke(app, ["status", "--home", str(home)], env={"CTX_HOME": None}).stdout

    ctx(home, home.parent / "gmv.yaml")
    assert "not built yet" not in status()
    ctx(
        home,
        "-",
        "--as",
        "gmv.yaml",
        "--no-build",
        stdin=text({**GMV, "version": 2, "expression": "sum(net)"}),
    )
    assert (
        "1 item version is recorded and not built yet: what was served before is served still"
        in status()
    )
    result = ctx(home, home / "semantic" / "gmv.yaml", "--json")
    report = json.loads(result.stdout)
    assert (report["served"], report["superseded"]) == (True, ["metric:registry/gmv@1"])
    assert "not built yet" not in status()


def test_the_hook_runs_a_command_that_there_is(home: Path):
    (hook,) = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert (hook["id"], hook["language"], hook["types"]) == ("ctx-definitions", "python", ["yaml"])
    program, command, *flags = hook["entry"].split()
    assert (program, command) == ("ctx", "publish")
    assert ctx(home, *flags, home.parent / "gmv.yaml").exit_code == 0
