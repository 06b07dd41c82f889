"""The artifacts that are kept, and going back to one of them: the pointer moves, and stays until it
is let go.

A pin lies in the pointer itself, so that both change in one step. Builds go on and note what they
made; the overlay after the pinned artifact still counts, and what has been closed since is not
opened again: a pin ends with the build that finds such a thing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ctx_pipeline.contracts import ContextItem, IndexPin
from ctx_pipeline.errors import Conflict, Corrupt, InvalidRequest, NotFound
from ctx_pipeline.index.artifact import (
    FORMAT_VERSION,
    Generation,
    Layout,
    move_pointer,
    pointer_lock,
    read_pointer,
    read_table,
    wrong_parts,
)
from ctx_pipeline.index.facts import scope_label
from ctx_pipeline.index.labels import labels_of
from ctx_pipeline.security.visibility import is_within

if TYPE_CHECKING:
    from ctx_pipeline.index.store import Store

MIN_PREFIX = 4
"""Least characters of an artifact's hash that name it."""


@dataclass(frozen=True, slots=True)
class KeptArtifact:
    """One artifact on disk."""

    artifact: str
    """Content hash."""
    built_at: datetime
    """When a build last made it."""
    store_sequence: int
    overlay_sequence: int
    rows: int
    embedder: str
    bytes: int
    current: bool
    pinned: bool


@dataclass(frozen=True, slots=True)
class IndexChange:
    """What moving the pointer did."""

    action: Literal["rolled_back", "unpinned"]
    before: str
    """Content hash that was served."""
    now: str
    pin: IndexPin | None


def kept_artifacts(layout: Layout) -> tuple[KeptArtifact, ...]:
    """Return the complete artifacts on disk, the one that was built last first."""
    pointer = read_pointer(layout)
    current = None if pointer is None else pointer["artifact"]
    pinned = pointer is not None and "pin" in pointer
    found = [
        KeptArtifact(
            artifact=manifest["content_hash"],
            built_at=datetime.fromtimestamp(directory.stat().st_mtime, UTC),
            store_sequence=manifest["generation"]["store_sequence"],
            overlay_sequence=manifest["generation"]["overlay_sequence"],
            rows=manifest["rows"],
            embedder=manifest["embedder"],
            bytes=sum(file.stat().st_size for file in directory.rglob("*") if file.is_file()),
            current=directory.name == current,
            pinned=directory.name == current and pinned,
        )
        for directory, manifest in _manifests(layout)
    ]
    return tuple(found)


def index_pin(layout: Layout) -> IndexPin | None:
    """Return what holds the pointer; None when builds move it."""
    return _pin(read_pointer(layout))


def pin_today(layout: Layout, store: Store, at: datetime) -> IndexPin | None:
    """Return what holds the pointer, and how many items in it have been closed
    to somebody since.
    """
    pointer = read_pointer(layout)
    pin = _pin(pointer)
    if pin is None or pointer is None:
        return None
    directory = layout.artifacts / pointer["artifact"]
    if not directory.is_dir():
        return pin
    closed = closed_since(directory, store, at)
    return pin.model_copy(update={"closed": closed})


def _pin(pointer: dict[str, Any] | None) -> IndexPin | None:
    if pointer is None or "pin" not in pointer:
        return None
    latest = pointer["pin"].get("latest")
    waiting = (
        None
        if latest is None or latest["artifact"] == pointer["artifact"]
        else latest["content_hash"]
    )
    return IndexPin(
        artifact=pointer["content_hash"],
        since=datetime.fromisoformat(pointer["pin"]["since"]),
        reason=pointer["pin"]["reason"],
        waiting=waiting,
    )


def published_generation(layout: Layout) -> Generation | None:
    """Return what the published artifact is made from; None when nothing is published."""
    pointer = read_pointer(layout)
    return None if pointer is None else Generation(**pointer["generation"])


def built_generation(layout: Layout) -> Generation | None:
    """Return what the newest build was made from: the one that is served, unless the index is
    pinned.
    """
    pointer = read_pointer(layout)
    if pointer is None:
        return None
    latest = pointer["pin"].get("latest") if "pin" in pointer else None
    return Generation(**(pointer if latest is None else latest)["generation"])


