"""Policies as files: what ships, what a project writes, and how one lies over the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ctx_pipeline.config.layers import Layer, Problem, dotted, nearest, read_toml
from ctx_pipeline.config.toml_lines import KeyPath
from ctx_pipeline.contracts import ContextPolicy, SourceKind
from ctx_pipeline.contracts.policy import DEFAULT_SHARES, SourceScope
from ctx_pipeline.errors import ConfigError

PROFILES = Path(__file__).parent / "shipped_policies"
"""The shipped policies, one TOML file each."""
PROFILE_NAMES = ("coding", "data", "research", "support")
_RULES = ("policy", "rules")
_DEFAULTS = ("when_to_load", "authority", "trust", "freshness")
"""What a policy may say of a source and its own entry may say too."""


def with_policy_files(layer: Layer, home: Path) -> Layer:
    """Put the policy's file and its profile below the settings, and what it says of sources below
    their entries.

    Tables merge; rules come one after the other, the profile's first, and one of a name that comes
    again is replaced in place.

    Raises:
        ConfigError: a file cannot be read (`unreadable_config`, `invalid_toml`), or no such profile
            ships (`unknown_profile`).
    """
    named = _policy(layer).get("path")
    if isinstance(named, str) and named:
        layer = _stacked(layer, read_toml(home / named, label=named, under=("policy",)))
    profile = _policy(layer).get("profile")
    if isinstance(profile, str) and profile:
        layer = _stacked(
            layer, profile_layer(profile, where=layer.origin(("policy", "profile")) or "settings")
        )
    return _with_source_defaults(with_all_shares(layer))


def profile_layer(name: str, *, where: str) -> Layer:
    """Return a shipped policy.

    Raises:
        ConfigError: there is none of this name (`unknown_profile`).
    """
    if name not in PROFILE_NAMES:
        near = nearest(name, PROFILE_NAMES)
        fix = f"did you mean {near!r}?" if near else f"profiles: {', '.join(PROFILE_NAMES)}"
        raise ConfigError(
            "no policy profile of this name ships", where=where, fix=fix, code="unknown_profile"
        )
    return read_toml(PROFILES / f"{name}.toml", label=f"profile {name}", under=("policy",))


def with_all_shares(layer: Layer) -> Layer:
    """Fill in the shares that are not named; a misspelt one must not pass as a new section."""
    shares = _policy(layer).get("shares")
    return (
        layer.over(Layer({"policy": {"shares": dict(DEFAULT_SHARES)}}))
        if isinstance(shares, dict)
        else layer
    )


def _policy(layer: Layer) -> dict[str, Any]:
    policy = layer.values.get("policy")
    return cast("dict[str, Any]", policy) if isinstance(policy, dict) else {}


def _stacked(top: Layer, base: Layer) -> Layer:
    """Return `base` with `top` over it, and the rules of both."""
    merged = top.over(base)
    above, below = _rules(top), _rules(base)
    if not above or not below:
        return merged
    names = {name: at for at, rule in enumerate(above) if isinstance(name := rule.get("name"), str)}
    replaced = [
        names.get(name) if isinstance(name := rule.get("name"), str) else None for rule in below
    ]
    order = [(base, at) if over is None else (top, over) for at, over in enumerate(replaced)]
    order += [(top, at) for at in range(len(above)) if at not in replaced]
    rules: list[dict[str, Any]] = []
    origins = {path: place for path, place in merged.origins.items() if path[:2] != _RULES}
    for number, (layer, at) in enumerate(order):
        rules.append(_rules(layer)[at])
        origins |= _moved(layer, at, number)
    policy = {**_policy(merged), "rules": rules}
    return Layer({**merged.values, "policy": policy}, origins)


def _rules(layer: Layer) -> list[dict[str, Any]]:
    rules = _policy(layer).get("rules")
    if not isinstance(rules, list) or not all(
        isinstance(rule, dict) for rule in cast("list[Any]", rules)
    ):
        return []
    return cast("list[dict[str, Any]]", rules)


def _moved(layer: Layer, old: int, new: int) -> dict[KeyPath, str]:
    prefix = (*_RULES, old)
    return {
        (*_RULES, new, *path[3:]): place
        for path, place in layer.origins.items()
        if path[:3] == prefix
    }


def _with_source_defaults(layer: Layer) -> Layer:
    """Fill what the entries of sources leave out from what the policy says of them, by name, then
    by kind.
    """
    entries, said = layer.values.get("sources"), _policy(layer).get("sources")
    if not isinstance(entries, list) or not isinstance(said, dict):
        return layer
    filled: list[Any] = []
    origins = dict(layer.origins)
    for number, entry in enumerate(cast("list[Any]", entries)):
        filled.append(entry)
        if not isinstance(entry, dict):
            continue
        source = filled[-1] = dict(cast("dict[str, Any]", entry))
        for key, value, path in _said_of(source, cast("dict[str, Any]", said)):
            if key not in source:
                source[key] = value
                origins["sources", number, key] = layer.origin(path) or "policy"
    return Layer({**layer.values, "sources": filled}, origins)


def _said_of(source: Mapping[str, Any], said: Mapping[str, Any]) -> list[tuple[str, Any, KeyPath]]:
    found: list[tuple[str, Any, KeyPath]] = []
    for name in (source.get("name"), source.get("kind")):
        rule = said.get(name) if isinstance(name, str) else None
        if not isinstance(rule, dict):
            continue
        table = cast("dict[str, Any]", rule)
        path: KeyPath = ("policy", "sources", str(name))
        found += [(key, table[key], (*path, key)) for key in _DEFAULTS if key in table]
        scope = table.get("scope")
        if isinstance(scope, dict):
            inner = cast("dict[str, Any]", scope)
            keys = [key for key in SourceScope.model_fields if key in inner]
            found += [(key, inner[key], (*path, "scope", key)) for key in keys]
    return found


def unknown_names(
    policy: ContextPolicy, sources: Sequence[str] | None, layer: Layer
) -> list[Problem]:
    """Return a problem for each section and source that a policy names and nobody knows.

    None as `sources`: the project is not known, and a name that is no kind may be one of its
    sources.
    """
    tables = [(("policy", "shares"), list(policy.shares))]
    tables += [
        (("policy", "rules", number, "set", "shares"), list(rule.set.shares or ()))
        for number, rule in enumerate(policy.rules)
    ]
    found = [
        _unknown(layer, (*path, name), list(DEFAULT_SHARES), "sections")
        for path, names in tables
        for name in names
    ]
    if sources is not None:
        known = [*sources, *(kind.value for kind in SourceKind)]
        found += [
            _unknown(layer, ("policy", "sources", name), known, "sources and kinds")
            for name in policy.sources
        ]
    return [problem for problem in found if problem is not None]


def _unknown(layer: Layer, path: KeyPath, known: Sequence[str], what: str) -> Problem | None:

    name = str(path[-1])
    if name in known:
        return None
    near = nearest(name, known)
    fix = f"did you mean {near!r}?" if near else f"{what}: {', '.join(known)}"
    where = layer.origin(path) or "settings"
    return Problem(where, f"unknown key {dotted(path, layer.values)!r}", fix, "unknown_key")
