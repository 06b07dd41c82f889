"""One request becomes one pack: the only place that knows the order of the stages."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ctx_pipeline.contracts import (
    ContextPack,
    ContextPolicy,
    ContextRequest,
    GateCheck,
    Identity,
    ModelProfile,
    PackWarning,
)
from ctx_pipeline.contracts.render import SECTION_FOOTER
from ctx_pipeline.errors import GateFailed
from ctx_pipeline.security.visibility import Clock, Viewer, micros
from ctx_pipeline.stages import assemble, budget, discover, gate, rank, snapshot, transform
from ctx_pipeline.stages import filter as filter_stage
from ctx_pipeline.stages.candidates import REQUEST_ROW, Candidate
from ctx_pipeline.stages.sections import SECTIONS
from ctx_pipeline.text import canonical_json, sha256_hex
from ctx_pipeline.tokens import count_tokens

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ctx_pipeline.index.reader import ServingView
    from ctx_pipeline.ledger import SnapshotRecord

QUERY_CACHE = 4_096
"""Query embeddings kept per process."""

STAGES = ("embed", "discover", "filter", "rank", "budget", "assemble", "gate", "snapshot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Everything one assembly depends on beside the index. Same call, same view: same bytes."""

    request: ContextRequest
    identity: Identity
    profile: ModelProfile
    policy: ContextPolicy
    at: datetime
    refreshed: Mapping[str, int]
    """When each source was last read, in microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """A pack, and the record that keeps it."""

    pack: ContextPack
    candidates: list[Candidate]
    record: Callable[[], SnapshotRecord]


class Engine:
    """Runs the stages. Holds no state of a call; safe to share between threads."""

    def __init__(self, embed_query: Callable[[str], NDArray[np.float32]]) -> None:
        self._embed_query = embed_query
        self._vectors: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._lock = threading.Lock()

    def query_vector(self, text: str) -> NDArray[np.float32]:
        """Return the embedding of a query, from the cache where it has been seen before."""
        with self._lock:
            known = self._vectors.get(text)
            if known is not None:
                self._vectors.move_to_end(text)
                return known
        vector = self._embed_query(text)
        with self._lock:
            self._vectors[text] = vector
            while len(self._vectors) > QUERY_CACHE:
                self._vectors.popitem(last=False)
        return vector

    def assemble(self, call: Call, view: ServingView, *, seconds: dict[str, float] | None = None) -> Assembled:
        """Turn one call into a pack. `seconds` collects the wall time of each stage.

        Raises:
            BudgetTooSmall: what may never be dropped does not fit.
            GateFailed: a hard preflight check failed; the error carries the record to store.
        """
        timer = _Timer(seconds)
        request, policy, profile = call.request, call.policy, call.profile
        viewer = Viewer.of(
            call.identity, task_type=request.task.type, agent_role=request.agent_role, trust_floor=policy.trust_floor
        )
        clock = Clock(at=micros(call.at), as_of=None if request.as_of is None else micros(request.as_of))
        encoding = profile.encoding
        vector = self.query_vector(discover.query_text(request)) if view.reader.rows else None
        timer.done("embed")
        found = discover.serve(
            request,
            view,
            viewer=viewer,
            clock=clock,
            vector=vector,
            limit=policy.candidate_limit,
            tokens_of=lambda text: count_tokens(text, encoding),
            encoding=encoding,
        )
        timer.done("discover")
        kept = filter_stage.serve(found.candidates, view, viewer, clock)
        timer.done("filter")
        ranked = rank.serve(kept, view, policy=policy, clock=clock, refreshed=call.refreshed)
        timer.done("rank")
        headings = heading_tokens(encoding)
        budgeted = budget.serve(ranked.candidates, request, profile=profile, policy=policy, heading_tokens=headings)
        candidates = budgeted.candidates
        timer.done("budget")

        def text_of(candidate: Candidate) -> str:
            return transform.serve(candidate, view.reader)

        sections = assemble.serve(candidates, text_of, headings)
        tools = assemble.capabilities(candidates, text_of)
        total = assemble.total_tokens(sections, tools)
        timer.done("assemble")
        findings = gate.check(
            candidates,
            request,
            policy=policy,
            conflicts=ranked.conflicts,
            visible=_still_visible(candidates, view, viewer, clock),
            total_tokens=total,
            usable=budgeted.report.usable,
        )
        timer.done("gate")
        pack_hash = assemble.pack_hash(sections, tools, policy.policy_version)
        request_hash = snapshot.request_hash(request)
        snapshot_id = snapshot.snapshot_id(
            call.identity,
            call.at,
            request_hash,
            sha256_hex(pack_hash + canonical_json(dict(call.refreshed))),
            view.reader.content_hash,
            view.overlay_sequence,
        )
        pack = ContextPack(
            pack_id="pack_" + pack_hash[:32],
            snapshot_id=snapshot_id,
            sections=sections,
            capabilities=tools,
            conflicts=ranked.conflicts,
            warnings=(*_request_warnings(call), *gate.warnings_of(findings)),
            budget=budgeted.report,
            total_tokens=total,
            prefix=assemble.prefix_of(sections),
            policy_version=policy.policy_version,
            ranking_version=rank.RANKING_VERSION,
            compaction_version=assemble.COMPACTION_VERSION,
            index_version=view.reader.content_hash,
            overlay_sequence=view.overlay_sequence,
            tokenizer=encoding,
            denied={code.value: number for code, number in found.denied.items()},
            tool_context=request.tool_context,
            hash=pack_hash,
        )
        result = Assembled(pack, candidates, _recorder(call, pack, candidates, request_hash))
        timer.done("snapshot")
        hard = [finding for finding in findings if finding.check in policy.hard_gates]
        if hard:
            raise GateRefusal(result, tuple(hard))
        return result


class GateRefusal(Exception):
    """Carries a refused pack's record to the shell, which stores it and raises `GateFailed`."""

    def __init__(self, result: Assembled, findings: tuple[gate.GateFinding, ...]) -> None:
        super().__init__("a hard preflight check failed")
        self.result = result
        self.findings = findings

    def as_error(self) -> GateFailed:
        """Return the error that the caller sees."""
        first = self.findings[0]
        fixes = {
            GateCheck.REQUIRED_CONTEXT_PRESENT: "add a source with such items, raise the budget, or drop the requirement",
            GateCheck.TOKEN_BUDGET_OK: "raise the budget",
        }
        return GateFailed(
            "; ".join(finding.message for finding in self.findings),
            trace_id=self.result.pack.snapshot_id,
            where=f"preflight check {first.check.value!r}",
            fix=fixes.get(first.check, f"read the trace: ctx explain {self.result.pack.snapshot_id}"),
        )


