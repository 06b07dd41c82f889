"""dbt semantic definitions: both generations of `semantic_manifest.json` and the YAML they are made
from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ctx_pipeline.contracts import ItemKind
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

METRIC_TYPES = frozenset(("simple", "ratio", "derived", "cumulative", "conversion"))

_NOISE = frozenset(
    (
        "metadata",
        "config",
        "meta",
        "name",
        "label",
        "description",
        "input_measures",
        "create_metric",
    )
)


@dataclass(frozen=True, slots=True)
class _Measure:
    model: str
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DbtIndex:
    """The names that metrics of one source may refer to."""

    metrics: frozenset[str]
    models: dict[str, dict[str, Any]]
    measures: dict[str, _Measure]


def is_dbt_metric(value: dict[str, Any]) -> bool:
    """Say whether an entry of `metrics` is dbt's: it has a metric type or type parameters, and no
    `expression`.
    """
    return "type_params" in value or (
        _lower(value.get("type")) in METRIC_TYPES and "expression" not in value
    )


def index_records(records: Iterable[RawRecord]) -> DbtIndex:
    """Collect what can be referred to; of two measures with one name the first counts."""
    metrics: set[str] = set()
    models: dict[str, dict[str, Any]] = {}
    measures: dict[str, _Measure] = {}
    for record in records:
        name = show(record.value.get("name"))
        if record.section == "metric":
            metrics.add(name)
        elif record.section == "semantic_model":
            models.setdefault(name, record.value)
            for measure in map(as_mapping, as_list(record.value.get("measures"))):
                measures.setdefault(show(measure.get("name")), _Measure(name, measure))
    return DbtIndex(frozenset(metrics), models, measures)


def implied_metrics(record: RawRecord) -> Iterator[RawRecord]:
    """Yield the simple metrics that a model's measures with `create_metric: true` stand for."""
    for measure in map(as_mapping, as_list(record.value.get("measures"))):
        if measure.get("create_metric") is True:
            value = {
                "name": measure.get("name"),
                "description": measure.get("description"),
                "label": measure.get("label"),
                "type": "simple",
                "type_params": {"measure": {"name": measure.get("name")}},
            }
            line = getattr(measure, "line", record.line)
            yield RawRecord(record.found, "metric", value, record.source_version, line, line)


def _fields(value: dict[str, Any]) -> tuple[DefinitionFields, dict[str, Any]]:
    """Return the record's governing fields, which dbt keeps in `config.meta` (or `meta`), and all
    of that mapping.
    """
    meta = {
        **as_mapping(value.get("meta")),
        **as_mapping(as_mapping(value.get("config")).get("meta")),
    }
    return DefinitionFields.model_validate(
        {**meta, "name": value.get("name"), "label": value.get("label")}
    ), meta


def define_dbt_metric(record: RawRecord, origin: Origin, index: DbtIndex) -> Definition:
    """Read one dbt metric; measures it names are written out, so that a changed measure changes the
    definition.

    Raises:
        pydantic.ValidationError: the record lacks a name, or its `config.meta` has a bad time,
            version or permission.
    """
    value = record.value
    fields, meta = _fields(value)
    params = as_mapping(value.get("type_params"))
    pairs: list[tuple[str, Any]] = [
        ("metric", fields.name),
        ("version", fields.version),
        ("description", value.get("description")),
        ("type", _lower(value.get("type"))),
        ("expression", _expression(value, params, index)),
        ("inputs", [_input_text(entry) for entry in _metric_inputs(params)]),
        ("filter", filter_text(value.get("filter"))),
        ("model", _models_of(params, index)),
        ("time_column", _time_column(params, index)),
        ("unit", meta.get("unit")),
        ("owner", meta.get("owner")),
        *_leaves("", {key: part for key, part in params.items() if key not in _SHOWN}),
        ("valid_from", iso_time(fields, "valid_from")),
        ("valid_until", iso_time(fields, "valid_until")),
        ("supersedes", list(fields.supersedes or ())),
    ]
    depends = (
        *(origin.item_id("schema", f"model.{name}") for name in _models_of(params, index)),
        *(
            origin.item_id("metric", name)
            for name in _metrics_of(params, index)
            if name != fields.name
        ),
    )
    return Definition(
        kind=ItemKind.METRIC,
        name=fields.name,
        title=fields.name,
        subject=f"metric:{fields.name}",
        text=definition_text(pairs),
        fields=fields,
        depends_on=tuple(dict.fromkeys(depends)),
        synonyms=synonyms_of(fields),
    )


