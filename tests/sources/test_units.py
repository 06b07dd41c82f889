"""What has not changed is not parsed again, and whether it is makes no difference to what is
stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from ctx_pipeline.building.refresh import refresh_source
from ctx_pipeline.contracts import ContextRequest, Task
from ctx_pipeline.sources.documents import memories
from ctx_pipeline.sources.formats import splitting
from ctx_pipeline.workspace import Workspace
from testing.artifacts import ANA, NOW, build_index, open_project, open_workspace, write_config

SOURCES: Mapping[str, Mapping[str, object]] = {"handbook": {}, "notes": {"kind": "memories"}}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_config(tmp_path, SOURCES)
    document(tmp_path, "a.md", "# Refunds\n\nRefunds take 30 days.")
    document(tmp_path, "b.md", "# 退款\n\n退款需要 30 天。")
    notes(tmp_path, {"m1": "Ana likes tea", "m2": "Bo 喜欢咖啡"})
    refresh(tmp_path)
    return tmp_path


def document(home: Path, name: str, text: str) -> None:
    (home / "handbook").mkdir(exist_ok=True)
    (home / "handbook" / name).write_text(text, encoding="utf-8")


def notes(home: Path, texts: Mapping[str, str], more: str = "") -> None:
    lines = [
        json.dumps({"id": key, "text": text}, ensure_ascii=False) for key, text in texts.items()
    ]
    (home / "notes").mkdir(exist_ok=True)
    (home / "notes" / "notes.jsonl").write_text("\n".join(lines) + "\n" + more, encoding="utf-8")


def refresh(home: Path) -> dict[str, tuple[int, int, int]]:
    """Read both sources; return (items, added, retired) of each."""
    with open_workspace(home) as workspace:
        reports = [refresh_source(workspace, name) for name in SOURCES]
    return {report.name: (report.items, report.added, report.retired) for report in reports}


def forbid_parsing(patch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("parsed again")

    patch.setattr(memories, "_parse", refuse)
    patch.setattr("ctx_pipeline.sources.documents.documents.split_text", refuse)
    assert splitting.split_text is not refuse


def stored(home: Path) -> list[tuple[str, str, str]]:
    with open_workspace(home) as workspace:
        keys = workspace.store.scan_keys()
    return list(
        zip(*(keys[name].to_pylist() for name in ("item_id", "version", "item_hash")), strict=True)
    )


def test_unchanged_files_and_lines_are_not_parsed(home: Path, monkeypatch: pytest.MonkeyPatch):
    before = stored(home)
    with monkeypatch.context() as patch:
        forbid_parsing(patch)
        assert refresh(home) == {"handbook": (2, 0, 0), "notes": (2, 0, 0)}
    assert stored(home) == before


def test_an_edit_adds_only_what_it_changed(home: Path):
    document(home, "b.md", "# 退款\n\n退款需要 14 天。")
    notes(home, {"m0": "new", "m1": "Ana likes tea", "m2": "Bo 不喜欢咖啡"})
    assert refresh(home) == {"handbook": (2, 1, 0), "notes": (3, 2, 0)}
    assert refresh(home) == {"handbook": (2, 0, 0), "notes": (3, 0, 0)}


def test_what_vanishes_is_retired_although_the_rest_was_not_parsed(home: Path):
    (home / "handbook" / "a.md").unlink()
    notes(home, {"m2": "Bo 喜欢咖啡"})
    assert refresh(home) == {"handbook": (1, 0, 1), "notes": (1, 0, 1)}


def test_an_unchanged_file_that_comes_back_is_served_again(home: Path):
    text = (home / "handbook" / "a.md").read_text(encoding="utf-8")
    (home / "handbook" / "a.md").unlink()
    refresh(home)
    document(home, "a.md", text)
    assert refresh(home)["handbook"] == (2, 0, 0)
    build_index(home)
    with open_project(home) as project:
        pack = project.assemble(ContextRequest(task=Task(text="refunds"), identity=ANA), at=NOW)
    assert "document:handbook/a.md#1" in {
        item.item_id for section in pack.sections for item in section.items
    }


def test_content_that_goes_and_comes_back_is_the_newest_again(home: Path):
    first = (home / "handbook" / "a.md").read_text(encoding="utf-8")
    document(home, "a.md", "# Refunds\n\nRefunds take 14 days.")
    assert refresh(home)["handbook"][1] == 1
    document(home, "a.md", first)
    assert refresh(home)["handbook"][1] == 1


def test_a_reading_whose_end_was_lost_is_not_trusted(home: Path, monkeypatch: pytest.MonkeyPatch):
    """The file of units is older than the store: what it says of a file may have been overtaken."""
    first = (home / "handbook" / "a.md").read_text(encoding="utf-8")
    document(home, "a.md", "# Refunds\n\nRefunds take 14 days.")
    with monkeypatch.context() as patch:
        patch.setattr("ctx_pipeline.sources.units.UnitFile.save", lambda *_: None)
        assert refresh(home)["handbook"][1] == 1
    document(home, "a.md", first)
    assert refresh(home)["handbook"][1] == 1


def test_other_settings_of_the_source_parse_everything(home: Path):
    write_config(home, {"handbook": {"groups": ["finance"]}, "notes": {"kind": "memories"}})
    assert refresh(home) == {"handbook": (2, 2, 0), "notes": (2, 0, 0)}
    with open_workspace(home) as workspace:
        newest = workspace.store.read("acme", "document:handbook/a.md#1", stored(home)[0][1])
    assert newest is not None
    assert newest.item().scope.groups == ("finance",)


def test_errors_are_reported_at_every_reading(home: Path):
    notes(home, {"m1": "Ana likes tea"}, more="no json\n")
    for _ in range(2):
        with open_workspace(home) as workspace:
            report = refresh_source(workspace, "notes")
        assert [error.code.value for error in report.errors] == ["bad_json"]
        assert report.retired == 0


def test_an_id_given_twice_is_reported_although_both_lines_were_there_before(home: Path):
    notes(
        home,
        {"m1": "Ana likes tea", "m2": "Bo 喜欢咖啡"},
        more='{"id": "m1", "text": "Ana likes coffee"}\n',
    )
    for _ in range(2):
        with open_workspace(home) as workspace:
            report = refresh_source(workspace, "notes")
        assert [error.code.value for error in report.errors] == ["duplicate_id"]
        assert report.items == 2


def test_lines_that_moved_are_not_stored_again(home: Path):
    notes(home, {"m0": "on top", "m1": "Ana likes tea", "m2": "Bo 喜欢咖啡"})
    assert refresh(home)["notes"] == (3, 1, 0)
    for file in (home / ".ctx" / "derived").rglob("*.arrow"):
        file.unlink()
    notes(home, {"m-1": "higher", "m0": "on top", "m1": "Ana likes tea", "m2": "Bo 喜欢咖啡"})
    assert refresh(home)["notes"] == (4, 1, 0)


@pytest.mark.parametrize("damage", [b"", b"no arrow file"])
def test_damaged_or_missing_units_are_read_anew(home: Path, damage: bytes):
    for file in (home / ".ctx" / "derived" / "sources").rglob("*.arrow"):
        file.write_bytes(damage)
    assert refresh(home) == {"handbook": (2, 0, 0), "notes": (2, 0, 0)}


def test_a_future_version_still_supersedes_when_it_was_not_parsed_again(home: Path):
    later = (NOW + timedelta(days=2)).isoformat()
    document(home, "d.md", "---\nversion: 1\n---\nold")
    refresh(home)
    document(home, "d.md", f"---\nversion: 2\nvalid_from: {later}\n---\nnew")
    for _ in range(2):
        assert refresh(home)["handbook"][2] == 0
    with Workspace.open(home, clock=lambda: NOW + timedelta(days=3)) as workspace:
        assert refresh_source(workspace, "handbook").retired == 0
