"""The jobs that look after a project: each in a run of its own, with its log and its retries."""

# pyright: reportUnknownMemberType=false
# Dagster's annotations leave type parameters out.
# Annotations are not postponed in this module: Dagster reads the classes of context and resources
# from them.

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import dagster as dg

from ctx_pipeline.assets.jobs import EVICTIONS_JOB, KIND_TAG, MAINTAIN_JOB
from ctx_pipeline.assets.metadata import markdown_table
from ctx_pipeline.contracts import Exclusion
from ctx_pipeline.errors import CtxError, Unavailable
from ctx_pipeline.resources import ContextProjectResource, build_lock
from ctx_pipeline.resources.retention import is_own_instance, prune_events, prune_runs
from ctx_pipeline.text import reference

if TYPE_CHECKING:
    from ctx_pipeline.ledger import RecallNotice
    from ctx_pipeline.lifecycle.sweep import Sweep
    from ctx_pipeline.workspace import Workspace

EVENTS_KEPT = timedelta(days=30)
"""How long the graph shows observations and freshness changes."""
RETRIES = dg.RetryPolicy(max_retries=2, delay=10, backoff=dg.Backoff.EXPONENTIAL)
"""Two more attempts, after 10 and 20 seconds, where an error says that it may pass."""
SWEEP_LOCK_SECONDS = 60.0
"""How long a run waits for the sweep of another process, which takes seconds."""
PRUNED_RUNS = 1_000
"""Most runs that one run removes."""
SHOWN_IDS = 5
"""Snapshot ids in one row of the table; the ledger names up to a hundred."""
SNAPSHOTS = dg.AssetKey(["stages", "context_snapshots"])


@dg.op(
    out=dg.Out(dg.Nothing),
    retry_policy=RETRIES,
    description=(
        "Merges the item store when it is in many fragments, and removes serving artifacts beyond "
        "`[artifact] keep` and what killed builds left. Leaves both alone while a build runs."
    ),
)
def tidy_store(context: dg.OpExecutionContext, ctx_project: ContextProjectResource) -> None:
    """Tidy what builds write."""
    from ctx_pipeline.lifecycle.maintenance import tidy

    with _typed_failures(), ctx_project.workspace() as workspace:
        try:
            with build_lock(workspace.home, 0.0):
                upkeep = tidy(workspace)
        except Unavailable as busy:
            if busy.stable_code != "build_busy":
                raise
            context.log.info(f"store and artifacts were left alone ({busy.stable_code})")
            context.add_output_metadata({"left_alone": busy.stable_code})
            return
    if upkeep.problem:
        context.log.warning(
            f"artifacts were left alone: what is published cannot be read ({upkeep.problem})"
        )
    context.add_output_metadata(
        {
            "fragments_merged": upkeep.fragments if upkeep.optimized else 0,
            "artifacts_removed": upkeep.artifacts,
            "leftovers_removed": upkeep.leftovers,
            **({"problem": upkeep.problem} if upkeep.problem else {}),
        }
    )


@dg.op(
    out=dg.Out(dg.Nothing),
    retry_policy=RETRIES,
    description=(
        "Deletes snapshots past `[retention] snapshots`, and from the project's own Dagster "
        "instance runs beyond `[retention] runs` and events older than 30 days."
    ),
)
def prune_history(context: dg.OpExecutionContext, ctx_project: ContextProjectResource) -> None:
    """Prune what is past its time."""
    instance = context.instance
    with _typed_failures(), ctx_project.workspace() as workspace:
        context.add_output_metadata({"snapshots_deleted": _forget_snapshots(workspace)})
        if not is_own_instance(instance, workspace.home):
            context.log.info(
                "runs and events were left alone: this Dagster instance is not the project's own"
            )
            return
        keep, before = workspace.config.retention.runs, workspace.clock() - EVENTS_KEPT
    context.add_output_metadata(
        {
            "runs_removed": prune_runs(instance, keep=keep, limit=PRUNED_RUNS),
            "events_removed": prune_events(instance, before),
        }
    )


