"""Keep a project small and quick: merge, drop, prune, a bounded part at a time."""

# pyright: reportUnknownMemberType=false
# Dagster's annotations leave type parameters out.

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from ctx_pipeline.resources import ContextProjectResource, build_lock
from ctx_pipeline.resources.retention import is_own_instance, prune_events, prune_runs

if TYPE_CHECKING:
    from ctx_pipeline.building.pipeline import Pipeline

MINIMUM_INTERVAL_SECONDS = 600
EVENTS_KEPT = timedelta(days=30)
"""How long the graph shows observations and freshness changes."""


@dg.sensor(
    name="maintenance",
    minimum_interval_seconds=MINIMUM_INTERVAL_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description=(
        "Every ten minutes merges the item store when it is in many fragments, removes serving artifacts beyond "
        "`[artifact] keep` and what killed builds left, deletes snapshots past `[retention] snapshots`, and prunes "
        "runs beyond `[retention] runs` and events older than 30 days from the project's own Dagster instance. It "
        "never waits for a build and launches nothing."
    ),
)
def maintenance(
    context: dg.SensorEvaluationContext, ctx_project: ContextProjectResource
) -> dg.SkipReason:
    """Do what is due."""
    if not (Path(ctx_project.home) / "ctx.toml").is_file():
        return dg.SkipReason("there is no context project here: set CTX_HOME")
    with ctx_project.pipeline() as pipeline:
        done = [*_tidy(pipeline), *_prune(context, pipeline)]
    return dg.SkipReason("; ".join(done) if done else "nothing was due")


def _tidy(pipeline: Pipeline) -> Iterator[str]:
    from ctx_pipeline.errors import Unavailable
    from ctx_pipeline.lifecycle.maintenance import tidy

    try:
        with build_lock(pipeline.home, 0.0):
            upkeep = tidy(pipeline)
    except Unavailable as busy:
        yield f"store and artifacts were left alone ({busy.stable_code})"
        return
    if upkeep.optimized:
        yield f"{upkeep.fragments} fragments of the store merged"
    if upkeep.artifacts:
        yield f"{upkeep.artifacts} old artifacts removed"
    if upkeep.leftovers:
        yield f"{upkeep.leftovers} leftovers of dead builds removed"
    if upkeep.problem:
        yield f"artifacts were left alone: what is published cannot be read ({upkeep.problem})"


def _prune(context: dg.SensorEvaluationContext, pipeline: Pipeline) -> Iterator[str]:
    from ctx_pipeline.lifecycle.maintenance import forget_snapshots

    if snapshots := forget_snapshots(pipeline):
        yield f"{snapshots} snapshots past their time deleted"
    instance = context.instance
    if not is_own_instance(instance, pipeline.home):
        yield "runs and events were left alone: this Dagster instance is not the project's own"
        return
    if runs := prune_runs(instance, keep=pipeline.config.retention.runs):
        yield f"{runs} old runs removed"
    if events := prune_events(instance, pipeline.clock() - EVENTS_KEPT):
        yield f"{events} old events removed"
