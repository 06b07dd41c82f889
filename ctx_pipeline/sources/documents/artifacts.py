"""Artifacts: files that agents made or open by reference. One short description each; the content
stays where it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from ctx_pipeline.contracts import ContextItem, FileCode, FileError, ItemKind, Media
from ctx_pipeline.sources.documents.describe import Sample, describe, media_type
from ctx_pipeline.sources.files import FoundFile, suffix_of
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.reading import ReadingBuilder, SourceReading
from ctx_pipeline.sources.record_item import Draft, make_item
from ctx_pipeline.text import normalise, sha256_hex

MAX_CONTENT_BYTES = 2_000
"""Longest description, in UTF-8."""

_TRUNCATED = "\n(truncated)"


@dataclass(frozen=True, slots=True)
class _Reading:
    sample: Sample
    digest: str
    """SHA-256 of the bytes read, in hexadecimal."""


def read_artifacts(files: tuple[FoundFile, ...], origin: Origin) -> SourceReading:
    """Turn each file into an item `artifact_ref:<source>/<path>` that describes it and refers to
    it.

    The description has the type, the size and what the type allows to say: first lines, the header
    and rows of a table, the keys of JSON, the cells of a notebook, the size of a picture. It is at
    most `MAX_CONTENT_BYTES` long. Of a file larger than the source's `max_file_bytes` only that
    much is read; the description says so. The version is a hash of what was read and of the size.
    """
    batch = ReadingBuilder()
    for found in files:
        batch.open(found)
        if found.size_bytes == 0 and found.content is None:
            continue
        reading = _read(found, origin.limit_bytes)
        if isinstance(reading, FileError):
            batch.fail(found, reading)
        elif reading.sample.head:
            batch.add(found, _item(found, reading, origin))
    return batch.build()


def _read(found: FoundFile, limit_bytes: int) -> _Reading | FileError:
    """Read up to `limit_bytes` of a file."""
    try:
        content = _first_bytes(found, limit_bytes)
    except OSError:
        return FileError(
            path=found.shown, code=FileCode.UNREADABLE, message="cannot be read: check permissions"
        )
    # A file that grew or shrank since it was found counts as what was read of it.
    size_bytes = (
        max(found.size_bytes, len(content)) if len(content) >= limit_bytes else len(content)
    )
    return _Reading(Sample(content, size_bytes, suffix_of(found)), sha256_hex(content))


def _first_bytes(found: FoundFile, limit_bytes: int) -> bytes:
    if found.content is not None:
        return found.content.read(limit_bytes)
    with found.path.open("rb") as stream:
        return stream.read(limit_bytes)


def _item(found: FoundFile, reading: _Reading, origin: Origin) -> ContextItem:
    sample = reading.sample
    kind = media_type(sample)
    ref = f"artifact://{origin.name}/{found.name}"
    version = (
        f"{reading.digest[:12]}-{sample.size_bytes}" if sample.is_partial else reading.digest[:12]
    )
    lines = [
        f"Artifact: {found.name}",
        f"Type: {kind}, {sample.size_bytes:,} bytes",
        *describe(sample, kind),
    ]
    if sample.is_partial:
        lines.insert(2, f"Read: the first {len(sample.head):,} bytes")
    draft = Draft(
        found=found,
        kind=ItemKind.ARTIFACT_REF,
        name=found.name,
        title=PurePosixPath(found.name).name,
        content=_bounded(normalise("\n".join(lines))),
        version=version,
        source_version=version,
        content_ref=ref,
        media=Media(type=kind, bytes=sample.size_bytes, ref=ref),
    )
    return make_item(draft, origin)


def _bounded(text: str) -> str:
    """Cut at a whole character, at the end of a line where one is near, and say so."""
    encoded = text.encode()
    if len(encoded) <= MAX_CONTENT_BYTES:
        return text
    cut = encoded[: MAX_CONTENT_BYTES - len(_TRUNCATED)].decode("utf-8", "ignore")
    line_end = cut.rfind("\n")
    return (cut[:line_end] if line_end > len(cut) * 3 // 4 else cut) + _TRUNCATED
