"""Where a JSON Schema holds further schemas, so that a property called `description` is not taken
for a keyword.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

Schema = dict[str, Any]
Path = tuple[str | int, ...]

BY_NAME = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords whose value maps names to schemas."""
LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
"""Keywords whose value may be a list of schemas."""
SINGLE = frozenset(
    {
        *("items", "additionalItems", "contains", "unevaluatedItems", "contentSchema"),
        *(
            "additionalProperties",
            "unevaluatedProperties",
            "propertyNames",
            "not",
            "if",
            "then",
            "else",
        ),
    }
)
"""Keywords whose value may be one schema."""
DEFS = ("$defs", "definitions")
MAX_DEPTH = 64
"""Deepest schema that is looked into; a definition with more is refused when it is read."""

MAX_PARTS, MAX_VALUES = 3_000, 50_000
"""Objects and lists, and values at all, of the largest definition that is looked into: far more
than a model can be shown."""


def is_within_limits(value: Any) -> bool:
    """Return whether a value is small enough to be looked into: `MAX_PARTS`, `MAX_VALUES`,
    `MAX_DEPTH`.
    """
    layer: list[Any] = [value]
    parts = values = 0
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for part in layer:
            if isinstance(part, dict):
                below.extend(cast("dict[str, Any]", part).values())
            elif isinstance(part, list | tuple):
                below.extend(cast("list[Any]", part))
            if values + len(below) > MAX_VALUES:
                return False
        values += len(below)
        layer = [part for part in below if isinstance(part, dict | list | tuple)]
        parts += len(layer)
        if not layer or parts > MAX_PARTS:
            return parts <= MAX_PARTS
    return False


def children(schema: Schema) -> Iterator[tuple[Path, Schema]]:
    """Yield every schema directly within a schema, with its path from there. True and False are no
    schemas here.
    """
    for keyword, value in schema.items():
        if keyword in BY_NAME and isinstance(value, dict):
            for name, part in cast("dict[str, Any]", value).items():
                if isinstance(part, dict):
                    yield (keyword, name), cast("Schema", part)
        elif keyword in LISTS and isinstance(value, list):
            for number, part in enumerate(cast("list[Any]", value)):
                if isinstance(part, dict):
                    yield (keyword, number), cast("Schema", part)
        elif keyword in SINGLE and isinstance(value, dict):
            yield (keyword,), cast("Schema", value)


def change_inner(keyword: str, value: Any, change: Callable[[Schema], Schema]) -> Any:
    """Return the value of a keyword with every schema in it changed."""
    if keyword in BY_NAME and isinstance(value, dict):
        named = cast("dict[str, Any]", value)
        return {
            name: change(cast("Schema", part)) if isinstance(part, dict) else part
            for name, part in named.items()
        }
    if keyword in LISTS and isinstance(value, list):
        listed = cast("list[Any]", value)
        return [change(cast("Schema", part)) if isinstance(part, dict) else part for part in listed]
    if keyword in SINGLE and isinstance(value, dict):
        return change(cast("Schema", value))
    return value


def schemas(root: Schema) -> Iterator[tuple[Path, Schema]]:
    """Yield a schema and every schema within it, outermost first, down to `MAX_DEPTH`."""
    waiting: list[tuple[Path, Schema, int]] = [((), root, 0)]
    while waiting:
        path, schema, depth = waiting.pop()
        yield path, schema
        if depth < MAX_DEPTH:
            inner = [((*path, *step), part, depth + 1) for step, part in children(schema)]
            waiting.extend(reversed(inner))


def properties_of(schema: Any) -> dict[str, Any]:
    """Return the properties that a schema names itself."""
    found = cast("Schema", schema).get("properties") if isinstance(schema, dict) else None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def required_of(schema: Any) -> tuple[str, ...]:
    """Return the names that a schema requires."""
    found = cast("Schema", schema).get("required") if isinstance(schema, dict) else None
    if not isinstance(found, list):
        return ()
    return tuple(name for name in cast("list[Any]", found) if isinstance(name, str))


def types_of(schema: Any) -> tuple[str, ...]:
    """Return the types that a schema names, as a tuple; empty where it names none."""
    found: Any = cast("Schema", schema).get("type") if isinstance(schema, dict) else None
    if isinstance(found, str):
        return (found,)
    if isinstance(found, list):
        return tuple(name for name in cast("list[Any]", found) if isinstance(name, str))
    return ()


def show_path(path: Path) -> str:
    """Return a path as a person reads it: `properties/owner/items`."""
    return "/".join(str(step) for step in path)


def resolve(root: Schema, reference: str) -> Any:
    """Return what a local reference (`#`, `#/$defs/x`) leads to; None where it leads nowhere or
    elsewhere.
    """
    if not reference.startswith("#"):
        return None
    here: Any = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict) and name in here:
            here = cast("dict[str, Any]", here)[name]
        elif isinstance(here, list) and name.isdigit() and int(name) < len(cast("list[Any]", here)):
            here = cast("list[Any]", here)[int(name)]
        else:
            return None
    return here
