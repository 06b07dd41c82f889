"""An opened project: replay, diff, rebuild and what others may read of a call."""

from __future__ import annotations

import shutil
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from ctx_pipeline.building.refresh import refresh_source
from ctx_pipeline.contracts import (
    ContextPack,
    ContextRequest,
    Identity,
    ItemKind,
    Message,
    Sensitivity,
    Task,
)
from ctx_pipeline.errors import (
    BudgetTooSmall,
    Corrupt,
    CtxError,
    GateFailed,
    InvalidRequest,
    NotFound,
    NotPermitted,
    Unavailable,
)
from ctx_pipeline.project import ContextProject
from ctx_pipeline.text import canonical_json
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

A, B, TOOL = "document:handbook/a", "document:handbook/b", "tool:handbook/refund"
BO = Identity(
    principal="bo", tenant="acme", groups=("analysts",), clearance=Sensitivity.CONFIDENTIAL
)
SCHEMA = canonical_json(
    {"name": "refund", "description": "Pay a refund", "input_schema": {}, "annotations": {}}
)


def ask(text: str = "refund rules", **more: object) -> ContextRequest:
    return ContextRequest.model_validate(
        {"task": Task(text=text), "identity": ANA, "token_budget": 8_000, **more}
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    items = [
        make_item("a", "refund rules: within three days"),
        make_item("b", "refund rules: 退款需要 3 个工作日"),
        make_item("refund", SCHEMA, kind=ItemKind.TOOL),
        make_item(
            "gmv", "gmv includes refund", kind=ItemKind.METRIC, subject="metric:gmv", authority=90
        ),
        make_item(
            "old", "gmv excludes refund", kind=ItemKind.MEMORY, subject="metric:gmv", authority=40
        ),
    ]
    return make_project(tmp_path, items, head="[policy]\nmin_relevance = 0.0")


def bytes_of(pack: ContextPack) -> str:
    return pack.model_dump_json() + canonical_json(
        [pack.render(form) for form in ("text", "anthropic", "openai_chat")]
    )


# --- replay


def test_a_replay_is_the_pack_byte_for_byte_also_from_another_process_object(home: Path):
    with open_project(home) as project:
        pack = project.assemble(ask(messages=(Message(role="user", content="hello"),)), at=NOW)
        assert bytes_of(project.replay(pack.snapshot_id, ANA)) == bytes_of(pack)
    with open_project(home) as project:
        assert bytes_of(project.replay(pack.snapshot_id, ANA)) == bytes_of(pack)


def test_a_replay_survives_edits_rebuilds_and_the_loss_of_everything_derived(tmp_path: Path):
    write_config(tmp_path, {"docs": {}, "rules": {"kind": "instructions"}})
    for folder, text in (
        ("docs/a.md", "# Refunds\n\nWithin three days.\n"),
        ("rules/AGENTS.md", "Be brief.\n"),
    ):
        (tmp_path / folder).parent.mkdir(exist_ok=True)
        (tmp_path / folder).write_text(text, encoding="utf-8")

    def refresh() -> None:
        with open_workspace(tmp_path) as workspace:
            for source in workspace.config.sources:
                refresh_source(workspace, source.name)
        build_index(tmp_path)

    refresh()
    with open_project(tmp_path) as project:
        pack = project.assemble(ask("refunds within days"), at=NOW, durable=True)
    assert "Within three days." in pack.render("text")
    (tmp_path / "docs/a.md").write_text("# Refunds\n\nWithin five days.\n", encoding="utf-8")
    (tmp_path / "rules/AGENTS.md").unlink()
    refresh()
    shutil.rmtree(tmp_path / ".ctx" / "derived")
    with open_project(tmp_path) as project, pytest.raises(Unavailable):
        project.replay(pack.snapshot_id, ANA)
    shutil.rmtree(tmp_path / "docs")
    build_index(tmp_path)
    with open_project(tmp_path) as project:
        assert bytes_of(project.replay(pack.snapshot_id, ANA)) == bytes_of(pack)


@pytest.mark.parametrize("forgotten", [A, TOOL, "metric:handbook/gmv", "memory:handbook/old"])
@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_replay_of_something_forgotten_says_erased(home: Path, forgotten: str, rebuilt: bool):
    """Whether it was shown, offered as a tool or only named in a conflict."""
    with open_project(home) as project:
        pack = project.assemble(ask("gmv refund rules"), at=NOW)
        assert forgotten in pack.model_dump_json()
        append_overlay(home, overlay("forgotten", forgotten))
        if rebuilt:
            build_index(home)
        with pytest.raises(NotFound) as refused:
            project.replay(pack.snapshot_id, ANA)
        assert refused.value.stable_code == "erased"
        with pytest.raises(NotFound):
            project.diff(pack.snapshot_id, pack.snapshot_id, ANA)
        assert forgotten not in "".join(
            trace.model_dump_json() for trace in project.explain(pack.snapshot_id, ANA)
        )
        assert forgotten not in "".join(
            kept.model_dump_json() for kept in project.snapshots(identity=ANA)
        )


@pytest.mark.parametrize("revoked", [A, TOOL, "memory:handbook/old"])
def test_a_replay_of_something_no_longer_permitted_is_refused(home: Path, revoked: str):
    with open_project(home) as project:
        pack = project.assemble(ask("gmv refund rules"), at=NOW)
        append_overlay(home, overlay("revoked", revoked, group="analysts"))
        with pytest.raises(NotPermitted) as refused:
            project.replay(pack.snapshot_id, ANA)
        assert revoked not in str(refused.value)
        assert revoked not in "".join(
            trace.model_dump_json() for trace in project.explain(pack.snapshot_id, ANA)
        )
        with pytest.raises(NotPermitted):
            project.replay(
                pack.snapshot_id, ANA.model_copy(update={"clearance": Sensitivity.PUBLIC})
            )


@pytest.mark.parametrize(
    "other",
    [
        BO,
        ANA.model_copy(update={"tenant": "acme-corp"}),
        ANA.model_copy(update={"principal": "Ana"}),
    ],
    ids=["principal", "tenant", "case"],
)
def test_the_snapshot_of_somebody_else_does_not_exist(home: Path, other: Identity):
    with open_project(home) as project:
        pack = project.assemble(ask(), at=NOW)
        own = project.assemble(ask(identity=other), at=NOW).snapshot_id
        name = pack.snapshot_id
        answers: list[str] = []
        for call in (
            lambda sid: project.replay(sid, other),
            lambda sid: project.explain(sid, other),
            lambda sid: project.why(sid, A, other),
            lambda sid: project.diff(sid, own, other),
            lambda sid: project.diff(own, sid, other),
            lambda sid: project.report_used(sid, [A], other),
            lambda sid: project.report_usage(sid, {"cached_input_tokens": 1}, other),
        ):
            for asked in (name, "snap_" + "0" * 32):
                with pytest.raises(NotFound) as refused:
                    call(asked)
                answers.append(str(refused.value).replace(asked, "ID"))
        assert len(set(answers)) == 1
        assert name not in "".join(
            kept.model_dump_json() for kept in project.snapshots(identity=other)
        )


def test_tampered_text_is_corrupt_and_says_what_to_do(home: Path):
    with open_project(home) as project:
        pack = project.assemble(ask(), at=NOW, durable=True)
    with sqlite3.connect(home / ".ctx" / "state" / "ledger.db") as connection:
        changed = connection.execute(
            "UPDATE blobs SET text = replace(text, 'three', 'ten') WHERE text LIKE '%three days%'"
        )
        assert changed.rowcount == 1
    connection.close()
    with open_project(home) as project, pytest.raises(Corrupt, match="ctx doctor"):
        project.replay(pack.snapshot_id, ANA)


def test_a_missing_text_is_corrupt(home: Path):
    with open_project(home) as project:
        pack = project.assemble(ask(), at=NOW, durable=True)
        stored = [item.block_hash for item in project.snapshots(identity=ANA)[0].items]
        project.ledger.erase_blobs(stored[:1])
        with pytest.raises(Corrupt):
            project.replay(pack.snapshot_id, ANA)


def test_a_pruned_snapshot_says_so_to_its_owner_and_to_nobody_else(home: Path):
    with open_project(home) as project:
        old = project.assemble(ask(), at=NOW - timedelta(days=90), durable=True).snapshot_id
        kept = project.assemble(ask(), at=NOW, durable=True).snapshot_id
        project.ledger.prune_snapshots(NOW - timedelta(days=60))
        for call in (project.replay, project.explain):
            with pytest.raises(NotFound) as told:
                call(old, ANA)
            assert told.value.stable_code == "snapshot_pruned"
        with pytest.raises(NotFound) as refused:
            project.replay(old, ANA.model_copy(update={"principal": "bob"}))
        assert refused.value.stable_code == "not_found"
        assert project.replay(kept, ANA).snapshot_id == kept


def test_a_tampered_pack_does_not_have_its_hash(home: Path):
    with open_project(home) as project:
        pack = project.assemble(ask(), at=NOW, durable=True)
    with sqlite3.connect(home / ".ctx" / "state" / "ledger.db") as connection:
        connection.execute(
            "UPDATE snapshots SET pack_json = replace(pack_json, '</section>', '</section>')"
        )
        changed = connection.execute(
            "UPDATE snapshots SET pack_json = "
            """replace(pack_json, 'name=\\"evidence\\"', 'name=\\"policy\\"')"""
        )
        assert changed.rowcount == 1
    connection.close()
    with open_project(home) as project, pytest.raises(Corrupt, match="hash"):
        project.replay(pack.snapshot_id, ANA)


def test_a_refused_call_keeps_its_trace_and_has_no_pack(home: Path):
    with open_project(home) as project:
        with pytest.raises(GateFailed) as refused:
            project.assemble(ask(required_types=("skill",)), at=NOW)
        name = refused.value.trace_id
        assert A in {trace.item_id for trace in project.explain(name, ANA)}
        with pytest.raises(InvalidRequest) as none:
            project.replay(name, ANA)
        assert none.value.stable_code == "no_pack"
        with pytest.raises(NotFound):
            project.explain(name, BO)


# --- diff


def test_a_diff_says_what_entered_left_and_changed_and_why(tmp_path: Path):
    start = NOW - timedelta(days=1)
    items = [
        make_item("a", "refund rules one", version="1"),
        make_item("a", "refund rules two", version="2", valid_from=start),
        make_item("b", "refund rules of the past", valid_until=start),
        make_item("c", "refund rules to come", valid_from=start),
        make_item("d", "refund rules. " + "A sentence about refunds. " * 60),
        make_item("e", "refund rules always"),
    ]
    home = make_project(tmp_path, items)
    with open_project(home) as project:
        before = project.assemble(ask(), at=start - timedelta(hours=1))
        after = project.assemble(ask(), at=start)
        small = project.assemble(ask(token_budget=450), at=start)
        diff = project.diff(before.snapshot_id, after.snapshot_id, ANA)
        assert {(e.item_id, e.version, e.reason) for e in diff.entered} == {
            (A, "2", "replaces version 1"),
            ("document:handbook/c", "1", "was out before: not_yet_valid"),
        }
        assert {(e.item_id, e.version, e.reason) for e in diff.left} == {
            (A, "1", "superseded"),
            (B, "1", "expired"),
        }
        assert diff.rendition_changed == ()
        shrunk = project.diff(after.snapshot_id, small.snapshot_id, ANA)
        (changed,) = shrunk.rendition_changed
        assert (changed.item_id, changed.before, changed.after) == (
            "document:handbook/d",
            "full",
            "compact",
        )
        same = project.diff(after.snapshot_id, after.snapshot_id, ANA)
        assert (same.entered, same.left, same.rendition_changed, same.moved) == ((), (), (), ())


def test_what_leaves_for_want_of_room_says_so(home: Path):
    with open_project(home) as project:
        whole = project.assemble(ask(), at=NOW)
        with pytest.raises(BudgetTooSmall) as refused:
            project.assemble(ask(token_budget=1), at=NOW)
        least = int(refused.value.message.split("need ")[1].split()[0])
        least_pack = project.assemble(ask(token_budget=least), at=NOW)
        diff = project.diff(whole.snapshot_id, least_pack.snapshot_id, ANA)
        assert {A, B} <= {entry.item_id for entry in diff.left}
        assert {entry.reason for entry in diff.left} == {"over_budget"}


# --- rebuild


def test_a_rebuild_without_anything_derived_gives_the_same_artifact_and_pack_and_embeds_nothing(
    home: Path,
):
    append_overlay(home, overlay("retired", B))
    first, _ = build_index(home)
    with open_project(home) as project:
        pack = project.assemble(ask("gmv refund rules"), at=NOW)
    shutil.rmtree(home / ".ctx" / "derived")
    again, embedded = build_index(home)
    assert (again, embedded) == (first, 0)
    with open_project(home) as project:
        assert bytes_of(project.assemble(ask("gmv refund rules"), at=NOW)) == bytes_of(pack)


def test_an_artifact_depends_on_what_is_stored_and_not_on_the_order_or_time_of_writing(
    tmp_path: Path,
):
    items = [make_item(name, f"refund {name}") for name in "abcdef"]
    one = make_project(tmp_path / "one", items)
    two = make_project(tmp_path / "two", items[:3])
    store_items(two, items[3:])
    with open_workspace(two) as workspace:
        workspace.store.optimize()
    assert build_index(two)[0] == build_index(one)[0]


def test_a_reader_that_is_open_goes_on_with_its_artifact_until_the_next_is_published(home: Path):
    with open_project(home) as project:
        view = project.index.view()
        first = project.assemble(ask(), at=NOW)
        store_items(home, [make_item("z", "refund rules, the newest")])
        assert project.assemble(ask(), at=NOW).index_version == first.index_version
        build_index(home)
        second = project.assemble(ask(), at=NOW)
        assert second.index_version != first.index_version
        assert "document:handbook/z" in {item.item_id for item in second.items}
        assert view.reader.text("item_id", 0) is not None


# --- who asks


def test_without_an_identity_nothing_is_assembled(home: Path):
    with open_project(home) as project:
        for call in (
            lambda: project.assemble(ask(identity=None), at=NOW),
            lambda: project.items(),
            lambda: project.expand(A),
            lambda: project.why_not(A),
            lambda: project.history(A),
            lambda: project.snapshots(),
        ):
            with pytest.raises(NotPermitted) as refused:
                call()
            assert refused.value.stable_code == "no_identity"


def test_a_project_without_a_build_says_what_to_do(tmp_path: Path):
    write_config(tmp_path, {"docs": {}})
    with open_project(tmp_path) as project, pytest.raises(Unavailable, match="ctx build"):
        project.assemble(ask(), at=NOW)


def test_a_project_without_items_serves_what_comes_with_the_request(tmp_path: Path):
    write_config(tmp_path, {"docs": {}})
    build_index(tmp_path)
    with open_project(tmp_path) as project:
        pack = project.assemble(ask(), at=NOW)
        assert {item.item_id for item in pack.items} == {"task:request/task", "state:request/scope"}
        assert project.items(identity=ANA) == ()


def test_an_index_of_another_embedder_is_refused(home: Path):
    with ContextProject.open(home) as project, pytest.raises(InvalidRequest) as refused:
        project.assemble(ask(), at=NOW)
    assert refused.value.stable_code == "embedder_changed"


def test_a_source_named_like_the_request_gets_no_rights_by_its_name(tmp_path: Path):
    """Ids of what came with a request start with its source; an item may look alike."""
    name = "state:request/scope2"
    home = make_project(
        tmp_path, [make_item("scope2", "refund rules", source="request", kind=ItemKind.STATE)]
    )
    with open_project(home) as project:
        pack = project.assemble(ask(), at=NOW)
        assert name in {item.item_id for item in pack.items}
        append_overlay(home, overlay("revoked", name))
        with pytest.raises(NotPermitted):
            project.replay(pack.snapshot_id, ANA)
        assert name not in "".join(
            trace.model_dump_json() for trace in project.explain(pack.snapshot_id, ANA)
        )


def test_history_leaves_out_versions_that_may_not_be_seen(tmp_path: Path):
    open_one = make_item("a", "refund rules", version="1")
    closed = make_item(
        "a",
        "refund secret",
        version="2-secret",
        groups=("board",),
        valid_from=NOW + timedelta(days=1),
    )
    write_config(tmp_path, {"handbook": {}})
    from ctx_pipeline.building.ingest import refresh
    from ctx_pipeline.sources import SourceReading

    with open_workspace(tmp_path) as workspace:
        source = workspace.source("handbook")
        refresh(
            source,
            SourceReading((open_one, closed), (), ()),
            workspace.store,
            workspace.ledger,
            NOW,
        )
    build_index(tmp_path)
    with open_project(tmp_path) as project:
        assert [event.version for event in project.history(A, identity=ANA)] == ["1"]
        board = ANA.model_copy(update={"groups": ("board",)})
        assert len(project.history(A, identity=board)) == 2


def test_a_denied_item_answers_like_one_that_does_not_exist(tmp_path: Path):
    home = make_project(
        tmp_path,
        [make_item("a", "secret", groups=("board",)), make_item("b", "x", tenant="globex")],
    )
    with open_project(home) as project:
        for call in (project.expand, project.why_not, project.history):
            answers: set[str] = set()
            for name in (A, B, "document:handbook/none"):
                with pytest.raises(CtxError) as refused:
                    call(name, identity=ANA)
                answers.add(str(refused.value).replace(name, "ID"))
            assert len(answers) == 1


def test_a_snapshot_replays_after_its_source_was_taken_out_of_the_project(home: Path):
    """Ours: replay works whatever happens to the sources, and new packs no
    longer show the source.
    """
    with open_project(home) as project:
        before = project.assemble(ask(), at=NOW, durable=True)
    assert {A, B} <= {item.item_id for item in before.items}
    write_config(home, {"notes": {}}, "[policy]\nmin_relevance = 0.0")
    build_index(home)
    with open_project(home) as project:
        replayed = project.replay(before.snapshot_id, identity=ANA)
        after = project.assemble(ask(), at=NOW)
        (probe,) = project.why_not(A, identity=ANA, at=NOW)
    assert bytes_of(replayed) == bytes_of(before)
    assert not {A, B} & {item.item_id for item in after.items}
    assert probe.code == "retired"
