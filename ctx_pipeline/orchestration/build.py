"""Build a context project: materialise its assets in this process, in the project's own Dagster
instance.
"""

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

from ctx_pipeline.config.settings import load_config
from ctx_pipeline.contracts import BuildReport
from ctx_pipeline.errors import Corrupt, CtxError, InvalidRequest, Unavailable
from ctx_pipeline.machine_faults import disk_full, is_full, typed_system_errors

if TYPE_CHECKING:
    import dagster as dg

    from ctx_pipeline.building.progress import BuildProgress
    from ctx_pipeline.resources import BuildSession

LOCK_SECONDS = 600.0
"""How long a build waits for another one of the same project."""
EVICTIONS_PER_BUILD = 10_000
"""Versions whose leaving one build records; the job `record_evictions` records the rest."""
BUILD_TAG = "ctx/build"
SOURCES = "sources"
"""First part of the asset keys of sources."""
_CHECK_FAILED = "DagsterAssetCheckFailedError"
"""What Dagster raises in a step whose blocking check failed."""
IN_PROCESS = "in_process"
STATE = ".ctx"
"""Folder of everything that a build writes."""

_BARE_KEY = re.compile(r'(?<![\w:"/*-])([\w-]+(?:/[\w*-]+)+)')
"""An asset key without `key:"..."` around it, as in `sources/handbook+`; Dagster would read its `+`
as one step.
"""

_IN_PROCESS_OVERRIDES: dict[str, object] = {
    # Capturing would send this process's own output through files and four helper processes.
    "compute_logs": {
        # Dagster documents the class under this path and has no other; a move breaks every build.
        "module": "dagster._core.storage.noop_compute_log_manager",
        "class": "NoOpComputeLogManager",
    },
    # The build lock is held. A slot that a killed run has kept must not make this one wait.
    "concurrency": {"pools": {"granularity": "run"}},
}


def build(
    home: str | Path,
    select: str | None = None,
    progress: bool = True,
    *,
    lock_seconds: float = LOCK_SECONDS,
) -> BuildReport:
    """Read the sources, bring the store up to date and publish the serving artifact.

    What has not changed is not embedded again. A source that is in doubt (`source_shrank`) keeps
    what it had, and the rest is published. `select` is a Dagster asset selection
    (`sources/handbook+`: that source and everything built from it); None is everything. With
    `progress`, stderr shows how far it is. Errors of single files are in the report.

    Raises:
        ConfigError: there is no `ctx.toml`, or it is wrong. InvalidRequest: the selection is not
        valid or selects nothing (`invalid_selection`). Unavailable: another build runs for longer
        than `lock_seconds` (`build_busy`), something needed is missing, the
            disk is full (`disk_full`), or the folder cannot be written (`cannot_write`).
        CtxError: what an asset raised.
        KeyboardInterrupt: Ctrl-C; what was written stays and the next build goes on from there.
    """
    started = time.monotonic()
    home = Path(home).expanduser().resolve()
    load_config(home)
    from ctx_pipeline.building.progress import open_progress
    from ctx_pipeline.lifecycle.sweep import record_evictions
    from ctx_pipeline.resources import build_lock
    from ctx_pipeline.resources.session import open_session

    with (
        open_progress(shown=progress) as teller,
        typed_system_errors(home / STATE),
        build_lock(home, lock_seconds, on_wait=teller.waiting),
        open_session(home, teller) as session,
    ):
        _materialize(home, select, session, teller)
        if "assembled_items" in session.stages:
            # Where no daemon runs, nobody else would record what has left and recall it.
            record_evictions(session.workspace, limit=EVICTIONS_PER_BUILD)
        report = _report(session)
    return report.model_copy(update={"seconds": round(time.monotonic() - started, 3)})


def _materialize(
    home: Path, select: str | None, session: BuildSession, teller: BuildProgress
) -> None:
    from ctx_pipeline.definitions import make_definitions
    from ctx_pipeline.resources.retention import prune_runs

    definitions = make_definitions(home, session=session)
    keys = _selected(definitions, select)
    teller.total(len(keys))
    with open_instance(home) as instance:
        fail_dead_runs(instance, IN_PROCESS)
        result = _run(definitions, instance, keys)
        stages = [key for key in keys if key.path[0] != SOURCES]
        if stages and _only_sources_failed(result, session):
            # One source that is in doubt must not keep what the others have from being published.
            result = _run(definitions, instance, stages)
        prune_runs(instance, keep=session.workspace.config.retention.runs)
        if not result.success and not _only_sources_failed(result, session):
            failure = _failure(result, session.errors, home / STATE)
            _tell(home, result.run_id, failure, session)
            raise failure


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


