"""The commands that look at tool definitions, and how their reports look to a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ctx_pipeline.cli.run import Run, app, command

if TYPE_CHECKING:
    from ctx_pipeline.cli.views import Block
    from ctx_pipeline.inspection.tools import ToolReport
    from ctx_pipeline.tools.drift import ToolDrift
    from ctx_pipeline.tools.findings import Severity, ToolFinding

tools_app = typer.Typer(rich_markup_mode=None)
app.add_typer(tools_app, name="tools")


@command(
    tools_app, "tools", example="ctx tools lint\nctx tools diff before.json after.json", group=True
)
def tools(run: Run) -> None:
    """Look at tool definitions before a model does.

    Without a command, check the tools of the project's own sources.
    """
    _lint(run, [], every=False, strict=False)


@command(
    tools_app,
    "lint",
    example="ctx tools lint\nctx tools lint github.json tools/ --strict\nctx tools lint - --json",
)
def tools_lint(
    run: Run,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE...]",
            help="Files or folders; - reads stdin. Default: the project's own sources.",
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="List also what could merely be better.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 2 for warnings, too.")
    ] = False,
) -> None:
    """Say what is wrong with tool definitions.

    Descriptions, schemas, annotations, names, overlap between tools, and what tries to steer the
    model. A file is a `tools/list` result, a list of MCP, OpenAI or Anthropic definitions, or one
    definition; each FILE is one server. Errors exit with 2.
    """
    _lint(run, files or [], every=every, strict=strict)


def _lint(run: Run, files: list[str], *, every: bool, strict: bool) -> None:
    from ctx_pipeline.errors import InvalidRequest
    from ctx_pipeline.inspection.tools import lint_files, lint_project

    report = lint_files(files) if files else lint_project(run.home)
    if run.as_json:
        run.emit(
            {
                "tools": report.tools,
                "servers": report.servers,
                "counts": {level: report.count(level) for level, _ in _LEVELS},
                "codes": report.codes,
                "findings": report.findings,
            }
        )
    else:
        run.blocks(lint_view(report, every=every))
    if report.count("error") or (strict and report.count("warn")):
        raise typer.Exit(InvalidRequest.exit_code)


@command(
    tools_app,
    "diff",
    example="ctx tools diff before.json after.json\nctx tools diff old/ new/ --strict --json",
)
def tools_diff(
    run: Run,
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="A file or folder of tools; - reads stdin.")
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The later one.")],
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 2 when calls that were right may fail.")
    ] = False,
) -> None:
    """Show what changed between two versions of a catalogue.

    A change breaks when a call that was right before may be wrong now. A description that changed
    while the parameters did not is marked: this is how a server that turned bad looks.
    """
    from ctx_pipeline.errors import InvalidRequest
    from ctx_pipeline.inspection.tools import diff_files

    drift = diff_files(old, new)
    if run.as_json:
        run.emit(drift)
    else:
        run.blocks(drift_view(drift))
    if strict and drift.breaking:
        raise typer.Exit(InvalidRequest.exit_code)


def lint_view(report: ToolReport, *, every: bool) -> list[Block]:
    """Return what was found, worst first; what could merely be better is
    counted, unless `every`.
    """
    from ctx_pipeline.cli.views import Words, cell

    shown = [finding for finding in report.findings if every or finding.severity != "info"]
    blocks: list[Block] = []
    for finding in shown:
        lines = f"{finding.severity} {_named(finding)}: {finding.code}, {cell(finding.message)}"
        if finding.others:
            lines += f"\n  with {', '.join(map(cell, finding.others))}"
        lines += f"\n  in:  {cell(finding.where)}\n  fix: {finding.fix}"
        blocks.append(Words(lines, {"error": "red", "warn": "yellow"}.get(finding.severity, "dim")))
    counts = ", ".join(_counted(report.count(level), word) for level, word in _LEVELS)
    servers = ", ".join(map(cell, report.servers)) or "none"
    words = f"{_counted(report.tools, 'tool')} of {servers}: {counts}"
    if not every and report.count("info"):
        words += "\nRemarks are listed with --all"
    return [*blocks, Words(words)]


_LEVELS: tuple[tuple[Severity, str], ...] = (
    ("error", "error"),
    ("warn", "warning"),
    ("info", "remark"),
)


def _named(finding: ToolFinding) -> str:
    from ctx_pipeline.cli.views import cell

    return cell(finding.tool) if finding.tool else "a tool without a name"


def drift_view(drift: ToolDrift) -> list[Block]:
    """Return what changed, what breaks first."""
    from ctx_pipeline.cli.views import Words, cell

    blocks: list[Block] = []
    for change in sorted(drift.changed, key=lambda change: not change.breaking):
        marks = [
            word
            for word, is_so in (("breaking", change.breaking), ("reworded", change.reworded))
            if is_so
        ]
        head = f"{cell(change.tool)}: {', '.join(change.what)}" + (
            f" ({', '.join(marks)})" if marks else ""
        )
        style = "red" if change.breaking else "yellow" if change.reworded else ""
        blocks.append(Words("\n  ".join([head, *map(cell, change.details)]), style))
    lists = (("Added", drift.added), ("Removed", drift.removed))
    blocks += [Words(f"{word}: {', '.join(map(cell, names))}") for word, names in lists if names]
    if drift.renamed:
        blocks.append(
            Words(
                "Renamed: " + ", ".join(f"{cell(old)} -> {cell(new)}" for old, new in drift.renamed)
            )
        )
    if not blocks:
        return [Words("Both have the same tools")]
    return [
        *blocks,
        Words("Calls that were right before may fail" if drift.breaking else "No call breaks"),
    ]


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
