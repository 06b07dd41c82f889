"""Snapshot: what this call saw and why, so that it can be explained and replayed byte for byte.

The batch half rolls snapshots up into how often each item was shown, which the index serves beside
an item.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ctx_pipeline.contracts import (
    ContextDecisionTrace,
    ContextPack,
    ContextRequest,
    ContextSnapshot,
    Exclusion,
    FilterStep,
    Identity,
    PackSection,
    SnapshotItem,
)
from ctx_pipeline.contracts.codes import PERMISSION_CODES
from ctx_pipeline.errors import Corrupt
from ctx_pipeline.stages.candidates import Candidate, Verdict
from ctx_pipeline.text import canonical_json, sha256_hex

if TYPE_CHECKING:
    import pyarrow as pa

BLOB = "blob:"
_REQUEST = "request"
_VISIBILITY_RULES: tuple[Exclusion, ...] = tuple(Exclusion)[:14]
_UNSTORED = {"tool_context", "state", "messages", "observations", "tools", "identity"}
"""Parts of a request that are not kept: the Runtime owns them. What of them was shown is in the
blocks."""


def request_hash(request: ContextRequest) -> str:
    """Return the hash of a request without its execution-only values."""
    said = request.model_dump(mode="json", exclude={"tool_context", "messages"})
    # Rows of values take a fifth of the time that so many models do.
    said["messages"] = [
        (m.role, m.content, m.name, m.tool_call_id, m.tool_calls) for m in request.messages
    ]
    return sha256_hex(canonical_json(said))


def stored_request(request: ContextRequest) -> str:
    """Return the part of a request that is kept, as JSON."""
    return canonical_json(request.model_dump(mode="json", exclude=_UNSTORED))


def snapshot_id(
    identity: Identity, clock: datetime, request: str, pack: str, index: str, overlay: int
) -> str:
    """Name a call by what it was: the same call at the same clock is the same snapshot."""
    facts = [identity.tenant, identity.principal, clock.isoformat(), request, pack, index, overlay]
    return "snap_" + sha256_hex(canonical_json(facts))[:32]


def serve(
    pack: ContextPack,
    request: ContextRequest,
    identity: Identity,
    *,
    model_id: str,
    clock: datetime,
    request_hash: str,
) -> ContextSnapshot:
    """Return the record of one call."""
    return ContextSnapshot(
        snapshot_id=pack.snapshot_id,
        pack_id=pack.pack_id,
        run_id=request.run_id,
        turn_id=request.turn_id,
        session_id=request.session_id,
        agent_id=request.agent_id,
        model_id=model_id,
        tenant=identity.tenant,
        principal=identity.principal,
        items=tuple(
            SnapshotItem(
                item_id=item.item_id,
                version=item.version,
                rendition=item.rendition,
                block_hash=sha256_hex(item.text),
            )
            for item in pack.items
        ),
        tool_ids=tuple(tool.item_id for tool in pack.capabilities),
        total_tokens=pack.total_tokens,
        policy_version=pack.policy_version,
        policy_rules=pack.policy_rules,
        policy_decision=pack.policy_decision,
        ranking_version=pack.ranking_version,
        compaction_version=pack.compaction_version,
        index_version=pack.index_version,
        overlay_sequence=pack.overlay_sequence,
        tokenizer=pack.tokenizer,
        hash=pack.hash,
        clock=clock,
        as_of=request.as_of,
        request_hash=request_hash,
    )


def fold_pack(pack: ContextPack) -> tuple[str, dict[str, str]]:
    """Return a pack as JSON whose texts are replaced by hashes, and the texts by hash."""
    blobs: dict[str, str] = {}
    sections: list[dict[str, Any]] = []
    for section in pack.sections:
        folded: dict[str, Any] = section.model_dump(mode="json")
        for item in folded["items"]:
            digest = sha256_hex(item["text"])
            blobs[digest] = item["text"]
            item["text"] = BLOB + digest
        sections.append(folded)
    whole: dict[str, Any] = pack.model_dump(mode="json", exclude={"sections", "tool_context"})
    return canonical_json({**whole, "sections": sections}), blobs


def blob_hashes(folded: str) -> tuple[str, ...]:
    """Return the hashes of the texts that a folded pack needs."""
    parts: dict[str, Any] = json.loads(folded)
    return tuple(
        item["text"].removeprefix(BLOB)
        for section in parts["sections"]
        for item in section["items"]
    )


def unfold_pack(folded: str, blobs: Mapping[str, str]) -> ContextPack:
    """Rebuild a pack from what `fold_pack` made.

    Raises:
        Corrupt: a text is missing or does not match its hash.
    """
    parts: dict[str, Any] = json.loads(folded)
    for section in parts["sections"]:
        for item in section["items"]:
            digest = item["text"].removeprefix(BLOB)
            text = blobs.get(digest)
            if text is None or sha256_hex(text) != digest:
                raise Corrupt(
                    f"the stored text of {item['item_id']!r} is missing or damaged",
                    where="ledger blobs",
                    fix="run `ctx doctor`; restore .ctx/state from a backup",
                )
            item["text"] = text
    return ContextPack.model_validate(parts)


def trace_row(candidate: Candidate, verdict: Verdict) -> dict[str, Any]:
    """Return a candidate and what was decided of it as the compact row that is stored."""
    return {
        "item_id": candidate.item_id,
        "version": candidate.version,
        "kind": candidate.kind,
        "title": candidate.title,
        "discovered_by": list(candidate.discovered_by),
        "features": {name: round(value, 6) for name, value in verdict.features.items()},
        "score": round(verdict.score, 6),
        "authority": candidate.authority,
        "token_cost": verdict.cost(candidate),
        "rendition": None if verdict.rendition is None else verdict.rendition.value,
        "selected": verdict.selected,
        "selected_reason": verdict.reason,
        "excluded_reason": None if verdict.excluded is None else verdict.excluded.value,
        "parent_item_id": candidate.parent,
        "counterfactual": verdict.counterfactual,
    }


def trace_of(row: Mapping[str, Any], decision_id: str | None = None) -> ContextDecisionTrace:
    """Return a stored row as a trace with every filter step spelled out.

    `decision_id` is that of the call's policy service; what came with the request was never asked
    about.
    """
    excluded = None if row["excluded_reason"] is None else Exclusion(row["excluded_reason"])
    rendition = row["rendition"]
    return ContextDecisionTrace(
        item_id=row["item_id"],
        version=row["version"],
        kind=row["kind"],
        title=row["title"],
        discovered_by=tuple(row["discovered_by"]),
        filters=_filter_steps(excluded),
        features=row["features"],
        score=row["score"],
        authority=row["authority"],
        freshness=row["features"].get("freshness", 1.0),
        token_cost=row["token_cost"],
        rendition=rendition,
        selected=row["selected"],
        selected_reason=row["selected_reason"],
        excluded_reason=excluded,
        transforms=() if rendition in (None, "full") else (rendition,),
        parent_item_id=row["parent_item_id"],
        counterfactual=row["counterfactual"],
        decision_id=None if _REQUEST in row["discovered_by"] else decision_id,
    )


def _filter_steps(excluded: Exclusion | None) -> tuple[FilterStep, ...]:
    steps: list[FilterStep] = []
    for rule in _VISIBILITY_RULES:
        failed = rule is excluded and rule not in PERMISSION_CODES
        steps.append(FilterStep(rule=rule.value, passed=not failed, code=rule if failed else None))
        if failed:
            break
    return tuple(steps)


def places(sections: Sequence[PackSection]) -> dict[str, str]:
    """Return each shown item's place as `<number of section>.<place>`, which sorts as the pack
    reads.
    """
    return {
        item.item_id: f"{number:02d}.{place:04d}"
        for number, section in enumerate(sections)
        for place, item in enumerate(section.items)
    }


class ExposureRow(NamedTuple):
    """How often one item version was a candidate."""

    tenant: str
    item_id: str
    version: str
    selected: int
    excluded: int
    used: int


def batch(rows: Iterable[ExposureRow]) -> pa.Table:
    """Return how often each item version was shown, left out and cited, over
    all stored snapshots.
    """
    import pyarrow as pa

    columns = list(zip(*rows, strict=True)) or [()] * len(ExposureRow._fields)
    types = (pa.large_string(),) * 3 + (pa.int64(),) * 3
    return pa.table(
        {
            name: pa.array(values, kind)
            for name, values, kind in zip(ExposureRow._fields, columns, types, strict=True)
        }
    )
