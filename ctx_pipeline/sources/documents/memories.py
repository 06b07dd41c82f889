"""Memories: JSON lines, one memory a line. A bad line is reported and the
other lines are loaded.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, cast

from pydantic import AfterValidator, ValidationError

from ctx_pipeline.config.settings import VERIFIED_MEMORY_AUTHORITY
from ctx_pipeline.contracts import ContextItem, FileCode, FileError, ItemKind
from ctx_pipeline.contracts.item import Confidence
from ctx_pipeline.sources.files import FoundFile, read_bytes, suffix_of
from ctx_pipeline.sources.formats.json_lines import JsonProblem, lines_of, load_json
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.reading import ReadingBuilder, SourceReading
from ctx_pipeline.sources.record_item import (
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
from ctx_pipeline.sources.units import KnownItem
from ctx_pipeline.text import short_hash

MEMORY_SUFFIXES = (".jsonl", ".ndjson")
TITLE_CHARS = 60

_SPACES = re.compile(r"\s+")


def _require_text(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return value


class MemoryFields(RecordFields):
    """One line of a memory file; other keys are ignored, but not one that is nearly a permission
    key.
    """

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


@dataclass(frozen=True, slots=True)
class _Line:
    """One line, and what it says: what is stored already, a memory, or why it is none."""

    found: FoundFile
    number: int
    content: bytes
    unit: bytes
    said: KnownItem | _Memory | FileError

    def key(self, origin: Origin) -> tuple[str, str] | None:
        """Tenant and item id; None for a line that says nothing."""
        if isinstance(self.said, KnownItem):
            return self.said.key
        if isinstance(self.said, FileError):
            return None
        tenant, name, _ = _key(self.said, origin)
        return tenant or "", origin.item_id(ItemKind.MEMORY.value, name)


_Key = tuple[str | None, str, str | None]
"""Tenant, id and declared version: what one memory is known by."""


def _key(memory: _Memory, origin: Origin) -> _Key:
    return memory.fields.tenant or origin.scope.tenant, memory.fields.id, memory.fields.version


def read_memories(files: tuple[FoundFile, ...], origin: Origin) -> SourceReading:
    """Turn each line into an item `memory:<source>/<id>`.

    The same id again in one tenant: the same text is one memory, seen again; another text under
    another declared version is a new version; another text without version replaces the earlier
    line, which is reported.
    """
    batch = ReadingBuilder()
    lines: list[_Line] = []
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
            lines.append(_read_line(found, number, line, origin))
    _settle(lines, batch, origin)
    return batch.build()


def _read_line(found: FoundFile, number: int, line: bytes, origin: Origin) -> _Line:
    unit = origin.units.digest(found.shown, line)
    known = origin.units.known(unit)
    return _Line(
        found, number, line, unit, _parse(found, number, line) if known is None else known[0]
    )


def _settle(lines: Sequence[_Line], batch: ReadingBuilder, origin: Origin) -> None:
    """Add what the lines say together: an id that is given once says by itself what it says."""
    given = Counter(line.key(origin) for line in lines)
    kept: dict[_Key, _Memory] = {}
    alone: dict[_Key, bytes] = {}
    for line in lines:
        said = line.said
        once = given[line.key(origin)] == 1
        if isinstance(said, KnownItem) and once:
            batch.keep(line.found, line.unit, (said,))
            continue
        memory = (
            _parse(line.found, line.number, line.content) if isinstance(said, KnownItem) else said
        )
        if isinstance(memory, FileError):
            batch.fail(line.found, memory)
            continue
        _keep(memory, kept, origin, batch)
        if once:
            alone[_key(memory, origin)] = line.unit
    for key, memory in kept.items():
        batch.add(memory.found, _item(memory, origin), unit=alone.get(key))


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


def _keep(
    memory: _Memory, kept: dict[_Key, _Memory], origin: Origin, batch: ReadingBuilder
) -> None:
    fields = memory.fields
    key = _key(memory, origin)
    earlier = kept.get(key)
    if earlier is None:
        kept[key] = memory
    elif _same(earlier.fields, fields, origin):
        times = [time for time in (earlier.fields.observed_at, fields.observed_at) if time]
        seen = fields.model_copy(
            update={"observed_at": max(times, default=None), "text": earlier.fields.text}
        )
        kept[key] = replace(memory, fields=seen)
        batch.repeat(earlier.found)
    elif fields.version is not None:
        message = (
            f"id and version have another text on line {earlier.line} of "
            f"{earlier.found.shown}: raise version"
        )
        code = FileCode.VERSION_REUSED
        batch.fail(
            memory.found,
            FileError(path=memory.found.shown, line=memory.line, code=code, message=message),
        )
    else:
        message = (
            f"id is given again on line {memory.line} of "
            f"{memory.found.shown}, which is kept: add a version"
        )
        code = FileCode.DUPLICATE_ID
        batch.fail(
            earlier.found,
            FileError(path=earlier.found.shown, line=earlier.line, code=code, message=message),
        )
        kept[key] = memory


def _same(left: MemoryFields, right: MemoryFields, origin: Origin) -> bool:
    """Say whether two lines are one memory: equal text but for width and white space, seen by the
    same people.
    """
    same_text = left.text == right.text or _folded(left.text) == _folded(right.text)
    same_scope = (
        scope_of(left, origin) == scope_of(right, origin) and left.sensitivity == right.sensitivity
    )
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
    """Return the first `TITLE_CHARS` characters on one line, cut at a blank where there is one in
    the second half.
    """
    line = _SPACES.sub(" ", text[: TITLE_CHARS * 4]).strip()
    if len(line) <= TITLE_CHARS:
        return line
    blank = line.rfind(" ", TITLE_CHARS // 2, TITLE_CHARS)
    return line[: blank if blank > 0 else TITLE_CHARS].rstrip() + "…"
