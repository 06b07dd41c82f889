"""Going back to a kept artifact: it is held until it is let go, and neither rights nor events go
back with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ctx_pipeline.building.generation import current_generation
from ctx_pipeline.contracts import ContextRequest, Task
from ctx_pipeline.errors import Conflict, Corrupt, CtxError, InvalidRequest, NotFound
from ctx_pipeline.index import artifact
from ctx_pipeline.index.artifact import Layout, move_pointer, read_pointer
from ctx_pipeline.index.history import (
    IndexChange,
    built_generation,
    closed_since,
    index_pin,
    kept_artifacts,
    pin_today,
    published_generation,
    roll_back,
    unpin,
)
from ctx_pipeline.lifecycle.retire import retire_item
from testing.artifacts import (
    ANA,
    NOW,
    append_overlay,
    build_index,
    make_item,
    make_project,
    open_project,
    open_workspace,
    overlay,
    store_items,
    write_config,
)
from testing.children import processes

HEAD = "[policy]\nmin_relevance = 0.0"
A, B, C = (f"document:handbook/{name}" for name in "abc")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Three builds: a; a and b; a, b and c."""
    make_project(tmp_path, [make_item("a", "refund one")], head=HEAD)
    for name in "bc":
        store_items(tmp_path, [make_item(name, f"refund {name}")])
        build_index(tmp_path)
    return tmp_path


def shown(home: Path) -> set[str]:
    request = ContextRequest(task=Task(text="refund"), identity=ANA)
    with open_project(home) as project:
        return {
            item.item_id
            for item in project.assemble(request, at=NOW).items
            if "handbook" in item.item_id
        }


def back(home: Path, artifact: str | None = None, reason: str = "wrong prices") -> IndexChange:
    with open_workspace(home) as workspace:
        today = current_generation(workspace)
        return roll_back(
            workspace.layout, today, workspace.store, at=NOW, artifact=artifact, reason=reason
        )


def test_kept_artifacts_are_listed_with_what_they_are_made_from(home: Path):
    kept = kept_artifacts(Layout(home))
    assert [(one.rows, one.store_sequence, one.current, one.pinned) for one in kept] == [
        (3, 3, True, False),
        (2, 2, False, False),
        (1, 1, False, False),
    ]
    assert all(one.embedder == "test-words/1" and one.bytes > 1_000 for one in kept)
    assert kept[0].artifact == (read_pointer(Layout(home)) or {})["content_hash"]


def test_the_one_before_is_served_and_held_while_builds_go_on(home: Path):
    newest, before, _ = (one.artifact for one in kept_artifacts(Layout(home)))
    change = back(home)
    assert (change.before, change.now) == (newest, before)
    assert shown(home) == {A, B}
    store_items(home, [make_item("d", "refund d")])
    built, _ = build_index(home)
    pin = index_pin(Layout(home))
    assert pin is not None
    assert (pin.artifact, pin.since, pin.reason, pin.waiting) == (
        before,
        NOW,
        "wrong prices",
        built,
    )
    assert shown(home) == {A, B}
    with open_workspace(home) as workspace:
        assert (
            built_generation(workspace.layout)
            == current_generation(workspace)
            != published_generation(workspace.layout)
        )
    with open_project(home) as project:
        assert project.status(at=NOW).pin == pin
    assert [one.artifact for one in kept_artifacts(Layout(home)) if one.pinned and one.current] == [
        before
    ]


def test_letting_go_serves_what_was_built_meanwhile_and_builds_publish_again(home: Path):
    back(home)
    store_items(home, [make_item("d", "refund d")])
    built, _ = build_index(home)
    change = unpin(Layout(home))
    assert (change.now, change.pin, index_pin(Layout(home))) == (built, None, None)
    assert len(shown(home)) == 4
    store_items(home, [make_item("e", "refund e")])
    build_index(home)
    assert len(shown(home)) == 5
    with pytest.raises(InvalidRequest) as refused:
        unpin(Layout(home))
    assert refused.value.stable_code == "not_pinned"


def test_letting_go_without_a_build_in_between_serves_what_was_served_before(home: Path):
    back(home)
    back(home)
    assert shown(home) == {A}
    unpin(Layout(home))
    assert shown(home) == {A, B, C}


@pytest.mark.parametrize("code", ["retired", "forgotten", "revoked", "quarantined"])
def test_what_was_taken_out_since_stays_out(home: Path, code: str):
    if code == "retired":
        with open_workspace(home) as workspace:
            retire_item(workspace, A, reason="wrong")
    else:
        append_overlay(home, overlay(code, A))
    build_index(home)
    back(home, kept_artifacts(Layout(home))[2].artifact)
    assert shown(home) == {B}


def test_rights_are_not_rolled_back_with_the_settings(home: Path):
    write_config(home, {"handbook": {"groups": ["board"]}}, HEAD)
    build_index(home)
    before = read_pointer(Layout(home))
    with pytest.raises(Conflict) as refused:
        back(home)
    assert refused.value.stable_code == "other_settings"
    assert read_pointer(Layout(home)) == before


