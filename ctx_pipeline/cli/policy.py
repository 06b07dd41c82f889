"""The commands that look at policies, and how their reports look to a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ctx_pipeline.cli.choices import RISKS, one_of
from ctx_pipeline.cli.run import Run, app, command

if TYPE_CHECKING:
    from ctx_pipeline.cli.views import Block
    from ctx_pipeline.policy.lint import PolicyLint
    from ctx_pipeline.policy.review import PolicyDiff, PolicyView, Value

policy_app = typer.Typer(rich_markup_mode=None)
app.add_typer(policy_app, name="policy")
NamedPolicy = "A file, the name of a profile, 'default', or 'current' for the project's own"


@command(
    policy_app,
    "policy",
    example="ctx policy show --phase edit\nctx policy lint policies/team.toml",
    group=True,
)
def policy(run: Run) -> None:
    """Look at how packs are made: check, show and compare policies.

    Without a command, show the project's policy where nothing special is asked.
    """
    _show(run, {})


@command(policy_app, "lint", example="ctx policy lint\nctx policy lint policies/team.toml --json")
def policy_lint(
    run: Run,
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help=f"{NamedPolicy}.", show_default=False)
    ] = "current",
) -> None:
    """Say what is wrong with a policy before a call finds it.

    Unknown keys, rules that never count, shares and weights that cannot be meant, types that no
    source gives, and checks that are missing at high risk. Errors exit with 2.
    """
    from ctx_pipeline.errors import InvalidRequest
    from ctx_pipeline.policy.lint import lint_policy

    found = lint_policy(file, run.home)
    if run.as_json:
        run.emit(found)
    else:
        run.blocks(lint_view(found))
    if found.errors:
        raise typer.Exit(InvalidRequest.exit_code)


@command(
    policy_app,
    "show",
    example="ctx policy show --task data --phase query --risk high\nctx policy show --json",
)
def policy_show(
    run: Run,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="Type of the task.")] = None,
    phase: Annotated[
        str | None, typer.Option(metavar="NAME", help="Phase of the agent's work.")
    ] = None,
    role: Annotated[str | None, typer.Option(metavar="NAME", help="Role of the agent.")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Model profile.")] = None,
    risk: Annotated[str | None, one_of(RISKS, help="How much is at stake.")] = None,
) -> None:
    """Show what the project's policy says in one case.

    Each value comes with the rule and the line that it is from. What is not given matches no rule
    that names it.
    """
    _show(run, {"task_type": task, "phase": phase, "role": role, "model": model, "risk": risk})


def _show(run: Run, case: dict[str, str | None]) -> None:
    from ctx_pipeline.policy.review import show_policy

    found = show_policy(run.home, case)
    if run.as_json:
        run.emit(found)
    else:
        run.blocks(show_view(found))


@command(
    policy_app,
    "diff",
    example="ctx policy diff default current\nctx policy diff data policies/team.toml --json",
)
def policy_diff(
    run: Run,
    a: Annotated[str, typer.Argument(metavar="A", help=f"{NamedPolicy}.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The other one, named the same way.")],
) -> None:
    """Show what changes from one policy to another, case by case.

    A case lists what no more general one says already; a value that is the same before and after
    does not change there.
    """
    from ctx_pipeline.policy.review import diff_policies

    found = diff_policies(a, b, run.home)
    if run.as_json:
        run.emit(found)
    else:
        run.blocks(diff_view(found))


def lint_view(found: PolicyLint) -> list[Block]:
    """Return what was found, worst first."""
    from ctx_pipeline.cli.views import Words, cell

    lines: list[str] = []
    for finding in sorted(found.findings, key=lambda finding: finding.level != "error"):
        lines.append(
            f"  {finding.level} {cell(finding.where)} {finding.code}: {cell(finding.message)}"
        )
        if finding.fix:
            lines.append(f"    fix: {cell(finding.fix)}")
    warnings = len(found.findings) - found.errors
    named = cell(found.policy) + (
        f" ({cell(found.policy_version)})" if found.policy_version else ""
    )
    counts = f"Policy {named}: {_counted(found.errors, 'error')}, {_counted(warnings, 'warning')}"
    shown: list[Block] = (
        [Words("\n".join(["Findings", *lines]), "red" if found.errors else "yellow")]
        if lines
        else []
    )
    return [*shown, Words(counts)]


def show_view(found: PolicyView) -> list[Block]:
    """Return a policy in one case as a table."""
    from ctx_pipeline.cli.views import TEXT_CELLS, Column, Grid, Words, cell

    rows = [(value.key, _words(value.value), value.origin) for value in found.values]
    columns = (
        Column("key", style="cyan"),
        Column("value", flexible=TEXT_CELLS),
        Column("origin", style="dim"),
    )
    rules = ", ".join(map(cell, found.rules)) or "none"
    words = f"Policy {cell(found.policy_version)}\ncase: {_case(found.case)}\nrules: {rules}"
    warnings: list[Block] = (
        [Words("\n".join(map(cell, found.warnings)), "yellow")] if found.warnings else []
    )
    return [Words(words), *warnings, Grid("", columns, rows)]


def diff_view(found: PolicyDiff) -> list[Block]:
    """Return what changes, one table for each case."""
    from ctx_pipeline.cli.views import TEXT_CELLS, Column, Grid, Words, cell

    columns = (
        Column("key", style="cyan"),
        Column("before", flexible=TEXT_CELLS),
        Column("after", flexible=TEXT_CELLS),
    )
    blocks: list[Block] = [Words(f"From {cell(found.a)} to {cell(found.b)}")]
    for case in found.cases:
        rows = [
            (change.key, _words(change.before), _words(change.after)) for change in case.changes
        ]
        blocks.append(Grid(_case(case.case), columns, rows))
    if not found.cases:
        blocks.append(Words("Both say the same in every case"))
    if found.truncated:
        blocks.append(Words("The rules name more combinations than are compared", "yellow"))
    return blocks


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _case(case: dict[str, str]) -> str:
    from ctx_pipeline.cli.views import cell

    return ", ".join(f"{key} {cell(value)}" for key, value in case.items()) or "any"


def _words(value: Value | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
