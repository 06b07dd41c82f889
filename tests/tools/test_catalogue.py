from __future__ import annotations

import json
from typing import Any

import pytest

from ctx_pipeline.security.visibility import ScopeLabel
from ctx_pipeline.tools.catalogue import CatalogueTool, catalogue_table, tool_items, tool_rows
from ctx_pipeline.tools.traits import phases_of, returns_of, risk_of


def entry(
    source: str,
    name: str,
    words: str = "Find a thing.",
    *,
    row: int = 0,
    live: bool = True,
    tenant: str = "acme",
    groups: tuple[str, ...] = ("*",),
    **more: Any,
) -> CatalogueTool:
    content = {
        "name": name,
        "description": words,
        "input_schema": {"type": "object"},
        "annotations": {},
        **more,
    }
    label = ScopeLabel(tenant, (), groups, "internal", None, (), (), "enterprise_trusted")
    return CatalogueTool(
        row, f"tool:{source}/{name}", name, tenant, source, json.dumps(content), live, label
    )


def names(*tools: CatalogueTool) -> list[str]:
    table = catalogue_table(
        tools, "o200k_base", lambda texts, encoding: [len(text) for text in texts]
    )
    return table.column("name").to_pylist()


def test_tools_of_one_name_that_differ_are_called_by_their_server_too():
    assert names(entry("a", "find", "One."), entry("b", "find", "Two."), entry("b", "look")) == [
        "a__find",
        "b__find",
        "look",
    ]


def test_tools_that_say_the_same_keep_their_name():
    assert names(entry("a", "find"), entry("b", "find")) == ["find", "find"]


def test_what_has_been_withdrawn_and_other_tenants_have_no_say():
    assert names(entry("a", "find", "One."), entry("b", "find", "Two.", live=False)) == [
        "find",
        "find",
    ]
    assert names(entry("a", "find", "One."), entry("b", "find", "Two.", tenant="globex")) == [
        "find",
        "find",
    ]


def test_a_tool_that_some_may_not_see_changes_the_name_of_no_tool_that_they_see():
    public, board = entry("a", "find", "One."), entry("b", "find", "Two.", groups=("board",))
    assert names(public, board) == ["find", "b__find"]
    assert names(entry("a", "find", "One.", groups=("finance",)), board) == ["find", "find"]
    shown = entry("a", "find", "One.")
    assert (
        names(shown, entry("b", "find", "Two."), entry("c", "a__find", groups=("board",)))[0]
        == "a__find"
    )


def test_a_qualified_name_is_one_that_providers_take_and_nobody_else_has():
    long = names(entry("a" * 40, "find" * 10, "One."), entry("b" * 40, "find" * 10, "Two."))
    assert all(len(name) <= 64 for name in long)
    assert len(set(long)) == 2
    assert names(entry("数据", "find", "One."), entry("b", "find", "Two."))[0].isascii()
    taken = names(entry("a", "find", "One."), entry("b", "find", "Two."), entry("c", "a__find"))
    assert len(set(taken)) == 3
    assert taken[2] == "a__find"


def test_names_do_not_depend_on_the_order_of_the_catalogue():
    tools = [entry("a", "find", "One."), entry("b", "find", "Two."), entry("c", "find", "Two.")]
    assert sorted(names(*tools)) == sorted(names(*reversed(tools)))


def test_the_contract_of_a_tool_says_what_the_catalogue_knows():
    meta = {"server": "github", "phases": ["build", "ship"]}
    first = entry("a", "delete_file", "Erase a file. Returns the commit.", row=3, _meta=meta)
    second = entry("a", "remove_file", "Erase a file. Returns the commit.", row=4)
    table = catalogue_table(
        [first, second], "o200k_base", lambda texts, encoding: [len(text) for text in texts]
    )
    (row, item), (_, other) = tool_items(table)
    assert (row, item.tool_id, item.server, item.phase) == (
        3,
        "tool:a/delete_file",
        "github",
        ("build", "ship"),
    )
    assert (item.risk_level, item.return_semantics) == ("high", "Returns the commit.")
    assert item.description_tokens == len("Erase a file. Returns the commit.")
    assert item.semantic_overlap_group == other.semantic_overlap_group == "tool:a/delete_file"
    assert other.server == "a"
    assert tool_rows(table)[3].phases == ("build", "ship")


@pytest.mark.parametrize(
    ("name", "description", "annotations", "risk"),
    [
        ("list_tags", "List tags", {"readOnlyHint": True}, "low"),
        ("list_tags", "List tags", {}, "low"),
        ("getUserById", "", {}, "low"),
        ("create_issue", "", {}, "medium"),
        ("order_list", "", {}, "low"),
        ("issue_write", "", {"readOnlyHint": False}, "medium"),
        ("frobnicate", "Frobnicate it", {}, "medium"),
        ("frobnicate", "Returns it", {}, "medium"),
        ("run", "Deletes a row", {}, "high"),
        ("delete_file", "", {"readOnlyHint": True}, "high"),
        ("set_title", "", {"readOnlyHint": True}, "medium"),
        ("look", "", {"destructiveHint": True}, "high"),
        ("run_sql", "Run a query", {"readOnlyHint": True}, "low"),
        ("run_sql", "Run a query", {}, "medium"),
        ("查询订单", "", {}, "low"),
        ("订单", "删除订单", {}, "high"),
        ("创建订单", "", {}, "medium"),
    ],
)
def test_risk_is_what_hints_and_verbs_say_and_never_less_than_the_name(
    name: str, description: str, annotations: dict[str, Any], risk: str
):
    assert risk_of(name, description, annotations) == risk


def test_phases_are_those_that_are_declared():
    assert phases_of({}, {}) == ()
    assert phases_of({"phases": ["a"]}, {"phases": ["b", "b", 1]}) == ("b",)
    assert phases_of({"phase": "a"}, {}) == ("a",)


def test_what_is_returned_is_said_in_words_or_by_the_output_schema():
    assert returns_of("Find it. Returns the row.", None) == "Returns the row."
    assert returns_of("查询。返回列表。", None) == "返回列表。"
    assert returns_of("Find it.", {"properties": {"b": {}, "a": {}}}) == "fields: a, b"
    assert returns_of("Find it.", None) is None
