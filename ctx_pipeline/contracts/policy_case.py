"""A policy as it holds in one case: the one function that says which rules apply and what they
leave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ctx_pipeline.contracts.codes import GateCheck, ItemKind, Trust
from ctx_pipeline.contracts.policy import (
    DEFAULT_FUSION,
    ConflictAction,
    ConflictPolicy,
    ContextPolicy,
    DataSection,
    PolicyRule,
    RankWeights,
    ToolRules,
)

DEFAULT_PHASE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectivePolicy:
    """What a policy says in one case. Same policy, same case: the same values."""

    name: str
    policy_version: str
    """Version of the whole policy, not of the case."""
    phases: tuple[str, ...]
    trust_floor: Trust
    shares: Mapping[str, float]
    weights: RankWeights
    fit: Mapping[str, float]
    """How well kinds of items fit the case, where the policy says so."""
    fusion: Mapping[str, float]
    """Share of meaning in relevance, for every kind of item."""
    candidate_limit: int
    min_relevance: float
    min_value: float
    hard_gates: tuple[GateCheck, ...]
    exclude_stale: bool
    max_observation_tokens: int
    required_types: tuple[ItemKind, ...]
    order: tuple[DataSection, ...]
    tools: ToolRules
    conflicts: ConflictPolicy
    max_budgets: Mapping[str, int | float]
    """Most tokens, or share of the target, by name or kind of source."""
    rules: tuple[str, ...]
    """Labels of the rules that apply, in the order in which they were applied."""
    origins: Mapping[str, str]
    """Which rule a value comes from, for every value that comes from one."""


def resolve_policy(
    policy: ContextPolicy,
    *,
    task_type: str | None = None,
    phase: str | None = None,
    role: str | None = None,
    model: str | None = None,
    risk: str | None = None,
) -> EffectivePolicy:
    """Return what a policy says in one case.

    Rules that match are applied from the least to the most specific (keys in `when`), those of one
    kind in their order in the policy; what is applied later wins, value by value. A phase that the
    policy does not know is `default`. None matches no rule that names the key.
    """
    known = DEFAULT_PHASE if phase is not None and phase not in policy.phases else phase
    case = {"task_type": task_type, "phase": known, "role": role, "model": model, "risk": risk}
    applied = matching_rules(policy, case)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for rule in applied:
        values |= rule.changes
        origins |= dict.fromkeys(rule.changes, rule.label)
    return EffectivePolicy(
        name=policy.name,
        policy_version=policy.policy_version,
        phases=policy.phases,
        trust_floor=policy.trust_floor,
        shares={**policy.shares, **_below("shares", values)},
        weights=policy.weights.model_copy(update=_below("weights", values))
        if values
        else policy.weights,
        tools=(policy.tools or ToolRules()).model_copy(update=_below("tools", values)),
        fit={**{kind.value: share for kind, share in policy.fit.items()}, **_below("fit", values)},
        fusion={**DEFAULT_FUSION, **policy.fusion, **_below("fusion", values)},
        max_budgets={
            name: rule.max_budget
            for name, rule in policy.sources.items()
            if rule.max_budget is not None
        },
        conflicts=_conflicts(policy.conflicts or ConflictPolicy(), _below("conflicts", values)),
        rules=tuple(rule.label for rule in applied),
        origins=origins,
        **{key: values.get(key, getattr(policy, key)) for key in _PLAIN},
    )


_PLAIN = (
    *("candidate_limit", "min_relevance", "hard_gates", "exclude_stale", "max_observation_tokens"),
    *("required_types", "order", "min_value"),
)
"""Values that a rule replaces whole."""


def _below(table: str, values: Mapping[str, Any]) -> dict[str, Any]:
    prefix = f"{table}."
    return {
        key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)
    }


def _conflicts(base: ConflictPolicy, values: Mapping[str, Any]) -> ConflictPolicy:
    if not values:
        return base
    actions: dict[str, ConflictAction] = {**base.actions, **_below("actions", values)}
    return ConflictPolicy(order=values.get("order", base.order), actions=actions)


def matching_rules(policy: ContextPolicy, case: Mapping[str, str | None]) -> list[PolicyRule]:
    """Return the rules that match a case, in the order in which they are applied."""
    matching = [rule for rule in policy.rules if _matches(rule, case)]
    return sorted(matching, key=lambda rule: len(rule.conditions))


def _matches(rule: PolicyRule, case: Mapping[str, str | None]) -> bool:
    return all(_is_one_of(key, case[key], values) for key, values in rule.conditions)


def _is_one_of(key: str, value: str | None, named: tuple[str, ...]) -> bool:
    if value is None:
        return False
    return value in named or (
        key == "model" and any(fnmatchcase(value, pattern) for pattern in named)
    )
