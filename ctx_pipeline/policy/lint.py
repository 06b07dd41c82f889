"""Find what is wrong with a policy before a call finds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from ctx_pipeline.config.layers import Problem, nearest, problems_of
from ctx_pipeline.config.policies import unknown_names
from ctx_pipeline.config.profiles import model_profile, shipped_profiles
from ctx_pipeline.config.settings import CONFIG_NAME, LoadedConfig, ProjectConfig, load_config
from ctx_pipeline.contracts import (
    ContextPolicy,
    EffectivePolicy,
    ItemKind,
    ModelProfile,
    PolicyRule,
    RankWeights,
    SourceKind,
    Trust,
    resolve_policy,
)
from ctx_pipeline.contracts.policy import ADDED_WEIGHTS
from ctx_pipeline.errors import ConfigError
from ctx_pipeline.policy.review import CURRENT, Case, NamedPolicy, cases_of, written_layer
from ctx_pipeline.stages.budget.window import SHARE_OF_SECTION
from ctx_pipeline.stages.sections import section_of

Level = Literal["error", "warning"]

SUM_SLACK = 1e-6
"""What adding up decimal fractions may be off by."""
KINDS_OF: dict[SourceKind, tuple[ItemKind, ...]] = {
    SourceKind.SEMANTIC_REGISTRY: (ItemKind.METRIC, ItemKind.SCHEMA, ItemKind.ARTIFACT_REF),
    SourceKind.GLOSSARY: (ItemKind.GLOSSARY,),
    SourceKind.SCHEMA_METADATA: (ItemKind.SCHEMA,),
    SourceKind.SQL: (ItemKind.SCHEMA,),
    SourceKind.MEMORIES: (ItemKind.MEMORY,),
    SourceKind.DOCUMENTS: (ItemKind.DOCUMENT,),
    SourceKind.INSTRUCTIONS: (ItemKind.INSTRUCTION, ItemKind.POLICY),
    SourceKind.ARTIFACTS: (ItemKind.ARTIFACT_REF,),
    SourceKind.TOOLS: (ItemKind.TOOL,),
    SourceKind.SKILLS: (ItemKind.SKILL,),
    SourceKind.CODE: (ItemKind.CODE,),
    SourceKind.GIT: (ItemKind.CODE,),
    SourceKind.WEB: (ItemKind.WEB,),
    SourceKind.SESSION_HISTORY: (ItemKind.HISTORY,),
}
"""What sources of a kind can give."""
OF_THE_REQUEST = frozenset(
    {ItemKind.TASK, ItemKind.STATE, ItemKind.HISTORY, ItemKind.OBSERVATION, ItemKind.TOOL}
)
"""What may come with a request instead."""


@dataclass(frozen=True, slots=True)
class PolicyFinding:
    """One thing that is wrong, or that is not what it looks like."""

    level: Level
    code: str
    where: str
    message: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class PolicyLint:
    """What was found in one policy."""

    policy: str
    """`current`, a profile or a file."""
    policy_version: str | None
    """None: it is too wrong to have one."""
    findings: tuple[PolicyFinding, ...]

    @property
    def errors(self) -> int:
        """How many findings are errors."""
        return sum(finding.level == "error" for finding in self.findings)


def lint_policy(name: str, home: Path) -> PolicyLint:
    """Check a policy: `current`, a profile's name or a file.

    With a project at `home`, also whether its sources and models fit.

    Raises:
        ConfigError: the file cannot be read, or, for `current`, the project's settings are wrong.
    """
    if name == CURRENT:
        loaded = load_config(home)
        named = NamedPolicy(name, loaded.config.policy_contract(), loaded.layer)
        return PolicyLint(name, named.policy.policy_version, tuple(_findings(named, loaded)))
    loaded, unreadable = _project(home)
    layer = written_layer(name, home)
    try:
        config = ProjectConfig.model_validate(layer.values)
    except ValidationError as invalid:
        found = [_of_problem(problem) for problem in problems_of(invalid, ProjectConfig, layer)]
        return PolicyLint(name, None, (*found, *unreadable))
    named = NamedPolicy(name, config.policy_contract(), layer)
    sources = None if loaded is None else [source.name for source in loaded.config.sources]
    found = [_of_problem(problem) for problem in unknown_names(named.policy, sources, layer)]
    return PolicyLint(
        name, named.policy.policy_version, (*found, *_findings(named, loaded), *unreadable)
    )


def _project(home: Path) -> tuple[LoadedConfig | None, tuple[PolicyFinding, ...]]:
    if not (home / CONFIG_NAME).is_file():
        return None, ()
    try:
        return load_config(home), ()
    except ConfigError as wrong:
        message = "the project's settings are wrong, so its sources were not looked at"
        return None, (
            PolicyFinding("warning", "project_not_read", wrong.where, message, "ctx config show"),
        )


def _of_problem(problem: Problem) -> PolicyFinding:
    return PolicyFinding("error", problem.code, problem.where, problem.message, problem.fix)


def _findings(named: NamedPolicy, loaded: LoadedConfig | None) -> Iterator[PolicyFinding]:
    yield from _rule_findings(named, loaded)
    yield from _written_shares(named)
    yield from _case_findings(named)
    yield from _conflict_findings(named)
    if loaded is not None:
        yield from _missing_types(named, loaded)
        yield from _idle_fusion(named, loaded)
        yield from _large_budgets(named, loaded)


def _place(named: NamedPolicy, *path: str | int) -> str:
    return named.place(*path) or f"policy {named.policy.name!r}"


# --- single rules


def _rule_findings(named: NamedPolicy, loaded: LoadedConfig | None) -> Iterator[PolicyFinding]:
    policy = named.policy
    labels = [rule.label for rule in policy.rules]
    for number, rule in enumerate(policy.rules):
        where = _place(named, "rules", number)
        if not rule.changes:
            yield PolicyFinding("warning", "empty_rule", where, f"rule {rule.label!r} sets nothing")
        if rule.name is not None and labels.index(rule.label) != number:
            message = f"another rule is called {rule.label!r} too"
            yield PolicyFinding("error", "duplicate_rule", where, message, "rename one of them")
        yield from _unknown_values(policy, rule, where, loaded)
        later = next((other for other in policy.rules[number + 1 :] if _shadows(other, rule)), None)
        if later is not None:
            message = (
                f"rule {later.label!r} sets all that rule {rule.label!r} sets, in each of its cases"
            )
            yield PolicyFinding(
                "error", "shadowed_rule", where, message, "take one of them out, or change its case"
            )


def _unknown_values(
    policy: ContextPolicy, rule: PolicyRule, where: str, loaded: LoadedConfig | None
) -> Iterator[PolicyFinding]:
    for phase in rule.when.phase or ():
        if phase not in policy.phases:
            message = f"phase {phase!r} is not one of 'phases', so the rule never matches it"
            yield PolicyFinding(
                "error", "unknown_phase", where, message, _meant(phase, policy.phases)
            )
    for role in rule.when.role or ():
        if policy.roles and role not in policy.roles:
            message = f"role {role!r} is not one of 'roles'"
            yield PolicyFinding("error", "unknown_role", where, message, _meant(role, policy.roles))
    own = () if loaded is None else loaded.config.models
    models = [profile.model_id for profile in (*shipped_profiles(), *own)]
    for model in rule.when.model or ():
        if not any(fnmatchcase(known, model) for known in models):
            message = f"no model profile is called {model!r}"
            yield PolicyFinding("warning", "unknown_model", where, message, _meant(model, models))


def _meant(name: str, known: Sequence[str]) -> str:
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else f"known: {', '.join(known)}"


def _shadows(later: PolicyRule, rule: PolicyRule) -> bool:
    """Whether a later rule of as many keys applies wherever this one does and sets at least as
    much.
    """
    mine, others = dict(rule.conditions), dict(later.conditions)
    covers = mine.keys() == others.keys() and all(
        set(mine[key]) <= set(others[key]) for key in mine
    )
    return covers and bool(rule.changes) and rule.changes.keys() <= later.changes.keys()


# --- values


def _own_sum(rule: PolicyRule) -> float:
    return sum((rule.set.shares or {}).values())


def _written_shares(named: NamedPolicy) -> Iterator[PolicyFinding]:
    for number, rule in enumerate(named.policy.rules):
        if _own_sum(rule) > 1 + SUM_SLACK:
            message = f"the shares of rule {rule.label!r} alone sum to {_own_sum(rule):.2f}"
            where = _place(named, "rules", number, "set", "shares")
            yield PolicyFinding(
                "error", "shares_above_one", where, message, "all sections together have 1"
            )


def _case_findings(named: NamedPolicy) -> Iterator[PolicyFinding]:
    """Look at what the rules leave in each case; a finding that a more general case has too is
    given once.
    """
    cases, truncated = cases_of([named.policy])
    if truncated:
        message = "the rules name too many combinations to look at each"
        yield PolicyFinding("warning", "too_many_cases", _place(named, "rules"), message)
    seen: set[tuple[str, ...]] = set()
    for case in [*cases, {"risk": "high"}]:
        resolved = resolve_policy(named.policy, **case)
        for key, finding in _of_case(named, case, resolved):
            if key not in seen:
                seen.add(key)
                yield finding


def _of_case(
    named: NamedPolicy, case: Case, resolved: EffectivePolicy
) -> Iterator[tuple[tuple[str, ...], PolicyFinding]]:
    when = " in case " + ", ".join(f"{key} {value}" for key, value in case.items()) if case else ""
    total = sum(resolved.shares.values())
    rules = tuple(label for key, label in resolved.origins.items() if key.startswith("shares."))
    told = any(
        rule.label in rules and _own_sum(rule) > 1 + SUM_SLACK for rule in named.policy.rules
    )
    where = _place(named, "shares")
    if total == 0:
        yield (
            ("zero", *rules),
            PolicyFinding("error", "shares_zero", where, f"no section has a share{when}"),
        )
    elif total > 1 + SUM_SLACK and not told:
        message = (
            f"the shares sum to {total:.2f}{when}, and each is scaled down to its part of them"
        )
        yield (
            ("sum", *rules),
            PolicyFinding("warning", "shares_above_one", where, message, "lower another share"),
        )
    if not any(
        getattr(resolved.weights, name)
        for name in RankWeights.model_fields
        if name not in ADDED_WEIGHTS
    ):
        message = f"all ranking weights are 0{when}, so order is by name"
        yield (
            ("weights",),
            PolicyFinding("error", "weights_zero", _place(named, "weights"), message),
        )
    yield from _of_tools(named, when, resolved)
    if case.get("risk") == "high":
        for gate in ContextPolicy().hard_gates:
            if gate not in resolved.hard_gates:
                message = f"preflight check {gate.value!r} only warns{when}"
                fix = f"add {gate.value!r} to hard_gates of a rule for risk 'high'"
                where = _place(named, "hard_gates")
                yield (
                    ("gate", gate.value),
                    PolicyFinding("error", "gate_removed", where, message, fix),
                )


def _of_tools(
    named: NamedPolicy, when: str, resolved: EffectivePolicy
) -> Iterator[tuple[tuple[str, ...], PolicyFinding]]:
    tools, where = resolved.tools, _place(named, "tools")
    if tools.max_risk == "high" and tools.strong_relevance is not None:
        message = f"tools.strong_relevance counts for nothing{when}: max_risk shows every tool"
        fix = "lower max_risk, or take strong_relevance out"
        yield ("tools_relevance",), PolicyFinding("warning", "no_effect", where, message, fix)
    if tools.candidates == 0 and ItemKind.TOOL in resolved.required_types:
        message = f"a tool is required and none may be a candidate{when}"
        yield (
            ("tools_none",),
            PolicyFinding("error", "type_never_given", where, message, "raise tools.candidates"),
        )


def _conflict_findings(named: NamedPolicy) -> Iterator[PolicyFinding]:
    """Say which actions no conflict can meet: a name that is neither a kind nor the beginning of a
    subject.
    """
    said = [(("conflicts",), named.policy.conflicts)]
    said += [
        (("rules", number, "set", "conflicts"), rule.set.conflicts)
        for number, rule in enumerate(named.policy.rules)
    ]
    kinds = [kind.value for kind in ItemKind]
    for path, conflicts in said:
        for name in () if conflicts is None else conflicts.actions:
            if name not in kinds and ":" not in name:
                where = _place(named, *path, "actions", name)
                message = (
                    f"{name!r} is no kind of items, and no beginning of a subject such as 'metric:'"
                )
                yield PolicyFinding("error", "unknown_kind", where, message, _meant(name, kinds))


# --- the project


def _missing_types(named: NamedPolicy, loaded: LoadedConfig) -> Iterator[PolicyFinding]:
    given = OF_THE_REQUEST | {
        kind for source in loaded.config.sources for kind in KINDS_OF[source.kind]
    }
    wanted: list[tuple[str, ItemKind]] = [
        (_place(named, "required_types"), kind) for kind in named.policy.required_types
    ]
    for number, rule in enumerate(named.policy.rules):
        where = _place(named, "rules", number, "set", "required_types")
        wanted += [(where, kind) for kind in rule.set.required_types or ()]
    for where, kind in wanted:
        if kind not in given:
            message = f"required type {kind.value!r} is given by no source of this project"
            yield PolicyFinding(
                "error", "type_without_source", where, message, "add a source, or require less"
            )


def _idle_fusion(named: NamedPolicy, loaded: LoadedConfig) -> Iterator[PolicyFinding]:
    given = {kind for source in loaded.config.sources for kind in KINDS_OF[source.kind]}
    places: list[tuple[tuple[str | int, ...], Iterable[ItemKind]]] = [
        (("fusion",), named.policy.fusion)
    ]
    for number, rule in enumerate(named.policy.rules):
        places.append((("rules", number, "set", "fusion"), rule.set.fusion or ()))
    for path, kinds in places:
        for kind in kinds:
            if kind not in given:
                message = (
                    "no source of this project gives items of kind "
                    f"{kind.value!r}, so this share changes nothing"
                )
                yield PolicyFinding(
                    "warning", "fusion_without_source", _place(named, *path, kind.value), message
                )


def _large_budgets(named: NamedPolicy, loaded: LoadedConfig) -> Iterator[PolicyFinding]:
    config = loaded.config
    profile = model_profile(config.project.default_model, config.models)
    for name, source in named.policy.sources.items():
        kinds = {entry.kind for entry in config.sources if name in (entry.name, entry.kind.value)}
        if source.max_budget is None or not kinds:
            continue
        room = max(_share_of(kind, named.policy) for kind in kinds)
        asked = (
            source.max_budget
            if isinstance(source.max_budget, float)
            else _as_share(source.max_budget, profile)
        )
        if asked > room + SUM_SLACK:
            message = (
                f"source {name!r} may take {asked:.0%} of the window, its sections have {room:.0%}"
            )
            where = _place(named, "sources", name, "max_budget")
            yield PolicyFinding(
                "warning", "budget_above_section", where, message, "lower it, or raise the share"
            )


def _as_share(tokens: int, profile: ModelProfile) -> float:
    return tokens / profile.preferred_context_target


def _share_of(kind: SourceKind, policy: ContextPolicy) -> float:
    total = sum(policy.shares.values()) or 1.0
    sections = {section_of(item, Trust.ENTERPRISE_TRUSTED.value) for item in KINDS_OF[kind]}
    return (
        sum(
            policy.shares.get(share, 0.0) for share in {SHARE_OF_SECTION[name] for name in sections}
        )
        / total
    )
