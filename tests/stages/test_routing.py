"""Which tools a call shows: by risk, phase and policy, under which name, in which form, and for
which history.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctx_pipeline.config.profiles import model_profile
from ctx_pipeline.contracts import (
    Capability,
    ContextDecisionTrace,
    ContextItem,
    ContextPack,
    ContextRequest,
    Exclusion,
    ItemKind,
    Message,
    Rendition,
    Task,
)
from ctx_pipeline.language.tokens import count_tokens
from testing.artifacts import ANA, NOW, make_item, make_project, open_project

LONG = {
    "type": "object",
    "properties": {
        name: {"type": "string", "description": f"What {name} means. " * 12}
        for name in ("alpha", "beta", "gamma")
    },
}


def tool(
    name: str,
    words: str,
    *,
    source: str = "shop",
    authority: int = 60,
    title: str | None = None,
    **more: Any,
) -> ContextItem:
    content = {
        "name": name,
        "description": words,
        "input_schema": {"type": "object"},
        "annotations": {},
        **more,
    }
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return make_item(
        name, text, kind=ItemKind.TOOL, source=source, title=title or name, authority=authority
    )


DELETE = tool("delete_store", "close a branch for good", annotations={"destructiveHint": True})
REPORT = tool("list_refunds", "gmv refund list", annotations={"readOnlyHint": True})
SHIP = tool("release_prices", "gmv refund prices", _meta={"phases": ["ship"]})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(
        tmp_path_factory.mktemp("routes"), [DELETE, REPORT, SHIP, make_item("a", "gmv refund")]
    )


def assembled(
    home: Path, text: str = "gmv refund", **more: Any
) -> tuple[ContextPack, dict[str, ContextDecisionTrace]]:
    call = {"task": Task(text=text), "identity": ANA, **more}
    with open_project(home) as project:
        pack = project.assemble(ContextRequest.model_validate(call), at=NOW)
        return pack, {trace.item_id: trace for trace in project.explain(pack.snapshot_id, ANA)}


def shown(pack: ContextPack) -> dict[str, Capability]:
    return {capability.name: capability for capability in pack.capabilities}


def with_policy(tmp_path: Path, policy: str) -> Path:
    return make_project(
        tmp_path, [DELETE, REPORT, make_item("a", "gmv refund")], head=f"[policy]\n{policy}\n"
    )


@pytest.mark.parametrize(
    ("phase", "risk", "text", "is_shown"),
    [
        ("build", "low", "close a branch for good", True),
        ("explore", "high", "close a branch for good", True),
        ("explore", "high", "gmv refund list close", False),
        ("verify", "low", "gmv refund list close", False),
        ("build", "low", "gmv refund list close", True),
    ],
)
def test_a_tool_that_destroys_shows_where_it_is_asked_for_or_things_are_changed(
    tmp_path: Path, phase: str, risk: str, text: str, is_shown: bool
):
    home = with_policy(tmp_path, "min_relevance = 0.0")
    pack, traces = assembled(home, text, phase=phase, risk=risk)
    trace = traces["tool:shop/delete_store"]
    assert ("delete_store" in shown(pack)) is is_shown
    if not is_shown:
        assert trace.excluded_reason is Exclusion.NOT_ROUTED
        assert "relevance, or tools.max_risk" in (trace.counterfactual or "")
        assert "tools.max_risk 'high'" in (trace.counterfactual or "")


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        ('tools = {max_risk = "high"}', {"delete_store", "list_refunds"}),
        ('tools = {max_risk = "medium"}', {"list_refunds"}),
        ('tools = {max_risk = "low", strong_relevance = 0.1}', {"delete_store", "list_refunds"}),
        ("tools = {candidates = 1}", {"delete_store"}),
        ("tools = {candidates = 0}", set[str]()),
        (
            'tools = {max_risk = "low"}\n'
            '[[policy.rules]]\nwhen = {phase = "build"}\nset = {tools = {max_risk = "high"}}',
            {"delete_store", "list_refunds"},
        ),
    ],
)
def test_the_policy_says_which_tools_show(tmp_path: Path, policy: str, names: set[str]):
    pack, traces = assembled(
        with_policy(tmp_path, f"min_relevance = 0.0\n{policy}"),
        "close a branch for good gmv refund",
        phase="build",
    )
    assert shown(pack).keys() == names
    for name in {"delete_store", "list_refunds"} - names:
        assert traces[f"tool:shop/{name}"].counterfactual


def test_a_tool_shows_in_the_phases_that_it_declares_and_where_none_is_said(home: Path):
    for phase, is_shown in (("ship", True), ("build", False), ("default", True)):
        pack, traces = assembled(home, phase=phase)
        assert ("release_prices" in shown(pack)) is is_shown
        if not is_shown:
            trace = traces["tool:shop/release_prices"]
            assert (trace.excluded_reason, trace.counterfactual) == (
                Exclusion.NOT_ROUTED,
                "offered in phase ship",
            )


def test_tools_of_two_servers_are_both_shown_under_names_of_their_own_and_counted_exactly(
    tmp_path: Path,
):
    items = [
        tool("find", "gmv refund one", source="github"),
        tool("find", "gmv refund two", source="gitlab"),
        tool("look", "gmv refund look", source="gitlab"),
    ]
    pack, _ = assembled(make_project(tmp_path, items))
    found = shown(pack)
    assert set(found) == {"github__find", "gitlab__find", "look"}
    one = found["github__find"]
    assert (one.server, one.tool_name, one.item_id) == ("github", "find", "tool:github/find")
    text = json.dumps(
        {
            "annotations": {},
            "description": "gmv refund one",
            "input_schema": {"properties": {}, "type": "object"},
            "name": one.name,
        },
        separators=(",", ":"),
    )
    assert one.tokens == count_tokens(f"{text}\n", "o200k_base")
    assert {tool["function"]["name"] for tool in pack.render("openai_chat")["tools"]} == set(found)


def test_a_name_stays_when_the_rival_is_not_a_candidate(tmp_path: Path):
    items = [
        tool("find", "gmv refund one", source="github"),
        tool("find", "weather forecast", source="gitlab", title="weather"),
    ]
    pack, _ = assembled(make_project(tmp_path, items), text="gmv refund one")
    assert "github__find" in shown(pack)
    pack, _ = assembled(tmp_path, tools=({"name": "find"},))
    assert set(shown(pack)) == {"find"}


def test_of_tools_that_say_the_same_the_one_of_highest_authority_is_shown(tmp_path: Path):
    items = [
        tool("pay", "gmv refund", source=name, authority=authority, annotations={"title": name})
        for name, authority in (("a", 50), ("b", 70))
    ]
    pack, traces = assembled(make_project(tmp_path, items))
    assert [capability.item_id for capability in pack.capabilities] == ["tool:b/pay"]
    assert traces["tool:a/pay"].excluded_reason is Exclusion.DUPLICATE
    assert "tool:b/pay" in (traces["tool:a/pay"].counterfactual or "")


def test_what_is_known_of_tools_is_told_to_those_who_may_see_them(home: Path):
    with open_project(home) as project:
        found = {item.tool_id: item for item in project.tools(identity=ANA, at=NOW)}
        assert {name: item.risk_level for name, item in found.items()} == {
            "tool:shop/delete_store": "high",
            "tool:shop/list_refunds": "low",
            "tool:shop/release_prices": "medium",
        }
        assert (
            found["tool:shop/release_prices"].phase,
            found["tool:shop/list_refunds"].server,
        ) == (("ship",), "shop")
        assert project.tools(identity=ANA.model_copy(update={"tenant": "globex"}), at=NOW) == ()


def test_a_source_says_when_tools_show_that_say_nothing_themselves(tmp_path: Path):
    home = make_project(tmp_path, [REPORT], {"shop": {"kind": "tools", "phases": ["ship"]}})
    assert shown(assembled(home, phase="ship")[0]).keys() == {"list_refunds"}
    assert shown(assembled(home, phase="build")[0]) == {}


def small(tokens: int) -> Any:
    return model_profile("gpt-5").model_copy(update={"tool_schema_budget": tokens})


def test_a_tool_is_shown_compact_where_it_does_not_fit_whole_and_never_as_a_pointer(tmp_path: Path):
    home = make_project(tmp_path, [tool("find", "gmv refund. " * 40, input_schema=LONG)])
    whole = shown(assembled(home)[0])["find"]
    assert whole.rendition is Rendition.FULL
    short = shown(assembled(home, model_profile=small(whole.tokens - 1))[0])["find"]
    assert (short.rendition, short.tokens < whole.tokens // 2) == (Rendition.COMPACT, True)
    assert short.input_schema.keys() == whole.input_schema.keys()
    pack, traces = assembled(home, model_profile=small(short.tokens - 1))
    assert pack.capabilities == ()
    assert traces["tool:shop/find"].excluded_reason is Exclusion.OVER_BUDGET
    assert traces["tool:shop/find"].token_cost == short.tokens


def test_a_tool_of_the_caller_is_shown_compact_where_it_does_not_fit_whole(home: Path):
    offered = {"name": "own", "description": "It does it. " * 40, "parameters": LONG}
    whole = shown(assembled(home, tools=(offered,))[0])["own"]
    short = shown(assembled(home, tools=(offered,), model_profile=small(whole.tokens - 1))[0])[
        "own"
    ]
    assert (whole.rendition, short.rendition) == (Rendition.FULL, Rendition.COMPACT)
    assert (short.server, short.tool_name) == (None, None)


def calls(name: str) -> tuple[Message, ...]:
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": "{}"}}
    return Message(role="assistant", tool_calls=(call,)), Message(
        role="tool", tool_call_id="c1", content="done"
    )


def test_a_tool_that_history_has_called_stays_whatever_the_question_phase_and_risk(home: Path):
    pack, traces = assembled(home, messages=calls("delete_store"), phase="explore")
    assert "delete_store" in shown(pack)
    assert traces["tool:shop/delete_store"].selected_reason == "history refers to it"
    assert "history" in traces["tool:shop/delete_store"].discovered_by
    pack, _ = assembled(home, messages=calls("unheard_of"), phase="explore")
    assert "delete_store" not in shown(pack)


def test_what_history_has_called_stays_within_the_schema_budget_and_out_of_others_reach(home: Path):
    pack, traces = assembled(home, messages=calls("delete_store"), model_profile=small(10))
    assert pack.capabilities == ()
    assert traces["tool:shop/delete_store"].excluded_reason is Exclusion.OVER_BUDGET
    stranger = ANA.model_copy(update={"tenant": "globex"})
    with open_project(home) as project:
        request = ContextRequest(
            task=Task(text="x"), identity=stranger, messages=calls("delete_store")
        )
        pack = project.assemble(request, at=NOW)
        assert pack.capabilities == ()
        assert project.explain(pack.snapshot_id, stranger) != ()
        assert "delete_store" not in repr(
            [trace.item_id for trace in project.explain(pack.snapshot_id, stranger)]
        )


def test_history_may_call_a_tool_by_the_name_it_had_before_another_server_came(tmp_path: Path):
    items = [tool("find", "one", source="github"), tool("find", "two", source="gitlab")]
    home = make_project(tmp_path, [*items, make_item("a", "gmv refund")])
    pack, _ = assembled(home, messages=calls("find"))
    assert set(shown(pack)) == {"github__find", "gitlab__find"}
    pack, _ = assembled(home, text="gmv refund", messages=calls("gitlab__find"))
    assert "gitlab__find" in shown(pack)