def roll_back(
    layout: Layout,
    today: Generation,
    store: Store,
    *,
    at: datetime,
    artifact: str | None = None,
    reason: str = "",
) -> IndexChange:
    """Serve a kept artifact, by default the one built before the current one, until `unpin`.

    `artifact` is its content hash or the beginning of it; the current one may be named, to hold it.
    `today` is what a build started now would be made from.

    Raises:
        NotFound: nothing is kept under that name (`no_artifact`). InvalidRequest: several are
        (`ambiguous_artifact`). Conflict: it was built under other settings or with another embedder
        (`other_settings`), or it shows what has
            been closed since (`rights_changed`); rights never rewind.
        Corrupt: it is not what was written. In each case nothing has changed.
    """
    with pointer_lock(layout):
        pointer = read_pointer(layout)
        if pointer is None:
            raise _no_artifact("nothing has been built yet")
        directory, manifest = _chosen(layout, pointer["artifact"], artifact)
        _check_whole(directory, manifest)
        # Equal content may have been built again under settings that its manifest does not know.
        again = directory.name == pointer["artifact"]
        _check_settings(manifest, pointer["generation"] if again else manifest["generation"], today)
        closed = closed_since(directory, store, at)
        if closed:
            raise Conflict(
                f"{closed} items are closed today to some who could see them in that artifact",
                where=f"artifact {manifest['content_hash'][:16]}",
                fix="choose a newer artifact, or correct the sources and run `ctx build`",
                code="rights_changed",
            )
        latest = pointer["pin"].get("latest") if "pin" in pointer else None
        built = {key: pointer[key] for key in ("artifact", "content_hash", "generation")}
        moved = {
            "artifact": directory.name,
            "content_hash": manifest["content_hash"],
            "generation": manifest["generation"],
            "pin": {
                "since": at.astimezone(UTC).isoformat(),
                "reason": reason.strip() or "rolled back",
                "latest": latest or built,
            },
        }
        move_pointer(layout, moved)
    return IndexChange(
        "rolled_back", pointer["content_hash"], manifest["content_hash"], _pin(moved)
    )


def unpin(layout: Layout) -> IndexChange:
    """Let builds move the pointer again, and serve the newest artifact that was built meanwhile.

    Raises:
        InvalidRequest: the index is not pinned (`not_pinned`).
    """
    with pointer_lock(layout):
        pointer = read_pointer(layout)
        if pointer is None or "pin" not in pointer:
            raise InvalidRequest(
                "the index is not pinned",
                where="ctx index",
                fix="see `ctx index list`",
                code="not_pinned",
            )
        latest = pointer["pin"].get("latest")
        moved = (
            latest
            if latest is not None and _is_whole(layout.artifacts / latest["artifact"])
            else pointer
        )
        move_pointer(
            layout, {key: moved[key] for key in ("artifact", "content_hash", "generation")}
        )
    return IndexChange("unpinned", pointer["content_hash"], moved["content_hash"], None)


def end_outdated_pin(layout: Layout, built: Generation, store: Store, at: datetime) -> str | None:
    """Let go of the index when the pinned artifact shows more than is allowed today; return why,
    None when it stays.

    `built` is what the newest artifact, which is served then, was made from.
    """
    pointer = read_pointer(layout)
    pin = pin_today(layout, store, at)
    if pin is None or pointer is None:
        return None
    if pin.closed:
        why = f"{pin.closed} items in the pinned artifact have been closed to some since"
    elif Generation(**pointer["generation"]).settings != built.settings:
        why = "the settings or grants have changed since the pinned artifact was built"
    else:
        return None
    unpin(layout)
    return why


def closed_since(directory: Path, store: Store, at: datetime) -> int:
    """Return how many items of an artifact were recorded anew since, for fewer people than it shows
    them to.
    """
    manifest = _manifest(directory)
    names = read_table(directory / "discovered.arrow").select(["tenant", "item_id"])
    filtered = read_table(directory / "filtered.arrow")
    labels = labels_of(filtered)
    keys = zip(names.column("tenant").to_pylist(), names.column("item_id").to_pylist(), strict=True)
    # The last row of an item is its newest version; older ones show to nobody who may not see it.
    old: dict[tuple[str, str], int] = dict(
        zip(keys, filtered.column("scope").to_pylist(), strict=True)
    )
    count = 0
    for key, item in _recorded_since(
        store, int(manifest["generation"]["store_sequence"]), at
    ).items():
        if key in old and not is_within(labels[old[key]], scope_label(item)):
            count += 1
    return count


