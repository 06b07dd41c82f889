"""One request becomes one pack: the only place that knows the order of the stages."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctx_pipeline.contracts import (
    ConflictRecord,
    ContextPack,
    ContextRequest,
    EffectivePolicy,
    GateCheck,
)
from ctx_pipeline.errors import GateFailed, InvalidRequest
from ctx_pipeline.language.tokens import known_counts, token_counter
from ctx_pipeline.stages import filter as filter_stage
from ctx_pipeline.stages import gate, intake, routing, snapshot, tool_faults
from ctx_pipeline.stages.budget import serve as budget
from ctx_pipeline.stages.budget.window import Limits, limits_of
from ctx_pipeline.stages.call import Call, Chosen
from ctx_pipeline.stages.candidates import REQUEST_ROW, Judged
from ctx_pipeline.stages.deadline import Deadline
from ctx_pipeline.stages.discover import serve as discover
from ctx_pipeline.stages.discover.periods import Period
from ctx_pipeline.stages.discover.queries import Query, plan_queries
from ctx_pipeline.stages.packing import heading_tokens, pack_of, recorder, show
from ctx_pipeline.stages.rank import conflicts, duplicates, relevance, rerank
from ctx_pipeline.stages.rank import serve as rank
from ctx_pipeline.stages.rank.features import Case

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ctx_pipeline.index.reranker import Reranker
    from ctx_pipeline.index.view import ServingView
    from ctx_pipeline.ledger import SnapshotRecord

QUERY_CACHE = 4_096
"""Query embeddings kept per process."""

IMPROVE_SECONDS = 0.002
"""Time that has to be left before a deadline for the budget to be improved by exchanges."""
FINISH_SECONDS = 0.010
"""Time that has to be left after a query has been embedded: an assembly at 10,000 items takes half
of it."""
EMBED_SECONDS = 0.020
"""What embedding a query is taken to need until one has been measured."""
SENT_SHARE = 0.6
"""Share of a deadline after which no further message of the conversation is looked at."""

STAGES = ("embed", "discover", "filter", "rank", "budget", "assemble", "gate", "snapshot")


@dataclass(frozen=True, slots=True)
class Assembled:
    """A pack, and the record that keeps it."""

    pack: ContextPack
    judged: Judged
    record: Callable[[], SnapshotRecord]


class Engine:
    """Runs the stages. Holds no state of a call; safe to share between threads."""

    def __init__(
        self,
        embed_query: Callable[[str], NDArray[np.float32]],
        reranker: Callable[[], Reranker | None] = lambda: None,
    ) -> None:
        self._embed_query = embed_query
        self._reranker = reranker
        self._vectors: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._lock = threading.Lock()
        self._embed_seconds = EMBED_SECONDS

    def query_vector(self, text: str) -> NDArray[np.float32]:
        """Return the embedding of a query, from the cache where it has been seen before."""
        with self._lock:
            known = self._vectors.get(text)
            if known is not None:
                self._vectors.move_to_end(text)
                return known
        started = time.perf_counter()
        vector = self._embed_query(text)
        with self._lock:
            self._embed_seconds = time.perf_counter() - started
            self._vectors[text] = vector
            while len(self._vectors) > QUERY_CACHE:
                self._vectors.popitem(last=False)
        return vector

    def _vector_in_time(self, text: str, deadline: Deadline) -> NDArray[np.float32] | None:
        """Return the embedding of a query, or None where making it would miss the deadline."""
        with self._lock:
            late = text not in self._vectors and not deadline.allows(
                self._embed_seconds + FINISH_SECONDS
            )
            if late:
                # One slow embedding, such as that which loads the model, does not decide for good.
                self._embed_seconds /= 2
        if late:
            deadline.leave_out("search by meaning: words only")
            return None
        return self.query_vector(text)

    def _queries(
        self, request: ContextRequest, view: ServingView, deadline: Deadline
    ) -> list[Query]:
        """Return what to search for, with vectors as far as there is time to make them."""
        texts = plan_queries(request.task)
        return [
            Query(text, self._vector_in_time(text, deadline) if view.reader.rows else None)
            for text in texts
        ]

    def assemble(
        self, call: Call, view: ServingView, *, seconds: dict[str, float] | None = None
    ) -> Assembled:
        """Turn one call into a pack. `seconds` collects the wall time of each stage.

        Raises:
            InvalidRequest: the index holds no token counts for the profile's encoding.
            BudgetTooSmall: what may never be dropped does not fit.
            GateRefusal: a hard preflight check failed; it carries the record to store.
        """
        timer, deadline = _Timer(seconds), Deadline(call.request.deadline_ms)
        policy = call.effective()
        request = _required_by(policy, intake.legible_request(call.request))
        chosen = self._choose(call, request, policy, view, timer, deadline)
        shown = show(chosen, call, view, policy)
        timer.done("assemble")
        findings = gate.check(
            chosen.judged,
            request,
            policy=policy,
            conflicts=chosen.conflicts,
            visible=_still_visible(chosen.judged, view, call),
            total_tokens=shown.total_tokens,
            usable=chosen.report.usable,
        )
        timer.done("gate")
        request_hash = snapshot.request_hash(call.request)
        deadline.finish()
        ranking_version = self._ranking_version()
        pack = pack_of(
            call, policy, view, chosen, shown, findings, request_hash, deadline, ranking_version
        )
        result = Assembled(pack, chosen.judged, recorder(call, pack, chosen, request_hash))
        timer.done("snapshot")
        hard = tuple(finding for finding in findings if finding.check in policy.hard_gates)
        if hard:
            raise GateRefusal(result, hard)
        return result

    def _ranking_version(self) -> str:
        reranker = self._reranker()
        return (
            rank.RANKING_VERSION if reranker is None else f"{rank.RANKING_VERSION}+{reranker.name}"
        )

    def _choose(
        self,
        call: Call,
        request: ContextRequest,
        policy: EffectivePolicy,
        view: ServingView,
        timer: _Timer,
        deadline: Deadline,
    ) -> Chosen:
        """Run the stages that decide: discover, filter, rank, budget."""
        encoding = call.profile.encoding
        _check_encoding(view, encoding)
        limits = limits_of(call.profile, request.token_budget, request.cost_budget)
        tokens_of = token_counter(encoding, limits.usable)
        viewer, clock = call.viewer(), call.clock()
        queries = self._queries(request, view, deadline)
        timer.done("embed")
        found = discover.serve(
            request,
            view,
            viewer=viewer,
            clock=clock,
            queries=queries,
            limit=policy.candidate_limit,
            tokens_of=tokens_of,
            encoding=encoding,
            room=_room(limits, policy, deadline),
            calendar=call.calendar,
        )
        timer.done("discover")
        judged = filter_stage.serve(found.candidates, view, viewer, clock)
        timer.done("filter")
        judged, conflicting = ranked(
            judged,
            view,
            call,
            request=request,
            policy=policy,
            periods=found.periods,
            reranker=self._reranker(),
        )
        timer.done("rank")
        told = _told(conflicting, judged, encoding)
        budgeted = budget.serve(
            Judged([*told.candidates, *judged.candidates], {**told.verdicts, **judged.verdicts}),
            request,
            profile=call.profile,
            policy=policy,
            heading_tokens=heading_tokens(encoding),
            source_kinds={source["name"]: source["kind"] for source in view.reader.sources},
            improve=deadline.has_time_for("exchanges that improve the choice", IMPROVE_SECONDS),
        )
        timer.done("budget")
        denied = {code.value: number for code, number in found.denied.items()}
        return Chosen(budgeted, conflicting, denied, found.periods)


def ranked(
    judged: Judged,
    view: ServingView,
    call: Call,
    *,
    request: ContextRequest,
    policy: EffectivePolicy,
    periods: tuple[Period, ...] = (),
    reranker: Reranker | None = None,
) -> tuple[Judged, tuple[ConflictRecord, ...]]:
    """Order what the filter left, then leave out what says nothing new, what loses a conflict, what
    is far below the best, and tools that this call does not show.

    `request` and `policy` are those of the call with what the policy adds and resolves to.
    """
    weighed = relevance.serve(judged.indexed(), request, policy)
    if reranker is not None:
        weighed = rerank.serve(weighed, request.task.text, view.reader, reranker)
    case = _case(judged, view, call, request, policy, periods)
    judged = rank.serve(judged, weighed, case)
    judged = rank.layer_instructions(judged, request)
    judged = routing.prefer_offered(judged, request)
    judged = tool_faults.withhold(judged, view.reader.tools, policy)
    judged = duplicates.serve(judged, view.reader)
    judged, conflicting = conflicts.serve(
        judged, view.reader, policy=policy, refreshed=call.refreshed, request=request
    )
    judged = rank.in_order(judged)
    judged = rank.cut_low_rank(judged, policy)
    judged = routing.serve(judged, view.reader.tools, policy, request)
    return rank.in_order(judged), conflicting


def _case(
    judged: Judged,
    view: ServingView,
    call: Call,
    request: ContextRequest,
    policy: EffectivePolicy,
    periods: tuple[Period, ...],
) -> Case:
    """Return what the features of this call are measured against."""
    rows = [candidate.row for candidate in judged.indexed()] if periods else []
    profile = call.profile
    return Case(
        policy=policy,
        clock=call.clock(),
        refreshed=call.refreshed,
        request=request,
        periods=periods,
        spans=dict(zip(rows, view.reader.spans(rows), strict=True)),
        target=min(
            request.token_budget or profile.preferred_context_target, profile.max_input_tokens
        ),
    )


def _told(records: Sequence[ConflictRecord], judged: Judged, encoding: str) -> Judged:
    """Return what tells the model of contradictions between items that it may see."""
    text = conflicts.told(records, judged) if records else ""
    if not text:
        return Judged.of(())
    item = discover.notice("conflicts", text, known_counts(encoding))
    return Judged([item], {item: rank.SENT})


def _required_by(policy: EffectivePolicy, request: ContextRequest) -> ContextRequest:
    """Return the request with what the policy requires added to what it requires itself."""
    if not policy.required_types:
        return request
    required = dict.fromkeys(
        (*request.required_types, *(kind.value for kind in policy.required_types))
    )
    return request.model_copy(update={"required_types": tuple(required)})


def _check_encoding(view: ServingView, encoding: str) -> None:
    if encoding not in view.reader.tokens:
        raise InvalidRequest(
            f"the index has no token counts for encoding {encoding!r}",
            where="model profile",
            fix=(
                f"add {encoding!r} to encodings in the [engine] table of "
                "ctx.toml and run `ctx build`"
            ),
            code="encoding_not_built",
        )


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
            GateCheck.REQUIRED_CONTEXT_PRESENT: (
                "add a source with such items, raise the budget, or require less"
            ),
            GateCheck.TOKEN_BUDGET_OK: "raise the budget",
        }
        return GateFailed(
            "; ".join(finding.message for finding in self.findings),
            trace_id=self.result.pack.snapshot_id,
            where=f"preflight check {first.check.value!r}",
            fix=fixes.get(
                first.check, f"read the trace: ctx explain {self.result.pack.snapshot_id}"
            ),
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


def _room(limits: Limits, policy: EffectivePolicy, deadline: Deadline) -> discover.Room:
    return discover.Room(
        window=limits.soft_target,
        most_observation=policy.max_observation_tokens,
        in_time=lambda: deadline.has_spent_less(SENT_SHARE, "the oldest messages"),
        looked_at=deadline.characters,
    )


def _still_visible(judged: Judged, view: ServingView, call: Call) -> list[bool]:
    import numpy as np

    rows = np.fromiter((c.row for c in judged.selected() if c.row != REQUEST_ROW), np.intp)
    return [code == 0 for code in view.codes(rows, call.viewer(), call.clock()).tolist()]