def _forget_snapshots(workspace: "Workspace") -> int:
    """Delete all that is past its time, a part at a time: other writers wait for each part."""
    from ctx_pipeline.lifecycle.maintenance import PRUNED_SNAPSHOTS, forget_snapshots

    total = 0
    while True:
        part = forget_snapshots(workspace)
        total += part
        if part < PRUNED_SNAPSHOTS:
            return total


@dg.job(
    name=MAINTAIN_JOB,
    description=(
        "Keeps the project small and quick: merges, drops and prunes what is due. The sensor "
        "`maintenance` asks for it when something is, and `maintain_daily` once a day."
    ),
    executor_def=dg.in_process_executor,
    tags={KIND_TAG: "maintenance"},
)
def maintain_job() -> None:
    """Tidy the store, then prune what is past its time."""
    tidy_store()
    prune_history()


@dg.op(
    out=dg.Out(dg.Nothing),
    retry_policy=RETRIES,
    description=(
        "Writes the lifecycle events of item versions that packs no longer get, each once, and a "
        "recall notice for each that had been shown. Notices appear as an observation of "
        "stages/context_snapshots and in `ctx items recalls`."
    ),
)
def sweep_versions(context: dg.OpExecutionContext, ctx_project: ContextProjectResource) -> None:
    """Record evictions and recalls."""
    recorded, examined, recalls = 0, 0, list["RecallNotice"]()
    with _typed_failures(), ctx_project.workspace() as workspace:
        for sweep in _sweeps(workspace):
            recorded, examined = recorded + sweep.recorded, examined + sweep.examined
            recalls.extend(sweep.recalls)
            if sweep.recalls:
                # At once: what is recorded is not recorded again by another attempt.
                context.log_event(observation(sweep.recalls))
    context.log.info(f"{recorded} lifecycle events and {len(recalls)} recall notices recorded")
    context.add_output_metadata(
        {"versions": examined, "lifecycle_events": recorded, "recall_notices": len(recalls)}
    )


def _sweeps(workspace: "Workspace") -> "Iterator[Sweep]":
    """Sweep until nothing is left to record."""
    from ctx_pipeline.lifecycle.sweep import record_evictions

    cursor = ""
    while True:
        sweep = record_evictions(workspace, cursor=cursor, lock_seconds=SWEEP_LOCK_SECONDS)
        yield sweep
        # Where nothing was examined, another process sweeps, and records the same.
        if sweep.finished or not sweep.examined:
            return
        cursor = sweep.cursor


@dg.job(
    name=EVICTIONS_JOB,
    description=(
        "Records which item versions packs no longer get, and recalls those that had been shown. "
        "The sensor `evictions` asks for it, and `record_evictions_daily` once a day."
    ),
    executor_def=dg.in_process_executor,
    tags={KIND_TAG: "evictions"},
)
def record_evictions_job() -> None:
    """Sweep once."""
    sweep_versions()


def observation(recalls: "Sequence[RecallNotice]") -> dg.AssetObservation:
    """Return what the graph shows of notices: hashes of ids. What was forgotten is counted alone."""
    named = [notice for notice in recalls if notice.code != Exclusion.FORGOTTEN]
    rows = [
        (
            reference(notice.item_id),
            notice.version,
            notice.code,
            notice.snapshots,
            " ".join(notice.snapshot_ids[:SHOWN_IDS]),
        )
        for notice in named
    ]
    header = ("item", "version", "code", "snapshots", "newest snapshots")
    return dg.AssetObservation(
        asset_key=SNAPSHOTS,
        description="Item versions that packs had shown are out of use.",
        metadata={
            "recall_notices": len(recalls),
            "not_named": len(recalls) - len(named),
            "snapshots": sum(notice.snapshots for notice in recalls),
            "recalls": dg.MetadataValue.md(markdown_table(header, rows)),
        },
    )


@contextmanager
def _typed_failures() -> Generator[None]:
    """Fail a step with the code of a typed error; it is tried again only where that can help."""
    try:
        yield
    except CtxError as raised:
        raise dg.Failure(
            str(raised), metadata={"code": raised.stable_code}, allow_retries=raised.retryable
        ) from raised
