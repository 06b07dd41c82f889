"""Look at a policy before it counts: what it says in one case, and what changes from one to
another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ctx_pipeline.config.layers import Layer, Problem, problems_of, read_toml
from ctx_pipeline.config.policies import PROFILE_NAMES, profile_layer, with_policy_files
from ctx_pipeline.config.settings import ProjectConfig, load_config
from ctx_pipeline.contracts import (
    ContextPolicy,
    EffectivePolicy,
    RankWeights,
    ToolRules,
    resolve_policy,
)
from ctx_pipeline.contracts.policy import PolicyCase, flat_conflicts
from ctx_pipeline.errors import ConfigError, InvalidRequest

CURRENT = "current"
DEFAULT = "default"
MAX_CASES = 4_096
"""Combinations of what the rules name that are compared; a policy of many more is not one that
people can read."""

Case = dict[str, str]
"""Task type, phase, role, model and risk, as far as they are given."""
Value = bool | int | float | str | list[str]


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy, and where each of its keys was written."""

    name: str
    """A profile, `default`, `current` or a file."""
    policy: ContextPolicy
    layer: Layer

    def place(self, *path: str | int) -> str | None:
        """Return where a key of the policy was written."""
        return self.layer.origin(("policy", *path))


def named_policy(name: str, home: Path) -> NamedPolicy:
    """Return the policy of a name: `current` is the project's, `default` the built-in one, then
    profiles, then files.

    A file's path is relative to the current folder, else to the project.

    Raises:
        ConfigError: it cannot be read, or is wrong.
    """
    if name == CURRENT:
        loaded = load_config(home)
        return NamedPolicy(name, loaded.config.policy_contract(), loaded.layer)
    layer = written_layer(name, home)
    try:
        policy = ProjectConfig.model_validate(layer.values).policy_contract()
    except ValidationError as invalid:
        raise _first(problems_of(invalid, ProjectConfig, layer)) from None
    return NamedPolicy(name, policy, layer)


def written_layer(name: str, home: Path) -> Layer:
    """Return what a profile or a file says, not checked yet.

    Raises:
        ConfigError: it cannot be read.
    """
    if name == DEFAULT:
        return Layer({})
    if name in PROFILE_NAMES:
        return with_policy_files(profile_layer(name, where="policy"), home)
    path = Path(name) if Path(name).exists() else home / name
    return with_policy_files(read_toml(path, label=name, under=("policy",)), home)


def _first(problems: list[Problem]) -> ConfigError:
    first = problems[0]
    return ConfigError(first.message, where=first.where, fix=first.fix, code=first.code)


@dataclass(frozen=True, slots=True)
class PolicyValue:
    """One value as it holds in a case."""

    key: str
    value: Value
    origin: str
    """`default`, the place where it was written, or the rule with its place."""


@dataclass(frozen=True, slots=True)
class PolicyView:
    """A policy in one case."""

    policy_version: str
    """Name, version and hash."""
    case: Case
    rules: tuple[str, ...]
    """Rules that apply, in order."""
    warnings: tuple[str, ...]
    values: tuple[PolicyValue, ...]


def show_policy(home: Path, case: Mapping[str, str | None] | None = None) -> PolicyView:
    """Return what the project's policy says in one case, each value with where it comes from.

    Raises:
        ConfigError: the settings are wrong.
        InvalidRequest: the case has a key that no rule can name.
    """
    given = _given(case or {})
    named = named_policy(CURRENT, home)
    policy = named.policy
    resolved = resolve_policy(policy, **given)
    phase = given.get("phase")
    warnings = (
        ()
        if phase is None or phase in policy.phases
        else (f"phase {phase!r} is not known: it is 'default'",)
    )
    values = tuple(
        PolicyValue(key, value, _origin(named, resolved, key))
        for key, value in effective_values(policy, resolved)
    )
    return PolicyView(policy.policy_version, given, resolved.rules, warnings, values)


def _given(case: Mapping[str, str | None]) -> Case:
    unknown = sorted(set(case) - set(PolicyCase.model_fields))
    if unknown:
        known = ", ".join(PolicyCase.model_fields)
        raise InvalidRequest(
            f"unknown case key {unknown[0]!r}", where="policy case", fix=f"keys: {known}"
        )
    return {key: value for key, value in case.items() if value is not None}


def _origin(named: NamedPolicy, resolved: EffectivePolicy, key: str) -> str:
    label = resolved.origins.get(key)
    if label is not None:
        numbers = [number for number, rule in enumerate(named.policy.rules) if rule.label == label]
        place = named.place("rules", numbers[-1])
        return f"rule {label!r}" + (f" ({place})" if place else "")
    exact = named.layer.origins.get(("policy", *key.split(".")))
    return exact or next(iter(_inside(named.layer, key)), "default")


def _inside(layer: Layer, key: str) -> Iterable[str]:
    path = ("policy", *key.split("."))
    return (place for where, place in layer.origins.items() if where[: len(path)] == path)


