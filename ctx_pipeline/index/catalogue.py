"""The rows of a serving artifact: every item version that may ever be served, in the order all columns share.

Rows are sorted by tenant, then item id, then age (oldest version first), so that a tenant is one contiguous slice and
the versions of one item, its *chain*, lie side by side.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctx_pipeline.contracts import ContextItem
from ctx_pipeline.security.visibility import ALWAYS, micros

if TYPE_CHECKING:
    import pyarrow as pa

_DECLARED = re.compile(r"^v?(\d{1,9}(?:\.\d{1,9}){0,3})(?:\+[0-9a-f]{8})?$")


@dataclass(frozen=True, slots=True)
class Row:
    """One item version and what the store knows of it."""

    item: ContextItem
    tenant: str
    seq: int
    recorded_at: int
    """Microseconds since 1970."""
    embed_hash: str
    chain: int
    """Number of the item within the catalogue; versions of one item share it."""

    @property
    def key(self) -> tuple[str, str]:
        """Tenant and item id."""
        return self.tenant, self.item.item_id


def declared_version(version: str) -> tuple[int, ...] | None:
    """Return a declared version (`2`, `v1.4`) as numbers; None for content hashes and free text.

    `2+0f3c91aa` is version 2 whose content was changed without raising it.
    """
    found = _DECLARED.match(version)
    return tuple(int(part) for part in found.group(1).split(".")) if found else None


def chain_order(items: Sequence[tuple[ContextItem, int]]) -> list[int]:
    """Return the positions of one item's (version, sequence) pairs, oldest first.

    Declared versions are ordered by number, then `valid_from`, then sequence; versions that are content hashes by
    sequence alone.
    """
    numbers = [declared_version(item.version) for item, _ in items]
    if all(number is not None for number in numbers):
        return sorted(range(len(items)), key=lambda at: (numbers[at], _start(items[at][0]), items[at][1]))
    return sorted(range(len(items)), key=lambda at: items[at][1])


def _start(item: ContextItem) -> int:
    return ALWAYS if item.valid_from is None else micros(item.valid_from)


def read_rows(stored: pa.Table, *, forgotten: frozenset[tuple[str, str, str | None]] = frozenset()) -> list[Row]:
    """Turn the store's table into catalogue rows.

    A version stored more than once counts as last stored. `forgotten` holds (tenant, item id, version or None).
    """
    latest: dict[tuple[str, str, str], int] = {}
    columns = {name: stored.column(name).to_pylist() for name in ("tenant", "item_id", "version", "seq")}
    triples = list(zip(columns["tenant"], columns["item_id"], columns["version"], strict=True))
    for position, (triple, seq) in enumerate(zip(triples, columns["seq"], strict=True)):
        known = latest.get(triple)
        if known is None or columns["seq"][known] < seq:
            latest[triple] = position
    positions = [
        position
        for (tenant, item_id, version), position in latest.items()
        if (tenant, item_id, None) not in forgotten and (tenant, item_id, version) not in forgotten
    ]
    return _sorted_rows(stored, positions)


def _sorted_rows(stored: pa.Table, positions: Iterable[int]) -> list[Row]:
    import pyarrow as pa

    picked = stored.take(pa.array(sorted(positions), pa.int64()))
    by_item: dict[tuple[str, str], list[tuple[ContextItem, int, int, str]]] = defaultdict(list)
    for tenant, text, seq, recorded, embed in zip(
        picked.column("tenant").to_pylist(),
        picked.column("item_json").to_pylist(),
        picked.column("seq").to_pylist(),
        picked.column("recorded_at").to_pylist(),
        picked.column("embed_hash").to_pylist(),
        strict=True,
    ):
        item = ContextItem.model_validate_json(text)
        by_item[(tenant, item.item_id)].append((item, seq, micros(recorded), embed))
    rows: list[Row] = []
    for chain, key in enumerate(sorted(by_item)):
        versions = by_item[key]
        for at in chain_order([(item, seq) for item, seq, _, _ in versions]):
            item, seq, recorded, embed = versions[at]
            rows.append(Row(item, key[0], seq, recorded, embed, chain))
    return rows


def tenant_slices(rows: Sequence[Row]) -> dict[str, tuple[int, int]]:
    """Return each tenant's slice of rows as (first, after last)."""
    slices: dict[str, tuple[int, int]] = {}
    for position, row in enumerate(rows):
        first, _ = slices.get(row.tenant, (position, position))
        slices[row.tenant] = (first, position + 1)
    return slices


class References:
    """Finds the rows that `depends_on` and `supersedes` entries mean, inside one tenant."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._last: dict[tuple[str, str], int] = {row.key: at for at, row in enumerate(rows)}
        self._chains: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._suffix: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        self._paths: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        for at, row in enumerate(rows):
            self._chains[row.key].append(at)
            path = row.item.provenance.locator.path
            if path:
                self._paths[(row.tenant, row.item.provenance.source_id, path)].append(at)
        for (tenant, item_id), at in self._last.items():
            kind, _, rest = item_id.partition(":")
            self._suffix[(tenant, kind, rest.partition("/")[2])].append(at)

    def targets(self, row: Row, reference: str) -> list[int]:
        """Return the newest row of each item that a reference names; `schema:*/orders` names it in any source."""
        kind, _, rest = reference.partition(":")
        if rest.startswith("*/"):
            return self._suffix.get((row.tenant, kind, rest[2:]), [])
        found = self._last.get((row.tenant, reference))
        return [] if found is None else [found]

    def superseded(self, row: Row, reference: str) -> list[int]:
        """Return every row that a `supersedes` entry (item id, document id or path) names.

        A path is relative to the folder of the record that names it, or to the project.
        """
        found = list(self._chains.get((row.tenant, reference), ()))
        for positions in self._document_chunks(row.tenant, reference):
            found.extend(positions)
        folder = (row.item.provenance.locator.path or "").rpartition("/")[0]
        for path in {reference, posixpath.normpath(posixpath.join(folder, reference))}:
            found.extend(self._paths.get((row.tenant, row.item.provenance.source_id, path), ()))
        return sorted(set(found))

    def _document_chunks(self, tenant: str, reference: str) -> list[list[int]]:
        chunks: list[list[int]] = []
        while (positions := self._chains.get((tenant, f"{reference}#{len(chunks) + 1}"))) is not None:
            chunks.append(positions)
        return chunks


def edges(rows: Sequence[Row]) -> list[list[int]]:
    """Return, for each row, the rows it depends on, in the order it names them."""
    references = References(rows)
    return [
        list(dict.fromkeys(target for ref in row.item.depends_on for target in references.targets(row, ref)))
        for row in rows
    ]


def subjects(rows: Sequence[Row]) -> tuple[list[int], dict[str, int]]:
    """Return each row's subject number (-1 for none) and the numbers by tenant, a tab, and subject."""
    numbers: dict[str, int] = {}
    column: list[int] = []
    for row in rows:
        subject = row.item.subject
        column.append(-1 if subject is None else numbers.setdefault(f"{row.tenant}\t{subject}", len(numbers)))
    return column, numbers


def group_by_number(column: Sequence[int]) -> Mapping[int, list[int]]:
    """Return the positions of each non-negative number of a column."""
    groups: dict[int, list[int]] = defaultdict(list)
    for position, number in enumerate(column):
        if number >= 0:
            groups[number].append(position)
    return groups
