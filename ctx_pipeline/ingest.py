"""Bring a source's items into the store: only what changed is written, and nothing is lost to a bad file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from ctx_pipeline.contracts import (
    ContextItem,
    FileCode,
    FileError,
    ItemKind,
    Lifecycle,
    LifecycleEvent,
    SourceReport,
)
from ctx_pipeline.errors import Corrupt
from ctx_pipeline.index.catalogue import chain_order, declared_version
from ctx_pipeline.index.overlay import ItemKey, Patch, fold
from ctx_pipeline.index.store import StoredItem
from ctx_pipeline.security.visibility import NEVER, STATE_FORGOTTEN
from ctx_pipeline.text import canonical_json, sha256_hex, short_hash

if TYPE_CHECKING:
    from ctx_pipeline.config import SourceConfig
    from ctx_pipeline.index.store import Store
    from ctx_pipeline.ledger import Ledger, OverlayEntry
    from ctx_pipeline.sources import SourceBatch

ACTOR = "build"

STRICT_VERSIONS = frozenset({ItemKind.METRIC})
"""Kinds whose meaning may not change under one declared version; for others the content hash is appended to it."""

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store holds of one item version, as last written."""

    version: str
    seq: int
    item_hash: str
    content_hash: str


@dataclass(frozen=True, slots=True)
class Changes:
    """What a refresh has to write."""

    new: tuple[ContextItem, ...]
    reused: int
    withdrawn: tuple[ItemKey, ...]
    """Items, or single versions of items, that the source no longer has."""
    restored: tuple[ItemKey, ...]
    errors: tuple[FileError, ...]


def refresh(source: SourceConfig, batch: SourceBatch, store: Store, ledger: Ledger, now: datetime) -> SourceReport:
    """Store what is new in a batch, retire what the source no longer has, and report every file.

    The store's append is the commit point; the overlay and the lifecycle events follow and are repeated safely by the
    next refresh. One writer at a time; readers are never blocked.
    """
    with store.writer():
        changes = plan(source, batch, store, fold(ledger.overlay_since(0)), now)
        rows = _rows(changes.new, ledger, store.max_seq(), now)
        if rows:
            store.append(rows)
        ledger.append_overlay(
            [*_overlay("restored", changes.restored, now), *_overlay("retired", changes.withdrawn, now)]
        )
        ledger.append_events(_events(rows, now))
    return SourceReport(
        name=source.name,
        kind=source.kind.value,
        items=len(batch.items),
        added=len(rows),
        reused=changes.reused,
        retired=len(changes.withdrawn),
        files=batch.files,
        errors=(*batch.errors, *changes.errors),
    )


def plan(
    source: SourceConfig, batch: SourceBatch, store: Store, patches: dict[ItemKey, Patch], now: datetime
) -> Changes:
    """Return what a refresh with this batch would write now. Writes nothing."""
    stored = _stored_versions(store, source.name)
    failed = _failed_items(store, source, batch, stored)
    return plan_changes(source, batch, stored, patches, failed, _facts_reader(store, source.name), now)


def plan_changes(
    source: SourceConfig,
    batch: SourceBatch,
    stored: dict[Key, list[Stored]],
    patches: dict[ItemKey, Patch],
    kept: frozenset[Key],
    facts_of: Callable[[int], str],
    now: datetime,
) -> Changes:
    """Compare a batch with what is stored. Pure.

    `kept` are items that may not be retired now, because the file they came from could not be read. `facts_of` returns
    the `facts_hash` of a stored row by its sequence.
    """
    new: list[ContextItem] = []
    errors: list[FileError] = []
    restored: list[ItemKey] = []
    seen: dict[Key, list[ContextItem]] = {}
    reused = 0
    for item in batch.items:
        tenant = item.scope.tenant or ""
        key = (tenant, item.item_id)
        if _is_forgotten(patches, key, item.version):
            continue
        versions = stored.get(key, [])
        named = _versioned(item, versions)
        if named is None:
            errors.append(_version_reused(item))
            seen.setdefault(key, []).append(item)
            continue
        seen.setdefault(key, []).append(named)
        if _is_stored(named, versions, facts_of):
            reused += 1
        else:
            new.append(named)
        for withdrawn in ((*key, None), (*key, named.version)):
            if _is_retired(patches, withdrawn) and withdrawn not in restored:
                restored.append(withdrawn)
    restored.extend(key for key in _current_again(seen, stored, patches) if key not in restored)
    withdrawn_keys = _withdrawn(stored, seen, patches, kept, now)
    if not batch.items and withdrawn_keys:
        message = "the source has no items any more; nothing was retired. Check its path, or remove it from ctx.toml"
        errors.append(FileError(path=source.path or source.name, code=FileCode.MISSING, message=message))
        withdrawn_keys = []
    return Changes(tuple(new), reused, tuple(withdrawn_keys), tuple(restored), tuple(errors))


