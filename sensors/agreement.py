"""Where the graph's materialisations lag behind what the project has read and built without a run of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from ctx_pipeline.assets.sources import source_key

if TYPE_CHECKING:
    from ctx_pipeline.workspace import Workspace

FIRST_STAGE = dg.AssetKey(["stages", "discovered_items"])
_DATA_VERSION = "dagster/data_version"
_INPUT = "dagster/input_data_version"


def unseen_sources(instance: dg.DagsterInstance, workspace: Workspace) -> list[str]:
    """Return the sources of which a newer reading is recorded than the one that the graph shows.

    `ctx publish` and Python read a source outside of a run. One that was never materialised is left to its
    freshness, and one whose last reading failed to its next reading.
    """
    readings = workspace.ledger.sources()
    found: list[str] = []
    for source in workspace.config.sources:
        reading, shown = readings.get(source.name), _tags(instance, source_key(source.name))
        if reading is None or reading.status != "ok" or shown is None:
            continue
        if shown.get(_DATA_VERSION) != reading.fingerprint:
            found.append(source.name)
    return found


def built_from_others(instance: dg.DagsterInstance, workspace: Workspace) -> list[str]:
    """Return the sources of which the first stage was materialised from another reading than the last one.

    The graph shows such a stage as unsynced, also where what is served has that reading already.
    """
    stage = _tags(instance, FIRST_STAGE)
    if stage is None:
        return []
    found: list[str] = []
    for source in workspace.config.sources:
        key = source_key(source.name)
        shown, used = _tags(instance, key), stage.get(f"{_INPUT}/{key.to_user_string()}")
        if shown is not None and used is not None and shown.get(_DATA_VERSION) != used:
            found.append(source.name)
    return found


def _tags(instance: dg.DagsterInstance, key: dg.AssetKey) -> dict[str, str] | None:
    """Return the tags of an asset's last materialisation; None where there is none."""
    event = instance.get_latest_materialization_event(key)
    last = None if event is None else event.asset_materialization
    return None if last is None else dict(last.tags or {})
