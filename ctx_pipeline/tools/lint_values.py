"""Lint of an input schema as JSON Schema: whether it is one, where its references lead, and what
its own values are.

A definition comes from outside: nothing that it names is fetched, and nothing in it is looked at
without a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, cast

from ctx_pipeline.text import canonical_json
from ctx_pipeline.tools.accepts import Effort, OutOfSteps, accepts, is_number
from ctx_pipeline.tools.findings import LintTool, ToolFinding
from ctx_pipeline.tools.patterns import search
from ctx_pipeline.tools.schema_walk import Path, Schema, resolve, schemas, show_path

_DIALECTS: Final = {
    "json-schema.org/draft-03/schema": "Draft3Validator",
    "json-schema.org/draft-04/schema": "Draft4Validator",
    "json-schema.org/draft-06/schema": "Draft6Validator",
    "json-schema.org/draft-07/schema": "Draft7Validator",
    "json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "json-schema.org/draft/2020-12/schema": "Draft202012Validator",
}
_DEFAULT = "json-schema.org/draft/2020-12/schema"
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_BOUNDS = (
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
    ("exclusiveMinimum", "exclusiveMaximum"),
)


def rule_findings(tool: LintTool, schema: Schema) -> Iterator[ToolFinding]:
    """Find where a schema breaks the rules of its dialect, and references that lead nowhere within
    it.
    """
    dialect = _dialect(schema["$schema"]) if "$schema" in schema else _DEFAULT
    if dialect is None:
        message = "`$schema` names no draft of JSON Schema that is known"
        yield tool.finding("unknown_dialect", message, at=_at(("$schema",)))
    problem = _first_problem(dialect or _DEFAULT, schema)
    if problem is not None:
        place, rule = problem
        yield tool.finding(
            "invalid_schema", f"it breaks the rule {rule!r} of JSON Schema", at=_at(place)
        )
    named = (part.get(key) for _, part in schemas(schema) for key in ("$anchor", "$dynamicAnchor"))
    anchors = {anchor for anchor in named if isinstance(anchor, str)}
    for path, part in schemas(schema):
        for keyword in _REFERENCES:
            reference = part.get(keyword)
            if not isinstance(reference, str):
                continue
            if not reference.startswith("#"):
                message = f"a {keyword} leads out of the schema; it is not followed"
                yield tool.finding("unresolved_reference", message, at=_at(path))
            elif resolve(schema, reference) is None and reference[1:] not in anchors:
                message = f"a {keyword} leads nowhere within the schema"
                yield tool.finding("unresolved_reference", message, at=_at(path))


def _at(path: Path) -> str:
    return show_path(("input_schema", *path))


def _dialect(named: Any) -> str | None:
    if not isinstance(named, str):
        return None
    plain = named.partition("://")[2].removesuffix("#").rstrip("/")
    return plain if plain in _DIALECTS else None


def _first_problem(dialect: str, schema: Schema) -> tuple[Path, str] | None:
    """Return the place nearest to the root that is no JSON Schema, and the rule that it breaks."""
    problems: list[Any] = sorted(
        _validator(dialect).iter_errors(schema), key=lambda problem: len(problem.absolute_path)
    )
    if not problems:
        return None
    return tuple(problems[0].absolute_path), str(problems[0].absolute_schema_path[-1])


@lru_cache(maxsize=len(_DIALECTS))
def _validator(dialect: str) -> Any:
    """Return what checks that a value is a schema. It knows the drafts themselves and retrieves
    nothing.
    """
    import jsonschema
    from jsonschema import validators
    from jsonschema.exceptions import ValidationError
    from jsonschema_specifications import REGISTRY

    def unique(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
        # The library compares each with each where it cannot sort them.
        if wanted and isinstance(value, list):
            listed = cast("list[Any]", value)
            if len({canonical_json(part) for part in listed}) < len(listed):
                yield ValidationError("an element comes twice")

    kind: Any = getattr(jsonschema, _DIALECTS[dialect])
    bounded: Any = cast("Any", validators).extend(kind, {"uniqueItems": unique})
    return bounded(kind.META_SCHEMA, registry=REGISTRY)


def value_findings(tool: LintTool, root: Schema) -> Iterator[ToolFinding]:
    """Check enum, default, examples, bounds and patterns of a schema that is valid as such."""
    effort = Effort()
    try:
        for path, part in schemas(root):
            yield from _of_part(tool, root, path, part, effort)
    except OutOfSteps:
        message = (
            "its values take too many steps to check: patterns, references or combinations multiply"
        )
        yield tool.finding("unchecked_schema", message, at="input_schema")


def _of_part(
    tool: LintTool, root: Schema, path: Path, part: Schema, effort: Effort
) -> Iterator[ToolFinding]:
    def is_wrong(value: Any, schema: Schema = part) -> bool:
        return accepts(root, schema, value, effort) is False

    for low, high in _BOUNDS:
        least, most = part.get(low), part.get(high)
        if is_number(least) and is_number(most) and cast("float", least) > cast("float", most):
            yield tool.finding("bounds_impossible", f"{low} is above {high}", at=_at((*path, low)))
    if any(search(pattern, "").found is None for pattern in _patterns(part)):
        message = (
            "a pattern needs backtracking or is too long: whether values match it was not checked"
        )
        yield tool.finding("unchecked_pattern", message, at=_at((*path, "pattern")))
    enum: Any = part.get("enum")
    if isinstance(enum, list):
        values = [canonical_json(value) for value in cast("list[Any]", enum)]
        effort.spend(len(values))
        rest = {key: kept for key, kept in part.items() if key != "enum"}
        wrong = any(is_wrong(value, rest) for value in cast("list[Any]", enum))
        if not values or len(set(values)) < len(values) or wrong:
            message = "the list of values is empty, repeats one or has one of another type"
            yield tool.finding("enum_invalid", message, at=_at((*path, "enum")))
    if "default" in part and is_wrong(part["default"]):
        # A null default says that there is none.
        severity = "info" if part["default"] is None else None
        message = "the default is no value that the schema accepts"
        yield tool.finding(
            "default_invalid", message, at=_at((*path, "default")), severity=severity
        )
    shown: Any = part.get("examples", [part["example"]] if "example" in part else [])
    if isinstance(shown, list) and any(is_wrong(value) for value in cast("list[Any]", shown)):
        message = "an example is no value that the schema accepts"
        yield tool.finding("example_invalid", message, at=_at((*path, "examples")))


def _patterns(part: Schema) -> Iterator[str]:
    if isinstance(part.get("pattern"), str):
        yield part["pattern"]
    if isinstance(part.get("patternProperties"), dict):
        yield from part["patternProperties"]
