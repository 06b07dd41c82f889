"""How much history the project's own Dagster instance keeps: Dagster prunes ticks, but neither runs nor events."""

# pyright: reportUnknownMemberType=false
# Dagster's annotations leave type parameters out.

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

PRUNED_RUNS = 20
"""Most runs removed in one go, so that a build does not wait long for it."""
_PAGE = 500
_FINISHED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


def is_own_instance(instance: dg.DagsterInstance, home: Path) -> bool:
    """Return whether an instance is the one of this project, whose history is ours to prune."""
    try:
        return Path(instance.root_directory).resolve() == (home / ".ctx" / "dagster").resolve()
    except (dg.DagsterError, OSError, TypeError, ValueError):
        return False


def prunable_runs(instance: dg.DagsterInstance, *, keep: int) -> list[str]:
    """Return the finished runs beyond `keep` that no asset needs, the oldest first.

    A run that an asset, or a partition of it, was last materialised by stays: with it would go what
    the graph knows.
    """
    finished = dg.RunsFilter(statuses=list(_FINISHED))
    if instance.get_runs_count(finished) <= keep:
        return []
    needed = _last_builders(instance)
    beyond = reversed(instance.get_run_ids(finished)[keep:])
    return [run_id for run_id in beyond if run_id not in needed]


def prune_runs(instance: dg.DagsterInstance, *, keep: int, limit: int = PRUNED_RUNS) -> int:
    """Remove the oldest of the runs that can be pruned, and their files; return how many went."""
    chosen = prunable_runs(instance, keep=keep)[:limit]
    for run_id in chosen:
        instance.delete_run(run_id)
        _delete_event_file(instance, run_id)
    return len(chosen)


def _last_builders(instance: dg.DagsterInstance) -> set[str]:
    """Return the runs by which each asset and each partition was last materialised."""
    assets = instance.all_asset_keys()
    records = (
        record.asset_entry.last_materialization_record
        for record in instance.get_asset_records(assets)
    )
    needed = {record.run_id for record in records if record is not None}
    for key in assets:
        latest = instance.event_log_storage.get_latest_storage_id_by_partition(
            key, dg.DagsterEventType.ASSET_MATERIALIZATION
        )
        ids = sorted(latest.values())
        for start in range(0, len(ids), _PAGE):
            part = ids[start : start + _PAGE]
            wanted = dg.AssetRecordsFilter(asset_key=key, storage_ids=part)
            needed |= {
                record.run_id
                for record in instance.fetch_materializations(wanted, limit=len(part)).records
            }
    return needed


def _delete_event_file(instance: dg.DagsterInstance, run_id: str) -> None:
    """Dagster empties a run's own SQLite file and leaves it there at its size."""
    # No public name; without it the empty files of old runs stay.
    from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

    storage = instance.event_log_storage
    if isinstance(storage, SqliteEventLogStorage):
        file = Path(storage.path_for_shard(run_id))
        for part in file.parent.glob(f"{file.name}*"):
            part.unlink(missing_ok=True)


def prune_events(instance: dg.DagsterInstance, before: datetime) -> int:
    """Remove observations and freshness changes that belong to no run and are older than this; return how many.

    Dagster has no setting and no call for it, so it is done in its tables. What assets were materialised by stays.
    """
    # No public way; where the tables change, pruning fails in its own run and nothing else does.
    from dagster._core.instance import RUNLESS_RUN_ID
    from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
    from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage

    storage = instance.event_log_storage
    if not isinstance(storage, SqlEventLogStorage):
        return 0
    table = SqlEventLogStorageTable
    old = table.delete().where(
        table.c.run_id == RUNLESS_RUN_ID,
        table.c.dagster_event_type.in_([kind.value for kind in _RUNLESS]),
        table.c.timestamp < before.astimezone(UTC).replace(tzinfo=None),
    )
    removed = 0
    with storage.index_connection() as connection:
        removed += int(connection.execute(old).rowcount)
    with storage.run_connection(RUNLESS_RUN_ID) as connection:
        connection.execute(old)
    return removed


_RUNLESS = tuple(
    kind
    for kind in dg.DagsterEventType
    if kind.value in ("ASSET_OBSERVATION", "FRESHNESS_STATE_CHANGE", "FRESHNESS_STATE_EVALUATION")
)
