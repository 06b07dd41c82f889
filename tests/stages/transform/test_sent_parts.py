"""Long results and messages of a request, as the model sees them in a pack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ctx_pipeline.contracts import ContextPack, ContextRequest, Rendition, Task
from testing.artifacts import ANA, NOW, make_item, make_project, open_project

PASSED = "\n".join(f"tests/test_m.py::test_{n} PASSED" for n in range(900))
FAILED = (
    "FAILED tests/test_m.py::test_pool - AssertionError: 3 != 4\nFATAL: 连接池耗尽\nexit code 1"
)
RESULT = f"{PASSED}\n{FAILED}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("sent"), [make_item("a", "refund")])


def assembled(home: Path, **more: Any) -> ContextPack:
    call = {"task": Task(text="why did the run fail?"), "identity": ANA, **more}
    with open_project(home) as project:
        return project.assemble(ContextRequest.model_validate(call), at=NOW)


def observation(content: str = RESULT, name: str = "run1", **more: Any) -> dict[str, Any]:
    return {"observation_id": name, "content": content, **more}


def warned(pack: ContextPack, code: str) -> list[str | None]:
    return [warning.item_id for warning in pack.warnings if warning.code == code]


def test_a_long_result_takes_what_the_policy_allows_and_keeps_its_failures(home: Path):
    pack = assembled(home, observations=[observation()])
    (item,) = [i for i in pack.items if i.kind == "observation"]
    assert item.rendition is Rendition.COMPACT
    assert 1_600 < item.tokens <= 2_000
    assert FAILED in item.text
    assert "left out …" in item.text
    assert "expand" not in item.text
    assert warned(pack, "cut") == ["observation:request/observation/run1"]


@pytest.mark.parametrize("budget", [500, 900, 1_500])
def test_a_long_result_is_cut_to_what_a_small_window_has(home: Path, budget: int):
    pack = assembled(home, observations=[observation()], token_budget=budget)
    (item,) = [i for i in pack.items if i.kind == "observation"]
    assert "exit code 1" in item.text
    assert "FATAL: 连接池耗尽" in item.text
    assert item.tokens > budget / 8


def test_a_short_result_is_shown_whole_and_nothing_is_warned_of(home: Path):
    pack = assembled(home, observations=[observation("3 行，用时 20 毫秒")])
    assert not warned(pack, "cut")
    assert not warned(pack, "dropped")


def test_a_long_answer_of_a_tool_in_the_history_is_cut_too(home: Path):
    talk = [
        {"role": "user", "content": "run the tests"},
        {"role": "assistant", "tool_calls": [{"id": "c", "name": "pytest"}]},
        {"role": "tool", "tool_call_id": "c", "content": RESULT},
        {"role": "user", "content": "为什么失败？"},
    ]
    pack = assembled(home, messages=talk)
    (item,) = [i for i in pack.items if i.item_id.endswith("message/2")]
    assert 1_600 < item.tokens <= 2_000
    assert FAILED in item.text
    assert warned(pack, "cut") == ["history:request/message/2"]


def test_a_long_last_message_is_cut_where_the_window_is_small_and_not_lost(home: Path):
    pack = assembled(home, messages=[{"role": "user", "content": RESULT}], token_budget=1_000)
    (item,) = [i for i in pack.items if i.kind == "history"]
    assert "exit code 1" in item.text
    assert warned(pack, "cut") == ["history:request/message/0"]


def test_messages_that_do_not_fit_are_named_in_one_warning(home: Path):
    talk = [{"role": "user", "content": f"消息 {n} " + "word " * 60} for n in range(30)]
    pack = assembled(home, messages=talk, token_budget=1_500)
    (warning,) = [w for w in pack.warnings if w.code == "dropped"]
    shown = min(int(i.item_id.rpartition("/")[2]) for i in pack.items if i.kind == "history")
    assert f"messages 0 to {shown - 1} are not shown" in warning.message


def test_the_oldest_of_more_messages_than_a_window_holds_are_one_candidate(home: Path):
    talk = [{"role": "user", "content": f"消息 {n}"} for n in range(3_000)]
    with open_project(home) as project:
        request = ContextRequest(
            task=Task(text="refund"), identity=ANA, messages=talk, token_budget=4_000
        )
        pack = project.assemble(request, at=NOW)
        traces = project.explain(pack.snapshot_id, ANA)
    out = [t for t in traces if "/message/0-" in t.item_id]
    assert len(out) == 1
    assert len([t for t in traces if t.kind == "history"]) < 1_000
    assert any("messages 0 to " in w.message for w in pack.warnings if w.code == "dropped")
    assert any("消息 2999" in i.text for i in pack.items)


def test_the_time_of_a_result_stands_in_its_block(home: Path):
    seen = observation("ok", observed_at="2026-10-08T09:30:00+08:00")
    assert 'observed="2026-10-08T01:30Z"' in assembled(home, observations=[seen]).render("text")
