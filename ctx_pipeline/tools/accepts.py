"""Whether a schema accepts a value, in a bounded number of steps and without reading anything but
the schema.

Schemas come from outside. A validator that follows references anywhere, or matches patterns by
backtracking, is one that a definition can stop for good; this one answers `None`, not known,
instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast

from ctx_pipeline.text import canonical_json
from ctx_pipeline.tools.patterns import search
from ctx_pipeline.tools.schema_walk import (
    MAX_DEPTH,
    Schema,
    properties_of,
    required_of,
    resolve,
    types_of,
)

MAX_STEPS = 20_000
"""Steps that looking at all values of one tool may take: less than a second."""

Answer = bool | None
"""Whether a value is accepted; None: not known."""


class OutOfSteps(Exception):
    """The steps of an `Effort` are used up."""


class Effort:
    """The steps that are left."""

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self._left = steps

    def spend(self, steps: int = 1) -> None:
        """Take away steps.

        Raises:
            OutOfSteps: there are not as many left.
        """
        self._left -= steps
        if self._left < 0:
            raise OutOfSteps


def accepts(root: Schema, part: Any, value: Any, effort: Effort) -> Answer:
    """Return whether `part` of the schema `root` accepts a value.

    References are followed within `root` alone. Formats count as notes.

    Raises:
        OutOfSteps: it would take more steps than there are left.
    """
    return _Look(root, effort).at(part, value, 0)


class _Look:
    """One look at a value; every method returns what one keyword says of it."""

    def __init__(self, root: Schema, effort: Effort) -> None:
        self.root = root
        self.effort = effort

    def at(self, part: Any, value: Any, depth: int) -> Answer:
        self.effort.spend()
        if isinstance(part, bool):
            return part
        if not isinstance(part, dict) or depth > MAX_DEPTH:
            return None
        schema = cast("Schema", part)
        return _every(
            rule(self, schema, value, depth + 1)
            for keys, rule in _RULES
            if any(key in schema for key in keys)
        )

    def each(self, parts: Any, value: Any, depth: int) -> Iterator[Answer]:
        return (
            self.at(part, value, depth)
            for part in cast("list[Any]", parts if isinstance(parts, list) else [])
        )

    def finds(self, pattern: Any, text: str) -> Answer:
        if not isinstance(pattern, str):
            return None
        searched = search(pattern, text)
        self.effort.spend(searched.steps)
        return searched.found

    def key(self, value: Any) -> str:
        """Return what values have in common that are the same to JSON Schema."""
        text = canonical_json(_plain_numbers(value))
        self.effort.spend(1 + len(text) // 1_000)
        return text


Rule = Callable[[_Look, Schema, Any, int], Answer]


def _every(answers: Iterable[Answer]) -> Answer:
    known = True
    for answer in answers:
        if answer is False:
            return False
        known = known and answer is not None
    return True if known else None


def _some(answers: Iterable[Answer]) -> Answer:
    known = True
    for answer in answers:
        if answer is True:
            return True
        known = known and answer is not None
    return False if known else None


def _turned(answer: Answer) -> Answer:
    return None if answer is None else not answer


def _plain_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain_numbers(part) for key, part in cast("dict[str, Any]", value).items()}
    return (
        [_plain_numbers(part) for part in cast("list[Any]", value)]
        if isinstance(value, list)
        else value
    )


def is_number(value: Any) -> bool:
    """Return whether JSON calls a value a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


