"""What ranking looks at besides relevance: one number from 0 to 1 for each feature, and the
weighted sum of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ctx_pipeline.contracts import ContextRequest, EffectivePolicy, ItemKind, Trust
from ctx_pipeline.security.visibility import ALWAYS, NEVER, Clock
from ctx_pipeline.stages.candidates import Candidate
from ctx_pipeline.stages.discover.periods import Period
from ctx_pipeline.stages.discover.serve import DEPENDENCY, GLOSSARY

_DAY = 86_400_000_000
FRESHNESS_HALF_LIFE = 180 * _DAY
"""Microseconds after which an item counts half as fresh where its source has no freshness window;
else the window."""
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
"""How well kinds of items fit each phase, where the policy does not say. A judgement, kept small by
its weight."""

_LOW_TRUST = frozenset({Trust.RETRIEVED_EXTERNAL.value, Trust.TOOL_UNTRUSTED.value})
_UNVERIFIED_BELOW = 50
"""Memories below this authority have not been verified: the default ladder puts them at 40,
verified ones at 70."""


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
    """What each row is about, in microseconds, half-open and empty for nothing; only with periods.
    """
    target: int
    """Tokens that the pack aims for."""


class Scored(NamedTuple):
    """The features of a candidate and what they come to."""

    features: dict[str, float]
    score: float
    stale: bool
    """It is past the freshness window of its source."""


def scored(
    candidates: Sequence[Candidate], relevance: Mapping[Candidate, float], case: Case
) -> Iterator[Scored]:
    """Return the features and the score of each candidate of the index.

    `period_fit` is a feature only of a request that names a period. `cost` and `conflict_risk` are
    taken away.
    """
    weights = case.policy.weights.model_dump()
    fit = {**FIT.get(case.request.phase, {}), **case.policy.fit}
    periods = [(period.start_micros, period.end_micros) for period in case.periods]
    highest = _highest(candidates)
    now = case.clock.at
    for candidate in candidates:
        verified, window = candidate.verified_at, candidate.fail_after
        age = now - (verified if verified > ALWAYS else case.refreshed.get(candidate.source, now))
        relevant = relevance[candidate]
        if GLOSSARY in candidate.discovered_by and relevant < NAMED_RELEVANCE:
            relevant = NAMED_RELEVANCE
        features = {
            "relevance": relevant,
            "authority": candidate.authority / 100,
            "freshness": _freshness(age, window),
            "confidence": candidate.confidence,
            "dependency": 1.0 if DEPENDENCY in candidate.discovered_by else 0.0,
            "task_fit": 1.0 if candidate.tailored else fit.get(candidate.kind, NEUTRAL),
            "recency": _recency(candidate.dated_at, now),
            "cost": min(1.0, candidate.tokens[0] / case.target),
            "conflict_risk": _conflict_risk(candidate, highest),
        }
        if periods:
            features["period_fit"] = _period_fit(case.spans[candidate.row], periods)
        stale = window < NEVER and age > window
        yield Scored(features, _sum(features, weights), stale)


def _sum(features: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return the weighted sum; what a dependency adds grows with its relevance."""
    return (
        weights["relevance"] * features["relevance"]
        + weights["authority"] * features["authority"]
        + weights["freshness"] * features["freshness"]
        + weights["confidence"] * features["confidence"]
        + weights["dependency"] * features["dependency"] * features["relevance"]
        + weights["task_fit"] * features["task_fit"]
        + weights["recency"] * features["recency"]
        - weights["cost"] * features["cost"]
        - weights["conflict_risk"] * features["conflict_risk"]
        + weights["period_fit"] * features.get("period_fit", 0.0)
    )


def _freshness(age: int, window: int) -> float:
    """Return 1 for what was just read, a half after the window of its source."""
    if age <= 0:
        return 1.0
    return 0.5 ** (age / (window if 0 < window < NEVER else FRESHNESS_HALF_LIFE))


def _recency(dated: int, now: int) -> float:
    """Return 1 for what tells of now, a half for what tells of `RECENCY_HALF_LIFE` ago."""
    if dated <= ALWAYS:
        return NEUTRAL
    return 0.5 ** ((now - dated) / RECENCY_HALF_LIFE) if dated < now else 1.0


def _highest(candidates: Sequence[Candidate]) -> dict[int, int]:
    """Return the highest authority among what is about each subject."""
    highest: dict[int, int] = {}
    for candidate in candidates:
        if candidate.subject >= 0:
            highest[candidate.subject] = max(candidate.authority, highest.get(candidate.subject, 0))
    return highest


def _conflict_risk(candidate: Candidate, highest: Mapping[int, int]) -> float:
    """Return how likely it is that something better says otherwise.

    A half for what nobody has verified or vouches for, a half for what has a rival of higher
    authority.
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
    """Return the largest share of an item's own time that lies in one of the periods, in
    microseconds.
    """
    first, last = span
    if first >= last:
        return 0.0
    return max(
        max(0, min(last, end) - max(first, start)) / (last - first) for start, end in periods
    )
