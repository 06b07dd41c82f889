"""Build a context project: materialise its assets in this process, in the project's own Dagster instance."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctx_pipeline.config import load_config
from ctx_pipeline.contracts import BuildReport
from ctx_pipeline.errors import CtxError, InvalidRequest, Unavailable

if TYPE_CHECKING:
    import dagster as dg

    from ctx_pipeline.build_progress import BuildProgress
    from ctx_pipeline.resources import BuildSession

LOCK_SECONDS = 600.0
"""How long a build waits for another one of the same project."""
BUILD_TAG = "ctx/build"
IN_PROCESS = "in_process"

INSTANCE_CONFIG = "dagster.yaml"
INSTANCE_TEMPLATE = """\
# Copied into a context project's own instance folder by `ctx`.
concurrency: {runs: {max_concurrent_runs: 8}, pools: {granularity: op, default_limit: 1}}
run_monitoring: {enabled: true, max_runtime_seconds: 7200, free_slots_after_run_end_seconds: 300}
run_retries: {enabled: true, max_retries: 2, retry_on_asset_or_op_failure: false}
retention: {schedule: {purge_after_days: 30}, sensor: {purge_after_days: {skipped: 2, failure: 14, success: 14}}}
sensors: {use_threads: true, num_workers: 2}
telemetry: {enabled: false}
"""
"""What a project's instance starts with; the project's own file is never overwritten. Runs wait in a queue, a killed
run gives its pool slots back, ticks are pruned, nothing is reported to anybody."""


def build(
    home: str | Path, select: str | None = None, progress: bool = True, *, lock_seconds: float = LOCK_SECONDS
) -> BuildReport:
    """Read the sources, bring the store up to date and publish the serving artifact.

    What has not changed is not embedded again. `select` is a Dagster asset selection (`sources/handbook+`); None is
    everything. With `progress`, stderr shows how far it is. Errors of single files are in the report.

    Raises:
        ConfigError: there is no `ctx.toml`, or it is wrong.
        InvalidRequest: the selection is not valid or selects nothing (`invalid_selection`).
        Unavailable: another build runs for longer than `lock_seconds` (`build_busy`), or something needed is missing.
        CtxError: what an asset raised.
    """
    started = time.monotonic()
    home = Path(home).expanduser().resolve()
    load_config(home)
    from ctx_pipeline.build_progress import open_progress
    from ctx_pipeline.resources import build_lock
    from ctx_pipeline.resources.session import open_session

    with (
        open_progress(shown=progress) as teller,
        build_lock(home, lock_seconds, on_wait=teller.waiting),
        open_session(home, teller) as session,
    ):
        _materialize(home, select, session, teller)
        report = _report(session)
    return report.model_copy(update={"seconds": round(time.monotonic() - started, 3)})


def _materialize(home: Path, select: str | None, session: BuildSession, teller: BuildProgress) -> None:
    from ctx_pipeline.definitions import BUILD_JOB, make_definitions

    definitions = make_definitions(home, session=session)
    keys = _selected(definitions, select)
    teller.total(len(keys))
    with open_instance(home) as instance:
        _bury_dead_runs(instance)
        result = definitions.resolve_job_def(BUILD_JOB).execute_in_process(
            instance=instance,
            asset_selection=keys,
            tags={BUILD_TAG: IN_PROCESS},
            raise_on_error=False,
        )
        if not result.success:
            raise _failure(result.run_id, session.errors)


def _selected(definitions: dg.Definitions, select: str | None) -> list[dg.AssetKey]:
    """Return the keys a selection names, in the order in which they are built."""
    import dagster as dg

    graph = definitions.resolve_asset_graph()
    if select is None:
        return list(graph.toposorted_asset_keys)
    try:
        chosen = dg.AssetSelection.from_string(select).resolve(graph)
    except Exception as refused:  # Dagster, its parser and its graph raise classes of their own.
        raise _bad_selection(graph, "the selection is not valid") from refused
    if not chosen:
        raise _bad_selection(graph, "the selection names no asset")
    return [key for key in graph.toposorted_asset_keys if key in chosen]


def _bad_selection(graph: Any, message: str) -> InvalidRequest:
    names = ", ".join(key.to_user_string() for key in graph.toposorted_asset_keys)
    return InvalidRequest(
        message, where="select", fix=f"use Dagster's selection syntax over: {names}", code="invalid_selection"
    )


def write_instance(home: Path) -> Path:
    """Write the project's Dagster instance folder where it is missing, and return it."""
    folder = home / ".ctx" / "dagster"
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / INSTANCE_CONFIG
    if not config.exists():
        config.write_text(INSTANCE_TEMPLATE, encoding="utf-8")
    return folder


@contextmanager
def open_instance(home: Path) -> Generator[dg.DagsterInstance]:
    """Open the project's own Dagster instance, whatever `DAGSTER_HOME` says."""
    import dagster as dg

    with dg.DagsterInstance.from_config(str(write_instance(home))) as instance:
        yield instance


def _bury_dead_runs(instance: dg.DagsterInstance) -> None:
    """Fail builds that were killed, and give back the pool slots that nobody holds.

    The build lock is ours, so no build is alive; without a daemon nobody else would do it, and this one would wait.
    """
    import dagster as dg

    from ctx_pipeline.assets.sources import STORE_POOL
    from ctx_pipeline.assets.stages import ARTIFACT_POOL

    alive = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.NOT_STARTED]
    for run in instance.get_runs(dg.RunsFilter(tags={BUILD_TAG: IN_PROCESS}, statuses=alive)):
        instance.report_run_failed(run, "the process of this build ended before the build did")
    slots = instance.event_log_storage
    for pool in (STORE_POOL, ARTIFACT_POOL):
        for run_id in slots.get_concurrency_info(pool).active_run_ids:
            slots.free_concurrency_slots_for_run(run_id)


def _failure(run_id: str, errors: dict[str, BaseException]) -> BaseException:
    """Return what a failed run raises: what the first asset raised, when it is one of ours."""
    asset, first = next(iter(errors.items()), ("its run", None))
    if isinstance(first, (CtxError, KeyboardInterrupt)):
        return first
    failure = Unavailable(
        f"the build failed in {asset}" + (f": {type(first).__name__}" if first else ""),
        where=f"run {run_id}",
        fix="open the run in `ctx dev`; it has the whole error",
        code="build_failed",
    )
    failure.__cause__ = first
    return failure


def _report(session: BuildSession) -> BuildReport:
    """Sum up what the assets found."""
    discovered = session.stages.get("discovered_items")
    assembled = session.stages.get("assembled_items")
    sources = tuple(session.sources)
    return BuildReport(
        items=_live(session),
        embedded=0 if discovered is None else int(discovered.facts["embedded"]),
        reused=sum(source.reused for source in sources),
        retired=sum(source.retired for source in sources),
        errors=tuple(error for source in sources for error in source.errors),
        artifact=None if assembled is None else str(assembled.facts["artifact"]),
        sources=sources,
    )


def _live(session: BuildSession) -> int:
    """Return the live item versions of the artifact that is published now."""
    from ctx_pipeline.index.artifact import read_pointer, read_table
    from ctx_pipeline.pipeline import live_rows
    from ctx_pipeline.security.visibility import micros

    assembled = session.stages.get("assembled_items")
    if assembled is not None:
        return int(assembled.facts["live"])
    pipeline = session.pipeline
    pointer = read_pointer(pipeline.layout)
    if pointer is None:
        return 0
    table = read_table(pipeline.layout.artifacts / pointer["artifact"] / "filtered.arrow")
    return live_rows(table, micros(pipeline.clock()))
