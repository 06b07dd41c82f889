"""Rebuild the serving artifact when the record has moved past it."""

# pyright: reportUnknownMemberType=false
# Dagster's annotations leave type parameters out.

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from ctx_pipeline.assets.jobs import BUILD_JOB
from ctx_pipeline.assets.sources import source_key
from ctx_pipeline.assets.stages import STAGES
from ctx_pipeline.building.generation import current_generation
from ctx_pipeline.index.history import built_generation
from ctx_pipeline.resources import ContextProjectResource, build_lock
from ctx_pipeline.sensors.agreement import built_from_others, unseen_sources
from ctx_pipeline.text import canonical_json, short_hash

if TYPE_CHECKING:
    from ctx_pipeline.index.artifact import Generation
    from ctx_pipeline.workspace import Workspace

MINIMUM_INTERVAL_SECONDS = 30
GENERATION_TAG = "ctx/generation"
MAX_ATTEMPTS = 3
"""Runs that may fail for one generation before the sensor waits for the next change or for a person."""


@dg.sensor(
    name="superseded_versions",
    job_name=BUILD_JOB,
    minimum_interval_seconds=MINIMUM_INTERVAL_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description=(
        "Looks every 30 seconds whether the item store, the overlay (retired, quarantined, forgotten, revoked) or the "
        "settings have moved past the published serving artifact, or a file of it is gone, and then requests one run "
        "of the stages. What was read outside of a run, as by publishing, that run reads as well, so that the "
        "graph shows what is served."
    ),
)
def superseded_versions(
    context: dg.SensorEvaluationContext, ctx_project: ContextProjectResource
) -> dg.SensorResult | dg.SkipReason:
    """Request a run when the artifact is behind."""
    if not (Path(ctx_project.home) / "ctx.toml").is_file():
        return dg.SkipReason("there is no context project here: set CTX_HOME")
    with ctx_project.workspace() as workspace:
        request, reason = _request(context, workspace)
    if request is None:
        return dg.SensorResult(skip_reason=dg.SkipReason(reason))
    return dg.SensorResult(run_requests=[request])


def _request(
    context: dg.SensorEvaluationContext, workspace: Workspace
) -> tuple[dg.RunRequest | None, str]:
    """Return a run request, or None and the reason."""
    if workspace.store.max_seq() == 0:
        return None, "no source has been read yet"
    generation = current_generation(workspace)
    unseen = unseen_sources(context.instance, workspace)
    lagging = [*unseen, *built_from_others(context.instance, workspace)]
    if generation == _built(workspace) and not lagging:
        return None, f"the artifact is up to date (generation {generation.name})"
    if _is_building(workspace.home):
        return None, "a build is running"
    state = (
        generation.name if generation != _built(workspace) else _reading_state(workspace, lagging)
    )
    runs = context.instance.get_runs(
        dg.RunsFilter(tags={GENERATION_TAG: state}), limit=MAX_ATTEMPTS
    )
    if any(not run.is_finished for run in runs):
        return None, f"generation {state} is being built"
    if len(runs) >= MAX_ATTEMPTS:
        return (
            None,
            f"{len(runs)} runs did not publish generation {state}: see them in the run list",
        )
    # A source that cannot be read any more must not keep the stages from being built.
    keys = [] if runs else [source_key(name) for name in unseen]
    return (
        dg.RunRequest(
            run_key=state if not runs else f"{state}:{len(runs) + 1}",
            tags={GENERATION_TAG: state},
            asset_selection=[*keys, *(stage.key for stage in STAGES)],
        ),
        "",
    )


def _reading_state(workspace: Workspace, sources: Sequence[str]) -> str:
    """Return a name for what the graph does not show yet of an artifact that is up to date."""
    readings = workspace.ledger.sources()
    known = sorted((name, readings[name].fingerprint) for name in {*sources} if name in readings)
    return short_hash(canonical_json([current_generation(workspace).name, known]), 16)


def _built(workspace: Workspace) -> Generation | None:
    """Return what the newest build was made from; None where nothing that can be served is published."""
    from ctx_pipeline.errors import Corrupt, Unavailable
    from ctx_pipeline.index.artifact import read_pointer

    try:
        pointer = read_pointer(workspace.layout)
        if pointer is None or not _is_there(
            workspace.layout.artifacts / pointer["artifact"], pinned="pin" in pointer
        ):
            return None
        return built_generation(workspace.layout)
    except (Corrupt, Unavailable):
        return None


def _is_there(directory: Path, *, pinned: bool) -> bool:
    """Return whether an artifact has all its files; whether they are what was written is for its readers to say."""
    from ctx_pipeline.index.artifact import PARTS

    if pinned:
        # A build takes the place of a pinned artifact only when its folder is gone.
        return directory.is_dir()
    files = ("manifest.json", *(f"{name}.arrow" for name in PARTS))
    return all((directory / name).is_file() for name in files)


def _is_building(home: Path) -> bool:
    from ctx_pipeline.errors import Unavailable

    try:
        with build_lock(home, 0.0):
            return False
    except Unavailable:
        return True
