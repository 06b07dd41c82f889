"""The account of one reading: which file gave which items, and what was wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ctx_pipeline.contracts import ContextItem, FileError, FileStatus, SourceFile
from ctx_pipeline.sources.files import FoundFile
from ctx_pipeline.sources.units import KnownItem


@dataclass(frozen=True, slots=True)
class SourceReading:
    """What one reading of a source gave. Every file found is in `files` once."""

    items: tuple[ContextItem, ...]
    errors: tuple[FileError, ...]
    files: tuple[SourceFile, ...]
    kept: tuple[KnownItem, ...] = ()
    """What the source still says and is stored; it was not parsed again."""
    units: Mapping[bytes, tuple[ContextItem | KnownItem, ...]] = field(
        default_factory=dict[bytes, tuple[ContextItem | KnownItem, ...]], repr=False
    )
    """What each unit that was read without an error says, for the next reading."""

    @property
    def count(self) -> int:
        """How many items the source has."""
        return len(self.items) + len(self.kept)


@dataclass(slots=True)
class _Entry:
    found: FoundFile
    items: list[ContextItem] = field(default_factory=list[ContextItem])
    errors: list[FileError] = field(default_factory=list[FileError])
    reason: str | None = None
    part: bool = False
    kept: list[KnownItem] = field(default_factory=list[KnownItem])
    units: dict[bytes, tuple[ContextItem | KnownItem, ...]] = field(
        default_factory=dict[bytes, "tuple[ContextItem | KnownItem, ...]"]
    )


@dataclass(slots=True)
class ReadingBuilder:
    """Collects items, errors and reasons by file; `build` gives the batch, files in the order they
    were opened.
    """

    entries: dict[str, _Entry] = field(default_factory=dict[str, _Entry])

    def open(self, found: FoundFile) -> None:
        """Account for a file even if nothing comes of it."""
        self.entries.setdefault(found.shown, _Entry(found))

    def add(self, found: FoundFile, *items: ContextItem, unit: bytes | None = None) -> None:
        """Record items of a file; `unit` is the digest of what says them and nothing else, if
        anything does.
        """
        self.open(found)
        entry = self.entries[found.shown]
        entry.items.extend(items)
        if unit is not None:
            entry.units[unit] = items

    def keep(self, found: FoundFile, unit: bytes, known: tuple[KnownItem, ...]) -> None:
        """Record that a unit of a file says what is stored already."""
        self.open(found)
        entry = self.entries[found.shown]
        entry.kept.extend(known)
        entry.units[unit] = known

    def fail(self, found: FoundFile, *errors: FileError) -> None:
        """Record errors of a file."""
        self.open(found)
        self.entries[found.shown].errors.extend(errors)

    def skip(self, found: FoundFile, reason: str) -> None:
        """Record that a file is not for this adapter."""
        self.open(found)
        self.entries[found.shown].reason = reason

    def part(self, found: FoundFile, reason: str) -> None:
        """Record that a file was read as part of another's items."""
        self.skip(found, reason)
        self.entries[found.shown].part = True

    def repeat(self, found: FoundFile) -> None:
        """Record that a file says again what another record says; it counts where the file gives
        nothing else.
        """
        if self.entries[found.shown].reason is None:
            self.skip(found, "says only what is said elsewhere in this source")

    def build(self) -> SourceReading:
        """Return the batch."""
        entries = self.entries.values()
        return SourceReading(
            items=tuple(item for entry in entries for item in entry.items),
            errors=tuple(error for entry in entries for error in entry.errors),
            files=tuple(_account(entry) for entry in entries),
            kept=tuple(known for entry in entries for known in entry.kept),
            units={unit: said for entry in entries for unit, said in entry.units.items()},
        )


def _account(entry: _Entry) -> SourceFile:
    if entry.items or entry.kept or entry.part:
        status = FileStatus.LOADED
    elif entry.errors:
        status = FileStatus.FAILED
    else:
        status = FileStatus.SKIPPED if entry.reason else FileStatus.EMPTY
    reason = None if status is FileStatus.LOADED and not entry.part else entry.reason
    reason = entry.errors[0].code.value if status is FileStatus.FAILED else reason
    return SourceFile(
        path=entry.found.shown,
        status=status,
        items=len(entry.items) + len(entry.kept),
        bytes=entry.found.size_bytes,
        reason=reason,
    )
