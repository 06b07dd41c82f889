"""What a build did."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ctx_pipeline.contracts.base import SCHEMA_VERSION, Contract, UtcDatetime
from ctx_pipeline.contracts.codes import FileCode, FileStatus

Count = Annotated[int, Field(ge=0)]


class FileError(Contract):
    """One thing wrong with one source file; the other files are loaded."""

    path: str
    """Relative to the project."""
    line: Annotated[int, Field(ge=1)] | None = None
    code: FileCode
    message: str
    """What is wrong and what to do; never the content."""
    items: Count | None = None
    """Items it is about, where they are counted."""


class SourceFile(Contract):
    """One file of a source and what became of it."""

    path: str
    status: FileStatus
    items: Count = 0
    bytes: Count = 0
    reason: str | None = None


class SourceReport(Contract):
    """What became of one source."""

    name: str
    kind: str
    items: Count
    added: Count
    reused: Count
    retired: Count
    withheld: Count = 0
    """Items that the source seems to have lost; they are served until a person confirms it or they
    come back."""
    files: tuple[SourceFile, ...]
    errors: tuple[FileError, ...]


class IndexPin(Contract):
    """A serving index that a person holds at one artifact."""

    artifact: str
    """Content hash of the artifact that is served."""
    since: UtcDatetime
    reason: str
    waiting: str | None = None
    """Content hash of the newest artifact that was built meanwhile; None when it is the one that is
    served."""
    closed: Count = 0
    """Items in it that have been closed to somebody since; counted by a build and by `ctx doctor`,
    else 0."""


class BuildReport(Contract):
    """What one build did."""

    schema_version: str = SCHEMA_VERSION
    items: Count
    """Live item versions in the artifact."""
    embedded: Count
    """Texts the embedder was run on; cached vectors do not count."""
    reused: Count
    """Item versions that were already stored."""
    retired: Count
    errors: tuple[FileError, ...]
    artifact: str | None
    """Content hash of the published serving artifact; None when the build did not publish one."""
    sources: tuple[SourceReport, ...] = ()
    seconds: Annotated[float, Field(ge=0)] = 0.0
    pin: IndexPin | None = None
    """What holds the pointer where it is; None when the index is not pinned."""
    pin_ended: str | None = None
    """Why this build has let go of a pinned index: rights never rewind."""


class RetiredItem(Contract):
    """One item, or one version of it, that is retired or restored."""

    tenant: str
    item_id: str
    version: str | None = None
    """None: every version."""


class RetireReport(Contract):
    """What `ctx retire` did."""

    schema_version: str = SCHEMA_VERSION
    action: Literal["retired", "restored"]
    source: str | None = None
    """The source that was confirmed; None when one item was named."""
    count: Count
    """Items, or single versions, that changed."""
    live: Count
    """Items that the source had before; a document counts each of its parts."""
    items: tuple[RetiredItem, ...]
    """The first of them, in order."""
    actor: str
    reason: str