def _stored_versions(store: Store, source: str) -> dict[Key, list[Stored]]:
    """Return every version the store holds of a source's items, each as last written, oldest first."""
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


def _failed_items(
    store: Store, source: SourceConfig, batch: SourceBatch, stored: dict[Key, list[Stored]]
) -> frozenset[Key]:
    """Return the stored items that came from files with errors: they may be there still."""
    failed = {error.path for error in batch.errors}
    if not failed:
        return frozenset()
    if any(error.path in (source.path, source.name) for error in batch.errors):
        return frozenset(stored)
    present = {(item.scope.tenant or "", item.item_id) for item in batch.items}
    kept: set[Key] = set()
    for key, versions in stored.items():
        if key not in present:
            row = store.read(*key, versions[-1].version)
            if row is not None and row.item().provenance.locator.path in failed:
                kept.add(key)
    return frozenset(kept)


def _versioned(item: ContextItem, versions: Sequence[Stored]) -> ContextItem | None:
    """Return the item under a version that is its own; None when that would change a meaning under one version."""
    same = next((entry for entry in versions if entry.version == item.version), None)
    if same is None or same.content_hash == item.content_hash:
        return item
    if item.kind in STRICT_VERSIONS:
        return None
    return item.model_copy(update={"version": f"{item.version}+{item.content_hash[:8]}"})


def _is_stored(item: ContextItem, versions: Sequence[Stored], facts_of: Callable[[int], str]) -> bool:
    """A declared version is stored once; one that is a content hash counts only as the newest.

    A declared version whose content went to another one and back is stored again, so that it is the newest.
    """
    if all(declared_version(entry.version) is not None for entry in versions):
        declared = item.version.partition("+")[0]
        versions = [entry for entry in versions if entry.version.partition("+")[0] == declared]
    if not versions or versions[-1].version != item.version:
        return False
    last = versions[-1]
    if last.item_hash == sha256_hex(canonical_json(item.model_dump(mode="json"))):
        return True
    return last.content_hash == item.content_hash and facts_of(last.seq) == facts_hash(item)


def facts_hash(item: ContextItem) -> str:
    """Return a hash of everything about an item but the version of its file: an edit elsewhere does not change it."""
    facts = item.model_dump(mode="json")
    facts["provenance"]["source_version"] = None
    return sha256_hex(canonical_json(facts))


def _facts_reader(store: Store, source: str) -> Callable[[int], str]:
    """Return what reads the rows of a source when it is first asked."""
    known: dict[int, str] = {}

    def facts_of(seq: int) -> str:
        if not known:
            table = store.scan()
            names = ("source", "seq", "item_json")
            for name, number, text in zip(*(table.column(n).to_pylist() for n in names), strict=True):
                if name == source:
                    known[number] = facts_hash(ContextItem.model_validate_json(text))
        return known.get(seq, "")

    return facts_of


def _withdrawn(
    stored: dict[Key, list[Stored]],
    seen: dict[Key, list[ContextItem]],
    patches: dict[ItemKey, Patch],
    kept: frozenset[Key],
    now: datetime,
) -> list[ItemKey]:
    withdrawn: list[ItemKey] = []
    for key, versions in stored.items():
        if key in seen:
            # Restoring the item restores all its versions, so what was withdrawn before is withdrawn anew.
            known = {} if _is_retired(patches, (*key, None)) else patches
            withdrawn.extend(_taken_back(key, versions, seen[key], known, now))
        elif key not in kept and not _is_retired(patches, (*key, None)):
            withdrawn.append((*key, None))
    return withdrawn