def _only_sources_failed(result: dg.ExecuteInProcessResult, session: BuildSession) -> bool:
    """Return whether a run failed, and by nothing but sources that could not be read or seem to
    have shrunk.
    """
    raised = [
        event
        for event in result.all_events
        if event.is_step_failure and event.step_key not in session.unread
    ]
    errors = [event.step_failure_data.error for event in raised]
    if not raised and not session.unread:
        return False
    by_checks = all(error is not None and error.cls_name == _CHECK_FAILED for error in errors)
    return by_checks and all(each.asset_key.path[0] == SOURCES for each in _failed_checks(result))


def _selected(definitions: dg.Definitions, select: str | None) -> list[dg.AssetKey]:
    """Return the keys that one run builds, in order. Partitioned assets are left out: they have
    runs of their own.
    """
    graph = definitions.resolve_asset_graph()
    if select is None:
        return [key for key in graph.toposorted_asset_keys if not graph.get(key).is_partitioned]
    chosen = selected_keys(definitions, select)
    whole = [key for key in chosen if not graph.get(key).is_partitioned]
    if not whole:
        names = ", ".join(key.to_user_string() for key in chosen)
        raise InvalidRequest(
            f"{names} is built partition by partition",
            where="select",
            fix="name them, for example --partitions 2026-11-01..2026-11-30",
            code="invalid_selection",
        )
    return whole


def selected_keys(definitions: dg.Definitions, select: str) -> list[dg.AssetKey]:
    """Return the keys that a selection names, in the order in which they are built.

    Raises:
        InvalidRequest: it is not valid, or names no asset (`invalid_selection`).
    """
    import dagster as dg

    graph = definitions.resolve_asset_graph()
    try:
        with warnings.catch_warnings():
            # Dagster's own parser calls something of Dagster that is still in beta.
            warnings.simplefilter("ignore", dg.BetaWarning)
            chosen = dg.AssetSelection.from_string(_BARE_KEY.sub(r'key:"\1"', select)).resolve(
                graph
            )
    except Exception as refused:  # Dagster, its parser and its graph raise classes of their own.
        raise _bad_selection(graph, select, "the selection is not valid") from refused
    if not chosen:
        raise _bad_selection(graph, select, "the selection names no asset")
    return [key for key in graph.toposorted_asset_keys if key in chosen]


def _bad_selection(graph: Any, select: str, message: str) -> InvalidRequest:
    names = [key.to_user_string() for key in graph.toposorted_asset_keys]
    hints = [f"use Dagster's selection syntax over: {', '.join(names)}"]
    parts = [part.strip() for part in select.split(",")]
    if len(parts) > 1 and all(parts):
        hints.insert(0, f"join them with or: '{' or '.join(parts)}'")
    meant = (nearest_name(part.strip("+* "), names) for part in parts)
    hints += [f"did you mean {name!r}?" for name in dict.fromkeys(filter(None, meant))]
    return InvalidRequest(message, where="select", fix="; ".join(hints), code="invalid_selection")


def nearest_name(word: str, names: Sequence[str]) -> str | None:
    """Return the name that a misspelt one most likely means; None for one that is right, or like no
    other.
    """
    from difflib import get_close_matches

    return None if word in names else next(iter(get_close_matches(word, names, n=1)), None)


@contextmanager
def open_instance(home: Path) -> Generator[dg.DagsterInstance]:
    """Open the project's own Dagster instance for a run in this process, whatever `DAGSTER_HOME`
    says.

    Raises:
        ConfigError: `[dagster] url` cannot be used. Unavailable: its server cannot be reached
        (`dagster_unreachable`), or a library is missing (`no_driver`).
    """
    import dagster as dg

    from ctx_pipeline.orchestration.instance import (
        dagster_url,
        keeps_own_files,
        storage_errors,
        storage_variable,
        write_instance,
    )

    url = dagster_url(load_config(home).config)
    with storage_variable(url), storage_errors(home, url):
        folder = write_instance(home, url)
        overrides = _IN_PROCESS_OVERRIDES | (
            {"storage": _records(folder)} if keeps_own_files(folder) else {}
        )
        # Of the constructors, this one alone takes a folder and overrides; nothing of it is
        # temporary with a folder.
        with dg.DagsterInstance.local_temp(str(folder), overrides=overrides) as instance:
            yield instance


