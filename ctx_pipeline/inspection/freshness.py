"""How fresh a project is: what ops and agents read, from the same times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from ctx_pipeline.building.alerts import Alert, newest_alerts
from ctx_pipeline.contracts import FileCode
from ctx_pipeline.index.artifact import Layout, read_pointer
from ctx_pipeline.index.history import index_pin

if TYPE_CHECKING:
    from ctx_pipeline.config.settings import LoadedConfig
    from ctx_pipeline.contracts import FileError, IndexPin
    from ctx_pipeline.ledger import Ledger

FreshnessState = Literal["healthy", "warning", "degraded", "unknown"]
"""The words of the asset graph's freshness states."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source as it was last read."""

    name: str
    kind: str
    state: FreshnessState
    refreshed_at: datetime | None
    items: int
    withheld: int
    """Items that the source seems to have lost, served until a person confirms it."""
    failed_files: int
    errors: int


@dataclass(frozen=True, slots=True)
class ProjectStatus:
    """A project at one moment."""

    home: str
    artifact: str | None
    """Content hash of the published artifact; None before the first build."""
    embedder: str | None
    overlay_sequence: int
    pin: IndexPin | None
    """What holds the pointer where it is; None when builds move it."""
    sources: tuple[SourceStatus, ...]
    alerts: tuple[Alert, ...] = ()
    """The newest failed runs, newest first."""


def _withheld(errors: Iterable[FileError]) -> int:
    return sum(error.items or 0 for error in errors if error.code is FileCode.SOURCE_SHRANK)


def project_status(loaded: LoadedConfig, ledger: Ledger, at: datetime) -> ProjectStatus:
    """Return what is published and how old each source is at the clock."""
    layout = Layout(loaded.home)
    pointer = read_pointer(layout)
    seen = ledger.sources()
    times = ledger.source_times()
    rows: list[SourceStatus] = []
    for source in loaded.config.sources:
        last = seen.get(source.name)
        refreshed = times.get(source.name)
        window = source.freshness
        state: FreshnessState = "unknown"
        if refreshed is not None and window is not None:
            age = at - refreshed
            state = (
                "degraded" if age > window.fail else "warning" if age > window.warn else "healthy"
            )
        elif refreshed is not None:
            state = "healthy"
        rows.append(
            SourceStatus(
                name=source.name,
                kind=source.kind.value,
                state=state,
                refreshed_at=refreshed,
                items=0 if last is None else last.items,
                withheld=0 if last is None else _withheld(last.errors),
                failed_files=0
                if last is None
                else sum(1 for file in last.files if file.status.value == "failed"),
                errors=0 if last is None else len(last.errors),
            )
        )
    return ProjectStatus(
        home=str(loaded.home),
        artifact=None if pointer is None else pointer["content_hash"],
        embedder=None if pointer is None else pointer["generation"]["embedder"],
        overlay_sequence=ledger.overlay_sequence(),
        pin=index_pin(layout),
        sources=tuple(rows),
        alerts=newest_alerts(loaded.home),
    )
