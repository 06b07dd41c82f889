"""What is chosen among what may be shown: conflicts, duplicates, dependencies, history, freshness,
times of loading.
"""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ctx_pipeline.building.refresh import refresh_source
from ctx_pipeline.contracts import (
    ContextDecisionTrace,
    ContextItem,
    ContextPack,
    ContextRequest,
    Exclusion,
    GateCheck,
    ItemKind,
    Message,
    Observation,
    Rendition,
    Task,
    Trust,
)
from ctx_pipeline.errors import BudgetTooSmall
from testing.artifacts import ANA, NOW, make_item, make_project, open_project, open_workspace
from tests.stages.reference_tokens import reference_encoding

Traces = dict[str, ContextDecisionTrace]


def assembled(home: Path, text: str = "gmv refund", **more: Any) -> tuple[ContextPack, Traces]:
    request = ContextRequest.model_validate(
        {"task": Task(text=text), "identity": ANA, "token_budget": 9_000, **more}
    )
    with open_project(home) as project:
        pack = project.assemble(request, at=NOW)
        return pack, {trace.item_id: trace for trace in project.explain(pack.snapshot_id, ANA)}


def claim(name: str, text: str, **more: Any) -> ContextItem:
    return make_item(name, text, kind=ItemKind.METRIC, subject="metric:gmv", **more)


def test_the_claim_of_higher_authority_wins_and_the_conflict_is_told(tmp_path: Path):
    items = [
        claim("a", "gmv with refund", authority=90),
        claim("b", "gmv without refund", authority=60),
    ]
    pack, traces = assembled(make_project(tmp_path, items))
    (conflict,) = pack.conflicts
    assert conflict.winner is not None
    assert (conflict.subject, conflict.winner.item_id, conflict.reason) == (
        "metric:gmv",
        "metric:handbook/a",
        "authority",
    )
    assert [side.item_id for side in conflict.losers] == ["metric:handbook/b"]
    assert traces["metric:handbook/b"].excluded_reason is Exclusion.CONFLICT_LOST
    assert "without refund" not in pack.render("text")


def test_of_equal_authority_the_later_validity_wins(tmp_path: Path):
    items = [
        claim("a", "gmv with refund", valid_from=NOW - timedelta(days=2)),
        claim("b", "gmv without refund", valid_from=NOW - timedelta(days=1)),
    ]
    pack, _ = assembled(make_project(tmp_path, items))
    winner = pack.conflicts[0].winner
    assert winner is not None
    assert (winner.item_id, pack.conflicts[0].reason) == ("metric:handbook/b", "validity")


def test_what_stays_equal_is_asked_back_and_shown_on_both_sides(tmp_path: Path):
    pack, _ = assembled(
        make_project(tmp_path, [claim("a", "gmv with refund"), claim("b", "gmv without refund")])
    )
    (conflict,) = pack.conflicts
    assert conflict.winner is None
    assert conflict.needs_confirmation
    assert {side.item_id for side in conflict.losers} == {"metric:handbook/a", "metric:handbook/b"}
    assert GateCheck.CONFLICTING_SOURCES.value in {warning.code for warning in pack.warnings}
    assert "with refund" in pack.render("text")
    assert "without refund" in pack.render("text")


def test_what_may_not_be_seen_takes_part_in_no_conflict(tmp_path: Path):
    items = [
        claim("a", "gmv with refund", authority=90, groups=("board",)),
        claim("b", "gmv without refund"),
    ]
    pack, traces = assembled(make_project(tmp_path, items))
    assert pack.conflicts == ()
    assert traces["metric:handbook/b"].selected
    assert pack.denied == {"not_permitted": 1}


def test_of_items_with_one_text_one_is_shown(tmp_path: Path):
    items = [make_item("a", "gmv refund", authority=50), make_item("b", "gmv refund", authority=70)]
    pack, traces = assembled(make_project(tmp_path, items))
    assert traces["document:handbook/a"].excluded_reason is Exclusion.DUPLICATE
    assert [item.item_id for item in pack.items if "handbook" in item.item_id] == [
        "document:handbook/b"
    ]


def test_a_document_with_the_text_of_an_instruction_does_not_push_it_out(tmp_path: Path):
    items = [
        make_item("a", "gmv refund", kind=ItemKind.POLICY, source="rules", authority=50),
        make_item("b", "gmv refund", authority=70, trust=Trust.RETRIEVED_EXTERNAL),
    ]
    pack, _ = assembled(make_project(tmp_path, items, {"rules": {"when_to_load": "always"}}))
    assert [
        (s.name, i.item_id) for s in pack.sections for i in s.items if ":request/" not in i.item_id
    ] == [("policy", "policy:rules/a")]