def define_model(record: RawRecord, origin: Origin) -> Definition:
    """Read one semantic model: a table with its entities, dimensions and measures."""
    value = record.value
    fields, meta = _fields(value)
    relation = as_mapping(value.get("node_relation"))
    alias = show(relation.get("alias")) or show(relation.get("relation_name")).rsplit(".", 1)[
        -1
    ].strip('"`')
    place = ".".join(part for part in (show(relation.get("schema_name")), alias) if part)
    pairs: list[tuple[str, Any]] = [
        ("model", fields.name),
        ("version", fields.version),
        ("description", value.get("description")),
        ("table", place),
        ("primary_entity", value.get("primary_entity")),
        ("time_column", as_mapping(value.get("defaults")).get("agg_time_dimension")),
        ("entities", [_part_text(part) for part in as_list(value.get("entities"))]),
        ("dimensions", [_part_text(part) for part in as_list(value.get("dimensions"))]),
        ("measures", [_measure_text(as_mapping(part)) for part in as_list(value.get("measures"))]),
        ("owner", meta.get("owner")),
    ]
    return Definition(
        kind=ItemKind.SCHEMA,
        name=f"model.{fields.name}",
        title=fields.name,
        subject=f"schema:model.{fields.name}",
        text=definition_text(pairs),
        fields=fields,
        depends_on=(table_reference(alias),) if alias else (),
        synonyms=synonyms_of(fields),
    )


def define_saved_query(record: RawRecord, origin: Origin, index: DbtIndex) -> Definition:
    """Read one saved query: a reference to an artifact that names its metrics."""
    value = record.value
    fields, _meta = _fields(value)
    query = as_mapping(value.get("query_params"))
    metrics = [_input_name(entry) for entry in as_list(query.get("metrics"))]
    pairs: list[tuple[str, Any]] = [
        ("saved_query", fields.name),
        ("description", value.get("description")),
        ("metrics", metrics),
        ("group_by", [show(part) for part in as_list(query.get("group_by"))]),
        ("where", filter_text(query.get("where"))),
        ("order_by", [show(part) for part in as_list(query.get("order_by"))]),
        ("limit", query.get("limit")),
    ]
    return Definition(
        kind=ItemKind.ARTIFACT_REF,
        name=f"saved_query.{fields.name}",
        title=fields.name,
        subject=None,
        text=definition_text(pairs),
        fields=fields,
        depends_on=tuple(
            origin.item_id("metric", name) for name in metrics if name in index.metrics
        ),
        synonyms=synonyms_of(fields),
    )


_SHOWN = frozenset(
    (
        "measure",
        "metrics",
        "numerator",
        "denominator",
        "expr",
        "metric_aggregation_params",
        "input_measures",
    )
)


def _lower(value: Any) -> str:
    return show(value).lower()


def _expression(value: dict[str, Any], params: dict[str, Any], index: DbtIndex) -> str:
    aggregation = as_mapping(params.get("metric_aggregation_params"))
    if aggregation:
        return _aggregate(
            aggregation.get("agg"), params.get("expr") or value.get("name"), aggregation
        )
    if params.get("numerator"):
        return f"{_input_name(params['numerator'])} / {_input_name(params.get('denominator'))}"
    if params.get("measure"):
        name = _input_name(params["measure"])
        measure = index.measures.get(name)
        return _measure_sum(measure.value) if measure else name
    return show(params.get("expr"))


def _measure_sum(measure: dict[str, Any]) -> str:
    return _aggregate(measure.get("agg"), measure.get("expr") or measure.get("name"), measure)


def _aggregate(agg: Any, expression: Any, owner: dict[str, Any]) -> str:
    details = [
        f"{key}={text}"
        for key in ("agg_params", "non_additive_dimension")
        for key, text in _leaves(key, owner.get(key))
    ]
    call = f"{_lower(agg)}({show(expression)})"
    return f"{call} [{', '.join(details)}]" if details else call


def _measure_text(measure: dict[str, Any]) -> str:
    return f"{show(measure.get('name'))} = {_measure_sum(measure)}"