def effective_values(policy: ContextPolicy, resolved: EffectivePolicy) -> list[tuple[str, Value]]:
    """Return every value of a case, flat and in a fixed order."""
    found: list[tuple[str, Value]] = [
        (f"shares.{name}", share) for name, share in resolved.shares.items()
    ]
    found += [
        (f"weights.{name}", getattr(resolved.weights, name)) for name in RankWeights.model_fields
    ]
    found += [(f"fusion.{kind}", share) for kind, share in resolved.fusion.items()]
    found += [(f"fit.{kind}", share) for kind, share in resolved.fit.items()]
    for key in (
        "candidate_limit",
        "min_relevance",
        "min_value",
        "trust_floor",
        "exclude_stale",
        "max_observation_tokens",
    ):
        found.append((key, getattr(resolved, key)))
    for key in ("required_types", "order", "hard_gates", "phases"):
        found.append((key, [str(part) for part in getattr(resolved, key)]))
    for key in ToolRules.model_fields:
        if (value := getattr(resolved.tools, key)) is not None:
            found.append((f"tools.{key}", value))
    found.append(("roles", list(policy.roles)))
    for key, value in flat_conflicts(resolved.conflicts).items():
        found.append((f"conflicts.{key}", value if isinstance(value, str) else list(value)))
    for name, source in policy.sources.items():
        said: dict[str, Any] = source.model_dump(mode="json", exclude_none=True)
        scope: dict[str, Any] = said.pop("scope", {})
        found += [(f"sources.{name}.{key}", value) for key, value in said.items()]
        found += [(f"sources.{name}.scope.{key}", value) for key, value in scope.items()]
    return found


@dataclass(frozen=True, slots=True)
class ValueChange:
    """One value before and after; equal where a more general case changes it and
    this one does not.
    """

    key: str
    before: Value | None
    """None: the first policy says nothing of it."""
    after: Value | None


@dataclass(frozen=True, slots=True)
class CaseChanges:
    """What differs in one case. The empty case is that of a call that no rule names."""

    case: Case
    changes: tuple[ValueChange, ...]


@dataclass(frozen=True, slots=True)
class PolicyDiff:
    """What changes from policy `a` to policy `b`."""

    a: str
    """Version of the first policy."""
    b: str
    cases: tuple[CaseChanges, ...]
    """Fewest keys first; each lists what no more general case says already."""
    truncated: bool
    """True: there are more combinations than are compared."""


def diff_policies(a: str, b: str, home: Path) -> PolicyDiff:
    """Compare two policies by what they say in each case that a rule of either names.

    Raises:
        ConfigError: a policy cannot be read, or is wrong.
    """
    before, after = named_policy(a, home).policy, named_policy(b, home).policy
    cases, truncated = cases_of([before, after])
    found: dict[frozenset[tuple[str, str]], _Pairs] = {}
    listed: list[CaseChanges] = []
    for case in cases:
        pairs = found[frozenset(case.items())] = _pairs(before, after, case)
        general = [found[frozenset(case.items() - {part})] for part in case.items()]
        changes = tuple(
            ValueChange(key, *pair) for key, pair in pairs.items() if _is_news(key, pair, general)
        )
        if changes:
            listed.append(CaseChanges(case, changes))
    return PolicyDiff(before.policy_version, after.policy_version, tuple(listed), truncated)


_Pair = tuple[Value | None, Value | None]
_Pairs = dict[str, _Pair]


def _pairs(before: ContextPolicy, after: ContextPolicy, case: Case) -> _Pairs:
    old = dict(effective_values(before, resolve_policy(before, **case)))
    new = dict(effective_values(after, resolve_policy(after, **case)))
    return {
        key: (old.get(key), new.get(key)) for key in (*old, *(key for key in new if key not in old))
    }


def _is_news(key: str, pair: _Pair, general: list[_Pairs]) -> bool:
    wider = [pairs[key] for pairs in general if key in pairs]
    return pair not in wider and (pair[0] != pair[1] or any(old != new for old, new in wider))


def cases_of(policies: Iterable[ContextPolicy]) -> tuple[list[Case], bool]:
    """Return every combination of what the rules of policies name, fewest keys first, and whether
    some were left out.

    A pattern of models stands for one model of its own.
    """
    named: dict[str, dict[str, None]] = {key: {} for key in PolicyCase.model_fields}
    for policy in policies:
        for rule in policy.rules:
            for key, values in rule.conditions:
                named[key] |= dict.fromkeys(
                    value.replace("*", "") if key == "model" else value for value in values
                )
    cases: list[Case] = []
    for size in range(len(named) + 1):
        for keys in combinations(named, size):
            for chosen in product(*(named[key] for key in keys)):
                if len(cases) == MAX_CASES:
                    return cases, True
                cases.append(dict(zip(keys, chosen, strict=True)))
    return cases, False
