"""The pack as its caller gets it, and the record that keeps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ctx_pipeline.contracts import (
    BudgetReport,
    Capability,
    ContextPack,
    EffectivePolicy,
    ModelProfile,
    PackSection,
    PackWarning,
    PolicyDecision,
    PrefixInfo,
    ResolvedPeriod,
)
from ctx_pipeline.contracts.render import SECTION_FOOTER
from ctx_pipeline.language.tokens import count_tokens
from ctx_pipeline.stages import assemble, gate, intake, snapshot, tool_faults
from ctx_pipeline.stages.deadline import Deadline
from ctx_pipeline.stages.sections import SECTIONS
from ctx_pipeline.stages.transform import serve as transform
from ctx_pipeline.text import canonical_json, sha256_hex

if TYPE_CHECKING:
    from ctx_pipeline.index.view import ServingView
    from ctx_pipeline.ledger import SnapshotRecord

from ctx_pipeline.stages.call import Call, Chosen


@lru_cache(maxsize=8)
def heading_tokens(encoding: str) -> dict[str, int]:
    """Return what opening and closing each section costs, in tokens."""
    return {
        section.name: count_tokens(assemble.heading_of(section), encoding)
        + count_tokens(SECTION_FOOTER, encoding)
        for section in SECTIONS
    }


@dataclass(frozen=True, slots=True)
class Shown:
    """What the model will see."""

    sections: tuple[PackSection, ...]
    tools: tuple[Capability, ...]
    total_tokens: int


def show(chosen: Chosen, call: Call, view: ServingView, policy: EffectivePolicy) -> Shown:
    """Transform and assemble what the budget chose."""
    texts = transform.serve(chosen.judged, view.reader)
    sections = assemble.serve(
        chosen.judged, texts, heading_tokens(call.profile.encoding), policy.order
    )
    tools = assemble.capabilities(chosen.judged, texts, view.reader.tools)
    return Shown(sections, tools, assemble.total_tokens(sections, tools))


def pack_of(
    call: Call,
    policy: EffectivePolicy,
    view: ServingView,
    chosen: Chosen,
    shown: Shown,
    findings: tuple[gate.GateFinding, ...],
    request_hash: str,
    deadline: Deadline,
    ranking_version: str,
) -> ContextPack:
    """Return the pack: what is shown, and everything that its caller is told beside it."""
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
    """Add what the pack costs as input, and what it costs with the stable prefix in the provider's
    cache.
    """
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
    message = (
        f"policy service {decision.service!r} gave no valid answer "
        f"({decision.failure}): nothing is permitted"
    )
    return (PackWarning(code="policy_service_failed", message=message),)


def recorder(
    call: Call, pack: ContextPack, chosen: Chosen, request_hash: str
) -> Callable[[], SnapshotRecord]:
    """Return what builds the stored record; it runs on the ledger's writer, after the pack has
    left.
    """

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
