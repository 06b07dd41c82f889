"""Lint of what a tool takes: its input schema as JSON Schema, and as something a model can fill in."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, cast

from ctx_pipeline.text import canonical_json
from ctx_pipeline.tools.findings import LintTool, ToolFinding
from ctx_pipeline.tools.schema_walk import (
    Path,
    Schema,
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
    r"(?:arg|args|param|p|val|x|y|z|foo|bar|tmp|thing|stuff|data|input)\d+|[a-w]|foo|bar|thing|stuff|tmp"
)
_QUOTED = r"(?:'[\w.:/-]+'|\"[\w.:/-]+\"|`[\w.:/-]+`|“[^”]{1,30}”|「[^」]{1,30}」)"
_JOINED = r"\s*(?:,|/|\||;|、|，|\bor\b|\band\b|或者?|和)\s*(?:(?:or|and|or else)\s+|或)?"
_LISTED = re.compile(
    rf"(?:\b(?:one of|must be|should be|either|options?|allowed|valid|possible|can be|accepts?|supported|values?)\b"
    rf"|取值|可选|枚举|之一|为)"
    rf"[^.。]{{0,40}}?{_QUOTED}(?:{_JOINED}{_QUOTED})+"
    rf"|(?:one of|options(?: are)?|(?:allowed|valid|possible|supported|accepted) values(?: are)?|取值为?|可选值为?"
    rf"|枚举值?|enum\s*(?=:))\s*[:：]?\s*"
    rf"[\[({{（]?\w[\w-]*(?:\s*(?:[,/|、，]|或)\s*(?:or\s+|and\s+)?\w[\w-]*)+"
    rf"|\((?:one of )?(?!e\.g|i\.e|such|like|for\b)\w[\w-]*(?:\s*[,|]\s*\w[\w-]*)+(?:\s*,?\s+(?:or|and)\s+\w+)?\)"
    rf"|^\W*\w[\w-]*(?:\s*\|\s*\w[\w-]*)+\W*$|\bvalues?\s*[:：]\s*\w[\w-]*(?:\s*[,/|、，]\s*\w[\w-]*)+"
    rf"|\beither\s+\w+\s+or\s+\w+\s*(?:$|[.)])",
    re.IGNORECASE,
)
_SAYS_REQUIRED = re.compile(
    r"^\W*required\b(?!\s+(?:for|when|if|only|unless|with|by))|\(required\)|必填|必须提供",
    re.IGNORECASE,
)
_SAYS_OPTIONAL = re.compile(
    r"^\W*optional\b|\(optional\)|（可选）|\(可选\)|^可选[，,：:。]|选填", re.IGNORECASE
)
_BOUNDS = (
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
    ("exclusiveMinimum", "exclusiveMaximum"),
)


def schema_findings(tool: LintTool) -> Iterator[ToolFinding]:
    """Find what validators refuse and what models fill in wrongly."""
    schema = tool.definition.input_schema
    if not schema:
        yield tool.finding("missing_schema", "there is no input schema", at="input_schema")
        return
    broken = list(_invalid(tool, schema))
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
    size = len(canonical_json(schema))
    if size > OVERSIZE_CHARS:
        yield tool.finding(
            "oversize_schema", f"the input schema has {size} characters", at="input_schema"
        )
    for path, part in schemas(schema):
        yield from _part_findings(tool, schema, path, part, valid=not broken)
    for name, part in properties_of(schema).items():
        yield from _parameter_findings(tool, schema, name, part)


def _at(path: Path) -> str:
    return show_path(("input_schema", *path))


def _invalid(tool: LintTool, schema: Schema) -> Iterator[ToolFinding]:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    kind: Any = validator_for(schema, default=Draft202012Validator)
    # The problem nearest to the root, so that the place named is one that somebody wrote.
    problems: list[Any] = sorted(
        kind(kind.META_SCHEMA).iter_errors(schema), key=lambda problem: len(problem.absolute_path)
    )
    problem = problems[0] if problems else None
    if problem is not None:
        place = tuple(problem.absolute_path)
        message = f"it breaks the rule {'/'.join(map(str, list(problem.absolute_schema_path)[-1:]))!r} of JSON Schema"
        yield tool.finding("invalid_schema", message, at=_at(place))
    for path, part in schemas(schema):
        reference = part.get("$ref")
        if isinstance(reference, str) and not _leads_somewhere(schema, reference):
            yield tool.finding(
                "unresolved_reference", "a $ref leads nowhere within the schema", at=_at(path)
            )


def _leads_somewhere(schema: Schema, reference: str) -> bool:
    if reference.startswith("#/") or reference == "#":
        return resolve(schema, reference) is not None
    known = {part.get(key) for _, part in schemas(schema) for key in ("$id", "id", "$anchor")}
    return reference in known or reference.lstrip("#") in known


def _part_findings(
    tool: LintTool, root: Schema, path: Path, part: Schema, *, valid: bool
) -> Iterator[ToolFinding]:
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
    if valid:
        yield from _value_findings(tool, root, path, part)


def _value_findings(
    tool: LintTool, root: Schema, path: Path, part: Schema
) -> Iterator[ToolFinding]:
    """Check enum, default, examples and bounds of a schema that is valid as such."""
    for low, high in _BOUNDS:
        least, most = part.get(low), part.get(high)
        if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
            yield tool.finding("bounds_impossible", f"{low} is above {high}", at=_at((*path, low)))
    enum: Any = part.get("enum")
    if isinstance(enum, list):
        values = [canonical_json(value) for value in cast("list[Any]", enum)]
        rest = {
            key: value
            for key, value in part.items()
            if key not in ("enum", "default", "examples", "example")
        }
        wrong = [value for value in cast("list[Any]", enum) if not _accepts(root, rest, value)]
        if not values or len(set(values)) < len(values) or wrong:
            message = "the list of values is empty, repeats one or has one of another type"
            yield tool.finding("enum_invalid", message, at=_at((*path, "enum")))
    if "default" in part and not _accepts(root, _without(part, "default"), part["default"]):
        # A null default says that there is none.
        severity = "info" if part["default"] is None else None
        message = "the default is no value that the schema accepts"
        yield tool.finding(
            "default_invalid", message, at=_at((*path, "default")), severity=severity
        )
    shown: Any = part.get("examples", [part["example"]] if "example" in part else [])
    if isinstance(shown, list) and any(
        not _accepts(root, part, value) for value in cast("list[Any]", shown)
    ):
        yield tool.finding(
            "example_invalid",
            "an example is no value that the schema accepts",
            at=_at((*path, "examples")),
        )


def _without(part: Schema, key: str) -> Schema:
    return {name: value for name, value in part.items() if name != key}


def _accepts(root: Schema, part: Schema, value: Any) -> bool:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import validator_for

    kind: Any = validator_for(root, default=Draft202012Validator)
    tables = {name: root[name] for name in ("$defs", "definitions") if name in root}
    try:
        kind({**tables, **part}).validate(value)
    except ValidationError:
        return False
    except Exception:
        # A reference to elsewhere, or a pattern of another language: not known to be wrong.
        return True
    return True


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
    words = str(parameter.get("description") or "") or str(
        cast("Schema", target or {}).get("description") or ""
    )
    plain = words.strip()
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
