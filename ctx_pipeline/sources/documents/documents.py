"""Documents: Markdown and plain text with optional YAML front matter, web pages and PDF, cut into
chunks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import PurePosixPath

from pydantic import ValidationError

from ctx_pipeline.contracts import FileCode, FileError, ItemKind
from ctx_pipeline.sources.files import (
    FoundFile,
    HeldContent,
    decode,
    read_bytes,
    read_text,
    suffix_of,
)
from ctx_pipeline.sources.formats.front_matter import FrontMatter, split_front_matter
from ctx_pipeline.sources.formats.pages import (
    HTML_SUFFIXES,
    MHTML_SUFFIXES,
    page_drafts,
    read_html_file,
    version_of,
)
from ctx_pipeline.sources.formats.pdf import (
    PDF_SUFFIX,
    PdfProblem,
    pdf_drafts,
    pdf_errors,
    read_pdf,
)
from ctx_pipeline.sources.formats.splitting import Outline, split_text, without_references
from ctx_pipeline.sources.formats.yaml_lines import YamlProblem
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.reading import ReadingBuilder, SourceReading
from ctx_pipeline.sources.record_item import Draft, FreeText, RecordFields, make_item, record_error
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
    key_lines: Mapping[str, int]


def read_documents(files: tuple[FoundFile, ...], origin: Origin) -> SourceReading:
    """Turn each text, page and PDF into items `document:<source>/<path>#<n>`, n from 1."""
    batch = ReadingBuilder()
    for found in files:
        reader = _READERS.get(suffix_of(found))
        if reader is None:
            batch.skip(found, f"suffix {suffix_of(found)!r} is not a text document")
            continue
        batch.open(found)
        content = read_bytes(found, origin.limit_bytes)
        if isinstance(content, FileError):
            batch.fail(found, content)
            continue
        unit = origin.units.digest(found.shown, content)
        known = origin.units.known(unit)
        if known is not None:
            batch.keep(found, unit, known)
            continue
        drafts, errors = reader(replace(found, content=HeldContent(content)), origin.limit_bytes)
        batch.fail(found, *errors)
        if not drafts and not errors and suffix_of(found) == PDF_SUFFIX:
            batch.skip(
                found,
                "has no text: pages that are pictures have to go through text recognition first",
            )
        if drafts:
            batch.add(
                found,
                *(make_item(draft, origin) for draft in drafts),
                unit=None if errors else unit,
            )
    return batch.build()


def _text_drafts(found: FoundFile, limit_bytes: int) -> Drafts:
    document = load_document(found, limit_bytes)
    return ((), (document,)) if isinstance(document, FileError) else (chunk_drafts(document), ())


def _page_drafts(found: FoundFile, limit_bytes: int) -> Drafts:
    content = read_bytes(found, limit_bytes)
    if isinstance(content, FileError):
        return (), (content,)
    head = _page_head(found, content)
    if isinstance(head, FileError):
        return (), (head,)
    fields, key_lines, html = head
    page = read_html_file(found, html)
    if isinstance(page, FileError):
        return (), (page,)
    title = " ".join((fields.title or "").split())[:MAX_TITLE_CHARS]
    version = version_of(content)
    drafts = page_drafts(
        found,
        page,
        kind=ItemKind.DOCUMENT,
        source_version=version,
        fields=fields,
        key_lines=key_lines,
        title=title,
    )
    return drafts, ()


def _page_head(
    found: FoundFile, content: bytes
) -> tuple[DocumentFields, Mapping[str, int], bytes] | FileError:
    """Check the front matter that site generators let a page begin with; without it the page is as
    it was.
    """
    if content.removeprefix(b"\xef\xbb\xbf").lstrip()[:3] != b"---":
        return DocumentFields(), {}, content
    text = decode(found, content)
    if isinstance(text, FileError):
        return text
    document = _with_head(found, text.replace("\r\n", "\n").replace("\r", "\n"))
    # The mark wins over what the page declares, because the text is decoded already.
    if isinstance(document, FileError):
        return document
    return document.fields, document.key_lines, document.body.encode("utf-8-sig")


def _pdf_drafts(found: FoundFile, limit_bytes: int) -> Drafts:
    content = read_bytes(found, limit_bytes)
    if isinstance(content, FileError):
        return (), (content,)
    try:
        pdf = read_pdf(content)
    except PdfProblem as problem:
        return (), (FileError(path=found.shown, code=problem.code, message=problem.message),)
    version = version_of(content)
    return pdf_drafts(found, pdf, kind=ItemKind.DOCUMENT, source_version=version), pdf_errors(
        found, pdf
    )


Drafts = tuple[tuple[Draft, ...], tuple[FileError, ...]]
"""What one file gives, and what is wrong with it."""

_READERS: dict[str, Callable[[FoundFile, int], Drafts]] = {
    **dict.fromkeys(TEXT_SUFFIXES, _text_drafts),
    **dict.fromkeys((*HTML_SUFFIXES, *MHTML_SUFFIXES), _page_drafts),
    PDF_SUFFIX: _pdf_drafts,
}


def load_document(found: FoundFile, limit_bytes: int) -> Document | FileError:
    """Read a text file and check its front matter; a file whose head cannot be trusted is not
    loaded.
    """
    text = read_text(found, limit_bytes)
    if isinstance(text, FileError):
        return text
    return _with_head(found, text)


def _with_head(found: FoundFile, text: str) -> Document | FileError:
    try:
        front = split_front_matter(repair(text))
    except YamlProblem as problem:
        return FileError(
            path=found.shown,
            line=problem.line,
            code=FileCode.BAD_FRONT_MATTER,
            message=problem.message,
        )
    fields = _check(front, found)
    if isinstance(fields, FileError):
        return fields
    return Document(
        found, fields, front.body, front.body_line, short_hash(repair(text)), front.key_lines
    )


def _check(front: FrontMatter, found: FoundFile) -> DocumentFields | FileError:
    try:
        return DocumentFields.model_validate(front.values)
    except ValidationError as error:
        return record_error(
            error, found, line=1, key_lines=front.key_lines, code=FileCode.BAD_FRONT_MATTER
        )


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
                content=normalise(chunk.content),
                fields=document.fields,
                key_lines=document.key_lines,
                source_version=document.source_version,
                line_start=document.body_line + bisect_right(newlines, chunk.start),
                line_end=document.body_line + bisect_right(newlines, chunk.end - 1),
                heading_path=path,
            )
        )
    return tuple(drafts)


def document_title(document: Document, outline: Outline) -> str:
    """Return the front matter's title, else the first heading, else the file name."""
    stated = " ".join(without_references(document.fields.title or "").split())[:MAX_TITLE_CHARS]
    return stated or outline.title or PurePosixPath(document.found.name).name
