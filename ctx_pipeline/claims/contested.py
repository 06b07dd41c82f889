"""Which claims of a whole index contradict each other: the columns that serving looks conflicts up
in.

Two claims contradict when they give one attribute of one subject, in the same words otherwise,
different values. The subject is what the item names (`subject`), and every metric or glossary term,
table or column that the claim names, in either language. Claims of one document never contradict
each other, and neither do two databases' own schemas.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from ctx_pipeline.claims.kin import DEFINITION, DESCRIBED, akin, closeness
from ctx_pipeline.claims.quantities import same_value
from ctx_pipeline.claims.subjects import Audience, Subjects
from ctx_pipeline.claims.words import folded, is_filler, is_verb, words
from ctx_pipeline.contracts import ItemKind
from ctx_pipeline.index.rows import Row
from ctx_pipeline.security.visibility import ScopeLabel

if TYPE_CHECKING:
    import pyarrow as pa

MAX_DOCUMENTS: Final = 8
"""Documents that the same people may see and that may make a claim in the same words without naming
a subject; above it the words are boilerplate."""
MAX_VALUES: Final = 4
"""Values of such a claim; above it the words are a form that is filled in anew each time."""
MAX_SUBJECT_VALUES: Final = 12
"""Values of a claim about a named subject; above it they are measurements, not statements."""
MAX_TITLE_WORDS: Final = 12

_SCHEMA = ItemKind.SCHEMA.value
_LETTER = re.compile(r"(?<![\w'’.-])[a-z](?![\w'’.-])")
_TITLE_FILLERS: Final = frozenset(
    {"faq", "draft", "overview", "manual", "summary", "intro", "help", "center", "page"}
)

Key = tuple[str, str, tuple[str, ...], tuple[str, ...]]
"""Tenant, attribute, subjects and words, object."""


@dataclass(frozen=True, slots=True)
class _Said:
    """One claim of one row under its key."""

    row: int
    document: str
    value: str
    about: str
    """What it is about in the row's own words."""
    subject: bool
    """Whether a subject is named."""


def contested_table(rows: Sequence[Row], claims: pa.Table, live: Set[int]) -> pa.Table:
    """Return, for each row, its claims that another document contradicts, as numbers.

    Columns: claim_keys and claim_values (one number each for a claim, keys ascending; equal keys
    with different values contradict), claim_about (what it is about, in the row's own words).
    `claims` is that of `claims_table`, row by row; `live` are the newest versions that nobody has
    withdrawn: only these decide which words are no statement.
    """
    import pyarrow as pa

    keys: list[list[int]] = [[] for _ in rows]
    values: list[list[int]] = [[] for _ in rows]
    abouts: list[list[str]] = [[] for _ in rows]
    for number, group in enumerate(_contested(rows, claims, live)):
        for said, value in group:
            keys[said.row].append(number)
            values[said.row].append(value)
            abouts[said.row].append(said.about)
    numbers = pa.list_(pa.field("item", pa.int32()))
    texts = pa.large_list(pa.field("item", pa.large_string()))
    return pa.table(
        {
            "claim_keys": pa.array(keys, numbers),
            "claim_values": pa.array(values, numbers),
            "claim_about": pa.array(abouts, texts),
        }
    )


def _contested(
    rows: Sequence[Row], claims: pa.Table, live: Set[int]
) -> Iterator[list[tuple[_Said, int]]]:
    """Yield groups of claims of which some contradict each other, in a fixed order, with the number
    of the value.
    """
    subjects = Subjects(rows, claims.column("names"), live)
    by_key = _by_key(rows, claims, subjects)
    found: dict[int, dict[int, int]] = defaultdict(dict)
    number = 0
    for key in sorted(by_key):
        group = _stated(
            [said for said in by_key[key] if _is_of_one_database(said, key, rows, subjects)],
            rows,
            live,
        )
        if len({said.value for said in group}) < 2 or len({said.document for said in group}) < 2:
            continue
        for part in _comparable(group, rows):
            numbered = _numbered(part, rows, quantity=key[1].startswith("quantity:"))
            if numbered:
                number += 1
                for said, value in numbered:
                    if rows[said.row].subject is not None:
                        found[said.row][number] = value
                yield numbered
    for one, other in akin(
        rows, ((at, claim) for at, claim in _each(claims) if at in live), subjects
    ):
        documents = [rows[at].item_id.partition("#")[0] for at, _ in (one, other)]
        letters = {_letters(folded(rows[at].title)) for at, _ in (one, other)} - {""}
        if (
            not _is_found(found[one[0]], found[other[0]])
            and documents[0] != documents[1]
            and len(letters) < 2
        ):
            sides = zip((one, other), documents, strict=True)
            yield [
                (_Said(at, name, "", about, True), value)
                for value, ((at, about), name) in enumerate(sides)
            ]


