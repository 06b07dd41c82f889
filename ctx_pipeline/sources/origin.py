"""What a source says of all its records, and how far one record may differ from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ctx_pipeline.config.settings import DEFAULT_AUTHORITY, SourceConfig
from ctx_pipeline.contracts import TRUST_RANK, Scope, SourceKind, Trust
from ctx_pipeline.sources.units import Units

DEFAULT_TRUST: dict[SourceKind, Trust] = {
    SourceKind.INSTRUCTIONS: Trust.SYSTEM_TRUSTED,
    SourceKind.SEMANTIC_REGISTRY: Trust.ENTERPRISE_TRUSTED,
    SourceKind.GLOSSARY: Trust.ENTERPRISE_TRUSTED,
    SourceKind.SCHEMA_METADATA: Trust.ENTERPRISE_TRUSTED,
    SourceKind.SQL: Trust.ENTERPRISE_TRUSTED,
    SourceKind.TOOLS: Trust.ENTERPRISE_TRUSTED,
    SourceKind.MEMORIES: Trust.USER,
    SourceKind.WEB: Trust.RETRIEVED_EXTERNAL,
}
"""Trust of a source that names none; every other kind is `retrieved_internal`."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A source's defaults and ceilings, resolved once."""

    source: SourceConfig
    authority: int
    """Ceiling and default."""
    trust: Trust
    """Ceiling and default."""
    scope: Scope
    """Default; tenant and the project's tenant resolved."""
    scopes: dict[tuple[str | None, tuple[str, ...], tuple[str, ...]], Scope] = field(
        default_factory=dict[tuple[str | None, tuple[str, ...], tuple[str, ...]], Scope],
        compare=False,
        repr=False,
    )
    """Scopes that records have asked for, each built once."""
    key_lines: dict[tuple[str, str], Mapping[str, int]] = field(
        default_factory=dict[tuple[str, str], Mapping[str, int]], compare=False, repr=False
    )
    """By item and version: on which lines the keys of a record stand that says who may see it."""
    units: Units = field(default_factory=Units, compare=False, repr=False)
    """What is stored as it was read last; empty: everything is parsed."""

    @classmethod
    def of(cls, source: SourceConfig, *, tenant: str | None, units: Units | None = None) -> Origin:
        """Resolve a source's defaults against the ladder and the project's tenant."""
        return cls(
            units=units or Units(),
            source=source,
            authority=DEFAULT_AUTHORITY[source.kind]
            if source.authority is None
            else source.authority,
            trust=source.trust or DEFAULT_TRUST.get(source.kind, Trust.RETRIEVED_INTERNAL),
            scope=Scope(
                tenant=source.tenant or tenant,
                principals=source.principals,
                groups=source.groups,
                environment=source.environment,
                task_types=source.task_types,
                agent_visibility=source.agent_visibility,
            ),
        )

    @property
    def name(self) -> str:
        """Name of the source."""
        return self.source.name

    @property
    def limit_bytes(self) -> int:
        """Largest file that is read."""
        return self.source.max_file_bytes

    def item_id(self, kind: str, name: str) -> str:
        """Return `<kind>:<source>/<name>`."""
        return f"{kind}:{self.source.name}/{name}"

    def clamp_trust(self, trust: Trust | None) -> Trust:
        """Return the lower of the record's trust and the source's: a record
        cannot promote itself.
        """
        if trust is None:
            return self.trust
        return min(trust, self.trust, key=TRUST_RANK.__getitem__)

    def clamp_authority(self, authority: int | None) -> int:
        """Return the lower of the record's authority and the source's."""
        return self.authority if authority is None else min(authority, self.authority)
