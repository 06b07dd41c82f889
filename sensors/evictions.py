"""Write down what the published state no longer injects, and recall it from the snapshots that had shown it."""

# pyright: reportUnknownMemberType=false
# Dagster's annotations leave type parameters out.

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from ctx_pipeline.resources import ContextProjectResource

if TYPE_CHECKING:
    from ctx_pipeline.ledger import RecallNotice

MINIMUM_INTERVAL_SECONDS = 30
SHOWN_IDS = 5
"""Snapshot ids in one row of the table; the ledger names up to a hundred, `ctx items recalls` the caller's own."""
SNAPSHOTS = dg.AssetKey(["stages", "context_snapshots"])


@dg.sensor(
    name="evictions",
    minimum_interval_seconds=MINIMUM_INTERVAL_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description=(
        "Looks every 30 seconds for item versions that the published artifact and the overlay no longer let into a "
        "pack: superseded, expired, retired, quarantined, forgotten, or stale. Each gets its lifecycle events once, "
        "and one that had been shown a recall notice that names the snapshots. Notices appear as an observation of "
        "stages/context_snapshots and in `ctx items recalls`. Launches nothing."
    ),
)
def evictions(
    context: dg.SensorEvaluationContext, ctx_project: ContextProjectResource
) -> dg.SensorResult | dg.SkipReason:
    """Record evictions and recalls."""
    from ctx_pipeline.errors import Corrupt, Unavailable
    from ctx_pipeline.lifecycle.sweep import record_evictions

    if not (Path(ctx_project.home) / "ctx.toml").is_file():
        return dg.SkipReason("there is no context project here: set CTX_HOME")
    try:
        with ctx_project.pipeline() as pipeline:
            sweep = record_evictions(pipeline, cursor=context.cursor or "")
    except (Corrupt, Unavailable) as problem:
        # The cursor stays: the first tick after the mending goes on from there.
        return dg.SkipReason(
            f"what is published cannot be read: {problem.message} ({problem.stable_code})"
        )
    rest = "" if sweep.finished else "; the next tick goes on"
    note = (
        f"{sweep.recorded} lifecycle events and {len(sweep.recalls)} recall notices recorded{rest}"
    )
    if not sweep.recorded:
        note = f"nothing new is out of use{rest}"
    events = [_observation(sweep.recalls)] if sweep.recalls else []
    return dg.SensorResult(
        skip_reason=dg.SkipReason(note), cursor=sweep.cursor, asset_events=events
    )


def _observation(recalls: Sequence[RecallNotice]) -> dg.AssetObservation:
    """Return what the graph shows of the notices: hashes of ids. What was forgotten is counted alone."""
    from ctx_pipeline.assets.metadata import markdown_table
    from ctx_pipeline.contracts import Exclusion
    from ctx_pipeline.text import reference

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
