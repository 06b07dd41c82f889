"""Record in the lifecycle log what the published state no longer injects, why, and which snapshots
had shown it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from ctx_pipeline.contracts import Exclusion, Lifecycle, LifecycleEvent
from ctx_pipeline.index.artifact import read_pointer
from ctx_pipeline.index.overlay import fold, forgotten_keys
from ctx_pipeline.ledger import RecallNotice
from ctx_pipeline.ledger.transitions import TRANSITIONS
from ctx_pipeline.security.visibility import (
    ALWAYS,
    NEVER,
    VISIBLE,
    Clock,
    code_of,
    from_micros,
    micros,
    stale_codes,
)
from ctx_pipeline.security.visibility import visibility_codes as judge
from ctx_pipeline.text import canonical_json, short_hash

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ctx_pipeline.index.view import ServingView
    from ctx_pipeline.workspace import Workspace

ACTOR = "evictions"
DEFAULT_LIMIT = 1_000
"""Versions looked at in one sweep, so that what it writes is committed within seconds."""
RECALLED_SNAPSHOTS = 100
"""Newest snapshots that a recall notice names; it counts them all."""

STEPS: Mapping[Exclusion, Lifecycle] = {
    Exclusion.QUARANTINED: Lifecycle.QUARANTINED,
    Exclusion.FORGOTTEN: Lifecycle.FORGOTTEN,
    Exclusion.RETIRED: Lifecycle.RETIRED,
    # The log has no word of its own for the end of a validity: it is age, as a source that was not
    # read is.
    Exclusion.EXPIRED: Lifecycle.STALE,
    Exclusion.SUPERSEDED: Lifecycle.SUPERSEDED,
    Exclusion.STALE: Lifecycle.STALE,
}
"""What the log says before `evicted`, for each reason that keeps an item version out of every pack.
"""
GRAVE = frozenset({Exclusion.QUARANTINED, Exclusion.FORGOTTEN})
"""Reasons that are news even of a version that had left for another reason: what it said was acted
upon.
"""
_ENDED = frozenset({*STEPS.values(), Lifecycle.EVICTED}) - {Lifecycle.FORGOTTEN}

Key = tuple[str, str, str]
"""Tenant, item id, version: also the order of a sweep."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one sweep did."""

    recorded: int
    """Lifecycle events appended."""
    recalls: tuple[RecallNotice, ...]
    """Notices of what had been shown and is shown no more."""
    examined: int
    cursor: str
    """Hand it to the next sweep, which goes on after the last version looked at."""
    finished: bool
    """Nothing is left to record, as of now."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What a sweep would record now."""

    versions: int
    """Versions to look at, 0 when there is nothing to write."""
    name: str
    """Stands for these versions in this state of the project: the same until something changes."""
    cursor: str
    """Hand it to the next look, which then costs nothing while nothing has changed."""


@dataclass(frozen=True, slots=True)
class _Finding:
    """A version whose log is behind what the predicate says; `code` None: it
    is injected (again).
    """

    key: Key
    code: Exclusion | None
    reason: str
    hard: bool = True
    """Whether it is kept out; what is stale under a policy that only warns is not."""


@dataclass(frozen=True, slots=True)
class _Position:
    """Where a sweep stands. As long as `state` is the same, nothing changes before `until` but by
    the clock.
    """

    state: str = ""
    until: int = ALWAYS
    after: Key | None = None
    finished: bool = False


@dataclass(slots=True)
class _Log:
    events: list[LifecycleEvent] = field(default_factory=list[LifecycleEvent])
    recalls: list[RecallNotice] = field(default_factory=list[RecallNotice])


def look_for_evictions(workspace: Workspace, *, cursor: str = "") -> Pending:
    """Return what `record_evictions` would record; writes nothing.

    Raises:
        Unavailable: the artifact has the format of another release.
        Corrupt: the artifact or the ledger is damaged.
    """
    position = _position(workspace, cursor)
    if position is None:
        return Pending(0, "", "")
    if position.finished:
        return Pending(0, "", cursor)
    found, until = _findings(workspace, _view(workspace), micros(workspace.clock()))
    # A version whose log was never begun has no life that could end.
    if not any(workspace.ledger.life(*finding.key) for finding in found):
        return Pending(0, "", _text(position.state, until, None, finished=True))
    waiting = [(*finding.key, finding.code.value if finding.code else "") for finding in found]
    name = short_hash(canonical_json([position.state, waiting]), 32)
    return Pending(len(found), name, "")


