"""One call, and what was decided of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from ctx_pipeline.contracts import (
    BudgetReport,
    ConflictRecord,
    ContextPolicy,
    ContextRequest,
    EffectivePolicy,
    Identity,
    ModelProfile,
    resolve_policy,
)
from ctx_pipeline.security.visibility import Clock, Viewer, micros
from ctx_pipeline.stages.budget import serve as budget
from ctx_pipeline.stages.candidates import Judged
from ctx_pipeline.stages.discover.period_fiscal import PLAIN, Calendar
from ctx_pipeline.stages.discover.periods import Period


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
class Chosen:
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
