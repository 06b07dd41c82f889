"""One request becomes one pack: the only place that knows the order of the stages."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from ctx_pipeline.contracts import (
    BudgetReport,
    Capability,
    ConflictRecord,
    ContextPack,
    ContextPolicy,
    ContextRequest,
    EffectivePolicy,
    GateCheck,
    Identity,
    ModelProfile,
    PackSection,
    PackWarning,
    PolicyDecision,
    PrefixInfo,
    ResolvedPeriod,
    resolve_policy,
)
from ctx_pipeline.contracts.render import SECTION_FOOTER
from ctx_pipeline.errors import GateFailed, InvalidRequest
from ctx_pipeline.language.tokens import count_tokens
from ctx_pipeline.security.visibility import Clock, Viewer, micros
from ctx_pipeline.stages import assemble, gate, intake, routing, snapshot, tool_faults
from ctx_pipeline.stages import filter as filter_stage
from ctx_pipeline.stages.budget import serve as budget
from ctx_pipeline.stages.budget.window import Limits, limits_of
from ctx_pipeline.stages.candidates import REQUEST_ROW, Judged
from ctx_pipeline.stages.deadline import Deadline
from ctx_pipeline.stages.discover import serve as discover
from ctx_pipeline.stages.discover.period_fiscal import PLAIN, Calendar
from ctx_pipeline.stages.discover.periods import Period
from ctx_pipeline.stages.discover.queries import Query, plan_queries
from ctx_pipeline.stages.rank import conflicts, duplicates, relevance, rerank
from ctx_pipeline.stages.rank import serve as rank
from ctx_pipeline.stages.rank.features import Case
from ctx_pipeline.stages.sections import SECTIONS
from ctx_pipeline.stages.transform import serve as transform
from ctx_pipeline.text import canonical_json, sha256_hex

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ctx_pipeline.index.reader import ServingView
    from ctx_pipeline.index.reranker import Reranker
    from ctx_pipeline.ledger import SnapshotRecord

QUERY_CACHE = 4_096
"""Query embeddings kept per process."""

IMPROVE_SECONDS = 0.002
"""Time that has to be left before a deadline for the budget to be improved by exchanges."""
FINISH_SECONDS = 0.010
"""Time that has to be left after a query has been embedded: an assembly at 10,000 items takes half of it."""
EMBED_SECONDS = 0.020
"""What embedding a query is taken to need until one has been measured."""
COUNT_CACHE = 4_096
"""Texts of requests whose token counts are kept per process and encoding ..."""
COUNT_CACHE_CHARS = 8_192
"""... if they are no longer than this."""

SENT_SHARE = 0.6
"""Share of a deadline after which no further message of the conversation is looked at."""

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
    calendar: Calendar = PLAIN

    def viewer(self) -> Viewer:
        """Return who looks, in which role, for which task."""
        return Viewer.of(
            self.identity,
            task_type=self.request.task.type,
            agent_role=self.request.agent_role,
            trust_floor=self.policy.trust_floor,
        )

    def effective(self) -> EffectivePolicy:
        """Return what the policy says for this task, phase, role, model and risk."""
        request = self.request
        return resolve_policy(
            self.policy,
            task_type=request.task.type,
            phase=request.phase,
            role=request.agent_role,
            model=self.profile.model_id,
            risk=request.risk,
        )

    def clock(self) -> Clock:
        """Return now, and which version of the world."""
        as_of = self.request.as_of
        return Clock(at=micros(self.at), as_of=None if as_of is None else micros(as_of))


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
        shown = _show(chosen, call, view, policy)
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
        pack = _pack(
            call, policy, view, chosen, shown, findings, request_hash, deadline, ranking_version
        )
        result = Assembled(pack, chosen.judged, _recorder(call, pack, chosen, request_hash))
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
    ) -> _Chosen:
        """Run the stages that decide: discover, filter, rank, budget."""
        encoding = call.profile.encoding
        _check_encoding(view, encoding)
        limits = limits_of(call.profile, request.token_budget, request.cost_budget)
        tokens_of = _token_counter(encoding, limits.usable)
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
        return _Chosen(budgeted, conflicting, denied, found.periods)


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
    item = discover.notice("conflicts", text, _known_counts(encoding))
    return Judged([item], {item: rank.SENT})


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What the deciding stages found."""

    budgeted: budget.Budgeted
    conflicts: tuple[ConflictRecord, ...]
    denied: dict[str, int]
    periods: tuple[Period, ...]

    @property
    def judged(self) -> Judged:
        """Every candidate, in or out."""
        return self.budgeted.judged

    @property
    def report(self) -> BudgetReport:
        """How the window was divided."""
        return self.budgeted.report


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the model will see."""

    sections: tuple[PackSection, ...]
    tools: tuple[Capability, ...]
    total_tokens: int


def _required_by(policy: EffectivePolicy, request: ContextRequest) -> ContextRequest:
    """Return the request with what the policy requires added to what it requires itself."""
    if not policy.required_types:
        return request
    required = dict.fromkeys(
        (*request.required_types, *(kind.value for kind in policy.required_types))
    )
    return request.model_copy(update={"required_types": tuple(required)})


def _show(chosen: _Chosen, call: Call, view: ServingView, policy: EffectivePolicy) -> _Shown:
    texts = transform.serve(chosen.judged, view.reader)
    sections = assemble.serve(
        chosen.judged, texts, heading_tokens(call.profile.encoding), policy.order
    )
    tools = assemble.capabilities(chosen.judged, texts, view.reader.tools)
    return _Shown(sections, tools, assemble.total_tokens(sections, tools))


def _pack(
    call: Call,
    policy: EffectivePolicy,
    view: ServingView,
    chosen: _Chosen,
    shown: _Shown,
    findings: tuple[gate.GateFinding, ...],
    request_hash: str,
    deadline: Deadline,
    ranking_version: str,
) -> ContextPack:
    pack_hash = assemble.pack_hash(shown.sections, shown.tools, policy.policy_version)
    decision = view.decision(call.viewer())
    prefix = assemble.prefix_of(shown.sections)
    return ContextPack(
        pack_id="pack_" + pack_hash[:32],
        snapshot_id=snapshot.snapshot_id(
            call.identity,
            call.at,
            request_hash,
            sha256_hex(pack_hash + canonical_json(_circumstances(call, deadline))),
            view.reader.content_hash,
            view.overlay_sequence,
        ),
        sections=shown.sections,
        capabilities=shown.tools,
        conflicts=chosen.conflicts,
        warnings=(
            *_request_warnings(call),
            *intake.warnings_of(call.request),
            *chosen.budgeted.warnings,
            *deadline.warnings,
            *tool_faults.warnings_of(chosen.judged, view.reader.tools, policy),
            *_decision_warnings(decision),
            *gate.warnings_of(findings),
        ),
        budget=_priced(chosen.report, call.profile, prefix, shown.total_tokens),
        total_tokens=shown.total_tokens,
        prefix=prefix,
        policy_version=policy.policy_version,
        policy_rules=policy.rules,
        policy_decision=decision,
        ranking_version=ranking_version,
        compaction_version=assemble.COMPACTION_VERSION,
        index_version=view.reader.content_hash,
        overlay_sequence=view.overlay_sequence,
        tokenizer=call.profile.encoding,
        denied=chosen.denied,
        periods=tuple(
            ResolvedPeriod(text=p.text, start=p.start, end=p.end) for p in chosen.periods
        ),
        tool_context=call.request.tool_context,
        hash=pack_hash,
    )


def _priced(
    report: BudgetReport, profile: ModelProfile, prefix: PrefixInfo, total_tokens: int
) -> BudgetReport:
    """Add what the pack costs as input, and what it costs with the stable prefix in the provider's cache."""
    if profile.input_price is None:
        return report
    each = profile.token_safety_factor / 1_000_000
    cost = total_tokens * profile.input_price * each
    cached = None
    if profile.supports_prompt_cache and prefix.stable_tokens >= max(
        1, profile.cache_min_prefix_tokens
    ):
        reduced = (
            profile.input_price
            if profile.cached_input_price is None
            else profile.cached_input_price
        )
        cached = round(cost - prefix.stable_tokens * (profile.input_price - reduced) * each, 9)
    return report.model_copy(update={"cost": round(cost, 9), "cost_cached": cached})


