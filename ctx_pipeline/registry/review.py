"""A registry as it would be after publishing: read by its own adapter, checked, and compared with
what is live.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ctx_pipeline.building.source_plan import plan_refresh
from ctx_pipeline.building.source_record import read_record as read_source_record
from ctx_pipeline.config.settings import ProjectConfig, SourceConfig
from ctx_pipeline.contracts import SourceKind
from ctx_pipeline.contracts.publish import DefinitionChange, DefinitionFinding
from ctx_pipeline.errors import ConfigError, NotFound
from ctx_pipeline.index.overlay import ItemKey, Patch, fold
from ctx_pipeline.registry.changes import definition_changes
from ctx_pipeline.registry.lint import Proposal, lint
from ctx_pipeline.registry.stored import SCHEMA_KINDS, Record, read_tables, read_versions
from ctx_pipeline.sources import SourceReading, read_source

if TYPE_CHECKING:
    from ctx_pipeline.index.store import Store
    from ctx_pipeline.ledger import Ledger
    from ctx_pipeline.registry.files import Target


@dataclass(frozen=True, slots=True)
class Review:
    """What publishing would do."""

    reading: SourceReading
    """The whole registry, as it would be."""
    findings: tuple[DefinitionFinding, ...]
    changes: tuple[DefinitionChange, ...]

    @property
    def removed(self) -> tuple[DefinitionChange, ...]:
        """Definitions, or versions, that nobody would be shown any more."""
        return tuple(change for change in self.changes if change.change == "removed")

    @property
    def is_refused(self) -> bool:
        """Whether a finding stops the publishing."""
        return any(finding.severity == "error" for finding in self.findings)


def choose_registry(config: ProjectConfig, name: str | None) -> SourceConfig:
    """Return the registry that is named, or the only one.

    Raises:
        NotFound: no source has this name. ConfigError: there is no registry (`no_registry`), there
        are several (`several_registries`), or the source that
            is named is none (`not_a_registry`).
    """
    registries = [
        source for source in config.sources if source.kind is SourceKind.SEMANTIC_REGISTRY
    ]
    names = ", ".join(source.name for source in registries)
    if name is None:
        if len(registries) == 1:
            return registries[0]
        if registries:
            message = "there is more than one semantic registry"
            raise ConfigError(
                message,
                where="ctx.toml",
                fix=f"name one with --source: {names}",
                code="several_registries",
            )
        message = "no source is a semantic registry"
        raise ConfigError(
            message,
            where="ctx.toml",
            fix='add a source of kind = "semantic_registry"',
            code="no_registry",
        )
    source = next((source for source in config.sources if source.name == name), None)
    if source is None:
        raise NotFound(f"no source {name!r}", where="ctx.toml", fix=f"name one of: {names}")
    if source.kind is not SourceKind.SEMANTIC_REGISTRY:
        message = f"source {name!r} is of kind {source.kind.value}"
        raise ConfigError(
            message,
            where="ctx.toml",
            fix=f"name a semantic registry: {names}",
            code="not_a_registry",
        )
    return source


def read_record(
    config: ProjectConfig, source: SourceConfig, store: Store, ledger: Ledger | None
) -> Record:
    """Return what the store holds of a registry, of the tables around it, and
    of everything else.
    """
    patches = _patches(ledger)
    stored = store.scan()
    schemas = [other.name for other in config.sources if other.kind in SCHEMA_KINDS]
    return Record(
        versions=read_versions(stored, source.name, patches),
        tables=read_tables(stored, schemas, patches),
        stored=stored,
        patches=patches,
    )


def _patches(ledger: Ledger | None) -> Mapping[ItemKey, Patch]:
    return {} if ledger is None else fold(ledger.overlay_since(0))


def review(
    home: Path,
    config: ProjectConfig,
    source: SourceConfig,
    targets: Sequence[Target] | None,
    *,
    store: Store,
    ledger: Ledger | None,
    now: datetime,
) -> Review:
    """Check a registry with some of its files replaced, and compare it with what is live. Writes
    nothing.

    Errors of files that are not among `targets` are warnings; None: every file counts. `ledger`
    None: there is none yet. Hold `store.writer()` when the result is to be written.
    """
    replaced = [target.found() for target in targets or ()]
    reading = read_source(source, home, tenant=config.project.tenant, replaced=replaced)
    record = read_record(config, source, store, ledger)
    # Who publishes is shown what would be removed and asked about it.
    changes = plan_refresh(
        source, reading, read_source_record(source.name, store, ledger), store, now, confirmed=True
    )
    paths = (
        {target.shown for target in targets}
        if targets is not None
        else {file.path for file in reading.files}
    )
    proposal = Proposal(
        items=reading.items,
        errors=(*reading.errors, *changes.errors),
        files=reading.files,
        published=frozenset(paths | {source.path or "", source.name}),
        created=frozenset(target.shown for target in targets or () if target.before is None),
        record=record,
        now=now,
    )
    return Review(
        reading, lint(proposal), definition_changes(reading.items, changes, record, ledger, now)
    )
