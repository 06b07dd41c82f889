"""Memories: JSON lines, one memory a line. A bad line is reported and the other lines are loaded."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from typing import Annotated, Any, cast

from pydantic import AfterValidator, ValidationError

from ctx_pipeline.config import VERIFIED_MEMORY_AUTHORITY
from ctx_pipeline.contracts import ContextItem, FileCode, FileError, ItemKind
from ctx_pipeline.contracts.item import Confidence
from ctx_pipeline.sources.base import SourceBatch
from ctx_pipeline.sources.batch import BatchBuilder
from ctx_pipeline.sources.files import FoundFile, read_bytes, suffix_of
from ctx_pipeline.sources.json_lines import JsonProblem, lines_of, load_json
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.records import (
    Draft,
    FreeText,
    Label,
    RecordFields,
    RecordTime,
    lost_permission_message,
    make_item,
    meant_permission,
    record_error,
    scope_of,
)
from ctx_pipeline.text import short_hash

MEMORY_SUFFIXES = (".jsonl", ".ndjson")
TITLE_CHARS = 60

_SPACES = re.compile(r"\s+")


def _require_text(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return value


class MemoryFields(RecordFields):
    """One line of a memory file; other keys are ignored, but not one that is nearly a permission key."""

    id: Label
    text: Annotated[FreeText, AfterValidator(_require_text)]
    created_at: RecordTime | None = None
    observed_at: RecordTime | None = None
    last_verified_at: RecordTime | None = None
    confidence: Confidence | None = None


@dataclass(frozen=True, slots=True)
class _Memory:
    found: FoundFile
    line: int
    fields: MemoryFields


_Key = tuple[str | None, str, str | None]
"""Tenant, id and declared version: what one memory is known by."""


def read_memories(files: tuple[FoundFile, ...], origin: Origin) -> SourceBatch:
    """Turn each line into an item `memory:<source>/<id>`.

    The same id again in one tenant: the same text is one memory, seen again; another text under another declared
    version is a new version; another text without version replaces the earlier line, which is reported.
    """
    batch = BatchBuilder()
    kept: dict[_Key, _Memory] = {}
    for found in files:
        if suffix_of(found) not in MEMORY_SUFFIXES:
            batch.skip(found, f"suffix {suffix_of(found)!r} is not JSON lines")
            continue
        batch.open(found)
        content = read_bytes(found, origin.limit_bytes)
        if isinstance(content, FileError):
            batch.fail(found, content)
            continue
        for number, line in lines_of(content):
            memory = _parse(found, number, line)
            if isinstance(memory, FileError):
                batch.fail(found, memory)
            else:
                _keep(memory, kept, origin, batch)
    for memory in kept.values():
        batch.add(memory.found, _item(memory, origin))
    return batch.build()


def _parse(found: FoundFile, number: int, line: bytes) -> _Memory | FileError:
    def error(code: FileCode, message: str) -> FileError:
        return FileError(path=found.shown, line=number, code=code, message=message)

    try:
        record: Any = load_json(line.decode("utf-8"))
    except UnicodeDecodeError:
        return error(FileCode.NOT_UTF8, "not UTF-8: save it as UTF-8")
    except JsonProblem as problem:
        return error(FileCode.BAD_JSON, problem.message)
    keys = cast("dict[str, Any]", record) if isinstance(record, dict) else ()
    wanted = next((meant for meant in map(meant_permission, keys) if meant), None)
    if wanted is not None:
        return error(FileCode.BAD_RECORD, lost_permission_message(wanted))
    try:
        return _Memory(found, number, MemoryFields.model_validate(record))
    except ValidationError as problem:
        return record_error(problem, found, line=number)


def _keep(memory: _Memory, kept: dict[_Key, _Memory], origin: Origin, batch: BatchBuilder) -> None:
    fields = memory.fields
    key = (fields.tenant or origin.scope.tenant, fields.id, fields.version)
    earlier = kept.get(key)
    if earlier is None:
        kept[key] = memory
    elif _same(earlier.fields, fields, origin):
        times = [time for time in (earlier.fields.observed_at, fields.observed_at) if time]
        seen = fields.model_copy(update={"observed_at": max(times, default=None), "text": earlier.fields.text})
        kept[key] = replace(memory, fields=seen)
        batch.repeat(earlier.found)
    elif fields.version is not None:
        message = f"id and version have another text on line {earlier.line} of {earlier.found.shown}: raise version"
        code = FileCode.VERSION_REUSED
        batch.fail(memory.found, FileError(path=memory.found.shown, line=memory.line, code=code, message=message))
    else:
        message = f"id is given again on line {memory.line} of {memory.found.shown}, which is kept: add a version"
        code = FileCode.DUPLICATE_ID
        batch.fail(earlier.found, FileError(path=earlier.found.shown, line=earlier.line, code=code, message=message))
        kept[key] = memory


def _same(left: MemoryFields, right: MemoryFields, origin: Origin) -> bool:
    """Say whether two lines are one memory: equal text but for width and white space, seen by the same people."""
    same_text = left.text == right.text or _folded(left.text) == _folded(right.text)
    same_scope = scope_of(left, origin) == scope_of(right, origin) and left.sensitivity == right.sensitivity
    return same_text and same_scope


def _folded(text: str) -> str:
    return _SPACES.sub(" ", unicodedata.normalize("NFKC", text)).strip()


def _item(memory: _Memory, origin: Origin) -> ContextItem:
    fields = memory.fields
    version = short_hash(fields.text)
    verified = fields.last_verified_at is not None and origin.source.authority is None
    draft = Draft(
        found=memory.found,
        kind=ItemKind.MEMORY,
        name=fields.id,
        title=title_of(fields.text),
        content=fields.text,
        fields=fields,
        version=version,
        source_version=version,
        line_start=memory.line,
        line_end=memory.line,
        authority=VERIFIED_MEMORY_AUTHORITY if verified else None,
        created_at=fields.created_at,
        observed_at=fields.observed_at,
        last_verified_at=fields.last_verified_at,
        confidence=1.0 if fields.confidence is None else fields.confidence,
    )
    return make_item(draft, origin)


def title_of(text: str) -> str:
    """Return the first `TITLE_CHARS` characters on one line, cut at a blank where there is one in the second half."""
    line = _SPACES.sub(" ", text[: TITLE_CHARS * 4]).strip()
    if len(line) <= TITLE_CHARS:
        return line
    blank = line.rfind(" ", TITLE_CHARS // 2, TITLE_CHARS)
    return line[: blank if blank > 0 else TITLE_CHARS].rstrip() + "…"
