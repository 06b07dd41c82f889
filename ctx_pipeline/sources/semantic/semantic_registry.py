"""Semantic registries: our own metric YAML, dbt semantic manifests and Ossie semantic models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from ctx_pipeline.contracts import ContextItem, FileCode, FileError
from ctx_pipeline.sources.files import FoundFile, read_text, suffix_of
from ctx_pipeline.sources.formats.json_lines import JsonProblem, load_json
from ctx_pipeline.sources.formats.yaml_lines import YamlProblem, load_yaml
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.reading import ReadingBuilder, SourceReading
from ctx_pipeline.sources.record_item import Draft, make_item, record_error
from ctx_pipeline.sources.semantic.dbt_manifest import (
    DbtIndex,
    define_dbt_metric,
    define_model,
    define_saved_query,
    implied_metrics,
    index_records,
    is_dbt_metric,
    unknown_inputs,
)
from ctx_pipeline.sources.semantic.metric_text import (
    Definition,
    RawRecord,
    as_list,
    as_mapping,
    show,
)
from ctx_pipeline.sources.semantic.metric_yaml import define_metric
from ctx_pipeline.sources.semantic.ossie import (
    define_ossie_dataset,
    define_ossie_metric,
    expand,
    is_ossie_model,
)
from ctx_pipeline.text import repair, short_hash

REGISTRY_SUFFIXES = (".yaml", ".yml", ".json")

FEW_CLASHES = 3
"""Definitions that two files give otherwise, up to which each is reported by itself."""

SECTIONS = {
    "metric": "metric",
    "metrics": "metric",
    "semantic_model": "semantic_model",
    "semantic_models": "semantic_model",
    "saved_query": "saved_query",
    "saved_queries": "saved_query",
}
"""Keys of a document and what they hold: one record or a list of them."""


def read_semantic_registry(files: tuple[FoundFile, ...], origin: Origin) -> SourceReading:
    """Turn metrics into `metric:<source>/<name>` items, one per version.

    Semantic models become `schema:<source>/model.<name>`, saved queries
    `artifact_ref:<source>/saved_query.<name>`. The same version of one name may be written twice if
    both say the same; otherwise the second is reported.
    """
    batch = ReadingBuilder()
    records: list[RawRecord] = []
    for found in files:
        if suffix_of(found) not in REGISTRY_SUFFIXES:
            batch.skip(found, f"suffix {suffix_of(found)!r} is not YAML or JSON")
            continue
        batch.open(found)
        records += _read_file(found, origin, batch)
    index = index_records(records)
    declared = [record for record in records if record.section == "metric"]
    named = {show(record.value.get("name")) for record in declared}
    models = [record for record in records if record.section == "semantic_model"]
    implied = [
        new
        for model in models
        for new in implied_metrics(model)
        if show(new.value["name"]) not in named
    ]
    datasets = frozenset(
        show(record.value.get("name")) for record in records if record.section == "ossie_dataset"
    )
    made = frozenset(show(record.value.get("name")) for record in implied)
    kept: dict[tuple[str | None, str, str | None], ContextItem] = {}
    clashes: dict[tuple[str, str | None], list[tuple[RawRecord, FileError]]] = defaultdict(list)
    for record in (*records, *implied):
        outcome = _item(record, origin, index, datasets)
        if isinstance(outcome, FileError):
            batch.fail(record.found, outcome)
        else:
            _note_unknown(record, unknown_inputs(record.value, index, made), batch)
            _keep(record, outcome, kept, clashes, batch)
    for (_, other), clashing in clashes.items():
        _report(clashing, other, batch)
    return batch.build()


def _note_unknown(record: RawRecord, names: list[str], batch: ReadingBuilder) -> None:
    for name in names if record.section == "metric" else ():
        message = (
            f"metric {show(record.value.get('name'))!r} is made of "
            f"{name!r}, which this source does not "
            "define: correct the name or add the definition"
        )
        error = FileError(
            path=record.found.shown, line=record.line, code=FileCode.UNKNOWN_NAME, message=message
        )
        batch.fail(record.found, error)


def _report(
    clashing: list[tuple[RawRecord, FileError]], other: str | None, batch: ReadingBuilder
) -> None:
    """Report definitions of a file that another one gives otherwise; many of them are two products
    in one source.
    """
    record, first = clashing[0]
    if len(clashing) <= FEW_CLASHES or other == first.path:
        for one, error in clashing:
            batch.fail(one.found, error)
        return
    message = (
        f"{len(clashing)} definitions are given otherwise in {other}, this "
        "is the first: if the files belong to "
        "two products, make each a source of its own; else raise versions or rename"
    )
    batch.fail(record.found, first.model_copy(update={"message": message, "items": len(clashing)}))


def _read_file(found: FoundFile, origin: Origin, batch: ReadingBuilder) -> list[RawRecord]:
    """Return the records of a file; what is wrong with it goes to the batch."""
    text = read_text(found, origin.limit_bytes)
    if isinstance(text, FileError):
        batch.fail(found, text)
        return []
    try:
        documents = [load_json(text)] if suffix_of(found) == ".json" else load_yaml(repair(text))
    except JsonProblem as problem:
        code = FileCode.BAD_JSON
        batch.fail(
            found,
            FileError(path=found.shown, line=problem.line, code=code, message=problem.message),
        )
        return []
    except YamlProblem as problem:
        code = FileCode.BAD_YAML
        batch.fail(
            found,
            FileError(path=found.shown, line=problem.line, code=code, message=problem.message),
        )
        return []
    documents = [document for document in documents if document is not None]
    version = short_hash(repair(text))
    records: list[RawRecord] = []
    for document in documents:
        for section, value in _sections(document):
            if isinstance(value, dict):
                record = as_mapping(value)
                line, line_end = getattr(record, "line", None), getattr(record, "line_end", None)
                records.append(RawRecord(found, section, record, version, line, line_end))
            else:
                message = f"a {section} is not a mapping: write key: value pairs"
                line = getattr(document, "line", None)
                code = FileCode.BAD_RECORD
                batch.fail(
                    found, FileError(path=found.shown, line=line, code=code, message=message)
                )
    if documents and not records:
        batch.skip(found, "no metric, semantic model or saved query in it")
    return records


def _sections(document: Any) -> Iterator[tuple[str, Any]]:
    for key, value in as_mapping(document).items():
        section = SECTIONS.get(key)
        if section:
            for record in as_list(value):
                if section == "semantic_model" and is_ossie_model(record):
                    yield from expand(as_mapping(record))
                else:
                    yield section, record


def _item(
    record: RawRecord, origin: Origin, index: DbtIndex, datasets: frozenset[str]
) -> ContextItem | FileError:
    try:
        definition = _define(record, origin, index, datasets)
    except ValidationError as problem:
        return record_error(problem, record.found, line=record.line, key_lines=record.key_lines)
    except RecursionError:
        message = "is nested too deeply"
        return FileError(
            path=record.found.shown, line=record.line, code=FileCode.BAD_RECORD, message=message
        )
    draft = Draft(
        found=record.found,
        kind=definition.kind,
        name=definition.name,
        title=definition.title,
        content=definition.text,
        fields=definition.fields,
        subject=definition.subject,
        key_lines=record.key_lines,
        source_version=record.source_version,
        line_start=record.line,
        line_end=record.line_end,
        depends_on=definition.depends_on,
        synonyms=definition.synonyms,
    )
    return make_item(draft, origin)


def _define(
    record: RawRecord, origin: Origin, index: DbtIndex, datasets: frozenset[str]
) -> Definition:
    if record.section == "ossie_dataset":
        return define_ossie_dataset(record, origin)
    if record.section == "ossie_metric":
        return define_ossie_metric(record, origin, datasets)
    if record.section == "semantic_model":
        return define_model(record, origin)
    if record.section == "saved_query":
        return define_saved_query(record, origin, index)
    if is_dbt_metric(record.value):
        return define_dbt_metric(record, origin, index)
    return define_metric(record, origin, models=frozenset(index.models))


def _keep(
    record: RawRecord,
    item: ContextItem,
    kept: dict[tuple[str | None, str, str | None], ContextItem],
    clashes: dict[tuple[str, str | None], list[tuple[RawRecord, FileError]]],
    batch: ReadingBuilder,
) -> None:
    declared = item.version if item.version != short_hash(item.content or "") else None
    first = kept.setdefault((item.scope.tenant, item.item_id, declared), item)
    if first is item:
        batch.add(record.found, item)
    elif first.content == item.content:
        batch.repeat(record.found)
    else:
        where = first.provenance.locator
        place = f"{where.path}:{where.line_start}" if where.line_start else where.path
        code = FileCode.VERSION_REUSED if declared else FileCode.DUPLICATE_ID
        message = (
            f"{item.item_id} is defined otherwise at {place}: give this "
            "definition a new version or another name"
        )
        error = FileError(path=record.found.shown, line=record.line, code=code, message=message)
        clashes[record.found.shown, where.path].append((record, error))
