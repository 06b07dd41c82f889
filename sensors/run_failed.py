"""Tell an operator of a failed run."""

# pyright: reportUnknownMemberType=false
# Dagster's annotations leave type parameters out.

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from ctx_pipeline.assets import sources, stages, usage
from ctx_pipeline.assets.jobs import JOBS
from ctx_pipeline.resources import ContextProjectResource

if TYPE_CHECKING:
    from ctx_pipeline.building.alerts import Alert

_GROUPS = frozenset({sources.GROUP, stages.GROUP, usage.GROUP})
CODE = "code"
"""Metadata of a failure: the stable code of the error behind it."""
_CODE_IN_TEXT = re.compile(r"^[\w.]+: ([a-z][a-z_]{2,60}): ")
"""How the text of a typed error begins in an event."""
_WRAPPERS = re.compile(r"^Dagster|^Failure$|^RetryRequested")


@dg.run_failure_sensor(
    name="run_failed",
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=30,
    description=(
        "Writes each failed run of the project to `.ctx/alerts.jsonl` and the log, with its "
        "assets and the class and code of the error, and sends the same to `[alerts] webhook` "
        "where one is set. `ctx status` and `ctx doctor` show the newest. No content is written or "
        "sent, and a webhook that does not answer fails nothing."
    ),
)
def run_failed(
    context: dg.RunFailureSensorContext, ctx_project: ContextProjectResource
) -> dg.SkipReason | None:
    """Raise one alert per failed run."""
    from ctx_pipeline.building.alerts import raise_alert
    from ctx_pipeline.config.settings import load_config
    from ctx_pipeline.errors import CtxError

    home = Path(ctx_project.home)
    if not (home / "ctx.toml").is_file():
        return dg.SkipReason("there is no context project here: set CTX_HOME")
    if not _is_ours(context):
        return dg.SkipReason("the run is of other assets of this code location")
    try:
        webhook = load_config(home).config.alerts.webhook
    except CtxError:
        # Perhaps the very reason why the run failed; it is told all the same.
        webhook = None
    raise_alert(home, alert_of(context), webhook)
    return None


def alert_of(context: dg.RunFailureSensorContext) -> Alert:
    """Return what an operator is told of a failed run."""
    from ctx_pipeline.building.alerts import MAX_ASSETS, Alert

    run, steps = (
        context.dagster_run,
        [event for event in context.get_step_failure_events() if event.step_key],
    )
    name, code = _cause(context, steps)
    failed = {str(event.step_key) for event in steps}
    assets = sorted({key for step, key in _planned(context.instance, run.run_id) if step in failed})
    end = context.instance.get_run_record_by_id(run.run_id)
    ended = None if end is None else end.end_time
    return Alert(
        run_id=run.run_id,
        job=run.job_name,
        assets=tuple(assets[:MAX_ASSETS]),
        error=name,
        code=code,
        at=datetime.fromtimestamp(ended, UTC) if ended else datetime.now(UTC),
    )


def _is_ours(context: dg.RunFailureSensorContext) -> bool:
    """Return whether a run belongs to the project: others may stand beside it in one code location."""
    run = context.dagster_run
    if run.job_name in JOBS:
        return True
    planned = (key for _, key in _planned(context.instance, run.run_id))
    return any(key.partition("/")[0] in _GROUPS for key in planned)


def _planned(instance: dg.DagsterInstance, run_id: str) -> Iterator[tuple[str, str]]:
    """Yield the step and the asset of everything a run set out to build."""
    for entry in instance.all_logs(
        run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
    ):
        event = entry.dagster_event
        if event is not None and event.step_key and event.asset_key is not None:
            yield event.step_key, event.asset_key.to_user_string()


def _cause(context: dg.RunFailureSensorContext, steps: list[Any]) -> tuple[str, str]:
    """Return class and code of the first error; what wraps it is looked through."""
    for event in steps:
        data = event.step_failure_data
        if data.user_failure_data is not None and CODE in data.user_failure_data.metadata:
            return _innermost(data.error)[0], str(data.user_failure_data.metadata[CODE].value)
        if data.error is not None:
            return _innermost(data.error)
    failure = context.failure_event.event_specific_data
    return _innermost(getattr(failure, "error", None))


def _innermost(error: Any) -> tuple[str, str]:
    """Return class and code of the first error in a chain that is not one of Dagster's own."""
    name = "" if error is None else str(error.cls_name)
    while error is not None:
        found = _CODE_IN_TEXT.match(str(error.message))
        if error.cls_name and not _WRAPPERS.match(str(error.cls_name)):
            return str(error.cls_name), found.group(1) if found else ""
        error = error.cause
    return name, ""
