"""Documents: Markdown and plain text with optional YAML front matter, cut into chunks."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from pathlib import PurePosixPath

from pydantic import ValidationError

from ctx_pipeline.contracts import ContextItem, FileCode, FileError, ItemKind
from ctx_pipeline.sources.base import SourceBatch
from ctx_pipeline.sources.batch import BatchBuilder
from ctx_pipeline.sources.files import FoundFile, read_text, suffix_of
from ctx_pipeline.sources.front_matter import FrontMatter, split_front_matter
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.records import Draft, FreeText, RecordFields, make_item, record_error
from ctx_pipeline.sources.splitting import Outline, split_text
from ctx_pipeline.sources.yaml_lines import YamlProblem
from ctx_pipeline.text import normalise, repair, short_hash

MARKDOWN_SUFFIXES = (".md", ".markdown")
MAX_TITLE_CHARS = 240
TEXT_SUFFIXES = (*MARKDOWN_SUFFIXES, ".txt", ".rst", "")


class DocumentFields(RecordFields):
    """Front matter that documents and policies may carry; other keys are ignored."""

    title: FreeText | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A text file: its front matter checked, its body not yet cut."""

    found: FoundFile
    fields: DocumentFields
    body: str
    body_line: int
    source_version: str
    """Hash of the whole file's text."""


def read_documents(files: tuple[FoundFile, ...], origin: Origin) -> SourceBatch:
    """Turn each text file into items `document:<source>/<path>#<n>`, n from 1."""
    batch = BatchBuilder()
    drafts: list[tuple[Draft, ...]] = []
    for found in files:
        if suffix_of(found) not in TEXT_SUFFIXES:
            batch.skip(found, f"suffix {suffix_of(found)!r} is not a text document")
            continue
        document = load_document(found, origin.limit_bytes)
        if isinstance(document, FileError):
            batch.fail(found, document)
            continue
        batch.open(found)
        drafts.append(chunk_drafts(document))
    chunks = {document[0].found.name: len(document) for document in drafts if document}
    for document in drafts:
        for number, draft in enumerate(document):
            replaced = draft.fields.supersedes or ()
            named = _superseded(replaced, chunks, origin) if number == 0 else replaced
            batch.add(draft.found, _item(draft, origin, named))
    return batch.build()


def _item(draft: Draft, origin: Origin, supersedes: tuple[str, ...]) -> ContextItem:
    if supersedes == (draft.fields.supersedes or ()):
        return make_item(draft, origin)
    return make_item(draft, origin).model_copy(update={"supersedes": supersedes})


def _superseded(named: tuple[str, ...], chunks: dict[str, int], origin: Origin) -> tuple[str, ...]:
    """Add to each document that is named by path or by id without `#n` the ids of its chunks in this source."""
    prefix = origin.item_id(ItemKind.DOCUMENT.value, "")
    ids: list[str] = []
    for name in named:
        path = name.removeprefix(prefix)
        ids.append(name)
        ids.extend(f"{prefix}{path}#{number}" for number in range(1, chunks.get(path, 0) + 1))
    return tuple(dict.fromkeys(ids))


def load_document(found: FoundFile, limit_bytes: int) -> Document | FileError:
    """Read a text file and check its front matter; a file whose head cannot be trusted is not loaded."""
    text = read_text(found, limit_bytes)
    if isinstance(text, FileError):
        return text
    try:
        front = split_front_matter(repair(text))
    except YamlProblem as problem:
        return FileError(path=found.shown, line=problem.line, code=FileCode.BAD_FRONT_MATTER, message=problem.message)
    fields = _check(front, found)
    if isinstance(fields, FileError):
        return fields
    return Document(found, fields, front.body, front.body_line, short_hash(repair(text)))


def _check(front: FrontMatter, found: FoundFile) -> DocumentFields | FileError:
    try:
        return DocumentFields.model_validate(front.values)
    except ValidationError as error:
        return record_error(error, found, line=1, key_lines=front.key_lines, code=FileCode.BAD_FRONT_MATTER)


def chunk_drafts(document: Document) -> tuple[Draft, ...]:
    """Cut a document; each chunk knows its lines in the file and the headings above it."""
    body, found = document.body, document.found
    outline = Outline(body)
    markdown = suffix_of(found) in MARKDOWN_SUFFIXES or len(outline.headings) > 1
    newlines = [*accumulate(len(line) + 1 for line in body.split("\n"))]
    title = document_title(document, outline)
    drafts: list[Draft] = []
    for number, chunk in enumerate(split_text(body, markdown=markdown), start=1):
        path = outline.above(chunk.start, chunk.end)
        drafts.append(
            Draft(
                found=found,
                kind=ItemKind.DOCUMENT,
                name=f"{found.name}#{number}",
                title=title if not path or path[-1] == title else f"{title} > {path[-1]}",
                content=normalise(chunk.text),
                fields=document.fields,
                source_version=document.source_version,
                line_start=document.body_line + bisect_right(newlines, chunk.start),
                line_end=document.body_line + bisect_right(newlines, chunk.end - 1),
                heading_path=path,
            )
        )
    return tuple(drafts)


def document_title(document: Document, outline: Outline) -> str:
    """Return the front matter's title, else the first heading, else the file name."""
    stated = " ".join((document.fields.title or "").split())[:MAX_TITLE_CHARS]
    return stated or outline.title or PurePosixPath(document.found.name).name
