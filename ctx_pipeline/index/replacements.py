"""What an item says it replaces: which rows its `supersedes` entries name, and which entries come
to nothing. Pure.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ctx_pipeline.contracts import SENSITIVITY_RANK, TRUST_RANK, ItemKind, Sensitivity, Trust
from ctx_pipeline.index.rows import Row, declared_version
from ctx_pipeline.security.visibility import EVERYONE, ScopeLabel

FILE_KINDS = frozenset(
    {
        ItemKind.DOCUMENT,
        ItemKind.INSTRUCTION,
        ItemKind.POLICY,
        ItemKind.ARTIFACT_REF,
        ItemKind.CODE,
        ItemKind.WEB,
    }
)
"""Kinds whose items are named like files: the file's own name stands for the path where only one
file has it."""


class Refused(NamedTuple):
    """An entry of `supersedes` that replaces nothing, or not all that it names."""

    row: int
    reference: str
    reason: str


@dataclass(frozen=True, slots=True)
class Replacements:
    """Which rows replace which, and which entries were refused.

    Each refused entry is told once for its document.
    """

    pairs: tuple[tuple[int, int], ...]
    """Rows as (new, old)."""
    refused: tuple[Refused, ...]


def replacements(
    rows: Sequence[Row], labels: Sequence[ScopeLabel], counts: Callable[[int], bool]
) -> Replacements:
    """Return what the newest version of each item replaces.

    `labels` says of each row who may see it, `counts` whether it is served at all.
    """
    naming = [
        at
        for at, row in enumerate(rows)
        if row.supersedes
        and (at + 1 == len(rows) or rows[at + 1].chain != row.chain)
        and counts(at)
    ]
    if not naming:
        return Replacements((), ())
    names = _Names(rows, naming)
    pairs: list[tuple[int, int, str]] = []
    refused: list[Refused] = []
    for at in naming:
        for reference in dict.fromkeys(rows[at].supersedes):
            found = names.meant(rows[at], reference)
            if isinstance(found, str):
                refused.append(Refused(at, reference, found))
                continue
            allowed = [
                old for old in found if _may_replace(rows[at], rows[old], labels[at], labels[old])
            ]
            pairs += [(at, old, reference) for old in allowed]
            if len(allowed) < len(found):
                refused.append(Refused(at, reference, _NOT_ALLOWED))
    rounds = _in_rounds(rows, pairs)
    refused += [
        Refused(at, reference, _ROUND) for at, old, reference in pairs if (at, old) in rounds
    ]
    kept = tuple((at, old) for at, old, _ in pairs if (at, old) not in rounds)
    return Replacements(kept, tuple(_once(rows, refused)))


_NOTHING = "names nothing here: give an item id, the id alone within its source, or a path"
_NOT_ALLOWED = (
    "is not replaced: the new item needs no less authority and trust, and has to be "
    "shown to all who see the old one"
)
_ROUND = "replaces what replaces it in turn, so neither is replaced: remove one of the entries"


def _once(rows: Sequence[Row], refused: Iterable[Refused]) -> Iterator[Refused]:
    seen: set[tuple[str, str, str, str]] = set()
    for each in refused:
        row = rows[each.row]
        key = (row.tenant, _whole(row.item_id), each.reference, each.reason)
        if key not in seen:
            seen.add(key)
            yield each


def _whole(item_id: str) -> str:
    """Return the document or skill that a part belongs to; anything else is itself."""
    whole, _, number = item_id.rpartition("#")
    return whole if whole and number.isdecimal() else item_id


class _Names:
    """Finds what an entry means, inside one tenant.

    What an entry of an item says of itself is no error.
    """

    def __init__(self, rows: Sequence[Row], naming: Iterable[int]) -> None:
        self._rows = rows
        asked = {(rows[at].kind, rows[at].source) for at in naming}
        self._items: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._paths: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        self._short: dict[tuple[str, str, str, str], dict[str, None]] = defaultdict(dict)
        for at, row in enumerate(rows):
            whole = _whole(row.item_id)
            for item_id in {row.item_id, whole}:
                self._items[(row.tenant, item_id)].append(at)
            if row.path:
                self._paths[(row.tenant, row.source, row.path)].append(at)
            for name in (
                _short_names(row.kind, whole.partition("/")[2])
                if (row.kind, row.source) in asked
                else ()
            ):
                self._short[(row.tenant, row.kind, row.source, name)][whole] = None

    def meant(self, row: Row, reference: str) -> list[int] | str:
        """Return the rows that an entry names, or why it names none."""
        if ":" in reference and self._has(row, reference):
            return self._others(row, self._items[(row.tenant, reference)])
        readings = [
            self._items[(row.tenant, item_id)]
            for item_id in _ids(row, reference)
            if self._has(row, item_id)
        ]
        readings += self._by_path(row, reference)
        if not readings:
            shorts = self._short.get((row.tenant, row.kind, row.source, reference.casefold()), {})
            readings = [self._items[(row.tenant, item_id)] for item_id in shorts]
        things = {
            frozenset(_whole(self._rows[at].item_id) for at in reading) for reading in readings
        }
        if len(things) > 1:
            some = sorted(min(thing) for thing in things if thing)
            return (
                f"means several, {' and '.join(repr(name) for name in some[:3])}: write the "
                "whole id"
            )
        if not things:
            return (
                []
                if _own_version(self._rows, self._items[(row.tenant, row.item_id)], reference)
                else _NOTHING
            )
        return self._others(row, sorted({at for reading in readings for at in reading}))

    def _others(self, row: Row, found: Iterable[int]) -> list[int]:
        own = _whole(row.item_id)
        return [at for at in found if _whole(self._rows[at].item_id) != own]

    def _has(self, row: Row, item_id: str) -> bool:
        return (row.tenant, item_id) in self._items

    def _by_path(self, row: Row, reference: str) -> Iterator[list[int]]:
        """Yield what stands in the file that an entry names, from the record's folder or from the
        project's.

        A record does not replace the others of its own file by naming the file.
        """
        folder = (row.path or "").rpartition("/")[0]
        for path in dict.fromkeys(
            (posixpath.normpath(posixpath.join(folder, reference)), reference)
        ):
            found = self._paths.get((row.tenant, row.source, path))
            if found is not None:
                own = [at for at in found if _whole(self._rows[at].item_id) == _whole(row.item_id)]
                yield own if path == row.path else found


def _ids(row: Row, reference: str) -> Iterator[str]:
    """Yield the item ids that an entry may stand for: written out, without its source, or without
    kind and source.
    """
    yield reference
    kind, colon, rest = reference.partition(":")
    if colon and kind == row.kind:
        yield f"{kind}:{row.source}/{rest}"
    yield f"{row.kind}:{row.source}/{reference}"
    yield f"{row.kind}:{reference}"


def _short_names(kind: str, name: str) -> Iterator[str]:
    """Yield shorter names, in lower case, that stand for an item of a source where no other one has
    them.
    """
    folded = name.casefold()
    last = folded.rpartition("/")[2]
    if kind in FILE_KINDS:
        yield from {folded, last, posixpath.splitext(folded)[0], posixpath.splitext(last)[0]}
    elif kind == ItemKind.TOOL:
        yield from {folded, last}
    else:
        yield from {folded, folded.removeprefix("model.").removeprefix("saved_query.")}


def _own_version(rows: Sequence[Row], chain: Iterable[int], reference: str) -> bool:
    """Whether an entry is an earlier version of its own item, which is replaced without being
    named.
    """
    number = declared_version(reference)
    return number is not None or any(rows[at].version == reference for at in chain)


def _in_rounds(
    rows: Sequence[Row], pairs: Sequence[tuple[int, int, str]]
) -> frozenset[tuple[int, int]]:
    """Return the pairs of items that replace each other, at once or through others."""
    after: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    whole = {at: (rows[at].tenant, _whole(rows[at].item_id)) for pair in pairs for at in pair[:2]}
    for new, old, _ in pairs:
        after[whole[new]].append(whole[old])
    group = _strong_groups(after)
    return frozenset((new, old) for new, old, _ in pairs if group[whole[new]] == group[whole[old]])


def _strong_groups(
    after: dict[tuple[str, str], list[tuple[str, str]]],
) -> dict[tuple[str, str], int]:
    """Return a number for each node, the same for nodes that reach each other (Tarjan, no
    recursion).
    """
    order: dict[tuple[str, str], int] = {}
    low: dict[tuple[str, str], int] = {}
    group: dict[tuple[str, str], int] = {}
    open_nodes: list[tuple[str, str]] = []
    for root in list(after):
        path = [] if root in order else [(root, iter(after[root]))]
        while path:
            node, left = path[-1]
            if node not in order:
                order[node] = low[node] = len(order)
                open_nodes.append(node)
            for following in left:
                if following not in order:
                    path.append((following, iter(after.get(following, ()))))
                    break
                if following not in group:
                    low[node] = min(low[node], order[following])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == order[node]:
                    while node not in group:
                        group[open_nodes.pop()] = order[node]
    return group


def _may_replace(new: Row, old: Row, new_label: ScopeLabel, old_label: ScopeLabel) -> bool:
    """Whether an item may replace another: of no less authority and trust, and for everyone who
    sees the old one.
    """
    if (
        new.kind == ItemKind.TOOL
        and new.item_id.rpartition("/")[0] != old.item_id.rpartition("/")[0]
    ):
        return False  # A server says what its own tools replace, not those of others.
    if new.authority < old.authority or TRUST_RANK[Trust(new.trust)] < TRUST_RANK[Trust(old.trust)]:
        return False
    return replace(new_label, trust=old_label.trust) == old_label or _is_open(new_label, old_label)


def _is_open(new: ScopeLabel, old: ScopeLabel) -> bool:
    """Whether a label lets in everybody of the tenant that another one could."""
    if new.sensitivity is None or old.sensitivity is None:
        return False
    restricted = (
        new.environment is not None
        or new.task_types
        or new.agent_visibility
        or new.also is not None
    )
    closer = (
        SENSITIVITY_RANK[Sensitivity(new.sensitivity)]
        > SENSITIVITY_RANK[Sensitivity(old.sensitivity)]
    )
    return EVERYONE in new.groups and not restricted and not closer
