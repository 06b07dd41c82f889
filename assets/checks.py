"""The checks of the assets: the library audits what was staged or read, and this shows what it found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from ctx_pipeline.assets.metadata import is_open
from ctx_pipeline.building.audit import Finding
from ctx_pipeline.building.source_audit import (
    NAMED,
    live_tools,
    schema_is_stable,
    tool_texts_are_stable,
    tools_are_sound,
    volume_is_usual,
)
from ctx_pipeline.building.stage_audit import CHECKS, audit_stage
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

DESCRIPTIONS = {
    "one_row_per_version": "Every item version of a tenant is staged once.",
    "rows_match_the_store": "The rows are the item versions of the store less what was forgotten, counted anew.",
    "vectors_are_of_one_model": "Vectors are finite, of length 1, and those that the store has for their text.",
    "every_row_has_a_scope": "Every row has a tenant, a grant and a sensitivity; without them nobody sees it.",
    "withdrawn_rows_stay_out": "Rows are retired, quarantined or forgotten exactly when the record says so.",
    "only_current_versions_are_live": "Of each item the newest version that has begun is live, and no other.",
    "labels_are_within_scope": "Sampled rows are open to nobody to whom their item is closed.",
    "authority_is_within_policy": "Authority is 0 to 100, and no higher than the source's own.",
    "token_counts_are_exact": "Sampled token counts are what the tokenizer says of the staged text.",
    "schema_is_stable": "No table lost a column or changed a type, and right calls of a tool stay right.",
    "volume_is_usual": "The reading has not added and lost far more items than the ones before.",
    "tools_are_sound": "No tool's definition has an error that `ctx tools lint` finds.",
    "tool_texts_are_stable": "No text of a tool changed while its parameters stayed as they were.",
}
SOURCE_CHECKS = ("schema_is_stable", "volume_is_usual")
TOOL_CHECKS = ("tools_are_sound", "tool_texts_are_stable")
"""Checks of the sources of kind `tools` alone."""
NEVER_BLOCKING = frozenset({*SOURCE_CHECKS, *TOOL_CHECKS, "every_row_has_a_scope"})


def stage_check_specs(stage: str, key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """Return the checks of a stage asset. One that blocks and fails keeps the artifact that is served."""
    return [_spec(name, key) for name in CHECKS.get(stage, ())]


def source_check_specs(key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """Return what is checked of how a source has changed; both only warn."""
    return [_spec(name, key) for name in SOURCE_CHECKS]


def tool_check_specs(source: SourceConfig, key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """Return what is checked of tools; both only warn. Nothing for another kind of source."""
    return [_spec(name, key) for name in TOOL_CHECKS] if source.kind is SourceKind.TOOLS else []


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


def _spec(name: str, key: dg.AssetKey) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(
        name, asset=key, blocking=name not in NEVER_BLOCKING, description=DESCRIPTIONS[name]
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
    """Compare a reading with the ones before it. `before` is the store's last sequence before the reading."""
    changed = report.added + report.retired
    return _results(
        (
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
