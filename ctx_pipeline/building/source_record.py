"""What is known of a source before it is read: what it said before, and what has happened to that
since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctx_pipeline.index.overlay import ItemKey, Patch, fold
from ctx_pipeline.ledger.retirements import (
    held_by_builds,
    held_by_people,
)
from ctx_pipeline.security.visibility import NEVER, STATE_FORGOTTEN

if TYPE_CHECKING:
    from ctx_pipeline.index.store import Store
    from ctx_pipeline.ledger import Ledger, OverlayEntry

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store holds of one item version, as last written."""

    version: str
    seq: int
    item_hash: str
    content_hash: str


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a source before it is read: its stored versions, and what has happened to
    them since.
    """

    stored: dict[Key, list[Stored]]
    patches: dict[ItemKey, Patch]
    held: dict[ItemKey, OverlayEntry]
    """What people have retired: a source that has it does not bring it back."""
    gone: frozenset[ItemKey]
    """What earlier readings found missing."""
    at: tuple[int, int]
    """Up to which numbers of the store and of the overlay this counts."""

    def live(self) -> set[Key]:
        """Return the items that are neither retired nor forgotten."""
        return {
            key
            for key in self.stored
            if not is_retired(self.patches, (*key, None))
            and not is_forgotten(self.patches, key, "")
        }

    def versions(self) -> dict[Key, list[str]]:
        """Return the stored versions of each item."""
        return {key: [entry.version for entry in entries] for key, entries in self.stored.items()}


def read_record(source: str, store: Store, ledger: Ledger | None) -> Record:
    """Return what is known of a source, one that `ctx.toml` no longer names too; `ledger` None:
    there is none yet.
    """
    at = (store.max_seq(), 0 if ledger is None else ledger.overlay_sequence())
    entries = () if ledger is None else ledger.overlay_since(0)
    return Record(
        _stored_versions(store, source),
        fold(entries),
        held_by_people(entries),
        frozenset(held_by_builds(entries)),
        at,
    )


def _stored_versions(store: Store, source: str) -> dict[Key, list[Stored]]:
    """Return every version the store holds of a source's items, each as last
    written, oldest first.
    """
    import pyarrow.compute as pc

    table = store.scan_keys()
    table = table.filter(pc.equal(table.column("source"), source))
    names = ("tenant", "item_id", "version", "seq", "item_hash", "content_hash")
    latest: dict[tuple[str, str, str], Stored] = {}
    for tenant, item_id, version, seq, item_hash, content_hash in zip(
        *(table.column(name).to_pylist() for name in names), strict=True
    ):
        known = latest.get((tenant, item_id, version))
        if known is None or known.seq < seq:
            latest[(tenant, item_id, version)] = Stored(version, seq, item_hash, content_hash)
    versions: dict[Key, list[Stored]] = {}
    for (tenant, item_id, _), entry in sorted(latest.items(), key=lambda pair: pair[1].seq):
        versions.setdefault((tenant, item_id), []).append(entry)
    return versions


def is_retired(patches: dict[ItemKey, Patch], key: ItemKey) -> bool:
    """Return whether an item, or one version of it, is retired and not restored."""
    patch = patches.get(key)
    return patch is not None and patch.retired_at is not None and patch.retired_at < NEVER


def is_forgotten(patches: dict[ItemKey, Patch], key: Key, version: str) -> bool:
    """Return whether an item or this version of it was forgotten."""
    marks = (patches.get((*key, None)), patches.get((*key, version)))
    return any(patch is not None and patch.state == STATE_FORGOTTEN for patch in marks)
