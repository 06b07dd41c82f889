"""The command that publishes definitions, and how its report looks to a person."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ctx_pipeline.cli.run import Run, app, command

if TYPE_CHECKING:
    from ctx_pipeline.cli.tables import Hint
    from ctx_pipeline.cli.views import Block
    from ctx_pipeline.contracts import DefinitionChange, DefinitionFinding, PublishReport
    from ctx_pipeline.orchestration.publish import File

STDIN = "-"
TAKEN_BACK = "taken back"
SHOWN_NAMES = 5
"""Dependents, snapshots, people and agents that are named on screen; `--json` has them all."""


@command(
    app,
    "publish",
    example="ctx publish semantic/metrics/gmv.yaml\nctx publish --check semantic/metrics/*.yaml\n"
    "git show HEAD:gmv.yaml | ctx publish - --as gmv.yaml --source registry --json",
)
def publish(
    run: Run,
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Files of definitions; - reads stdin.")
    ],
    source: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The semantic registry; default: the only one."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="NAME", help="The file's name in the registry; needed for stdin."
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only say what is wrong and what would change.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove definitions that the files no longer have.")
    ] = False,
    no_build: Annotated[
        bool,
        typer.Option("--no-build", help="Serve the old versions until a sensor or the next build."),
    ] = False,
) -> None:
    """Check metric definitions, build, and serve them all at once.

    Every process switches to what was built in one step. A file takes the place of the one of its
    name in the registry. When one has an error, nothing is written, and the exit code is 2. Until
    the command has built, and wherever it is killed, the versions before are served.
    """
    from ctx_pipeline.errors import InvalidRequest
    from ctx_pipeline.orchestration import publish as library

    given = _given(files, name)
    if check:
        report = library.check(run.home, given, source=source)
    else:
        report = library.publish(
            run.home, given, source=source, yes=yes, build=not no_build, progress=True
        )
    if run.as_json:
        run.emit(report)
    else:
        run.blocks(publish_view(report, run.hint, check=check))
    if report.errors:
        words = "1 error" if report.errors == 1 else f"{report.errors} errors"
        run.say(words if check else f"{words}; nothing was written")
        raise typer.Exit(InvalidRequest.exit_code)


def _given(files: list[str], name: str | None) -> list[File]:
    from ctx_pipeline.cli.request import MAX_INPUT_BYTES
    from ctx_pipeline.errors import InvalidRequest
    from ctx_pipeline.orchestration.publish import DefinitionFile

    if len(files) > 1 and (name is not None or STDIN in files):
        raise InvalidRequest(
            "standard input and --as go with one file",
            where="publish",
            fix="publish it alone",
            code="usage",
        )
    if files == [STDIN]:
        return [DefinitionFile(name, content=sys.stdin.buffer.read(MAX_INPUT_BYTES))]
    return [DefinitionFile(name, Path(file)) for file in files]


def publish_view(report: PublishReport, hint: Hint, *, check: bool) -> list[Block]:
    """Return what is wrong, what changes and whom it reaches."""
    from ctx_pipeline.cli.tables import artifact_words, pin_blocks
    from ctx_pipeline.cli.views import Words

    blocks: list[Block] = []
    if report.findings:
        lines = "\n".join(_finding(finding) for finding in report.findings)
        blocks.append(Words(f"Findings\n{lines}", "yellow" if not report.errors else "red"))
    changed = [change for change in report.changes if change.change != "unchanged"]
    if changed:
        blocks.append(_table(changed))
        blocks += [Words(text) for change in changed if (text := _details(change))]
    words = f"Registry {report.source}: {_counts(report)}\n{_outcome(report, check=check)}"
    if report.build is not None:
        words += f"\n{artifact_words(report.build)}"
    blocks.append(Words(words))
    if report.published and not report.served and report.build is None:
        blocks.append(Words(f"Warning: {report.note}\n  {hint('build')}", "yellow"))
    if report.build is not None:
        blocks += pin_blocks(report.build, hint)
    if report.published and changed:
        blocks.append(Words(f"Next\n  {hint('items', 'history', changed[0].item_id)}"))
    return blocks


def _outcome(report: PublishReport, *, check: bool) -> str:
    if check:
        return "Checked; nothing was written"
    from ctx_pipeline.cli.tables import moment

    if not report.published:
        return "Not published; nothing was written"
    ends = list(zip(report.superseded, report.superseded_from, strict=True))
    gone = [name for name, end in ends if end <= report.at]
    words = "Published" if report.served else "Published, not served yet"
    if gone:
        words += f"; {'replaced' if report.served else 'until then'}: {', '.join(gone)}"
    later = [f"{name} counts until {moment(end)}" for name, end in ends if end > report.at]
    note = [report.note] if report.note and report.served else []
    return "\n".join([words, *later, *note])


def _counts(report: PublishReport) -> str:
    back = sum(_kind(change) == TAKEN_BACK for change in report.changes)
    numbers = {
        "added": report.added,
        "changed": report.changed,
        "removed": report.removed - back,
        **({TAKEN_BACK: back} if back else {}),
        "unchanged": report.unchanged,
    }
    return ", ".join(f"{count} {kind}" for kind, count in numbers.items())


def _kind(change: DefinitionChange) -> str:
    """Return what becomes of a definition, in words; one that goes back to an earlier version is
    not removed.
    """
    return (
        TAKEN_BACK
        if change.change == "removed" and change.new_version is not None
        else change.change
    )


def _finding(finding: DefinitionFinding) -> str:
    from ctx_pipeline.cli.views import cell

    place = cell(finding.path) if finding.line is None else f"{cell(finding.path)}:{finding.line}"
    fix = f"\n    fix: {cell(finding.fix)}" if finding.fix else ""
    return f"  {finding.severity} {place} {finding.code.value}: {cell(finding.message)}{fix}"


def _table(changes: list[DefinitionChange]) -> Block:
    from ctx_pipeline.cli.tables import moment
    from ctx_pipeline.cli.views import ITEM_CELLS, TEXT_CELLS, Column, Grid, number, short

    columns = (
        Column("change", style="cyan"),
        Column("definition", flexible=ITEM_CELLS),
        Column("from"),
        Column("to"),
        Column("effective"),
        Column("fields", flexible=TEXT_CELLS),
        Column("dependents", right=True),
        Column("shown in", right=True),
    )
    rows = [
        (
            _kind(change),
            change.item_id,
            short(change.old_version or ""),
            short(change.new_version or ""),
            moment(change.effective_at),
            ", ".join(change.fields),
            number(len(change.dependents)),
            "" if change.exposure is None else number(change.exposure.snapshots),
        )
        for change in changes
    ]
    return Grid("Definitions", columns, rows)


def _details(change: DefinitionChange) -> str:
    """Return the difference of one definition and who is affected; nothing for one that nobody
    knows yet.
    """
    from ctx_pipeline.cli.views import cell

    lines = [f"  {cell(line)}" for line in change.diff.split("\n") if line]
    reach = [("dependents", change.dependents), ("same subject", change.same_subject)]
    if change.exposure is not None and change.exposure.snapshots:
        shown = change.exposure
        reach += [("shown in", shown.latest), ("to", shown.principals), ("by agents", shown.agents)]
    lines += [f"  {label}: {_names(names)}" for label, names in reach if names]
    return "\n".join((f"{change.item_id} ({_kind(change)})", *lines)) if lines else ""


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more
