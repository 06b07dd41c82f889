"""Instructions: `AGENTS.md`-style files, of which the nearest folder wins, and policy texts. One
item per file.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from ctx_pipeline.contracts import ContextItem, FileError, ItemKind
from ctx_pipeline.sources.documents.documents import (
    TEXT_SUFFIXES,
    Document,
    document_title,
    load_document,
)
from ctx_pipeline.sources.files import FoundFile, suffix_of
from ctx_pipeline.sources.formats.splitting import Outline
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.reading import ReadingBuilder, SourceReading
from ctx_pipeline.sources.record_item import Draft, make_item
from ctx_pipeline.text import normalise

AGENT_FILES = ("agents.md", "claude.md")
"""Names, in lower case, of files that instruct agents in their folder and below."""


def read_instructions(files: tuple[FoundFile, ...], origin: Origin) -> SourceReading:
    """Turn `AGENTS.md` and `CLAUDE.md` into `instruction:` items and every other text into a
    `policy:` item.

    The subject of an instruction is `instruction:<folder>`, the folder relative to the project (`.`
    for its root).
    """
    batch = ReadingBuilder()
    for found in files:
        if suffix_of(found) not in TEXT_SUFFIXES:
            batch.skip(found, f"suffix {suffix_of(found)!r} is not an instruction text")
            continue
        document = load_document(found, origin.limit_bytes)
        if isinstance(document, FileError):
            batch.fail(found, document)
        elif document.body.strip():
            batch.add(found, _item(document, origin))
        else:
            batch.open(found)
    return batch.build()


def _item(document: Document, origin: Origin) -> ContextItem:
    found, body = document.found, document.body
    agent_file = PurePosixPath(found.name).name.casefold() in AGENT_FILES
    blank_lines = body[: len(body) - len(body.lstrip())].count("\n")
    line_start = document.body_line + blank_lines
    draft = Draft(
        found=found,
        kind=ItemKind.INSTRUCTION if agent_file else ItemKind.POLICY,
        name=found.name,
        title=document_title(document, Outline(body)),
        content=normalise(body.strip()),
        fields=document.fields,
        key_lines=document.key_lines,
        subject=f"instruction:{PurePosixPath(found.shown).parent}" if agent_file else None,
        source_version=document.source_version,
        line_start=line_start,
        line_end=line_start + body.strip().count("\n"),
    )
    return make_item(draft, origin)
