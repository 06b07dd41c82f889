"""Bring a source's items into the store: only what changed is written, and nothing is lost to a bad file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from ctx_pipeline.building.numbering import created_events, finish_log, numbered_rows
from ctx_pipeline.config.settings import mask_url
from ctx_pipeline.contracts import (
    LOADED_ALL_THE_SAME,
    ContextItem,
    FileCode,
    FileError,
    ItemKind,
    Lifecycle,
    SourceReport,
)
from ctx_pipeline.index.facts import start_of
from ctx_pipeline.index.overlay import ItemKey, Patch, fold
from ctx_pipeline.index.rows import chain_order, declared_version
from ctx_pipeline.ledger.retirements import BUILD as ACTOR
from ctx_pipeline.ledger.retirements import (
    entries_of,
    held_by_builds,
    held_by_people,
    said_again,
    steps,
)
from ctx_pipeline.security.visibility import NEVER, STATE_FORGOTTEN, from_micros, micros
from ctx_pipeline.sources.units import KnownItem
from ctx_pipeline.text import canonical_json, sha256_hex, short_hash

if TYPE_CHECKING:
    from ctx_pipeline.config.settings import SourceConfig
    from ctx_pipeline.index.store import Store, StoredItem
    from ctx_pipeline.ledger import Ledger, OverlayEntry
    from ctx_pipeline.sources import SourceReading

STRICT_VERSIONS = frozenset({ItemKind.METRIC})
"""Kinds whose meaning may not change under one declared version; for others the content hash is appended to it."""

Key = tuple[str, str]


class Said(NamedTuple):
    """A version that a source has."""

    version: str
    valid_from: int
    """Microseconds; `ALWAYS` for none."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store holds of one item version, as last written."""

    version: str
    seq: int
    item_hash: str
    content_hash: str


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a source before it is read: its stored versions, and what has happened to them since."""

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
            if not _is_retired(self.patches, (*key, None))
            and not _is_forgotten(self.patches, key, "")
        }

    def versions(self) -> dict[Key, list[str]]:
        """Return the stored versions of each item."""
        return {key: [entry.version for entry in entries] for key, entries in self.stored.items()}


@dataclass(frozen=True, slots=True)
class Changes:
    """What a refresh has to write."""

    new: tuple[ContextItem, ...]
    reused: int
    withdrawn: tuple[ItemKey, ...]
    """Items, or single versions of items, that the source no longer has."""
    restored: tuple[ItemKey, ...]
    overtaken: tuple[tuple[ItemKey, datetime], ...]
    """Versions that come back with their item although a later one counts, and from when it does."""
    errors: tuple[FileError, ...]
    withheld: tuple[ItemKey, ...] = ()
    """What the source seems to have lost, and is served until a person confirms it."""
    unconfirmed: frozenset[Key] = frozenset()
    """Live items that this reading did not see, or did not accept, and that stay."""


def refresh(
    source: SourceConfig,
    batch: SourceReading,
    store: Store,
    ledger: Ledger,
    now: datetime,
    *,
    confirmed_by: str | None = None,
    record: Record | None = None,
    ceiling: Callable[[ContextItem], ContextItem] | None = None,
    remember: Callable[[Mapping[bytes, tuple[KnownItem, ...]]], None] | None = None,
) -> SourceReport:
    """Store what is new in a batch, retire what the source no longer has, and report every file.

    A source that lost more than it plausibly would (`max_shrink`), or could not be read at all, retires nothing until
    `confirmed_by` names the person who says that it is right. The store's append is the commit point; the overlay and
    the lifecycle events follow and are repeated safely by the next refresh. One writer at a time; readers are never
    blocked. `record` is what was known before the source was read; `remember` is told what each unit of it says,
    as it is stored now. `ceiling`, for a source whose grants have changed, narrows what stays without having been read
    under the new ones.
    """
    with store.writer():
        finish_log(store, ledger)
        if record is None or record.at != (store.max_seq(), ledger.overlay_sequence()):
            record = read_record(source.name, store, ledger)
        changes = plan_refresh(
            source, batch, record, store, now, confirmed=confirmed_by is not None
        )
        closed = [] if ceiling is None else _narrowed(changes.unconfirmed, record, store, ceiling)
        rows = numbered_rows([*changes.new, *closed], ledger, store.max_seq(), now)
        if rows:
            store.append(rows)
        ledger.append_events(created_events(rows))
        apply_changes(
            record,
            changes.withdrawn,
            changes.restored,
            ledger,
            now,
            overtaken=changes.overtaken,
            confirmed_by=confirmed_by,
        )
        if remember is not None:
            remember(_known_units(batch, record, rows))
    return SourceReport(
        name=source.name,
        kind=source.kind.value,
        items=batch.count,
        added=len(changes.new),
        reused=changes.reused,
        retired=len(changes.withdrawn),
        withheld=len(changes.withheld),
        files=batch.files,
        errors=(*batch.errors, *changes.errors),
    )


def _narrowed(
    keys: Iterable[Key], record: Record, store: Store, ceiling: Callable[[ContextItem], ContextItem]
) -> list[ContextItem]:
    """Return the stored versions of some items that the ceiling changes, as it leaves them."""
    stored = [
        entry.seq
        for key in keys
        for entry in record.stored[key]
        if not _is_retired(record.patches, (*key, entry.version))
    ]
    items = store.read_seqs(stored)
    closed = ((item, ceiling(item)) for _, item in sorted(items.items()))
    return [narrow for item, narrow in closed if narrow != item]


def read_record(source: str, store: Store, ledger: Ledger | None) -> Record:
    """Return what is known of a source, one that `ctx.toml` no longer names too; `ledger` None: there is none yet."""
    at = (store.max_seq(), 0 if ledger is None else ledger.overlay_sequence())
    entries = () if ledger is None else ledger.overlay_since(0)
    return Record(
        _stored_versions(store, source),
        fold(entries),
        held_by_people(entries),
        frozenset(held_by_builds(entries)),
        at,
    )


def plan_refresh(
    source: SourceConfig,
    batch: SourceReading,
    record: Record,
    store: Store,
    now: datetime,
    *,
    confirmed: bool = False,
) -> Changes:
    """Return what a refresh would write; it writes nothing."""
    failed = _failed_items(store, source, batch, record.stored)
    facts_of = _facts_reader(store, batch, record.stored)
    return plan_changes(source, batch, record, failed, facts_of, now, confirmed=confirmed)


def apply_changes(
    record: Record,
    withdrawn: Sequence[ItemKey],
    restored: Sequence[ItemKey],
    ledger: Ledger,
    now: datetime,
    *,
    overtaken: Sequence[tuple[ItemKey, datetime]] = (),
    confirmed_by: str | None = None,
) -> None:
    """Tell the ledger what a source no longer has and what it has again; every reader sees it from here on.

    What an item that is there again had been before stays hidden until its new version is built: it is said to be
    superseded in the same step.
    """
    gone, back = "the source no longer has it", "the source has it again"
    if confirmed_by is not None:
        gone = f"{gone}; confirmed by {confirmed_by}"
    ledger.append_overlay(
        [
            *entries_of("restored", restored, actor=ACTOR, reason=back, now=now),
            *said_again(restored, record.held),
            *_superseded(overtaken, now),
            *entries_of("retired", withdrawn, actor=ACTOR, reason=gone, now=now),
        ]
    )
    versions = record.versions()
    out = {*withdrawn, *record.held}
    returned = [
        (*key, version)
        for key in dict.fromkeys(key[:2] for key in restored)
        for version in versions.get(key, ())
        if (*key, version) not in out
    ]
    who = confirmed_by or ACTOR
    ledger.append_events(
        [
            *steps(
                ledger, returned, versions, Lifecycle.RESTORED, actor=ACTOR, reason=back, now=now
            ),
            *steps(ledger, withdrawn, versions, Lifecycle.RETIRED, actor=who, reason=gone, now=now),
        ]
    )


def plan_changes(
    source: SourceConfig,
    batch: SourceReading,
    record: Record,
    kept: frozenset[Key],
    facts_of: Callable[[int], str],
    now: datetime,
    *,
    confirmed: bool = False,
) -> Changes:
    """Compare a batch with what is stored. Pure.

    `kept` are items that may not be retired now, because the file they came from could not be read. `facts_of` returns
    the `facts_hash` of a stored row by its sequence. `confirmed`: what seems lost is lost.
    """
    new: list[ContextItem] = []
    errors: list[FileError] = []
    restored: list[ItemKey] = []
    seen: dict[Key, list[Said]] = {}
    refused: set[Key] = set()
    for known in batch.kept:
        if not _is_forgotten(record.patches, known.key, known.version):
            seen.setdefault(known.key, []).append(Said(known.version, known.valid_from))
            restored.extend(_back_again(record, known.key, known.version, restored))
    reused = len(batch.kept)
    for item in batch.items:
        key = (item.scope.tenant or "", item.item_id)
        if _is_forgotten(record.patches, key, item.version):
            continue
        versions = record.stored.get(key, [])
        named = _versioned(item, versions)
        seen.setdefault(key, []).append(Said((named or item).version, start_of(item)))
        if named is None:
            errors.append(_version_reused(item))
            refused.add(key)
            continue
        if _is_stored(named, versions, facts_of):
            reused += 1
        else:
            new.append(named)
        restored.extend(_back_again(record, key, named.version, restored))
    restored.extend(key for key in _current_again(seen, record) if key not in restored)
    unread = not batch.count and bool(batch.errors)
    withdrawn = _withdrawn(record, seen, frozenset() if unread else kept, now)
    withheld: tuple[ItemKey, ...] = ()
    if not confirmed and (lost := _suspicious_loss(source, batch, record, withdrawn)):
        again = [
            key
            for key in withdrawn
            if key[2] is not None and _is_retired(record.patches, (*key[:2], None))
        ]
        withheld = tuple(key for key in withdrawn if key not in again)
        errors.append(_source_shrank(source, *lost, withheld=len(withheld)))
        # A version that was withdrawn before its item went is not lost with this reading.
        withdrawn = again
    unconfirmed = (
        record.live() - seen.keys() - {key[:2] for key in withdrawn if key[2] is None}
    ) | refused
    overtaken = tuple(_overtaken(restored, withdrawn, seen, record, now))
    outcome = (tuple(withdrawn), tuple(restored), overtaken, tuple(errors))
    return Changes(tuple(new), reused, *outcome, withheld, frozenset(unconfirmed))


def _back_again(
    record: Record, key: Key, version: str, known: Sequence[ItemKey]
) -> Iterator[ItemKey]:
    """Yield what the source has again: the item, or this version of it, unless a person has retired it."""
    if (*key, None) in record.held:
        return
    for each in ((*key, None), (*key, version)):
        if _is_retired(record.patches, each) and each not in record.held and each not in known:
            yield each


def _suspicious_loss(
    source: SourceConfig, batch: SourceReading, record: Record, withdrawn: Sequence[ItemKey]
) -> tuple[int, int] | None:
    """Return how many of how many live documents or items are gone; None when that is plausible.

    A document counts once, whatever its number of parts, and only when none of them is left.
    """
    if batch.count and not withdrawn:
        return None
    live = record.live()
    gone = live & {key[:2] for key in withdrawn if key[2] is None}
    units = {_whole(key) for key in live}
    lost = len(units) - len({_whole(key) for key in live - gone})
    if batch.count and lost <= source.max_shrink * len(units):
        return None
    if not lost or (source.max_shrink >= 1.0 and not batch.count and not batch.errors):
        return None
    return lost, len(units)


def _whole(key: Key) -> Key:
    """Return the document that a part belongs to; anything else is itself."""
    document, _, number = key[1].rpartition("#")
    return (key[0], document) if document and number.isdecimal() else key


def _source_shrank(source: SourceConfig, lost: int, live: int, *, withheld: int) -> FileError:
    return FileError(
        path=mask_url(source.path or source.name),
        code=FileCode.SOURCE_SHRANK,
        message=(
            f"{lost} of {live} items of source {source.name!r} are not there any more; they are served until somebody "
            f"confirms it: ctx retire --source {source.name}"
        ),
        items=withheld,
    )


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
    store: Store, source: SourceConfig, batch: SourceReading, stored: dict[Key, list[Stored]]
) -> frozenset[Key]:
    """Return the stored items that came from files with errors: they may be there still."""
    failed = {error.path for error in batch.errors if error.code not in LOADED_ALL_THE_SAME}
    if not failed:
        return frozenset()
    if not failed.isdisjoint((source.path or "", source.name)):
        return frozenset(stored)
    present = {(item.scope.tenant or "", item.item_id) for item in batch.items}
    present.update(item.key for item in batch.kept)
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


def _newest(version: str, versions: Sequence[Stored]) -> Stored | None:
    """Return the stored version that counts as the newest one beside `version`.

    A declared version is stored once; one that is a content hash counts only as the newest. A declared version whose
    content went to another one and back is stored again, so that it is the newest.
    """
    if all(declared_version(entry.version) is not None for entry in versions):
        declared = version.partition("+")[0]
        versions = [entry for entry in versions if entry.version.partition("+")[0] == declared]
    return versions[-1] if versions else None


def _is_stored(
    item: ContextItem, versions: Sequence[Stored], facts_of: Callable[[int], str]
) -> bool:
    last = _newest(item.version, versions)
    if last is None or last.version != item.version:
        return False
    if last.item_hash == sha256_hex(canonical_json(item.model_dump(mode="json"))):
        return True
    return last.content_hash == item.content_hash and facts_of(last.seq) == facts_hash(item)


def still_stored(known: KnownItem, record: Record) -> bool:
    """Return whether an item is stored as it was when its unit was read last, and nothing newer of it."""
    last = _newest(known.version, record.stored.get(known.key, ()))
    return last is not None and (last.version, last.seq, last.content_hash) == (
        known.version,
        known.seq,
        known.content_hash,
    )


def _known_units(
    batch: SourceReading, record: Record, rows: Sequence[StoredItem]
) -> dict[bytes, tuple[KnownItem, ...]]:
    """Return what each unit says as it is stored now; a unit that says something refused is left out."""
    fresh = {(row.tenant, row.item_id, row.version): row.seq for row in rows}
    units: dict[bytes, tuple[KnownItem, ...]] = {}
    for unit, said in batch.units.items():
        known = [
            entry if isinstance(entry, KnownItem) else _known_item(entry, record, fresh)
            for entry in said
        ]
        stored = tuple(entry for entry in known if entry is not None)
        if len(stored) == len(said):
            units[unit] = stored
    return units


def _known_item(
    item: ContextItem, record: Record, fresh: Mapping[tuple[str, str, str], int]
) -> KnownItem | None:
    key = (item.scope.tenant or "", item.item_id)
    versions = record.stored.get(key, ())
    named = _versioned(item, versions)
    if named is None:
        return None
    seq = fresh.get((*key, named.version)) or next(
        (v.seq for v in versions if v.version == named.version), None
    )
    return (
        None
        if seq is None
        else KnownItem(*key, named.version, seq, item.content_hash, start_of(item))
    )


def facts_hash(item: ContextItem) -> str:
    """Return a hash of everything about an item but where in which version of its file it stands.

    So an edit elsewhere in the file does not change it.
    """
    facts = item.model_dump(mode="json")
    facts["provenance"]["source_version"] = None
    facts["provenance"]["locator"].update(line_start=None, line_end=None)
    return sha256_hex(canonical_json(facts))


def _facts_reader(
    store: Store, batch: SourceReading, stored: Mapping[Key, Sequence[Stored]]
) -> Callable[[int], str]:
    """Return what reads the stored rows with the same content as the batch's items, when it is first asked."""
    known: dict[int, str] = {}

    def facts_of(seq: int) -> str:
        if not known:
            same = [
                entry.seq
                for item in batch.items
                for entry in stored.get((item.scope.tenant or "", item.item_id), ())
                if entry.content_hash == item.content_hash
            ]
            known.update(
                (number, facts_hash(item)) for number, item in store.read_seqs(same).items()
            )
        return known.get(seq, "")

    return facts_of