def record_evictions(
    workspace: Workspace, *, cursor: str = "", limit: int = DEFAULT_LIMIT, lock_seconds: float = 0.0
) -> Sweep:
    """Append the events, and recall notices, of versions that the published state stopped
    injecting.

    Reasons are those of the visibility predicate that hold for every viewer: superseded, expired,
    retired, quarantined, forgotten, and stale. What the policy lets in although it is stale is
    recorded as `stale` alone. What is injected again is `restored`. Repeating a sweep, with or
    without its cursor, changes nothing, so a cursor that is not one of this module counts as none;
    two at once record each event once. While another one runs for longer than `lock_seconds`,
    nothing is examined.

    Raises:
        Unavailable: the artifact has the format of another release.
        Corrupt: the artifact or the ledger is damaged.
    """
    from filelock import FileLock, Timeout

    position = _position(workspace, cursor)
    if position is None:
        return Sweep(0, (), 0, "", finished=True)
    if position.finished:
        return Sweep(0, (), 0, cursor, finished=True)
    lock = FileLock(workspace.home / ".ctx" / "sweep.lock", fallback_to_soft=False)
    try:
        # Looking for an event and appending it is not one transaction of the ledger.
        with lock.acquire(timeout=lock_seconds):
            return _sweep(workspace, position, workspace.clock(), limit)
    except Timeout:
        return Sweep(0, (), 0, cursor, finished=False)


def _position(workspace: Workspace, cursor: str) -> _Position | None:
    """Return where a sweep stands with a cursor; None where nothing has been published."""
    pointer = read_pointer(workspace.layout)
    if pointer is None:
        return None
    pinned_since = pointer["pin"]["since"] if "pin" in pointer else ""
    state = _state(workspace, pointer["content_hash"] + pinned_since)
    position = _read_cursor(cursor)
    if position.state != state or micros(workspace.clock()) >= position.until:
        return _Position(state)
    return position


def _sweep(workspace: Workspace, position: _Position, now: datetime, limit: int) -> Sweep:
    view = _view(workspace)
    findings, until = _findings(workspace, view, micros(now))
    waiting = [
        finding for finding in findings if position.after is None or finding.key > position.after
    ]
    chosen = waiting[:limit]
    log = _Log()
    for finding in chosen:
        _record(workspace, finding, now, log)
    if log.events:
        workspace.ledger.append_events(log.events, recalls=log.recalls)
    finished = len(chosen) == len(waiting)
    last = None if finished else chosen[-1].key
    text = _text(position.state, until, last, finished=finished)
    return Sweep(len(log.events), tuple(log.recalls), len(chosen), text, finished=finished)


def _text(state: str, until: int, after: Key | None, *, finished: bool) -> str:
    """Return a position as a cursor."""
    return json.dumps([state, until, after, finished], ensure_ascii=False)


def _view(workspace: Workspace) -> ServingView:
    from ctx_pipeline.index.serving import ServingIndex

    ledger = workspace.ledger
    return ServingIndex(
        workspace.home, overlay_sequence=ledger.overlay_sequence, overlay_since=ledger.overlay_since
    ).view()


def _state(workspace: Workspace, served: str) -> str:
    """Return a hash of everything but the clock that the verdict on a version depends on."""
    ledger = workspace.ledger
    times = {name: micros(when) for name, when in ledger.source_times().items()}
    hard = workspace.config.policy.exclude_stale
    return short_hash(canonical_json([served, ledger.overlay_sequence(), times, hard]), 16)


def _findings(workspace: Workspace, view: ServingView, now: int) -> tuple[list[_Finding], int]:
    """Return every version whose log is behind, in order, and the next moment at which that may
    change.
    """
    import numpy as np

    lives = workspace.ledger.lives()
    nobody = np.zeros(len(view.labels), np.uint8)
    codes = judge(view.state, nobody, Clock(at=now))
    verified, windows = _ages(workspace, view, now)
    stale = (codes == VISIBLE) & stale_codes(verified, windows, Clock(at=now))
    hard = workspace.config.policy.exclude_stale
    found: dict[Key, _Finding] = {}
    for row in np.flatnonzero((codes != VISIBLE) | stale).tolist():
        code = Exclusion.STALE if stale[row] else code_of(int(codes[row]))
        key = _key(view, row)
        is_hard = hard or code is not Exclusion.STALE
        if (
            code is not None
            and code in STEPS
            and _steps(lives.get(key, (Lifecycle.CREATED,)), code, hard=is_hard)
        ):
            found[key] = _Finding(key, code, _reason(view, row, code), is_hard)
    injected = (codes == VISIBLE) & ~stale
    for key, states in lives.items():
        if states[-1] in _ENDED and any(injected[row] for row in _rows(view, key)):
            found[key] = _Finding(key, None, "it is injected again")
    for finding in _forgotten(workspace, lives):
        found[finding.key] = finding
    return [found[key] for key in sorted(found)], _next_change(view, verified, windows, now)


def _key(view: ServingView, row: int) -> Key:
    reader = view.reader
    return reader.tenant_of(row), reader.text("item_id", row), reader.text("version", row)


def _rows(view: ServingView, key: Key) -> list[int]:
    reader = view.reader
    return [row for row in reader.find(key[0], key[1]) if reader.text("version", row) == key[2]]


