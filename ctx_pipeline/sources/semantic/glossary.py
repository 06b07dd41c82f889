"""Glossaries: YAML `terms: [{name, synonyms, definition, subject, valid_from}]`."""

from __future__ import annotations

from typing import Any, cast

from pydantic import ValidationError

from ctx_pipeline.contracts import ContextItem, FileCode, FileError, ItemKind
from ctx_pipeline.sources.files import FoundFile, read_text, suffix_of
from ctx_pipeline.sources.formats.yaml_lines import LineDict, YamlProblem, load_yaml
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.reading import ReadingBuilder, SourceReading
from ctx_pipeline.sources.record_item import (
    Draft,
    FreeText,
    Label,
    Labels,
    RecordFields,
    make_item,
    record_error,
)
from ctx_pipeline.text import normalise, repair, short_hash

YAML_SUFFIXES = (".yaml", ".yml")


class TermFields(RecordFields):
    """One entry of `terms`; other keys are ignored."""

    name: Label
    definition: FreeText
    synonyms: Labels | None = None


def read_glossary(files: tuple[FoundFile, ...], origin: Origin) -> SourceReading:
    """Turn each term into an item `glossary:<source>/<name>`, subject `glossary:<name>` unless it
    names another.
    """
    batch = ReadingBuilder()
    kept: dict[tuple[str | None, str, str | None], ContextItem] = {}
    for found in files:
        if suffix_of(found) not in YAML_SUFFIXES:
            batch.skip(found, f"suffix {suffix_of(found)!r} is not a glossary")
            continue
        batch.open(found)
        text = read_text(found, origin.limit_bytes)
        terms = text if isinstance(text, FileError) else _terms(found, repair(text))
        if isinstance(terms, FileError):
            batch.fail(found, terms)
            continue
        for term in terms:
            outcome = _item(found, term, origin, source_version=short_hash(repair(str(text))))
            if isinstance(outcome, FileError):
                batch.fail(found, outcome)
            else:
                _keep(found, outcome, kept, batch)
    return batch.build()


def _keep(
    found: FoundFile,
    item: ContextItem,
    kept: dict[tuple[str | None, str, str | None], ContextItem],
    batch: ReadingBuilder,
) -> None:
    declared = item.version if item.version != short_hash(item.content or "") else None
    key = (item.scope.tenant, item.item_id, declared)
    first = kept.setdefault(key, item)
    if first is item:
        batch.add(found, item)
    elif first.content == item.content:
        batch.repeat(found)
    else:
        code = FileCode.VERSION_REUSED if declared else FileCode.DUPLICATE_ID
        message = (
            "the term is defined otherwise in "
            f"{first.provenance.locator.path}: add a new version or rename "
            "it"
        )
        line = item.provenance.locator.line_start
        batch.fail(found, FileError(path=found.shown, line=line, code=code, message=message))


def _terms(found: FoundFile, text: str) -> list[Any] | FileError:
    def error(line: int | None, message: str) -> FileError:
        return FileError(path=found.shown, line=line, code=FileCode.BAD_YAML, message=message)

    try:
        documents = [document for document in load_yaml(text) if document is not None]
    except YamlProblem as problem:
        return error(problem.line, problem.message)
    terms: list[Any] = []
    for document in documents:
        listed = document.get("terms") if isinstance(document, LineDict) else None
        if not isinstance(listed, list):
            return error(
                getattr(document, "line", 1), "a glossary is a mapping with a list `terms`"
            )
        terms.extend(cast("list[Any]", listed))
    return terms


def _item(
    found: FoundFile, term: Any, origin: Origin, *, source_version: str
) -> ContextItem | FileError:
    line: int | None = getattr(term, "line", None)
    try:
        fields = TermFields.model_validate(term)
    except ValidationError as problem:
        return record_error(problem, found, line=line, key_lines=getattr(term, "key_lines", None))
    draft = Draft(
        found=found,
        kind=ItemKind.GLOSSARY,
        name=fields.name,
        title=fields.name,
        content=normalise(f"{fields.name}: {fields.definition}"),
        fields=fields,
        key_lines=getattr(term, "key_lines", {}),
        subject=f"glossary:{fields.name}",
        source_version=source_version,
        line_start=line,
        line_end=getattr(term, "line_end", None),
        synonyms=fields.synonyms or (),
    )
    return make_item(draft, origin)