def _withdrawn(
    record: Record, seen: Mapping[Key, Sequence[Said]], kept: frozenset[Key], now: datetime
) -> list[ItemKey]:
    withdrawn: list[ItemKey] = []
    for key, versions in record.stored.items():
        if key in seen:
            # Restoring the item restores all its versions, so what was withdrawn before is withdrawn anew.
            returns = _is_retired(record.patches, (*key, None)) and (*key, None) not in record.held
            withdrawn.extend(
                _taken_back(key, versions, seen[key], {} if returns else record.patches, now)
            )
        elif (
            key not in kept
            and (*key, None) not in record.gone
            and not _is_forgotten(record.patches, key, "")
        ):
            # Also what a person has retired: taking that back must not bring back what the source has dropped.
            withdrawn.append((*key, None))
    return withdrawn


def _taken_back(
    key: Key,
    versions: Sequence[Stored],
    present: Sequence[Said],
    patches: dict[ItemKey, Patch],
    now: datetime,
) -> list[ItemKey]:
    """Return declared versions that the source dropped although none that it has, and that has begun, follows them.

    Where all that it has is still to begin, the version before stays until then.
    """
    stored = {entry.version: declared_version(entry.version) for entry in versions}
    every = [declared_version(said.version) for said in present]
    if any(number is None for number in (*stored.values(), *every)):
        return []
    begun = [declared_version(said.version) for said in present if said.valid_from <= micros(now)]
    has = {said.version for said in present}
    return [
        (*key, version)
        for version, number in stored.items()
        if version not in has
        and not any(
            other is not None and number is not None and other >= number for other in begun or every
        )
        and not _is_retired(patches, (*key, version))
    ]


