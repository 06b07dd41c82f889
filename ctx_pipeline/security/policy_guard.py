"""Which policy service a project asks, if any."""

from __future__ import annotations

from pathlib import Path

from ctx_pipeline.config.settings import PolicyServiceSection
from ctx_pipeline.security.policy_service import PolicyGuard


def policy_guard(section: PolicyServiceSection, home: Path) -> PolicyGuard | None:
    """Return what asks the service that `[policy_service]` names; None for the built-in rules
    alone.

    Raises:
        Unavailable: the service's library is not installed.
    """
    if section.kind == "builtin":
        return None
    seconds = float(section.cache_seconds) if section.mode == "cached" else 0.0
    if section.kind == "cedar":
        from ctx_pipeline.security.policy_cedar import CedarService

        return PolicyGuard(CedarService(home / (section.path or "")), cache_seconds=seconds)
    from ctx_pipeline.security.policy_http import HttpService

    service = HttpService(
        section.url or "", token=section.token, timeout_seconds=section.timeout_ms / 1_000
    )
    return PolicyGuard(service, cache_seconds=seconds)
