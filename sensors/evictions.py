"""Notice what packs no longer get, so that it is written down and recalled within the minute."""

# pyright: reportUnknownMemberType=false
# Dagster's annotations leave type parameters out.

from __future__ import annotations

from pathlib import Path

import dagster as dg

from ctx_pipeline.assets.jobs import EVICTIONS_JOB
from ctx_pipeline.resources import ContextProjectResource

MINIMUM_INTERVAL_SECONDS = 30


@dg.sensor(
    name="evictions",
    job_name=EVICTIONS_JOB,
    minimum_interval_seconds=MINIMUM_INTERVAL_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description=(
        "Looks every 30 seconds for item versions that the published artifact and the overlay no "
        "longer let into a pack: superseded, expired, retired, quarantined, forgotten, or stale; "
        "and for those that are let in again. Requests one run of `record_evictions` for what its "
        "log does not say yet. A look costs nothing while nothing has changed. Writes nothing "
        "itself."
    ),
)
def evictions(
    context: dg.SensorEvaluationContext, ctx_project: ContextProjectResource
) -> dg.SensorResult | dg.SkipReason:
    """Ask for a run when the log is behind."""
    from ctx_pipeline.errors import Corrupt, Unavailable
    from ctx_pipeline.lifecycle.sweep import look_for_evictions

    if not (Path(ctx_project.home) / "ctx.toml").is_file():
        return dg.SkipReason("there is no context project here: set CTX_HOME")
    try:
        with ctx_project.workspace() as workspace:
            pending = look_for_evictions(workspace, cursor=context.cursor or "")
    except (Corrupt, Unavailable) as problem:
        # The cursor stays: the first tick after the mending goes on from there.
        return dg.SkipReason(
            f"what is published cannot be read: {problem.message} ({problem.stable_code})"
        )
    if not pending.versions:
        reason = dg.SkipReason("nothing new is out of use")
        return dg.SensorResult(skip_reason=reason, cursor=pending.cursor)
    context.log.info(f"{pending.versions} item versions are to be recorded")
    # The same versions are the same run: one that failed in spite of its retries is left to
    # `record_evictions_daily`.
    request = dg.RunRequest(run_key=pending.name)
    return dg.SensorResult(run_requests=[request], cursor=pending.cursor)