def _current_again(seen: Mapping[Key, Sequence[Said]], record: Record) -> list[ItemKey]:
    """Return versions that the overlay counts as replaced by later ones that the source does not have any more."""
    found: list[ItemKey] = []
    for key, said in seen.items():
        order = chain_order([(each.version, each.valid_from, at) for at, each in enumerate(said)])
        version = said[order[-1]].version
        patch = record.patches.get((*key, version))
        if patch is not None and patch.marked_at is not None:
            numbers = {entry.version: entry.seq for entry in record.stored.get(key, ())}
            if any(number > numbers.get(version, 0) for number in numbers.values()):
                found.append((*key, version))
    return found


def _overtaken(
    restored: Sequence[ItemKey],
    withdrawn: Sequence[ItemKey],
    seen: Mapping[Key, Sequence[Said]],
    record: Record,
    now: datetime,
) -> Iterator[tuple[ItemKey, datetime]]:
    """Yield the stored versions of items that are there again which a version that the source has now follows."""
    out = set(withdrawn)
    for key in (key[:2] for key in restored if key[2] is None):
        said = seen[key]
        order = chain_order([(each.version, each.valid_from, at) for at, each in enumerate(said)])
        places = {said[at].version: place for place, at in enumerate(order)}
        for entry in record.stored[key]:
            later = [said[at] for at in order[places.get(entry.version, -1) + 1 :]]
            if later and (*key, entry.version) not in out:
                begins = min(max(micros(now), each.valid_from) for each in later)
                yield (*key, entry.version), from_micros(begins)


def _superseded(
    overtaken: Iterable[tuple[ItemKey, datetime]], now: datetime
) -> Iterator[OverlayEntry]:
    from ctx_pipeline.ledger import OverlayEntry

    for (tenant, item_id, version), begins in overtaken:
        yield OverlayEntry(
            code="superseded",
            tenant=tenant,
            item_id=item_id,
            version=version,
            effective_at=begins,
            recorded_at=now,
            actor=ACTOR,
            reason="the source has the item again, in a later version",
        )


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


def fingerprint(batch: SourceReading) -> str:
    """Return a hash of what a source holds, whatever the order and whatever was parsed again."""
    said = [
        f"{i.item_id}@{i.version.partition('+')[0]}:{i.content_hash}"
        for i in (*batch.items, *batch.kept)
    ]
    return short_hash("\n".join(sorted(said)), 16)
