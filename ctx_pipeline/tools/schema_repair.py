"""A schema without what makes it invalid: providers that check it refuse every tool of the call for
one that is.

A keyword whose value has another form than JSON Schema wants says nothing that a validator could
hold anybody to, so it can go. Types that other languages call otherwise are called by the name that
JSON Schema has for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from ctx_pipeline.tools.accepts import is_number
from ctx_pipeline.tools.schema_walk import (
    DEFS,
    MAX_DEPTH,
    Schema,
    change_inner,
    required_of,
    types_of,
)

_OTHER_TYPES: Final[Mapping[str, str | None]] = {
    **dict.fromkeys(("dict", "map", "mapping", "hash", "record", "struct"), "object"),
    **dict.fromkeys(("list", "tuple", "set", "sequence"), "array"),
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    **dict.fromkeys(("int", "long", "bigint"), "integer"),
    **dict.fromkeys(("str", "text", "char"), "string"),
    "bool": "boolean",
    "none": "null",
    "any": None,
}
"""Names that people write for types of JSON Schema; `any` is every type."""
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})


def is_schema(value: Any) -> bool:
    """Return whether a value may stand where a schema is wanted."""
    return isinstance(value, dict | bool)


def _is_named(value: Any) -> bool:
    return isinstance(value, dict)


def _is_list(value: Any) -> bool:
    listed = cast("list[Any]", value) if isinstance(value, list) else []
    return len(listed) > 0 and all(is_schema(part) for part in listed)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


_FORMS: Final[Mapping[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(
        ("properties", "patternProperties", "dependentSchemas", "dependencies", *DEFS), _is_named
    ),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _is_list),
    **dict.fromkeys(
        (
            *(
                "not",
                "if",
                "then",
                "else",
                "contains",
                "propertyNames",
                "contentSchema",
                "additionalItems",
            ),
            *("additionalProperties", "unevaluatedProperties", "unevaluatedItems"),
        ),
        is_schema,
    ),
    "items": lambda value: is_schema(value) or _is_list(value),
    "enum": lambda value: isinstance(value, list) and len(cast("list[Any]", value)) > 0,
    "required": lambda value: (
        isinstance(value, list) and all(map(_is_text, cast("list[Any]", value)))
    ),
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), is_number),
    **dict.fromkeys(
        ("exclusiveMinimum", "exclusiveMaximum"), lambda value: is_number(value) or _is_flag(value)
    ),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        _is_count,
    ),
    **dict.fromkeys(
        ("pattern", "format", "title", "description", "$ref", "$schema", "$id", "$comment"),
        _is_text,
    ),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _is_flag),
    "examples": lambda value: isinstance(value, list),
}
"""What the value of a keyword has to be."""


def repaired(schema: Schema, depth: int = 0) -> Schema:
    """Return a schema without invalid keywords and types of other languages; what it takes, the
    result takes.
    """
    if depth > MAX_DEPTH:
        return schema
    kept: Schema = {}
    for keyword, value in schema.items():
        form = _FORMS.get(keyword)
        if keyword == "type":
            kept |= _type_of(value)
        elif form is None or form(value):
            kept[keyword] = change_inner(keyword, value, lambda part: repaired(part, depth + 1))
    if "properties" in kept:
        kept["properties"] = {
            name: part if is_schema(part) else {} for name, part in kept["properties"].items()
        }
    if "required" in kept:
        kept["required"] = list(dict.fromkeys(required_of(kept)))
    return _in_present_draft(kept)


def _in_present_draft(schema: Schema) -> Schema:
    """Say in draft 2020-12 what older drafts said otherwise; lists say what they hold."""
    kept = dict(schema)
    if isinstance(kept.get("items"), list):
        kept["prefixItems"] = kept.pop("items")
        if "additionalItems" in kept:
            kept["items"] = kept.pop("additionalItems")
    if "array" in types_of(kept) and not {"items", "prefixItems"} & kept.keys():
        kept["items"] = {}
    for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(kept.get(bound), bool):
            strict = kept.pop(bound)
            kept |= {bound: kept.pop(limit)} if strict and limit in kept else {}
    return kept


def _type_of(value: Any) -> Schema:
    """Return `type` with names of JSON Schema alone; nothing where every type is meant or none is
    known.
    """
    listed: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    names = [_type_name(name) if isinstance(name, str) else None for name in listed]
    known = list(dict.fromkeys(name for name in names if name is not None))
    if len(known) == 0 or None in names:
        return {}
    return {"type": known if isinstance(value, list) else known[0]}


def _type_name(name: str) -> str | None:
    plain = name.strip().lower()
    return plain if plain in _TYPES else _OTHER_TYPES.get(plain)
