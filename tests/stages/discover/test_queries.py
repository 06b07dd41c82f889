"""What is searched for: one query for a short task, several for a long one, and how what they find
comes together.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_pipeline.contracts import ContextRequest, Task
from ctx_pipeline.stages.discover.queries import (
    LONG_TASK_BYTES,
    MAX_PARTS,
    QUERY_CHARS,
    plan_queries,
)
from testing.artifacts import ANA, NOW, make_item, make_project, open_project

ENGLISH = (
    "Hello there! Compare the revenue of the north region with the "
    "budget of this year. Find out which suppliers "
    "delivered late in October! Then draft a letter to the three slowest of "
    "them (keep it polite). Should the contract "
    "clause on penalties be quoted in it? Version 2.5 of the template "
    "applies, with our new address and the number of "
    "our buying desk in the footer. Thank you very much in advance!"
)
CHINESE = (
    "您好！请对比华北地区今年的营业收入和预算。十月份有哪些供应商交货延迟了？请给其中最慢的三家起草一封催货信；"
    "信里要不要引用合同里的违约金条款？这次使用二点五版的模板，附件请按采购订单编号排序，并在页脚写上我们新的办公地址、"
    "联系电话和采购部的值班时间。非常感谢您！"
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n ",
        "gmv by region",
        "各地区的成交总额是多少？",
        "Find late orders. Mail the supplier.",
    ],
)
def test_a_short_task_is_one_query(text: str):
    assert plan_queries(Task(text=text)) == (text,)


def test_one_long_sentence_is_one_query():
    text = "Which of the suppliers " + "that delivered late and were told so " * 10
    assert plan_queries(Task(text=text)) == (text,)


def test_a_long_english_task_is_also_searched_by_sentence_without_greetings_and_thanks():
    assert plan_queries(Task(text=ENGLISH)) == (
        ENGLISH,
        "Compare the revenue of the north region with the budget of this year.",
        "Find out which suppliers delivered late in October!",
        "Then draft a letter to the three slowest of them (keep it polite).",
        "Should the contract clause on penalties be quoted in it?",
        (
            "Version 2.5 of the template applies, with our new address and the "
            "number of our buying desk in the footer."
        ),
    )


def test_a_long_chinese_task_is_also_searched_by_sentence_without_greetings_and_thanks():
    assert plan_queries(Task(text=CHINESE)) == (
        CHINESE,
        "请对比华北地区今年的营业收入和预算。",
        "十月份有哪些供应商交货延迟了？",
        "请给其中最慢的三家起草一封催货信；",
        "信里要不要引用合同里的违约金条款？",
        "这次使用二点五版的模板，附件请按采购订单编号排序，并在页脚写上我们新的办公地址、联系电话和采购部的值班时间。",
    )


def test_goal_what_is_to_do_and_constraints_are_queries_of_their_own():
    task = Task(
        text="go on",
        goal="ship the quarterly report",
        todo=("check the revenue", "核对预算", "go on", " "),
        constraints=("numbers are agreed with finance",),
    )
    assert plan_queries(task) == (
        "go on",
        "ship the quarterly report",
        "check the revenue",
        "核对预算",
        "numbers are agreed with finance",
    )


def test_more_parts_than_queries_are_joined_in_order_and_none_is_left_out():
    numbers = [f"check invoice number {number} of supplier{number}" for number in range(40)]
    first, *parts = plan_queries(Task(text="go on", todo=tuple(numbers)))
    assert first == "go on"
    assert len(parts) == MAX_PARTS
    assert " ".join(parts) == " ".join(numbers)
    assert max(map(len, parts)) < 2 * min(map(len, parts))


def test_a_task_of_100_kb_has_bounded_queries_and_what_it_asks_before_and_after_is_searched():
    log = " ".join(f"At {number} the pump logged a pressure of 4 bar." for number in range(2_500))
    plan = plan_queries(
        Task(text=f"Summarise the incident below. {log} Name the root cause at last.")
    )
    assert len(log) > 100_000
    assert len(plan) == MAX_PARTS + 1
    assert all(len(query) <= QUERY_CHARS for query in plan)
    assert plan[1].startswith("Summarise the incident below.")
    assert plan[-1] == "Name the root cause at last."


@given(
    text=st.text(max_size=2_000) | st.text(alphabet="-_.!? \n。aZ你好", max_size=3_000),
    goal=st.none() | st.text(max_size=50),
    todo=st.lists(st.text(max_size=400), max_size=9),
)
def test_a_plan_is_bounded_distinct_and_begins_with_the_task(
    text: str, goal: str | None, todo: list[str]
):
    plan = plan_queries(Task(text=text, goal=goal, todo=tuple(todo)))
    assert plan[0] == text[:QUERY_CHARS]
    assert len(plan) <= MAX_PARTS + 1
    assert all(part.strip() for part in plan[1:])
    assert len(set(plan[1:])) == len(plan[1:])


def test_what_one_sentence_of_a_long_task_asks_for_is_found_beside_what_the_others_do(
    tmp_path: Path,
):
    crowd = [make_item(f"pump-{n}", f"pump pressure bearing log of unit {n}") for n in range(12)]
    home = make_project(
        tmp_path,
        [*crowd, make_item("letter", "template for a supplier letter")],
        head="[policy]\ncandidate_limit = 4\n",
    )
    pumps = " ".join(
        f"Check the pump pressure and the bearing log of unit {n} once more." for n in range(7)
    )
    text = f"{pumps} Then fill the template for the supplier letter."
    assert len(text) > LONG_TASK_BYTES
    with open_project(home) as project:
        pack = project.assemble(ContextRequest(task=Task(text=text), identity=ANA), at=NOW)
        again = project.assemble(ContextRequest(task=Task(text=text), identity=ANA), at=NOW)
        hits = [
            t
            for t in project.explain(pack.snapshot_id, ANA)
            if {"vector", "lexical"} & set(t.discovered_by)
        ]
    best = sorted(hits, key=lambda trace: -trace.features.get("relevance", 0.0))[:4]
    assert "document:handbook/letter" in {trace.item_id for trace in best}
    assert len(hits) <= 8
    assert pack.hash == again.hash


def test_a_long_task_finds_nothing_in_an_empty_project_and_nothing_that_may_not_be_seen(
    tmp_path: Path,
):
    empty = make_project(tmp_path / "empty", [])
    hidden = make_project(tmp_path / "hidden", [make_item("late", ENGLISH, groups=("board",))])
    for home in (empty, hidden):
        with open_project(home) as project:
            pack = project.assemble(ContextRequest(task=Task(text=ENGLISH), identity=ANA), at=NOW)
            found = {
                item for trace in project.explain(pack.snapshot_id, ANA) if (item := trace.item_id)
            }
            assert not any(name.startswith("document:") for name in found)
    assert pack.denied == {"not_permitted": 1}
