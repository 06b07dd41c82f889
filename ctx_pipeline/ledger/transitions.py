"""Which step may follow which in an item version's life. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ctx_pipeline.contracts.codes import Lifecycle
from ctx_pipeline.contracts.trace import LifecycleEvent
from ctx_pipeline.errors import Conflict

_S = Lifecycle

# The life is the join of four logs (item, exposure, storage, tokens), and each log records only its
# own steps: the item log goes from `created` straight to `superseded`, though calls may have shown
# the item in between. So every live state may take every exit, while the states of one exposure
# follow each other without gaps.
_LIVE = frozenset({_S.CREATED, _S.DISCOVERED, _S.SELECTED, _S.VISIBLE, _S.USED, _S.RESTORED})
_EXITS = frozenset({_S.STALE, _S.SUPERSEDED, _S.RETIRED, _S.QUARANTINED, _S.FORGOTTEN})
_STORAGE = frozenset({_S.COMPRESSED, _S.EXTERNALIZED})

_EXPOSURE: dict[Lifecycle, frozenset[Lifecycle]] = {
    _S.CREATED: frozenset({_S.DISCOVERED}),
    _S.RESTORED: frozenset({_S.DISCOVERED}),
    # A later call discovers anew, whatever became of the item in the call before.
    _S.DISCOVERED: frozenset({_S.DISCOVERED, _S.SELECTED}),
    _S.SELECTED: frozenset({_S.DISCOVERED, _S.VISIBLE}),
    _S.VISIBLE: frozenset({_S.DISCOVERED, _S.USED}) | _STORAGE,
    _S.USED: frozenset({_S.DISCOVERED}) | _STORAGE,
}

TRANSITIONS: dict[Lifecycle | None, frozenset[Lifecycle]] = {
    None: frozenset({_S.CREATED}),
    **{state: _EXPOSURE[state] | _EXITS for state in _LIVE},
    # Stale and superseded versions are still candidates: softly stale ones are shown with a
    # warning, and a request about the past (`as_of`) may select the version that was valid then.
    _S.STALE: _STORAGE | (_EXITS - {_S.STALE}) | {_S.DISCOVERED, _S.RESTORED, _S.EVICTED},
    _S.SUPERSEDED: _STORAGE
    | {_S.DISCOVERED, _S.RESTORED, _S.RETIRED, _S.QUARANTINED, _S.FORGOTTEN, _S.EVICTED},
    _S.RETIRED: _STORAGE | {_S.RESTORED, _S.SUPERSEDED, _S.QUARANTINED, _S.FORGOTTEN, _S.EVICTED},
    _S.QUARANTINED: frozenset({_S.RESTORED, _S.SUPERSEDED, _S.RETIRED, _S.FORGOTTEN, _S.EVICTED}),
    _S.COMPRESSED: _EXITS | {_S.EXTERNALIZED, _S.RESTORED, _S.EVICTED},
    _S.EXTERNALIZED: _EXITS | {_S.COMPRESSED, _S.RESTORED, _S.EVICTED},
    _S.EVICTED: frozenset({_S.RESTORED, _S.SUPERSEDED, _S.RETIRED, _S.QUARANTINED, _S.FORGOTTEN}),
    _S.FORGOTTEN: frozenset(),
}
"""What may follow each state; None is the state before the first event. `forgotten` is final."""


def check_transition(from_state: Lifecycle | None, to_state: Lifecycle) -> None:
    """Accept a legal step of an item version's life.

    Raises:
        Conflict: the step is not legal (`illegal_transition`).
    """
    if to_state in TRANSITIONS[from_state]:
        return
    legal = ", ".join(sorted(TRANSITIONS[from_state])) or "nothing"
    before = from_state.value if from_state else "nothing"
    raise Conflict(
        f"an item version cannot go from {before!r} to {to_state.value!r}",
        fix=f"after {before!r} may follow: {legal}",
        code="illegal_transition",
    )


def states_of(events: Sequence[LifecycleEvent], version: str) -> list[Lifecycle]:
    """Return the states of a version since it was last created or restored, oldest first."""
    states: list[Lifecycle] = []
    for event in events:
        if event.version == version:
            if event.to_state in (Lifecycle.CREATED, Lifecycle.RESTORED):
                states.clear()
            states.append(event.to_state)
    return states
