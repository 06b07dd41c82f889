"""Compare what a source says now with what is stored: what is new, what is
back, and what is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from ctx_pipeline.config.settings import mask_url
from ctx_pipeline.contracts import (
    LOADED_ALL_THE_SAME,
    ContextItem,
    FileCode,
    FileError,
    ItemKind,
)
from ctx_pipeline.index.facts import start_of
from ctx_pipeline.index.overlay import ItemKey, Patch
from ctx_pipeline.index.rows import chain_order, declared_version
from ctx_pipeline.security.visibility import from_micros, micros
from ctx_pipeline.text import canonical_json, sha256_hex

if TYPE_CHECKING:
    from ctx_pipeline.config.settings import SourceConfig
    from ctx_pipeline.index.store import Store
    from ctx_pipeline.sources import SourceReading

from ctx_pipeline.building.source_record import Key, Record, Stored, is_forgotten, is_retired

STRICT_VERSIONS = frozenset({ItemKind.METRIC})
"""Kinds whose meaning may not change under one declared version; for others the content hash is
appended to it.
"""


class Said(NamedTuple):
    """A version that a source has."""

    version: str
    valid_from: int
    """Microseconds; `ALWAYS` for none."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a refresh has to write."""

    new: tuple[ContextItem, ...]
    reused: int
    withdrawn: tuple[ItemKey, ...]
    """Items, or single versions of items, that the source no longer has."""
    restored: tuple[ItemKey, ...]
    overtaken: tuple[tuple[ItemKey, datetime], ...]
    """Versions that come back with their item although a later one counts, and from when it does.
    """
    errors: tuple[FileError, ...]
    withheld: tuple[ItemKey, ...] = ()
    """What the source seems to have lost, and is served until a person confirms it."""
    unconfirmed: frozenset[Key] = frozenset()
    """Live items that this reading did not see, or did not accept, and that stay."""


def plan_refresh(
    source: SourceConfig,
    reading: SourceReading,
    record: Record,
    store: Store,
    now: datetime,
    *,
    confirmed: bool = False,
) -> Changes:
    """Return what a refresh would write; it writes nothing."""
    failed = _failed_items(store, source, reading, record.stored)
    facts_of = _facts_reader(store, reading, record.stored)
    return plan_changes(source, reading, record, failed, facts_of, now, confirmed=confirmed)


def plan_changes(
    source: SourceConfig,
    reading: SourceReading,
    record: Record,
    kept: frozenset[Key],
    facts_of: Callable[[int], str],
    now: datetime,
    *,
    confirmed: bool = False,
) -> Changes:
    """Compare a reading with what is stored. Pure.

    `kept` are items that may not be retired now, because the file they came from could not be read.
    `facts_of` returns the `facts_hash` of a stored row by its sequence. `confirmed`: what seems
    lost is lost.
    """
    found = _compare(reading, record, facts_of)
    # Nothing read and nothing but errors: then it is not the files with errors alone that may still
    # be there.
    unread = not reading.count and bool(reading.errors)
    withdrawn = _withdrawn(record, found.said, frozenset() if unread else kept, now)
    withheld: tuple[ItemKey, ...] = ()
    errors = found.errors
    if not confirmed and (lost := _suspicious_loss(source, reading, record, withdrawn)):
        # A version that was withdrawn before its item went is not lost with this reading.
        again = [key for key in withdrawn if _went_before(record, key)]
        withheld = tuple(key for key in withdrawn if key not in again)
        errors = [*errors, _source_shrank(source, *lost, withheld=len(withheld))]
        withdrawn = again
    gone = {key[:2] for key in withdrawn if key[2] is None}
    return Changes(
        new=tuple(found.new),
        reused=found.reused,
        withdrawn=tuple(withdrawn),
        restored=tuple(found.restored),
        overtaken=tuple(_overtaken(found.restored, withdrawn, found.said, record, now)),
        errors=tuple(errors),
        withheld=withheld,
        unconfirmed=frozenset((record.live() - found.said.keys() - gone) | found.refused),
    )


