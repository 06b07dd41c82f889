"""The check of a semantic registry's definitions that the graph shows: counts, codes and places, never content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from ctx_pipeline.assets.metadata import is_open, markdown_table
from ctx_pipeline.building.checks import DEFINITIONS_ARE_VALID
from ctx_pipeline.contracts import SourceKind
from ctx_pipeline.text import reference

if TYPE_CHECKING:
    from ctx_pipeline.config.settings import SourceConfig
    from ctx_pipeline.contracts import DefinitionFinding
    from ctx_pipeline.workspace import Workspace


def definition_check_results(
    source: SourceConfig, workspace: Workspace
) -> list[dg.AssetCheckResult]:
    """Check a semantic registry that has been read."""
    if source.kind is not SourceKind.SEMANTIC_REGISTRY:
        return []
    from ctx_pipeline.registry.review import review

    found = review(
        workspace.home,
        workspace.config,
        source,
        None,
        store=workspace.store,
        ledger=workspace.ledger,
        now=workspace.clock(),
    )
    errors = sum(finding.severity == "error" for finding in found.findings)
    return [
        dg.AssetCheckResult(
            check_name=DEFINITIONS_ARE_VALID.name,
            passed=not errors,
            severity=dg.AssetCheckSeverity.ERROR,
            metadata={
                "definitions": len(found.changes),
                "errors": errors,
                "warnings": len(found.findings) - errors,
                **(
                    {
                        "findings": dg.MetadataValue.md(
                            findings_table(found.findings, named=is_open(source))
                        )
                    }
                    if found.findings
                    else {}
                ),
            },
        )
    ]


def findings_table(findings: tuple[DefinitionFinding, ...], *, named: bool) -> str:
    """Return findings as a Markdown table without their messages, which name what definitions say."""
    rows: list[tuple[Any, ...]] = [
        (
            finding.severity,
            finding.code.value,
            finding.path if named else reference(finding.path),
            finding.line,
        )
        for finding in sorted(findings, key=lambda finding: finding.severity)
    ]
    return markdown_table(("severity", "code", "file", "line"), rows)
