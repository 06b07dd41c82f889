"""Who has withdrawn what: the words of the overlay and of the lifecycle log that take an item out
and bring it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from ctx_pipeline.contracts import Lifecycle, LifecycleEvent
from ctx_pipeline.ledger.records import OverlayEntry
from ctx_pipeline.ledger.transitions import TRANSITIONS, states_of

if TYPE_CHECKING:
    from ctx_pipeline.ledger.ledger import Ledger

BUILD = "build"
"""Actor of what a build finds out by reading a source; every other actor is a person."""

Key = tuple[str, str, str | None]
"""Tenant, item id, and version or None for every version."""


def held_by_people(entries: Iterable[OverlayEntry]) -> dict[Key, OverlayEntry]:
    """Return what people have retired and not restored. What a build says in between changes none
    of it.
    """
    return _in_force(entry for entry in entries if entry.actor != BUILD)


def held_by_builds(entries: Iterable[OverlayEntry]) -> dict[Key, OverlayEntry]:
    """Return what builds have retired and not restored."""
    return _in_force(entry for entry in entries if entry.actor == BUILD)


def _in_force(entries: Iterable[OverlayEntry]) -> dict[Key, OverlayEntry]:
    held: dict[Key, OverlayEntry] = {}
    for entry in entries:
        key = (entry.tenant, entry.item_id, entry.version)
        if entry.code == "retired":
            held[key] = entry
        elif entry.code == "restored":
            lifted = (
                [key]
                if entry.version is not None
                else [known for known in held if known[:2] == key[:2]]
            )
            for known in lifted:
                held.pop(known, None)
    return held


def said_again(restored: Iterable[Key], held: Mapping[Key, OverlayEntry]) -> Iterator[OverlayEntry]:
    """Yield the retirements by somebody else that outlive a restoration.

    The last word counts, and that of a whole item is said of each version; so what still holds back
    an item, or one of its versions, has to be said once more.
    """
    items = {key[:2] for key in restored}
    yield from (entry for key, entry in held.items() if key[:2] in items)


def entries_of(
    code: Literal["retired", "restored"],
    keys: Iterable[Key],
    *,
    actor: str,
    reason: str,
    now: datetime,
) -> list[OverlayEntry]:
    """Return the overlay entries that retire or restore these items and versions."""
    return [
        OverlayEntry(
            code=code,
            tenant=tenant,
            item_id=item_id,
            version=version,
            effective_at=now,
            recorded_at=now,
            actor=actor,
            reason=reason,
        )
        for tenant, item_id, version in keys
    ]


def steps(
    ledger: Ledger,
    keys: Iterable[Key],
    versions: Mapping[tuple[str, str], Sequence[str]],
    to_state: Literal[Lifecycle.RETIRED, Lifecycle.RESTORED],
    *,
    actor: str,
    reason: str,
    now: datetime,
) -> list[LifecycleEvent]:
    """Return the lifecycle events of retiring or restoring, one per version whose life has not
    taken this step yet.

    `versions` are the stored versions of each item. A version without a beginning in the log, or
    that was forgotten, has no further step.
    """
    events: list[LifecycleEvent] = []
    for tenant, item_id, version in keys:
        life = ledger.events_for(tenant, item_id)
        for each in versions.get((tenant, item_id), ()) if version is None else (version,):
            states = states_of(life, each)
            if not states or not _may_step(states, to_state):
                continue
            events.append(
                LifecycleEvent(
                    tenant=tenant,
                    item_id=item_id,
                    version=each,
                    from_state=states[-1],
                    to_state=to_state,
                    reason=reason,
                    at=now,
                    actor=actor,
                )
            )
    return events


def _may_step(states: Sequence[Lifecycle], to_state: Lifecycle) -> bool:
    if to_state not in TRANSITIONS[states[-1]]:
        return False
    if to_state is Lifecycle.RETIRED:
        return Lifecycle.RETIRED not in states
    # What was set aside after it was retired is released from there, not from here.
    return Lifecycle.RETIRED in states and states[-1] is not Lifecycle.QUARANTINED