@dataclass(slots=True)
class _Comparison:
    """What a source says now, beside what is stored of it."""

    said: dict[Key, list[Said]] = field(default_factory=dict[Key, list[Said]])
    """The versions that it has of each item."""
    new: list[ContextItem] = field(default_factory=list[ContextItem])
    reused: int = 0
    restored: list[ItemKey] = field(default_factory=list[ItemKey])
    refused: set[Key] = field(default_factory=set[Key])
    """Items whose meaning changed under a version that may not change."""
    errors: list[FileError] = field(default_factory=list[FileError])


def _compare(reading: SourceReading, record: Record, facts_of: Callable[[int], str]) -> _Comparison:
    """Return which items of a reading are new, stored already, back again, or refused."""
    found = _Comparison(reused=len(reading.kept))
    for known in reading.kept:
        if not is_forgotten(record.patches, known.key, known.version):
            said = Said(known.version, known.valid_from)
            found.said.setdefault(known.key, []).append(said)
            found.restored.extend(_back_again(record, known.key, known.version, found.restored))
    for item in reading.items:
        key = (item.scope.tenant or "", item.item_id)
        if not is_forgotten(record.patches, key, item.version):
            _add_item(found, key, item, record, facts_of)
    again = _current_again(found.said, record)
    found.restored.extend(key for key in again if key not in found.restored)
    return found


def _add_item(
    found: _Comparison, key: Key, item: ContextItem, record: Record, facts_of: Callable[[int], str]
) -> None:
    versions = record.stored.get(key, [])
    named = versioned(item, versions)
    found.said.setdefault(key, []).append(Said((named or item).version, start_of(item)))
    if named is None:
        found.errors.append(_version_reused(item))
        found.refused.add(key)
        return
    if _is_stored(named, versions, facts_of):
        found.reused += 1
    else:
        found.new.append(named)
    found.restored.extend(_back_again(record, key, named.version, found.restored))


def _went_before(record: Record, key: ItemKey) -> bool:
    """Return whether this is a single version of an item that is retired as a whole."""
    return key[2] is not None and is_retired(record.patches, (*key[:2], None))


def _back_again(
    record: Record, key: Key, version: str, known: Sequence[ItemKey]
) -> Iterator[ItemKey]:
    """Yield what the source has again: the item, or this version of it, unless a person has retired
    it.
    """
    if (*key, None) in record.held:
        return
    for each in ((*key, None), (*key, version)):
        if is_retired(record.patches, each) and each not in record.held and each not in known:
            yield each


def _suspicious_loss(
    source: SourceConfig, reading: SourceReading, record: Record, withdrawn: Sequence[ItemKey]
) -> tuple[int, int] | None:
    """Return how many of how many live documents or items are gone; None when that is plausible.

    A document counts once, whatever its number of parts, and only when none of them is left.
    """
    if reading.count and not withdrawn:
        return None
    live = record.live()
    gone = live & {key[:2] for key in withdrawn if key[2] is None}
    units = {_whole(key) for key in live}
    lost = len(units) - len({_whole(key) for key in live - gone})
    if reading.count and lost <= source.max_shrink * len(units):
        return None
    if not lost or (source.max_shrink >= 1.0 and not reading.count and not reading.errors):
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
            f"{lost} of {live} items of source {source.name!r} are not there any more; they are "
            "served until somebody "
            f"confirms it: ctx retire --source {source.name}"
        ),
        items=withheld,
    )


def _failed_items(
    store: Store, source: SourceConfig, reading: SourceReading, stored: dict[Key, list[Stored]]
) -> frozenset[Key]:
    """Return the stored items that came from files with errors: they may be there still."""
    failed = {error.path for error in reading.errors if error.code not in LOADED_ALL_THE_SAME}
    if not failed:
        return frozenset()
    if not failed.isdisjoint((source.path or "", source.name)):
        return frozenset(stored)
    present = {(item.scope.tenant or "", item.item_id) for item in reading.items}
    present.update(item.key for item in reading.kept)
    kept: set[Key] = set()
    for key, versions in stored.items():
        if key not in present:
            row = store.read(*key, versions[-1].version)
            if row is not None and row.item().provenance.locator.path in failed:
                kept.add(key)
    return frozenset(kept)


