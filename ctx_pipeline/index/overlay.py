"""What has happened to items since they were stored: folded from the ledger's overlay, applied to columns.

A build folds every entry into the artifact; a reader folds only the entries after the artifact's overlay sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import numpy as np

from ctx_pipeline.security.visibility import (
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
    def code(self) -> str: ...
    @property
    def tenant(self) -> str: ...
    @property
    def item_id(self) -> str: ...
    @property
    def version(self) -> str | None: ...
    @property
    def principal(self) -> str | None: ...
    @property
    def group(self) -> str | None: ...
    @property
    def effective_at(self) -> datetime: ...


ItemKey = tuple[str, str, str | None]
"""Tenant, item id, and version or None for every version."""


@dataclass(slots=True)
class Patch:
    """What the overlay says of one item or version; None leaves a column as it is."""

    state: int | None = None
    retired_at: int | None = None
    superseded_at: int | None = None
    revoked_principals: list[str] = field(default_factory=list[str])
    revoked_groups: list[str] = field(default_factory=list[str])


def fold(entries: Iterable[Entry]) -> dict[ItemKey, Patch]:
    """Fold overlay entries, oldest first, into one patch per item or version; the last word counts."""
    patches: dict[ItemKey, Patch] = {}
    for entry in entries:
        patch = patches.setdefault((entry.tenant, entry.item_id, entry.version), Patch())
        match entry.code:
            case "forgotten":
                patch.state = STATE_FORGOTTEN
            case "quarantined":
                patch.state = STATE_QUARANTINED
            case "released":
                patch.state = STATE_LIVE
            case "retired":
                patch.retired_at = micros(entry.effective_at)
            case "restored":
                patch.retired_at = NEVER
            case "superseded":
                patch.superseded_at = micros(entry.effective_at)
            case "revoked":
                if entry.principal is not None:
                    patch.revoked_principals.append(entry.principal)
                if entry.group is not None:
                    patch.revoked_groups.append(entry.group)
                if entry.principal is None and entry.group is None:
                    patch.revoked_groups.append(EVERYONE)
            case _:
                # `confirmed` and codes of later versions change no column.
                continue
    return patches


def forgotten_keys(patches: Mapping[ItemKey, Patch]) -> frozenset[ItemKey]:
    """Return what has been forgotten."""
    return frozenset(key for key, patch in patches.items() if patch.state == STATE_FORGOTTEN)


def apply_patch(columns: StateColumns, labels: list[ScopeLabel], rows: np.ndarray, patch: Patch) -> None:
    """Write a patch into the columns of some rows; revocations add labels."""
    if patch.state is not None:
        # What is forgotten stays forgotten: a later release does not bring it back.
        alive = columns.state[rows] != STATE_FORGOTTEN
        columns.state[rows[alive]] = patch.state
    if patch.retired_at is not None:
        columns.retired_at[rows] = patch.retired_at
    if patch.superseded_at is not None:
        columns.superseded_at[rows] = np.minimum(columns.superseded_at[rows], patch.superseded_at)
        columns.known_superseded_at[rows] = np.minimum(columns.known_superseded_at[rows], patch.superseded_at)
    if patch.revoked_principals or patch.revoked_groups:
        for row in rows.tolist():
            columns.scope[row] = _revoked_label(labels, int(columns.scope[row]), patch)


def _revoked_label(labels: list[ScopeLabel], number: int, patch: Patch) -> int:
    old = labels[number]
    label = ScopeLabel(
        tenant=old.tenant,
        principals=old.principals,
        groups=old.groups,
        sensitivity=old.sensitivity,
        environment=old.environment,
        task_types=old.task_types,
        agent_visibility=old.agent_visibility,
        trust=old.trust,
        revoked_principals=tuple(sorted({*old.revoked_principals, *patch.revoked_principals})),
        revoked_groups=tuple(sorted({*old.revoked_groups, *patch.revoked_groups})),
    )
    labels.append(label)
    return len(labels) - 1
