"""What publishing would change: each definition beside its live version, and who has been shown
that one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from ctx_pipeline.building.source_plan import Changes
from ctx_pipeline.contracts import ContextItem
from ctx_pipeline.contracts.publish import DefinitionChange, DefinitionExposure
from ctx_pipeline.registry.fields import definition_fields
from ctx_pipeline.registry.lint import newest_of
from ctx_pipeline.registry.stored import Key, Record, mentions

if TYPE_CHECKING:
    from ctx_pipeline.ledger import Ledger

SHOWN_SNAPSHOTS = 5
CONTEXT_LINES = 1

_FACTS = (
    "title",
    "subject",
    "synonyms",
    "depends_on",
    "scope",
    "sensitivity",
    "authority",
    "trust",
    "supersedes",
)
"""Parts of an item beside its text that its readers meet."""


def definition_changes(
    items: Iterable[ContextItem],
    changes: Changes,
    record: Record,
    ledger: Ledger | None,
    now: datetime,
) -> tuple[DefinitionChange, ...]:
    """Return what becomes of every definition: added, changed and removed ones in full, by item id.

    `changes` is what storing `items` would write.
    """
    newest = newest_of(items)
    new = {(item.scope.tenant or "", item.item_id) for item in changes.new}
    found = [*_present(newest, new, record, now), *_removed(newest, changes, record, now)]
    found.sort(
        key=lambda change: (
            _ORDER[change.change],
            change.tenant,
            change.item_id,
            change.old_version or "",
        )
    )
    return tuple(_with_reach(found, record, ledger))


_ORDER = {"removed": 0, "changed": 1, "added": 2, "unchanged": 3}


def _present(
    newest: Mapping[Key, ContextItem], new: set[Key], record: Record, now: datetime
) -> Iterator[DefinitionChange]:
    for key, item in newest.items():
        old = record.newest(key)
        fields = () if old is None else changed_fields(old, item)
        if old is None:
            yield _change("added", item, None, now)
        elif key in new and (fields or old.version != item.version):
            yield _change("changed", item, old, now, fields)
        else:
            yield _change("unchanged", item, old, None)


def _change(
    change: str,
    item: ContextItem,
    old: ContextItem | None,
    now: datetime | None,
    fields: tuple[str, ...] = (),
) -> DefinitionChange:
    where = item.provenance.locator
    begin = None if now is None else max(now, item.valid_from or now)
    return DefinitionChange.model_validate(
        {
            "change": change,
            "item_id": item.item_id,
            "tenant": item.scope.tenant or "",
            "kind": item.kind,
            "path": where.path,
            "line": where.line_start,
            "old_version": None if old is None else old.version,
            "new_version": item.version,
            "effective_at": begin,
            "fields": fields,
            "diff": "" if old is None or change == "unchanged" else text_diff(old, item),
        }
    )


def changed_fields(old: ContextItem, new: ContextItem) -> tuple[str, ...]:
    """Return the keys of the text, and the other parts of an item, in which two versions differ."""
    before, after = definition_fields(old.content or ""), definition_fields(new.content or "")
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    facts = [name for name in _FACTS if getattr(old, name) != getattr(new, name)]
    return tuple(dict.fromkeys((*keys, *facts)))


def text_diff(old: ContextItem, new: ContextItem) -> str:
    """Return the unified difference of two versions' text."""
    before, after = (old.content or "").split("\n"), (new.content or "").split("\n")
    names = (f"{old.item_id}@{old.version}", f"{new.item_id}@{new.version}")
    return "\n".join(difflib.unified_diff(before, after, *names, lineterm="", n=CONTEXT_LINES))


def _removed(
    newest: Mapping[Key, ContextItem], changes: Changes, record: Record, now: datetime
) -> Iterator[DefinitionChange]:
    for tenant, item_id, version in changes.withdrawn:
        key = (tenant, item_id)
        versions = [
            found.item
            for found in record.versions.get(key, ())
            if version in (None, found.item.version)
        ]
        if not versions:
            continue
        old, stays = versions[-1], newest.get(key)
        where = old.provenance.locator
        yield DefinitionChange(
            change="removed",
            item_id=item_id,
            tenant=tenant,
            kind=old.kind,
            path=where.path,
            old_version=old.version,
            new_version=None if stays is None else stays.version,
            effective_at=now,
        )


def _with_reach(
    changes: Iterable[DefinitionChange], record: Record, ledger: Ledger | None
) -> Iterator[DefinitionChange]:
    """Add to each change who depends on the old version and who has been shown it."""
    for change in changes:
        if change.change == "unchanged":
            yield change
            continue
        related = related_items(change, record)
        shown = None
        if ledger is not None and change.old_version is not None:
            shown = exposure_of(ledger, change.tenant, change.item_id, change.old_version)
        yield change.model_copy(
            update={"dependents": related[0], "same_subject": related[1], "exposure": shown},
        )


def related_items(
    change: DefinitionChange, record: Record
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the live items of the same tenant that depend on a definition, and those about the
    same subject.
    """
    kind, _, rest = change.item_id.partition(":")
    name = rest.partition("/")[2]
    references, subject = {change.item_id, f"{kind}:*/{name}"}, f"{kind}:{name}"
    dependents: list[str] = []
    same: list[str] = []
    for item in mentions(record, (*sorted(references), subject)):
        if (item.scope.tenant or "") != change.tenant or item.item_id == change.item_id:
            continue
        if references.intersection(item.depends_on):
            dependents.append(item.item_id)
        if item.subject == subject:
            same.append(item.item_id)
    return tuple(sorted(dependents)), tuple(sorted(same))


def exposure_of(ledger: Ledger, tenant: str, item_id: str, version: str) -> DefinitionExposure:
    """Return who has been shown a version."""
    counted = ledger.exposure(tenant, item_id, version=version, limit=SHOWN_SNAPSHOTS)
    principals, agents = ledger.audience(tenant, item_id, version) if counted.selected else ((), ())
    return DefinitionExposure(
        snapshots=counted.selected,
        latest=counted.snapshot_ids,
        principals=principals,
        agents=agents,
    )
