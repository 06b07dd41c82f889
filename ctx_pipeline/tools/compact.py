"""A shorter form of a tool that takes exactly the same arguments: less prose, no examples,
definitions put in place.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

from ctx_pipeline.text import canonical_json, normalise
from ctx_pipeline.tools.definition import read_content
from ctx_pipeline.tools.schema_walk import (
    DEFS,
    MAX_DEPTH,
    Schema,
    change_inner,
    is_within_limits,
    resolve,
    schemas,
)

DESCRIPTION_CHARS = 240
"""Most characters of a compact tool's description; of text that is mostly Chinese, a third."""
PARAMETER_CHARS = 80
"""The same of the description of one of its parameters."""
MAX_TRIES = 100
"""Definitions of a schema that are tried to be put in place ..."""
MAX_SHORTENED_CHARS = 100_000
"""... if it is not longer than this, as JSON."""
MAX_REPEATED_CHARS = 200
"""A definition that is longer, as JSON, and used more than once stays where it is: its name is
shorter."""
MIN_SAVING = 0.1
"""A compact form that saves less than this share of the characters is not offered."""

NOTES = frozenset(
    {"title", "description", "examples", "example", "$comment", "markdownDescription", "deprecated"}
)
"""Keywords that no validator looks at."""
_OWN_ADDRESSES = frozenset(
    {"$id", "id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$recursiveAnchor"}
)
"""A schema with one of these may be referred to in ways that moving a part of it would break."""
_SENTENCE_END = re.compile(r"(?<!e\.g)(?<!i\.e)(?<!etc)(?<!vs)[.!?](?=\s|$)|[。！？；]|;(?=\s)")
_CLAUSE_END = re.compile(r"[,:(](?=\s|$)|\s\(|[，：（、]| - ")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def compact_tool(content: str) -> str | None:
    """Return a tool's content (`tool_content`) in its compact form; None where that would save too
    little.

    It has name, description and input schema. The schema accepts the arguments that the full one
    accepts, and no others. Descriptions end where a sentence ends; those inside of parameters are
    left out.
    """
    tool = read_content(content)
    schema: Any = tool.get("input_schema") or {}
    if "name" not in tool or not isinstance(schema, dict):
        return None
    schema = cast("Schema", schema)
    smaller = compact_schema(schema)
    definition = {
        "name": tool["name"],
        "description": shorten(str(tool.get("description") or ""), DESCRIPTION_CHARS),
        "input_schema": schema if smaller is None else smaller,
    }
    short = normalise(canonical_json(definition))
    return short if len(short) <= len(content) * (1 - MIN_SAVING) else None


def compact_schema(schema: Schema) -> Schema | None:
    """Return a schema without its notes that accepts the same values; None where
    it cannot be told.
    """
    if not is_within_limits(schema) or any(part.get("$id") for _, part in schemas(schema)):
        return None
    short = _without_notes(schema, 0)
    if not any(_OWN_ADDRESSES & part.keys() for _, part in schemas(schema)):
        short = _with_definitions_in_place(short)
    return short if _references_hold(schema, short) else None


def bare_schema(schema: Schema) -> Schema:
    """Return a schema without any note: what validators look at."""
    return _without_notes(schema, 2)


def shorten(text: str, limit: int) -> str:
    """Return the sentences of a text that fit into `limit` characters, on one line; at least some
    of the first.
    """
    flat = " ".join(text.split())
    if len(_CJK.findall(flat[:limit])) * 3 > min(len(flat), limit):
        limit //= 3
    if len(flat) <= limit:
        return flat
    sentences = [
        end.end() for end in _SENTENCE_END.finditer(flat, 0, limit) if end.end() >= limit // 4
    ]
    if sentences:
        return flat[: sentences[-1]].rstrip("; ")
    clauses = [
        end.start() for end in _CLAUSE_END.finditer(flat, 0, limit) if end.start() >= limit // 4
    ]
    cut = clauses[-1] if clauses else flat.rfind(" ", limit // 2, limit)
    return flat[: cut if cut > 0 else limit].rstrip() + "…"


def _without_notes(schema: Schema, depth: int) -> Schema:
    """`depth` counts schemas: 0 is the arguments as a whole, 1 a parameter, and below nothing is
    described.
    """
    if depth > MAX_DEPTH:
        return schema
    kept: Schema = {}
    for keyword, value in schema.items():
        if keyword == "description" and depth == 1 and isinstance(value, str):
            words = shorten(value, PARAMETER_CHARS)
            kept |= {keyword: words} if words else {}
        elif keyword not in NOTES:
            kept[keyword] = change_inner(
                keyword, value, lambda part: _without_notes(part, depth + 1)
            )
    return kept


def _with_definitions_in_place(schema: Schema) -> Schema:
    """Put each definition where it is referred to, one at a time, as long as that makes the schema
    shorter.
    """
    best, size = schema, len(canonical_json(schema))
    if size > MAX_SHORTENED_CHARS:
        return schema
    waiting = _definitions(best)
    for _ in range(MAX_TRIES):
        if not waiting:
            break
        tried = _put_in_place(best, *waiting.pop(0))
        if (
            tried is not None
            and is_within_limits(tried)
            and (length := len(canonical_json(tried))) < size
        ):
            best, size = tried, length
            waiting = _definitions(best)
    return best


def _definitions(schema: Schema) -> list[tuple[str, str]]:
    return [(table, name) for table in DEFS for name in _table(schema, table)]


def _table(schema: Schema, name: str) -> Mapping[str, Any]:
    found: Any = schema.get(name)
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


def _put_in_place(schema: Schema, table: str, name: str) -> Schema | None:
    """Return the schema with one definition put where it is referred to; None where that would
    change its meaning.
    """
    definition = schema[table][name]
    remaining = {key: value for key, value in schema[table].items() if key != name}
    rest = (
        {**schema, table: remaining}
        if remaining
        else {key: part for key, part in schema.items() if key != table}
    )
    pointer = f"#/{table}/{name.replace('~', '~0').replace('/', '~1')}"
    uses = Counter(part["$ref"] for _, part in schemas(schema) if isinstance(part.get("$ref"), str))
    if not any(
        str(part.get("$ref", "")).startswith(("#/properties", pointer)) for _, part in schemas(rest)
    ):
        return rest
    deeper = any(ref.startswith(f"{pointer}/") for ref in uses)
    if not isinstance(definition, dict) or deeper or "#" in uses:
        return None
    inside = [part for _, part in schemas(cast("Schema", definition))]
    beside = any(part.get("$ref") == pointer and len(part) > 1 for _, part in schemas(schema))
    if beside or any(part.get("$ref") == pointer for part in inside):
        return None
    # A large definition in several places would only make it longer, each step by as much again.
    if uses[pointer] > 1 and len(canonical_json(definition)) > MAX_REPEATED_CHARS:
        return None

    def replaced(part: Schema) -> Schema:
        if part.get("$ref") == pointer:
            return copy.deepcopy(cast("Schema", definition))
        return {keyword: change_inner(keyword, value, replaced) for keyword, value in part.items()}

    return replaced(rest)


def _references_hold(before: Schema, after: Schema) -> bool:
    """Whether every local reference that led somewhere still does."""
    led = {part["$ref"] for _, part in schemas(before) if isinstance(part.get("$ref"), str)}
    lost = {ref for ref in led if ref.startswith("#") and resolve(before, ref) is None}
    now = {part["$ref"] for _, part in schemas(after) if isinstance(part.get("$ref"), str)}
    return all(resolve(after, ref) is not None for ref in now - lost if ref.startswith("#"))
