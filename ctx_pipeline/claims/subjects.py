"""What words are about: metrics and glossary terms by any of their names, tables and columns,
inside one tenant.

Which subject a name stands for, and whether it stands for one alone, is said by the items that
everybody may see who may see the words: what is hidden from one of them gives no name a meaning and
takes none away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple, cast

from ctx_pipeline.claims.words import (
    CONCEPTS,
    folded,
    is_filler,
    is_limiter,
    is_mark,
    is_verb,
    words,
)
from ctx_pipeline.contracts import ItemKind
from ctx_pipeline.index.rows import Row
from ctx_pipeline.security.visibility import EVERYONE, ScopeLabel, is_within

if TYPE_CHECKING:
    import pyarrow as pa

_SCHEMA = ItemKind.SCHEMA.value

Key = tuple[str, str]
"""Tenant, and a name, title or subject."""
Labels = frozenset[ScopeLabel]


class _Name(NamedTuple):
    """One item that goes by a name."""

    label: ScopeLabel
    subject: str
    """As the item writes it."""
    title: str | None
    """Folded title; None where the name is that of a subject that an item names."""
    own: bool
    """Whether it is the item's own name, which is no synonym of another."""


class Subjects:
    """The names of all subjects, each with the labels of the items that say so."""

    def __init__(self, rows: Sequence[Row], names: pa.ChunkedArray, counted: Set[int]) -> None:
        self.schema: dict[Key, set[ScopeLabel]] = defaultdict(set)
        self.sources: dict[Key, set[tuple[ScopeLabel, str]]] = defaultdict(set)
        """Sources that describe a table or column."""
        self.names: dict[Key, list[_Name]] = defaultdict(list)
        self.by_title: dict[Key, list[tuple[ScopeLabel, str]]] = defaultdict(list)
        self.by_subject: dict[Key, list[tuple[ScopeLabel, str]]] = defaultdict(list)
        self.beginnings: dict[Key, list[tuple[str, ...]]] = defaultdict(list)
        """By first word: names as words, the longest first."""
        self._audiences: dict[Labels, Audience] = {}
        self._of_label: dict[ScopeLabel, Audience] = {}
        self._read(rows, names, counted)
        speaking = {at for at, row in enumerate(rows) if row.subject is not None}.union(
            _listed(names)
        ) & counted
        self._labels = _ByReader({rows[at].label for at in speaking})

    def _read(self, rows: Sequence[Row], names: pa.ChunkedArray, counted: Set[int]) -> None:
        for at in _listed(names):
            row = rows[at]
            if at not in counted:
                continue
            subject, title = (row.subject or f"{row.kind}:{row.title}").lower(), folded(row.title)
            self.by_title[row.tenant, title].append((row.label, subject))
            self.by_subject[row.tenant, subject].append((row.label, title))
            for place, name in enumerate(cast("list[str]", names[at].as_py())):
                self._add(row.tenant, name, _Name(row.label, subject, title, own=not place))
        for at, row in enumerate(rows):
            if at not in counted or not row.subject:
                continue
            if row.kind == _SCHEMA:
                self.schema[row.tenant, row.subject.lower()].add(row.label)
                self.sources[row.tenant, row.subject.lower()].add((row.label, row.source))
            local = row.subject.rpartition(":")[2].replace("-", " ").replace("_", " ")
            if " " in local:
                self._add(
                    row.tenant, _name(local), _Name(row.label, row.subject.lower(), None, own=False)
                )
        for known in self.beginnings.values():
            known.sort(key=lambda parts: (-len(parts), parts))

    def _add(self, tenant: str, name: str, said: _Name) -> None:
        if (tenant, name) not in self.names and _is_telling(name):
            parts = tuple(name.split())
            self.beginnings[tenant, parts[0]].append(parts)
        self.names[tenant, name].append(said)

    def seen_with(self, label: ScopeLabel) -> Audience:
        """Return what names mean to everybody who may see what has a label."""
        found = self._of_label.get(label)
        if found is None:
            seen = self._labels.seen_with(label)
            found = self._of_label[label] = self._audiences.setdefault(seen, Audience(self, seen))
        return found


class _ByReader:
    """Labels by whom they let in, so that few are compared with each other."""

    def __init__(self, labels: Iterable[ScopeLabel]) -> None:
        self._by_name: dict[Key, set[ScopeLabel]] = defaultdict(set)
        for label in labels:
            for key in self._keys(label):
                self._by_name[key].add(label)

    def seen_with(self, label: ScopeLabel) -> Labels:
        """Return the labels that let in everybody whom this one lets in."""
        keys = {("group", EVERYONE), *self._keys(label)}
        near = {other for key in keys for other in self._by_name.get(key, ())}
        return frozenset(other for other in near if is_within(label, other))

    @staticmethod
    def _keys(label: ScopeLabel) -> Iterator[Key]:
        yield from (("group", name) for name in label.groups)
        yield from (("principal", name) for name in label.principals)


