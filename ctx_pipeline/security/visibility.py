"""The one predicate that decides whether an item version may be in a pack.

It works on columns, so that the same code decides for a million rows of an index and for one
candidate of a request. Rules in order, the first failure is the code: tenant, principal and groups,
clearance, environment, task scope, agent role, trust; then quarantined, forgotten, retired, not yet
valid, expired, superseded, stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from ctx_pipeline.contracts.codes import (
    PERMISSION_CODES,
    SENSITIVITY_RANK,
    TRUST_RANK,
    Exclusion,
    Sensitivity,
    Trust,
)
from ctx_pipeline.contracts.request import Identity

NEVER = 2**62
"""A time after every time, in microseconds since 1970."""
ALWAYS = -(2**62)
"""A time before every time."""

CODES: tuple[Exclusion, ...] = tuple(Exclusion)
VISIBLE = 0

UNNAMED_CODES = frozenset((*PERMISSION_CODES, Exclusion.FORGOTTEN))
"""What fails with one of these is counted and never named, in a trace or anywhere else."""
WITHDRAWN_CODES = frozenset((Exclusion.QUARANTINED, Exclusion.RETIRED))
"""What fails with one of these may be named, and leads to nothing else: it counts as if it were not
there."""
_NUMBER = {code: number for number, code in enumerate(CODES, start=1)}

EVERYONE = "*"
"""A group that stands for every principal of the tenant."""

STATE_LIVE = 0
STATE_QUARANTINED = 1
STATE_FORGOTTEN = 2
STATE_RETIRED = 3

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Int64s = NDArray[np.int64]
Codes = NDArray[np.uint8]


def micros(moment: datetime) -> int:
    """Return an aware time as microseconds since 1970, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(value: int) -> datetime:
    """Return microseconds since 1970 as an aware UTC time."""
    return _EPOCH + value * _MICROSECOND


def code_of(number: int) -> Exclusion | None:
    """Return the code behind a number of `visibility_codes`; None when visible."""
    return None if number == VISIBLE else CODES[number - 1]


@dataclass(frozen=True, slots=True)
class ScopeLabel:
    """Everything about an item that permission rules look at. Items share few labels, so each is
    judged once.
    """

    tenant: str | None
    principals: tuple[str, ...]
    groups: tuple[str, ...]
    sensitivity: str | None
    environment: str | None
    task_types: tuple[str, ...]
    agent_visibility: tuple[str, ...]
    trust: str
    revoked_principals: tuple[str, ...] = ()
    revoked_groups: tuple[str, ...] = ()
    also: ScopeLabel | None = None
    """A label that has to permit as well: that of the version which replaced this one."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks, as what, and for what."""

    principal: str
    tenant: str
    groups: frozenset[str]
    clearance: Sensitivity
    environment: str | None
    purpose: str | None
    task_type: str | None = None
    agent_role: str | None = None
    trust_floor: Trust = Trust.TOOL_UNTRUSTED

    @classmethod
    def of(
        cls,
        identity: Identity,
        *,
        task_type: str | None = None,
        agent_role: str | None = None,
        trust_floor: Trust = Trust.TOOL_UNTRUSTED,
    ) -> Viewer:
        """Make the viewer of an identity."""
        return cls(
            principal=identity.principal,
            tenant=identity.tenant,
            groups=frozenset(identity.groups),
            clearance=identity.clearance,
            environment=identity.environment,
            purpose=identity.purpose,
            task_type=task_type,
            agent_role=agent_role,
            trust_floor=trust_floor,
        )


@dataclass(frozen=True, slots=True)
class Clock:
    """`at` is now (authorization, freshness); `as_of` is which version of the world. Microseconds
    since 1970.
    """

    at: int
    as_of: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateColumns:
    """What time and events say of each row. Times are microseconds since 1970, all of one length.

    The `known_*` columns serve an explicit `as_of`: a version without `valid_from` counts from when
    it was recorded.
    """

    scope: NDArray[np.int32]
    state: NDArray[np.uint8]
    valid_from: Int64s
    valid_until: Int64s
    superseded_at: Int64s
    known_from: Int64s
    known_superseded_at: Int64s
    known_withdrawn_from: Int64s
    """Later versions that have been withdrawn superseded a row from this time ..."""
    known_withdrawn_until: Int64s
    """... to before this one; `NEVER` and `NEVER` where there were none."""
    replaced_at: Int64s
    """When another item that names a row replaced it; part of `superseded_at`."""
    known_replaced_at: Int64s
    marked_at: Int64s
    """When the overlay says that a row is superseded; a later version of the item decides that by
    itself."""
    retired_at: Int64s
    tied: NDArray[np.bool_]
    """Whether the next row is a version of the same item that neither follows nor precedes this
    one."""


def permission_code(label: ScopeLabel, viewer: Viewer) -> Exclusion | None:
    """Judge one label for one viewer. What is missing denies."""
    if not label.tenant or label.tenant != viewer.tenant:
        return Exclusion.WRONG_TENANT
    if not _is_named(label, viewer):
        return Exclusion.NOT_PERMITTED
    if (
        label.sensitivity is None
        or SENSITIVITY_RANK[Sensitivity(label.sensitivity)] > SENSITIVITY_RANK[viewer.clearance]
    ):
        return Exclusion.OVER_CLEARANCE
    if label.environment is not None and label.environment != viewer.environment:
        return Exclusion.WRONG_ENVIRONMENT
    if label.task_types and not _in_scope(label.task_types, viewer):
        return Exclusion.OUT_OF_SCOPE
    if label.agent_visibility and viewer.agent_role not in label.agent_visibility:
        return Exclusion.ROLE_DENIED
    if TRUST_RANK[Trust(label.trust)] < TRUST_RANK[viewer.trust_floor]:
        return Exclusion.BELOW_TRUST
    return None if label.also is None else permission_code(label.also, viewer)


