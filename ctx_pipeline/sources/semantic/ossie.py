"""Apache Ossie (formerly Open Semantic Interchange) semantic models: datasets, relationships and
metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ctx_pipeline.contracts import ItemKind
from ctx_pipeline.sources.formats.json_lines import JsonProblem, load_json
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.semantic.metric_text import (
    Definition,
    DefinitionFields,
    RawRecord,
    as_list,
    as_mapping,
    definition_text,
    iso_time,
    show,
)
from ctx_pipeline.sources.semantic.metric_yaml import synonyms_of, table_reference

VENDOR = "CTX_PIPELINE"
"""`vendor_name` of the custom extension whose JSON may state version, valid_from, supersedes and
permissions."""

_QUALIFIER = re.compile(r"([A-Za-z_]\w*)\s*\.")


def is_ossie_model(value: Any) -> bool:
    """Say whether an entry of `semantic_model` is Ossie's: it has a list of datasets."""
    return isinstance(as_mapping(value).get("datasets"), list)


def expand(model: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the datasets (section `ossie_dataset`) and metrics (`ossie_metric`) of a model."""
    for dataset in as_list(model.get("datasets")):
        joins = [
            (
                f"{show(link.get('to'))} on {show(link.get('from_columns'))} "
                f"= {show(link.get('to_columns'))}"
            )
            for link in map(as_mapping, as_list(model.get("relationships")))
            if isinstance(dataset, dict) and link.get("from") == as_mapping(dataset).get("name")
        ]
        if joins:
            dataset["joins"] = joins
        yield "ossie_dataset", dataset
    for metric in as_list(model.get("metrics")):
        yield "ossie_metric", metric


def _fields(value: dict[str, Any]) -> DefinitionFields:
    stated: dict[str, Any] = {}
    for extension in map(as_mapping, as_list(value.get("custom_extensions"))):
        if show(extension.get("vendor_name")).upper() == VENDOR:
            try:
                stated = as_mapping(load_json(show(extension.get("data"))))
            except JsonProblem:
                # Unreadable permissions must not widen: the record is refused through its version.
                stated = {"version": None, "groups": {}}
    synonyms = as_mapping(value.get("ai_context")).get("synonyms")
    return DefinitionFields.model_validate(
        {"synonyms": synonyms, **stated, "name": value.get("name"), "label": value.get("label")}
    )


def define_ossie_metric(record: RawRecord, origin: Origin, datasets: frozenset[str]) -> Definition:
    """Read one metric; it depends on the datasets its expression names.

    Raises:
        pydantic.ValidationError: the record lacks a name, or what its extension states is wrong.
    """
    value = record.value
    fields = _fields(value)
    expression = _expression(value)
    used = [name for name in dict.fromkeys(_QUALIFIER.findall(expression)) if name in datasets]
    pairs: list[tuple[str, Any]] = [
        ("metric", fields.name),
        ("version", fields.version),
        ("description", value.get("description")),
        ("expression", expression),
        ("model", used),
        ("datatype", value.get("datatype")),
        ("valid_from", iso_time(fields, "valid_from")),
        ("valid_until", iso_time(fields, "valid_until")),
    ]
    return Definition(
        kind=ItemKind.METRIC,
        name=fields.name,
        title=fields.name,
        subject=f"metric:{fields.name}",
        text=definition_text(pairs),
        fields=fields,
        depends_on=tuple(origin.item_id("schema", f"model.{name}") for name in used),
        synonyms=synonyms_of(fields),
    )


def define_ossie_dataset(record: RawRecord, origin: Origin) -> Definition:
    """Read one dataset: a table with its keys, fields and joins.

    Raises:
        pydantic.ValidationError: the record lacks a name, or what its extension states is wrong.
    """
    value = record.value
    fields = _fields(value)
    table = show(value.get("source"))
    pairs: list[tuple[str, Any]] = [
        ("model", fields.name),
        ("version", fields.version),
        ("description", value.get("description")),
        ("table", table),
        ("primary_key", value.get("primary_key")),
        ("fields", [_field_text(as_mapping(part)) for part in as_list(value.get("fields"))]),
        ("joins", value.get("joins")),
    ]
    plain = re.fullmatch(r"[\w.$-]+", table)
    return Definition(
        kind=ItemKind.SCHEMA,
        name=f"model.{fields.name}",
        title=fields.name,
        subject=f"schema:model.{fields.name}",
        text=definition_text(pairs),
        fields=fields,
        depends_on=(table_reference(table.rsplit(".", 1)[-1]),) if plain else (),
        synonyms=synonyms_of(fields),
    )


def _expression(value: dict[str, Any]) -> str:
    """Return the ANSI expression, or the first one there is."""
    dialects = [
        as_mapping(part) for part in as_list(as_mapping(value.get("expression")).get("dialects"))
    ]
    ansi = [part for part in dialects if show(part.get("dialect")).upper() == "ANSI_SQL"]
    chosen = ansi or dialects
    return show(chosen[0].get("expression")) if chosen else ""


def _field_text(field: dict[str, Any]) -> str:
    name, expression = show(field.get("name")), _expression(field)
    details = [expression if expression != name else "", show(field.get("datatype"))]
    details.append(
        "time" if show(as_mapping(field.get("dimension")).get("is_time")) == "true" else ""
    )
    details.append(show(field.get("description")))
    shown = "; ".join(detail for detail in details if detail)
    return f"{name} ({shown})" if shown else name
