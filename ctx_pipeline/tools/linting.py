"""Find what is wrong with tool definitions before a model does. Pure: the same definitions give the
same findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic import ValidationError

from ctx_pipeline.tools.definition import ToolDefinition, flatten_tools
from ctx_pipeline.tools.findings import CODES, SEVERITIES, LintTool, ToolFinding
from ctx_pipeline.tools.lint_catalogue import catalogue_findings
from ctx_pipeline.tools.lint_safety import safety_findings
from ctx_pipeline.tools.lint_schema import schema_findings
from ctx_pipeline.tools.lint_words import annotation_findings, description_findings, name_findings

CHECKS = (
    name_findings,
    description_findings,
    annotation_findings,
    schema_findings,
    safety_findings,
)
"""What is looked at of each tool alone."""


def lint(
    tools: Iterable[Any], *, server: str = "", origin: str = "tools"
) -> tuple[ToolFinding, ...]:
    """Return what is wrong with tools, each alone and beside the others; the worst first, then by
    place.

    `tools` are definitions of any dialect, or catalogues of them (`tools/list` results,
    `functions`), as Python values, `ToolDefinition` or `LintTool`. What is no definition at all is
    a finding, too. `server` and `origin` name where they come from, where they do not say so.
    """
    good, found = lint_tools(tools, server=server, origin=origin)
    for tool in good:
        for check in CHECKS:
            found.extend(check(tool))
    found.extend(catalogue_findings(good))
    return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))


def lint_tools(
    tools: Iterable[Any], *, server: str = "", origin: str = "tools"
) -> tuple[list[LintTool], list[ToolFinding]]:
    """Return the definitions in a form to look at, and a finding for each value that is none."""
    good: list[LintTool] = []
    found: list[ToolFinding] = []
    for number, value in enumerate(_each(tools)):
        read = as_lint_tool(value, server=server, origin=f"{origin}[{number}]")
        if isinstance(read, LintTool):
            good.append(read)
        else:
            found.append(read)
    return good, found


def _each(tools: Iterable[Any]) -> Iterable[Any]:
    values: Iterable[Any] = [cast("Any", tools)] if isinstance(tools, Mapping) else tools
    for value in values:
        if isinstance(value, LintTool | ToolDefinition):
            yield value
        else:
            yield from flatten_tools(value)


def as_lint_tool(value: Any, *, server: str, origin: str) -> LintTool | ToolFinding:
    """Return a definition as it is looked at, or the finding that it is none."""
    if isinstance(value, LintTool):
        return value
    try:
        tool = value if isinstance(value, ToolDefinition) else ToolDefinition.model_validate(value)
    except ValidationError as invalid:
        name = cast("Mapping[str, Any]", value).get("name") if isinstance(value, Mapping) else None
        first = invalid.errors(include_url=False, include_input=False)[0]
        severity, fix = CODES["invalid_definition"]
        return ToolFinding(
            code="invalid_definition",
            severity=severity,
            tool=name if isinstance(name, str) else "",
            server=server,
            where=f"{origin}#{'/'.join(map(str, first['loc']))}",
            message=f"it is no tool definition: {first['msg'].lower()}",
            fix=fix,
        )
    raw = (
        cast("Mapping[str, Any]", value)
        if isinstance(value, Mapping)
        else tool.model_dump(exclude_none=True)
    )
    return LintTool(tool, raw, str(tool.declared.get("server") or server), origin)