def _taken_back(
    key: Key, versions: Sequence[Stored], present: Sequence[ContextItem], patches: dict[ItemKey, Patch], now: datetime
) -> list[ItemKey]:
    """Return declared versions that the source dropped although none that it has, and that has begun, follows them.

    Where all that it has is still to begin, the version before stays until then.
    """
    stored = {entry.version: declared_version(entry.version) for entry in versions}
    begun = [declared_version(item.version) for item in present if item.valid_from is None or item.valid_from <= now]
    every = [declared_version(item.version) for item in present]
    if any(number is None for number in (*stored.values(), *every)):
        return []
    has = {item.version for item in present}
    return [
        (*key, version)
        for version, number in stored.items()
        if version not in has
        and not any(other is not None and number is not None and other >= number for other in begun or every)
        and not _is_retired(patches, (*key, version))
    ]


def _current_again(
    seen: dict[Key, list[ContextItem]], stored: dict[Key, list[Stored]], patches: dict[ItemKey, Patch]
) -> list[ItemKey]:
    """Return versions that the overlay counts as replaced by later ones that the source does not have any more."""
    found: list[ItemKey] = []
    for key, items in seen.items():
        version = items[chain_order([(item, at) for at, item in enumerate(items)])[-1]].version
        patch = patches.get((*key, version))
        if patch is not None and patch.superseded_at is not None:
            numbers = {entry.version: entry.seq for entry in stored.get(key, ())}
            if any(number > numbers.get(version, 0) for number in numbers.values()):
                found.append((*key, version))
    return found


def _is_retired(patches: dict[ItemKey, Patch], key: ItemKey) -> bool:
    patch = patches.get(key)
    return patch is not None and patch.retired_at is not None and patch.retired_at < NEVER


def _is_forgotten(patches: dict[ItemKey, Patch], key: Key, version: str) -> bool:
    marks = (patches.get((*key, None)), patches.get((*key, version)))
    return any(patch is not None and patch.state == STATE_FORGOTTEN for patch in marks)


def _version_reused(item: ContextItem) -> FileError:
    where = item.provenance.locator
    return FileError(
        path=where.path or item.provenance.source_id,
        line=where.line_start,
        code=FileCode.VERSION_REUSED,
        message=f"{item.item_id} changed under version {item.version}; raise the version. The stored definition stays",
    )


def _rows(items: Sequence[ContextItem], ledger: Ledger, last: int, now: datetime) -> list[StoredItem]:
    if not items:
        return []
    ordered = _in_chain_order(items)
    first = ledger.reserve(len(ordered))
    if first <= last:
        raise Corrupt(
            f"the ledger is older than the item store: it gives number {first}, the store already has {last}",
            where=".ctx/state",
            fix="restore .ctx/state from a backup as a whole; ledger and store belong together",
            code="ledger_behind",
        )
    return [StoredItem.from_item(item, seq=first + at, recorded_at=now) for at, item in enumerate(ordered)]


def _in_chain_order(items: Sequence[ContextItem]) -> list[ContextItem]:
    """Several versions of one item in one batch get their sequence in version order."""
    groups: dict[Key, list[ContextItem]] = {}
    for item in items:
        groups.setdefault((item.scope.tenant or "", item.item_id), []).append(item)
    return [group[at] for group in groups.values() for at in chain_order([(item, at) for at, item in enumerate(group)])]


def _overlay(code: str, keys: Iterable[ItemKey], now: datetime) -> list[OverlayEntry]:
    from ctx_pipeline.ledger import OverlayEntry

    reason = {"retired": "the source no longer has it", "restored": "the source has it again"}[code]
    return [
        OverlayEntry(
            code="retired" if code == "retired" else "restored",
            tenant=tenant,
            item_id=item_id,
            version=version,
            effective_at=now,
            recorded_at=now,
            actor=ACTOR,
            reason=reason,
        )
        for tenant, item_id, version in keys
    ]


def _events(rows: Sequence[StoredItem], now: datetime) -> list[LifecycleEvent]:
    return [
        LifecycleEvent(
            tenant=row.tenant,
            item_id=row.item_id,
            version=row.version,
            from_state=None,
            to_state=Lifecycle.CREATED,
            reason=f"read from source {row.source}",
            at=now,
            actor=ACTOR,
            sequence=row.seq,
        )
        for row in rows
    ]


def fingerprint(batch: SourceBatch) -> str:
    """Return a hash of what a source holds, whatever the order."""
    return short_hash("\n".join(sorted(f"{i.item_id}@{i.version}:{i.content_hash}" for i in batch.items)), 16)
