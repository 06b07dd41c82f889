"""What is stored of a source whose grants were narrowed meanwhile, seen with the grants of today."""

from __future__ import annotations

from ctx_pipeline.contracts import (
    SENSITIVITY_RANK,
    TRUST_RANK,
    ContextItem,
    Scope,
    Sensitivity,
    Trust,
)
from ctx_pipeline.security.visibility import EVERYONE


def narrowed(
    item: ContextItem, scope: Scope, sensitivity: Sensitivity | None, trust: Trust
) -> ContextItem:
    """Return the item for those alone who may see it by its own scope and by `scope`, as far as that can be said.

    Whoever is named by one side and belongs to a group of the other is not known here, and is left out. Where both
    sides cannot be met, nobody sees it.
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
