"""The grants of a source as the ceiling of what its items say of themselves."""

from __future__ import annotations

from dataclasses import replace

from ctx_pipeline.contracts import (
    SENSITIVITY_RANK,
    TRUST_RANK,
    ContextItem,
    Scope,
    Sensitivity,
    Trust,
)
from ctx_pipeline.security.visibility import EVERYONE, ScopeLabel, is_within


def wider_keys(item: ContextItem, scope: Scope, sensitivity: Sensitivity | None) -> tuple[str, ...]:
    """Return the keys by which an item asks for readers whom `scope` and `sensitivity` certainly do
    not let in.

    Who is named by one side and may belong to a group of the other is not certain: both sides have
    to let them in.
    """
    keys: list[str] = []
    own = item.scope
    if (scope.groups or scope.principals) and EVERYONE not in scope.groups:
        if EVERYONE in own.groups or (scope.groups and not set(own.groups) <= set(scope.groups)):
            keys.append("groups")
        if not scope.groups and not set(own.principals) <= set(scope.principals):
            keys.append("principals")
    if sensitivity is not None and _closer(item.sensitivity, sensitivity) != item.sensitivity:
        keys.append("sensitivity")
    return tuple(keys)


def bounded(item: ContextItem, scope: Scope, sensitivity: Sensitivity | None) -> ContextItem:
    """Return the item without what `scope` and `sensitivity` certainly do not let in.

    An item for everyone gets the readers of `scope`. A person who may belong to one of its groups
    stays: the label of the item in the index asks both sides (`within_ceiling`).
    """
    own = item.scope
    if EVERYONE in scope.groups:
        principals, groups = own.principals, own.groups
    elif EVERYONE in own.groups or not (scope.groups or scope.principals):
        principals, groups = scope.principals, scope.groups
    else:
        both = tuple(name for name in own.groups if name in scope.groups)
        groups = both or own.groups
        principals = tuple(
            name for name in own.principals if scope.groups or name in scope.principals
        )
    update = {"principals": principals, "groups": groups}
    return item.model_copy(
        update={
            "scope": own.model_copy(update=update),
            "sensitivity": _closer(item.sensitivity, sensitivity),
        }
    )


def within_ceiling(label: ScopeLabel, ceiling: ScopeLabel) -> ScopeLabel:
    """Return a label that asks both sides: itself, and what its source grants today to the readers
    of its tenant.
    """
    ceiling = replace(ceiling, tenant=label.tenant, trust=label.trust)
    return (
        label
        if is_within(label, ceiling)
        else replace(label, also=replace(ceiling, also=label.also))
    )


def narrowed(
    item: ContextItem, scope: Scope, sensitivity: Sensitivity | None, trust: Trust
) -> ContextItem:
    """Return the item for those alone who may see it by its own scope and by `scope`, as far as
    that can be said.

    Whoever is named by one side and belongs to a group of the other is not known here, and is left
    out. Where both sides cannot be met, nobody sees it.
    """
    own = item.scope
    principals, groups = _in_both(own, scope)
    environment = own.environment or scope.environment
    task_types = _restricted(own.task_types, scope.task_types)
    agent_visibility = _restricted(own.agent_visibility, scope.agent_visibility)
    apart = own.tenant != scope.tenant or (own.environment or environment) != (
        scope.environment or environment
    )
    if apart or task_types is None or agent_visibility is None:
        principals, groups = (), ()
    update = {
        "principals": principals,
        "groups": groups,
        "environment": environment,
        "task_types": task_types or (),
        "agent_visibility": agent_visibility or (),
    }
    return item.model_copy(
        update={
            "scope": own.model_copy(update=update),
            "sensitivity": _closer(item.sensitivity, sensitivity),
            "trust": min(item.trust, trust, key=TRUST_RANK.__getitem__),
        }
    )


def _in_both(own: Scope, other: Scope) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the principals and groups that both sides let in."""
    if EVERYONE in other.groups:
        return own.principals, own.groups
    if EVERYONE in own.groups:
        return other.principals, other.groups
    return (
        tuple(name for name in own.principals if name in other.principals),
        tuple(name for name in own.groups if name in other.groups),
    )


def _restricted(own: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return what both lists allow, an empty one everything; None when that is nothing."""
    if not own or not other:
        return own or other
    return tuple(name for name in own if name in other) or None


def _closer(own: Sensitivity | None, other: Sensitivity | None) -> Sensitivity | None:
    if own is None or other is None:
        return None
    return max(own, other, key=SENSITIVITY_RANK.__getitem__)
