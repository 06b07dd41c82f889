from __future__ import annotations

import json

import pytest

from ctx_pipeline.contracts import FileCode, FileStatus, ItemKind
from ctx_pipeline.text import short_hash

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}
MCP = {
    "name": "get",
    "description": "Get it",
    "inputSchema": SCHEMA,
    "annotations": {"readOnlyHint": True},
}
OPENAI = {
    "type": "function",
    "function": {"name": "get", "description": "Get it", "parameters": SCHEMA},
}
FLAT = {"name": "get", "description": "Get it", "parameters": SCHEMA}
ANTHROPIC = {"name": "get", "description": "Get it", "input_schema": SCHEMA}


@pytest.fixture
def tool_file(read, tmp_path):
    """Read one file of tool definitions."""

    def run(value: object, name: str = "tools.json"):
        text = value if isinstance(value, str) else json.dumps(value)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return read("tools", name)

    return run


@pytest.mark.parametrize(
    "value",
    [
        MCP,
        [MCP],
        {"tools": [MCP]},
        {"jsonrpc": "2.0", "id": 1, "result": {"tools": [MCP], "nextCursor": None}},
        OPENAI,
        [OPENAI],
        FLAT,
        {"functions": [FLAT]},
        ANTHROPIC,
        json.dumps(MCP) + "\n\n" + json.dumps({**MCP, "name": "put"}),
    ],
)
def test_every_known_form_gives_the_tool(tool_file, value):
    batch = tool_file(value)
    assert batch.errors == ()
    item = batch.items[0]
    assert (item.item_id, item.kind, item.subject) == ("tool:src/get", ItemKind.TOOL, "tool:get")
    assert item.content is not None
    content = json.loads(item.content)
    assert set(content) == {"name", "description", "input_schema", "annotations"}
    assert (content["description"], content["input_schema"]) == ("Get it", SCHEMA)
    assert item.version == short_hash(item.content)
    assert not item.mutable


def test_an_output_schema_is_kept(tool_file):
    (item,) = tool_file({**MCP, "outputSchema": SCHEMA}).items
    assert json.loads(item.content or "")["output_schema"] == SCHEMA


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("{", FileCode.BAD_JSON),
        ("[" * 200_000, FileCode.BAD_JSON),
        ('{"name": "a", "inputSchema": ' + '{"a":' * 99 + "1" + "}" * 100, FileCode.BAD_JSON),
        ({"description": "no name"}, FileCode.BAD_RECORD),
        ({"name": "a", "inputSchema": []}, FileCode.BAD_RECORD),
        ({"name": "a\nb"}, FileCode.BAD_RECORD),
        ([1], FileCode.BAD_RECORD),
        ({"tools": ["a"]}, FileCode.BAD_RECORD),
    ],
)
def test_a_bad_definition_is_reported(tool_file, value, code):
    batch = tool_file(value)
    assert (batch.items, [error.code for error in batch.errors]) == ((), [code])


def test_one_name_with_two_schemas_keeps_the_first(tool_file):
    batch = tool_file([MCP, MCP, {**MCP, "description": "other"}])
    assert len(batch.items) == 1
    assert json.loads(batch.items[0].content or "")["description"] == "Get it"
    assert [error.code for error in batch.errors] == [FileCode.DUPLICATE_ID]


def test_an_error_in_json_lines_names_its_line(tool_file):
    batch = tool_file(json.dumps(MCP) + "\n{oops\n", name="t.jsonl")
    assert [(error.code, error.line) for error in batch.errors] == [(FileCode.BAD_JSON, 2)]


def test_lone_surrogates_and_nuls_are_repaired(tool_file):
    (item,) = tool_file('{"name": "a", "description": "x\\ud800\\u0000y"}').items
    assert "\ud800" not in (item.content or "")
    assert item.version == short_hash(item.content or "")


def test_empty_and_foreign_files_are_accounted_for(tool_file):
    assert tool_file("").files[0].status is FileStatus.EMPTY
    assert tool_file("x", name="readme.md").files[0].status is FileStatus.SKIPPED


def test_117_real_tools_load_with_their_schemas(read, corpora):
    folder = corpora / "github_mcp_tools" / "snaps"
    batch = read("tools", folder)
    assert batch.errors == ()
    assert len(batch.items) == 117
    for item in batch.items:
        written = json.loads(
            (folder / item.provenance.locator.path.rsplit("/", 1)[-1]).read_text(encoding="utf-8")
        )
        content = json.loads(item.content or "")
        assert content["input_schema"] == written["inputSchema"]
        assert content["annotations"] == written["annotations"]


def test_function_lists_of_a_benchmark_load(read, corpora):
    batch = read("tools", corpora / "bfcl" / "data" / "multi_turn_func_doc")
    assert len(batch.items) > 100
    assert {error.code for error in batch.errors} == {FileCode.DUPLICATE_ID}
