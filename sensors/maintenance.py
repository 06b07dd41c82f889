"""Notice that a project needs tidying before the day is over."""

# pyright: reportUnknownMemberType=false
# Dagster's annotations leave type parameters out.

from __future__ import annotations

from pathlib import Path

import dagster as dg

from ctx_pipeline.assets.jobs import MAINTAIN_JOB
from ctx_pipeline.resources import ContextProjectResource
from ctx_pipeline.resources.retention import is_own_instance, prunable_runs

MINIMUM_INTERVAL_SECONDS = 600
MANY_RUNS = 20
"""Runs past their number that are worth one of their own; the daily run takes fewer."""


@dg.sensor(
    name="maintenance",
    job_name=MAINTAIN_JOB,
    minimum_interval_seconds=MINIMUM_INTERVAL_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description=(
        "Looks every ten minutes whether the item store is in many fragments, there are artifacts "
        "beyond `[artifact] keep` or leftovers of killed builds, or 20 runs or more are beyond "
        "`[retention] runs`; then requests a run of `maintain`, at most one an hour. What only "
        "grows old waits for `maintain_daily`. Changes nothing itself."
    ),
)
def maintenance(
    context: dg.SensorEvaluationContext, ctx_project: ContextProjectResource
) -> dg.RunRequest | dg.SkipReason:
    """Ask for a run when something is due."""
    from ctx_pipeline.lifecycle.maintenance import untidy

    if not (Path(ctx_project.home) / "ctx.toml").is_file():
        return dg.SkipReason("there is no context project here: set CTX_HOME")
    with ctx_project.workspace() as workspace:
        due, hour = list(untidy(workspace)), f"{workspace.clock():%Y-%m-%dT%H}"
        if is_own_instance(context.instance, workspace.home):
            runs = prunable_runs(context.instance, keep=workspace.config.retention.runs)
            due += [f"{len(runs)} old runs"] if len(runs) >= MANY_RUNS else []
    if not due:
        return dg.SkipReason("nothing is due")
    context.log.info(f"due: {'; '.join(due)}")
    # A run that was left alone by a build, or that failed, is followed by one of the next hour.
    return dg.RunRequest(run_key=hour)
