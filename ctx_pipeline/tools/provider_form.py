"""The form of a tool that every provider takes: one tool in another form makes them refuse the
whole call.

A provider wants a name of few characters, and an input schema that says at its top that the
arguments are an object with properties, without alternatives. Whatever arguments a tool names, its
form takes; it may take more, since the server of the tool checks again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, cast

from ctx_pipeline.text import canonical_json, normalise, short_hash
from ctx_pipeline.tools.definition import read_content
from ctx_pipeline.tools.schema_repair import is_schema, repaired
from ctx_pipeline.tools.schema_walk import (
    DEFS,
    MAX_DEPTH,
    Schema,
    is_within_limits,
    properties_of,
    required_of,
    resolve,
    schemas,
    types_of,
)

MAX_NAME_CHARS = 64
"""Longest name of a function that OpenAI and Anthropic take."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_NO_NAME = "tool"

MAX_MERGED = 256
"""Alternatives and references that are brought together at the top of one schema."""
MAX_GROWTH = 4
"""Times the size of the schema as written that its form may have."""
MAX_ALTERNATIVES = 8
"""Sets of required names that are told in words."""

TOP_ONLY = ("anyOf", "oneOf", "allOf", "$ref", "enum", "const", "not")
"""Keywords that providers refuse at the top of a schema, and nowhere else."""


class Refused(Exception):
    """A schema cannot be brought into the form; the words say why."""


class ProviderForm(NamedTuple):
    """A tool as providers take it."""

    content: str
    """`tool_content` in that form, under its own name; as written where there is none."""
    refusal: str | None
    """Why there is no such form."""


def plain_name(name: str, key: str = "") -> str:
    """Return a name that providers take: the name itself where they take it.

    Separators become `_`. Where more than that is lost, the name ends with a hash of `key`, else of
    itself.
    """
    if _NAME.fullmatch(name):
        return name
    plain = _NOT_IN_NAMES.sub("_", name).strip("_")
    if (
        plain
        and len(plain) <= MAX_NAME_CHARS
        and not any(char.isalnum() and not char.isascii() for char in name)
    ):
        return plain
    return hashed_name(plain or _NO_NAME, key or name)


def hashed_name(name: str, key: str) -> str:
    """Return a name that ends with a hash of `key` and is short enough."""
    return f"{name[: MAX_NAME_CHARS - 9].rstrip('_-')}_{short_hash(key, 8)}"


def plain_names(names: Sequence[str]) -> list[str]:
    """Return a name that providers take for each of some different names, all different; names that
    they take stay.
    """
    taken = {name for name in names if plain_name(name) == name}
    found: list[str] = []
    for name in names:
        plain = plain_name(name)
        if plain != name:
            plain = hashed_name(plain, name) if plain in taken else plain
            taken.add(plain)
        found.append(plain)
    return found


def renamed(content: str, name: str) -> str:
    """Return a tool's content under another name."""
    return normalise(canonical_json({**read_content(content), "name": name}))


def provider_form(content: str) -> ProviderForm:
    """Return a tool's content in the form that every provider takes, or why there is none."""
    tool = read_content(content)
    written: Any = tool.get("input_schema")
    if "name" not in tool:
        return ProviderForm(content, "it is no tool definition")
    try:
        schema = provider_schema(cast("Schema", written or {}))
    except Refused as refused:
        return ProviderForm(content, str(refused))
    if schema == written:
        return ProviderForm(content, None)
    return ProviderForm(normalise(canonical_json({**tool, "input_schema": schema})), None)


