"""Our own metric YAML: a list `metrics` of named, versioned definitions."""

from __future__ import annotations

from typing import Any

from ctx_pipeline.contracts import ItemKind
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.semantic.metric_text import (
    HIDDEN_KEYS,
    Definition,
    DefinitionFields,
    RawRecord,
    as_list,
    as_mapping,
    definition_text,
    iso_time,
    show,
)

ORDER = (
    "description",
    "expression",
    "table",
    "model",
    "dimensions",
    "filters",
    "unit",
    "time_column",
    "joins",
    "owner",
)
"""Keys of a definition in the order they are shown; keys of other names follow by name."""

_FIRST = frozenset(("name", "version", "valid_from", "valid_until", "supersedes"))


def define_metric(record: RawRecord, origin: Origin, *, models: frozenset[str]) -> Definition:
    """Read one entry of `metrics`.

    It depends on its table, written `schema:*/<table>` because the table's source is not known
    here, on the semantic model it names, and on the tables it joins.

    Raises:
        pydantic.ValidationError: the record lacks a name or has a bad time, version or permission.
    """
    value = record.value
    fields = DefinitionFields.model_validate(value)
    own = {key: part for key, part in value.items() if key not in HIDDEN_KEYS and key not in _FIRST}
    own["joins"] = [_join(join) for join in as_list(value.get("joins"))]
    pairs: list[tuple[str, Any]] = [("metric", fields.name), ("version", fields.version)]
    pairs += [(key, own.pop(key, None)) for key in ORDER]
    pairs += [(key, iso_time(fields, key)) for key in ("valid_from", "valid_until")]
    pairs += [("supersedes", list(fields.supersedes or ()))]
    pairs += sorted(own.items())
    return Definition(
        kind=ItemKind.METRIC,
        name=fields.name,
        title=fields.name,
        subject=f"metric:{fields.name}",
        text=definition_text(pairs),
        fields=fields,
        depends_on=tuple(dict.fromkeys(_depends(value, origin, models))),
        synonyms=synonyms_of(fields),
    )


def synonyms_of(fields: DefinitionFields) -> tuple[str, ...]:
    """Return the record's synonyms and its label, without its own name."""
    named = (*(fields.synonyms or ()), *((fields.label,) if fields.label else ()))
    return tuple(dict.fromkeys(name for name in named if name != fields.name))


def table_reference(table: str) -> str:
    """Return the reference to a table of whatever source has it."""
    return f"schema:*/{table.removeprefix('main.')}"


def _depends(value: dict[str, Any], origin: Origin, models: frozenset[str]) -> list[str]:
    found = [table_reference(show(table)) for table in as_list(value.get("table"))]
    for model in as_list(value.get("model")):
        name = show(model)
        found.append(
            origin.item_id("schema", f"model.{name}") if name in models else table_reference(name)
        )
    for join in as_list(value.get("joins")):
        target = as_mapping(join).get("to")
        if isinstance(target, str) and target:
            found.append(table_reference(target))
    return found


def _join(join: Any) -> str:
    parts = as_mapping(join)
    if not parts:
        return show(join)
    rest = [f"{key} {show(part)}" for key, part in sorted(parts.items()) if key not in ("to", "on")]
    condition = f"on {show(parts['on'])}" if "on" in parts else ""
    return " ".join(part for part in (show(parts.get("to")), condition, *rest) if part)
