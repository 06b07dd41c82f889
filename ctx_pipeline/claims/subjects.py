"""What words are about: metrics and glossary terms by any of their names, tables and columns, inside one tenant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

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

if TYPE_CHECKING:
    import pyarrow as pa

_SCHEMA = ItemKind.SCHEMA.value


class Subjects:
    """Finds what words and columns are about, inside one tenant."""

    def __init__(self, rows: Sequence[Row], names: pa.ChunkedArray) -> None:
        self._of_name: dict[tuple[str, str], str] = {}
        self._terms: dict[tuple[str, str], list[tuple[tuple[str, ...], str]]] = defaultdict(list)
        self._schema = {
            (row.tenant, row.subject.lower()) for row in rows if row.kind == _SCHEMA and row.subject
        }
        self._canonical: dict[tuple[str, str], str] = {}
        self._read(rows, names)

    def _read(self, rows: Sequence[Row], names: pa.ChunkedArray) -> None:
        shared: dict[tuple[str, str], set[str]] = defaultdict(set)
        own: dict[tuple[str, str], set[str]] = defaultdict(set)
        titles: dict[tuple[str, str], str] = {}
        for row, listed in _named(rows, names):
            subject = (row.subject or f"{row.kind}:{row.title}").lower()
            # A metric and a glossary term of one name are one subject.
            first = titles.setdefault((row.tenant, folded(row.title)), subject)
            self._canonical[row.tenant, subject] = first
            own[row.tenant, listed[0]].add(first)
            for name in listed:
                shared[row.tenant, name].add(first)
        for row in rows:
            local = (row.subject or "").rpartition(":")[2].replace("-", " ").replace("_", " ")
            if " " in local:
                shared[row.tenant, _name(local)].add(self._subject(row.tenant, row.subject or ""))
        for (tenant, name), subjects in shared.items():
            # What one has as its own name is no synonym of another.
            meant = own.get((tenant, name)) or subjects
            if len(meant) == 1 and _is_telling(name):
                self._add(tenant, name, next(iter(meant)))
        for terms in self._terms.values():
            terms.sort(key=lambda term: (-len(term[0]), term))

    def _add(self, tenant: str, name: str, subject: str) -> None:
        self._of_name[tenant, name] = subject
        parts = tuple(name.split())
        self._terms[tenant, parts[0]].append((parts, subject))

    def _subject(self, tenant: str, written: str) -> str:
        subject = written.lower()
        return self._canonical.get((tenant, subject), subject)

    def own(self, row: Row) -> str | None:
        """Return the subject that an item names itself; a bare name stands for the term of that name."""
        if row.subject is None or row.kind == _SCHEMA:
            return None
        if ":" not in row.subject:
            return self._of_name.get((row.tenant, _name(row.subject))) or row.subject.lower()
        return self._subject(row.tenant, row.subject)

    def column(self, tenant: str, written: str) -> str:
        """Return the table or column that is meant, without the schema or catalogue that a text may put before it."""
        name = written.removeprefix("schema:")
        while (tenant, f"schema:{name}") not in self._schema and name.count(".") > 1:
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
            for name, subject in self._terms.get((tenant, said[at]), ()):
                if tuple(said[at : at + len(name)]) == name:
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


def _named(rows: Sequence[Row], names: pa.ChunkedArray) -> Iterator[tuple[Row, list[str]]]:
    """Yield the rows that have names, with them."""
    import pyarrow.compute as pc

    for at in cast("list[int]", pc.indices_nonzero(pc.list_value_length(names)).to_pylist()):
        yield rows[at], cast("list[str]", names[at].as_py())


def _name(text: str) -> str:
    return " ".join(words(folded(text)))


def _limits_before(part: Sequence[str]) -> list[str]:
    """Return what limits a subject before it is named: words that touch it, `for` and `in` what, whom and where."""
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
    """Return what limits a subject after its name: how the name goes on, `for` and `in` what, other quantities."""
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
    """Return how a name goes on: `refund window review` is another thing; a single Chinese character is a verb."""
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