def provider_schema(schema: Schema) -> Schema:
    """Return an input schema in the form that every provider takes; what the schema names, it
    takes.

    Raises:
        Refused: there is no such form.
    """
    if not is_within_limits(schema):
        raise Refused("its input schema is too large or nested too deep")
    if any(_leads_away(schema, part) for _, part in schemas(schema)):
        raise Refused("its input schema refers to what is not part of it")
    clean = repaired(schema)
    if clean != schema:
        # What is left is the same in every draft.
        clean.pop("$schema", None)
    if (
        types_of(clean) == ("object",)
        and "properties" in clean
        and not any(key in clean for key in TOP_ONLY)
    ):
        return clean
    top = _Merge(clean).top()
    if len(canonical_json(top)) > MAX_GROWTH * len(canonical_json(clean)) + 200:
        raise Refused("its input schema grows too large when its alternatives are brought together")
    if any(_leads_away(top, part) for _, part in schemas(top)):
        raise Refused(
            "its input schema refers to a part that has no place in an object with properties"
        )
    return top


def _leads_away(root: Schema, part: Schema) -> bool:
    """Whether a part refers to what the schema does not hold; `#name` is taken for an anchor."""
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        reference = part.get(keyword)
        if isinstance(reference, str):
            is_path = reference == "#" or reference.startswith("#/")
            if not reference.startswith("#") or (is_path and resolve(root, reference) is None):
                return True
    return False


@dataclass(slots=True)
class _Arguments:
    """What a schema says of an object, as far as the top of a form can say it."""

    properties: dict[str, Any] = field(default_factory=dict[str, Any])
    required: dict[str, None] = field(default_factory=dict[str, None])
    closed: bool = False
    """Whether other properties than these are refused."""
    rest: Schema = field(default_factory=dict[str, Any])
    """Further keywords."""
    choices: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    """Sets of names of which one has to be there."""


