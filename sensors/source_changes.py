"""Read a source again as soon as it looks different, without waiting for its freshness window."""

# pyright: reportUnknownMemberType=false
# Dagster's annotations leave type parameters out.

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from ctx_pipeline.assets.jobs import BUILD_JOB
from ctx_pipeline.assets.sources import LOOK, source_key
from ctx_pipeline.resources import ContextProjectResource

if TYPE_CHECKING:
    from ctx_pipeline.config.settings import SourceConfig
    from ctx_pipeline.sources.fingerprint import Fingerprint
    from ctx_pipeline.workspace import Workspace

MINIMUM_INTERVAL_SECONDS = 30
SETTLED_SECONDS = 10
"""A file that was written to less long ago may still be written to: it has to look the same in two ticks."""
TICK_SECONDS = 30.0
"""Sources that a tick has not looked at by then are looked at first by the next one; Dagster ends a tick at 60 s."""
MAX_ATTEMPTS = 3
"""Runs that may fail for one look of a source before the sensor leaves it to the freshness window."""
TAG = "ctx/changed."
_TAG_NAME = re.compile(r"[A-Za-z0-9_.-]{1,55}")
"""What may stand after it: Dagster takes 63 such characters after the slash."""


@dataclass(slots=True)
class _Seen:
    """What the ticks so far have seen; losing it costs one tick."""

    looks: dict[str, str] = field(default_factory=dict[str, str])
    """Fingerprint of each source that did not look settled, at the last tick."""
    next: str = ""
    """The source to look at first."""


@dataclass(frozen=True, slots=True)
class _Change:
    source: str
    digest: str
    attempt: int


@dataclass(slots=True)
class _Tick:
    """What one tick found."""

    changed: list[_Change] = field(default_factory=list[_Change])
    unsettled: list[str] = field(default_factory=list[str])
    running: list[str] = field(default_factory=list[str])
    given_up: list[str] = field(default_factory=list[str])
    same: int = 0
    unknown: int = 0
    late: int = 0

    def words(self) -> str:
        """Say what was seen."""
        parts = [
            f"{self.same} sources look as they were read",
            f"{self.unknown} cannot be looked at and are left to their freshness"
            if self.unknown
            else "",
            f"still being written: {', '.join(self.unsettled)}" if self.unsettled else "",
            f"being read: {', '.join(self.running)}" if self.running else "",
            f"{MAX_ATTEMPTS} runs did not read: {', '.join(self.given_up)}"
            if self.given_up
            else "",
            f"{self.late} are looked at by the next tick" if self.late else "",
        ]
        return "; ".join(part for part in parts if part)


@dg.sensor(
    name="source_changes",
    job_name=BUILD_JOB,
    minimum_interval_seconds=MINIMUM_INTERVAL_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description=(
        "Looks every 30 seconds whether a source looks different from when it was last read: files by name, size and "
        "time, Git by its HEAD, databases by their file or their counters, object storage by its listing. Nothing is "
        "read. What changed, and has settled, is read by one run; `superseded_versions` then builds from it. Web "
        "pages, and sources that were never read, are left to their freshness."
    ),
)
def source_changes(
    context: dg.SensorEvaluationContext, ctx_project: ContextProjectResource
) -> dg.SensorResult | dg.SkipReason:
    """Request one run for the sources that changed."""
    if not (Path(ctx_project.home) / "ctx.toml").is_file():
        return dg.SkipReason("there is no context project here: set CTX_HOME")
    seen = _read_cursor(context.cursor)
    with ctx_project.workspace() as workspace:
        tick = _look(context.instance, workspace, seen)
    cursor = json.dumps(
        {"looks": seen.looks, "next": seen.next}, ensure_ascii=False, sort_keys=True
    )
    if not tick.changed:
        return dg.SensorResult(skip_reason=dg.SkipReason(tick.words()), cursor=cursor)
    context.log.info(
        f"changed: {', '.join(change.source for change in tick.changed)}; {tick.words()}"
    )
    return dg.SensorResult(run_requests=[_request(tick.changed)], cursor=cursor)


def _look(instance: dg.DagsterInstance, workspace: Workspace, seen: _Seen) -> _Tick:
    from ctx_pipeline.sources.fingerprint import source_fingerprint

    tick, started = _Tick(), time.monotonic()
    now = workspace.clock()
    sources = list(_from(workspace.config.sources, seen.next))
    seen.next = ""
    for number, source in enumerate(sources):
        if time.monotonic() - started > TICK_SECONDS:
            seen.next, tick.late = source.name, len(sources) - number
            break
        last = instance.get_latest_materialization_event(source_key(source.name))
        look = source_fingerprint(source, workspace.home)
        if last is None or last.asset_materialization is None or look is None:
            tick.unknown += 1
            continue
        read = last.asset_materialization.metadata.get(LOOK)
        if read is not None and read.value == look.digest:
            tick.same += 1
            seen.looks.pop(source.name, None)
        elif not _is_settled(look, now) and seen.looks.get(source.name) != look.digest:
            seen.looks[source.name] = look.digest
            tick.unsettled.append(source.name)
        else:
            _sort_in(tick, instance, source.name, look.digest)
    return tick


def _from(sources: Sequence[SourceConfig], first: str) -> Iterator[SourceConfig]:
    """Yield every source, beginning with the one of this name."""
    start = next((at for at, source in enumerate(sources) if source.name == first), 0)
    yield from (*sources[start:], *sources[:start])


def _is_settled(look: Fingerprint, now: datetime) -> bool:
    return look.newest is None or look.newest < (now.timestamp() - SETTLED_SECONDS) * 1e9


def _sort_in(tick: _Tick, instance: dg.DagsterInstance, source: str, digest: str) -> None:
    """Ask for a changed source to be read, unless a run is at it or enough runs have failed."""
    runs = instance.get_runs(dg.RunsFilter(tags={tag_of(source): digest}), limit=MAX_ATTEMPTS)
    if any(not run.is_finished for run in runs):
        tick.running.append(source)
    elif len(runs) >= MAX_ATTEMPTS:
        tick.given_up.append(source)
    else:
        tick.changed.append(_Change(source, digest, len(runs) + 1))


def tag_of(source: str) -> str:
    """Return the tag of runs that read a source because it changed."""
    from ctx_pipeline.text import short_hash

    return TAG + (source if _TAG_NAME.fullmatch(source) else short_hash(source, 32))


def _request(changes: Sequence[_Change]) -> dg.RunRequest:
    from ctx_pipeline.text import canonical_json, short_hash

    facts = sorted((change.source, change.digest, change.attempt) for change in changes)
    return dg.RunRequest(
        # The same changes at the same attempt are the same run, also when the cursor was lost.
        run_key=short_hash(canonical_json(facts), 32),
        tags={tag_of(change.source): change.digest for change in changes},
        # What is built from them follows by `superseded_versions`: one source that fails must not fail the stages.
        asset_selection=[source_key(change.source) for change in changes],
    )


def _read_cursor(cursor: str | None) -> _Seen:
    try:
        stored = json.loads(cursor or "{}")
        looks = {str(name): str(digest) for name, digest in stored.get("looks", {}).items()}
        return _Seen(looks, str(stored.get("next", "")))
    except (ValueError, AttributeError):
        return _Seen()
