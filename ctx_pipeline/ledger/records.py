"""What the ledger takes and gives: frozen rows, and the one way times are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

from ctx_pipeline.contracts.report import FileError, SourceFile
from ctx_pipeline.errors import InvalidRequest, NotFound

OverlayCode = Literal[
    "superseded",
    "retired",
    "restored",
    "revoked",
    "quarantined",
    "released",
    "forgotten",
    "confirmed",
]
OVERLAY_CODES: frozenset[str] = frozenset(get_args(OverlayCode))

MAX_RECALL_IDS = 100
"""Snapshots that one notice names; `snapshots` counts them all."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(value: datetime) -> int:
    """Return an instant as whole microseconds since 1970 UTC.

    Raises:
        InvalidRequest: the time has no zone (`naive_time`).
    """
    if value.tzinfo is None:
        raise InvalidRequest(
            "time has no zone", fix="pass an aware datetime, for example in UTC", code="naive_time"
        )
    return (value - _EPOCH) // _MICROSECOND


def from_micros(value: int) -> datetime:
    """Return the UTC instant that `to_micros` stored."""
    return _EPOCH + timedelta(microseconds=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayEntry:
    """One change of visibility that is effective before any rebuild."""

    sequence: int | None = None
    """Assigned by the ledger, from 1, without gaps, in commit order."""
    code: OverlayCode
    tenant: str
    item_id: str
    version: str | None = None
    """None: every version."""
    principal: str | None = None
    """Whose grant is `revoked`; with `group` None and this None: everybody's."""
    group: str | None = None
    effective_at: datetime
    recorded_at: datetime
    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceObservation:
    """The last look at one source."""

    name: str
    kind: str
    observed_at: datetime
    fingerprint: str
    status: Literal["ok", "failed"]
    items: int
    errors: tuple[FileError, ...] = ()
    files: tuple[SourceFile, ...] = ()
    succeeded_at: datetime | None = None
    """When the source was last observed with status `ok`; filled by the ledger, ignored on input.
    """


ShownItem = tuple[str, str, str | None, bool]
"""item_id, version, rendition (None when excluded), selected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRecord:
    """What is kept of one call. Texts are JSON documents; `blobs` hold each rendered block once, by
    hash.
    """

    snapshot_id: str
    tenant: str
    principal: str
    created_at: datetime
    run_id: str
    turn_id: str
    session_id: str | None = None
    hash: str
    snapshot_json: str
    pack_json: str | None
    """None when no pack left, for example after a failed gate."""
    trace_json: str
    request_json: str
    status: str
    blobs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Hash to text; empty on a record that was read back (ask `get_blobs`)."""
    items: tuple[ShownItem, ...] = ()
    """Every candidate, each item version once; empty on a record that was read back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallNotice:
    """Word that an item version which calls have shown is no longer right, and in which calls it
    was.
    """

    sequence: int | None = None
    """Assigned by the ledger in commit order, with gaps; ignored on input."""
    tenant: str
    item_id: str
    version: str
    code: str
    """What became of the version, for example `superseded` or `retired`."""
    reason: str
    at: datetime
    actor: str
    snapshots: int
    """How many calls had shown the version when the notice was written."""
    snapshot_ids: tuple[str, ...] = ()
    """The latest of them, newest first, at most `MAX_RECALL_IDS`; more are cut off when the notice
    is written."""
    pruned_ids: tuple[str, ...] = ()
    """Those of `snapshot_ids` that are no longer stored; filled when the notice is read, ignored on
    input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedSnapshot:
    """What is left of a snapshot whose time to be kept has passed."""

    snapshot_id: str
    tenant: str
    principal: str
    created_at: datetime

    def error(self) -> NotFound:
        """Return what its owner is told who asks for it."""
        return NotFound(
            f"this snapshot of {self.created_at:%Y-%m-%d} is older than "
            "snapshots are kept: it was pruned",
            where=f"snapshot {self.snapshot_id[:80]!r}",
            fix="restore .ctx/state from a backup of that time into another folder, and ask there",
            code="snapshot_pruned",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """How often an item was a candidate, over all stored snapshots."""

    selected: int
    excluded: int
    used: int
    """Snapshots whose answer was reported to cite the item."""
    snapshot_ids: tuple[str, ...]
    """The last snapshots that selected it, newest first."""