def _ages(
    workspace: Workspace, view: ServingView, now: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return when each row was last verified, and its source's fail window; as
    ranking counts them.
    """
    import numpy as np

    reader = view.reader
    times = workspace.ledger.source_times()
    refreshed = [
        micros(times[facts["name"]]) if facts["name"] in times else now for facts in reader.sources
    ]
    windows = np.asarray([facts["fail_after"] for facts in reader.sources], np.int64)
    own = reader.verified_at
    return np.where(own > ALWAYS, own, np.asarray(refreshed, np.int64)[reader.source]), windows[
        reader.source
    ]


def _next_change(
    view: ServingView, verified: NDArray[np.int64], windows: NDArray[np.int64], now: int
) -> int:
    import numpy as np

    aging = windows < NEVER
    moments = (
        view.state.valid_from,
        view.state.valid_until,
        view.state.superseded_at,
        (verified + windows)[aging] + 1,
    )
    return min(int(np.min(values[values > now], initial=NEVER)) for values in moments)


def _forgotten(
    workspace: Workspace, lives: Mapping[Key, Sequence[Lifecycle]]
) -> Iterator[_Finding]:
    """Yield what was forgotten; after the next build no row of the artifact tells of it."""
    ledger = workspace.ledger
    for tenant, item_id, version in forgotten_keys(fold(ledger.overlay_since(0))):
        for named in dict.fromkeys(event.version for event in ledger.events_for(tenant, item_id)):
            key = (tenant, item_id, named)
            if version in (None, named) and _steps(
                lives.get(key, (Lifecycle.CREATED,)), Exclusion.FORGOTTEN
            ):
                yield _Finding(key, Exclusion.FORGOTTEN, _REASONS[Exclusion.FORGOTTEN])


def _steps(states: Sequence[Lifecycle], code: Exclusion, *, hard: bool = True) -> list[Lifecycle]:
    """Return the steps that the log of a life lacks. A version leaves once; only a grave reason
    adds to that.
    """
    left = Lifecycle.EVICTED in states
    if left and code not in GRAVE:
        return []
    wanted = [STEPS[code]]
    if hard and not left and code is not Exclusion.FORGOTTEN:
        wanted.append(Lifecycle.EVICTED)
    steps: list[Lifecycle] = []
    state = states[-1]
    for step in wanted:
        if step not in states and step in TRANSITIONS[state]:
            steps.append(step)
            state = step
    return steps


def _record(workspace: Workspace, finding: _Finding, now: datetime, log: _Log) -> None:
    """Add what one version's log lacks to a log."""
    tenant, item_id, version = finding.key
    states = workspace.ledger.life(tenant, item_id, version)
    if not states:
        # The log starts with `created`, which a refresh writes; without it there is no life to end.
        return
    code = finding.code
    if code is None:
        steps = [Lifecycle.RESTORED] if states[-1] in _ENDED else []
    else:
        steps = _steps(states, code, hard=finding.hard)
    state = states[-1]
    for step in steps:
        reason = (
            finding.reason
            if step is not Lifecycle.EVICTED
            else "the published artifact no longer injects it"
        )
        log.events.append(
            LifecycleEvent(
                tenant=tenant,
                item_id=item_id,
                version=version,
                from_state=state,
                to_state=step,
                reason=reason,
                at=now,
                actor=ACTOR,
            )
        )
        state = step
    if steps and code is not None and finding.hard:
        notice = _recall(workspace, finding, code, now)
        log.recalls.extend(() if notice is None else (notice,))


def _recall(
    workspace: Workspace, finding: _Finding, code: Exclusion, now: datetime
) -> RecallNotice | None:
    tenant, item_id, version = finding.key
    shown = workspace.ledger.exposure(tenant, item_id, version=version, limit=RECALLED_SNAPSHOTS)
    if not shown.selected:
        return None
    return RecallNotice(
        sequence=None,
        tenant=tenant,
        item_id=item_id,
        version=version,
        code=code.value,
        reason=finding.reason,
        at=now,
        actor=ACTOR,
        snapshots=shown.selected,
        snapshot_ids=shown.snapshot_ids,
    )


_REASONS: Mapping[Exclusion, str] = {
    Exclusion.QUARANTINED: "it was set aside",
    Exclusion.FORGOTTEN: "it was erased",
    Exclusion.RETIRED: "its source no longer has it, or somebody withdrew it",
    Exclusion.STALE: "its source is past its fail window",
}


def _reason(view: ServingView, row: int, code: Exclusion) -> str:
    if code is Exclusion.EXPIRED:
        return f"it was valid until {_iso(int(view.state.valid_until[row]))}"
    if code is not Exclusion.SUPERSEDED:
        return _REASONS[code]
    at = int(view.state.known_superseded_at[row])
    return (
        "a later version replaced it"
        if not ALWAYS < at < NEVER
        else f"a later version counts since {_iso(at)}"
    )


def _iso(at: int) -> str:
    return from_micros(at).isoformat().replace("+00:00", "Z")


def _read_cursor(cursor: str) -> _Position:
    if not cursor:
        return _Position()
    try:
        state, until, after, finished = json.loads(cursor)
        key = None if after is None else (str(after[0]), str(after[1]), str(after[2]))
        return _Position(str(state), int(until), key, bool(finished))
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
        # Cut off, or of an earlier release: to start anew changes nothing.
        return _Position()