def versioned(item: ContextItem, versions: Sequence[Stored]) -> ContextItem | None:
    """Return the item under a version that is its own; None when that would change a meaning under
    one version.
    """
    same = next((entry for entry in versions if entry.version == item.version), None)
    if same is None or same.content_hash == item.content_hash:
        return item
    if item.kind in STRICT_VERSIONS:
        return None
    return item.model_copy(update={"version": f"{item.version}+{item.content_hash[:8]}"})


def newest(version: str, versions: Sequence[Stored]) -> Stored | None:
    """Return the stored version that counts as the newest one beside `version`.

    A declared version is stored once; one that is a content hash counts only as the newest. A
    declared version whose content went to another one and back is stored again, so that it is the
    newest.
    """
    if all(declared_version(entry.version) is not None for entry in versions):
        declared = version.partition("+")[0]
        versions = [entry for entry in versions if entry.version.partition("+")[0] == declared]
    return versions[-1] if versions else None


def _is_stored(
    item: ContextItem, versions: Sequence[Stored], facts_of: Callable[[int], str]
) -> bool:
    last = newest(item.version, versions)
    if last is None or last.version != item.version:
        return False
    if last.item_hash == sha256_hex(canonical_json(item.model_dump(mode="json"))):
        return True
    return last.content_hash == item.content_hash and facts_of(last.seq) == facts_hash(item)


def facts_hash(item: ContextItem) -> str:
    """Return a hash of everything about an item but where in which version of its file it stands.

    So an edit elsewhere in the file does not change it.
    """
    facts = item.model_dump(mode="json")
    facts["provenance"]["source_version"] = None
    facts["provenance"]["locator"].update(line_start=None, line_end=None)
    return sha256_hex(canonical_json(facts))


def _facts_reader(
    store: Store, reading: SourceReading, stored: Mapping[Key, Sequence[Stored]]
) -> Callable[[int], str]:
    """Return what reads the stored rows with the same content as the reading's items, when it is
    first asked.
    """
    known: dict[int, str] = {}

    def facts_of(seq: int) -> str:
        if not known:
            same = [
                entry.seq
                for item in reading.items
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
            # Restoring the item restores all its versions, so what was withdrawn before is
            # withdrawn anew.
            returns = is_retired(record.patches, (*key, None)) and (*key, None) not in record.held
            withdrawn.extend(
                _taken_back(key, versions, seen[key], {} if returns else record.patches, now)
            )
        elif (
            key not in kept
            and (*key, None) not in record.gone
            and not is_forgotten(record.patches, key, "")
        ):
            # Also what a person has retired: taking that back must not bring back what the source
            # has dropped.
            withdrawn.append((*key, None))
    return withdrawn


def _taken_back(
    key: Key,
    versions: Sequence[Stored],
    present: Sequence[Said],
    patches: dict[ItemKey, Patch],
    now: datetime,
) -> list[ItemKey]:
    """Return declared versions that the source dropped although none that it has, and that has
    begun, follows them.

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
        and not is_retired(patches, (*key, version))
    ]


def _current_again(seen: Mapping[Key, Sequence[Said]], record: Record) -> list[ItemKey]:
    """Return versions that the overlay counts as replaced by later ones that the source does not
    have any more.
    """
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
    """Yield the stored versions of items that are there again which a version that the source has
    now follows.
    """
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


def _version_reused(item: ContextItem) -> FileError:
    where = item.provenance.locator
    return FileError(
        path=where.path or item.provenance.source_id,
        line=where.line_start,
        code=FileCode.VERSION_REUSED,
        message=(
            f"{item.item_id} changed under version {item.version}; raise the "
            "version. The stored definition stays"
        ),
    )