def _records(folder: Path) -> dict[str, object]:
    """Return the storage of this process, as Dagster's configuration names it."""
    records = {"module": "ctx_pipeline.resources.run_records", "class": "BuildRecords"}
    return {"custom": {**records, "config": {"base_dir": str(folder)}}}


def fail_dead_runs(instance: dg.DagsterInstance, kind: str) -> None:
    """Fail runs of a kind that were killed: their lock is ours, so none is alive, and maybe no
    daemon notices.
    """
    import dagster as dg

    alive = [
        dg.DagsterRunStatus.STARTED,
        dg.DagsterRunStatus.STARTING,
        dg.DagsterRunStatus.NOT_STARTED,
    ]
    for run in instance.get_runs(dg.RunsFilter(tags={BUILD_TAG: kind}, statuses=alive)):
        instance.report_run_failed(run, "the process of this build ended before the build did")


def _tell(home: Path, run_id: str, failure: BaseException, session: BuildSession) -> None:
    """Leave an alert of a failed build; what was interrupted has told its user already."""
    from ctx_pipeline.building.alerts import MAX_ASSETS, Alert, raise_alert
    from ctx_pipeline.definitions import BUILD_JOB

    if not isinstance(failure, CtxError):
        return
    cause = (
        failure.__cause__
        if failure.stable_code == "build_failed" and failure.__cause__
        else failure
    )
    alert = Alert(
        run_id=run_id,
        job=BUILD_JOB,
        assets=tuple(session.errors)[:MAX_ASSETS],
        error=type(cause).__name__,
        code=failure.stable_code,
        at=session.workspace.clock(),
    )
    raise_alert(home, alert, session.workspace.config.alerts.webhook)


def _failure(
    result: dg.ExecuteInProcessResult, errors: dict[str, BaseException], folder: Path
) -> BaseException:
    """Return what a failed run raises: what the first asset raised, when it is one of ours, or the
    interrupt.
    """
    asset, first = next(iter(errors.items()), ("its run", None))
    if _was_interrupted(result) or not isinstance(first, (Exception, type(None))):
        return KeyboardInterrupt()
    if isinstance(first, CtxError):
        return first
    if first is None and (failed := _failed_checks(result)):
        return Corrupt(
            f"{len(failed)} checks failed, the first is {failed[0].check_name!r}: "
            f"{failed[0].description or ''}",
            where=failed[0].asset_key.to_user_string(),
            fix=(
                "what was served before is served still; open the run in "
                "`ctx dev`, it shows what failed"
            ),
            code="check_failed",
        )
    if is_full(folder):
        # Dagster could not write down what happened, and made something else of it.
        full = disk_full(folder)
        full.__cause__ = first
        return full
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
        event.job_failure_data
        for event in result.all_events
        if event.event_type is dg.DagsterEventType.RUN_FAILURE
    ]
    return any(
        end.error is not None and str(end.error.cls_name).endswith("InterruptedError")
        for end in ends
    )


def _report(session: BuildSession) -> BuildReport:
    """Sum up what the assets found."""
    from ctx_pipeline.index.history import pin_today

    discovered = session.stages.get("discovered_items")
    assembled = session.stages.get("assembled_items")
    sources = tuple(session.sources)
    pin = pin_today(session.workspace.layout, session.workspace.store, session.workspace.clock())
    return BuildReport(
        items=_live(session, pinned=pin is not None),
        embedded=0 if discovered is None else int(discovered.facts["embedded"]),
        reused=sum(source.reused for source in sources),
        retired=sum(source.retired for source in sources),
        errors=(
            *(error for source in sources for error in source.errors),
            *(error for stage in session.stages.values() for error in stage.errors),
        ),
        artifact=None if assembled is None or pin is not None else str(assembled.facts["artifact"]),
        sources=sources,
        pin=pin,
        pin_ended=None if assembled is None else assembled.facts.get("pin_ended"),
    )


def _live(session: BuildSession, *, pinned: bool) -> int:
    """Return the live item versions of the artifact that is published now."""
    from ctx_pipeline.building.stage_result import live_rows
    from ctx_pipeline.index.artifact import read_pointer, read_table
    from ctx_pipeline.security.visibility import micros

    assembled = session.stages.get("assembled_items")
    if assembled is not None and not pinned:
        return int(assembled.facts["live"])
    pointer = read_pointer(session.workspace.layout)
    if pointer is None:
        return 0
    table = read_table(session.workspace.layout.artifacts / pointer["artifact"] / "filtered.arrow")
    return live_rows(table, micros(session.workspace.clock()))
