"""Build a context project: materialise its assets in this process, in the project's own Dagster instance."""

# pyright: reportUnknownMemberType=false
# Dagster's annotations leave type parameters out.

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctx_pipeline.config import load_config
from ctx_pipeline.contracts import BuildReport
from ctx_pipeline.errors import Corrupt, CtxError, InvalidRequest, Unavailable

if TYPE_CHECKING:
    import dagster as dg

    from ctx_pipeline.build_progress import BuildProgress
    from ctx_pipeline.resources import BuildSession

LOCK_SECONDS = 600.0
"""How long a build waits for another one of the same project."""
KEPT_RUNS = 50
"""How many finished runs the instance keeps; one takes 0.2 to 1 MB, and Dagster itself keeps them all."""
_PRUNED_RUNS = 20
"""Most runs removed by one build, so that none waits long for it."""
BUILD_TAG = "ctx/build"
SOURCES = "sources"
"""First part of the asset keys of sources."""
_CHECK_FAILED = "DagsterAssetCheckFailedError"
"""What Dagster raises in a step whose blocking check failed."""
IN_PROCESS = "in_process"

_BARE_KEY = re.compile(r'(?<![\w:"/*-])([\w-]+(?:/[\w*-]+)+)')
"""An asset key without `key:"..."` around it, as in `sources/handbook+`; Dagster would read its `+` as one step."""

INSTANCE_CONFIG = "dagster.yaml"
INSTANCE_TEMPLATE = """\
# Copied into a context project's own instance folder by `ctx`.
concurrency: {runs: {max_concurrent_runs: 8}, pools: {granularity: op, default_limit: 1}}
run_monitoring: {enabled: true, max_runtime_seconds: 7200, free_slots_after_run_end_seconds: 300}
run_retries: {enabled: true, max_retries: 2, retry_on_asset_or_op_failure: false}
retention: {schedule: {purge_after_days: 30}, sensor: {purge_after_days: {skipped: 2, failure: 14, success: 14}}}
sensors: {use_threads: true, num_workers: 2}
telemetry: {enabled: false}
nux: {enabled: false}
"""
"""What a project's instance starts with; the project's own file is never overwritten. Runs wait in a queue, a killed
run gives its pool slots back, ticks are pruned, nothing is reported to anybody and nobody is asked to sign up."""

_IN_PROCESS_OVERRIDES: dict[str, object] = {
    # Capturing would send this process's own output through files and four helper processes.
    "compute_logs": {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"},
    # The build lock is held. A slot that a killed run has kept must not make this one wait.
    "concurrency": {"pools": {"granularity": "run"}},
}


def build(
    home: str | Path, select: str | None = None, progress: bool = True, *, lock_seconds: float = LOCK_SECONDS
) -> BuildReport:
    """Read the sources, bring the store up to date and publish the serving artifact.

    What has not changed is not embedded again. A source that is in doubt (`source_shrank`) keeps what it had, and the
    rest is published. `select` is a Dagster asset selection (`sources/handbook+`: that source
    and everything built from it); None is everything. With `progress`, stderr shows how far it is. Errors of single
    files are in the report.

    Raises:
        ConfigError: there is no `ctx.toml`, or it is wrong.
        InvalidRequest: the selection is not valid or selects nothing (`invalid_selection`).
        Unavailable: another build runs for longer than `lock_seconds` (`build_busy`), or something needed is missing.
        CtxError: what an asset raised.
        KeyboardInterrupt: Ctrl-C; what was written stays and the next build goes on from there.
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
    from ctx_pipeline.definitions import make_definitions

    definitions = make_definitions(home, session=session)
    keys = _selected(definitions, select)
    teller.total(len(keys))
    with open_instance(home) as instance:
        _fail_dead_runs(instance)
        result = _run(definitions, instance, keys)
        stages = [key for key in keys if key.path[0] != SOURCES]
        if stages and _only_sources_failed(result):
            # One source that is in doubt must not keep what the others have from being published.
            result = _run(definitions, instance, stages)
        _prune_runs(home, instance, list(definitions.resolve_asset_graph().toposorted_asset_keys))
        if not result.success and not _only_sources_failed(result):
            raise _failure(result, session.errors)


def _run(
    definitions: dg.Definitions, instance: dg.DagsterInstance, keys: Sequence[dg.AssetKey]
) -> dg.ExecuteInProcessResult:
    from ctx_pipeline.definitions import BUILD_JOB

    return definitions.resolve_job_def(BUILD_JOB).execute_in_process(
        instance=instance,
        asset_selection=list(keys),
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        tags={BUILD_TAG: IN_PROCESS},
        raise_on_error=False,
    )


def _failed_checks(result: dg.ExecuteInProcessResult) -> list[dg.AssetCheckEvaluation]:
    """Return the checks that stopped a run."""
    import dagster as dg

    return [
        found
        for found in result.get_asset_check_evaluations()
        if found.blocking and not found.passed and found.severity is dg.AssetCheckSeverity.ERROR
    ]


def _only_sources_failed(result: dg.ExecuteInProcessResult) -> bool:
    """Return whether a run failed, and by nothing but blocking checks of sources."""
    raised = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    by_checks = all(error is not None and error.cls_name == _CHECK_FAILED for error in raised)
    failed = _failed_checks(result)
    return bool(raised) and by_checks and bool(failed) and all(each.asset_key.path[0] == SOURCES for each in failed)


def _selected(definitions: dg.Definitions, select: str | None) -> list[dg.AssetKey]:
    """Return the keys a selection names, in the order in which they are built."""
    import dagster as dg

    graph = definitions.resolve_asset_graph()
    if select is None:
        return list(graph.toposorted_asset_keys)
    try:
        with warnings.catch_warnings():
            # Dagster's own parser calls something of Dagster that is still in beta.
            warnings.simplefilter("ignore", dg.BetaWarning)
            chosen = dg.AssetSelection.from_string(_BARE_KEY.sub(r'key:"\1"', select)).resolve(graph)
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
    """Open the project's own Dagster instance for a run in this process, whatever `DAGSTER_HOME` says."""
    import dagster as dg

    # Of the constructors, this one alone takes a folder and overrides; nothing of it is temporary when it has a folder.
    with dg.DagsterInstance.local_temp(str(write_instance(home)), overrides=_IN_PROCESS_OVERRIDES) as instance:
        yield instance


def _fail_dead_runs(instance: dg.DagsterInstance) -> None:
    """Fail builds that were killed: the build lock is ours, so none is alive, and no daemon may be there to notice."""
    import dagster as dg

    alive = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.NOT_STARTED]
    for run in instance.get_runs(dg.RunsFilter(tags={BUILD_TAG: IN_PROCESS}, statuses=alive)):
        instance.report_run_failed(run, "the process of this build ended before the build did")


