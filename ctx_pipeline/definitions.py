"""The Dagster code location: one asset graph per context project, the project that `CTX_HOME`
names.
"""

# pyright: reportUnknownMemberType=false
# Dagster's annotations leave type parameters out.

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from ctx_pipeline.assets.jobs import BUILD_JOB, KIND_TAG, NO_PROJECT, build_job

if TYPE_CHECKING:
    from ctx_pipeline.resources import BuildSession

__all__ = ["BUILD_JOB", "NO_PROJECT", "defs", "make_definitions", "mounted_definitions"]


def make_definitions(home: Path, *, session: BuildSession | None = None) -> dg.Definitions:
    """Return a code location of its own: the graph of the project in `home`, executor and console.

    Without a `ctx.toml` there, the graph has no sources. `session` is what the assets of this
    process share; None: every run opens its own and holds the build lock.

    Raises:
        ConfigError: `ctx.toml` is wrong.
    """
    return dg.Definitions.merge(
        mounted_definitions(home, session=session),
        dg.Definitions(executor=dg.in_process_executor, loggers={"console": quiet_console}),
    )


def mounted_definitions(home: Path, *, session: BuildSession | None = None) -> dg.Definitions:
    """Return the same graph to stand beside others: it sets no executor and no logger.

    What it names is its own: jobs and sensors select its assets by key, and its resources are
    called `ctx_...`.

    Raises:
        ConfigError: `ctx.toml` is wrong.
    """
    from ctx_pipeline.assets.assemble import assemble_context_job
    from ctx_pipeline.assets.sources import source_assets
    from ctx_pipeline.assets.stages import stage_assets
    from ctx_pipeline.assets.upkeep import maintain_job, record_evictions_job
    from ctx_pipeline.assets.usage import usage_assets
    from ctx_pipeline.config.settings import ProjectConfig, load_config
    from ctx_pipeline.sensors.evictions import evictions
    from ctx_pipeline.sensors.maintenance import maintenance
    from ctx_pipeline.sensors.run_failed import run_failed
    from ctx_pipeline.sensors.schedules import (
        build_all_daily,
        maintain_daily,
        record_evictions_daily,
    )
    from ctx_pipeline.sensors.source_changes import source_changes
    from ctx_pipeline.sensors.superseded import superseded_versions

    home = home.resolve()
    is_project = (home / "ctx.toml").is_file()
    config = load_config(home).config if is_project else ProjectConfig()
    # Partitioned assets have runs of their own, one a partition.
    whole, daily = [*source_assets(config), *stage_assets(config)], usage_assets(home, config)
    build_all = build_job(_keys(whole), config.project.name if is_project else None)
    return dg.Definitions(
        assets=[*whole, *daily],
        jobs=[build_all, assemble_context_job, maintain_job, record_evictions_job],
        schedules=[build_all_daily, maintain_daily, record_evictions_daily],
        sensors=[
            evictions,
            maintenance,
            run_failed,
            source_changes,
            superseded_versions,
            _automation(_keys([*whole, *daily])),
        ],
        resources=_resources(home, session),
        metadata=_metadata(home, is_project=is_project),
    )


def _keys(assets: Sequence[dg.AssetsDefinition]) -> list[dg.AssetKey]:
    return [key for asset in assets for key in asset.keys]


def _resources(home: Path, session: BuildSession | None) -> dict[str, Any]:
    from ctx_pipeline.resources import ContextProjectResource, session_resource

    return {
        # Without configuration of its own: whoever launches a run may not choose another project.
        "ctx_project": dg.ResourceDefinition.hardcoded_resource(
            ContextProjectResource(home=str(home)),
            description="The context project that this code location serves.",
        ),
        "ctx_session": session_resource(home) if session is None else session,
        # A pack holds content, which must stay where `ctx forget` reaches it: in the ledger, not
        # in run storage.
        "ctx_pack_memory": dg.mem_io_manager,
    }


@dg.logger(
    config_schema={
        "log_level": dg.Field(str, is_required=False, default_value="WARNING"),
        "name": dg.Field(str, is_required=False, default_value="dagster"),
    },
    description="Tells a terminal what goes wrong; the run has every event in its log.",
)
def quiet_console(context: dg.InitLoggerContext) -> logging.Logger:
    """Return Dagster's own console logger, without the lines that a run writes for debugging."""
    return dg.colored_console_logger.logger_fn(context)


def _automation(keys: Sequence[dg.AssetKey]) -> dg.AutomationConditionSensorDefinition:
    return dg.AutomationConditionSensorDefinition(
        "freshness_automation",
        target=dg.AssetSelection.assets(*keys),
        run_tags={KIND_TAG: "freshness"},
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Reads a source that was never read or whose freshness window runs "
            "out, rebuilds aging stages, and rolls "
            "up each finished day. What failed is tried again once an hour."
        ),
    )


def _metadata(home: Path, *, is_project: bool) -> dict[str, Any]:
    if is_project:
        return {"home": dg.MetadataValue.path(str(home))}
    return {"home": dg.MetadataValue.path(str(home)), "note": NO_PROJECT}


@dg.definitions
def defs() -> dg.Definitions:
    """Return the asset graph of the project that `CTX_HOME` names."""
    from ctx_pipeline.config.settings import find_home

    return make_definitions(find_home(None))