def _circumstances(call: Call, deadline: Deadline) -> list[Any]:
    """Return what two calls of one request may differ in besides what the model sees."""
    found: list[Any] = [dict(call.refreshed), call.profile.model_dump(mode="json")]
    if deadline.warnings:
        found.append([warning.message for warning in deadline.warnings])
    return found


def _check_encoding(view: ServingView, encoding: str) -> None:
    if encoding not in view.reader.tokens:
        raise InvalidRequest(
            f"the index has no token counts for encoding {encoding!r}",
            where="model profile",
            fix=f"add {encoding!r} to encodings in the [engine] table of ctx.toml and run `ctx build`",
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
            GateCheck.REQUIRED_CONTEXT_PRESENT: "add a source with such items, raise the budget, or require less",
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


def _token_counter(encoding: str, most: int) -> Callable[[str], int]:
    """Return what counts the tokens of a text; beyond `most`, which no pack can hold, it estimates them."""
    known = _known_counts(encoding)
    return lambda text: (
        known(text) if len(text) <= COUNT_CACHE_CHARS else count_tokens(text, encoding, most)
    )


@lru_cache(maxsize=8)
def _known_counts(encoding: str) -> Callable[[str], int]:
    """Return what counts the tokens of a text once: each turn brings the conversation so far again."""
    return lru_cache(maxsize=COUNT_CACHE)(partial(count_tokens, encoding=encoding))


def _room(limits: Limits, policy: EffectivePolicy, deadline: Deadline) -> discover.Room:
    return discover.Room(
        window=limits.soft_target,
        most_observation=policy.max_observation_tokens,
        in_time=lambda: deadline.has_spent_less(SENT_SHARE, "the oldest messages"),
        looked_at=deadline.characters,
    )


@lru_cache(maxsize=8)
def heading_tokens(encoding: str) -> dict[str, int]:
    """Return what opening and closing each section costs, in tokens."""
    return {
        section.name: count_tokens(assemble.heading_of(section), encoding)
        + count_tokens(SECTION_FOOTER, encoding)
        for section in SECTIONS
    }


def _still_visible(judged: Judged, view: ServingView, call: Call) -> list[bool]:
    import numpy as np

    rows = np.fromiter((c.row for c in judged.selected() if c.row != REQUEST_ROW), np.intp)
    return [code == 0 for code in view.codes(rows, call.viewer(), call.clock()).tolist()]


def _request_warnings(call: Call) -> tuple[PackWarning, ...]:
    request = call.request
    found: list[tuple[str, str]] = []
    if request.phase not in call.policy.phases:
        found.append(
            (
                "unknown_phase",
                f"policy {call.policy.name!r} has no such phase; its default rules apply",
            )
        )
    return tuple(PackWarning(code=code, message=message) for code, message in found)


def _decision_warnings(decision: PolicyDecision | None) -> tuple[PackWarning, ...]:
    if decision is None or decision.failure is None:
        return ()
    message = f"policy service {decision.service!r} gave no valid answer ({decision.failure}): nothing is permitted"
    return (PackWarning(code="policy_service_failed", message=message),)


def _recorder(
    call: Call, pack: ContextPack, chosen: _Chosen, request_hash: str
) -> Callable[[], SnapshotRecord]:
    """Return what builds the stored record; it runs on the ledger's writer, after the pack has left."""

    def build() -> SnapshotRecord:
        from ctx_pipeline.ledger import SnapshotRecord

        kept = snapshot.serve(
            pack,
            call.request,
            call.identity,
            model_id=call.profile.model_id,
            clock=call.at,
            request_hash=request_hash,
        )
        folded, blobs = snapshot.fold_pack(pack)
        explained = chosen.budgeted.explain()
        rows: list[dict[str, Any]] = [
            snapshot.trace_row(candidate, explained.verdicts[candidate])
            for candidate in explained.candidates
        ]
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
            items=tuple(
                (row["item_id"], row["version"], row["rendition"], row["selected"]) for row in rows
            ),
        )

    return build
