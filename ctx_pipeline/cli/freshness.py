"""How fresh a project is, as people read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ctx_pipeline.cli.run import NO_SOURCES
from ctx_pipeline.cli.tables import Hint, moment, pin_words
from ctx_pipeline.cli.views import TEXT_CELLS, Block, Column, Grid, Words, number, waiting_words

if TYPE_CHECKING:
    from ctx_pipeline.building.alerts import Alert
    from ctx_pipeline.inspection.freshness import ProjectStatus


def status_view(status: ProjectStatus, hint: Hint) -> list[Block]:
    """Return how fresh a project is."""
    head = f"Project {status.home}"
    if status.artifact is None:
        head += f"\nNothing built yet: run `{hint('build')}`"
    else:
        head += (
            f"\nArtifact {status.artifact}, embedder {status.embedder}, "
            f"overlay {status.overlay_sequence}"
        )
    heads: list[Block] = [Words(head)]
    heads += [] if status.pin is None else [pin_words(status.pin, hint)]
    heads += waiting_words(status.waiting, hint("build"))
    if not status.sources:
        return [*heads, Words(NO_SOURCES)]
    withheld = any(source.withheld for source in status.sources)
    problems = any(source.problem for source in status.sources)
    rows = [
        (
            source.name,
            source.kind,
            source.state,
            moment(source.refreshed_at),
            number(source.items),
            *([number(source.withheld)] if withheld else []),
            number(source.failed_files),
            number(source.errors),
            *([source.problem] if problems else []),
        )
        for source in status.sources
    ]
    names = ("items", *(["withheld"] if withheld else []), "failed files", "errors")
    columns = (
        Column("source", style="cyan"),
        Column("kind"),
        Column("state"),
        Column("refreshed"),
        *(Column(name, right=True) for name in names),
        *([Column("problem", flexible=TEXT_CELLS)] if problems else []),
    )
    lost = [source.name for source in status.sources if source.withheld]
    words = [
        Words(f"Lost, and served until confirmed\n  {hint('retire', '--source', name)}")
        for name in lost[:1]
    ]
    failed = [alerts_grid(status.alerts)] if status.alerts else []
    return [*heads, Grid("Sources", columns, rows), *words, *failed]


def alerts_grid(alerts: Sequence[Alert]) -> Grid:
    """Return the newest failed runs."""
    columns = (
        Column("when"),
        Column("job"),
        Column("assets", flexible=TEXT_CELLS),
        Column("error", style="yellow"),
        Column("code"),
        Column("run"),
    )
    rows = [
        (
            moment(alert.at),
            alert.job,
            ", ".join(alert.assets),
            alert.error,
            alert.code,
            alert.run_id[:8],
        )
        for alert in alerts
    ]
    return Grid("Failed runs, newest first", columns, rows)