def _is_named(label: ScopeLabel, viewer: Viewer) -> bool:
    if EVERYONE in label.revoked_groups or viewer.principal in label.revoked_principals:
        return False
    if not viewer.groups.isdisjoint(label.revoked_groups):
        return False
    if viewer.principal in label.principals or EVERYONE in label.groups:
        return True
    return not viewer.groups.isdisjoint(label.groups)


def _in_scope(task_types: tuple[str, ...], viewer: Viewer) -> bool:
    return viewer.task_type in task_types or (
        viewer.purpose is not None and viewer.purpose in task_types
    )


def is_within(narrow: ScopeLabel, wide: ScopeLabel) -> bool:
    """Return whether whoever passes `narrow` certainly passes `wide`. False may also mean that it
    is not certain.
    """
    if _lets_in_nobody(narrow):
        return True
    if narrow.also is not None and is_within(narrow.also, wide):
        return True
    return (
        narrow.tenant == wide.tenant
        and _names_no_more(narrow, wide)
        and set(wide.revoked_principals) <= set(narrow.revoked_principals)
        and set(wide.revoked_groups) <= set(narrow.revoked_groups)
        and _as_close(narrow, wide)
        and wide.environment in (None, narrow.environment)
        and _one_of(narrow.task_types, wide.task_types)
        and _one_of(narrow.agent_visibility, wide.agent_visibility)
        and (wide.also is None or is_within(narrow, wide.also))
    )


def _lets_in_nobody(label: ScopeLabel) -> bool:
    unnamed = not (label.principals or label.groups) or EVERYONE in label.revoked_groups
    return not label.tenant or label.sensitivity is None or unnamed


def _names_no_more(narrow: ScopeLabel, wide: ScopeLabel) -> bool:
    if EVERYONE in wide.groups:
        return True
    return set(narrow.principals) <= set(wide.principals) and set(narrow.groups) <= set(wide.groups)


def _as_close(narrow: ScopeLabel, wide: ScopeLabel) -> bool:
    """Whether sensitivity and trust ask no less."""
    if wide.sensitivity is None or narrow.sensitivity is None:
        return False
    if (
        SENSITIVITY_RANK[Sensitivity(narrow.sensitivity)]
        < SENSITIVITY_RANK[Sensitivity(wide.sensitivity)]
    ):
        return False
    return TRUST_RANK[Trust(narrow.trust)] <= TRUST_RANK[Trust(wide.trust)]


def _one_of(narrow: tuple[str, ...], wide: tuple[str, ...]) -> bool:
    return not wide or (bool(narrow) and set(narrow) <= set(wide))


def label_codes(labels: Sequence[ScopeLabel], viewer: Viewer) -> Codes:
    """Return one code number per label."""
    numbers = (_number(permission_code(label, viewer)) for label in labels)
    return np.fromiter(numbers, dtype=np.uint8, count=len(labels))


def _number(code: Exclusion | None) -> int:
    return VISIBLE if code is None else _NUMBER[code]


def visibility_codes(columns: StateColumns, permissions: Codes, clock: Clock) -> Codes:
    """Return the code number of every row: 0 is visible, else the first rule that failed.

    `permissions` is `label_codes` of the labels that `columns.scope` points into.
    """
    return joined_codes(permissions[columns.scope], time_codes(columns, clock))


def time_codes(columns: StateColumns, clock: Clock) -> Codes:
    """Return the code number of what time and events say of every row, whoever looks."""
    codes = np.full(len(columns.scope), VISIBLE, np.uint8)
    for code, failed in reversed(_time_rules(columns, clock)):
        codes[failed] = _NUMBER[code]
    return codes


def joined_codes(permitted: Codes, timed: Codes) -> Codes:
    """Return the first rule that failed: those of permission come before those of time."""
    return np.where(permitted == VISIBLE, timed, permitted)


def _time_rules(
    columns: StateColumns, clock: Clock
) -> tuple[tuple[Exclusion, NDArray[np.bool_]], ...]:
    quarantined = columns.state == STATE_QUARANTINED
    forgotten = columns.state == STATE_FORGOTTEN
    if clock.as_of is None:
        moment, start = clock.at, columns.valid_from
        superseded = columns.superseded_at <= moment
        retired = (columns.state == STATE_RETIRED) | (columns.retired_at < NEVER)
    else:
        moment, start = clock.as_of, columns.known_from
        withdrawn = (columns.known_withdrawn_from <= moment) & (
            moment < columns.known_withdrawn_until
        )
        superseded = (columns.known_superseded_at <= moment) | withdrawn
        retired = columns.retired_at <= moment
    return (
        (Exclusion.QUARANTINED, quarantined),
        (Exclusion.FORGOTTEN, forgotten),
        (Exclusion.RETIRED, retired),
        (Exclusion.NOT_YET_VALID, start > moment),
        (Exclusion.EXPIRED, columns.valid_until <= moment),
        (Exclusion.SUPERSEDED, superseded),
    )


def stale_codes(verified_at: Int64s, fail_after: Int64s, clock: Clock) -> NDArray[np.bool_]:
    """Return which rows are past their source's fail window at the clock.

    `fail_after` is the window in microseconds, `NEVER` where the source has none.
    """
    return (fail_after < NEVER) & (verified_at < clock.at - fail_after)
