"""Publishing definitions: nothing wrong gets in, nothing replaced is shown, and what was cut off is
finished.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ctx_pipeline.building.generation import current_generation
from ctx_pipeline.building.refresh import refresh_source
from ctx_pipeline.contracts import ContextRequest, Identity, Task
from ctx_pipeline.errors import InvalidRequest
from ctx_pipeline.index.history import roll_back, unpin
from ctx_pipeline.index.store import Store
from ctx_pipeline.ledger import Ledger
from ctx_pipeline.lifecycle.retire import retire_item
from ctx_pipeline.orchestration.publish import DefinitionFile, check, publish
from testing.artifacts import ANA, NOW, build_index, open_project, open_workspace, write_config
from testing.children import processes
from testing.published_project import (
    AOV,
    DBT,
    GMV,
    REGISTRY,
    V2,
    WAREHOUSE,
    Home,
    text,
)

# --- what becomes live, and when


def test_a_published_definition_is_stored_and_its_file_is_in_the_registry(home: Home):
    report = home.publish(GMV, AOV)
    assert (report.published, report.added, report.errors) == (True, 2, 0)
    assert [(file.path, file.status) for file in report.files] == [("semantic/gmv.yaml", "created")]
    assert home.live() == text(GMV, AOV)
    build_index(home.folder)
    assert home.shown("成交总额") == {"metric:registry/gmv@1"}
    assert "metric:registry/客单价@1" in home.shown("客单价 aov")


def test_an_old_version_is_served_until_the_build_that_has_the_new_one(published: Home):
    assert published.shown() == {"metric:registry/gmv@1"}
    with open_project(published.folder) as reader:
        reader.index.view()
        report = published.publish(V2)
        assert (report.published, report.served, report.changed) == (True, False, 1)
        assert report.superseded == ("metric:registry/gmv@1",)
        assert published.shown("成交总额") == published.shown("gmv") == {"metric:registry/gmv@1"}
        assert reader.status(at=published.now).waiting == 1
        build_index(published.folder)
        # A process that had the old index open goes over to the new one, in one step.
        probes = reader.why_not("metric:registry/gmv", identity=ANA, at=published.now)
        assert {p.version: p.code and p.code.value for p in probes} == {
            "1": "superseded",
            "2": None,
        }
        assert reader.status(at=published.now).waiting == 0
    assert published.shown("成交总额") == {"metric:registry/gmv@2"}
    assert published.shown(as_of=datetime(2026, 3, 1, tzinfo=UTC)) == {"metric:registry/gmv@1"}


def test_publishing_again_changes_nothing(published: Home):
    published.publish(V2)
    before = published.state()
    published.now += timedelta(days=1)
    again = published.publish(V2)
    assert (again.published, again.changed, again.unchanged, again.served) == (True, 0, 1, False)
    assert again.superseded == ("metric:registry/gmv@1",), "it is served still"
    assert published.state() == before
    build_index(published.folder)
    again = published.publish(V2)
    assert (again.served, again.superseded) == (True, ())
    assert again.note == "what agents are shown is up to date"


def test_a_version_that_begins_later_leaves_the_old_one_until_then(published: Home):
    begins = published.now + timedelta(days=10)
    report = published.publish({**V2, "valid_from": begins.isoformat()})
    assert [change.effective_at for change in report.changes] == [begins]
    assert report.superseded_from == (begins,)
    assert published.versions(at=begins) == {"1": None}, "nothing has been built"
    build_index(published.folder)
    assert published.versions() == {"1": None, "2": "not_yet_valid"}
    assert published.versions(at=begins) == {"1": "superseded", "2": None}


@pytest.mark.parametrize("absorbed", [False, True])
def test_a_planned_version_that_is_taken_back_leaves_the_old_one_for_good(
    published: Home, absorbed: bool
):
    begins = published.now + timedelta(days=10)
    published.publish({**V2, "valid_from": begins.isoformat()})
    if absorbed:
        build_index(published.folder)
    with pytest.raises(InvalidRequest, match="metric:registry/gmv@2") as refused:
        published.publish(GMV)
    assert refused.value.stable_code == "removal_not_confirmed"
    assert published.publish(GMV, yes=True).removed == 1
    for _ in range(2):
        assert published.versions(at=begins + timedelta(days=1))["1"] is None
        build_index(published.folder)
    assert published.versions(at=begins + timedelta(days=1)) == {"1": None, "2": "retired"}


def test_definitions_without_versions_may_change_and_change_back(published: Home):
    plain = {"name": "orders", "table": "orders", "expression": "count(*)"}
    other = {**plain, "expression": "count(distinct id)"}
    for metric in (plain, other, plain):
        published.now += timedelta(hours=1)
        published.publish(metric, name="orders.yaml")
        build_index(published.folder)
        (current,) = [item for item in published.shown("orders count") if "/orders@" in item]
        assert published.versions("metric:registry/orders")[current.partition("@")[2]] is None


def test_a_file_that_is_edited_back_by_hand_brings_the_old_version_back(published: Home):
    published.publish(V2)
    build_index(published.folder)
    (published.folder / "semantic" / "gmv.yaml").write_text(text(GMV), encoding="utf-8")
    with open_workspace(published.folder, published.now) as workspace:
        refresh_source(workspace, "registry")
    for _ in range(2):
        assert published.versions() == {"1": None, "2": "retired"}
        build_index(published.folder)


def test_a_definition_that_comes_back_in_a_new_version_shows_nothing_of_before_until_that_is_built(
    published: Home,
):
    published.publish(AOV, yes=True)
    build_index(published.folder)
    assert published.versions() == {"1": "retired"}
    published.publish(V2, AOV)
    assert published.versions() == {"1": "superseded"}
    assert "metric:registry/gmv@1" not in published.shown("成交总额")
    build_index(published.folder)
    assert published.versions() == {"1": "superseded", "2": None}
    # The same version as before is there at once.
    published.publish(AOV, yes=True)
    published.publish(V2, AOV)
    assert published.versions() == {"1": "superseded", "2": None}


def test_removed_definitions_need_a_confirmation_and_are_retired_at_once(published: Home):
    published.publish(GMV, AOV)
    before = published.state()
    with pytest.raises(InvalidRequest) as refused:
        published.publish(AOV)
    assert (refused.value.stable_code, refused.value.exit_code) == ("removal_not_confirmed", 2)
    assert "metric:registry/gmv" in refused.value.message
    assert published.state() == before
    report = published.publish(AOV, yes=True)
    assert [(change.change, change.item_id) for change in report.changes] == [
        ("removed", "metric:registry/gmv"),
        ("unchanged", "metric:registry/客单价"),
    ]
    assert published.versions() == {"1": "retired"}


# --- who is affected


def test_the_report_says_what_changed_and_who_was_shown_the_old_version(published: Home):
    glossary = {"kind": "glossary", "path": "glossary.yaml"}
    write_config(
        published.folder, {"registry": REGISTRY, "warehouse": WAREHOUSE, "words": glossary}
    )
    (published.folder / "glossary.yaml").write_text(
        "terms: [{name: GMV, definition: What was sold, subject: 'metric:gmv'}]\n", encoding="utf-8"
    )
    with open_workspace(published.folder) as workspace:
        refresh_source(workspace, "words")
    build_index(published.folder)
    bo = Identity(principal="bo", tenant="acme")
    with open_project(published.folder) as project:
        for run, (identity, agent) in enumerate(
            ((ANA, "analyst"), (bo, "reporter"), (bo, "reporter"))
        ):
            request = ContextRequest(
                task=Task(text="gmv"), identity=identity, agent_id=agent, run_id=str(run)
            )
            last = project.assemble(request, at=published.now, durable=True)
    report = published.check(V2)
    (change,) = report.changes
    assert (change.change, change.old_version, change.new_version) == ("changed", "1", "2")
    assert change.fields == ("version", "expression", "valid_from")
    assert (
        "-expression: sum(amount)\n+expression: sum(amount) filter (status = 'paid')" in change.diff
    )
    assert len(change.same_subject) == 1
    assert change.same_subject[0].startswith("glossary:words/")
    assert change.exposure is not None
    assert (change.exposure.snapshots, change.exposure.principals) == (3, ("ana", "bo"))
    assert change.exposure.agents == ("analyst", "reporter")
    assert change.exposure.latest[0] == last.snapshot_id


def test_items_that_depend_on_a_definition_are_named(home: Home):
    content = DBT.replace("COLUMN", "amount")
    publish(home.folder, [DefinitionFile("dbt.yaml", content=content.encode())], build=False)
    report = check(
        home.folder, [DefinitionFile("dbt.yaml", content=content.replace("paid", "sent").encode())]
    )
    (changed,) = [change for change in report.changes if change.change == "changed"]
    assert (changed.item_id, changed.dependents) == (
        "metric:registry/total_amount",
        ("metric:registry/share",),
    )


def test_a_change_beside_the_text_keeps_its_version(published: Home):
    report = published.publish({**GMV, "synonyms": ["成交总额", "sales value"]})
    (change,) = report.changes
    assert (report.published, change.change, change.fields) == (True, "changed", ("synonyms",))
    assert report.superseded == ()


# --- cut off, and at once


@pytest.mark.parametrize("step", ["append", "append_events"])
def test_a_publish_that_was_cut_off_is_finished_by_the_next(
    published: Home, monkeypatch: pytest.MonkeyPatch, step: str
):
    with monkeypatch.context() as patch:
        patch.setattr(Store if step == "append" else Ledger, step, _cut_off)
        with pytest.raises(KeyboardInterrupt):
            published.publish(V2)
    assert published.live() == text(V2)
    report = published.publish(V2)
    assert report.superseded == ("metric:registry/gmv@1",)
    assert published.versions() == {"1": None}
    build_index(published.folder)
    assert published.versions() == {"1": "superseded", "2": None}
    with open_project(published.folder) as project:
        told = [
            (event.version, event.to_state.value)
            for event in project.history("metric:registry/gmv", identity=ANA)
        ]
    assert told == [("1", "created"), ("2", "created")], "what was stored and not logged is logged"


def _cut_off(*_: Any) -> None:
    raise KeyboardInterrupt


def _publish_many(folder: str, name: str, ready: Any) -> None:
    ready.wait(30)
    for version in range(2, 6):
        metric = {**GMV, "name": name, "version": version, "expression": f"sum(amount) + {version}"}
        file = DefinitionFile(f"{name}.yaml", content=text(metric).encode())
        assert publish(folder, [file], build=False).published
        shared = {**AOV, "name": "shared", "version": version, "description": name}
        publish(folder, [DefinitionFile("shared.yaml", content=text(shared).encode())], build=False)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_two_processes_that_publish_at_once_lose_no_version_and_mix_no_file(home: Home):
    context = processes()
    ready = context.Barrier(2)
    children = [
        context.Process(target=_publish_many, args=(str(home.folder), name, ready))
        for name in ("one", "two")
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(200)
        assert child.exitcode == 0
    with open_workspace(home.folder) as workspace:
        keys = workspace.store.scan_keys()
        stored = list(zip(keys["item_id"].to_pylist(), keys["version"].to_pylist(), strict=True))
        assert workspace.ledger.overlay_since(0) == ()
    every = [
        (f"metric:registry/{name}", str(n))
        for name in ("one", "two", "shared")
        for n in range(2, 6)
    ]
    assert sorted(stored) == sorted(every)
    build_index(home.folder)
    for name in ("one", "two", "shared"):
        codes_of = home.versions(f"metric:registry/{name}", at=datetime.now(UTC))
        assert codes_of == {**dict.fromkeys("234", "superseded"), "5": None}
    shared = home.live("shared.yaml")
    assert shared in {
        text({**AOV, "name": "shared", "version": 5, "description": name})
        for name in ("one", "two")
    }


def test_retiring_a_published_version_brings_the_one_before_back(published: Home) -> None:
    published.publish(V2)
    build_index(published.folder)
    with open_workspace(published.folder, at=published.now) as workspace:
        retire_item(
            workspace,
            "metric:registry/gmv",
            version="2",
            reason="wrong",
            tenant="acme",
            actor="ana",
        )
    assert published.shown() == {"metric:registry/gmv@1"}
    build_index(published.folder)
    assert published.shown() == {"metric:registry/gmv@1"}


def test_what_is_published_while_the_index_is_pinned_waits_and_the_version_before_is_served(
    published: Home,
) -> None:
    published.publish(AOV, name="aov.yaml")
    build_index(published.folder)
    with open_workspace(published.folder) as workspace:
        roll_back(workspace.layout, current_generation(workspace), workspace.store, at=NOW)
    published.publish(V2)
    build_index(published.folder)
    assert published.shown() == {"metric:registry/gmv@1"}
    with open_workspace(published.folder) as workspace:
        unpin(workspace.layout)
    assert published.shown() == {"metric:registry/gmv@2"}


def test_rolling_back_a_published_version_serves_the_one_before(published: Home) -> None:
    published.publish(V2)
    build_index(published.folder)
    with open_workspace(published.folder) as workspace:
        roll_back(workspace.layout, current_generation(workspace), workspace.store, at=NOW)
    assert published.shown() == {"metric:registry/gmv@1"}
