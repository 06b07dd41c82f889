"""What `ctx status` says of a source is what is true of it now, and what packs say."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from ctx_pipeline.config.settings import SourceConfig
from ctx_pipeline.contracts import ContextRequest, Task
from ctx_pipeline.inspection.freshness import SourceStatus, is_gone
from testing.artifacts import ANA, NOW, make_item, make_project, open_project


def status(home: Path, name: str = "handbook") -> SourceStatus:
    with open_project(home) as project:
        (found,) = [row for row in project.status(at=NOW).sources if row.name == name]
        return found


@pytest.mark.parametrize(("path", "left"), [("文档", False), ("文档", True), ("docs/*.md", False)])
def test_a_source_whose_path_is_gone_is_degraded_before_it_is_read_again(
    tmp_path: Path, path: str, left: bool
):
    folder = tmp_path / path.split("/")[0]
    folder.mkdir()
    (folder / "a.md").write_text("# A\n\nrefunds\n", encoding="utf-8")
    home = make_project(tmp_path, [make_item("a", "refunds")], {"handbook": {"path": path}})
    assert "not there" not in status(home).problem
    if not left:
        shutil.rmtree(folder)
    assert (status(home).state == "degraded") == (not left)
    assert ("not there" in status(home).problem) == (not left)


def test_a_source_is_as_stale_as_packs_call_it(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    items = [
        make_item("a", "refund rules", observed_at=NOW - timedelta(days=30)),
        make_item("b", "退款规则", observed_at=NOW - timedelta(hours=1)),
    ]
    settings = {"handbook": {"path": "docs", "freshness": "24h"}}
    home = make_project(tmp_path, items, settings, head="[policy]\nmin_relevance = 0.0")
    with open_project(home) as project:
        request = ContextRequest(task=Task(text="refund rules 退款规则"), identity=ANA)
        warnings = {w.code: w for w in project.assemble(request, at=NOW).warnings}
    assert warnings["stale_items"].item_id == "document:handbook/a"
    found = status(home)
    assert (found.state, found.stale) == ("warning", 1)
    assert found.problem == "packs call 1 of 2 items stale"


def test_a_source_of_which_every_item_is_stale_is_degraded(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    items = [make_item("a", "refund rules", observed_at=NOW - timedelta(days=30))]
    home = make_project(tmp_path, items, {"handbook": {"path": "docs", "freshness": "24h"}})
    assert (status(home).state, status(home).stale) == ("degraded", 1)


def test_other_machines_are_not_asked_whether_a_path_is_there(tmp_path: Path):
    def source(kind: str, **place: str) -> SourceConfig:
        return SourceConfig.model_validate({"name": "s", "kind": kind, **place})

    assert is_gone(source("documents", path="none"), tmp_path)
    assert not is_gone(source("documents", path="s3://bucket/none"), tmp_path)
    assert not is_gone(source("web", url="https://a.example"), tmp_path)
