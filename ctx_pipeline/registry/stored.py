"""What the store holds of a registry, and of the tables that its definitions speak of."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ctx_pipeline.contracts import ContextItem, SourceKind
from ctx_pipeline.index.facts import start_of
from ctx_pipeline.index.overlay import ItemKey, Patch
from ctx_pipeline.index.rows import chain_order
from ctx_pipeline.security.visibility import NEVER, STATE_FORGOTTEN

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_KINDS = frozenset({SourceKind.SCHEMA_METADATA, SourceKind.SQL})
"""Kinds of sources that know which tables and columns there are."""

Key = tuple[str, str]
"""Tenant and item id."""


@dataclass(frozen=True, slots=True)
class Version:
    """One stored version of a definition that is neither retired nor forgotten."""

    item: ContextItem
    seq: int

    def has_begun(self, now: datetime) -> bool:
        """Whether it counts at `now`, unless a later version does."""
        return self.item.valid_from is None or self.item.valid_from <= now


Tables = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Tenant, table in lower case, column in lower case: the column as it is written."""


@dataclass(frozen=True, slots=True)
class Record:
    """The store's side of a review."""

    versions: Mapping[Key, tuple[Version, ...]]
    """Of the registry's items, oldest first."""
    tables: Tables = field(default_factory=dict[str, Mapping[str, Mapping[str, str]]])
    stored: pa.Table | None = None
    patches: Mapping[ItemKey, Patch] = field(default_factory=dict[ItemKey, Patch])

    def newest(self, key: Key) -> ContextItem | None:
        """Return the newest version, begun or not."""
        found = self.versions.get(key)
        return found[-1].item if found else None

    def current(self, key: Key, now: datetime) -> ContextItem | None:
        """Return the version that counts at `now`."""
        begun = [version for version in self.versions.get(key, ()) if version.has_begun(now)]
        return begun[-1].item if begun else None


def is_gone(patches: Mapping[ItemKey, Patch], key: Key, version: str) -> bool:
    """Whether the overlay has retired or forgotten a version, or every version, of an item."""
    marks = (patches.get((*key, None)), patches.get((*key, version)))
    retired = any(
        mark is not None and mark.retired_at is not None and mark.retired_at < NEVER
        for mark in marks
    )
    return retired or any(mark is not None and mark.state == STATE_FORGOTTEN for mark in marks)


def read_versions(
    stored: pa.Table, source: str, patches: Mapping[ItemKey, Patch]
) -> dict[Key, tuple[Version, ...]]:
    """Return the live versions of a source's items, each item's oldest first."""
    import pyarrow.compute as pc

    rows = stored.filter(pc.equal(stored.column("source"), source))
    found: dict[Key, list[Version]] = {}
    for key, _, seq, text in _latest(rows, patches):
        found.setdefault(key, []).append(Version(ContextItem.model_validate_json(text), seq))
    return {
        key: tuple(
            versions[at]
            for at in chain_order(
                [(each.item.version, start_of(each.item), each.seq) for each in versions]
            )
        )
        for key, versions in found.items()
    }


def _latest(rows: pa.Table, patches: Mapping[ItemKey, Patch]) -> list[tuple[Key, str, int, str]]:
    """Return (key, version, seq, JSON) of every version as last stored, without what is gone."""
    names = ("tenant", "item_id", "version", "seq", "item_json")
    latest: dict[tuple[str, str, str], tuple[int, str]] = {}
    for tenant, item_id, version, seq, text in zip(
        *(rows.column(name).to_pylist() for name in names), strict=True
    ):
        known = latest.get((tenant, item_id, version))
        if known is None or known[0] < seq:
            latest[(tenant, item_id, version)] = (seq, text)
    return [
        ((tenant, item_id), version, seq, text)
        for (tenant, item_id, version), (seq, text) in latest.items()
        if not is_gone(patches, (tenant, item_id), version)
    ]


def read_tables(
    stored: pa.Table, sources: Iterable[str], patches: Mapping[ItemKey, Patch]
) -> Tables:
    """Return the tables and columns that these schema sources have live, by tenant."""
    import pyarrow.compute as pc

    names = list(sources)
    if not names or not len(stored):
        return {}
    import pyarrow as pa

    mask = pc.and_(
        pc.equal(stored.column("kind"), "schema"),
        pc.is_in(stored.column("source"), pa.array(names)),
    )
    newest: dict[Key, tuple[int, str]] = {}
    for key, _, seq, text in _latest(stored.filter(mask), patches):
        if key not in newest or newest[key][0] < seq:
            newest[key] = (seq, text)
    items: list[tuple[str, dict[str, Any]]] = [
        (key[0], json.loads(text)) for key, (_, text) in newest.items()
    ]
    tables: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for tenant, item in items:
        if str(item["content"]).startswith(("table: ", "view: ")):
            tables[tenant].setdefault(_name(item).lower(), {})
    for tenant, item in items:
        if str(item["content"]).startswith("column: "):
            _add_column(tables[tenant], item)
    return {tenant: found for tenant, found in tables.items() if found}


def _add_column(tables: dict[str, dict[str, str]], item: Mapping[str, Any]) -> None:
    table = next((str(ref).partition("/")[2] for ref in item["depends_on"]), "")
    column = _name(item).removeprefix(f"{table}.")
    if table and column:
        tables.setdefault(table.lower(), {})[column.lower()] = column


def _name(item: Mapping[str, Any]) -> str:
    return str(item["item_id"]).partition("/")[2]


def mentions(record: Record, references: Iterable[str]) -> list[ContextItem]:
    """Return every live item of the store, whatever its source, whose newest version holds one of
    these references.
    """
    stored = record.stored
    if stored is None or not len(stored):
        return []
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = stored.column("item_json")
    mask: Any = pa.array([False] * len(stored))
    for reference in references:
        mask = pc.or_(mask, pc.match_substring(texts, json.dumps(reference, ensure_ascii=False)))
    named = pc.unique(stored.column("item_id").filter(mask))
    newest: dict[Key, tuple[int, str]] = {}
    for key, _, seq, text in _latest(
        stored.filter(pc.is_in(stored.column("item_id"), named)), record.patches
    ):
        if key not in newest or newest[key][0] < seq:
            newest[key] = (seq, text)
    return [ContextItem.model_validate_json(text) for _, text in newest.values()]