@pytest.mark.parametrize(("groups", "refused"), [(("board",), True), (("*", "board"), False)])
@pytest.mark.parametrize("version", ["1", "2"])
def test_an_item_that_was_closed_since_is_not_opened_again(
    home: Path, groups: tuple[str, ...], refused: bool, version: str
):
    store_items(home, [make_item("a", "refund one", version=version, groups=groups)])
    build_index(home)
    if not refused:
        assert back(home).action == "rolled_back"
        return
    with pytest.raises(Conflict) as conflict:
        back(home)
    assert conflict.value.stable_code == "rights_changed"
    assert index_pin(Layout(home)) is None


def test_an_item_that_is_closed_while_the_index_is_pinned_is_told(home: Path):
    back(home)
    store_items(
        home,
        [
            make_item("a", "refund one", groups=("board",)),
            make_item("b", "x", valid_from=NOW + timedelta(1)),
        ],
    )
    with open_workspace(home) as workspace:
        pin = pin_today(workspace.layout, workspace.store, NOW)
        assert pin is not None
        assert pin.closed == 1
        kept = kept_artifacts(workspace.layout)
        assert (
            closed_since(workspace.layout.artifacts / kept[0].artifact[:32], workspace.store, NOW)
            == 1
        )


def test_a_build_that_finds_an_item_closed_ends_the_pin(home: Path):
    back(home)
    build_index(home)
    assert shown(home) == {A, B}
    store_items(home, [make_item("a", "refund one", version="2", groups=("board",))])
    build_index(home)
    assert shown(home) == {B, C}
    assert index_pin(Layout(home)) is None


def test_a_build_under_other_grants_ends_the_pin(home: Path):
    back(home)
    write_config(home, {"handbook": {"groups": ["board"]}}, HEAD)
    build_index(home)
    assert index_pin(Layout(home)) is None


def test_a_damaged_artifact_is_not_served(home: Path):
    name = kept_artifacts(Layout(home))[1].artifact[:32]
    part = Layout(home).artifacts / name / "vectors.arrow"
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    with pytest.raises(Corrupt):
        back(home)
    assert shown(home) == {A, B, C}


def test_an_artifact_is_named_by_the_beginning_of_its_hash(home: Path):
    third = kept_artifacts(Layout(home))[2].artifact
    assert back(home, third[:12]).now == third
    for name, kind, code in (("ffffffff", NotFound, "no_artifact"), ("", NotFound, "no_artifact")):
        with pytest.raises(kind) as refused:
            back(home, name)
        assert refused.value.stable_code == code
    assert shown(home) == {A}
    with pytest.raises(NotFound):
        back(home)


def test_retention_keeps_what_is_served_and_what_waits(tmp_path: Path):
    home = make_project(tmp_path, [make_item("a", "refund")], head=f"[artifact]\nkeep = 2\n{HEAD}")
    store_items(home, [make_item("b", "refund")])
    build_index(home)
    served = back(home).now
    for number in range(4):
        store_items(home, [make_item(f"n{number}", "refund")])
        waiting, _ = build_index(home)
    kept = {one.artifact for one in kept_artifacts(Layout(home))}
    assert {served, waiting} <= kept
    assert len(kept) <= 3
    assert shown(home) == {A}


def test_a_pin_goes_with_the_derived_folder_and_the_next_build_publishes(home: Path):
    back(home)
    for path in sorted(Layout(home).derived.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    build_index(home)
    assert index_pin(Layout(home)) is None
    assert shown(home) == {A, B, C}


@pytest.mark.parametrize("call", [back, lambda home: unpin(Layout(home))])
def test_nothing_is_half_moved_when_it_dies_before_the_pointer_moves(
    home: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[Path], Any]
):
    back(home)
    before = Layout(home).pointer.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(artifact.os, "replace", _die)
        with pytest.raises(KeyboardInterrupt):
            call(home)
    assert Layout(home).pointer.read_bytes() == before
    call(home)


def _die(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_process_killed_with_the_lock_in_its_hands_keeps_nobody_out(home: Path):
    script = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from ctx_pipeline.index.artifact import Layout, pointer_lock\n"
        "with pointer_lock(Layout(Path(sys.argv[1]))):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", script, str(home)], check=False, timeout=50, env=dict(os.environ)
    )
    assert killed.returncode == -signal.SIGKILL
    assert back(home).action == "rolled_back"


def _turn(folder: str, ready: Any, results: Any) -> None:
    seen: list[str] = []
    ready.wait(30)
    for _ in range(15):
        for step in (back, lambda home: unpin(Layout(home))):
            try:
                seen.append(step(Path(folder)).now)
            except CtxError as refused:
                seen.append(refused.stable_code)
        pointer = read_pointer(Layout(Path(folder))) or {}
        seen.append(pointer["content_hash"])
    results.put(seen)


@pytest.mark.timeout(120)
def test_two_processes_that_roll_back_and_let_go_at_once_always_leave_a_whole_pointer(home: Path):
    hashes = {one.artifact for one in kept_artifacts(Layout(home))}
    context = processes()
    ready, results = context.Barrier(2), context.Queue()
    children = [context.Process(target=_turn, args=(str(home), ready, results)) for _ in range(2)]
    for child in children:
        child.start()
    seen = [answer for _ in children for answer in results.get(timeout=100)]
    for child in children:
        child.join(30)
        assert child.exitcode == 0
    assert set(seen) <= hashes | {"not_pinned", "no_artifact"}
    move_pointer(Layout(home), read_pointer(Layout(home)) or {})
    assert shown(home)
