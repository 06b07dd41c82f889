"""What the model sees of the conversation and of the caller's tools: calls with their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctx_pipeline.contracts import (
    ContextDecisionTrace,
    ContextPack,
    ContextRequest,
    Exclusion,
    Message,
    Task,
)
from ctx_pipeline.errors import BudgetTooSmall, InvalidRequest
from testing.artifacts import ANA, NOW, make_item, make_project, open_project

NESTED = {
    "id": "c1",
    "type": "function",
    "function": {"name": "sql", "arguments": '{ "b": 1, "a": "退款" }'},
}
FLAT = {"id": "c1", "name": "sql", "arguments": {"a": "退款", "b": 1}}
INPUT = {"type": "tool_use", "id": "c1", "name": "sql", "input": {"b": 1, "a": "退款"}}
SHOWN = 'tool_call {"arguments":{"a":"退款","b":1},"id":"c1","name":"sql"}'


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("talk"), [make_item("a", "gmv refund")])


def assembled(home: Path, **more: Any) -> tuple[ContextPack, dict[str, ContextDecisionTrace]]:
    call = {"task": Task(text="gmv refund"), "identity": ANA, "token_budget": 9_000, **more}
    with open_project(home) as project:
        pack = project.assemble(ContextRequest.model_validate(call), at=NOW)
        return pack, {trace.item_id: trace for trace in project.explain(pack.snapshot_id, ANA)}


def history(pack: ContextPack) -> dict[int, str]:
    items = [
        item for section in pack.sections if section.name == "history" for item in section.items
    ]
    return {int(item.item_id.rpartition("/")[2]): item.text for item in items}


def calls(*ids: str) -> Message:
    return Message(role="assistant", tool_calls=tuple({"id": name, "name": "sql"} for name in ids))


def result(name: str | None) -> Message:
    return Message(role="tool", tool_call_id=name, content="rows")


def said(text: str = "hello") -> Message:
    return Message(role="user", content=text)


@pytest.mark.parametrize("call", [NESTED, FLAT, INPUT])
def test_a_call_is_shown_alike_in_every_form_and_its_result_names_it(
    home: Path, call: dict[str, Any]
):
    talk = (
        said(),
        Message(role="assistant", content="I look.", tool_calls=(call,)),
        Message(role="tool", tool_call_id="c1", name="sql", content="7 rows"),
    )
    shown = history(assembled(home, messages=talk)[0])
    assert f"assistant: I look.\n{SHOWN}\n" in shown[1]
    assert 'tool {"name":"sql","tool_call_id":"c1"}: 7 rows\n' in shown[2]
    assert "user: hello\n" in shown[0]


@pytest.mark.parametrize(
    "arguments", ['{"a": NaN}', '{"a": 1e999}', '{"a": ', "[" * 3_000, "[" * 70 + "]" * 70]
)
def test_arguments_that_are_no_json_are_shown_as_they_came(home: Path, arguments: str):
    call = {"id": "c1", "function": {"name": "sql", "arguments": arguments}}
    shown = history(
        assembled(
            home, messages=(Message(role="assistant", tool_calls=(call,)),), token_budget=50_000
        )[0]
    )
    assert json.dumps(arguments) in shown[0]


def test_a_call_of_an_unknown_form_is_shown_whole(home: Path):
    call: dict[str, Any] = {"functionCall": {"name": "sql", "args": {}}}
    shown = history(assembled(home, messages=(Message(role="assistant", tool_calls=(call,)),))[0])
    assert 'tool_call {"functionCall":{"args":{},"name":"sql"}}' in shown[0]


NO_CALL = "its call is not in the request"
OPEN = "its results are not all in the request"
OTHERS = "other results of its call are not in the request"


@pytest.mark.parametrize(
    ("talk", "out"),
    [
        pytest.param((said(), calls("a"), result("a"), said()), {}, id="a call with its result"),
        pytest.param((result("a"), said()), {0: NO_CALL}, id="a result without a call"),
        pytest.param((result(None), said()), {0: NO_CALL}, id="a result that names no call"),
        pytest.param(
            (result("a"), calls("a"), result("a")), {0: NO_CALL}, id="a result before its call"
        ),
        pytest.param((calls("a"), said()), {0: OPEN}, id="a call without a result"),
        pytest.param(
            (calls("a", "b"), result("b"), said()), {0: OPEN, 1: OTHERS}, id="one result of two"
        ),
        pytest.param((said(), calls("a")), {}, id="a pending call"),
        pytest.param(
            (said(), calls("a", "b"), result("b")), {}, id="a call of which one result is pending"
        ),
        pytest.param(
            (said(), calls("a"), result("x")), {2: NO_CALL}, id="a pending call and a stray result"
        ),
        pytest.param(
            (calls("a"), said(), calls("a"), result("a"), said()), {0: OPEN}, id="an id used again"
        ),
        pytest.param(
            (calls("a"), result("a"), calls("a"), result("a"), said()), {}, id="an id used twice"
        ),
        pytest.param((calls(""), result(""), said()), {}, id="empty ids are paired by place"),
        pytest.param((calls("", ""), result(None), result(""), said()), {}, id="two without ids"),
        pytest.param((calls("a"), result(None), said()), {}, id="a result that says no id"),
        pytest.param((calls(""), result("a"), said()), {}, id="a call that has no id"),
        pytest.param((calls("a", "a"), result("a"), result("a"), said()), {}, id="one id twice"),
        pytest.param(
            (calls("a", ""), result(""), result("a"), said()), {}, id="one of two has an id"
        ),
        pytest.param(
            (calls("a"), result("a"), result(None), said()), {2: NO_CALL}, id="nothing is open"
        ),
    ],
)
def test_calls_and_results_without_each_other_stay_out(
    home: Path, talk: tuple[Message, ...], out: dict[int, str]
):
    pack, traces = assembled(home, messages=talk)
    assert sorted(history(pack)) == [number for number in range(len(talk)) if number not in out]
    removed = {
        int(name.rpartition("/")[2]): trace.counterfactual
        for name, trace in traces.items()
        if trace.excluded_reason is Exclusion.GATE_REMOVED
    }
    assert removed == out


def test_the_kept_window_never_starts_with_a_result(home: Path):
    talk = [
        said("long " * 40),
        calls("a"),
        said("between " * 10),
        result("a"),
        said("next"),
        calls("b"),
        result("b"),
    ]
    starts: set[int] = set()
    for budget in range(120, 1_200, 20):
        try:
            shown = sorted(history(assembled(home, messages=talk, token_budget=budget)[0]))
        except BudgetTooSmall:
            continue
        if shown:
            starts.add(shown[0])
            assert talk[shown[0]].role != "tool"
            assert (1 in shown) == (3 in shown)
            assert (5 in shown) == (6 in shown)
    assert len(starts) > 2


def test_a_required_message_brings_what_it_may_not_be_separated_from(home: Path):
    talk = (calls("a"), result("a"), *(said("filler " * 60) for _ in range(30)))
    pack, _ = assembled(home, messages=talk, token_budget=900, required_types=("history",))
    shown = sorted(history(pack))
    assert shown[:2] == [0, 1]
    assert len(shown) < len(talk)
    assert len(set(shown)) == len(shown)


def test_a_tool_of_the_request_may_not_repeat_a_name(home: Path):
    tools = [{"name": "pay"}, {"name": "look"}, {"type": "function", "function": {"name": "pay"}}]
    with pytest.raises(InvalidRequest) as refused:
        assembled(home, tools=tools)
    assert (refused.value.stable_code, refused.value.where) == ("invalid_tool", "tools[2]")
    assert "tools[0]" in refused.value.message


def test_usage_that_is_no_json_is_refused_and_nothing_recorded(home: Path):
    refusals: list[Any] = [float("nan"), float("inf"), object(), {"a": [float("nan")]}, b"1"]
    with open_project(home) as project:
        pack = project.assemble(ContextRequest(task=Task(text="gmv"), identity=ANA), at=NOW)
        for value in refusals:
            with pytest.raises(InvalidRequest) as refused:
                project.report_usage(pack.snapshot_id, {"input_tokens": 1, "cost": value}, ANA)
            assert (refused.value.stable_code, refused.value.where) == ("invalid_usage", "usage")
        assert project.ledger.usage(pack.snapshot_id) == ()
        project.report_usage(pack.snapshot_id, {"input_tokens": 1}, ANA)
        assert len(project.ledger.usage(pack.snapshot_id)) == 1


def test_a_result_that_is_paired_by_its_place_is_shown_and_the_repair_is_recorded(home: Path):
    talk = (
        said("问题"),
        calls(""),
        Message(role="tool", tool_call_id="", content="ANSWER-42"),
        said("然后呢"),
    )
    pack, traces = assembled(home, messages=talk)
    assert "ANSWER-42" in pack.render("text")
    (warning,) = [w for w in pack.warnings if w.code == "history_repaired"]
    assert warning.item_id == "history:request/message/2"
    assert "message 1" in warning.message
    assert "paired_by_place" in traces["history:request/message/2"].discovered_by


def test_a_result_without_any_call_is_left_out_with_a_warning(home: Path):
    pack, _ = assembled(home, messages=(result("a"), said()))
    (warning,) = [w for w in pack.warnings if w.code == "dropped"]
    assert warning.item_id == "history:request/message/0"
    assert NO_CALL in warning.message


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (
            [{"type": "text", "text": "look"}, {"type": "text", "text": "看这里"}],
            "user: look\n看这里\n",
        ),
        (
            [
                {"type": "input_text", "text": "what is it?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ],
            "user: what is it?\n[image_url]\n",
        ),
        (
            [
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"},
                },
                "什么颜色？",
            ],
            "user: [image image/png]\n什么颜色？\n",
        ),
        ([{"type": "file", "file": {"filename": "a.pdf", "file_data": "QUJD"}}], "[file a.pdf]\n"),
        (None, "user: \n"),
        ([], "user: \n"),
    ],
)
def test_text_parts_are_joined_and_others_referred_to_by_type(home: Path, content: Any, shown: str):
    text = history(assembled(home, messages=({"role": "user", "content": content},))[0])[0]
    assert shown in text
    assert "QUJD" not in text
    assert "AAAA" not in text


def test_calls_and_results_in_parts_are_paired_as_those_of_their_own_fields_are(home: Path):
    call = {"type": "tool_use", "id": "c1", "name": "sql", "input": {"b": 1, "a": "退款"}}
    answer = {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": [{"type": "text", "text": "7 行"}],
    }
    talk = (
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
        {"role": "user", "content": [answer]},
        {"role": "user", "content": "next " * 200},
    )
    shown = history(assembled(home, messages=talk)[0])
    assert f"assistant: I look.\n{SHOWN}\n" in shown[0]
    assert 'tool {"tool_call_id":"c1"}: 7 行\n' in shown[1]
    for budget in range(200, 700, 50):
        seen = history(assembled(home, messages=talk, token_budget=budget)[0])
        assert (0 in seen) == (1 in seen)
