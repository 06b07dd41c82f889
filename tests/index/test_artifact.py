"""Publishing: complete or not at all, one pointer, and old artifacts stay as long as they were
promised.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from ctx_pipeline.building.generation import current_generation
from ctx_pipeline.building.pipeline import Pipeline
from ctx_pipeline.contracts import ContextRequest, Task
from ctx_pipeline.errors import Corrupt, Unavailable
from ctx_pipeline.index import artifact
from ctx_pipeline.index.artifact import (
    Generation,
    Layout,
    Staging,
    file_digest,
    publish_artifact,
    read_pointer,
)
from ctx_pipeline.index.history import published_generation
from ctx_pipeline.orchestration.doctor import diagnose
from testing.artifacts import (
    ANA,
    NOW,
    STAGES,
    append_overlay,
    build_index,
    make_item,
    make_project,
    open_project,
    open_workspace,
    overlay,
    store_items,
)

ASK = ContextRequest(task=Task(text="refund"), identity=ANA)


def test_nothing_is_published_while_a_part_is_missing(tmp_path: Path):
    staging = Staging(Layout(tmp_path), Generation(1, 0, "none", 4, "x"))
    with pytest.raises(Unavailable) as refused:
        publish_artifact(staging, {})
    assert refused.value.stable_code == "stage_missing"
    assert read_pointer(Layout(tmp_path)) is None


@pytest.mark.parametrize("stage", ["budgeted_items", "assembled_items"])
def test_a_stage_before_its_inputs_says_which_is_missing(tmp_path: Path, stage: str):
    home = make_project(tmp_path, [make_item("a", "refund")])
    store_items(home, [make_item("b", "refund")])
    with open_workspace(home) as workspace, pytest.raises(Unavailable) as refused:
        getattr(Pipeline(workspace), stage)()
    assert refused.value.stable_code == "stage_missing"
    with open_project(home) as project:
        assert project.assemble(ASK, at=NOW).items


@pytest.mark.parametrize("step", ["_link", "_write_synced", "move_pointer"])
def test_a_build_that_dies_while_publishing_leaves_the_old_artifact_and_the_next_build_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
):
    home = make_project(tmp_path, [make_item("a", "refund")])
    before = read_pointer(Layout(home))
    store_items(home, [make_item("b", "refund too")])
    calls = 0

    def die(*_: object) -> None:
        nonlocal calls
        calls += 1
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(artifact, step, die)
        with pytest.raises(KeyboardInterrupt):
            build_index(home)
    assert calls == 1
    assert read_pointer(Layout(home)) == before
    with open_project(home) as project:
        assert "document:handbook/b" not in project.assemble(ASK, at=NOW).model_dump_json()
    build_index(home)
    with open_project(home) as project:
        assert "document:handbook/b" in {
            item.item_id for item in project.assemble(ASK, at=NOW).items
        }


def test_a_half_linked_directory_of_a_killed_build_is_replaced(tmp_path: Path):
    home = make_project(tmp_path, [make_item("a", "refund")])
    name = (read_pointer(Layout(home)) or {})["artifact"]
    (Layout(home).artifacts / name / "manifest.json").unlink()
    build_index(home)
    with open_project(home) as project:
        assert project.assemble(ASK, at=NOW).items


def test_the_newest_artifacts_stay_and_the_others_go(tmp_path: Path):
    home = make_project(tmp_path, [make_item("0", "refund 0")], head="[artifact]\nkeep = 2")
    names: list[str] = []
    for number in range(1, 5):
        store_items(home, [make_item(f"{number}", f"refund {number}")])
        build_index(home)
        names.append((read_pointer(Layout(home)) or {})["artifact"])
    left = {path.name for path in Layout(home).artifacts.iterdir()}
    assert len(left) == 2
    assert names[-1] in left
    assert len(list((Layout(home).derived / "staging").iterdir())) == 1


def test_every_part_has_the_digest_that_the_manifest_names(tmp_path: Path):
    home = make_project(tmp_path, [make_item("a", "refund")])
    pointer = read_pointer(Layout(home)) or {}
    folder = Layout(home).artifacts / pointer["artifact"]
    with open_project(home) as project:
        manifest = project.index.view().reader.manifest
    assert manifest["content_hash"] == pointer["content_hash"]
    assert set(manifest["parts"]) == set(artifact.PARTS)
    for name, digest in manifest["parts"].items():
        assert file_digest(folder / f"{name}.arrow") == digest


def test_a_pointer_that_cannot_be_read_is_corrupt(tmp_path: Path):
    home = make_project(tmp_path, [make_item("a", "refund")])
    Layout(home).pointer.write_text("not json", encoding="utf-8")
    with pytest.raises(Corrupt):
        read_pointer(Layout(home))


@pytest.mark.timeout(120)
def test_every_pack_assembled_while_artifacts_are_published_reads_one_of_them(tmp_path: Path):
    """Ours: P8. Each artifact holds as many items as its number says, so a mixture would show."""
    home = make_project(
        tmp_path,
        [make_item("000", "refund rule 0")],
        head="[artifact]\nkeep = 2\n[policy]\nmin_relevance = 0.0",
    )
    known = {(read_pointer(Layout(home)) or {})["content_hash"]: 1}
    stop = threading.Event()
    seen: list[tuple[str, int]] = []
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            with open_project(home) as project:
                while not stop.is_set() or len(seen) < 20:
                    pack = project.assemble(ASK, at=NOW)
                    seen.append(
                        (pack.index_version, sum("handbook" in item.item_id for item in pack.items))
                    )
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    for number in range(1, 8):
        store_items(home, [make_item(f"{number:03d}", f"refund rule {number}")])
        build_index(home)
        known[(read_pointer(Layout(home)) or {})["content_hash"]] = number + 1
    stop.set()
    thread.join()
    assert failures == []
    assert all(known[version] == count for version, count in seen)
    assert len({version for version, _ in seen}) >= 2


def test_what_is_retired_while_a_build_runs_is_out_at_once_and_the_build_ends_well(tmp_path: Path):
    home = make_project(tmp_path, [make_item("a", "refund"), make_item("b", "refund too")])
    store_items(home, [make_item("c", "refund three")])
    with open_workspace(home) as workspace:
        pipeline = Pipeline(workspace)
        pipeline.discovered_items()
        append_overlay(home, overlay("retired", "document:handbook/b"))
        for stage in STAGES[1:]:
            getattr(pipeline, stage)()
        assert current_generation(workspace) != published_generation(workspace.layout)
    with open_project(home) as project:
        shown = {item.item_id for item in project.assemble(ASK, at=NOW).items}
    assert "document:handbook/c" in shown
    assert "document:handbook/b" not in shown


@pytest.mark.parametrize("manifest", ["{}", "[]", "", '{"format": 4}'])
def test_a_manifest_that_is_not_whole_is_refused_by_name(tmp_path: Path, manifest: str):
    home = make_project(tmp_path, [make_item("a", "refund")])
    (directory,) = (home / ".ctx" / "derived" / "artifacts").iterdir()
    (directory / "manifest.json").write_text(manifest, encoding="utf-8")
    with open_project(home) as project, pytest.raises(Corrupt):
        project.assemble(ASK, at=NOW)


@pytest.mark.parametrize(
    "pin", [{"since": "x"}, {"since": "x", "reason": "y", "latest": {"artifact": "z"}}]
)
def test_a_damaged_pin_is_refused_by_name(tmp_path: Path, pin: dict[str, object]):
    layout = Layout(make_project(tmp_path, [make_item("a", "refund")]))
    pointer = json.loads(layout.pointer.read_text(encoding="utf-8"))
    layout.pointer.write_text(json.dumps({**pointer, "pin": pin}), encoding="utf-8")
    with pytest.raises(Corrupt):
        read_pointer(layout)


def test_a_build_with_an_older_ledger_is_refused_and_brings_nothing_back(tmp_path: Path):
    home = make_project(tmp_path, [make_item("a", "refund"), make_item("b", "refund too")])
    ledger = home / ".ctx" / "state" / "ledger.db"
    older = ledger.read_bytes()
    append_overlay(home, overlay("retired", "document:handbook/b"))
    build_index(home)
    for file in ledger.parent.glob("ledger.db*"):
        file.unlink()
    ledger.write_bytes(older)
    with pytest.raises(Corrupt) as refused:
        build_index(home)
    assert refused.value.stable_code == "ledger_behind"
    with open_project(home) as project, pytest.raises(Corrupt):
        project.assemble(ASK, at=NOW)
    assert next(check for check in diagnose(home).checks if check.name == "ledger").state == "fail"
