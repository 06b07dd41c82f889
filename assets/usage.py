"""What calls were shown, day by day: a partitioned asset, so that history is counted once."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from ctx_pipeline.assets.metadata import owner_of
from ctx_pipeline.building.exposure import FORMAT_VERSION
from ctx_pipeline.resources import ContextProjectResource

if TYPE_CHECKING:
    from ctx_pipeline.config.settings import ProjectConfig

GROUP = "usage"
DAILY_EXPOSURE = dg.AssetKey([GROUP, "daily_exposure"])
LOOKBACK = timedelta(days=7)
"""Days that are rolled up by themselves when nobody was there on the day after; older ones are a backfill."""


def usage_assets(home: Path, config: ProjectConfig) -> list[dg.AssetsDefinition]:
    """Return the daily assets, from the first day that there is anything of."""
    return [_daily_exposure(_first_day(home, config))]


def _first_day(home: Path, config: ProjectConfig) -> date:
    """Return the configured day, else that of the oldest snapshot, else today."""
    from ctx_pipeline.building.exposure import first_day
    from ctx_pipeline.errors import CtxError
    from ctx_pipeline.index.artifact import Layout
    from ctx_pipeline.workspace import open_ledger, state_folder

    today = datetime.now(UTC).date()
    if config.usage.since is not None:
        return config.usage.since
    if config.ledger.url is None and not (state_folder(home) / "ledger.db").exists():
        # Looking at a graph makes no project.
        return today
    try:
        with open_ledger(home, config.ledger) as ledger:
            return min(first_day(Layout(home).derived, ledger) or today, today)
    except CtxError:
        # The graph loads without its database; the next reload knows.
        return today


def _daily_exposure(start: date) -> dg.AssetsDefinition:
    @dg.asset(
        key=DAILY_EXPOSURE,
        group_name=GROUP,
        kinds={"python", "arrow"},
        owners=owner_of("context-platform"),
        description=(
            "Rolls the snapshots of one UTC day up into how often each item version of each tenant was shown, left out "
            "and cited, and how many tokens it took. stages/context_snapshots and `ctx items` add finished days up and "
            "count only the rest, so history is never counted again. A day is written whole or not at all; "
            "writing it again replaces it."
        ),
        code_version=f"days-{FORMAT_VERSION}",
        partitions_def=dg.DailyPartitionsDefinition(start_date=start.isoformat()),
        automation_condition=_finished_days(),
    )
    # Dagster compares the annotation with the bare class.
    def daily_exposure(  # pyright: ignore[reportUnknownParameterType]
        ctx_project: ContextProjectResource,
    ) -> dg.MaterializeResult:  # pyright: ignore[reportMissingTypeArgument]
        from ctx_pipeline.building.exposure import roll_up_day

        day = date.fromisoformat(dg.AssetExecutionContext.get().partition_key)
        started = time.monotonic()
        with ctx_project.workspace() as workspace:
            done = roll_up_day(workspace.layout.derived, workspace.ledger, day)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(done.digest),
            metadata={
                "dagster/partition_row_count": done.rows,
                "tenants": done.tenants,
                "shown": done.shown,
                "left_out": done.left_out,
                "cited": done.cited,
                "tokens": done.tokens,
                "seconds": round(time.monotonic() - started, 3),
            },
        )

    return daily_exposure


def _finished_days() -> dg.AutomationCondition[dg.AssetKey]:
    missing = dg.AutomationCondition.missing()
    recent = dg.AutomationCondition.in_latest_time_window(LOOKBACK)
    wanted = missing.newly_true() | (missing & dg.AutomationCondition.cron_tick_passed("0 * * * *"))
    return (recent & wanted & ~dg.AutomationCondition.in_progress()).with_label("finished days")