def _is_found(one: Mapping[int, int], other: Mapping[int, int]) -> bool:
    """Return whether two rows, by their values in the groups they are in, contradict each other in
    one of them.
    """
    return any(other.get(group, value) != value for group, value in one.items())


def _is_of_one_database(said: _Said, key: Key, rows: Sequence[Row], subjects: Subjects) -> bool:
    """Return whether no table or column that a claim is about is described by two sources: these
    are two databases.
    """
    audience = subjects.seen_with(rows[said.row].label)
    return all(audience.sources(key[0], name) < 2 for name in key[2])


def _by_key(rows: Sequence[Row], claims: pa.Table, subjects: Subjects) -> dict[Key, list[_Said]]:
    by_key: dict[Key, list[_Said]] = defaultdict(list)
    for at, claim in _each(claims):
        if claim["attribute"] in (DEFINITION, DESCRIBED):
            continue
        row = rows[at]
        made = _keyed(claim, row, subjects.seen_with(row.label))
        if made is not None:
            key, named, about = made
            by_key[key].append(
                _Said(at, row.item_id.partition("#")[0], claim["value"], about, named)
            )
    return by_key


def _each(claims: pa.Table) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each claim with its row."""
    import pyarrow.compute as pc

    for start, chunk in _chunks(claims.column("claims")):
        flat = chunk.flatten()
        names = [field.name for field in flat.type]
        columns = [cast("list[Any]", flat.field(name).to_pylist()) for name in names]
        parents = cast("list[int]", pc.list_parent_indices(chunk).to_pylist())
        for at, *values in zip(parents, *columns, strict=True):
            yield start + at, dict(zip(names, values, strict=True))


def _chunks(column: pa.ChunkedArray) -> Iterator[tuple[int, Any]]:
    start = 0
    for chunk in column.chunks:
        yield start, chunk
        start += len(chunk)


def _keyed(claim: Mapping[str, Any], row: Row, subjects: Audience) -> tuple[Key, bool, str] | None:
    """Return the key of a claim, whether it names a subject, and what it is about; None if it says
    too little.
    """
    attribute: str = claim["attribute"]
    said = [word for word in claim["words"].split() if word[0] != "@"]
    limits = [word[1:] for word in claim["words"].split() if word[0] == "@" and len(word) > 1]
    if claim["about"]:
        named, rest = {subjects.column(row.tenant, claim["about"])}, set(limits)
    else:
        named, rest = subjects.named(row.tenant, said, narrow=attribute.startswith(_NARROW))
        also, limiting = subjects.named(row.tenant, limits)
        named, rest = named | also, rest | {word for word in limiting if not is_verb(word)}
        own = subjects.own(row)
        if own is not None:
            named.add(own)
            rest -= set(words(folded(own.rpartition(":")[2])))
    rest = {word for word in rest if not is_filler(word)}
    things, others = subjects.named(row.tenant, claim["object"].split())
    if not named and not _says_enough(attribute, rest, loose=claim["loose"]):
        return None
    key = (row.tenant, attribute, tuple(sorted(named | rest)), tuple(sorted(things | others)))
    return key, bool(named), claim["about"] or claim["said"]


_NARROW: Final = ("quantity", "include", "formula", "default")
"""Attributes whose value belongs to the subject itself, so that only what limits the subject
matters beside it."""
_LEAST_WORDS: Final = {
    "include": 1,
    "formula:words": 2,
    "formula:code": 2,
    "formula:literal": 4,
    "quantity": 2,
    "default": 2,
    "one": 2,
}


def _says_enough(attribute: str, rest: set[str], *, loose: bool) -> bool:
    if loose or attribute == "quantity:date" or attribute.startswith("field:"):
        return False
    least = _LEAST_WORDS.get(attribute, _LEAST_WORDS.get(attribute.partition(":")[0], 3))
    return (
        sum(len(word) > 1 or not word.isascii() for word in rest if not word[0].isdigit()) >= least
    )


def _stated(group: list[_Said], rows: Sequence[Row], live: Set[int]) -> list[_Said]:
    """Leave out what is no statement: words that too many documents say, or fill with too many
    values.

    Documents are counted with those that the same people may see, so that what is hidden from
    somebody silences nothing that they see. What reaches most people comes first.
    """
    by_label: dict[ScopeLabel, list[_Said]] = defaultdict(list)
    for said in group:
        by_label[rows[said.row].label].append(said)
    stated = [said for part in by_label.values() if _is_statement(part, live) for said in part]
    return sorted(stated, key=lambda said: (closeness(rows[said.row].label), said.document))


def _is_statement(group: Sequence[_Said], live: Set[int]) -> bool:
    counted = [said for said in group if said.row in live]
    found = len({said.value for said in counted})
    if all(said.subject for said in group):
        return found <= MAX_SUBJECT_VALUES
    return len({said.document for said in counted}) <= MAX_DOCUMENTS and found <= MAX_VALUES


def _comparable(group: list[_Said], rows: Sequence[Row]) -> Iterator[list[_Said]]:
    """Yield the parts of a group whose documents are about one thing.

    The titles tell: `Service A` and `Service B` are about two; so are `Handbook East` and
    `Handbook West` where no subject is named.
    """
    if all(said.subject for said in group):
        yield from _by_letter(group, rows)
        return
    titles = {said.document: _title_words(rows[said.row].title) for said in group}
    left = list(titles)
    while left:
        together = [other for other in left if not _parallel(titles[left[0]], titles[other])]
        if len(together) > 1:
            yield [said for said in group if said.document in together]
        left = [other for other in left if other not in together]


def _by_letter(group: list[_Said], rows: Sequence[Row]) -> Iterator[list[_Said]]:
    """Yield the parts of a group whose titles have one letter that stands alone; what has none
    belongs to each.
    """
    letters = {said.row: _letters(folded(rows[said.row].title)) for said in group}
    named = sorted(set(letters.values()) - {""})
    for letter in named if len(named) > 1 else [""]:
        yield [said for said in group if letter == "" or letters[said.row] in ("", letter)]


def _letters(title: str) -> str:
    """Return the letters that stand alone in a title beside other words."""
    return "".join(sorted(set(_LETTER.findall(title)))) if len(title.split()) > 1 else ""


def _title_words(title: str) -> frozenset[str]:
    found = [word for word in words(folded(title))[:MAX_TITLE_WORDS] if not is_filler(word)]
    return frozenset(found) - _TITLE_FILLERS


def _parallel(left: frozenset[str], right: frozenset[str]) -> bool:
    """Two titles that share words and each say one more name two things of a kind."""
    if not left & right:
        return False
    return any(not _is_edition(word) for word in left - right) and any(
        not _is_edition(word) for word in right - left
    )


def _is_edition(word: str) -> bool:
    return word.removeprefix("v").replace(".", "").isdigit() or word in (
        "版",
        "version",
        "edit",
        "edition",
    )


def _numbered(
    group: list[_Said], rows: Sequence[Row], *, quantity: bool
) -> list[tuple[_Said, int]]:
    """Number the values of a group; empty where nothing in it contradicts anything else.

    A document that gives two values speaks of something finer than its words show, and takes no
    part.
    """
    nearest: dict[str, tuple[int, ...]] = {}
    for said in group:
        nearest.setdefault(said.value, closeness(rows[said.row].label))
    classes = _classes(
        sorted(nearest, key=lambda value: (nearest[value], value)), quantity=quantity
    )
    spoken: dict[tuple[str, str], set[int]] = defaultdict(set)
    for said in group:
        spoken[said.document, rows[said.row].version].add(classes[said.value])
    clear = [said for said in group if len(spoken[said.document, rows[said.row].version]) == 1]
    once: dict[int, _Said] = {}
    for said in clear:
        once.setdefault(said.row, said)
    if not _contradicts(
        [(said.document, rows[said.row].kind, classes[said.value]) for said in once.values()]
    ):
        return []
    return [(said, classes[said.value]) for said in once.values()]


def _contradicts(sides: Iterable[tuple[str, str, int]]) -> bool:
    """Return whether two documents give two values, other than two schemas, which are two
    databases.
    """
    listed = sorted(set(sides))
    first = listed[0] if listed else ("", "", 0)
    others = [side for side in listed if side[2] != first[2]]
    kinds = {side[1] for side in listed}
    return bool(others) and len({side[0] for side in listed}) > 1 and kinds != {_SCHEMA}


def _classes(values: Sequence[str], *, quantity: bool) -> dict[str, int]:
    """Return a number for each value; roundings of one number share it."""
    numbers: dict[str, int] = {}
    leaders: list[str] = []
    for value in values:
        near = (at for at, leader in enumerate(leaders) if quantity and same_value(value, leader))
        number = next(near, len(leaders))
        if number == len(leaders):
            leaders.append(value)
        numbers[value] = number
    return numbers
