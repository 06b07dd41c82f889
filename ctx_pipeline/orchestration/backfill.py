"""Build partitions of partitioned assets in this process: one run each, only those that are
missing.
"""

# pyright: reportUnknownMemberType=false
# Dagster's annotations leave type parameters out.

from __future__ import annotations

import re
import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from ctx_pipeline.config.settings import load_config
from ctx_pipeline.errors import CtxError, InvalidRequest, Unavailable
from ctx_pipeline.machine_faults import typed_system_errors
from ctx_pipeline.orchestration.build import (
    BUILD_TAG,
    STATE,
    fail_dead_runs,
    open_instance,
    selected_keys,
)

if TYPE_CHECKING:
    import dagster as dg

    from ctx_pipeline.building.progress import BuildProgress

PARTITIONS = "partitions"
RANGE = ".."
LOCK = "backfill.lock"
MAX_PARTITIONS = 3_660
"""Partitions of one asset in one call, a run each: ten years of days."""
QUOTED_CHARS = 40
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What was done of one asset."""

    asset: str
    built: tuple[str, ...]
    skipped: int
    """Partitions of the range that were built before."""
    first: str
    """First partition that the asset has."""
    last: str
    """Last partition that the asset has."""


@dataclass(frozen=True, slots=True)
class BackfillReport:
    """What a build of partitions did, asset by asset."""

    assets: tuple[PartitionReport, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Work:
    key: dg.AssetKey
    missing: tuple[str, ...]
    skipped: int
    first: str
    last: str


def build_partitions(
    home: str | Path,
    partitions: str,
    select: str | None = None,
    progress: bool = True,
    *,
    again: bool = False,
) -> BackfillReport:
    """Build the partitions of a range that have not been built yet, oldest first, one run each.

    `partitions` is one partition or `first..last`. `select` is a Dagster asset selection; None is
    every partitioned asset. `again` builds also what was built before. What is done stays done when
    the process ends, however it ends, and the same call again goes on with what is missing.

    Raises:
        ConfigError: there is no `ctx.toml`, or it is wrong.
        InvalidRequest: no asset of the selection is partitioned (`invalid_selection`), or the range
            is none, has no partition of it or more than `MAX_PARTITIONS` (`invalid_partitions`).
        Unavailable: another build of partitions runs (`build_busy`), a run failed (`build_failed`),
            the disk is full (`disk_full`), or the folder cannot be written (`cannot_write`).
        CtxError: what an asset raised.
    """
    from filelock import FileLock, Timeout

    from ctx_pipeline.building.progress import open_progress

    started = time.monotonic()
    home = Path(home).expanduser().resolve()
    load_config(home)
    lock = FileLock(home / STATE / LOCK, fallback_to_soft=False)
    try:
        with typed_system_errors(home / STATE):
            (home / STATE).mkdir(exist_ok=True)
            with lock.acquire(timeout=0), open_progress(shown=progress) as teller:
                reports = _build_all(home, partitions, select, again, teller)
    except Timeout:
        raise Unavailable(
            "another build of partitions of this project runs",
            where=str(home),
            fix="wait for it, or look at its runs in `ctx dev`",
            code="build_busy",
        ) from None
    return BackfillReport(reports, round(time.monotonic() - started, 3))


def _build_all(
    home: Path, partitions: str, select: str | None, again: bool, teller: BuildProgress
) -> tuple[PartitionReport, ...]:
    from ctx_pipeline.definitions import make_definitions
    from ctx_pipeline.resources.retention import prune_runs

    definitions = make_definitions(home)
    keys = _partitioned(definitions, select)
    with open_instance(home) as instance:
        fail_dead_runs(instance, PARTITIONS)
        work = [_work(instance, definitions, key, partitions, again=again) for key in keys]
        teller.total(sum(len(part.missing) for part in work))
        for part in work:
            for partition in part.missing:
                _run(instance, definitions, part.key, partition, teller)
        prune_runs(instance, keep=load_config(home).config.retention.runs)
    return tuple(
        PartitionReport(
            part.key.to_user_string(), part.missing, part.skipped, part.first, part.last
        )
        for part in work
    )


def _partitioned(definitions: dg.Definitions, select: str | None) -> list[dg.AssetKey]:
    graph = definitions.resolve_asset_graph()
    chosen = (
        list(graph.toposorted_asset_keys) if select is None else selected_keys(definitions, select)
    )
    found = [key for key in chosen if graph.get(key).is_partitioned]
    if not found:
        names = ", ".join(
            key.to_user_string()
            for key in graph.toposorted_asset_keys
            if graph.get(key).is_partitioned
        )
        raise InvalidRequest(
            "no asset of the selection has partitions",
            where="select",
            fix=f"name one of: {names}; or leave --partitions out",
            code="invalid_selection",
        )
    return found


def _work(
    instance: dg.DagsterInstance,
    definitions: dg.Definitions,
    key: dg.AssetKey,
    partitions: str,
    *,
    again: bool,
) -> _Work:
    """Return what is to be done of one asset."""
    known = definitions.resolve_asset_graph().get(key).partitions_def
    assert known is not None
    keys = list(known.get_partition_keys(dynamic_partitions_store=instance))
    wanted = partitions_in_range(keys, partitions, key.to_user_string())
    done: set[str] = set() if again else instance.get_materialized_partitions(key)
    missing = tuple(name for name in wanted if name not in done)
    return _Work(key, missing, len(wanted) - len(missing), keys[0], keys[-1])


def partitions_in_range(keys: list[str], partitions: str, asset: str) -> list[str]:
    """Return the keys from the first to the last one named. Of a range of days those that exist
    count.
    """
    first, last = _ends(partitions, keys)
    has = f"{asset} has {keys[0]}{RANGE}{keys[-1]}" if keys else f"{asset} has none yet"
    if first in keys and last in keys:
        start, end = keys.index(first), keys.index(last)
    else:
        # Keys of days are written so that their order is that of their text.
        start, end = bisect_left(keys, first), bisect_right(keys, last) - 1
    backwards = end < start if first in keys and last in keys else last < first
    if backwards:
        raise _refused(
            "the range ends before it begins", f"write the earlier one first: {last}{RANGE}{first}"
        )
    if end < start:
        raise _refused("no finished day lies in the range", f"days end at midnight UTC; {has}")
    if end - start >= MAX_PARTITIONS:
        message = (
            f"{end - start + 1} partitions lie in the range, and one call "
            f"builds at most {MAX_PARTITIONS}"
        )
        raise _refused(
            message,
            f"name a part of it, from {keys[start]} to {keys[start + MAX_PARTITIONS - 1]} first",
        )
    return keys[start : end + 1]


def _ends(partitions: str, keys: list[str]) -> tuple[str, str]:
    """Return the first and the last partition that are named."""
    ends = [part.strip() for part in partitions.split(RANGE)]
    example = keys[-1] if keys else "2026-11-30"
    how = f"write one day, as {example}, or two, as {keys[0] if keys else example}{RANGE}{example}"
    if len(ends) > 2:
        raise _refused(
            f"{len(ends)} partitions are named, and a range has a first and a last one", how
        )
    if not any(ends):
        raise _refused("no partition is named", how)
    if not all(ends):
        raise _refused(f"one end of the range is missing: {_quoted(partitions)}", how)
    for end in ends:
        if end not in keys and not _is_day(end):
            raise _refused(f"{_quoted(end)} is not a day", how)
    return ends[0], ends[-1]


def _is_day(text: str) -> bool:
    try:
        # Python reads other spellings too, whose order is not that of their text.
        return _DAY.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _quoted(text: str) -> str:
    return repr(text if len(text) <= QUOTED_CHARS else f"{text[:QUOTED_CHARS]}…")


def _refused(message: str, fix: str) -> InvalidRequest:
    return InvalidRequest(message, where=PARTITIONS, fix=fix, code="invalid_partitions")


def _run(
    instance: dg.DagsterInstance,
    definitions: dg.Definitions,
    key: dg.AssetKey,
    partition: str,
    teller: BuildProgress,
) -> None:
    """Build one partition."""
    import dagster as dg

    from ctx_pipeline.assets.jobs import KIND_TAG

    name = f"{key.to_user_string()} {partition}"
    teller.started(name)
    job = definitions.resolve_implicit_job_def_def_for_assets([key])
    assert job is not None
    try:
        job.execute_in_process(
            instance=instance,
            asset_selection=[key],
            partition_key=partition,
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            tags={BUILD_TAG: PARTITIONS, KIND_TAG: "backfill"},
        )
    except dg.DagsterExecutionInterruptedError:
        raise KeyboardInterrupt from None
    except dg.Failure as failed:
        raise (
            failed.__cause__ if isinstance(failed.__cause__, CtxError) else _failed(name)
        ) from failed
    except CtxError:
        raise
    except Exception as failed:  # an asset may raise anything
        raise _failed(f"{name}: {type(failed).__name__}") from failed
    teller.finished(name)


def _failed(what: str) -> Unavailable:
    return Unavailable(
        f"the build failed in {what}",
        where=PARTITIONS,
        fix=(
            "open the run in `ctx dev`; it has the whole error. The same "
            "command goes on after what is done"
        ),
        code="build_failed",
    )


__all__ = [
    "MAX_PARTITIONS",
    "BackfillReport",
    "PartitionReport",
    "build_partitions",
    "partitions_in_range",
]
