"""One asset per stage: each writes the columns that the serve half of its stage reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import dagster as dg

from ctx_pipeline.assets.checks import stage_check_results, stage_check_specs
from ctx_pipeline.assets.metadata import (
    column_schema,
    errors_table,
    owner_of,
    sample_table,
    stage_freshness,
    stays_fresh,
)
from ctx_pipeline.assets.sources import STORE_POOL, source_key
from ctx_pipeline.claims.words import CLAIMS_VERSION
from ctx_pipeline.index.artifact import FORMAT_VERSION
from ctx_pipeline.index.facts import FACTS_VERSION
from ctx_pipeline.index.history import index_pin
from ctx_pipeline.index.lexical import TERMS_VERSION
from ctx_pipeline.resources import BuildSession
from ctx_pipeline.stages.blocks import RENDITION_VERSION
from ctx_pipeline.stages.rank.serve import RANKING_VERSION

if TYPE_CHECKING:
    from ctx_pipeline.building.pipeline import Pipeline
    from ctx_pipeline.building.stage_result import StageResult
    from ctx_pipeline.config.settings import ProjectConfig
    from ctx_pipeline.contracts import IndexPin

GROUP = "stages"
OWNER = "context-platform"
ARTIFACT_POOL = "ctx_artifact"
"""The asset that moves the pointer of the serving artifact."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage asset: its name, what it is built from, the library method it calls, and what it is for."""

    name: str
    deps: tuple[str, ...]
    run: Callable[[Pipeline], StageResult]
    kinds: tuple[str, ...]
    code_version: str
    description: str
    pool: str | None = None
    also: tuple[str, ...] = ()
    """Assets of other groups that it is built from."""

    @property
    def key(self) -> dg.AssetKey:
        """The asset key."""
        return dg.AssetKey([GROUP, self.name])


_LAYOUT = f"format-{FORMAT_VERSION}"
_RENDITIONS = f"renditions-{RENDITION_VERSION}"

STAGES = (
    Stage(
        name="discovered_items",
        deps=(),
        run=lambda pipeline: pipeline.discovered_items(),
        kinds=("python", "arrow", "lancedb"),
        code_version=f"{_LAYOUT}+facts-{FACTS_VERSION}",
        pool=STORE_POOL,
        description=(
            "Reads every item version of the configured sources from the item store, embeds the texts that have "
            "never been embedded, and writes identities, the dependency graph and the vectors. Discover reads it "
            "when a request searches by meaning or follows a metric to its tables. If it fails, serving goes on "
            "with the last published artifact."
        ),
    ),
    Stage(
        name="filtered_items",
        deps=("discovered_items",),
        run=lambda pipeline: pipeline.filtered_items(),
        kinds=("python", "arrow"),
        code_version=f"{_LAYOUT}+terms-{TERMS_VERSION}",
        description=(
            "Writes who may see each item version and when it is valid, superseded or retired, and the lists of item "
            "versions that each word is in. Filter reads the columns for every candidate of every request; a row "
            "without tenant, grant or sensitivity is visible to nobody."
        ),
    ),
    Stage(
        name="ranked_items",
        deps=("discovered_items",),
        run=lambda pipeline: pipeline.ranked_items(),
        kinds=("python", "arrow"),
        code_version=f"{RANKING_VERSION}+claims-{CLAIMS_VERSION}",
        description=(
            "Writes the ranking features that no request changes: authority, confidence, kind, section, time of "
            "the last verification, and when the source loads. Rank reads them and adds what depends on the "
            "request."
        ),
    ),
    Stage(
        name="transformed_items",
        deps=("discovered_items",),
        run=lambda pipeline: pipeline.transformed_items(),
        kinds=("python", "arrow"),
        code_version=_RENDITIONS,
        description=(
            "Renders every item version in full, in compact form and as a pointer. Transform hands out the "
            "rendition that the budget chose, byte for byte, so an item is shortened before it is left out. Of each "
            "tool it also writes risk, phases, server and the name that models know it by, which routing reads."
        ),
    ),
    Stage(
        name="budgeted_items",
        deps=("transformed_items",),
        run=lambda pipeline: pipeline.budgeted_items(),
        kinds=("python", "arrow", "tiktoken"),
        code_version=_RENDITIONS,
        description=(
            "Counts the exact tokens of every rendition in each configured vocabulary. Budget adds these numbers "
            "up for a request and never estimates."
        ),
    ),
    Stage(
        name="assembled_items",
        deps=(
            "discovered_items",
            "filtered_items",
            "ranked_items",
            "transformed_items",
            "budgeted_items",
        ),
        run=lambda pipeline: pipeline.assembled_items(),
        kinds=("python", "arrow"),
        code_version=_LAYOUT,
        pool=ARTIFACT_POOL,
        description=(
            "Publishes the parts above as one immutable serving artifact and moves the pointer to it in one step. "
            "Every server sees the new artifact with its next request; those in flight keep the old one. The data "
            "version is the artifact's content hash. The previous ones stay for rollback."
        ),
    ),
    Stage(
        name="context_snapshots",
        deps=("assembled_items",),
        also=("usage/daily_exposure",),
        run=lambda pipeline: pipeline.context_snapshots(),
        kinds=("python", "arrow", "sqlite"),
        code_version=_LAYOUT,
        description=(
            "Adds up how often each item was shown, left out and cited: finished days as usage/daily_exposure has "
            "rolled them up, the rest from the snapshots. `ctx items` and the inspector show it beside an item; no "
            "request waits for it. Recall notices of items that packs had shown appear here as observations."
        ),
    ),
)
"""The stages, in the order in which they are built."""