class _Timer:
    """Adds up wall time per stage, where somebody asked for it."""

    def __init__(self, seconds: dict[str, float] | None) -> None:
        self._seconds = seconds
        self._last = time.perf_counter() if seconds is not None else 0.0

    def done(self, stage: str) -> None:
        if self._seconds is not None:
            now = time.perf_counter()
            self._seconds[stage] = self._seconds.get(stage, 0.0) + now - self._last
            self._last = now


@lru_cache(maxsize=8)
def heading_tokens(encoding: str) -> dict[str, int]:
    """Return what opening and closing each section costs, in tokens."""
    return {
        section.name: count_tokens(assemble.heading_of(section), encoding) + count_tokens(SECTION_FOOTER, encoding)
        for section in SECTIONS
    }


def _still_visible(candidates: list[Candidate], view: ServingView, viewer: Viewer, clock: Clock) -> list[bool]:
    import numpy as np

    rows = np.fromiter((c.row for c in candidates if c.selected and c.row != REQUEST_ROW), np.intp)
    return [code == 0 for code in view.codes(rows, viewer, clock).tolist()]


def _request_warnings(call: Call) -> tuple[PackWarning, ...]:
    if call.request.phase in call.policy.phases:
        return ()
    message = f"phase {call.request.phase!r} is not in policy {call.policy.name!r}; its default rules apply"
    return (PackWarning(code="unknown_phase", message=message),)


def _recorder(
    call: Call, pack: ContextPack, candidates: list[Candidate], request_hash: str
) -> Callable[[], SnapshotRecord]:
    """Return what builds the stored record; it runs on the ledger's writer, after the pack has left."""

    def build() -> SnapshotRecord:
        from ctx_pipeline.ledger import SnapshotRecord

        kept = snapshot.serve(
            pack, call.request, call.identity, model_id=call.profile.model_id, clock=call.at, request_hash=request_hash
        )
        folded, blobs = snapshot.fold_pack(pack)
        rows: list[dict[str, Any]] = [snapshot.trace_row(candidate) for candidate in candidates]
        return SnapshotRecord(
            snapshot_id=pack.snapshot_id,
            tenant=call.identity.tenant,
            principal=call.identity.principal,
            created_at=call.at,
            run_id=call.request.run_id,
            turn_id=call.request.turn_id,
            session_id=call.request.session_id,
            hash=pack.hash,
            snapshot_json=canonical_json(kept.model_dump(mode="json")),
            pack_json=folded,
            trace_json=canonical_json(rows),
            request_json=snapshot.stored_request(call.request),
            status="committed",
            blobs=blobs,
            items=tuple((row["item_id"], row["version"], row["rendition"], row["selected"]) for row in rows),
        )

    return build
