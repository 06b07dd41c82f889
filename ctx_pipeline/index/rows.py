"""The rows of a serving artifact: every item version that may ever be served, in the order all
columns share.

Rows are sorted by tenant, then item id, then age (oldest version first), so that a tenant is one
contiguous slice and the versions of one item, its *chain*, lie side by side.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ctx_pipeline.index.facts import fact_values
from ctx_pipeline.security.visibility import ScopeLabel

if TYPE_CHECKING:
    import pyarrow as pa

_DECLARED = re.compile(r"^v?(\d{1,9}(?:\.\d{1,9}){0,3})(?:\+[0-9a-f]{8})?$")


class Row(NamedTuple):
    """What a build knows of one item version beside its text."""

    tenant: str
    item_id: str
    version: str
    seq: int
    recorded_at: int
    """Microseconds since 1970."""
    item_hash: str
    embed_hash: str
    chain: int
    """Number of the item within the catalogue; versions of one item share it."""
    kind: str
    subject: str | None
    title: str
    source: str
    path: str | None
    authority: int
    trust: str
    confidence: float
    content_number: int
    """The first 60 bits of the content's hash."""
    verified_at: int
    """Microseconds; `ALWAYS` where the source's own refresh counts."""
    valid_from: int
    """Microseconds; `ALWAYS` for none."""
    valid_until: int
    """Microseconds; `NEVER` for none."""
    dated_at: int
    """Microseconds; the newest time that the item tells of itself, `ALWAYS` for none."""
    depends_on: tuple[str, ...]
    supersedes: tuple[str, ...]
    forms: tuple[str, ...]
    """Names it is asked for by, its own first; empty where it has no synonyms."""
    mentions: tuple[str, ...]
    """Names in a metric's definition."""
    label: ScopeLabel
    """What the item itself says of who may see it."""

    @property
    def key(self) -> tuple[str, str]:
        """Tenant and item id."""
        return self.tenant, self.item_id


def declared_version(version: str) -> tuple[int, ...] | None:
    """Return a declared version (`2`, `v1.4`) as numbers; None for content hashes and free text.

    `2+0f3c91aa` is version 2 whose content was changed without raising it.
    """
    found = _DECLARED.match(version)
    return tuple(int(part) for part in found.group(1).split(".")) if found else None


def chain_order(versions: Sequence[tuple[str, int, int]]) -> list[int]:
    """Return the positions of one item's versions, oldest first; each is (version, valid from in
    microseconds, seq).

    Declared versions are ordered by number, then `valid_from`, then sequence; versions that are
    content hashes by sequence alone.
    """
    numbers = [declared_version(version) for version, _, _ in versions]
    if all(number is not None for number in numbers):
        return sorted(range(len(versions)), key=lambda at: (numbers[at], *versions[at][1:]))
    return sorted(range(len(versions)), key=lambda at: versions[at][2])


def latest_versions(
    keys: pa.Table, *, forgotten: frozenset[tuple[str, str, str | None]] = frozenset()
) -> pa.Table:
    """Return the store's keys with each item version once, as last stored, without what is
    forgotten.

    `forgotten` holds (tenant, item id, version or None).
    """
    import pyarrow as pa

    latest: dict[tuple[str, str, str], int] = {}
    seqs = keys.column("seq").to_pylist()
    triples = zip(
        *(keys.column(name).to_pylist() for name in ("tenant", "item_id", "version")), strict=True
    )
    for position, triple in enumerate(triples):
        known = latest.get(triple)
        if known is None or seqs[known] < seqs[position]:
            latest[triple] = position
    positions = [
        position
        for (tenant, item_id, version), position in latest.items()
        if (tenant, item_id, None) not in forgotten and (tenant, item_id, version) not in forgotten
    ]
    return keys.take(pa.array(sorted(positions), pa.int64()))


def make_rows(keys: pa.Table, facts: pa.Table) -> list[Row]:
    """Join the store's keys with the facts of the same items, row by row, and put them into the
    catalogue's order.
    """
    recorded = keys.column("recorded_at").cast("int64")
    names = ("tenant", "item_id", "version", "seq")
    columns = [*(keys.column(name).to_pylist() for name in names), recorded.to_pylist()]
    columns += [keys.column(name).to_pylist() for name in ("item_hash", "embed_hash")]
    rows = [
        Row._make(values)
        for values in zip(*columns, [0] * len(keys), *fact_values(facts), strict=True)
    ]
    by_item: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_item[row.key].append(row)
    return [
        row._replace(chain=chain)
        for chain, key in enumerate(sorted(by_item))
        for row in _oldest_first(by_item[key])
    ]


def _oldest_first(versions: list[Row]) -> list[Row]:
    if len(versions) == 1:
        return versions
    order = chain_order([(row.version, row.valid_from, row.seq) for row in versions])
    return [versions[at] for at in order]


def tenant_slices(rows: Sequence[Row]) -> dict[str, tuple[int, int]]:
    """Return each tenant's slice of rows as (first, after last)."""
    slices: dict[str, tuple[int, int]] = {}
    for position, row in enumerate(rows):
        first, _ = slices.get(row.tenant, (position, position))
        slices[row.tenant] = (first, position + 1)
    return slices


class References:
    """Finds the rows that `depends_on` entries mean, inside one tenant."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._last: dict[tuple[str, str], int] = {row.key: at for at, row in enumerate(rows)}
        self._suffix: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        for (tenant, item_id), at in self._last.items():
            kind, _, rest = item_id.partition(":")
            self._suffix[(tenant, kind, rest.partition("/")[2])].append(at)

    def targets(self, row: Row, reference: str) -> list[int]:
        """Return the newest row of each item that a reference names; `schema:*/orders` names it in
        any source.
        """
        kind, _, rest = reference.partition(":")
        if rest.startswith("*/"):
            return self._suffix.get((row.tenant, kind, rest[2:]), [])
        found = self._last.get((row.tenant, reference))
        return [] if found is None else [found]


def edges(rows: Sequence[Row]) -> list[list[int]]:
    """Return, for each row, the rows it depends on, in the order it names them."""
    if not any(row.depends_on for row in rows):
        return [[] for _ in rows]
    references = References(rows)
    return [
        list(
            dict.fromkeys(
                target for ref in row.depends_on for target in references.targets(row, ref)
            )
        )
        for row in rows
    ]


def subjects(rows: Sequence[Row]) -> tuple[list[int], dict[str, int]]:
    """Return each row's subject number (-1 for none) and the numbers by tenant,
    a tab, and subject.
    """
    numbers: dict[str, int] = {}
    column: list[int] = []
    for row in rows:
        subject = row.subject
        column.append(
            -1 if subject is None else numbers.setdefault(f"{row.tenant}\t{subject}", len(numbers))
        )
    return column, numbers
