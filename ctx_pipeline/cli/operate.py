"""The commands that change what is served: retire an item, roll the index back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ctx_pipeline.cli.run import FlagGroup, Run, app, command
from ctx_pipeline.errors import InvalidRequest

if TYPE_CHECKING:
    from ctx_pipeline.contracts import RetireReport

index_app = typer.Typer(rich_markup_mode=None)
app.add_typer(index_app, name="index")


@dataclass(frozen=True, slots=True)
class RetireFlags(FlagGroup):
    """What is said of an item that is retired."""

    version: Annotated[str | None, typer.Option(metavar="V", help="One version. Default: all.")] = (
        None
    )
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose item. Default: your own tenant.")
    ] = None
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; kept in the record.")] = (
        None
    )
    undo: Annotated[bool, typer.Option("--undo", help="Take the retirement of an item back.")] = (
        False
    )


@command(
    app,
    "retire",
    example='ctx retire document:handbook/old.md#1 --reason "replaced by the 2026 edition"\n'
    "ctx retire --source handbook --yes\n"
    "ctx retire --undo document:handbook/old.md#1",
)
def retire(
    run: Run,
    item_id: Annotated[str | None, typer.Argument(metavar="ITEM", help="An item's id.")] = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Confirm that what this source lost is gone, instead."),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", help="With --source: retire what it lost; without --yes only say what."
        ),
    ] = False,
    *,
    flags: RetireFlags,
) -> None:
    """Take an item out at once, or confirm what a source has lost.

    It is hidden from the next request on, before any rebuild, and stays in the record. An item that
    a person retired comes back with --undo alone; one that its source lost comes back with its
    source.
    """
    from ctx_pipeline.cli.tables import retire_view

    if (item_id is None) == (source is None):
        raise InvalidRequest(
            "name an item or a source",
            where="ctx retire",
            fix="see `ctx retire --help`",
            code="usage",
        )
    if source is not None:
        report = _retire_source(run, source, flags, confirmed=yes)
    else:
        report = _retire_item(run, item_id or "", flags)
    if run.as_json:
        run.emit(report)
    else:
        run.blocks(retire_view(report, run.hint, tenant=flags.tenant))


def _retire_source(run: Run, source: str, flags: RetireFlags, *, confirmed: bool) -> RetireReport:
    from ctx_pipeline.lifecycle.retire import retire_source
    from ctx_pipeline.workspace import Workspace

    if flags != RetireFlags():
        raise InvalidRequest(
            "--undo, --version, --tenant and --reason are of an item, not of a source",
            where="--source",
            fix="name the item, or leave them out",
            code="usage",
        )
    with Workspace.open(run.home) as workspace:
        return retire_source(workspace, source, confirmed=confirmed)


def _retire_item(run: Run, item_id: str, flags: RetireFlags) -> RetireReport:
    from ctx_pipeline.lifecycle.retire import restore_item, retire_item
    from ctx_pipeline.workspace import Workspace

    act = restore_item if flags.undo else retire_item
    with Workspace.open(run.home) as workspace:
        return act(
            workspace,
            item_id,
            version=flags.version,
            tenant=flags.tenant,
            reason=flags.reason or "",
        )


@command(
    index_app,
    "index",
    example="ctx index list\nctx index rollback --reason 'bad prices'",
    group=True,
)
def index(run: Run) -> None:
    """List the serving artifacts that are kept, and go back to one.

    An artifact is what a build publishes; `artifact.keep` says how many stay.
    """
    _list_artifacts(run)


@command(index_app, "list", example="ctx index list --json")
def index_list(run: Run) -> None:
    """List the artifacts that are kept, the last built first."""
    _list_artifacts(run)


def _list_artifacts(run: Run) -> None:
    from ctx_pipeline.cli.tables import artifacts_view
    from ctx_pipeline.config.settings import load_config
    from ctx_pipeline.index.artifact import Layout
    from ctx_pipeline.index.history import index_pin, kept_artifacts

    layout = Layout(load_config(run.home).home)
    kept, pin = kept_artifacts(layout), index_pin(layout)
    if run.as_json:
        run.emit({"artifacts": kept, "pin": pin})
    else:
        run.blocks(artifacts_view(kept, pin, run.hint))


@command(
    index_app,
    "rollback",
    example="ctx index rollback --reason 'bad prices'\nctx index rollback 76aab3aa",
)
def index_rollback(
    run: Run,
    artifact: Annotated[
        str | None,
        typer.Argument(
            metavar="ARTIFACT", help="Its hash, or the beginning; default: the one before."
        ),
    ] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; `ctx status` says it.")] = "",
) -> None:
    """Serve an artifact that was built before, and hold it.

    Builds go on and keep what they make; it is served after `ctx index unpin`. What was retired,
    forgotten or revoked since stays so. An artifact built under other settings, or one that shows
    what has been closed since, is refused.
    """
    from ctx_pipeline.building.generation import current_generation
    from ctx_pipeline.cli.tables import index_change_view
    from ctx_pipeline.index.history import roll_back
    from ctx_pipeline.workspace import Workspace

    with Workspace.open(run.home) as workspace:
        today, now = current_generation(workspace), workspace.clock()
        change = roll_back(
            workspace.layout, today, workspace.store, at=now, artifact=artifact, reason=reason
        )
    if run.as_json:
        run.emit(change)
    else:
        run.blocks(index_change_view(change, run.hint))


@command(index_app, "unpin", example="ctx index unpin")
def index_unpin(run: Run) -> None:
    """Let builds publish again.

    The newest artifact that they made meanwhile is served at once.
    """
    from ctx_pipeline.cli.tables import index_change_view
    from ctx_pipeline.config.settings import load_config
    from ctx_pipeline.index.artifact import Layout
    from ctx_pipeline.index.history import unpin

    change = unpin(Layout(load_config(run.home).home))
    if run.as_json:
        run.emit(change)
    else:
        run.blocks(index_change_view(change, run.hint))
