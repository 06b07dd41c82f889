"""How fresh a project is: what ops and agents read, from the same times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from glob import has_magic, iglob
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ctx_pipeline.building.alerts import Alert, newest_alerts
from ctx_pipeline.contracts import FileCode
from ctx_pipeline.index.artifact import Layout, read_pointer
from ctx_pipeline.index.history import built_generation, index_pin
from ctx_pipeline.security.visibility import ALWAYS, NEVER, Clock, micros, stale_codes

if TYPE_CHECKING:
    from ctx_pipeline.config.settings import LoadedConfig, SourceConfig
    from ctx_pipeline.contracts import FileError, IndexPin
    from ctx_pipeline.index.view import ServingView
    from ctx_pipeline.ledger import Ledger, SourceObservation

StaleItems = Mapping[str, tuple[int, int]]
"""By source: how many items are served, and how many of these are stale."""
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
    stale: int = 0
    """Items that packs call stale: each is as old as it says itself, or else as its source."""
    problem: str = ""
    """What is wrong, in words; empty when nothing is."""


@dataclass(frozen=True, slots=True)
class ProjectStatus:
    """A project at one moment."""

    home: str
    artifact: str | None
    """Content hash of the published artifact; None before the first build."""
    embedder: str | None
    overlay_sequence: int
    waiting: int
    """Item versions that are recorded and not built yet: until they are, the versions before them
    are served."""
    pin: IndexPin | None
    """What holds the pointer where it is; None when builds move it."""
    sources: tuple[SourceStatus, ...]
    alerts: tuple[Alert, ...] = ()
    """The newest failed runs, newest first."""


def _withheld(errors: Iterable[FileError]) -> int:
    return sum(error.items or 0 for error in errors if error.code is FileCode.SOURCE_SHRANK)


def stale_items(view: ServingView, refreshed: Mapping[str, datetime], at: datetime) -> StaleItems:
    """Return how many items of each source are served, and how many of these packs call stale at
    the clock.
    """
    import numpy as np

    reader, state, now = view.reader, view.state, micros(at)
    times = [
        micros(refreshed[f["name"]]) if f["name"] in refreshed else now for f in reader.sources
    ]
    windows = np.asarray([facts["fail_after"] for facts in reader.sources], np.int64)[reader.source]
    own = reader.verified_at
    verified = np.where(own > ALWAYS, own, np.asarray(times, np.int64)[reader.source])
    live = (state.valid_from <= now) & (state.valid_until > now) & (state.superseded_at > now)
    live &= (state.retired_at == NEVER) & (state.state == 0)
    stale = live & stale_codes(verified, windows, Clock(at=now))
    return {
        str(facts["name"]): (
            int(np.count_nonzero(live & (reader.source == number))),
            int(np.count_nonzero(stale & (reader.source == number))),
        )
        for number, facts in enumerate(reader.sources)
    }


def project_status(
    loaded: LoadedConfig, ledger: Ledger, at: datetime, stale: StaleItems | None = None
) -> ProjectStatus:
    """Return what is published and how old each source is at the clock.

    `stale` is what `stale_items` says of the published index; None where there is none to ask.
    """
    layout = Layout(loaded.home)
    pointer = read_pointer(layout)
    built = built_generation(layout)
    seen = ledger.sources()
    times = ledger.source_times()
    rows = [
        _source_status(
            source,
            loaded.home,
            seen.get(source.name),
            at,
            refreshed=times.get(source.name),
            stale=(stale or {}).get(source.name, (0, 0)),
        )
        for source in loaded.config.sources
    ]
    return ProjectStatus(
        home=str(loaded.home),
        artifact=None if pointer is None else pointer["content_hash"],
        embedder=None if pointer is None else pointer["generation"]["embedder"],
        overlay_sequence=ledger.overlay_sequence(),
        waiting=0 if built is None else ledger.created_after(built.store_sequence),
        pin=index_pin(layout),
        sources=tuple(rows),
        alerts=newest_alerts(loaded.home),
    )


def _source_status(
    source: SourceConfig,
    home: Path,
    last: SourceObservation | None,
    at: datetime,
    *,
    refreshed: datetime | None,
    stale: tuple[int, int],
) -> SourceStatus:
    found = list(_problems(source, home, last, at, refreshed=refreshed, stale=stale))
    states = [state for state, _ in found]
    state: FreshnessState = "unknown" if refreshed is None else "healthy"
    if states:
        state = "degraded" if "degraded" in states else "warning"
    return SourceStatus(
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
        stale=stale[1],
        problem="; ".join(words for _, words in found),
    )


def _problems(
    source: SourceConfig,
    home: Path,
    last: SourceObservation | None,
    at: datetime,
    *,
    refreshed: datetime | None,
    stale: tuple[int, int],
) -> Iterator[tuple[FreshnessState, str]]:
    """Yield what keeps a source from being healthy, each with the state that it is worth."""
    if is_gone(source, home):
        yield "degraded", "what its path names is not there"
    elif last is not None and last.status == "failed":
        code = f" ({last.errors[0].code.value})" if last.errors else ""
        yield "degraded", f"nothing could be read at the last reading{code}"
    if source.freshness is not None and refreshed is not None:
        age = at - refreshed
        if age > source.freshness.fail:
            yield "degraded", "not read within its window"
        elif age > source.freshness.warn:
            yield "warning", "its window runs out"
    live, old = stale
    if old:
        yield "degraded" if old == live else "warning", f"packs call {old} of {live} items stale"


def is_gone(source: SourceConfig, home: Path) -> bool:
    """Return whether a path on this disk names nothing now. Nothing is read, and no other machine
    is asked.
    """
    path = source.path
    if path is None or "://" in path or "\0" in path:
        return False
    place = home / path
    return not place.exists() and not (has_magic(path) and any(iglob(str(place), recursive=True)))
