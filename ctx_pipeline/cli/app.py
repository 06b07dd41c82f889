"""The command line `ctx`: each command calls one public function of the library.

Data goes to stdout, words for people and progress to stderr. Nothing heavy is imported before a
command runs.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated

import typer

from ctx_pipeline.cli import context as cli_context
from ctx_pipeline.cli import operate as cli_operate
from ctx_pipeline.cli import policy as cli_policy
from ctx_pipeline.cli import publish as cli_publish
from ctx_pipeline.cli import tools as cli_tools
from ctx_pipeline.cli.run import NO_SOURCES, Run, app, command, speak_utf8

DEMO_FOLDER = "ctx-demo"

config_app = typer.Typer(rich_markup_mode=None)
app.add_typer(config_app, name="config")
COMMANDS = (cli_context, cli_operate, cli_policy, cli_publish, cli_tools)
"""Modules whose import has registered their commands."""


@command(
    app, "ctx", example="ctx demo\nctx init my_context\nctx --home my_context build", group=True
)
def ctx(
    run: Run,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version of ctx-pipeline.")
    ] = False,
) -> None:
    """Build the context an agent sees: chosen, budgeted, permitted, reproducible.

    `ctx demo` shows everything on bundled data, offline.

    Exit codes: 0 fine, 1 internal, 2 invalid, 3 denied, 4 not found, 5 corrupt, 6 conflict, 7
    unavailable.
    """
    from ctx_pipeline import __version__
    from ctx_pipeline.errors import InvalidRequest

    if version and run.as_json:
        run.emit({"version": __version__})
    elif version:
        run.show(f"{__version__}\n")
    elif run.as_json:
        raise InvalidRequest(
            "no command was named", where="ctx", fix="see `ctx --help`", code="usage"
        )
    else:
        run.show(run.help() + "\n")


@command(app, "init", example="ctx init my_context --name shop")
def init(
    run: Run,
    target: Annotated[
        str | None, typer.Argument(metavar="DIR", help="Where to; default: --home, else here.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The project's name; default: the folder's.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that are in the way.")
    ] = False,
) -> None:
    """Write a new context project.

    It holds a commented ctx.toml and one small example of each kind of input.
    """
    from ctx_pipeline.cli.tables import made_view
    from ctx_pipeline.config.scaffold import init_project

    home = Path(target or run.home_flag or ".").expanduser().resolve()
    files = init_project(home, name=name, force=force)
    if run.as_json:
        run.emit({"home": home, "files": files})
    else:
        run.blocks(made_view(home, files, run.hinting(home)))


@command(
    app,
    "build",
    example="ctx build --strict\nctx build --select 'sources/handbook+' --json\n"
    "ctx build --partitions 2026-11-01..2026-11-30",
)
def build(
    run: Run,
    select: Annotated[
        str | None,
        typer.Option(
            metavar="SELECTION", help="Dagster asset selection, for example 'sources/handbook+'."
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Exit with 2 when a file could not be loaded, or nothing could."
        ),
    ] = False,
    partitions: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST..LAST", help="Build these partitions of partitioned assets instead."
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="With --partitions: also those built before.")
    ] = False,
) -> None:
    """Read the sources and publish what agents may be shown.

    What has not changed costs nothing. A file that cannot be loaded is reported, and everything
    else is built. With --partitions, build what is missing of a range, one run each; interrupted,
    the same command goes on.
    """
    from ctx_pipeline.cli.tables import build_view
    from ctx_pipeline.errors import InvalidRequest
    from ctx_pipeline.orchestration.build import build as build_project

    if partitions is not None:
        _build_partitions(run, partitions, select, again=again)
        return
    if again:
        raise InvalidRequest(
            "--again needs --partitions", where="--again", fix="name a range", code="usage"
        )
    report = build_project(run.home, select=select)
    if run.as_json:
        run.emit(report)
    else:
        run.blocks(build_view(report, run.hint))
    nothing = not report.sources and select is None
    if nothing:
        run.say(NO_SOURCES)
    if strict and nothing:
        raise typer.Exit(InvalidRequest.exit_code)
    if strict and report.errors:
        run.say(f"{len(report.errors)} files or lines were not loaded, and --strict was given")
        raise typer.Exit(InvalidRequest.exit_code)


def _build_partitions(run: Run, partitions: str, select: str | None, *, again: bool) -> None:
    from ctx_pipeline.cli.tables import backfill_view
    from ctx_pipeline.orchestration.backfill import build_partitions

    report = build_partitions(run.home, partitions, select, again=again)
    if run.as_json:
        run.emit(report)
    else:
        run.blocks(backfill_view(report))


@command(app, "status", example="ctx status --json")
def status(run: Run) -> None:
    """Show what is built and how fresh each source is."""
    from ctx_pipeline.cli.freshness import status_view

    with run.open() as project:
        found = project.status()
    if run.as_json:
        run.emit(found)
    else:
        run.blocks(status_view(found, run.hint))


@command(app, "demo", example="ctx demo\nctx demo /tmp/retailer --rows 50000 --json")
def demo(
    run: Run,
    target: Annotated[
        str | None,
        typer.Argument(metavar="DIR", help=f"Where to; default: --home, else ./{DEMO_FOLDER}."),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(metavar="N", help="Orders in the demo's warehouse; default: 1,000,000."),
    ] = None,
) -> None:
    """Create and build a demo retailer, and ask it two questions.

    One is in English, one in Chinese. Works offline. Where nothing has changed since
    the last time, it answers at once.
    """
    from ctx_pipeline.cli.tables import demo_view
    from ctx_pipeline.demo import DEFAULT_ROWS, create_demo
    from ctx_pipeline.demo.build import build_demo
    from ctx_pipeline.orchestration.build import build as build_project
    from ctx_pipeline.project import ContextProject

    made = create_demo(
        Path(target or run.home_flag or DEMO_FOLDER),
        rows=DEFAULT_ROWS if rows is None else rows,
        progress=run.progress(),
    )
    build_demo(made.home, build_project)
    snapshots: dict[str, str] = {}
    with ContextProject.open(made.home) as project:
        for language, question in made.questions.items():
            pack = cli_context.ask(project, question, at=made.clock)
            snapshots[language] = pack.snapshot_id
            if not run.as_json:
                title = f"“{question}” at {made.clock:%Y-%m-%dT%H:%M:%SZ}"
                cli_context.show_pack(
                    run, project, pack, None, title=title, hint=run.hinting(made.home)
                )
                run.show("\n")
    if run.as_json:
        run.emit({"home": made.home, "snapshots": snapshots})
    else:
        run.blocks(demo_view(made.home, snapshots, run.hinting(made.home)))


@command(app, "doctor", example="ctx doctor --json")
def doctor(run: Run) -> None:
    """Look project and machine over; each finding has its fix.

    Exits with 0 when no check fails, 5 when something is corrupt, 7 when something is missing.
    Changes nothing.
    """
    from ctx_pipeline.cli.tables import doctor_view
    from ctx_pipeline.orchestration.doctor import diagnose

    diagnosis = diagnose(run.home)
    if run.as_json:
        run.emit(diagnosis)
    else:
        run.blocks(doctor_view(diagnosis))
    if diagnosis.exit_code:
        raise typer.Exit(diagnosis.exit_code)


@command(app, "dev", example="ctx dev --port 3000")
def dev(
    run: Run,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", min=1, max=65535, help="Port to listen on; default: a free one."
        ),
    ] = None,
) -> None:
    """Run Dagster's web interface and daemon for this project.

    They run until interrupted.
    """
    from ctx_pipeline.orchestration.dev import dev as serve

    serve(run.home, host, port)


@command(config_app, "config", example="ctx config show --origin", group=True)
def config(
    run: Run,
    origin: Annotated[
        bool, typer.Option("--origin", help="Say where each setting comes from.")
    ] = False,
) -> None:
    """Show the settings in force, and where they come from.

    Flags win over CTX_* variables, these over ctx.toml, and that over defaults.
    """
    _show_config(run, origin=origin)


@command(config_app, "show", example="ctx config show --origin\nctx config show --json")
def config_show(
    run: Run,
    origin: Annotated[
        bool, typer.Option("--origin", help="Say where each setting comes from.")
    ] = False,
) -> None:
    """Show every setting.

    Secrets are masked. With --json, where each comes from is always there.
    """
    _show_config(run, origin=origin)


def _show_config(run: Run, *, origin: bool) -> None:
    from ctx_pipeline.cli.tables import config_view
    from ctx_pipeline.config.settings import load_config

    rows = load_config(run.home).rows()
    if run.as_json:
        run.emit(rows)
    else:
        run.blocks(config_view(rows, origin=origin))


def main() -> None:
    """Run the command line and exit."""
    # Imports make a million objects that stay. Looking through them for garbage every 700 new ones,
    # which is Python's default, takes an eighth of the CPU time of `ctx build`.
    gc.set_threshold(50_000, 20, 20)
    speak_utf8()
    app()
