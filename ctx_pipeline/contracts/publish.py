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
    """What may be wrong with a definition that its file's format allows;
    `FileCode` has the rest.
    """

    BAD_NAME = "bad_name"
    DUPLICATE_NAME = "duplicate_name"
    SYNONYM_TAKEN = "synonym_taken"
    BAD_EXPRESSION = "bad_expression"
    UNKNOWN_TABLE = "unknown_table"
    UNKNOWN_COLUMN = "unknown_column"
    NOT_CHECKED = "not_checked"
    VERSION_NOT_NEWER = "version_not_newer"
    VALID_FROM_TOO_EARLY = "valid_from_too_early"
    NO_DEFINITIONS = "no_definitions"


class DefinitionFinding(Contract):
    """One thing wrong, or not checked, in one file of definitions."""

    severity: Literal["error", "warning"]
    """An error in a file that is published stops all of them; what is wrong with another file is a
    warning."""
    code: FileCode | DefinitionCode
    """What it is about."""
    path: str
    """Relative to the project."""
    line: Annotated[int, Field(ge=1)] | None = None
    """Where the definition begins, where it is known."""
    item_id: str | None = None
    """The definition; None: the file."""
    message: str
    """What is wrong; it may name tables, columns and keys."""
    fix: str = ""
    """What to do."""


class DefinitionExposure(Contract):
    """Who was shown a version before it changed."""

    snapshots: Count
    """Stored snapshots that showed it."""
    latest: tuple[str, ...] = ()
    """Ids of the last of them, newest first."""
    principals: tuple[str, ...] = ()
    """Who asked."""
    agents: tuple[str, ...] = ()
    """Agents that asked."""


class DefinitionChange(Contract):
    """What becomes of one definition."""

    change: Literal["added", "changed", "removed", "unchanged"]
    """Beside what is live."""
    item_id: str
    """The definition."""
    tenant: str
    kind: ItemKind
    """A metric, or what else the registry has."""
    path: str | None = None
    """File that has it, or had it."""
    line: Annotated[int, Field(ge=1)] | None = None
    """Where it begins, where it is known."""
    old_version: str | None = None
    """The newest version before."""
    new_version: str | None = None
    """The newest version after."""
    effective_at: UtcDatetime | None = None
    """From when the new version counts, or the old one no longer does; None where nothing changes.
    """
    fields: tuple[str, ...] = ()
    """What differs."""
    diff: str = ""
    """Unified difference of the definition's text."""
    dependents: tuple[str, ...] = ()
    """Live items that depend on it."""
    same_subject: tuple[str, ...] = ()
    """Live items of other sources about the same subject."""
    exposure: DefinitionExposure | None = None
    """Who was shown the old version; None where there is none."""


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
    """Whether the definitions are written and recorded. False after a check, and when a finding is
    an error."""
    served: bool = False
    """Whether what agents are shown has all of them; until it has, every process serves the
    versions before."""
    at: UtcDatetime
    """The time at which it takes effect."""
    files: tuple[PublishedFile, ...]
    """What was named."""
    findings: tuple[DefinitionFinding, ...] = ()
    """What is wrong, and what could not be checked."""
    changes: tuple[DefinitionChange, ...] = ()
    """Every definition of the registry: removed, changed, added, unchanged."""
    added: Count = 0
    """Definitions that are new."""
    changed: Count = 0
    """Definitions that differ."""
    removed: Count = 0
    """Definitions, or planned versions, that are gone."""
    unchanged: Count = 0
    """Definitions that are as they were."""
    superseded: tuple[str, ...] = ()
    """`item@version` of what is replaced: with `served` no process shows it once its successor has
    begun."""
    superseded_from: tuple[UtcDatetime, ...] = ()
    """From when the successor of each of `superseded` counts, in the same order; not before it is
    served."""
    build: BuildReport | None = None
    """None when nothing was built; `note` says why."""
    note: str = ""
    """Why nothing was built."""

    @property
    def errors(self) -> int:
        """Number of findings that stop the publishing."""
        return sum(finding.severity == "error" for finding in self.findings)
