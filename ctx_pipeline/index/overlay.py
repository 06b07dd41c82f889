"""What has happened to items since they were stored: folded from the ledger's overlay, applied to
columns.

A build folds every entry into the artifact; a reader folds only the entries after the artifact's
overlay sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

import numpy as np

from ctx_pipeline.security.visibility import (
    ALWAYS,
    EVERYONE,
    NEVER,
    STATE_FORGOTTEN,
    STATE_LIVE,
    STATE_QUARANTINED,
    ScopeLabel,
    StateColumns,
    micros,
)


class Entry(Protocol):
    """One row of the overlay, as the ledger hands it out."""

    @property
    def code(self) -> str:
        """What happened."""
        ...

    @property
    def tenant(self) -> str:
        """Whose item."""
        ...

    @property
    def item_id(self) -> str:
        """Which item."""
        ...

    @property
    def version(self) -> str | None:
        """Which version; None for every one."""
        ...

    @property
    def principal(self) -> str | None:
        """Whose grant was revoked."""
        ...

    @property
    def group(self) -> str | None:
        """Which group's grant was revoked."""
        ...

    @property
    def effective_at(self) -> datetime:
        """From when it counts."""
        ...


ItemKey = tuple[str, str, str | None]
"""Tenant, item id, and version or None for every version."""


@dataclass(slots=True)
class Patch:
    """What the overlay says of one item or version; None leaves a column as it is."""

    state: int | None = None
    retired_at: int | None = None
    superseded_at: int | None = None
    """From when every version is superseded, whatever follows it."""
    marked_at: int | None = None
    """From when one version is superseded by another that may not be here yet."""
    is_current_again: bool = False
    """A version that something was to replace is in force again: what was said of its replacement
    before is void."""
    revoked_principals: list[str] = field(default_factory=list[str])
    revoked_groups: list[str] = field(default_factory=list[str])


def fold(entries: Iterable[Entry]) -> dict[ItemKey, Patch]:
    """Fold overlay entries, oldest first, into one patch per item and one per version that has its
    own.

    For every version the last word counts, whether it was said of the version or of the whole item.
    Patches of whole items come before those of versions, the order in which they are applied.
    """
    patches: dict[ItemKey, Patch] = {}
    versions: dict[tuple[str, str], list[Patch]] = {}
    for entry in entries:
        key = (entry.tenant, entry.item_id, entry.version)
        if key not in patches:
            patches[key] = Patch()
            if entry.version is not None:
                versions.setdefault(key[:2], []).append(patches[key])
        _add(patches[key], entry)
        if entry.version is None:
            for patch in versions.get(key[:2], ()):
                _add(patch, entry)
    return dict(sorted(patches.items(), key=lambda pair: pair[0][2] is not None))


def _add(patch: Patch, entry: Entry) -> None:
    """Add one entry; `confirmed` and codes of later versions change no column."""
    match entry.code:
        case "forgotten":
            patch.state = STATE_FORGOTTEN
        case "quarantined" if patch.state != STATE_FORGOTTEN:
            patch.state = STATE_QUARANTINED
        case "released" if patch.state != STATE_FORGOTTEN:
            patch.state = STATE_LIVE
        case "retired":
            patch.retired_at = micros(entry.effective_at)
        case "restored":
            patch.retired_at = NEVER
            if entry.version is not None:
                patch.superseded_at = patch.marked_at = None
                patch.is_current_again = True
        case "superseded":
            _supersede(patch, entry)
        case "revoked" if entry.principal is None and entry.group is None:
            patch.revoked_groups.append(EVERYONE)
        case "revoked":
            patch.revoked_principals.extend(name for name in (entry.principal,) if name is not None)
            patch.revoked_groups.extend(name for name in (entry.group,) if name is not None)
        case _:
            pass


def _supersede(patch: Patch, entry: Entry) -> None:
    at = micros(entry.effective_at)
    if entry.version is None:
        patch.superseded_at = _first(patch.superseded_at, at)
    else:
        patch.marked_at = _first(patch.marked_at, at)


def _first(known: int | None, at: int) -> int:
    return at if known is None else min(known, at)


def forgotten_keys(patches: Mapping[ItemKey, Patch]) -> frozenset[ItemKey]:
    """Return what has been forgotten."""
    return frozenset(key for key, patch in patches.items() if patch.state == STATE_FORGOTTEN)


def supersede_chain(columns: StateColumns, first: int, last: int) -> None:
    """Recompute when the versions of one item, rows `first` to before `last`, oldest first, are
    superseded.

    A version ends when the first later one begins, or at once when that has no beginning. A later
    version that was withdrawn or forgotten supersedes nothing any more; for `as_of` it did so until
    it was withdrawn. That a version is superseded counts on the overlay's word while nothing here
    follows it; then its followers decide, which may be withdrawn.
    """
    now = known = begun = NEVER
    ended = ALWAYS
    waiting: list[int] = []
    followed = False
    for at in range(last - 1, first - 1, -1):
        if not columns.tied[at]:
            for later in waiting:
                start, retired = int(columns.known_from[later]), int(columns.retired_at[later])
                if columns.state[later] == STATE_FORGOTTEN:
                    continue
                followed = True
                if retired == NEVER:
                    now, known = min(now, int(columns.valid_from[later])), min(known, start)
                elif start < retired:
                    begun, ended = min(begun, start), max(ended, retired)
            waiting.clear()
        waiting.append(at)
        marked = NEVER if followed else int(columns.marked_at[at])
        columns.superseded_at[at] = min(now, marked, int(columns.replaced_at[at]))
        columns.known_superseded_at[at] = min(known, marked, int(columns.known_replaced_at[at]))
        columns.known_withdrawn_from[at] = begun
        columns.known_withdrawn_until[at] = NEVER if begun == NEVER else ended


def apply_patch(
    columns: StateColumns, labels: list[ScopeLabel], rows: np.ndarray, patch: Patch
) -> None:
    """Write a patch into the columns of some rows; revocations add labels."""
    if patch.state is not None:
        # What is forgotten stays forgotten: a later release does not bring it back.
        alive = columns.state[rows] != STATE_FORGOTTEN
        columns.state[rows[alive]] = patch.state
    if patch.retired_at is not None:
        columns.retired_at[rows] = patch.retired_at
    if patch.is_current_again:
        columns.marked_at[rows] = NEVER
        columns.replaced_at[rows] = NEVER
        columns.known_replaced_at[rows] = NEVER
    if patch.marked_at is not None:
        columns.marked_at[rows] = np.minimum(columns.marked_at[rows], patch.marked_at)
    if patch.superseded_at is not None:
        columns.replaced_at[rows] = np.minimum(columns.replaced_at[rows], patch.superseded_at)
        columns.known_replaced_at[rows] = np.minimum(
            columns.known_replaced_at[rows], patch.superseded_at
        )
    if patch.revoked_principals or patch.revoked_groups:
        for row in rows.tolist():
            columns.scope[row] = _revoked_label(labels, int(columns.scope[row]), patch)


def _revoked_label(labels: list[ScopeLabel], number: int, patch: Patch) -> int:
    old = labels[number]
    label = replace(
        old,
        revoked_principals=tuple(sorted({*old.revoked_principals, *patch.revoked_principals})),
        revoked_groups=tuple(sorted({*old.revoked_groups, *patch.revoked_groups})),
    )
    labels.append(label)
    return len(labels) - 1
