"""Record in the lifecycle log which item versions the published artifact has superseded and no longer injects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctx_pipeline.contracts import Lifecycle, LifecycleEvent
from ctx_pipeline.errors import InvalidRequest
from ctx_pipeline.index.artifact import read_pointer, read_table
from ctx_pipeline.ledger.lifecycle import TRANSITIONS
from ctx_pipeline.security.visibility import ALWAYS, from_micros, micros

if TYPE_CHECKING:
    from datetime import datetime

    from ctx_pipeline.pipeline import Pipeline

ACTOR = "superseded_versions"
DEFAULT_LIMIT = 1_000
"""Versions looked at in one sweep, so that a sensor's tick stays within seconds."""

_Key = tuple[int, str, str, str]
"""When it was superseded (microseconds), tenant, item id, version: the order of a sweep."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one sweep did."""

    recorded: int
    """Lifecycle events appended."""
    examined: int
    cursor: str
    """Hand it to the next sweep, which goes on after the last version looked at."""
    finished: bool
    """Nothing superseded is left to look at in this artifact, as of now."""


def record_supersessions(pipeline: Pipeline, *, cursor: str = "", limit: int = DEFAULT_LIMIT) -> Sweep:
    """Append `superseded` and `evicted` events for versions that the published artifact no longer injects.

    Repeating a sweep, with or without its cursor, changes nothing; two at once record each event once. A new artifact
    is swept from its beginning, because it can supersede a version as of a time in the past.

    Raises:
        InvalidRequest: the cursor is not one of this function.
    """
    from filelock import FileLock, Timeout

    pointer = read_pointer(pipeline.layout)
    if pointer is None:
        return Sweep(0, 0, "", finished=True)
    after = _read_cursor(cursor, pointer["content_hash"])
    lock = FileLock(pipeline.home / ".ctx" / "sweep.lock", fallback_to_soft=False)
    try:
        # Looking for an event and appending it is not one transaction of the ledger.
        with lock.acquire(timeout=0):
            return _sweep(pipeline, pointer["artifact"], pointer["content_hash"], after, limit)
    except Timeout:
        return Sweep(0, 0, cursor, finished=False)


def _sweep(pipeline: Pipeline, artifact: str, content_hash: str, after: _Key | None, limit: int) -> Sweep:
    now = pipeline.clock()
    pending = _superseded(pipeline, artifact, micros(now), after)
    batch = pending[:limit]
    events = [event for key in batch for event in _missing_events(pipeline, key, now, content_hash)]
    if events:
        pipeline.ledger.append_events(events)
    last = batch[-1] if batch else after
    text = json.dumps({"artifact": content_hash, "after": last}, ensure_ascii=False)
    return Sweep(len(events), len(batch), text, finished=len(batch) == len(pending))


def _superseded(pipeline: Pipeline, artifact: str, now: int, after: _Key | None) -> list[_Key]:
    """Return what the artifact counts as superseded at `now`, after a key, in order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    folder = pipeline.layout.artifacts / artifact
    times = read_table(folder / "filtered.arrow").column("known_superseded_at")
    names = read_table(folder / "discovered.arrow").select(["tenant", "item_id", "version"])
    current = read_table(folder / "filtered.arrow").column("superseded_at")
    mask = pc.less_equal(current, now)
    table = pa.table({"at": times, **{name: names.column(name) for name in names.column_names}}).filter(mask)
    keys = zip(*(table.column(name).to_pylist() for name in ("at", "tenant", "item_id", "version")), strict=True)
    return sorted(key for key in keys if after is None or key > after)


def _missing_events(pipeline: Pipeline, key: _Key, now: datetime, content_hash: str) -> Iterator[LifecycleEvent]:
    superseded_at, tenant, item_id, version = key
    states = _states(pipeline.ledger.events_for(tenant, item_id), version)
    if not states:
        # The log starts with `created`, which a refresh writes; without it there is no life to end.
        return
    state = states[-1]
    for step, reason in (
        (Lifecycle.SUPERSEDED, _superseded_reason(superseded_at)),
        (Lifecycle.EVICTED, f"artifact {content_hash[:12]} no longer injects it"),
    ):
        if step not in states and step in TRANSITIONS[state]:
            yield LifecycleEvent(
                tenant=tenant,
                item_id=item_id,
                version=version,
                from_state=state,
                to_state=step,
                reason=reason,
                at=now,
                actor=ACTOR,
            )
            state = step


def _superseded_reason(superseded_at: int) -> str:
    if superseded_at <= ALWAYS:
        return "a later version replaced it"
    return f"a later version counts since {from_micros(superseded_at).isoformat().replace('+00:00', 'Z')}"


def _states(events: Sequence[LifecycleEvent], version: str) -> list[Lifecycle]:
    """Return the states of a version since it was last created or restored."""
    states: list[Lifecycle] = []
    for event in events:
        if event.version != version:
            continue
        if event.to_state in (Lifecycle.CREATED, Lifecycle.RESTORED):
            states.clear()
        states.append(event.to_state)
    return states


def _read_cursor(cursor: str, content_hash: str) -> _Key | None:
    if not cursor:
        return None
    try:
        stored = json.loads(cursor)
        if stored["artifact"] != content_hash or stored["after"] is None:
            return None
        at, tenant, item_id, version = stored["after"]
        return int(at), str(tenant), str(item_id), str(version)
    except (ValueError, KeyError, TypeError):
        raise InvalidRequest(
            "the cursor of the sweep is not readable", where=ACTOR, fix="reset the sensor's cursor"
        ) from None
