"""What may not be published: names that clash, SQL that does not hold, versions that hide a change
of meaning. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ctx_pipeline.contracts import (
    ContextItem,
    FileCode,
    FileError,
    FileStatus,
    ItemKind,
    SourceFile,
)
from ctx_pipeline.contracts.publish import DefinitionCode, DefinitionFinding
from ctx_pipeline.index.facts import start_of
from ctx_pipeline.index.rows import chain_order, declared_version
from ctx_pipeline.registry.fields import same_name
from ctx_pipeline.registry.sql import Problem, Surroundings, check_sql, metric_names
from ctx_pipeline.registry.stored import Key, Record

_NAME = re.compile(r"\w[\w.\-]*")

FIXES: dict[FileCode, str] = {
    FileCode.VERSION_REUSED: "raise the version of the definition that changed",
    FileCode.DUPLICATE_ID: "give one of the two another name",
    FileCode.BAD_YAML: "correct the YAML at this line",
    FileCode.BAD_JSON: "correct the JSON at this line",
    FileCode.BAD_RECORD: "correct the key that is named",
    FileCode.NAIVE_TIME: "write the time with an offset, as 2026-01-31T00:00:00Z",
    FileCode.MISSING_SCOPE: "set tenant, sensitivity and groups in the record, the source or "
    "[project]",
    FileCode.HIDDEN_CHARACTERS: "remove the characters, or type the line again",
    FileCode.WRONG_TENANT: "remove the key, or list the tenant in tenants of the source",
    FileCode.WIDER_THAN_SOURCE: "remove the key, or set may_widen = true on the source",
}
"""What to do about an error that the reader of the format found, where its message does not say."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A registry as it would be: everything that was read, and what the store holds."""

    items: Sequence[ContextItem]
    errors: Sequence[FileError]
    files: Sequence[SourceFile]
    published: frozenset[str]
    """Paths of the files that are published; errors elsewhere are warnings."""
    created: frozenset[str]
    """Paths of those that the registry does not have yet."""
    record: Record
    now: datetime


def lint(proposal: Proposal) -> tuple[DefinitionFinding, ...]:
    """Return everything that is wrong with the files that are published, ordered by path, line and
    code.

    Of other files: what could not be read, and whose names clash with those of a file that is
    published.
    """
    newest = list(newest_of(proposal.items).values())
    own = [item for item in newest if item.provenance.locator.path in proposal.published]
    found = [
        *_file_findings(proposal),
        *_name_findings(proposal, newest),
        *_sql_findings(proposal, newest, own),
        *(one for item in own for one in _version_findings(proposal, item)),
    ]
    distinct = dict.fromkeys(found)
    return tuple(
        sorted(
            distinct, key=lambda one: (one.path, one.line or 0, one.severity, one.code, one.message)
        )
    )


def newest_of(items: Iterable[ContextItem]) -> dict[Key, ContextItem]:
    """Return the newest version of each item, in the order in which the items first come."""
    groups: dict[Key, list[ContextItem]] = {}
    for item in items:
        groups.setdefault((item.scope.tenant or "", item.item_id), []).append(item)
    return {
        key: group[
            chain_order([(item.version, start_of(item), at) for at, item in enumerate(group)])[-1]
        ]
        for key, group in groups.items()
    }


def _finding(
    proposal: Proposal,
    item: ContextItem,
    code: FileCode | DefinitionCode,
    message: str,
    fix: str,
    severity: Literal["error", "warning"] = "error",
) -> DefinitionFinding:
    where = item.provenance.locator
    path = where.path or item.provenance.source_id
    return DefinitionFinding(
        severity=severity if path in proposal.published else "warning",
        code=code,
        path=path,
        line=where.line_start,
        item_id=item.item_id,
        message=message,
        fix=fix,
    )


def _file_findings(proposal: Proposal) -> Iterator[DefinitionFinding]:
    for error in proposal.errors:
        yield DefinitionFinding(
            severity="error" if error.path in proposal.published else "warning",
            code=error.code,
            path=error.path,
            line=error.line,
            message=error.message,
            fix=FIXES.get(error.code, ""),
        )
    failed = {error.path for error in proposal.errors}
    for file in proposal.files:
        if (
            file.path in proposal.published
            and file.path not in failed
            and file.status is not FileStatus.LOADED
        ):
            repeated = file.status is FileStatus.SKIPPED and "elsewhere" in (file.reason or "")
            if not repeated:
                yield DefinitionFinding(
                    # What replaces a file with definitions removes them, which a person confirms.
                    severity="error" if file.path in proposal.created else "warning",
                    code=DefinitionCode.NO_DEFINITIONS,
                    path=file.path,
                    message=file.reason or "the file has no definitions",
                    fix=(
                        "write metrics, semantic_models or semantic_model in a "
                        ".yaml, .yml or .json file"
                    ),
                )


# --- names


def _name_of(item: ContextItem) -> str:
    return item.item_id.partition("/")[2]