def test_a_metric_brings_the_table_it_cannot_be_understood_without(tmp_path: Path):
    items = [
        claim("a", "gmv with refund", depends_on=("schema:*/orders",)),
        make_item("orders", "weather columns", kind=ItemKind.SCHEMA, source="database"),
        make_item("other", "cloud columns", kind=ItemKind.SCHEMA, source="database"),
    ]
    pack, traces = assembled(make_project(tmp_path, items))
    trace = traces["schema:database/orders"]
    assert trace.selected
    assert "dependency" in trace.discovered_by
    assert trace.parent_item_id == "metric:handbook/a"
    assert "schema:database/orders" in {item.item_id for item in pack.items}


def test_each_time_of_loading_does_what_it_says(tmp_path: Path):
    sources = {
        when: {"when_to_load": when}
        for when in ("always", "prefetch", "on_match", "just_in_time", "on_request")
    }
    items = [make_item("hit", f"gmv refund {when}", source=when) for when in sources]
    items += [make_item("miss", f"weather {when}", source=when) for when in sources]
    home = make_project(tmp_path, items, sources)
    pack, traces = assembled(home)
    renditions = {item.item_id: item.rendition for item in pack.items}
    assert renditions["document:always/hit"] is renditions["document:always/miss"] is Rendition.FULL
    assert "document:prefetch/miss" in renditions
    assert renditions["document:on_match/hit"] is Rendition.FULL
    assert "document:on_match/miss" not in renditions
    assert renditions["document:just_in_time/hit"] is Rendition.POINTER
    assert traces["document:on_request/hit"].excluded_reason is Exclusion.LOW_RANK
    with open_project(home) as project:
        assert (
            "gmv refund on_request"
            in project.expand("document:on_request/hit", identity=ANA, at=NOW).text
        )


def test_a_tool_that_loads_just_in_time_is_shown_as_its_schema(tmp_path: Path):
    schema = (
        '{"annotations":{"destructiveHint":true},"description":"gmv refund",'
        '"input_schema":{"properties":{},"type":"object"},"name":"pay"}'
    )
    items = [make_item("pay", schema, kind=ItemKind.TOOL, source="tools", title="pay gmv refund")]
    pack, _ = assembled(make_project(tmp_path, items, {"tools": {"when_to_load": "just_in_time"}}))
    (tool,) = pack.capabilities
    assert (tool.name, tool.description, tool.risk_level) == ("pay", "gmv refund", "high")
    assert tool.tokens == len(reference_encoding("o200k_base").encode_ordinary(f"{schema}\n"))


@pytest.mark.parametrize("excluded", [False, True])
def test_a_stale_item_is_warned_of_or_left_out_as_the_policy_says(tmp_path: Path, excluded: bool):
    items = [
        make_item("old", "gmv refund old", last_verified_at=NOW - timedelta(days=3)),
        make_item("new", "gmv refund new", last_verified_at=NOW - timedelta(hours=3)),
    ]
    head = f"[policy]\nexclude_stale = {str(excluded).lower()}"
    pack, traces = assembled(
        make_project(tmp_path, items, {"handbook": {"freshness": "24h"}}, head)
    )
    old = traces["document:handbook/old"]
    assert (old.excluded_reason is Exclusion.STALE) is excluded is (not old.selected)
    assert (
        GateCheck.STALE_ITEMS.value in {warning.code for warning in pack.warnings}
    ) is not excluded
    assert traces["document:handbook/new"].selected