def _prune_runs(home: Path, instance: dg.DagsterInstance, assets: Sequence[dg.AssetKey]) -> None:
    """Remove old finished runs, but none that an asset was last materialised by."""
    import dagster as dg

    finished = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
    runs = instance.get_run_ids(dg.RunsFilter(statuses=finished), limit=KEPT_RUNS + _PRUNED_RUNS)
    if len(runs) <= KEPT_RUNS:
        return
    records = (record.asset_entry.last_materialization_record for record in instance.get_asset_records(assets))
    needed = {record.run_id for record in records if record is not None}
    for run_id in runs[KEPT_RUNS:]:
        if run_id not in needed:
            instance.delete_run(run_id)
            # Dagster empties the run's own event file and leaves it there at its size.
            for file in (home / ".ctx" / "dagster" / "history" / "runs").glob(f"{run_id}.db*"):
                file.unlink(missing_ok=True)


def _failure(result: dg.ExecuteInProcessResult, errors: dict[str, BaseException]) -> BaseException:
    """Return what a failed run raises: what the first asset raised, when it is one of ours, or the interrupt."""
    asset, first = next(iter(errors.items()), ("its run", None))
    if _was_interrupted(result) or not isinstance(first, (Exception, type(None))):
        return KeyboardInterrupt()
    if isinstance(first, CtxError):
        return first
    if first is None and (failed := _failed_checks(result)):
        return Corrupt(
            f"{len(failed)} checks failed, the first is {failed[0].check_name!r}: {failed[0].description or ''}",
            where=failed[0].asset_key.to_user_string(),
            fix="what was served before is served still; open the run in `ctx dev`, it shows what failed",
            code="check_failed",
        )
    failure = Unavailable(
        f"the build failed in {asset}" + (f": {type(first).__name__}" if first else ""),
        where=f"run {result.run_id}",
        fix="open the run in `ctx dev`; it has the whole error",
        code="build_failed",
    )
    failure.__cause__ = first
    return failure


def _was_interrupted(result: dg.ExecuteInProcessResult) -> bool:
    """Dagster turns Ctrl-C into a failed run."""
    import dagster as dg

    ends = [
        event.job_failure_data for event in result.all_events if event.event_type is dg.DagsterEventType.RUN_FAILURE
    ]
    return any(end.error is not None and str(end.error.cls_name).endswith("InterruptedError") for end in ends)


def _report(session: BuildSession) -> BuildReport:
    """Sum up what the assets found."""
    from ctx_pipeline.index.history import pin_today

    discovered = session.stages.get("discovered_items")
    assembled = session.stages.get("assembled_items")
    sources = tuple(session.sources)
    pin = pin_today(session.pipeline.layout, session.pipeline.store, session.pipeline.clock())
    return BuildReport(
        items=_live(session, pinned=pin is not None),
        embedded=0 if discovered is None else int(discovered.facts["embedded"]),
        reused=sum(source.reused for source in sources),
        retired=sum(source.retired for source in sources),
        errors=tuple(error for source in sources for error in source.errors),
        artifact=None if assembled is None or pin is not None else str(assembled.facts["artifact"]),
        sources=sources,
        pin=pin,
    )


def _live(session: BuildSession, *, pinned: bool) -> int:
    """Return the live item versions of the artifact that is published now."""
    from ctx_pipeline.index.artifact import read_pointer, read_table
    from ctx_pipeline.pipeline import live_rows
    from ctx_pipeline.security.visibility import micros

    assembled = session.stages.get("assembled_items")
    if assembled is not None and not pinned:
        return int(assembled.facts["live"])
    pipeline = session.pipeline
    pointer = read_pointer(pipeline.layout)
    if pointer is None:
        return 0
    table = read_table(pipeline.layout.artifacts / pointer["artifact"] / "filtered.arrow")
    return live_rows(table, micros(pipeline.clock()))