def stage_assets(config: ProjectConfig) -> list[dg.AssetsDefinition]:
    """Return the stage assets; the first one is built from every source."""
    sources = [source_key(source.name) for source in config.sources]
    freshness = stage_freshness(config.sources)
    return [_stage_asset(stage, [] if stage.deps else sources, freshness) for stage in STAGES]


def _stage_asset(
    stage: Stage, sources: Sequence[dg.AssetKey], freshness: dg.FreshnessPolicy
) -> dg.AssetsDefinition:
    @dg.asset(
        key=stage.key,
        deps=[
            *sources,
            *(dg.AssetKey([GROUP, name]) for name in stage.deps),
            *(dg.AssetKey.from_user_string(name) for name in stage.also),
        ],
        group_name=GROUP,
        kinds=set(stage.kinds),
        owners=owner_of(OWNER),
        description=stage.description,
        code_version=stage.code_version,
        freshness_policy=freshness,
        automation_condition=stays_fresh(bootstrap=False),
        check_specs=stage_check_specs(stage.name, stage.key),
        pool=stage.pool,
    )
    # Dagster compares the annotation with the bare class.
    def build_stage(  # pyright: ignore[reportUnknownParameterType]
        ctx_session: dg.ResourceParam[BuildSession],
    ) -> dg.MaterializeResult:  # pyright: ignore[reportMissingTypeArgument]
        with ctx_session.step(stage.key.to_user_string()):
            started = time.monotonic()
            result = stage.run(ctx_session.pipeline)
            seconds = round(time.monotonic() - started, 3)
            checks = stage_check_results(stage.name, ctx_session.pipeline)
            pin = index_pin(ctx_session.workspace.layout) if stage.pool == ARTIFACT_POOL else None
        ctx_session.stages[stage.name] = result
        return dg.MaterializeResult(
            data_version=dg.DataVersion(result.data_version),
            metadata={**_metadata(result), "seconds": seconds, **_pinned(pin)},
            check_results=checks,
        )

    return build_stage


def _pinned(pin: IndexPin | None) -> dict[str, Any]:
    """Return what is served instead of the artifact that was just built."""
    return {} if pin is None else {"pinned_to": pin.artifact, "pinned_since": pin.since.isoformat()}


def _metadata(result: StageResult) -> dict[str, Any]:
    metadata: dict[str, Any] = {"dagster/row_count": result.rows}
    for name, value in result.facts.items():
        metadata[name] = (
            dg.MetadataValue.json(cast("Any", value)) if isinstance(value, (list, dict)) else value
        )
    if result.errors:
        metadata["error_table"] = dg.MetadataValue.md(errors_table(result.errors, named=False))
    if result.columns:
        metadata["dagster/column_schema"] = column_schema(result.columns)
    if result.sample:
        metadata["sample"] = dg.MetadataValue.md(sample_table(result.sample))
    return metadata
