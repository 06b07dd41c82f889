"""What the readers of metric formats share: records with their place, and `key: value` text of a
definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ctx_pipeline.contracts import ItemKind
from ctx_pipeline.sources.files import FoundFile
from ctx_pipeline.sources.record_item import PERMISSION_KEYS, Label, Labels, RecordFields
from ctx_pipeline.text import canonical_json, normalise

HIDDEN_KEYS = frozenset((*PERMISSION_KEYS, "authority", "trust", "subject", "synonyms"))
"""Keys that govern a record and are no part of its definition."""


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One definition as written, and where."""

    found: FoundFile
    section: str
    """`metric`, `semantic_model` or `saved_query`."""
    value: dict[str, Any]
    source_version: str
    line: int | None = None
    line_end: int | None = None

    @property
    def key_lines(self) -> Mapping[str, int]:
        """Line of each key, where the format has lines."""
        return getattr(self.value, "key_lines", {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A definition that is ready to become an item."""

    kind: ItemKind
    name: str
    """Stable name in the item id."""
    title: str
    subject: str | None
    text: str
    fields: RecordFields
    depends_on: tuple[str, ...] = ()
    synonyms: tuple[str, ...] = ()


class DefinitionFields(RecordFields):
    """What every definition may say beside its own terms."""

    name: Label
    synonyms: Labels | None = None
    label: Label | None = None


def as_mapping(value: Any) -> dict[str, Any]:
    """Return `value` if it is a mapping, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return `value` if it is a list, nothing for None, and else a list of it alone."""
    if value is None:
        return []
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def show(value: Any) -> str:
    """Return a value as one readable text; texts of several lines are indented below their key."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        parts = cast("list[Any]", value)
        if any(isinstance(part, dict | list) for part in parts):
            return canonical_json(parts)
        return ", ".join(show(part) for part in parts)
    if isinstance(value, dict):
        return canonical_json(value)
    lines = [line.rstrip() for line in normalise(str(value)).strip().split("\n")]
    return "\n  ".join(lines)


def definition_text(pairs: Iterable[tuple[str, Any]]) -> str:
    """Return `key: value` lines in the given order; empty values are left out."""
    shown = ((key, show(value)) for key, value in pairs)
    return normalise("\n".join(f"{key}: {text}" for key, text in shown if text))


def iso_time(fields: RecordFields, key: str) -> str | None:
    """Return a time of the record in UTC, to the second where it has no fraction."""
    time = getattr(fields, key)
    return None if time is None else time.isoformat().replace("+00:00", "Z")
