"""Every tool in the form that all providers take, without the loss of a call that its schema
allows.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ctx_pipeline import tools
from ctx_pipeline.tools.compact import compact_tool
from ctx_pipeline.tools.definition import ToolDefinition, flatten_tools, tool_content
from ctx_pipeline.tools.provider_form import (
    TOP_ONLY,
    Refused,
    plain_name,
    plain_names,
    provider_form,
    provider_schema,
)

TEXT: dict[str, Any] = {"type": "string"}


def takes(*required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        **({"required": list(required)} if required else {}),
    }


def assert_form(schema: dict[str, Any]) -> None:
    assert schema["type"] == "object"
    assert isinstance(schema["properties"], dict)
    assert not set(TOP_ONLY) & schema.keys()
    Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("schema", "calls"),
    [
        ({}, [{}]),
        ({"type": "object"}, [{}]),
        ({"properties": {"a": TEXT}}, [{"a": "x"}]),
        ({"type": ["object", "null"], "properties": {"a": TEXT}}, [{"a": "x"}]),
        (
            {"anyOf": [takes("a", a=TEXT), takes("b", b={"type": "integer"})]},
            [{"a": "x"}, {"b": 1}],
        ),
        (
            {"anyOf": [takes("a", a=TEXT), takes("a", a={"type": "integer"})]},
            [{"a": "x"}, {"a": 1}],
        ),
        (
            {"oneOf": [takes("k", k={"const": "a"}), takes("k", k={"const": "b"}, n=TEXT)]},
            [{"k": "a"}, {"k": "b", "n": "x"}],
        ),
        (
            {**takes(a=TEXT, b=TEXT), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            [{"a": "x"}, {"b": "x"}],
        ),
        ({"anyOf": [{"type": "null"}, takes("a", a=TEXT)]}, [{"a": "x"}]),
        ({"anyOf": [True, takes("a", a=TEXT)]}, [{}, {"a": "x"}]),
        ({"allOf": [takes("a", a=TEXT), takes("b", b=TEXT)]}, [{"a": "x", "b": "y"}]),
        (
            {"allOf": [takes(a=TEXT), {**takes(b=TEXT), "additionalProperties": False}]},
            [{"b": "y"}],
        ),
        (
            {"$ref": "#/$defs/A", "$defs": {"A": takes("x", x={"$ref": "#/$defs/B"}), "B": TEXT}},
            [{"x": "y"}],
        ),
        ({"$ref": "#/definitions/a~1b", "definitions": {"a/b": takes("x", x=TEXT)}}, [{"x": "y"}]),
        (
            {"$ref": "#/$defs/n", "$defs": {"n": takes(a={"$ref": "#/$defs/n"}, v=TEXT)}},
            [{"a": {"a": {"v": "x"}}}],
        ),
        ({**takes(a=TEXT), "not": {"required": ["a", "b"]}}, [{"a": "x"}]),
        ({**takes(a=TEXT), "enum": [{"a": "x"}]}, [{"a": "x"}]),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, [{"a": 1, "b": 2}]),
        (
            {
                "type": "object",
                "additionalProperties": False,
                "anyOf": [takes("a", a=TEXT), takes("b", b=TEXT)],
            },
            [{"a": "x"}, {"b": "x"}],
        ),
    ],
)
def test_a_schema_that_takes_an_object_has_a_form_that_takes_the_same_calls(
    schema: dict[str, Any], calls: list[dict[str, Any]]
):
    form = provider_schema(schema)
    assert_form(form)
    for call in calls:
        assert Draft202012Validator(form).is_valid(call)


def test_required_names_that_alternatives_do_not_share_are_told_in_words():
    form = provider_schema(
        {"anyOf": [takes("owner", "repo", owner=TEXT, repo=TEXT), takes("url", url=TEXT)]}
    )
    assert form["description"] == "Needs one of: owner + repo; url."
    assert "required" not in form


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "string"}, "takes no object"),
        ({"type": "array", "items": takes(a=TEXT)}, "takes no object"),
        ({"anyOf": [{"type": "null"}, TEXT]}, "takes no object"),
        ({"enum": [{"a": 1}]}, "lists whole arguments"),
        ({"$ref": "#"}, "refers to itself"),
        ({"$ref": "#/$defs/none"}, "not part of it"),
        ({"$ref": "https://example.com/schema"}, "not part of it"),
        (takes(a={"$ref": "file:///etc/passwd"}), "not part of it"),
        ({"anyOf": [takes(a=TEXT), takes(b={"$ref": "#/anyOf/0/properties/a"})]}, "has no place"),
        (takes(**{f"p{number}": takes(a=TEXT) for number in range(4_000)}), "too large"),
    ],
)
def test_a_schema_without_such_a_form_says_why_and_is_an_error_of_lint(
    schema: dict[str, Any], why: str
):
    with pytest.raises(Refused, match=why):
        provider_schema(schema)
    (found,) = [
        each for each in lint(schema) if each.code in ("no_provider_form", "unchecked_schema")
    ]
    assert found.severity == "error"


def lint(schema: dict[str, Any]) -> tuple[tools.ToolFinding, ...]:
    return tools.lint(
        [
            {
                "name": "find_user",
                "description": "Find a user by name. Returns it.",
                "inputSchema": schema,
            }
        ]
    )


def test_what_providers_refuse_at_the_top_is_told_where_packs_show_it_otherwise():
    assert "schema_reshaped" in {
        each.code for each in lint({"anyOf": [takes(a=TEXT), takes(b=TEXT)]})
    }
    assert "schema_reshaped" not in {
        each.code for each in lint(takes(a={"anyOf": [TEXT, {"type": "null"}]}))
    }


def test_references_that_multiply_at_the_top_are_refused():
    defs: dict[str, Any] = {
        f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(40)
    }
    with pytest.raises(Refused, match="too many alternatives"):
        provider_schema({"$ref": "#/$defs/d0", "$defs": {**defs, "d40": takes(a=TEXT)}})


def test_invalid_keywords_and_types_of_other_languages_are_repaired():
    form = provider_schema(
        {
            "type": "dict",
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {
                "a": "string",
                "f": {"type": "float", "minimum": 1, "exclusiveMinimum": True, "required": True},
                "l": {"type": "list"},
                "t": {"type": "tuple", "items": [{"type": "str"}], "additionalItems": False},
                "x": {"type": "any", "description": 5},
                "e": {"enum": []},
            },
            "required": "a",
        }
    )
    assert_form(form)
    assert form["properties"] == {
        "a": {},
        "f": {"type": "number", "exclusiveMinimum": 1},
        "l": {"type": "array", "items": {}},
        "t": {"type": "array", "prefixItems": [TEXT], "items": False},
        "x": {},
        "e": {},
    }
    assert form.keys() == {"type", "properties"}


def test_a_sound_schema_stays_byte_for_byte():
    content = tool_content(
        ToolDefinition.model_validate({"name": "a.b", "inputSchema": takes("a", a=TEXT)})
    )
    assert provider_form(content) == (content, None)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("ok-1_B", "ok-1_B"),
        ("coding.start", "coding_start"),
        ("Query all components", "Query_all_components"),
        ("a/b:c", "a_b_c"),
        ("x" * 90, None),
        ("查询天气", None),
        ("get_天气", None),
        ("…", None),
        ("ü", None),
    ],
)
def test_a_name_becomes_one_that_providers_take(name: str, plain: str | None):
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", plain_name(name))
    if plain is not None:
        assert plain_name(name) == plain


def test_names_that_become_the_same_stay_apart_and_those_that_are_taken_stay():
    names = ["a.b", "a_b", "a/b", "查询", "查找", "a" * 70, "a" * 71]
    plain = plain_names(names)
    assert len(set(plain)) == len(names)
    assert plain[1] == "a_b"


def definitions(corpora: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in sorted((corpora / "github_mcp_tools" / "snaps").iterdir()):
        found.extend(flatten_tools(json.loads(path.read_text(encoding="utf-8"))))
    for path in sorted((corpora / "bfcl" / "data").glob("*.json")):
        for line in path.read_text(encoding="utf-8").splitlines():
            found.extend(json.loads(line).get("function", []))
    return found


def test_every_tool_of_real_catalogues_has_a_form_whole_and_compact(corpora: Path):
    for value in definitions(corpora):
        form = provider_form(tool_content(ToolDefinition.model_validate(value)))
        assert form.refusal is None
        for content in (form.content, compact_tool(form.content)):
            if content is not None:
                assert_form(json.loads(content)["input_schema"])