def _part_text(part: Any) -> str:
    parts = as_mapping(part)
    details = [show(parts.get("type")), show(parts.get("expr"))]
    details.append(show(as_mapping(parts.get("type_params")).get("time_granularity")))
    details.append("partition" if parts.get("is_partition") is True else "")
    details.append(show(parts.get("description")))
    shown = "; ".join(detail for detail in details if detail)
    return f"{show(parts.get('name'))} ({shown})" if shown else show(parts.get("name"))


def _input_name(entry: Any) -> str:
    return show(as_mapping(entry).get("name")) if isinstance(entry, dict) else show(entry)


def _input_text(entry: Any) -> str:
    parts = as_mapping(entry)
    details = [("filter", filter_text(parts.get("filter")))]
    details += _leaves(
        "", {key: part for key, part in parts.items() if key not in ("name", "filter")}
    )
    shown = "; ".join(f"{key} {show(text)}" for key, text in details if text)
    return f"{_input_name(entry)} ({shown})" if shown else _input_name(entry)


def _metric_inputs(params: dict[str, Any]) -> list[Any]:
    named = [params.get("measure"), params.get("numerator"), params.get("denominator")]
    return [*(entry for entry in named if entry), *as_list(params.get("metrics"))]


def _all_inputs(params: dict[str, Any]) -> Iterator[str]:
    """Yield the names of metrics and measures that the parameters refer to."""
    for entry in _metric_inputs(params):
        yield _input_name(entry)
    yield _input_name(as_mapping(params.get("cumulative_type_params")).get("metric"))
    conversion = as_mapping(params.get("conversion_type_params"))
    for key in ("base_measure", "conversion_measure", "base_metric", "conversion_metric"):
        yield _input_name(conversion.get(key))


def unknown_inputs(value: dict[str, Any], index: DbtIndex, implied: frozenset[str]) -> list[str]:
    """Return the metrics and measures that a dbt metric is made of and that nothing defines."""
    if not is_dbt_metric(value):
        return []
    names = _all_inputs(as_mapping(value.get("type_params")))
    known = index.metrics | index.measures.keys() | implied
    return list(dict.fromkeys(name for name in names if name and name not in known))


def _models_of(params: dict[str, Any], index: DbtIndex) -> list[str]:
    named = [show(as_mapping(params.get("metric_aggregation_params")).get("semantic_model"))]
    as_measure = params.get("measure") or params.get("conversion_type_params")
    named += [
        index.measures[name].model
        for name in _all_inputs(params)
        if name in index.measures and (as_measure or name not in index.metrics)
    ]
    return list(dict.fromkeys(name for name in named if name in index.models))


def _metrics_of(params: dict[str, Any], index: DbtIndex) -> list[str]:
    measure = _input_name(params.get("measure"))
    return [name for name in _all_inputs(params) if name in index.metrics and name != measure]


def _time_column(params: dict[str, Any], index: DbtIndex) -> str:
    aggregation = as_mapping(params.get("metric_aggregation_params"))
    measure = index.measures.get(_input_name(params.get("measure")))
    owner = aggregation or (measure.value if measure else {})
    model = show(aggregation.get("semantic_model")) or (measure.model if measure else "")
    defaults = as_mapping(index.models.get(model, {}).get("defaults"))
    return show(owner.get("agg_time_dimension") or defaults.get("agg_time_dimension"))


def filter_text(value: Any) -> str:
    """Return a filter as one condition, whatever its form."""
    if isinstance(value, dict):
        return filter_text(as_mapping(value).get("where_filters"))
    parts = [
        show(as_mapping(part).get("where_sql_template")) if isinstance(part, dict) else show(part)
        for part in as_list(value)
    ]
    return " AND ".join(part for part in parts if part)


def _leaves(prefix: str, value: Any) -> list[tuple[str, str]]:
    """Return the values below `value` as dotted paths, sorted; null, false and empty values say
    nothing.
    """
    if isinstance(value, dict):
        found: list[tuple[str, str]] = []
        for key, part in sorted(as_mapping(value).items()):
            if key in _NOISE and prefix == "" and key != "name":
                continue
            found += _leaves(f"{prefix}.{key}" if prefix else key, part)
        return found
    if value is None or value is False or value == []:
        return []
    return [(prefix, show(value))]
