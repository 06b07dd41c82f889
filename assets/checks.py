"""The checks of the assets: the library audits what was staged or read, and this shows what it found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from ctx_pipeline.assets.metadata import is_open
from ctx_pipeline.building.checks import (
    DEFINITIONS_ARE_VALID,
    EVERY_FILE_LOADED,
    NOTHING_VANISHED,
    SCHEMA_IS_STABLE,
    STAGE_CHECKS,
    TOOL_TEXTS_ARE_STABLE,
    TOOLS_ARE_SOUND,
    VOLUME_IS_USUAL,
    Check,
    Finding,
)
from ctx_pipeline.building.source_audit import (
    NAMED,
    live_tools,
    schema_is_stable,
    tool_texts_are_stable,
    tools_are_sound,
    volume_is_usual,
)
from ctx_pipeline.building.stage_audit import audit_stage
from ctx_pipeline.contracts import SourceKind
from ctx_pipeline.text import reference
from ctx_pipeline.tools import diff

if TYPE_CHECKING:
    from ctx_pipeline.building.pipeline import Pipeline
    from ctx_pipeline.config.settings import SourceConfig
    from ctx_pipeline.contracts import SourceReport
    from ctx_pipeline.tools.findings import LintTool
    from ctx_pipeline.workspace import Workspace

READINGS = 10
"""Earlier readings of a source that say how much usually changes."""

SOURCE_CHECKS = (EVERY_FILE_LOADED, NOTHING_VANISHED, SCHEMA_IS_STABLE, VOLUME_IS_USUAL)
KIND_CHECKS: Mapping[SourceKind, tuple[Check, ...]] = {
    SourceKind.SEMANTIC_REGISTRY: (DEFINITIONS_ARE_VALID,),
    SourceKind.TOOLS: (TOOLS_ARE_SOUND, TOOL_TEXTS_ARE_STABLE),
}
"""What is checked of sources of one kind beside `SOURCE_CHECKS`."""


def stage_check_specs(stage: str, key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """Return the checks of a stage. One that blocks and fails keeps the artifact that is served."""
    return [_spec(check, key) for check in STAGE_CHECKS.get(stage, ())]


def source_check_specs(source: SourceConfig, key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """Return the checks of a source: those of every one, and those of its kind."""
    return [_spec(check, key) for check in (*SOURCE_CHECKS, *KIND_CHECKS.get(source.kind, ()))]


def tools_in_use(source: SourceConfig, workspace: Workspace) -> tuple[LintTool, ...]:
    """Return the tools of a source as the record has them; none for another kind of source."""
    if source.kind is not SourceKind.TOOLS:
        return ()
    return live_tools(source.name, workspace.store, workspace.ledger)


def tool_check_results(
    source: SourceConfig, workspace: Workspace, before: Sequence[LintTool]
) -> tuple[list[dg.AssetCheckResult], dict[str, Any]]:
    """Check the tools of a source that has been read, and say how they differ from those `before` it, for its event."""
    if source.kind is not SourceKind.TOOLS:
        return [], {}
    now = tools_in_use(source, workspace)
    drift = diff(before, now)
    named, lists = (
        is_open(source),
        {
            "added": drift.added,
            "removed": drift.removed,
            "renamed": tuple(f"{old} -> {new}" for old, new in drift.renamed),
            "breaking": tuple(change.tool for change in drift.changed if change.breaking),
            "reworded": tuple(change.tool for change in drift.changed if change.reworded),
        },
    )
    counts = {f"tools_{name}": len(names) for name, names in lists.items()}
    told = {name: list(names[:NAMED]) for name, names in lists.items() if names and named}
    shown = {"tool_drift": dg.MetadataValue.json(told)} if told else {}
    results = _results((tools_are_sound(now), tool_texts_are_stable(drift)), named=named)
    return results, {**counts, "tools_changed": len(drift.changed), **shown}


def _spec(check: Check, key: dg.AssetKey) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(
        check.name, asset=key, blocking=check.blocking, description=check.description
    )


def stage_check_results(stage: str, pipeline: Pipeline) -> list[dg.AssetCheckResult]:
    """Audit what a stage has just written."""
    return _results(audit_stage(pipeline.workspace, pipeline.generation, stage), named=False)


def source_check_results(
    source: SourceConfig,
    workspace: Workspace,
    report: SourceReport,
    before: int,
    past: Sequence[int],
) -> list[dg.AssetCheckResult]:
    """Say how a source was read, and compare that with the readings before.

    `before` is the store's last sequence before the reading. What vanished is an error that stops
    the run before the stages; what is served stays as it is until the next one.
    """
    changed, withheld = report.added + report.retired, report.withheld
    return _results(
        (
            EVERY_FILE_LOADED.found(not report.errors, {"errors": len(report.errors)}),
            NOTHING_VANISHED.found(not withheld, {"withheld": withheld, "items": report.items}),
            schema_is_stable(workspace.store, report.name, before),
            volume_is_usual(changed, report.items, past),
        ),
        named=is_open(source),
    )


def past_changes(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[int]:
    """Return how many items each earlier reading of a source added and lost, from its materialisations."""
    found: list[int] = []
    for record in instance.fetch_materializations(key, limit=READINGS).records:
        event = record.asset_materialization
        if event is not None:
            values = (event.metadata.get(name) for name in ("added", "retired"))
            found.append(sum(_number(value) for value in values))
    return found


def _number(value: dg.MetadataValue[Any] | None) -> int:
    return value.value if value is not None and isinstance(value.value, int) else 0


def _results(findings: Iterable[Finding], *, named: bool) -> list[dg.AssetCheckResult]:
    """Show what was found; unless `named`, samples by their hashes: not everybody may know what they name."""
    return [
        dg.AssetCheckResult(
            check_name=finding.check,
            passed=finding.passed,
            severity=dg.AssetCheckSeverity.ERROR
            if finding.blocking
            else dg.AssetCheckSeverity.WARN,
            description=None if finding.passed else _in_words(finding),
            metadata={
                **finding.counts,
                **(
                    {"samples": dg.MetadataValue.json(_samples(finding, named))}
                    if finding.samples
                    else {}
                ),
            },
        )
        for finding in findings
    ]


def _samples(finding: Finding, named: bool) -> list[str]:
    return [sample if named else reference(sample) for sample in finding.samples]


def _in_words(finding: Finding) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in finding.counts.items())
