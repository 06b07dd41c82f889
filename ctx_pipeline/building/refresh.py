"""Read a source and bring the store up to date with it, under what the source grants today."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from ctx_pipeline.building.ingest import fingerprint, refresh, still_stored
from ctx_pipeline.building.source_record import read_record
from ctx_pipeline.config.settings import SourceConfig
from ctx_pipeline.contracts import ContextItem, SourceKind, SourceReport
from ctx_pipeline.ledger import SourceObservation
from ctx_pipeline.security.narrowing import narrowed
from ctx_pipeline.sources import SourceReading, read_source
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.units import UnitFile
from ctx_pipeline.text import canonical_json, short_hash
from ctx_pipeline.workspace import Workspace, state_folder

READ_AS_WRITER = frozenset({SourceKind.SEMANTIC_REGISTRY})
"""Kinds whose files are read and stored in one step, because publishing replaces both."""


def refresh_source(
    workspace: Workspace,
    name: str,
    *,
    reading: SourceReading | None = None,
    confirmed_by: str | None = None,
) -> SourceReport:
    """Read a source and store what changed.

    `reading` is what was read of it just now. `confirmed_by` is the person who says that what the
    source seems to have lost is really gone.

    Raises:
        NotFound: `ctx.toml` has no such source.
    """
    source, tenant = workspace.source(name), workspace.config.project.tenant
    store, ledger, now = workspace.store, workspace.ledger, workspace.clock()
    file = UnitFile(workspace.layout.derived, source, tenant=tenant)
    # What is published between the reading and the storing would be taken back by what was read
    # before.
    with store.writer() if source.kind in READ_AS_WRITER else nullcontext():
        record = read_record(name, store, ledger)
        if reading is None:
            units = file.load(lambda known: still_stored(known, record))
            reading = read_source(source, workspace.home, tenant=tenant, units=units)
        report = refresh(
            source,
            reading,
            store,
            ledger,
            now,
            confirmed_by=confirmed_by,
            record=record,
            ceiling=_ceiling(workspace, source),
            remember=file.save,
        )
        _note_grants(workspace, source)
    ledger.record_source(
        SourceObservation(
            name=name,
            kind=source.kind.value,
            observed_at=now,
            fingerprint=fingerprint(reading),
            status="failed" if report.errors and not reading.count else "ok",
            items=reading.count,
            errors=report.errors,
            files=report.files,
        )
    )
    return report


def _ceiling(
    workspace: Workspace, source: SourceConfig
) -> Callable[[ContextItem], ContextItem] | None:
    """Return what narrows items to what a source grants today.

    None when its grants are those of its last reading. A record may name a tenant that the source
    writes for: it stays there while the source names that tenant.
    """
    file, tenant = _grants_file(workspace, source), workspace.config.project.tenant
    if file.is_file() and file.read_text(encoding="utf-8") == _grants(source, tenant):
        return None
    origin = Origin.of(source, tenant=tenant)

    def ceiling(item: ContextItem) -> ContextItem:
        own = item.scope.tenant
        chosen = own if own in source.tenants else origin.scope.tenant
        scope = origin.scope.model_copy(update={"tenant": chosen})
        return narrowed(item, scope, source.sensitivity, origin.trust)

    return ceiling


def _note_grants(workspace: Workspace, source: SourceConfig) -> None:
    """Note under which grants a source was read."""
    file = _grants_file(workspace, source)
    grants = _grants(source, workspace.config.project.tenant)
    if not file.is_file() or file.read_text(encoding="utf-8") != grants:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".tmp")
        partial.write_text(grants, encoding="utf-8")
        partial.replace(file)


def _grants_file(workspace: Workspace, source: SourceConfig) -> Path:
    return state_folder(workspace.home) / "grants" / source.name


def _grants(source: SourceConfig, tenant: str | None) -> str:
    origin = Origin.of(source, tenant=tenant)
    sensitivity = None if source.sensitivity is None else source.sensitivity.value
    beyond = [source.may_widen, sorted(source.tenants)]
    grants = [origin.scope.model_dump(mode="json"), sensitivity, origin.trust.value, beyond]
    return short_hash(canonical_json(grants), 32)