class _Merge:
    """Brings what stands at the top of a schema together as one object."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = MAX_MERGED

    def top(self) -> Schema:
        """Return the form.

        Raises:
            Refused: there is none.
        """
        found = self._arguments(self._root, 0)
        if found is None:
            raise Refused("its input schema takes no object")
        says_nothing = not found.properties and any(key in self._root for key in ("enum", "const"))
        if says_nothing:
            raise Refused("its input schema lists whole arguments instead of naming properties")
        form: Schema = {**found.rest, "type": "object", "properties": found.properties}
        if found.required:
            form["required"] = list(found.required)
        if found.closed:
            form["additionalProperties"] = False
        form |= _used_definitions(self._root, form)
        if told := _in_words(found):
            form["description"] = (
                f"{form['description'].rstrip()} {told}" if form.get("description") else told
            )
        return form

    def _arguments(self, schema: Any, depth: int) -> _Arguments | None:
        """Return what a schema says of an object; None where it takes none."""
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise Refused(
                "its input schema has too many alternatives or references "
                "at its top, or refers to itself"
            )
        if isinstance(schema, bool):
            return _Arguments() if schema else None
        part = cast("Schema", schema)
        if types_of(part) and "object" not in types_of(part):
            return None
        found = _own(part)
        if isinstance(part.get("$ref"), str):
            target = resolve(self._root, part["$ref"])
            if not is_schema(target):
                raise Refused("its input schema refers to a part that is not there")
            found = _both(found, self._arguments(target, depth + 1))
        for branch in part.get("allOf", ()):
            found = _both(found, self._arguments(branch, depth + 1))
        for keyword in ("anyOf", "oneOf"):
            if keyword in part:
                found = _both(found, self._either(part[keyword], depth + 1))
        return found

    def _either(self, branches: Iterable[Any], depth: int) -> _Arguments | None:
        taken = [
            found
            for found in (self._arguments(branch, depth) for branch in branches)
            if found is not None
        ]
        if len(taken) <= 1:
            return taken[0] if taken else None
        return _one_of(taken)


def _own(part: Schema) -> _Arguments:
    left_out = {*TOP_ONLY, *DEFS, "type", "properties", "required", "additionalProperties"}
    extra: Any = part.get("additionalProperties", True)
    rest: Schema = {key: value for key, value in part.items() if key not in left_out}
    closed = extra is False and "patternProperties" not in part
    if "additionalProperties" in part and not closed and extra is not True:
        rest["additionalProperties"] = extra
    return _Arguments(dict(properties_of(part)), dict.fromkeys(required_of(part)), closed, rest)


_NOTES = frozenset(
    {"title", "description", "$schema", "$id", "$comment", "examples", "example", "default"}
)


def _both(first: _Arguments | None, second: _Arguments | None) -> _Arguments | None:
    """Return what holds where both hold."""
    if first is None or second is None:
        return None
    properties = dict(first.properties)
    for name, part in second.properties.items():
        properties[name] = (
            part if name not in properties else _joined("allOf", (properties[name], part))
        )
    required, choices = first.required | second.required, [*first.choices, *second.choices]
    closed = first.closed or second.closed
    for side, other in ((first, second), (second, first)):
        foreign = other.properties.keys() - side.properties.keys() if side.closed else set[str]()
        if foreign & {*required, *chain.from_iterable(choices)}:
            # Taken at its word, it takes nothing; it was meant to be closed as a whole.
            closed = False
        else:
            properties = {name: part for name, part in properties.items() if name not in foreign}
    rest = _rest_of_both(first.rest, second.rest)
    return _Arguments(properties, required, closed, rest, choices)


def _rest_of_both(first: Schema, second: Schema) -> Schema:
    """Return the further keywords of both, without those in which they differ: that only widens."""
    differing = {key for key in first.keys() & second.keys() if first[key] != second[key]} - _NOTES
    merged = {**{key: value for key, value in second.items() if key not in _NOTES}, **first}
    merged |= {
        key: second[key] for key in _NOTES & second.keys() if key not in first and key != "$id"
    }
    if "patternProperties" in differing:
        differing.add("additionalProperties")
    return {key: value for key, value in merged.items() if key not in differing}


def _one_of(branches: list[_Arguments]) -> _Arguments:
    """Return what holds where at least one holds. What one branch alone names keeps the form that
    it gives it.
    """
    names = dict.fromkeys(name for branch in branches for name in branch.properties)
    properties = {
        name: _joined(
            "anyOf", [branch.properties[name] for branch in branches if name in branch.properties]
        )
        for name in names
    }
    required = dict.fromkeys(
        name for name in branches[0].required if all(name in other.required for other in branches)
    )
    choices = list(
        dict.fromkeys(
            tuple(name for name in branch.required if name not in required) for branch in branches
        )
    )
    told = choices if len(choices) > 1 and all(choices) else []
    return _Arguments(properties, required, all(branch.closed for branch in branches), {}, told)


def _joined(keyword: str, parts: Iterable[Any]) -> Any:
    """Return one schema for several; those that say the same are one."""
    found: dict[str, Any] = {}
    for part in parts:
        schema = cast("Schema", part) if isinstance(part, dict) else {}
        inner: list[Any] = schema[keyword] if schema.keys() == {keyword} else [part]
        found |= {canonical_json(one): one for one in inner}
    return next(iter(found.values())) if len(found) == 1 else {keyword: list(found.values())}


def _in_words(found: _Arguments) -> str:
    """Say which names have to be there, where the form cannot."""
    sets = [" + ".join(names) for names in found.choices]
    return f"Needs one of: {'; '.join(sets)}." if 0 < len(sets) <= MAX_ALTERNATIVES else ""


def _used_definitions(root: Schema, form: Schema) -> Schema:
    """Return the tables of definitions with what a form refers to, directly or through others."""
    tables: Schema = {}
    waiting: list[Schema] = [form]
    while waiting:
        for _, part in schemas(waiting.pop()):
            table, _, name = str(part.get("$ref", "")).removeprefix("#/").partition("/")
            name = name.partition("/")[0].replace("~1", "/").replace("~0", "~")
            if (
                table in DEFS
                and name in root.get(table, {})
                and name not in tables.setdefault(table, {})
            ):
                tables[table][name] = root[table][name]
                waiting.append({"not": root[table][name]})
    return {table: held for table, held in tables.items() if held}
