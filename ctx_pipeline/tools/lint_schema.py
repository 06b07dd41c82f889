"""Lint of what a tool takes: its input schema as JSON Schema, and as something a model can fill
in.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, cast

from ctx_pipeline.text import canonical_json
from ctx_pipeline.tools.findings import LintTool, ToolFinding
from ctx_pipeline.tools.lint_values import rule_findings, value_findings
from ctx_pipeline.tools.provider_form import TOP_ONLY, Refused, provider_schema
from ctx_pipeline.tools.schema_walk import (
    MAX_DEPTH,
    Path,
    Schema,
    is_within_limits,
    properties_of,
    required_of,
    resolve,
    schemas,
    show_path,
    types_of,
)
from ctx_pipeline.tools.words import same_name

OVERSIZE_CHARS = 6_000
"""A longer input schema, as JSON, takes some 1,500 tokens: as much as ten ordinary tools."""
LOOKED_CHARS = 2_000
"""What is looked at of the description of a parameter."""
MAX_LEVELS = 5
"""Objects within objects that a model still fills in well."""
_TYPING = frozenset(
    {"type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf", "not", "if", "$dynamicRef"}
)
_JSON_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_COMPOSED = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
_PART_OF_ANOTHER = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"}
)
_VAGUE_PARAMETER = re.compile(
    r"(?:arg|args|param|p|val|x|y|z|foo|bar|tmp|thing|stuff|data|input)\d+"
    r"|[a-w]|foo|bar|thing|stuff|tmp"
)
_QUOTED = r"(?:'[\w.:/-]+'|\"[\w.:/-]+\"|`[\w.:/-]+`|“[^”]{1,30}”|「[^」]{1,30}」)"
_JOINED = r"\s*(?:,|/|\||;|、|，|\bor\b|\band\b|或者?|和)\s*(?:(?:or|and|or else)\s+|或)?"
_LISTED = re.compile(
    # "must be 'day' or 'week'"
    r"(?:\b(?:one of|must be|should be|either|options?|allowed|valid|possible|can be|accepts?"
    r"|supported|values?)\b|取值|可选|枚举|之一|为)"
    rf"[^.。]{{0,40}}?{_QUOTED}(?:{_JOINED}{_QUOTED})+"
    # "allowed values: day, week", 取值：日、周
    r"|(?:one of|options(?: are)?|(?:allowed|valid|possible|supported|accepted) values(?: are)?"
    r"|取值为?|可选值为?|枚举值?|enum\s*(?=:))\s*[:：]?\s*"
    r"[\[({（]?\w[\w-]*(?:\s*(?:[,/|、，]|或)\s*(?:or\s+|and\s+)?\w[\w-]*)+"
    # "(day, week or month)"
    r"|\((?:one of )?(?!e\.g|i\.e|such|like|for\b)\w[\w-]*(?:\s*[,|]\s*\w[\w-]*)+"
    r"(?:\s*,?\s+(?:or|and)\s+\w+)?\)"
    # "day | week" and nothing else
    r"|^\W*\w[\w-]*(?:\s*\|\s*\w[\w-]*)+\W*$"
    # "values: day, week"
    r"|\bvalues?\s*[:：]\s*\w[\w-]*(?:\s*[,/|、，]\s*\w[\w-]*)+"
    r"|\beither\s+\w+\s+or\s+\w+\s*(?:$|[.)])",
    re.IGNORECASE,
)
_SAYS_REQUIRED = re.compile(
    r"^\W*required\b(?!\s+(?:for|when|if|only|unless|with|by))|\(required\)|必填|必须提供",
    re.IGNORECASE,
)
_SAYS_OPTIONAL = re.compile(
    r"^\W*optional\b|\(optional\)|（可选）|\(可选\)|^可选[，,：:。]|选填", re.IGNORECASE
)


def schema_findings(tool: LintTool) -> Iterator[ToolFinding]:
    """Find what validators refuse and what models fill in wrongly."""
    schema = tool.definition.input_schema
    if not schema:
        yield tool.finding("missing_schema", "there is no input schema", at="input_schema")
        return
    if not is_within_limits(schema):
        message = (
            f"the input schema has too many parts, or is nested more than {MAX_DEPTH} deep: "
            "it was not looked into"
        )
        yield tool.finding("unchecked_schema", message, at="input_schema", severity="error")
        return
    broken = list(rule_findings(tool, schema))
    yield from broken
    known = set(types_of(schema)) <= _JSON_TYPES
    if (
        known
        and types_of(schema) != ("object",)
        and ("type" in schema or not _COMPOSED & schema.keys())
    ):
        severity = "error" if "type" in schema else "warn"
        message = "the input schema is not said to be an object"
        yield tool.finding("schema_not_object", message, at="input_schema/type", severity=severity)
    yield from _form_findings(tool, schema)
    size = len(canonical_json(schema))
    if size > OVERSIZE_CHARS:
        yield tool.finding(
            "oversize_schema", f"the input schema has {size} characters", at="input_schema"
        )
    for path, part in schemas(schema):
        yield from _part_findings(tool, path, part)
    if not broken:
        yield from value_findings(tool, schema)
    for name, part in properties_of(schema).items():
        yield from _parameter_findings(tool, schema, name, part)


def _form_findings(tool: LintTool, schema: Schema) -> Iterator[ToolFinding]:
    """Find what providers refuse at the top of a schema, whether or not there is another form for
    it.
    """
    try:
        provider_schema(schema)
    except Refused as refused:
        yield tool.finding("no_provider_form", str(refused), at="input_schema")
        return
    if refused_at_top := [keyword for keyword in TOP_ONLY if keyword in schema]:
        message = f"providers refuse {', '.join(map(repr, refused_at_top))} at the top"
        yield tool.finding("schema_reshaped", message, at=f"input_schema/{refused_at_top[0]}")


def _at(path: Path) -> str:
    return show_path(("input_schema", *path))


def _part_findings(tool: LintTool, path: Path, part: Schema) -> Iterator[ToolFinding]:
    properties = properties_of(part)
    if not any(step in _PART_OF_ANOTHER for step in path):
        missing = [name for name in required_of(part) if name not in properties]
        open_ended = bool(part.get("patternProperties") or part.get("allOf") or part.get("$ref"))
        if missing and not open_ended and (properties or not path or types_of(part) == ("object",)):
            named = ", ".join(map(repr, missing))
            yield tool.finding(
                "required_unknown",
                f"{named} is required and not defined",
                at=_at((*path, "required")),
            )
    alike: dict[str, list[str]] = defaultdict(list)
    for name in properties:
        alike[same_name(name) or name].append(name)
    for names in alike.values():
        if len(names) > 1:
            message = f"{', '.join(map(repr, names))} differ in case and separators alone"
            yield tool.finding("parameters_collide", message, at=_at((*path, "properties")))
    if sum(step == "properties" for step in path) == MAX_LEVELS + 1 and properties:
        yield tool.finding(
            "deep_schema", f"objects are nested more than {MAX_LEVELS} deep", at=_at(path)
        )
    if "array" in types_of(part) and not {"items", "prefixItems", "contains"} & part.keys():
        yield tool.finding("array_without_items", "nothing says what the list holds", at=_at(path))


def _parameter_findings(
    tool: LintTool, root: Schema, name: str, part: Any
) -> Iterator[ToolFinding]:
    at = _at(("properties", name))
    if _VAGUE_PARAMETER.fullmatch(name):
        yield tool.finding("parameter_vague", f"{name!r} does not say what to pass", at=at)
    if not isinstance(part, dict):
        return
    parameter = cast("Schema", part)
    target: Any = (
        resolve(root, parameter["$ref"]) if isinstance(parameter.get("$ref"), str) else None
    )
    said: Any = parameter.get("description") or (
        cast("Schema", target).get("description") if isinstance(target, dict) else ""
    )
    plain = str(said or "").strip()[:LOOKED_CHARS]
    if len(plain) < 3:
        yield tool.finding("parameter_without_description", f"{name!r} is not described", at=at)
    elif same_name(plain) == same_name(name):
        message = f"{name!r} is described by its name alone"
        yield tool.finding("parameter_without_description", message, at=at, severity="info")
    if not _TYPING & parameter.keys():
        yield tool.finding("parameter_without_type", f"{name!r} has no type", at=at)
    if _takes_any_text(parameter) and _LISTED.search(plain):
        yield tool.finding(
            "enum_not_declared", f"the values of {name!r} are described and not declared", at=at
        )
    is_required = name in required_of(root)
    if (_SAYS_REQUIRED.search(plain) and not is_required) or (
        _SAYS_OPTIONAL.search(plain) and is_required
    ):
        message = f"the description of {name!r} and `required` disagree"
        yield tool.finding("required_described", message, at=at)


def _takes_any_text(parameter: Schema) -> bool:
    """Whether a parameter is a text, or a list of texts, of which nothing says what they may be."""
    closed = {"enum", "const", "pattern", "format", "anyOf", "oneOf", "allOf", "$ref"}
    if closed & parameter.keys():
        return False
    if "array" in types_of(parameter):
        items: Any = parameter.get("items")
        return isinstance(items, dict) and _takes_any_text(cast("Schema", items))
    return "string" in types_of(parameter)
