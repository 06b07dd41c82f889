"""What a build is made from: the record so far, the embedder, and the settings that change what is
written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from ctx_pipeline.claims.words import CLAIMS_VERSION
from ctx_pipeline.contracts import SourceKind, WhenToLoad
from ctx_pipeline.errors import Corrupt
from ctx_pipeline.index.artifact import Generation, Layout
from ctx_pipeline.index.history import built_generation
from ctx_pipeline.index.rows import Row
from ctx_pipeline.security.visibility import NEVER, ScopeLabel
from ctx_pipeline.stages.blocks import RENDITION_VERSION
from ctx_pipeline.stages.rank.batch import SourceFacts
from ctx_pipeline.text import canonical_json, short_hash

if TYPE_CHECKING:
    from ctx_pipeline.config.settings import Freshness, ProjectConfig
    from ctx_pipeline.workspace import Workspace

LOADED_ALWAYS = frozenset({SourceKind.INSTRUCTIONS})
"""Kinds that go into every pack unless `when_to_load` says otherwise."""


def current_generation(workspace: Workspace) -> Generation:
    """Return what a build started now would be made from."""
    config = workspace.config
    settings = {
        "sources": [
            [fact.name, fact.kind, fact.when_to_load.value, fact.warn_after, fact.fail_after]
            for fact in source_facts(config)
        ],
        "encodings": list(config.engine.encodings),
        "rendition": RENDITION_VERSION,
        "claims": CLAIMS_VERSION,
        **({"phases": phases} if (phases := source_phases(config)) else {}),
        "grants": [asdict(label) for label in source_labels(config).values()],
        "beyond": [[s.may_widen, sorted(s.tenants)] for s in config.sources],
    }
    sequence, head = workspace.store.head()
    return Generation(
        store_sequence=sequence,
        store_head=head[:16],
        overlay_sequence=workspace.ledger.overlay_sequence(),
        ledger=workspace.ledger.identity(),
        embedder=workspace.embedder.name,
        dim=workspace.embedder.dim,
        settings=short_hash(canonical_json(settings), 16),
    )


def require_current_ledger(layout: Layout, today: Generation) -> None:
    """Refuse to build with a ledger that is older than what was built from it.

    Such a build would take retirements back.

    Raises:
        Corrupt: `ledger_behind`.
    """
    try:
        built = built_generation(layout)
    except Corrupt:
        return
    if built is not None and today.overlay_sequence < built.overlay_sequence:
        raise Corrupt(
            f"the ledger is older than the index: it ends at {today.overlay_sequence}, the index "
            f"knows {built.overlay_sequence}",
            where=".ctx/state",
            fix="restore .ctx/state from a backup as a whole, and delete .ctx/derived with it",
            code="ledger_behind",
        )


def default_when_to_load(kind: SourceKind) -> WhenToLoad:
    """Return when a kind of source loads where `ctx.toml` does not say."""
    return WhenToLoad.ALWAYS if kind in LOADED_ALWAYS else WhenToLoad.ON_MATCH


def source_facts(config: ProjectConfig) -> list[SourceFacts]:
    """Return what the stages know of each source, in the order of `ctx.toml`."""
    return [
        SourceFacts(
            name=source.name,
            kind=source.kind.value,
            when_to_load=source.when_to_load or default_when_to_load(source.kind),
            warn_after=_window(source.freshness, "warn"),
            fail_after=_window(source.freshness, "fail"),
        )
        for source in config.sources
    ]


def facts_of_rows(config: ProjectConfig, rows: Sequence[Row]) -> list[SourceFacts]:
    """Return the facts of every source that rows came from, those of `ctx.toml` first."""
    return [
        *source_facts(config),
        *(
            SourceFacts(name, "", WhenToLoad.ON_REQUEST, NEVER, NEVER)
            for name in sorted(gone_sources(config, rows))
        ),
    ]


def gone_sources(config: ProjectConfig, rows: Sequence[Row]) -> frozenset[str]:
    """Return the sources that rows came from and `ctx.toml` no longer names."""
    return frozenset({row.source for row in rows} - {s.name for s in config.sources})


def source_labels(config: ProjectConfig) -> dict[str, ScopeLabel]:
    """Return what each source grants today where its records say nothing."""
    return {
        source.name: ScopeLabel(
            tenant=source.tenant or config.project.tenant,
            principals=tuple(sorted(source.principals)),
            groups=tuple(sorted(source.groups)),
            sensitivity=None if source.sensitivity is None else source.sensitivity.value,
            environment=source.environment,
            task_types=tuple(sorted(source.task_types)),
            agent_visibility=tuple(sorted(source.agent_visibility)),
            trust="",
        )
        for source in config.sources
    }


def source_phases(config: ProjectConfig) -> dict[str, tuple[str, ...]]:
    """Return the phases of the sources of tools that name some."""
    return {source.name: source.phases for source in config.sources if source.phases}


def _window(freshness: Freshness | None, end: Literal["warn", "fail"]) -> int:
    """Return one end of a freshness window in microseconds."""
    return NEVER if freshness is None else int(getattr(freshness, end).total_seconds() * 1_000_000)
