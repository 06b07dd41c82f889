"""What a project needs now and then: merge the store's fragments, drop what nothing reads, forget
old snapshots.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ctx_pipeline.errors import Corrupt, Unavailable
from ctx_pipeline.index.artifact import Layout, old_artifacts, prune_artifacts, read_pointer
from ctx_pipeline.index.store import MAX_FRAGMENTS

if TYPE_CHECKING:
    from ctx_pipeline.workspace import Workspace

LEFTOVER_AGE = timedelta(hours=1)
"""A temporary file that nobody has written to for so long is one of a process that was killed."""
PRUNED_SNAPSHOTS = 1_000
"""Snapshots deleted by one call; writers wait meanwhile, well under a second."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What was done under the build lock."""

    optimized: bool
    """The store's fragments were merged."""
    fragments: int
    """Fragments of its most fragmented table before."""
    artifacts: int
    """Artifacts removed."""
    leftovers: int
    """Temporary files and folders of dead processes removed."""
    problem: str = ""
    """Code of what keeps the published artifact from being known; then no artifact and no leftover
    was touched.
    """


def untidy(workspace: Workspace) -> tuple[str, ...]:
    """Return in words what `tidy` would mend; writes nothing, and needs no lock."""
    fragments, layout = workspace.store.fragments(), workspace.layout
    try:
        artifacts = old_artifacts(layout, workspace.config.artifact.keep)
        dead = len(leftovers(layout, workspace.clock()))
    except (Corrupt, Unavailable):
        # What is published cannot be read, so nobody knows what it needs.
        artifacts = dead = 0
    counted = {
        f"{fragments} fragments of the store": fragments > MAX_FRAGMENTS,
        f"{artifacts} old artifacts": artifacts > 0,
        f"{dead} leftovers of dead builds": dead > 0,
    }
    return tuple(words for words, is_due in counted.items() if is_due)


def tidy(workspace: Workspace) -> Upkeep:
    """Merge a fragmented store, remove old artifacts and what dead builds left. Call it holding the
    build lock.

    Raises:
        Unavailable: the store has another writer, or the disk is full.
    """
    fragments = workspace.store.fragments()
    if fragments > MAX_FRAGMENTS:
        workspace.store.optimize()
    merged = fragments > MAX_FRAGMENTS
    try:
        removed = remove_leftovers(workspace.layout, workspace.clock())
        artifacts = prune_artifacts(workspace.layout, workspace.config.artifact.keep)
    except (Corrupt, Unavailable) as unknown:
        return Upkeep(merged, fragments, 0, 0, unknown.stable_code)
    return Upkeep(merged, fragments, artifacts, removed)


def leftovers(layout: Layout, now: datetime) -> list[Path]:
    """Return what builds left behind that ended before they were done.

    The staging folder of the newest unpublished build stays: the next build goes on from it.
    """
    pointer = read_pointer(layout)
    keep = {layout.pointer.name, "" if pointer is None else pointer["artifact"]}
    before = (now - LEFTOVER_AGE).timestamp()
    dead = [
        path
        for path in _children(layout.artifacts)
        if path.name.startswith(".") and path.name not in keep
    ]
    dead += [
        path
        for folder in (layout.derived, layout.derived / "exposure")
        for path in folder.glob("*.tmp")
    ]
    stagings = sorted(
        _children(layout.derived / "staging"), key=lambda path: path.stat().st_mtime_ns
    )
    dead += stagings[:-1]
    dead += [path for staging in stagings[-1:] for path in staging.glob("*.tmp")]
    return [path for path in dead if path.stat().st_mtime < before]


def remove_leftovers(layout: Layout, now: datetime) -> int:
    """Remove the leftovers of dead builds; return how many. Needs the build lock."""
    old = leftovers(layout, now)
    for path in old:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return len(old)


def forget_snapshots(workspace: Workspace, *, limit: int = PRUNED_SNAPSHOTS) -> int:
    """Delete snapshots past `[retention] snapshots`, at most `limit`; return how many. 0 where no
    age is set.
    """
    age = workspace.config.retention.snapshots
    return (
        0 if age is None else workspace.ledger.prune_snapshots(workspace.clock() - age, limit=limit)
    )


def _children(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
