"""A source whose grants were narrowed shows nothing under the old ones, whether or not it can be
read again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ctx_pipeline.contracts import ContextItem, Identity, Scope, Sensitivity, Trust
from ctx_pipeline.index.store import StoredItem
from ctx_pipeline.security.narrowing import narrowed
from testing.artifacts import ANA, make_item, open_workspace, write_config
from tests.building.test_ingest import METRIC, Home

BO = ANA.model_copy(update={"principal": "bo", "groups": ("finance",)})
PAGES = {f"document:docs/{number}.md#1" for number in range(4)}


def make_home(folder: Path) -> Home:
    home = Home(folder, {"docs": {"groups": ["analysts", "finance"]}})
    for number in range(4):
        home.write(f"docs/{number}.md", f"# Page {number}\n\nrefund rule {number}\n")
    home.refresh()
    home.build()
    return home


def shown(home: Home, identity: Identity = ANA) -> set[str]:
    return {
        item
        for item in home.shown("refund rule", identity=identity)
        if item.startswith(("document:", "metric:"))
    }


def break_file(home: Home) -> None:
    home.write("docs/0.md", "---\nvalid_from: 2026-10-01 08:00\n---\nbroken\n")


def lose_folder(home: Home) -> None:
    shutil.move(home.folder / "docs", home.folder / "gone")


def lose_files(home: Home) -> None:
    for number in range(3):
        home.remove(f"docs/{number}.md")


@pytest.mark.parametrize("disturb", [break_file, lose_folder, lose_files])
def test_what_could_not_be_read_again_is_closed_with_the_rest(
    tmp_path: Path, disturb: Callable[[Home], None]
):
    home = make_home(tmp_path)
    assert shown(home) == PAGES
    disturb(home)
    write_config(tmp_path, {"docs": {"groups": ["finance"]}})
    home.refresh()
    home.build()
    assert shown(home) == set()
    assert shown(home, BO) == PAGES


def test_what_cannot_be_read_stays_as_it_is_while_the_grants_do(tmp_path: Path):
    home = make_home(tmp_path)
    home.write("docs/1.md", "---\ngroups: [finance]\n---\nrefund rule for finance\n")
    home.refresh()
    home.write("docs/1.md", "---\nvalid_from: 2026-10-01 08:00\n---\nbroken\n")
    assert home.refresh().added == 0
    with open_workspace(tmp_path) as workspace:
        row = workspace.store.scan().to_pylist()[-1]
    assert StoredItem(**row).item().scope.groups == ("finance",)


def test_a_definition_that_is_refused_is_closed_under_the_new_grants(tmp_path: Path):
    home = Home(tmp_path, {"registry": {"kind": "semantic_registry"}})
    home.write("registry/gmv.yaml", METRIC)
    home.refresh("registry")
    home.build()
    home.write("registry/gmv.yaml", METRIC.replace("refunds included", "all refunds included"))
    write_config(tmp_path, {"registry": {"kind": "semantic_registry", "groups": ["finance"]}})
    report = home.refresh("registry")
    assert [error.code.value for error in report.errors] == ["version_reused"]
    home.build()
    assert "metric:registry/gmv" not in home.shown("what is gmv?")
    assert "metric:registry/gmv" in home.shown("what is gmv?", identity=BO)


def scope(**more: object) -> Scope:
    return Scope.model_validate({"tenant": "acme", "groups": ("*",), **more})


@pytest.mark.parametrize(
    ("own", "today", "expected"),
    [
        ({}, {"groups": ("finance",)}, {"groups": ("finance",)}),
        ({"groups": ("finance", "board")}, {"groups": ("finance", "hr")}, {"groups": ("finance",)}),
        (
            {"groups": (), "principals": ("ana",)},
            {"groups": ("finance",)},
            {"groups": (), "principals": ()},
        ),
        ({"groups": (), "principals": ("ana",)}, {}, {"groups": (), "principals": ("ana",)}),
        ({}, {"tenant": "globex"}, {"groups": (), "principals": ()}),
        ({"environment": "prod"}, {"environment": "test"}, {"groups": ()}),
        ({}, {"environment": "test"}, {"environment": "test", "groups": ("*",)}),
        (
            {"task_types": ("a", "b")},
            {"task_types": ("b",)},
            {"task_types": ("b",), "groups": ("*",)},
        ),
        ({"task_types": ("a",)}, {"task_types": ("b",)}, {"groups": ()}),
        ({"agent_visibility": ("coder",)}, {}, {"agent_visibility": ("coder",)}),
    ],
)
def test_both_scopes_have_to_let_somebody_in(
    own: dict[str, object], today: dict[str, object], expected: dict[str, object]
):
    item = make_item("a").model_copy(update={"scope": scope(**own)})
    closed = narrowed(item, scope(**today), Sensitivity.INTERNAL, Trust.ENTERPRISE_TRUSTED)
    assert {name: getattr(closed.scope, name) for name in expected} == expected


def test_sensitivity_rises_trust_falls_and_a_missing_one_denies():
    item: ContextItem = make_item("a")
    closed = narrowed(item, scope(), Sensitivity.RESTRICTED, Trust.RETRIEVED_EXTERNAL)
    assert (closed.sensitivity, closed.trust) == (Sensitivity.RESTRICTED, Trust.RETRIEVED_EXTERNAL)
    assert narrowed(item, scope(), None, Trust.SYSTEM_TRUSTED).sensitivity is None
    same = narrowed(item, scope(), Sensitivity.PUBLIC, Trust.SYSTEM_TRUSTED)
    assert same == item
