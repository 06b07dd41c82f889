"""What a build did."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ctx_pipeline.contracts.base import SCHEMA_VERSION, Contract
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
    files: tuple[SourceFile, ...]
    errors: tuple[FileError, ...]


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