def _name_findings(
    proposal: Proposal, newest: Sequence[ContextItem]
) -> Iterator[DefinitionFinding]:
    metrics = [item for item in newest if item.kind is ItemKind.METRIC]
    for item in metrics:
        if item.provenance.locator.path in proposal.published and not _NAME.fullmatch(
            _name_of(item)
        ):
            message = (
                "the name has blanks or signs: expressions, questions and "
                "ids could not name the metric"
            )
            fix = (
                "use letters of any script, digits, _ . and -, and put the "
                "spelling people use into synonyms"
            )
            yield _finding(proposal, item, DefinitionCode.BAD_NAME, message, fix)
    yield from _duplicates(proposal)
    yield from _synonyms(proposal, metrics)


def _duplicates(proposal: Proposal) -> Iterator[DefinitionFinding]:
    """Yield names that two files, or two spellings, claim; versions of one name share a file."""
    first: dict[Key, ContextItem] = {}
    for item in proposal.items:
        if item.kind is not ItemKind.METRIC:
            continue
        known = first.setdefault((item.scope.tenant or "", same_name(_name_of(item))), item)
        elsewhere = known.provenance.locator.path != item.provenance.locator.path
        if elsewhere or known.item_id != item.item_id:
            told = item if item.provenance.locator.path in proposal.published else known
            other = known if told is item else item
            message = f"{other.item_id} is defined in {_place(other)} as well"
            fix = "keep all versions of a metric in one file, or give this one another name"
            yield _finding(proposal, told, DefinitionCode.DUPLICATE_NAME, message, fix)


def _place(item: ContextItem) -> str:
    where = item.provenance.locator
    return f"{where.path}:{where.line_start}" if where.line_start else str(where.path)


def _synonyms(proposal: Proposal, metrics: Sequence[ContextItem]) -> Iterator[DefinitionFinding]:
    named = {(item.scope.tenant, same_name(_name_of(item))): item for item in metrics}
    for item in metrics:
        for synonym in item.synonyms:
            other = named.get((item.scope.tenant, same_name(synonym)))
            if other is not None and other is not item:
                told = item if item.provenance.locator.path in proposal.published else other
                message = (
                    f"a synonym of {item.item_id} is the name of {other.item_id} ({_place(other)})"
                )
                fix = "remove the synonym, or rename one of the two"
                yield _finding(proposal, told, DefinitionCode.SYNONYM_TAKEN, message, fix)


# --- SQL


def _sql_findings(
    proposal: Proposal, newest: Sequence[ContextItem], own: Sequence[ContextItem]
) -> Iterator[DefinitionFinding]:
    models = {item.item_id: item for item in newest if item.kind is ItemKind.SCHEMA}
    metrics = [item for item in newest if item.kind is ItemKind.METRIC]
    unknown: set[tuple[str, str]] = set()
    checked = [item for item in own if item.kind is ItemKind.METRIC]
    for tenant in dict.fromkeys(item.scope.tenant for item in checked):
        names = metric_names(item for item in metrics if item.scope.tenant == tenant)
        around = Surroundings(proposal.record.tables.get(tenant or "", {}), models, names)
        for item in (item for item in checked if item.scope.tenant == tenant):
            path = item.provenance.locator.path or ""
            if not around.tables and (path, tenant or "") not in unknown:
                unknown.add((path, tenant or ""))
                yield _unchecked(proposal, item)
            for problem in check_sql(item, around):
                yield _of_problem(proposal, item, problem)


def _of_problem(proposal: Proposal, item: ContextItem, problem: Problem) -> DefinitionFinding:
    return _finding(proposal, item, problem.code, problem.message, problem.fix, problem.severity)


def _unchecked(proposal: Proposal, item: ContextItem) -> DefinitionFinding:
    message = (
        "tables and columns are not checked: no schema source of tenant "
        f"{item.scope.tenant!r} has been read"
    )
    fix = "add a source of kind schema_metadata or sql for this tenant, and run `ctx build`"
    found = _finding(proposal, item, DefinitionCode.NOT_CHECKED, message, fix, "warning")
    return found.model_copy(update={"line": None, "item_id": None})


# --- versions


def _version_findings(proposal: Proposal, item: ContextItem) -> Iterator[DefinitionFinding]:
    """Compare the newest version of a definition with what is live; `plan` has found what was
    reused.
    """
    if item.kind is not ItemKind.METRIC:
        return
    key = (item.scope.tenant or "", item.item_id)
    live, newest = proposal.record.current(key, proposal.now), proposal.record.newest(key)
    live = live or newest
    if live is None or live.version == item.version:
        return
    number, known = declared_version(item.version), declared_version(live.version)
    if known is not None and (number is None or number < known):
        shown = f"version {item.version}" if number is not None else "no version"
        message = f"{item.item_id} has {shown}, and version {live.version} is live"
        fix = f"give it a version above {live.version}"
        yield _finding(proposal, item, DefinitionCode.VERSION_NOT_NEWER, message, fix)
    elif _starts_before(item, live):
        message = (
            f"valid_from of {item.item_id} version {item.version} lies "
            f"before that of version {live.version}"
        )
        fix = f"write {live.valid_from:%Y-%m-%dT%H:%M:%SZ} or later"
        yield _finding(proposal, item, DefinitionCode.VALID_FROM_TOO_EARLY, message, fix)


def _starts_before(item: ContextItem, live: ContextItem) -> bool:
    return (
        item.valid_from is not None
        and live.valid_from is not None
        and item.valid_from < live.valid_from
    )
