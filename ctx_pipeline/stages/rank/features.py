"""What ranking looks at besides relevance: one number from 0 to 1 for each feature, and the weighted sum of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ctx_pipeline.contracts import ContextRequest, EffectivePolicy, Exclusion, ItemKind, Trust
from ctx_pipeline.security.visibility import ALWAYS, NEVER, Clock
from ctx_pipeline.stages.candidates import Candidate
from ctx_pipeline.stages.discover.periods import Period
from ctx_pipeline.stages.discover.serve import DEPENDENCY, GLOSSARY

_DAY = 86_400_000_000
FRESHNESS_HALF_LIFE = 180 * _DAY
"""Microseconds after which an item counts half as fresh where its source has no freshness window; else the window."""
RECENCY_HALF_LIFE = 90 * _DAY
"""Microseconds after which what an item tells of counts half as recent."""
NEUTRAL = 0.5
"""Fit of a kind that nothing is said of, and recency of an item without a time of its own."""
NAMED_RELEVANCE = 0.6
"""Least relevance of an item that the request names, by its name or a synonym."""

_DOCUMENT, _GLOSSARY, _METRIC, _SCHEMA, _CODE, _SKILL, _TOOL, _MEMORY, _ARTIFACT = (
    kind.value
    for kind in (
        *(
            ItemKind.DOCUMENT,
            ItemKind.GLOSSARY,
            ItemKind.METRIC,
            ItemKind.SCHEMA,
            ItemKind.CODE,
            ItemKind.SKILL,
        ),
        *(ItemKind.TOOL, ItemKind.MEMORY, ItemKind.ARTIFACT_REF),
    )
)
_SEARCHING = {_DOCUMENT: 0.8, _GLOSSARY: 0.8, _METRIC: 0.7, _SCHEMA: 0.6, _TOOL: 0.4}
_WEIGHING = {_DOCUMENT: 0.7, _METRIC: 0.7, _MEMORY: 0.7, _SKILL: 0.6}
FIT: Mapping[str, Mapping[str, float]] = {
    "discover": _SEARCHING,
    "explore": _SEARCHING,
    "understand": {_DOCUMENT: 0.8, _GLOSSARY: 0.8, _METRIC: 0.7, _CODE: 0.7},
    "plan": {**_WEIGHING, _SKILL: 0.8, _TOOL: 0.7},
    "decide": _WEIGHING,
    "query": {_METRIC: 0.9, _SCHEMA: 0.9, _GLOSSARY: 0.7, _DOCUMENT: 0.4, _CODE: 0.3},
    "analyse": {_METRIC: 0.8, _ARTIFACT: 0.8, _SCHEMA: 0.7},
    "build": {_CODE: 0.9, _SKILL: 0.8, _TOOL: 0.7, _SCHEMA: 0.6},
    "edit": {_CODE: 1.0, _SKILL: 0.7, _DOCUMENT: 0.4},
    "verify": {_CODE: 0.8, _ARTIFACT: 0.7, _DOCUMENT: 0.6, _METRIC: 0.6},
    "ship": {_SKILL: 0.8, _TOOL: 0.7, _DOCUMENT: 0.6},
}
"""How well kinds of items fit each phase, where the policy does not say. A judgement, kept small by its weight."""

_LOW_TRUST = frozenset({Trust.RETRIEVED_EXTERNAL.value, Trust.TOOL_UNTRUSTED.value})
_UNVERIFIED_BELOW = 50
"""Memories below this authority have not been verified: the default ladder puts them at 40, verified ones at 70."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the features of one request are measured against."""

    policy: EffectivePolicy
    clock: Clock
    refreshed: Mapping[str, int]
    """When each source was last read, in microseconds."""
    request: ContextRequest
    periods: Sequence[Period] = ()
    spans: Mapping[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    """What each row is about, in microseconds, half-open and empty for nothing; only with periods."""
    target: int
    """Tokens that the pack aims for."""


def add_scores(candidates: Sequence[Candidate], case: Case) -> None:
    """Fill in the features and the score of candidates that come from the index and have their relevance.

    `period_fit` is a feature only of a request that names a period. `cost` and `conflict_risk` are taken away.
    """
    weigh = case.policy.weights
    w_relevance, w_authority, w_freshness = weigh.relevance, weigh.authority, weigh.freshness
    w_confidence, w_dependency, w_fit, w_recency = (
        weigh.confidence,
        weigh.dependency,
        weigh.task_fit,
        weigh.recency,
    )
    w_period, w_cost, w_risk = weigh.period_fit, weigh.cost, weigh.conflict_risk
    fit = {**FIT.get(case.request.phase, {}), **case.policy.fit}
    periods = [(period.start_micros, period.end_micros) for period in case.periods]
    highest = _highest(candidates)
    now, refreshed, target, exclude_stale = (
        case.clock.at,
        case.refreshed,
        case.target,
        case.policy.exclude_stale,
    )
    for candidate in candidates:
        relevance, confidence = candidate.features["relevance"], candidate.confidence
        found = candidate.discovered_by
        if GLOSSARY in found and relevance < NAMED_RELEVANCE:
            relevance = NAMED_RELEVANCE
        verified, dated, window = candidate.verified_at, candidate.dated_at, candidate.fail_after
        age = now - (verified if verified > ALWAYS else refreshed.get(candidate.source, now))
        freshness = (
            0.5 ** (age / (window if 0 < window < NEVER else FRESHNESS_HALF_LIFE))
            if age > 0
            else 1.0
        )
        recency = (
            NEUTRAL
            if dated <= ALWAYS
            else 0.5 ** ((now - dated) / RECENCY_HALF_LIFE)
            if dated < now
            else 1.0
        )
        task_fit = 1.0 if candidate.tailored else fit.get(candidate.kind, NEUTRAL)
        cost = min(1.0, candidate.tokens[0] / target)
        risk = _conflict_risk(candidate, highest)
        authority = candidate.authority / 100
        dependency = 1.0 if DEPENDENCY in found else 0.0
        score = (
            w_relevance * relevance
            + w_authority * authority
            + w_freshness * freshness
            + w_confidence * confidence
            + w_dependency * dependency * relevance
            + w_fit * task_fit
            + w_recency * recency
            - w_cost * cost
            - w_risk * risk
        )
        features = {
            "relevance": relevance,
            "authority": authority,
            "freshness": freshness,
            "confidence": confidence,
            "dependency": dependency,
            "task_fit": task_fit,
            "recency": recency,
            "cost": cost,
            "conflict_risk": risk,
        }
        if periods:
            features["period_fit"] = period_fit = _period_fit(case.spans[candidate.row], periods)
            score += w_period * period_fit
        candidate.features, candidate.score = features, score
        if dependency:
            candidate.lent = w_relevance * candidate.lent + w_dependency * relevance
        candidate.stale = window < NEVER and age > window
        if candidate.stale and exclude_stale:
            candidate.excluded = Exclusion.STALE


def _highest(candidates: Sequence[Candidate]) -> dict[int, int]:
    """Return the highest authority among what is about each subject."""
    highest: dict[int, int] = {}
    for candidate in candidates:
        if candidate.subject >= 0:
            highest[candidate.subject] = max(candidate.authority, highest.get(candidate.subject, 0))
    return highest


def _conflict_risk(candidate: Candidate, highest: Mapping[int, int]) -> float:
    """Return how likely it is that something better says otherwise.

    A half for what nobody has verified or vouches for, a half for what has a rival of higher authority.
    """
    if candidate.trust in _LOW_TRUST or (
        candidate.authority < _UNVERIFIED_BELOW and candidate.kind == _MEMORY
    ):
        risk = 0.5
    else:
        risk = 0.0
    if candidate.subject >= 0 and highest[candidate.subject] > candidate.authority:
        risk += 0.5
    return risk


def _period_fit(span: tuple[int, int], periods: Sequence[tuple[int, int]]) -> float:
    """Return the largest share of an item's own time that lies in one of the periods, in microseconds."""
    first, last = span
    if first >= last:
        return 0.0
    return max(
        max(0, min(last, end) - max(first, start)) / (last - first) for start, end in periods
    )
