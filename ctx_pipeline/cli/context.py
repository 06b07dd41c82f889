"""The commands that ask for context and look into it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ctx_pipeline.cli.choices import FORMATS, KINDS, LEVELS, one_of
from ctx_pipeline.cli.request_flags import RequestFlags
from ctx_pipeline.cli.run import NO_SOURCES, Run, app, command

if TYPE_CHECKING:
    from ctx_pipeline.contracts import ContextPack, Identity
    from ctx_pipeline.project import ContextProject

MAX_NUMBER = 2**63 - 1
"""Largest number that a ledger gives out."""
MAX_ROWS = 1_000_000

SnapshotId = Annotated[
    str, typer.Argument(metavar="ID", help="A snapshot's id, as `ctx assemble` prints it.")
]
ItemId = Annotated[
    str, typer.Argument(metavar="ITEM", help="An item's id, for example metric:registry/gmv.")
]
AtFlag = Annotated[
    str | None, typer.Option(metavar="TIME", help="The clock: rights and freshness. Default: now.")
]
AsOfFlag = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Valid time: which version of the world. Default: the clock."
    ),
]

items_app = typer.Typer(rich_markup_mode=None)
app.add_typer(items_app, name="items")


@command(
    app,
    "assemble",
    example='ctx assemble "why was order 42 refunded?" --budget 4000 --json\n'
    "ctx assemble --request request.json --format openai_chat\n"
    "echo 华东区上个月 GMV 同比 | ctx assemble - --at 2026-11-30T00:00:00Z",
    identity=True,
)
def assemble(
    run: Run,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="What the agent is to do; - reads stdin.")
    ] = None,
    request: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A whole ContextRequest as JSON; - reads stdin. Flags win over it."
        ),
    ] = None,
    *,
    flags: RequestFlags,
    at: AtFlag = None,
    as_of: AsOfFlag = None,
    durable: Annotated[
        bool, typer.Option("--durable", help="Return only when the snapshot is on disk.")
    ] = False,
    format: Annotated[
        str | None, one_of(FORMATS, help="Print the pack as a model takes it instead.")
    ] = None,
) -> None:
    """Assemble the context of one model call.

    The pack holds what the call is allowed, and selected, to see, with a reason for each item.
    """
    from ctx_pipeline.cli.request import build_request, parse_time, read_json_object

    clock, valid = parse_time(at, "--at"), parse_time(as_of, "--as-of")
    _one_stdin(text, request)
    stored = None if request is None else read_json_object(request, "--request")
    fields = {**flags.of_request(), "as_of": valid}
    task = {**flags.of_task(), "text": _text(text)}
    with run.open(asked=task["text"]) as project:
        if not project.config.sources:
            run.say(NO_SOURCES)
        asked = build_request(stored, fields, task, run.flags, project.config.identity_contract())
        pack = project.assemble(asked, at=clock, durable=durable)
        if format is not None:
            _print_rendering(run, pack, format)
        elif run.as_json:
            run.emit(pack)
        else:
            show_pack(run, project, pack, asked.identity, hint=run.hint)


def _one_stdin(text: str | None, request: str | None) -> None:
    from ctx_pipeline.errors import InvalidRequest

    if text == "-" and request == "-":
        raise InvalidRequest(
            "TEXT and --request both read stdin",
            where="-",
            fix="give one of them as a word or a file",
            code="usage",
        )


def _text(text: str | None) -> str | None:
    from ctx_pipeline.cli.request import STDIN, read_text

    if text != STDIN:
        return text
    # `echo` and here-documents end with a newline that nobody means.
    return read_text(STDIN, "TEXT").removesuffix("\n").removesuffix("\r")


def _print_rendering(run: Run, pack: ContextPack, format: str) -> None:
    rendering = pack.render(format)
    run.say(f"snapshot {pack.snapshot_id}")
    if isinstance(rendering, str) and not run.as_json:
        run.exact(rendering)
    else:
        run.emit(rendering)


def ask(project: ContextProject, question: str, *, at: datetime) -> ContextPack:
    """Assemble a pack for a plain question."""
    from ctx_pipeline.contracts import ContextRequest, Task

    return project.assemble(ContextRequest(task=Task(text=question)), at=at, durable=True)


def show_pack(
    run: Run,
    project: ContextProject,
    pack: ContextPack,
    identity: Identity | None,
    *,
    hint: Callable[..., str],
    title: str = "",
) -> None:
    """Print a pack with the reasons of its snapshot."""
    from ctx_pipeline.cli.views import pack_view
    from ctx_pipeline.project import SNAPSHOT_NOT_KEPT

    kept = not any(warning.code == SNAPSHOT_NOT_KEPT for warning in pack.warnings)
    traces = project.explain(pack.snapshot_id, identity=identity) if kept else ()
    run.blocks(pack_view(pack, traces, hint, title=title, kept=kept))


@command(
    app, "expand", example="ctx expand document:handbook/refunds.md#2 --level full", identity=True
)
def expand(
    run: Run,
    item_id: ItemId,
    level: Annotated[str, one_of(LEVELS, help="How much of it.")] = "full",
    at: AtFlag = None,
    as_of: AsOfFlag = None,
) -> None:
    """Print an item's block as a pack shows it.

    It is what a pointer or a compact rendition in a pack stands for.
    """
    from ctx_pipeline.cli.request import parse_time

    clock, valid = parse_time(at, "--at"), parse_time(as_of, "--as-of")
    with run.open() as project:
        item = project.expand(item_id, level, identity=run.identity(project), at=clock, as_of=valid)
    if run.as_json:
        run.emit(item)
    else:
        run.exact(item.text)


@command(app, "explain", example="ctx explain\nctx explain snap_0123 --json", identity=True)
def explain(
    run: Run,
    snapshot_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="A snapshot's id; none: lists them.")
    ] = None,
) -> None:
    """Show why each candidate of a call is in or out.

    Without an ID, list your latest snapshots.
    """
    from ctx_pipeline.cli.tables import explain_view, snapshots_view

    with run.open() as project:
        identity = run.identity(project)
        if snapshot_id is None:
            kept = project.snapshots(identity=identity)
            if run.as_json:
                run.emit(kept)
            else:
                run.blocks(snapshots_view(kept, run.hint))
            return
        traces = project.explain(snapshot_id, identity=identity)
    if run.as_json:
        run.emit(traces)
    else:
        run.blocks(explain_view(snapshot_id, traces, run.hint))


@command(app, "why", example="ctx why snap_0123 metric:registry/gmv", identity=True)
def why(run: Run, snapshot_id: SnapshotId, item_id: ItemId) -> None:
    """Show in full why one item is in or out of a call.

    Every version of it that was a candidate has its own table.
    """
    from ctx_pipeline.cli.tables import why_view

    with run.open() as project:
        traces = project.why(snapshot_id, item_id, identity=run.identity(project))
    if run.as_json:
        run.emit(traces)
    else:
        run.blocks(why_view(traces))


@command(
    app,
    "why-not",
    example="ctx why-not metric:registry/gmv --as-of 2025-06-30T00:00:00Z",
    identity=True,
)
def why_not(run: Run, item_id: ItemId, at: AtFlag = None, as_of: AsOfFlag = None) -> None:
    """Show whether you may see an item now, and what hides it.

    Each version is probed with your own rights; what you may not know of is not found.
    """
    from ctx_pipeline.cli.request import parse_time
    from ctx_pipeline.cli.tables import probes_view

    clock, valid = parse_time(at, "--at"), parse_time(as_of, "--as-of")
    with run.open() as project:
        probes = project.why_not(item_id, identity=run.identity(project), at=clock, as_of=valid)
    if run.as_json:
        run.emit(probes)
    else:
        run.blocks(probes_view(probes, run.hint))


@command(app, "replay", example="ctx replay snap_0123 > context.txt", identity=True)
def replay(run: Run, snapshot_id: SnapshotId) -> None:
    """Print the very text a call saw, byte for byte.

    It comes from the record, whatever has happened to the sources since. Rights are those of today.
    """
    with run.open() as project:
        pack = project.replay(snapshot_id, identity=run.identity(project))
    text = pack.render("text")
    if run.as_json:
        run.emit({"pack": pack, "text": text, "hash": pack.hash})
    else:
        run.exact(text)


@command(app, "diff", example="ctx diff snap_0123 snap_4567", identity=True)
def diff(
    run: Run,
    a: Annotated[str, typer.Argument(metavar="A", help="The earlier snapshot's id.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The later snapshot's id.")],
) -> None:
    """Show what changed from one snapshot to another.

    What entered, left, changed rendition or moved, each with its reason.
    """
    from ctx_pipeline.cli.tables import diff_view

    with run.open() as project:
        found = project.diff(a, b, identity=run.identity(project))
    if run.as_json:
        run.emit(found)
    else:
        run.blocks(diff_view(found))


@command(
    items_app, "items", example="ctx items --kind metric --limit 20", identity=True, group=True
)
def items(
    run: Run,
    kind: Annotated[
        str | None, one_of(KINDS, metavar="KIND", help="Only this kind, for example metric.")
    ] = None,
    source: Annotated[str | None, typer.Option(metavar="NAME", help="Only this source.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=MAX_ROWS, help="Most rows.")] = 100,
    at: AtFlag = None,
    as_of: AsOfFlag = None,
) -> None:
    """List the items you can see, by id."""
    from ctx_pipeline.cli.request import parse_time
    from ctx_pipeline.cli.tables import items_view

    clock, valid = parse_time(at, "--at"), parse_time(as_of, "--as-of")
    with run.open() as project:
        identity = run.identity(project)
        rows = project.items(
            identity=identity, kind=kind, source=source, limit=limit, at=clock, as_of=valid
        )
    if run.as_json:
        run.emit(rows)
    else:
        run.blocks(items_view(rows, limit, run.hint))


@command(items_app, "history", example="ctx items history metric:registry/gmv", identity=True)
def items_history(run: Run, item_id: ItemId) -> None:
    """Show the life of an item, all versions, in order."""
    from ctx_pipeline.cli.tables import history_view

    with run.open() as project:
        events = project.history(item_id, identity=run.identity(project))
    if run.as_json:
        run.emit(events)
    else:
        run.blocks(history_view(events))


@command(
    items_app,
    "recalls",
    example="ctx items recalls\nctx items recalls --since 120 --json",
    identity=True,
)
def items_recalls(
    run: Run,
    since: Annotated[
        int,
        typer.Option(metavar="N", min=0, max=MAX_NUMBER, help="Only notices after this number."),
    ] = 0,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=MAX_ROWS, help="Most notices.")
    ] = 100,
) -> None:
    """Show what your calls were shown and should no longer rely on.

    A version that was superseded, expired, retired, quarantined or too old is recalled from the
    snapshots that had it. Notices are written at the end of every `ctx build`, and by the job
    `record_evictions` while `ctx dev` or a daemon runs.
    """
    from ctx_pipeline.cli.tables import recalls_view

    with run.open() as project:
        notices = project.recalls(since=since, limit=limit, identity=run.identity(project))
    if run.as_json:
        run.emit(notices)
    else:
        run.blocks(recalls_view(notices, limit, run.hint))
