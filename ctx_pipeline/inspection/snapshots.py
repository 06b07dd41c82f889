"""Read snapshots back: explain, replay, diff. Rights are those of today; neither clock rewinds
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from ctx_pipeline.contracts import (
    Capability,
    ContextDecisionTrace,
    ContextPack,
    ContextSnapshot,
    DiffEntry,
    Exclusion,
    Identity,
    PackItem,
    SnapshotDiff,
    Trust,
)
from ctx_pipeline.errors import Corrupt, InvalidRequest, NotFound, NotPermitted
from ctx_pipeline.index.serving import ServingIndex
from ctx_pipeline.index.view import ServingView
from ctx_pipeline.security.visibility import UNNAMED_CODES, Clock, Viewer, code_of, micros
from ctx_pipeline.stages import assemble, snapshot
from ctx_pipeline.stages.candidates import REQUEST_SOURCE

if TYPE_CHECKING:
    from ctx_pipeline.ledger import Ledger, SnapshotRecord

Key = tuple[str, str]
"""Item id and version."""


WITHHELD_CODES = UNNAMED_CODES | {Exclusion.QUARANTINED}
"""What shows none of its content any more, in whatever pack it was."""


class SnapshotReader:
    """Reads what calls saw, for those who made them."""

    def __init__(self, ledger: Ledger, index: ServingIndex, trust_floor: Trust) -> None:
        self._ledger = ledger
        self._trust_floor = trust_floor
        self._index = index

    def own(self, snapshot_id: str, identity: Identity) -> SnapshotRecord:
        """Return a snapshot of this very principal.

        Raises:
            NotFound: there is none, somebody else's answers the same; or it was pruned
                (`snapshot_pruned`).
        """
        record = self._ledger.snapshot(snapshot_id)
        if record is None or (record.tenant, record.principal) != (
            identity.tenant,
            identity.principal,
        ):
            pruned = self._ledger.pruned(snapshot_id) if record is None else None
            if pruned is not None and (pruned.tenant, pruned.principal) == (
                identity.tenant,
                identity.principal,
            ):
                raise pruned.error()
            raise NotFound(
                "no such snapshot for this identity",
                where=f"snapshot {snapshot_id[:80]!r}",
                fix="pass the --tenant and --principal that assembled it",
            )
        return record

    def latest(self, identity: Identity, limit: int) -> tuple[ContextSnapshot, ...]:
        """Return this principal's latest snapshots, newest first, without items it may no longer
        know of.
        """
        records = self._ledger.snapshots(identity.tenant, identity.principal, limit)
        return tuple(self._named_alone(record, identity) for record in records)

    def _named_alone(self, record: SnapshotRecord, identity: Identity) -> ContextSnapshot:
        kept = ContextSnapshot.model_validate_json(record.snapshot_json)
        rows: list[dict[str, Any]] = json.loads(record.trace_json)
        chosen = [(row["item_id"], row["version"]) for row in rows if row["selected"]]
        hidden = self._hidden(chosen, record, identity)
        tools = {item_id for item_id, _ in hidden}
        return kept.model_copy(
            update={
                "items": tuple(
                    item for item in kept.items if (item.item_id, item.version) not in hidden
                ),
                "tool_ids": tuple(item_id for item_id in kept.tool_ids if item_id not in tools),
            }
        )

    def _hidden(
        self, keys: Iterable[Key], record: SnapshotRecord, identity: Identity
    ) -> dict[Key, Exclusion]:
        """Return those of a call's item versions that this identity may not know of today, with the
        reason.
        """
        codes = self._codes(keys, record, identity)
        return {key: code for key, code in codes.items() if code in UNNAMED_CODES}

    def _codes(
        self, keys: Iterable[Key], record: SnapshotRecord, identity: Identity
    ) -> dict[Key, Exclusion]:
        """Return what the predicate says today of those item versions that are not visible."""
        viewer = _viewer(record, identity, self._trust_floor)
        codes = _codes_now(keys, self._index.view(), viewer, _own(record))
        return {key: code for key, code in codes.items() if code is not None}

    def explain(self, snapshot_id: str, identity: Identity) -> tuple[ContextDecisionTrace, ...]:
        """Return the traces of a call, without what this identity may no longer know of."""
        record = self.own(snapshot_id, identity)
        rows: list[dict[str, Any]] = json.loads(record.trace_json)
        codes = self._codes([(row["item_id"], row["version"]) for row in rows], record, identity)
        hidden = {key for key, code in codes.items() if code in UNNAMED_CODES}
        untitled = {key for key, code in codes.items() if code in WITHHELD_CODES}
        named = {row["item_id"] for row in rows if (row["item_id"], row["version"]) not in hidden}
        unnamed = {item_id for item_id, _ in hidden} - named
        decision = ContextSnapshot.model_validate_json(record.snapshot_json).policy_decision
        decision_id = None if decision is None else decision.decision_id
        return tuple(
            snapshot.trace_of(_without(row, unnamed, title=key not in untitled), decision_id)
            for row in rows
            if (key := (row["item_id"], row["version"])) not in hidden
        )

    def why(
        self, snapshot_id: str, item_id: str, identity: Identity
    ) -> tuple[ContextDecisionTrace, ...]:
        """Return the traces of one item in a call."""
        found = tuple(
            trace for trace in self.explain(snapshot_id, identity) if trace.item_id == item_id
        )
        if not found:
            raise NotFound(
                "that item was no candidate of this call, for this identity",
                where=f"item {item_id[:200]!r}",
                fix=f"probe it on its own: ctx why-not {item_id[:200]!r}",
                code="not_discovered",
            )
        return found

    def replay(self, snapshot_id: str, identity: Identity) -> ContextPack:
        """Rebuild a pack and check its hash."""
        record = self.own(snapshot_id, identity)
        if record.pack_json is None:
            raise InvalidRequest(
                "this call was refused by a preflight check, so there is no pack",
                where=f"snapshot {snapshot_id!r}",
                fix=f"read its trace: ctx explain {snapshot_id}",
                code="no_pack",
            )
        self._check_rights(record, identity)
        blobs = self._ledger.get_blobs(snapshot.blob_hashes(record.pack_json))
        pack = snapshot.unfold_pack(record.pack_json, blobs)
        if assemble.pack_hash(pack.sections, pack.capabilities, pack.policy_version) != pack.hash:
            raise Corrupt(
                "the rebuilt pack does not have the hash it was stored with",
                where=f"snapshot {snapshot_id!r}",
                fix="run `ctx doctor`; restore .ctx/state from a backup",
            )
        return pack

    def _check_rights(self, record: SnapshotRecord, identity: Identity) -> None:
        codes = set(self._codes(_shown(record), record, identity).values()) & WITHHELD_CODES
        if Exclusion.FORGOTTEN in codes:
            raise NotFound(
                "content of this snapshot was erased",
                where=f"snapshot {record.snapshot_id!r}",
                fix="assemble the request again",
                code="erased",
            )
        if codes:
            raise NotPermitted(
                "this identity may no longer see everything in this snapshot",
                where=f"snapshot {record.snapshot_id!r}",
                fix="assemble the request again with today's rights",
            )

    def diff(self, a: str, b: str, identity: Identity) -> SnapshotDiff:
        """Compare two snapshots by item; tools are items."""
        before, after = self.replay(a, identity), self.replay(b, identity)
        reasons_a = {(trace.item_id, trace.version): trace for trace in self.explain(a, identity)}
        traces_b = self.explain(b, identity)
        old, new = _by_id(before), _by_id(after)
        places_a, places_b = _places(before), _places(after)
        both = [item_id for item_id in old if item_id in new]
        entered = [
            _entered(new[item_id], old.get(item_id), reasons_a.get((item_id, new[item_id].version)))
            for item_id in new
            if _is_new(old, new, item_id)
        ]
        left = [
            DiffEntry(
                item_id=item_id,
                version=old[item_id].version,
                reason=_why_left(old[item_id], new.get(item_id), traces_b),
            )
            for item_id in old
            if _is_new(new, old, item_id)
        ]
        changed = [
            DiffEntry(
                item_id=item_id,
                version=new[item_id].version,
                reason="budget or score gave it another rendition",
                before=old[item_id].rendition.value,
                after=new[item_id].rendition.value,
            )
            for item_id in both
            if old[item_id].version == new[item_id].version
            and old[item_id].rendition != new[item_id].rendition
        ]
        moved = [
            DiffEntry(
                item_id=item_id,
                version=new[item_id].version,
                reason="its score changed against the others",
                before=places_a[item_id],
                after=places_b[item_id],
            )
            for item_id in _reordered(both, places_a, places_b)
        ]
        return SnapshotDiff(
            a=a,
            b=b,
            entered=tuple(entered),
            left=tuple(left),
            rendition_changed=tuple(changed),
            moved=tuple(moved),
        )


def _viewer(record: SnapshotRecord, identity: Identity, trust_floor: Trust) -> Viewer:
    """Return today's identity in the role and for the task of the call."""
    request: dict[str, Any] = json.loads(record.request_json)
    return Viewer.of(
        identity,
        task_type=request["task"]["type"],
        agent_role=request["agent_role"],
        trust_floor=trust_floor,
    )


