"""A record may narrow what its source grants, never widen it, and never name a tenant that is not
its source's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctx_pipeline.contracts import FileStatus, Identity, Sensitivity
from ctx_pipeline.orchestration.doctor import diagnose
from testing.artifacts import ANA, write_config
from tests.building.test_ingest import Home

PARTNERS = {"groups": ["partners"], "sensitivity": "confidential"}
PAM = ANA.model_copy(
    update={"principal": "pam", "groups": ("partners",), "clearance": Sensitivity.CONFIDENTIAL}
)
BOB = PAM.model_copy(update={"principal": "bob"})
EVE = ANA.model_copy(update={"principal": "eve", "clearance": Sensitivity.RESTRICTED})
GIL = ANA.model_copy(update={"principal": "gil", "tenant": "globex"})

Shape = Callable[[dict[str, Any]], str]


def _head(says: dict[str, Any], body: str) -> str:
    return "".join(
        ["---\n", *(f"{key}: {json.dumps(value)}\n" for key, value in says.items()), "---\n", body]
    )


def _line(says: dict[str, Any]) -> str:
    return json.dumps({"id": "m", "text": "refund rule 退款规则", **says}, ensure_ascii=False)


def _term(says: dict[str, Any]) -> str:
    return json.dumps({"terms": [{"name": "退款", "definition": "refund rule 退款规则", **says}]})


def _metric(says: dict[str, Any]) -> str:
    metric = {
        "name": "refunds",
        "version": 1,
        "description": "refund rule 退款规则",
        "table": "t",
        "expression": "1",
    }
    return json.dumps({"metrics": [{**metric, **says}]})


SHAPES: dict[str, tuple[str, Shape]] = {
    "documents": ("docs/a.md", lambda says: _head(says, "# Refund rule\n\nrefund rule 退款规则\n")),
    "instructions": ("docs/AGENTS.md", lambda says: _head(says, "refund rule 退款规则\n")),
    "skills": (
        "docs/refund/SKILL.md",
        lambda says: _head(
            {"name": "refund", "description": "refund rule 退款规则", **says}, "refund rule\n"
        ),
    ),
    "memories": ("docs/m.jsonl", _line),
    "glossary": ("docs/terms.yaml", _term),
    "semantic_registry": ("docs/metrics.yaml", _metric),
}


def make(
    folder: Path, kind: str, says: dict[str, Any], source: dict[str, Any]
) -> tuple[Home, list[tuple[str, str]]]:
    home = Home(folder, {"docs": {"kind": kind, **source}})
    path, shape = SHAPES[kind]
    home.write(path, shape(says))
    report = home.refresh()
    home.build()
    found = [(error.code.value, error.message.partition(":")[0]) for error in report.errors]
    assert all(error.path == path and error.line for error in report.errors)
    return home, found


def sees(home: Home, identity: Identity) -> bool:
    return any(":docs/" in item for item in home.shown("refund rule 退款规则", identity=identity))


@pytest.mark.parametrize("kind", SHAPES)
def test_a_record_does_not_open_itself_to_more_than_its_source(tmp_path: Path, kind: str):
    home, found = make(tmp_path, kind, {"groups": ["*"], "sensitivity": "public"}, PARTNERS)
    assert set(found) == {("wider_than_source", "groups"), ("wider_than_source", "sensitivity")}
    assert [sees(home, identity) for identity in (ANA, EVE, PAM)] == [False, False, True]
    low = PAM.model_copy(update={"clearance": Sensitivity.INTERNAL})
    assert not sees(home, low)


@pytest.mark.parametrize("kind", SHAPES)
def test_a_record_of_another_tenant_is_left_out(tmp_path: Path, kind: str):
    home, found = make(tmp_path, kind, {"tenant": "globex", "groups": ["*"]}, {"may_widen": True})
    assert found == [("wrong_tenant", "tenant")]
    assert [sees(home, identity) for identity in (ANA, GIL)] == [False, False]


@pytest.mark.parametrize("kind", SHAPES)
def test_a_source_may_write_for_the_tenants_that_it_lists(tmp_path: Path, kind: str):
    home, found = make(tmp_path, kind, {"tenant": "globex"}, {"tenants": ["globex"]})
    assert found == []
    assert [sees(home, identity) for identity in (ANA, GIL)] == [False, True]


@pytest.mark.parametrize("kind", SHAPES)
def test_a_record_may_narrow_and_nothing_is_reported(tmp_path: Path, kind: str):
    says = {"principals": ["bob"], "sensitivity": "confidential"}
    home, found = make(tmp_path, kind, says, {"groups": ["partners", "analysts"]})
    assert found == []
    assert [sees(home, identity) for identity in (ANA, PAM, BOB)] == [False, False, True]


def test_who_is_named_still_has_to_be_one_of_the_source(tmp_path: Path):
    home, found = make(tmp_path, "memories", {"principals": ["bob"]}, PARTNERS)
    outsider = BOB.model_copy(update={"groups": ("analysts",)})
    assert (found, sees(home, BOB), sees(home, outsider)) == ([], True, False)


@pytest.mark.parametrize(
    ("says", "source", "keys", "seen"),
    [
        ({"groups": ["partners", "board"]}, {"groups": ["partners"]}, ["groups"], [False, True]),
        ({"groups": ["analysts"]}, {"groups": ["partners"]}, ["groups"], [False, False]),
        (
            {"principals": ["ana", "pam"]},
            {"groups": [], "principals": ["pam"]},
            ["principals"],
            [False, True],
        ),
        ({"groups": ["*"]}, {"groups": [], "principals": ["pam"]}, ["groups"], [False, True]),
        ({"groups": ["partners"]}, {"groups": [], "principals": ["pam"]}, [], [False, True]),
        (
            {"groups": ["*"], "sensitivity": "public"},
            {**PARTNERS, "may_widen": True},
            [],
            [True, True],
        ),
    ],
)
def test_both_sides_let_somebody_in(
    tmp_path: Path, says: dict[str, Any], source: dict[str, Any], keys: list[str], seen: list[bool]
):
    home, found = make(tmp_path, "memories", says, source)
    assert found == [("wider_than_source", key) for key in keys]
    assert [sees(home, identity) for identity in (ANA, PAM)] == seen


def test_the_finding_names_the_line_of_the_key_and_comes_with_every_build(tmp_path: Path):
    home = Home(tmp_path, {"docs": PARTNERS})
    home.write("docs/a.md", "---\ntitle: A\nsensitivity: public\n---\n# A\n\nrefund rule\n")
    first, again = home.refresh(), home.refresh()
    assert [(error.path, error.line) for error in first.errors] == [("docs/a.md", 3)]
    assert again.errors == first.errors


def test_what_is_left_out_does_not_count_and_the_rest_is_loaded(tmp_path: Path):
    home = Home(tmp_path, {"docs": {"kind": "memories"}})
    home.write("docs/m.jsonl", f'{_line({"tenant": "globex"})}\n{{"id": "n", "text": "kept"}}\n')
    home.write("docs/n.jsonl", _line({"tenant": "globex", "id": "o"}))
    report = home.refresh()
    assert [(file.status, file.items) for file in report.files] == [
        (FileStatus.LOADED, 1),
        (FileStatus.FAILED, 0),
    ]
    assert (report.items, [error.line for error in report.errors]) == (1, [1, 1])


def test_taking_a_permission_back_closes_what_it_had_opened(tmp_path: Path):
    home, _ = make(
        tmp_path, "memories", {"groups": ["*"]}, {"groups": ["partners"], "may_widen": True}
    )
    assert sees(home, ANA)
    write_config(tmp_path, {"docs": {"kind": "memories", "groups": ["partners"]}})
    home.refresh()
    home.build()
    assert [sees(home, identity) for identity in (ANA, PAM)] == [False, True]


def test_a_tenant_that_the_source_no_longer_lists_sees_nothing_more(tmp_path: Path):
    home, _ = make(tmp_path, "memories", {"tenant": "globex"}, {"tenants": ["globex"]})
    assert sees(home, GIL)
    write_config(tmp_path, {"docs": {"kind": "memories"}})
    home.refresh()
    home.build()
    assert [sees(home, identity) for identity in (ANA, GIL)] == [False, False]


@pytest.mark.parametrize("kind", SHAPES)
def test_a_source_without_groups_and_principals_is_seen_by_nobody(tmp_path: Path, kind: str):
    home = Home(tmp_path, {"docs": {"kind": kind, "groups": None}})
    path, shape = SHAPES[kind]
    home.write(path, shape({"groups": ["*"], "principals": ["ana"]}))
    report = home.refresh()
    home.build()
    assert [(error.code.value, error.path) for error in report.errors] == [
        ("missing_scope", "ctx.toml")
    ]
    assert "'docs'" in report.errors[0].message
    assert not sees(home, ANA)
    check = next(check for check in diagnose(tmp_path).checks if check.name == "grants")
    assert (check.state, check.code, "docs" in check.message) == ("warn", "missing_scope", True)


def test_principals_alone_are_enough(tmp_path: Path):
    home = Home(tmp_path, {"docs": {"groups": None, "principals": ["ana"]}})
    home.write("docs/a.md", "# A\n\nrefund rule 退款规则\n")
    assert home.refresh().errors == ()
    home.build()
    assert [sees(home, identity) for identity in (ANA, EVE)] == [True, False]
    assert (
        next(check.state for check in diagnose(tmp_path).checks if check.name == "grants") == "ok"
    )
