"""What runs by the clock."""

# pyright: reportUnknownMemberType=false
# Dagster's annotations leave type parameters out.

from __future__ import annotations

from pathlib import Path

import dagster as dg

from ctx_pipeline.assets.jobs import BUILD_JOB, EVICTIONS_JOB, KIND_TAG, MAINTAIN_JOB
from ctx_pipeline.resources import ContextProjectResource


@dg.schedule(
    name="build_all_daily",
    job_name=BUILD_JOB,
    cron_schedule="0 3 * * *",
    tags={KIND_TAG: "build"},
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description=(
        "Reads every source once a day, whatever its freshness window. Off until somebody turns "
        "it on."
    ),
)
def build_all_daily(ctx_project: ContextProjectResource) -> dg.RunRequest | dg.SkipReason:
    """Read everything."""
    return _where_there_is_a_project(ctx_project)


@dg.schedule(
    name="maintain_daily",
    job_name=MAINTAIN_JOB,
    cron_schedule="0 4 * * *",
    tags={KIND_TAG: "maintenance"},
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description=(
        "Deletes once a day what is past its time: snapshots, runs, events, artifacts. What makes "
        "the project slow is taken care of sooner, by the sensor `maintenance`."
    ),
)
def maintain_daily(ctx_project: ContextProjectResource) -> dg.RunRequest | dg.SkipReason:
    """Tidy and prune."""
    return _where_there_is_a_project(ctx_project)


@dg.schedule(
    name="record_evictions_daily",
    job_name=EVICTIONS_JOB,
    cron_schedule="30 4 * * *",
    tags={KIND_TAG: "evictions"},
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description=(
        "Records once a day what packs no longer get, also what a failed run of the sensor "
        "`evictions` has left."
    ),
)
def record_evictions_daily(ctx_project: ContextProjectResource) -> dg.RunRequest | dg.SkipReason:
    """Sweep."""
    return _where_there_is_a_project(ctx_project)


def _where_there_is_a_project(project: ContextProjectResource) -> dg.RunRequest | dg.SkipReason:
    if (Path(project.home) / "ctx.toml").is_file():
        return dg.RunRequest()
    return dg.SkipReason("there is no context project here: set CTX_HOME")
