"""What publishing definitions found, changed and reached."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from ctx_pipeline.contracts.base import SCHEMA_VERSION, Contract, UtcDatetime
from ctx_pipeline.contracts.codes import FileCode, ItemKind
from ctx_pipeline.contracts.report import BuildReport

Count = Annotated[int, Field(ge=0)]


class DefinitionCode(StrEnum):
    """What may be wrong with a definition that its file's format allows; `FileCode` has the rest."""

    BAD_NAME = "bad_name"
    DUPLICATE_NAME = "duplicate_name"
    SYNONYM_TAKEN = "synonym_taken"
    BAD_EXPRESSION = "bad_expression"
    UNKNOWN_TABLE = "unknown_table"
    UNKNOWN_COLUMN = "unknown_column"
    NOT_CHECKED = "not_checked"
    VERSION_NOT_NEWER = "version_not_newer"
    VALID_FROM_TOO_EARLY = "valid_from_too_early"
    UNKNOWN_TENANT = "unknown_tenant"
    NOT_READ = "not_read"
    NO_DEFINITIONS = "no_definitions"


class DefinitionFinding(Contract):
    """One thing wrong, or not checked, in one file of definitions."""

    severity: Literal["error", "warning"]
    """An error in a file that is published stops the publishing of all; in another file it is a warning."""
    code: FileCode | DefinitionCode
    path: str
    line: Annotated[int, Field(ge=1)] | None = None
    item_id: str | None = None
    message: str
    fix: str = ""


class DefinitionExposure(Contract):
    """Who was shown a version before it changed."""

    snapshots: Count
    """Stored snapshots that showed it."""
    latest: tuple[str, ...] = ()
    """Ids of the last of them, newest first."""
    principals: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()


class DefinitionChange(Contract):
    """What becomes of one definition."""

    change: Literal["added", "changed", "removed", "unchanged"]
    item_id: str
    tenant: str
    kind: ItemKind
    path: str | None = None
    line: Annotated[int, Field(ge=1)] | None = None
    old_version: str | None = None
    new_version: str | None = None
    effective_at: UtcDatetime | None = None
    """From when the new version counts, or the old one no longer does; None where nothing changes."""
    fields: tuple[str, ...] = ()
    """What differs."""
    diff: str = ""
    """Unified difference of the definition's text."""
    dependents: tuple[str, ...] = ()
    """Live items that depend on it."""
    same_subject: tuple[str, ...] = ()
    """Live items of other sources about the same subject."""
    exposure: DefinitionExposure | None = None


class PublishedFile(Contract):
    """One file that was published or checked."""

    path: str
    """Where it lies in the project, or will."""
    status: Literal["created", "replaced", "unchanged"]
    """Of the file itself, compared with the one of that name in the registry."""


class PublishReport(Contract):
    """What publishing or checking definitions found and did."""

    schema_version: str = SCHEMA_VERSION
    source: str
    """The registry."""
    published: bool
    """Whether the definitions are live now. False after a check, and when a finding is an error."""
    at: UtcDatetime
    files: tuple[PublishedFile, ...]
    findings: tuple[DefinitionFinding, ...] = ()
    changes: tuple[DefinitionChange, ...] = ()
    added: Count = 0
    changed: Count = 0
    removed: Count = 0
    unchanged: Count = 0
    superseded: tuple[str, ...] = ()
    """`item@version` of what every process stops showing because of this call."""
    build: BuildReport | None = None
    """None when nothing was built; `note` says why."""
    note: str = ""

    @property
    def errors(self) -> int:
        """Number of findings that stop the publishing."""
        return sum(finding.severity == "error" for finding in self.findings)
