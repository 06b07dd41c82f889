"""The commands that change what is served: retire an item, roll the index back."""

from __future__ import annotations

from typing import Annotated

import typer

from ctx_pipeline.cli_run import Run, app, command

index_app = typer.Typer(rich_markup_mode=None)
app.add_typer(index_app, name="index")


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
        str | None, typer.Option(metavar="NAME", help="Confirm that what this source lost is gone, instead.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Retire what the source lost; without it, only say what.")] = False,
    version: Annotated[str | None, typer.Option(metavar="V", help="One version. Default: all.")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Whose item. Default: your own tenant.")] = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; kept in the record.")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take the retirement of an item back.")] = False,
) -> None:
    """Take an item out at once, or confirm what a source has lost.

    It is hidden from the next request on, before any rebuild, and stays in the record. An item that a person retired
    comes back with --undo alone; one that its source lost comes back with its source.
    """
    from ctx_pipeline.cli_tables import retire_view
    from ctx_pipeline.errors import InvalidRequest
    from ctx_pipeline.pipeline import Pipeline
    from ctx_pipeline.retirement import restore_item, retire_item, retire_source

    if (item_id is None) == (source is None):
        raise InvalidRequest(
            "name an item or a source", where="ctx retire", fix="see `ctx retire --help`", code="usage"
        )
    if source is not None and (undo or version or tenant or reason):
        raise InvalidRequest(
            "--undo, --version, --tenant and --reason are of an item, not of a source",
            where="--source",
            fix="name the item, or leave them out",
            code="usage",
        )
    with Pipeline(run.home) as pipeline:
        if source is not None:
            report = retire_source(pipeline, source, confirmed=yes)
        elif undo:
            report = restore_item(pipeline, item_id or "", version=version, tenant=tenant, reason=reason or "")
        else:
            report = retire_item(pipeline, item_id or "", version=version, tenant=tenant, reason=reason or "")
    if run.as_json:
        run.emit(report)
    else:
        run.blocks(retire_view(report, run.hint))