def _own(record: SnapshotRecord) -> frozenset[Key]:
    """Return what came with the request: it belongs to the caller, whatever its id looks like."""
    rows: list[dict[str, Any]] = json.loads(record.trace_json)
    return frozenset(
        (row["item_id"], row["version"]) for row in rows if REQUEST_SOURCE in row["discovered_by"]
    )


def _shown(record: SnapshotRecord) -> list[Key]:
    """Return every item version that a stored pack names: shown, offered as a tool, or part of a
    conflict.
    """
    if record.pack_json is None:
        return []
    pack: dict[str, Any] = json.loads(record.pack_json)
    parts: list[dict[str, Any]] = [
        item for section in pack["sections"] for item in section["items"]
    ]
    parts.extend(pack["capabilities"])
    for conflict in pack["conflicts"]:
        parts.extend(side for side in (conflict["winner"], *conflict["losers"]) if side is not None)
    return list(dict.fromkeys((part["item_id"], part["version"]) for part in parts))


def _without(row: dict[str, Any], unnamed: set[str], *, title: bool) -> dict[str, Any]:
    """Return a trace row that mentions none of these items, and its own title only if it may."""
    mentions = {name: row[name] for name in ("parent_item_id", "counterfactual", "selected_reason")}
    hidden = {
        name: None
        for name, text in mentions.items()
        if text and any(item_id in text for item_id in unnamed)
    }
    return {**row, **hidden, "title": row["title"] if title else ""}


