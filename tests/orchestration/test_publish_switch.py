"""A publish switches every reader in one step: whenever it is killed, exactly one version of a
definition is live.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ctx_pipeline.building.generation import current_generation
from ctx_pipeline.building.pipeline import Pipeline
from ctx_pipeline.contracts import ContextRequest, Task
from ctx_pipeline.index import artifact
from ctx_pipeline.index.artifact import Layout
from ctx_pipeline.index.history import roll_back, unpin
from ctx_pipeline.index.serving import ServingIndex
from ctx_pipeline.index.store import Store
from ctx_pipeline.ledger import Ledger
from ctx_pipeline.lifecycle.retire import retire_item
from ctx_pipeline.lifecycle.sweep import record_evictions
from ctx_pipeline.orchestration.publish import DefinitionFile, publish
from ctx_pipeline.project import ContextProject
from testing.artifacts import (
    ANA,
    NOW,
    STAGES,
    build_index,
    open_project,
    open_workspace,
    write_config,
)
from testing.children import processes

GMV = "metric:registry/gmv"
LATER = NOW + timedelta(hours=1)
TASK = "what is gmv? 成交总额是什么"


def definition(version: int, **more: Any) -> DefinitionFile:
    metric = {
        "name": "gmv",
        "version": version,
        "description": f"Gross merchandise value, definition {version}. 成交总额。",
        "synonyms": ["成交总额"],
        "table": "orders",
        "expression": f"sum(amount) + {version}",
        **more,
    }
    return DefinitionFile(
        "gmv.yaml", content=json.dumps({"metrics": [metric]}, ensure_ascii=False).encode()
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("switch") / "shop"
    write_config(folder, {"registry": {"kind": "semantic_registry", "path": "semantic"}})
    publish(folder, [definition(1)], build=False, clock=lambda: NOW)
    build_index(folder)
    return folder


@pytest.fixture
def home(built: Path, tmp_path: Path) -> Path:
    """A project that serves version 1 of gmv."""
    return shutil.copytree(built, tmp_path / "shop")


def shown(project: ContextProject, at: datetime = LATER, **more: Any) -> list[str]:
    request = ContextRequest(task=Task(text=TASK), identity=ANA, **more)
    return [item.version for item in project.assemble(request, at=at).items if item.item_id == GMV]


def absorb(home: Path) -> None:
    with open_workspace(home, LATER) as workspace:
        pipeline = Pipeline(workspace)
        for stage in STAGES:
            getattr(pipeline, stage)()


# --- killed at every step

STEPS: dict[str, tuple[Any, str, str]] = {
    "before the files are written": (Store, "head", "before"),
    "before the store is written": (Store, "append", "before"),
    "after the store was written": (Store, "append", "after"),
    "after the log was written": (Ledger, "append_events", "after"),
    "before the source is observed": (Ledger, "record_source", "before"),
    "before the first stage": (Pipeline, "discovered_items", "before"),
    "after the first stage": (Pipeline, "discovered_items", "after"),
    "after the labels": (Pipeline, "filtered_items", "after"),
    "before the last stage": (Pipeline, "assembled_items", "before"),
    "before the pointer moves": (artifact, "move_pointer", "before"),
    "after the pointer moved": (artifact, "move_pointer", "after"),
    "not at all": (Pipeline, "context_snapshots", "before"),
}


def _die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _publish_and_die(folder: str, step: str) -> None:
    """Publish and run the stages, in a process that is killed at a step."""
    owner, name, when = STEPS[step]
    plain: Callable[..., Any] = getattr(owner, name)

    def killed(*arguments: Any, **named: Any) -> Any:
        if when == "before":
            _die()
        result = plain(*arguments, **named)
        _die()
        return result

    setattr(owner, name, killed)
    publish(folder, [definition(2)], build=False, clock=lambda: LATER)
    absorb(Path(folder))


@pytest.mark.parametrize("step", STEPS)
def test_a_poller_sees_exactly_one_live_version_at_every_instant_wherever_a_publish_is_killed(
    home: Path, step: str
):
    publishing = processes().Process(target=_publish_and_die, args=(str(home), step))
    with open_project(home) as project:
        packs = [shown(project)]
        publishing.start()
        while publishing.is_alive():
            packs.append(shown(project))
        packs.append(shown(project))
        assert publishing.exitcode == (0 if step == "not at all" else -signal.SIGKILL)
        assert {len(pack) for pack in packs} == {1}
        # The same again finishes what the killed one has left.
        assert publish(home, [definition(2)], build=False, clock=lambda: LATER).published
        assert len(shown(project)) == 1
        absorb(home)
        assert shown(project) == ["2"]
        created = [
            event.version
            for event in project.history(GMV, identity=ANA)
            if event.to_state.value == "created"
        ]
        assert created == ["1", "2"], "also what was stored and not logged"


# --- other ways to the same item


def test_two_publishes_in_a_row_leave_the_version_that_is_served_until_one_build_has_both(
    home: Path,
):
    with open_project(home) as project:
        for version in (2, 3):
            report = publish(home, [definition(version)], build=False, clock=lambda: LATER)
            assert report.superseded[0] == f"{GMV}@1"
            assert shown(project) == ["1"]
        absorb(home)
        assert shown(project) == ["3"]


def test_what_is_retired_goes_at_once_whatever_waits(home: Path):
    publish(home, [definition(2)], build=False, clock=lambda: LATER)
    with open_project(home) as project, open_workspace(home, LATER) as workspace:
        retire_item(workspace, GMV, reason="wrong", tenant="acme", actor="ana")
        assert shown(project) == []
        absorb(home)
        assert shown(project) == []


def test_a_waiting_version_that_is_retired_never_shows_and_the_one_before_stays(home: Path):
    publish(home, [definition(2)], build=False, clock=lambda: LATER)
    with open_project(home) as project, open_workspace(home, LATER) as workspace:
        retire_item(workspace, GMV, version="2", reason="wrong", tenant="acme", actor="ana")
        assert shown(project) == ["1"]
        absorb(home)
        assert shown(project) == ["1"]


def test_an_index_that_is_pinned_or_rolled_back_keeps_one_version_live(home: Path):
    publish(home, [definition(2)], build=False, clock=lambda: LATER)
    absorb(home)
    with open_project(home) as project, open_workspace(home, LATER) as workspace:
        assert shown(project) == ["2"]
        roll_back(workspace.layout, current_generation(workspace), workspace.store, at=LATER)
        assert shown(project) == ["1"]
        report = publish(home, [definition(3)], build=False, clock=lambda: LATER)
        assert not report.served
        absorb(home)
        assert shown(project) == ["1"]
        assert not publish(home, [definition(3)], build=False, clock=lambda: LATER).served
        unpin(Layout(home))
        assert shown(project) == ["3"]


def test_an_earlier_moment_shows_its_own_version_before_and_after_the_switch(home: Path):
    begins = NOW + timedelta(minutes=30)
    publish(home, [definition(2, valid_from=begins.isoformat())], build=False, clock=lambda: LATER)
    with open_project(home) as project:
        for _ in range(2):
            assert shown(project, as_of=NOW) == ["1"]
            absorb(home)
        assert shown(project) == shown(project, as_of=begins) == ["2"]


def test_a_version_is_recalled_when_it_is_replaced_and_not_before(home: Path):
    with open_project(home) as project, open_workspace(home, LATER) as workspace:
        project.assemble(ContextRequest(task=Task(text=TASK), identity=ANA), at=LATER, durable=True)
        publish(home, [definition(2)], build=False, clock=lambda: LATER)
        assert record_evictions(workspace).recalls == ()
        absorb(home)
        (notice,) = record_evictions(workspace).recalls
        assert (notice.item_id, notice.version, notice.code) == (GMV, "1", "superseded")


def test_an_artifact_that_is_published_while_a_reader_opens_is_no_error(home: Path):
    """It knows overlay entries that were not there when the reader began."""
    with open_workspace(home, LATER) as workspace:
        published: list[str] = []

        def sequence_before_another_build() -> int:
            before = workspace.ledger.overlay_sequence()
            if not published:
                retire_item(workspace, GMV, reason="wrong", tenant="acme", actor="ana")
                absorb(home)
                published.append("once")
            return before

        index = ServingIndex(
            home,
            overlay_sequence=sequence_before_another_build,
            overlay_since=workspace.ledger.overlay_since,
        )
        assert index.view().overlay_sequence < index.view().overlay_sequence