def _recorded_since(
    store: Store, sequence: int, at: datetime
) -> dict[tuple[str, str], ContextItem]:
    """Return each item that was recorded after a sequence and has begun, as last recorded."""
    import pyarrow.compute as pc

    if store.max_seq() <= sequence:
        return {}
    table = store.scan()
    table = table.filter(pc.greater(table.column("seq"), sequence))
    found: dict[tuple[str, str], ContextItem] = {}
    for tenant, text in zip(
        table.column("tenant").to_pylist(), table.column("item_json").to_pylist(), strict=True
    ):
        item = ContextItem.model_validate_json(text)
        if item.valid_from is None or item.valid_from <= at:
            found[(tenant, item.item_id)] = item
    return found


def _chosen(layout: Layout, current: str, named: str | None) -> tuple[Path, dict[str, Any]]:
    kept = list(_manifests(layout))
    if named is None:
        places = [place for place, (directory, _) in enumerate(kept) if directory.name == current]
        before = kept[places[0] + 1 :] if places else kept
        if not before:
            raise _no_artifact("no artifact is older than the current one")
        return before[0]
    fitting = [
        entry
        for entry in kept
        if len(named) >= MIN_PREFIX and entry[1]["content_hash"].startswith(named)
    ]
    if not fitting:
        raise _no_artifact(f"no kept artifact begins with {named[:64]!r}")
    if len(fitting) > 1:
        raise InvalidRequest(
            f"{len(fitting)} artifacts begin with {named[:64]!r}",
            where="ARTIFACT",
            fix="give more of the hash",
            code="ambiguous_artifact",
        )
    return fitting[0]


def _no_artifact(message: str) -> NotFound:
    return NotFound(
        message, where=".ctx/derived/artifacts", fix="see `ctx index list`", code="no_artifact"
    )


def _check_whole(directory: Path, manifest: dict[str, Any]) -> None:
    for problem in wrong_parts(directory, manifest):
        where = f"artifact {manifest['content_hash'][:16]}"
        raise Corrupt(problem, where=where, fix="choose another artifact")


def _check_settings(
    manifest: dict[str, Any], generation: dict[str, Any], today: Generation
) -> None:
    then = Generation(**generation)
    if (
        manifest["format"] == FORMAT_VERSION
        and then.settings == today.settings
        and then.embedder == today.embedder
    ):
        return
    raise Conflict(
        "that artifact was built under other settings or grants, with another embedder, or in "
        "another format",
        where=f"artifact {manifest['content_hash'][:16]}",
        fix=(
            "restore the ctx.toml of its day, or choose an artifact that "
            "was built since; rights never rewind"
        ),
        code="other_settings",
    )


def _manifests(layout: Layout) -> list[tuple[Path, dict[str, Any]]]:
    """Return complete artifact directories and their manifests, the one that
    was built last first.
    """
    if not layout.artifacts.is_dir():
        return []
    found: list[tuple[int, Path, dict[str, Any]]] = []
    for directory in layout.artifacts.iterdir():
        if directory.name.startswith("."):
            continue
        try:
            found.append((directory.stat().st_mtime_ns, directory, _manifest(directory)))
        except (Corrupt, OSError):
            # What a killed build left, or retention has just removed.
            continue
    return [
        (directory, manifest)
        for _, directory, manifest in sorted(found, key=lambda each: each[0], reverse=True)
    ]


def _manifest(directory: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(
            (directory / "manifest.json").read_text(encoding="utf-8")
        )
        Generation(**manifest["generation"])
        str(manifest["content_hash"] + manifest["embedder"])
        dict(manifest["parts"])
        int(manifest["rows"] + manifest["format"])
    except (OSError, ValueError, TypeError, KeyError) as cause:
        raise Corrupt(
            "the manifest of an artifact is not readable", where=directory.name, fix="ctx build"
        ) from cause
    return manifest


def _is_whole(directory: Path) -> bool:
    try:
        return not list(wrong_parts(directory, _manifest(directory)))
    except Corrupt:
        return False