def _codes_now(
    keys: Iterable[Key], view: ServingView, viewer: Viewer, own: frozenset[Key]
) -> dict[Key, Exclusion | None]:
    """Return what the predicate says today of the item versions of a call.

    What is the caller's own passes. A version that the index no longer has was forgotten.
    """
    clock = Clock(at=micros(datetime.now(UTC)))
    codes: dict[Key, Exclusion | None] = {}
    rows: dict[Key, int] = {}
    for key in keys:
        if key in own:
            codes[key] = None
            continue
        versions = view.reader.find(viewer.tenant, key[0])
        row = next((row for row in versions if view.reader.text("version", row) == key[1]), None)
        if row is None:
            codes[key] = Exclusion.FORGOTTEN
        else:
            rows[key] = row
    numbers = view.codes(np.asarray(list(rows.values()), np.intp), viewer, clock).tolist()
    codes.update({key: code_of(number) for key, number in zip(rows, numbers, strict=True)})
    return codes


def _by_id(pack: ContextPack) -> dict[str, PackItem | Capability]:
    return {item.item_id: item for item in (*pack.items, *pack.capabilities)}


def _places(pack: ContextPack) -> dict[str, str]:
    """Return the place of everything shown; tools stand after the sections."""
    tools = {
        tool.item_id: f"{len(pack.sections):02d}.{place:04d}"
        for place, tool in enumerate(pack.capabilities)
    }
    return {**snapshot.places(pack.sections), **tools}


def _is_new(
    old: Mapping[str, PackItem | Capability], new: Mapping[str, PackItem | Capability], item_id: str
) -> bool:
    return item_id not in old or old[item_id].version != new[item_id].version


def _entered(
    item: PackItem | Capability,
    old: PackItem | Capability | None,
    before: ContextDecisionTrace | None,
) -> DiffEntry:
    if old is not None:
        reason = f"replaces version {old.version}"
    elif before is None:
        reason = "was not found before"
    else:
        reason = f"was out before: {before.excluded_reason}"
    return DiffEntry(
        item_id=item.item_id, version=item.version, reason=reason, after=item.rendition.value
    )


def _why_left(
    old: PackItem | Capability,
    new: PackItem | Capability | None,
    traces: tuple[ContextDecisionTrace, ...],
) -> str:
    for trace in traces:
        if (
            trace.item_id == old.item_id
            and trace.version == old.version
            and trace.excluded_reason is not None
        ):
            return trace.excluded_reason.value
    return "was not found" if new is None else f"replaced by version {new.version}"


def _reordered(both: list[str], before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the items whose order among those that both packs show has changed."""
    order_a = sorted(both, key=lambda item_id: before[item_id])
    order_b = sorted(both, key=lambda item_id: after[item_id])
    return [item_id for item_id, other in zip(order_a, order_b, strict=True) if item_id != other]