_IS_TYPE: Final[dict[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": is_number,
    "integer": lambda value: is_number(value) and (isinstance(value, int) or value.is_integer()),
}


def _type(look: _Look, schema: Schema, value: Any, depth: int) -> Answer:
    look.effort.spend(len(types_of(schema)) // 100)
    return _some(_IS_TYPE[name](value) if name in _IS_TYPE else None for name in types_of(schema))


def _enum(look: _Look, schema: Schema, value: Any, depth: int) -> Answer:
    listed = schema["enum"]
    if not isinstance(listed, list):
        return None
    wanted = look.key(value)
    return any(look.key(part) == wanted for part in cast("list[Any]", listed))


def _const(look: _Look, schema: Schema, value: Any, depth: int) -> Answer:
    return look.key(schema["const"]) == look.key(value)


def _bound(keyword: str, measure: Callable[[Any], Any], holds: Callable[[Any, Any], bool]) -> Rule:
    def rule(look: _Look, schema: Schema, value: Any, depth: int) -> Answer:
        limit, measured = schema[keyword], measure(value)
        return True if measured is None or not is_number(limit) else holds(measured, limit)

    return rule


def _number_of(value: Any) -> Any:
    return value if is_number(value) else None


def _length_of(kind: type) -> Callable[[Any], int | None]:
    return lambda value: len(value) if isinstance(value, kind) else None


def _pattern(look: _Look, schema: Schema, value: Any, depth: int) -> Answer:
    return look.finds(schema["pattern"], value) if isinstance(value, str) else True


def _required(look: _Look, schema: Schema, value: Any, depth: int) -> Answer:
    names = required_of(schema)
    look.effort.spend(len(names) // 100)
    return not isinstance(value, dict) or all(name in value for name in names)


def _members(look: _Look, schema: Schema, value: Any, depth: int) -> Answer:
    """`properties`, `patternProperties` and `additionalProperties`, which depend on one another."""
    return (
        _every(_member_answers(look, schema, cast("dict[str, Any]", value), depth))
        if isinstance(value, dict)
        else True
    )


def _member_answers(
    look: _Look, schema: Schema, value: dict[str, Any], depth: int
) -> Iterator[Answer]:
    named = properties_of(schema)
    found: Any = schema.get("patternProperties")
    patterns = cast("Schema", found) if isinstance(found, dict) else {}
    for name, part in value.items():
        if name in named:
            yield look.at(named[name], part, depth)
        matches = {pattern: look.finds(pattern, name) for pattern in patterns}
        for pattern, matched in matches.items():
            if matched is not False:
                said = look.at(patterns[pattern], part, depth)
                yield said if matched or said else None
        if "additionalProperties" in schema and name not in named and True not in matches.values():
            rest = look.at(schema["additionalProperties"], part, depth)
            yield rest if rest or None not in matches.values() else None


def _names(look: _Look, schema: Schema, value: Any, depth: int) -> Answer:
    if not isinstance(value, dict):
        return True
    return _every(
        look.at(schema["propertyNames"], name, depth) for name in cast("dict[str, Any]", value)
    )


def _items(look: _Look, schema: Schema, value: Any, depth: int) -> Answer:
    """`prefixItems` and `items`, in their present form and in that of older drafts."""
    if not isinstance(value, list):
        return True
    items: Any = schema.get("items", True)
    first: Any = cast("Any", items) if isinstance(items, list) else schema.get("prefixItems")
    rest: Any = schema.get("additionalItems", True) if isinstance(items, list) else items
    leading = cast("list[Any]", first) if isinstance(first, list) else []
    return _every(
        look.at(leading[at] if at < len(leading) else rest, part, depth)
        for at, part in enumerate(cast("list[Any]", value))
    )


def _contains(look: _Look, schema: Schema, value: Any, depth: int) -> Answer:
    if not isinstance(value, list) or {"minContains", "maxContains"} & schema.keys():
        return True if not isinstance(value, list) else None
    return _some(look.at(schema["contains"], part, depth) for part in cast("list[Any]", value))


def _unique(look: _Look, schema: Schema, value: Any, depth: int) -> Answer:
    if schema["uniqueItems"] is not True or not isinstance(value, list):
        return True
    keys = [look.key(part) for part in cast("list[Any]", value)]
    return len(set(keys)) == len(keys)


def _reference(look: _Look, schema: Schema, value: Any, depth: int) -> Answer:
    target: Any = resolve(look.root, schema["$ref"]) if isinstance(schema["$ref"], str) else None
    return None if target is None else look.at(target, value, depth)


def _all_of(look: _Look, schema: Schema, value: Any, depth: int) -> Answer:
    return _every(look.each(schema["allOf"], value, depth))


def _any_of(look: _Look, schema: Schema, value: Any, depth: int) -> Answer:
    return _some(look.each(schema["anyOf"], value, depth))


def _one_of(look: _Look, schema: Schema, value: Any, depth: int) -> Answer:
    answers = list(look.each(schema["oneOf"], value, depth))
    if answers.count(True) > 1:
        return False
    return None if None in answers else answers.count(True) == 1


def _not(look: _Look, schema: Schema, value: Any, depth: int) -> Answer:
    return _turned(look.at(schema["not"], value, depth))


def _unknown(look: _Look, schema: Schema, value: Any, depth: int) -> Answer:
    return None


def _multiple(look: _Look, schema: Schema, value: Any, depth: int) -> Answer:
    step = schema["multipleOf"]
    if not is_number(value):
        return True
    whole = (
        isinstance(step, int) and not isinstance(step, bool) and step > 0 and isinstance(value, int)
    )
    return value % step == 0 if whole else None


_ONE_EACH: Final[dict[str, Rule]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _bound("minimum", _number_of, lambda value, limit: value >= limit),
    "maximum": _bound("maximum", _number_of, lambda value, limit: value <= limit),
    "exclusiveMinimum": _bound("exclusiveMinimum", _number_of, lambda value, limit: value > limit),
    "exclusiveMaximum": _bound("exclusiveMaximum", _number_of, lambda value, limit: value < limit),
    "multipleOf": _multiple,
    "minLength": _bound("minLength", _length_of(str), lambda value, limit: value >= limit),
    "maxLength": _bound("maxLength", _length_of(str), lambda value, limit: value <= limit),
    "minItems": _bound("minItems", _length_of(list), lambda value, limit: value >= limit),
    "maxItems": _bound("maxItems", _length_of(list), lambda value, limit: value <= limit),
    "minProperties": _bound("minProperties", _length_of(dict), lambda value, limit: value >= limit),
    "maxProperties": _bound("maxProperties", _length_of(dict), lambda value, limit: value <= limit),
    "pattern": _pattern,
    "required": _required,
    "propertyNames": _names,
    "contains": _contains,
    "uniqueItems": _unique,
    "$ref": _reference,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
}
_NOT_KNOWN = frozenset(
    {
        *(
            "$dynamicRef",
            "$recursiveRef",
            "if",
            "dependentSchemas",
            "dependentRequired",
            "dependencies",
        ),
        *("unevaluatedProperties", "unevaluatedItems", "disallow", "extends"),
    }
)
_RULES: Final[tuple[tuple[frozenset[str], Rule], ...]] = (
    *((frozenset({keyword}), rule) for keyword, rule in _ONE_EACH.items()),
    (frozenset({"properties", "patternProperties", "additionalProperties"}), _members),
    (frozenset({"items", "prefixItems"}), _items),
    (_NOT_KNOWN, _unknown),
)
"""What each keyword, or several together, say; the cheap first. Those that are not here say nothing
of a value."""