def test_a_source_that_was_not_read_for_long_makes_its_items_stale(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# GMV\n\ngmv refund rules\n", encoding="utf-8")
    home = make_project(
        tmp_path, [], {"docs": {"freshness": "24h"}}, "[policy]\nexclude_stale = true"
    )
    for hours, reason in ((25, Exclusion.STALE), (23, None)):
        with open_workspace(home, at=NOW - timedelta(hours=hours)) as workspace:
            refresh_source(workspace, "docs")
        from testing.artifacts import build_index

        build_index(home)
        assert assembled(home)[1]["document:docs/a.md#1"].excluded_reason is reason


def talk() -> tuple[Message, ...]:
    turns: list[Message] = []
    for number in range(6):
        turns.append(
            Message(role="user", content=f"question {number} " + "about refunds " * number * 5)
        )
        turns.append(
            Message(role="assistant", tool_calls=({"id": f"a{number}"}, {"id": f"b{number}"}))
        )
        turns.append(Message(role="tool", tool_call_id=f"a{number}", content="rows " * 20))
        turns.append(Message(role="tool", tool_call_id=f"b{number}", content="rows " * number * 10))
        turns.append(Message(role="assistant", content=f"answer {number}"))
    return tuple(turns)


def test_history_keeps_the_latest_and_never_a_call_without_its_results(tmp_path: Path):
    home = make_project(tmp_path, [make_item("a", "gmv refund")])
    messages = talk()
    sizes: set[int] = set()
    for budget in range(150, 6_000, 150):
        try:
            pack, _ = assembled(home, messages=messages, token_budget=budget)
        except BudgetTooSmall:
            continue
        kept = [
            int(i.item_id.rpartition("/")[2])
            for s in pack.sections
            if s.name == "history"
            for i in s.items
        ]
        sizes.add(len(kept))
        assert kept == list(range(len(messages) - len(kept), len(messages)))
        for start in range(0, len(messages), 5):
            together = {start + 1, start + 2, start + 3}
            assert together <= set(kept) or not together & set(kept)
    assert len(sizes) > 4


def test_a_large_observation_is_shown_in_part_and_says_so(tmp_path: Path):
    home = make_project(tmp_path, [make_item("a", "gmv refund")])
    seen = (Observation(observation_id="1", content="line of a result\n" * 2_000),)
    pack, traces = assembled(home, observations=seen, token_budget=None)
    (item,) = (i for s in pack.sections if s.name == "observations" for i in s.items)
    assert item.rendition is Rendition.COMPACT
    assert "lines like “line of a result” left out …" in item.text
    assert traces[item.item_id].transforms == ("compact",)


def test_two_results_under_one_id_are_two_candidates(tmp_path: Path):
    home = make_project(tmp_path, [])
    seen = tuple(
        Observation(observation_id="1", content=text) for text in ("same", "same", "other")
    )
    pack, _ = assembled(home, observations=seen)
    names = [i.item_id for s in pack.sections if s.name == "observations" for i in s.items]
    assert names == [f"observation:request/observation/{name}" for name in ("1", "1~2", "1~3")]


def test_a_required_type_is_shown_before_better_matches(tmp_path: Path):
    items = [make_item(f"{n}", f"gmv refund {n} " * 30) for n in range(9)]
    items.append(make_item("m", "gmv", kind=ItemKind.MEMORY, authority=10))
    home = make_project(tmp_path, items, head="[policy]\nmin_relevance = 0.0")
    with pytest.raises(BudgetTooSmall) as refused:
        assembled(home, token_budget=1)
    least = int(refused.value.message.split("need ")[1].split()[0])
    pack, traces = assembled(home, token_budget=least + 90, required_types=("memory",))
    assert traces["memory:handbook/m"].selected_reason == "required type"
    assert "memory:handbook/m" in {item.item_id for item in pack.items}


def test_the_order_of_sections_is_that_of_authority_with_the_goal_at_the_tail(tmp_path: Path):
    kinds = (ItemKind.DOCUMENT, ItemKind.METRIC, ItemKind.INSTRUCTION, ItemKind.POLICY)
    items = [make_item(f"{kind}", f"gmv refund {kind}", kind=kind, source="all") for kind in kinds]
    home = make_project(tmp_path, items, {"all": {"when_to_load": "always"}})
    more = {
        "task": Task(text="gmv refund", goal="Be right"),
        "messages": (Message(role="user", content="hello"),),
        "observations": (Observation(observation_id="1", content="rows"),),
    }
    pack, _ = assembled(home, **more)
    assert [section.name for section in pack.sections] == [
        "policy", "instructions", "task", "state", "domain", "evidence", "history", "observations",
        "goal"
    ]  # fmt: skip
    again, _ = assembled(home, "something else about weather")
    assert again.prefix.hash == pack.prefix.hash
    assert again.prefix.stable_tokens == pack.prefix.stable_tokens > 0


def test_what_is_said_to_be_too_large_names_what_the_caller_can_shorten(tmp_path: Path):
    home = make_project(tmp_path, [make_item("a", "gmv refund")])
    with pytest.raises(BudgetTooSmall) as refused:
        assembled(home, token_budget=60)
    assert "scope" not in refused.value.fix
    assert "raise the budget to at least" in refused.value.fix
    with pytest.raises(BudgetTooSmall) as refused:
        assembled(home, task=Task(text="退款 " * 400), token_budget=300)
    assert "or shorten 'task:request/task' by" in refused.value.fix


def test_what_an_item_lacks_is_told_apart_from_what_comes_before_it(tmp_path: Path):
    items = [make_item(f"{n}", f"gmv refund {n} " * 60) for n in range(9)]
    home = make_project(tmp_path, items, head="[policy]\nmin_relevance = 0.0")
    _, traces = assembled(home, token_budget=700)
    out = [t.counterfactual or "" for t in traces.values() if t.excluded_reason]
    told = [
        re.fullmatch(r"\+([\d,]+) tokens: ([\d,]+) for it, ([\d,]+) for .*", text) for text in out
    ]
    sums = [tuple(int(part.replace(",", "")) for part in m.groups()) for m in told if m]
    assert sums
    assert all(short == own + before for short, own, before in sums)
