"""Rights are those of today: nothing old, replaced, retired or quarantined shows more than they
allow.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ctx_pipeline.contracts import (
    ContextItem,
    ContextRequest,
    Identity,
    ItemKind,
    Sensitivity,
    Task,
    Trust,
)
from ctx_pipeline.errors import Corrupt, NotFound, NotPermitted
from testing.artifacts import (
    ANA,
    NOW,
    append_overlay,
    build_index,
    make_item,
    make_project,
    open_project,
    overlay,
    write_config,
)

A, RULES = "document:handbook/a", "policy:handbook/rules"
EARLIER = NOW - timedelta(days=1)


def ask(identity: Identity = ANA) -> ContextRequest:
    return ContextRequest(task=Task(text="refund rules"), identity=identity, token_budget=8_000)


def with_fields(item: ContextItem, **fields: Any) -> ContextItem:
    return item.model_copy(update=fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"trust": Trust.RETRIEVED_EXTERNAL},
        {"authority": 10},
        {"sensitivity": Sensitivity.CONFIDENTIAL},
        {"scope": make_item("x", groups=("board",)).scope},
    ],
)
def test_an_item_of_less_standing_cannot_replace_another(tmp_path: Path, fields: dict[str, Any]):
    rules = make_item("rules", "refund rules", kind=ItemKind.POLICY)
    rival = with_fields(make_item("x", "refund trick"), supersedes=(RULES,), **fields)
    home = make_project(tmp_path, [rules, rival])
    with open_project(home) as project:
        (probe,) = project.why_not(RULES, identity=ANA, at=NOW)
    assert probe.visible


def test_a_replacement_ends_when_the_item_that_named_it_is_retired(tmp_path: Path):
    new = with_fields(make_item("b", "refund rules 2"), supersedes=(A,))
    home = make_project(tmp_path, [make_item("a", "refund rules 1"), new])
    with open_project(home) as project:
        assert project.why_not(A, identity=ANA, at=NOW)[0].code == "superseded"
    append_overlay(home, overlay("retired", "document:handbook/b"))
    build_index(home)
    with open_project(home) as project:
        assert project.why_not(A, identity=ANA, at=NOW)[0].visible


def test_what_is_retired_is_seen_only_by_those_whom_its_source_grants_today(tmp_path: Path):
    items = [make_item("a", "refund rules secret"), make_item("b", "refund rules")]
    home = make_project(tmp_path, items, head="[policy]\nmin_relevance = 0.0")
    with open_project(home) as project:
        pack = project.assemble(ask(), at=NOW, durable=True)
    assert A in {item.item_id for item in pack.items}
    append_overlay(home, overlay("retired", A))
    write_config(home, {"handbook": {"groups": ["board"]}})
    build_index(home)
    with open_project(home) as project:
        with pytest.raises(NotFound):
            project.expand(A, identity=ANA, at=NOW, as_of=EARLIER)
        with pytest.raises(NotPermitted):
            project.replay(pack.snapshot_id, identity=ANA)
        board = ANA.model_copy(update={"groups": ("board",)})
        assert "secret" in project.expand(A, identity=board, at=NOW, as_of=EARLIER).text


def test_a_quarantined_item_is_not_replayed_and_keeps_no_title(tmp_path: Path):
    home = make_project(tmp_path, [make_item("a", "refund rules", title="refund of everything")])
    with open_project(home) as project:
        pack = project.assemble(ask(), at=NOW, durable=True)
        append_overlay(home, overlay("quarantined", A))
        with pytest.raises(NotPermitted):
            project.replay(pack.snapshot_id, identity=ANA)
        traces = project.explain(pack.snapshot_id, identity=ANA)
    assert {trace.title for trace in traces if trace.item_id == A} == {""}


@pytest.mark.parametrize("part", ["filtered", "ranked", "transformed"])
def test_a_damaged_artifact_is_refused_and_the_next_build_mends_it(tmp_path: Path, part: str):
    home = make_project(tmp_path, [make_item("a", "refund rules")])
    (path,) = (home / ".ctx" / "derived" / "artifacts").glob(f"*/{part}.arrow")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with open_project(home) as project, pytest.raises(Corrupt):
        project.assemble(ask(), at=NOW)
    build_index(home)
    with open_project(home) as project:
        assert A in {item.item_id for item in project.assemble(ask(), at=NOW).items}


def test_a_ledger_that_is_gone_is_not_made_anew_beside_the_index(tmp_path: Path):
    home = make_project(tmp_path, [make_item("a", "refund rules"), make_item("b", "refund secret")])
    append_overlay(home, overlay("quarantined", A))
    build_index(home)
    for file in (home / ".ctx" / "state").glob("ledger.db*"):
        file.unlink()
    with open_project(home) as project, pytest.raises(Corrupt) as caught:
        project.assemble(ask(), at=NOW)
    assert caught.value.stable_code == "ledger_missing"
