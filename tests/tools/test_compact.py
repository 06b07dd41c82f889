from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ctx_pipeline.language.tokens import count_tokens
from ctx_pipeline.tools.compact import compact_schema, compact_tool, shorten
from ctx_pipeline.tools.definition import ToolDefinition, flatten_tools, tool_content

PYTHON_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
"""What a benchmark writes instead of JSON Schema's types."""


def definitions(paths: list[Path]) -> list[ToolDefinition]:
    found: list[ToolDefinition] = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        values = (
            [json.loads(text)]
            if text.startswith("{\n")
            else [json.loads(line) for line in text.splitlines()]
        )
        found += [ToolDefinition.model_validate(tool) for tool in flatten_tools(values)]
    return found


def made(schema: Any, rng: random.Random, depth: int = 0) -> Any:
    """A value that a schema may accept, or nearly."""
    if not isinstance(schema, dict) or depth > 6 or rng.random() < 0.06:
        return rng.choice([None, 1, 1.5, "text", True, [], {}, ["a"], {"a": 1}])
    if "enum" in schema and rng.random() < 0.9:
        return rng.choice(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return made(rng.choice(schema[key]), rng, depth + 1)
    kind = schema.get("type")
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    if kind == "object":
        required = schema.get("required", [])
        value = {
            name: made(part, rng, depth + 1)
            for name, part in schema.get("properties", {}).items()
            if rng.random() < (0.95 if name in required else 0.4)
        }
        return {**value, "unknown": 1} if rng.random() < 0.1 else value
    if kind == "array":
        return [made(schema.get("items", True), rng, depth + 1) for _ in range(rng.randrange(3))]
    scalars = {
        "string": ["", "a", "2026-01-01"],
        "integer": [0, 1, -5, 1000],
        "number": [0.5, 3],
        "boolean": [True],
    }
    return rng.choice(scalars.get(str(kind), [None]))


def valid_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [valid_types(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    same = {key: valid_types(part) for key, part in schema.items()}
    return (
        {**same, "type": PYTHON_TYPES.get(same["type"], same["type"])}
        if isinstance(same.get("type"), str)
        else same
    )


@pytest.mark.parametrize(
    ("folder", "share"), [("github_mcp_tools/snaps", 0.75), ("bfcl/data/multi_turn_func_doc", 0.95)]
)
def test_a_compact_tool_takes_exactly_the_arguments_of_the_whole_one_and_costs_less(
    corpora: Path, folder: str, share: float
):
    rng = random.Random(folder)
    whole = short = outcomes = 0
    for tool in definitions(
        sorted(path for path in (corpora / folder).iterdir() if path.is_file())
    ):
        fixed = tool.model_copy(update={"input_schema": valid_types(tool.input_schema or {})})
        content = tool_content(fixed)
        compact = compact_tool(content) or content
        whole, short = (
            whole + count_tokens(content, "o200k_base"),
            short + count_tokens(compact, "o200k_base"),
        )
        before, after = (json.loads(text)["input_schema"] for text in (content, compact))
        first, second = Draft202012Validator(before), Draft202012Validator(after)
        Draft202012Validator.check_schema(after)
        for _ in range(40):
            value = made(before, rng)
            assert first.is_valid(value) == second.is_valid(value), (tool.name, value)
            outcomes += first.is_valid(value)
    assert outcomes > 1_000
    assert short < share * whole


def test_notes_go_and_properties_of_the_same_name_stay():
    schema = {
        "type": "object",
        "title": "Arguments",
        "properties": {
            "description": {
                "type": "string",
                "description": "What it is. " * 20,
                "examples": ["a"],
            },
            "title": {
                "type": "object",
                "properties": {"examples": {"type": "string", "description": "deep"}},
            },
        },
        "required": ["description"],
        "examples": [{"description": "a"}],
    }
    short = compact_schema(schema)
    assert short is not None
    assert short["properties"]["description"] == {
        "type": "string",
        "description": ("What it is. " * 6).strip(),
    }
    assert short["properties"]["title"] == {
        "type": "object",
        "properties": {"examples": {"type": "string"}},
    }
    assert set(short) == {"type", "properties", "required"}
    assert schema["title"] == "Arguments", "the input stays as it was"


def test_definitions_are_put_in_place_where_that_is_shorter_and_recursion_is_left_alone():
    point = {
        "type": "object",
        "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
        "required": ["x"],
    }
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}}}
    schema = {
        "type": "object",
        "properties": {
            "at": {"$ref": "#/$defs/point", "description": "Where."},
            "root": {"$ref": "#/$defs/tree"},
        },
        "$defs": {"point": point, "tree": tree, "unused": {"type": "string"}},
    }
    short = compact_schema(schema)
    assert short is not None
    assert set(short["$defs"]) == {"tree"} | ({"point"} & set(short["$defs"]))
    one_use = compact_schema({**schema, "properties": {"at": {"$ref": "#/$defs/point"}}})
    assert one_use == {"type": "object", "properties": {"at": point}}


def test_a_schema_with_addresses_of_its_own_is_not_taken_apart():
    assert compact_schema({"$id": "https://example.com/a", "type": "object"}) is None


@pytest.mark.parametrize(
    ("text", "limit", "short"),
    [
        ("One. Two is here. Three is far too long for this.", 20, "One. Two is here."),
        ("Numbers, e.g. 1 and 2, and no sentence ends in time here", 30, "Numbers, e.g. 1 and 2…"),
        ("no sentence or clause ends here in time at all", 30, "no sentence or clause ends…"),
        ("查询订单。返回订单列表，按时间排序，最多一百条。", 30, "查询订单。"),
        ("short", 30, "short"),
    ],
)
def test_text_is_cut_where_a_sentence_or_a_clause_ends(text: str, limit: int, short: str):
    assert shorten(text, limit) == short


def test_a_compact_form_that_saves_too_little_or_holds_no_tool_is_not_offered():
    assert compact_tool('{"name":"a","description":"b","input_schema":{}}') is None
    assert compact_tool("plain text") is None
    assert compact_tool("[1]") is None