class Audience:
    """What names mean to those who see some labels."""

    def __init__(self, subjects: Subjects, seen: Labels) -> None:
        self._subjects = subjects
        self._seen = seen
        self._meanings: dict[Key, str | None] = {}

    def sources(self, tenant: str, subject: str) -> int:
        """Return how many sources describe a table or column of a name."""
        said = self._subjects.sources.get((tenant, subject), ())
        return len({source for label, source in said if label in self._seen})

    def _meaning(self, tenant: str, name: str) -> str | None:
        """Return the one subject that a name stands for; None where there is none, or several."""
        key = tenant, name
        if key not in self._meanings:
            said = [one for one in self._subjects.names.get(key, ()) if one.label in self._seen]
            # What one has as its own name is no synonym of another.
            said = [one for one in said if one.own] or said
            meant = {self._first(tenant, one.title, one.subject) for one in said}
            self._meanings[key] = next(iter(meant)) if len(meant) == 1 else None
        return self._meanings[key]

    def _first(self, tenant: str, title: str | None, subject: str) -> str:
        """Return the subject of the first item of a title: a metric and a glossary term of one name
        are one subject.
        """
        if title is None:
            return self._subject(tenant, subject)
        said = self._subjects.by_title[tenant, title]
        return next((first for label, first in said if label in self._seen), subject)

    def _subject(self, tenant: str, written: str) -> str:
        subject = written.lower()
        said = self._subjects.by_subject.get((tenant, subject), ())
        titles = [title for label, title in said if label in self._seen]
        return self._first(tenant, titles[-1], subject) if titles else subject

    def own(self, row: Row) -> str | None:
        """Return the subject that an item names itself; a bare name stands for the term of that
        name.
        """
        if row.subject is None or row.kind == _SCHEMA:
            return None
        if ":" not in row.subject:
            name = _name(row.subject)
            return (
                self._meaning(row.tenant, name) if _is_telling(name) else None
            ) or row.subject.lower()
        return self._subject(row.tenant, row.subject)

    def column(self, tenant: str, written: str) -> str:
        """Return the table or column that is meant, without the schema or catalogue that a text may
        put before it.
        """
        name = written.removeprefix("schema:")
        while name.count(".") > 1 and self._seen.isdisjoint(
            self._subjects.schema.get((tenant, f"schema:{name}"), ())
        ):
            name = name.partition(".")[2]
        return f"schema:{name}"

    def named(
        self, tenant: str, said: Sequence[str], *, narrow: bool = False
    ) -> tuple[set[str], set[str]]:
        """Return the subjects that words name, and the words that are left.

        With `narrow`, of the words around a subject only those that limit it.
        """
        if not said:
            return set(), set()
        subjects: dict[str, None] = {}
        parts: list[list[str]] = [[]]
        at = 0
        while at < len(said):
            for name in self._subjects.beginnings.get((tenant, said[at]), ()):
                if tuple(said[at : at + len(name)]) != name:
                    continue
                subject = self._meaning(tenant, " ".join(name))
                if subject is not None:
                    subjects.setdefault(subject)
                    parts.append([])
                    at += len(name)
                    break
            else:
                parts[-1].append(said[at])
                at += 1
        if narrow and subjects:
            left = [
                *_limits_before(parts[0]),
                *(word for part in parts[1:] for word in _limits_after(part)),
            ]
        else:
            left = [word for part in parts for word in part]
        return set(subjects), {word for word in left if not is_mark(word)}


def _listed(names: pa.ChunkedArray) -> list[int]:
    """Return the rows that have names."""
    import pyarrow.compute as pc

    return cast("list[int]", pc.indices_nonzero(pc.list_value_length(names)).to_pylist())


def _name(text: str) -> str:
    return " ".join(words(folded(text)))


def _limits_before(part: Sequence[str]) -> list[str]:
    """Return what limits a subject before it is named: words that touch it, `for` and `in` what,
    whom and where.
    """
    start = max((at + 1 for at, word in enumerate(part) if word == "<that"), default=0)
    part = part[start:]
    touching = next(
        (at for at in range(len(part), 0, -1) if is_mark(part[at - 1]) or is_verb(part[at - 1])), 0
    )
    found = [word for word in part[:touching] if is_limiter(word)]
    found.extend(part[touching:])
    found.extend(limited_by(part))
    return found


def limited_by(part: Sequence[str]) -> list[str]:
    """Return what stands behind `for`, `in` and the like."""
    return [
        found
        for at, word in enumerate(part)
        if word == "<for"
        for found in _named_after(part[at + 1 :])
    ]


def _named_after(part: Sequence[str]) -> list[str]:
    """Return the words up to the next small word, after an article."""
    found: list[str] = []
    for at, word in enumerate(part):
        if is_mark(word) and (at > 0 or word != "_"):
            break
        if is_verb(word):
            break
        if word != "_":
            found.append(word)
    return found


_EVERY = frozenset({"all", "everi", "each", "ani", "~全部", "~所有", "~每个"})
"""What follows them limits nothing: `across all categories`."""


def _limits_after(part: Sequence[str]) -> list[str]:
    """Return what limits a subject after its name: how the name goes on, `for` and `in` what, other
    quantities.
    """
    found = _head(part)
    taking = False
    after_value = False
    for at, word in enumerate(part):
        if word == "<for":
            taking = True
        elif word == "<of":
            # What a time is counted from: `30 days of delivery`.
            taking = not after_value
        elif word in ("<is", "<q", "<that") or (is_verb(word) and not is_mark(word)):
            taking = False
        elif word == "_":
            taking = taking and part[at - 1] in ("<for", "<of")
        elif taking and word in _EVERY:
            taking = False
        elif taking or word[0] == "#" or "=" in word:
            found.append(word)
        after_value = word == "<q"
    return found


def _head(part: Sequence[str]) -> list[str]:
    """Return how a name goes on: `refund window review` is another thing; a single Chinese
    character is a verb.
    """
    found: list[str] = []
    for word in part:
        if is_mark(word) or is_verb(word) or word[0] == "#" or "=" in word:
            break
        found.append(word)
    return [] if len(found) == 1 and not found[0].isascii() else found


def _is_telling(name: str) -> bool:
    """A single everyday word is no name that a text can be recognised by."""
    parts = name.split()
    return len(parts) > 1 or (len(name) >= 2 and name not in CONCEPTS and not is_filler(name))
