"""Claims of items that name one subject themselves, compared although their other words differ.

That two authors write the same `subject` is stronger evidence than any wording. Of such items,
claims of one attribute are compared where each document makes one of them, nothing limits one side
alone, and the words left are neither of two parallel things (`for directors`, `for the board`) nor,
in one language, about nothing in common.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import combinations
from typing import Any, Final

from ctx_pipeline.claims.quantities import same_value
from ctx_pipeline.claims.subjects import Audience, Subjects, limited_by
from ctx_pipeline.claims.words import (
    CONCEPTS,
    folded,
    is_filler,
    is_limiter,
    is_mark,
    is_verb,
    words,
)
from ctx_pipeline.contracts import SENSITIVITY_RANK, Sensitivity
from ctx_pipeline.index.rows import Row
from ctx_pipeline.language.word_lists import words_of
from ctx_pipeline.security.visibility import EVERYONE, ScopeLabel

MAX_ROWS: Final = 24
"""Items of one subject above which they are a collection, not statements of one fact; bounds the
pairs to compare."""
MAX_LABELS: Final = 4
"""Times that many items of one subject, over all labels."""
DEFINITION: Final = "definition"
DESCRIBED: Final = "described:formula"
"""The formula that a description is, without the name of what it defines."""

_STANCE: Final = {f"polar:{name}": "stance" for name in ("permit", "enabled", "is", "does")}
_COUNTS: Final = {f"quantity:{name}": "quantity:count" for name in ("number", "times", "people")}
_ALIKE: Final = {**_STANCE, **_COUNTS, DESCRIBED: "formula:words"}
_COMPARED: Final = (
    "quantity:",
    "polar:",
    "one:",
    "include",
    "default",
    "formula:words",
    DESCRIBED,
    DEFINITION,
)
_LEAST_SHARED: Final = 0.6
"""Share of their words that two permissions or switches have in common, to be of one thing."""
_NEIGHBOURS: Final = frozenset(words_of(__file__, "neighbours"))
"""Words of what is around a subject: where one side alone has them, it speaks of something else."""
_VAGUE: Final = frozenset(words_of(__file__, "vague"))
"""Words that tell two definitions apart only where these have no others."""


@dataclass(frozen=True, slots=True)
class _Statement:
    """One claim of an item that names its subject."""

    row: int
    document: str
    attribute: str
    value: str
    object: tuple[str, ...]
    about: str
    topic: tuple[str, ...]
    """Words in order, without the subject's own and those that say nothing."""
    limits: frozenset[str]
    measures: tuple[str, ...]
    """Other quantities beside it, `dimension=value`."""
    chinese: bool


def akin(
    rows: Sequence[Row], claims: Iterable[tuple[int, Mapping[str, Any]]], subjects: Subjects
) -> Iterator[tuple[tuple[int, str], tuple[int, str]]]:
    """Yield two sides, each a row and what it says, that contradict each other of a subject, in a
    fixed order.
    """
    by_subject: dict[tuple[str, str], list[_Statement]] = defaultdict(list)
    for at, claim in claims:
        if not claim["about"] and claim["attribute"].startswith(_COMPARED):
            made = _statement(at, rows[at], claim, subjects.seen_with(rows[at].label))
            if made is not None:
                by_subject[made[0]].append(made[1])
    for key in sorted(by_subject):
        yield from _pairs(_bounded(by_subject[key], rows))


def _bounded(listed: Sequence[_Statement], rows: Sequence[Row]) -> list[_Statement]:
    """Leave out labels under which a subject has more than `MAX_ROWS` items, and bound the others
    together.

    Items are counted with those that the same people may see, and what reaches most people comes
    first, so that what is hidden from somebody silences nothing that they see.
    """
    by_label: dict[ScopeLabel, list[_Statement]] = defaultdict(list)
    for said in listed:
        by_label[rows[said.row].label].append(said)
    kept: list[_Statement] = []
    count = 0
    for label in sorted(by_label, key=lambda label: (closeness(label), repr(label))):
        number = len({said.row for said in by_label[label]})
        if number <= MAX_ROWS and count + number <= MAX_LABELS * MAX_ROWS:
            kept.extend(by_label[label])
            count += number
    return sorted(kept, key=lambda said: said.row)


def closeness(label: ScopeLabel) -> tuple[int, ...]:
    """Return what orders labels so that one never comes before another that lets in all whom it
    lets in.
    """
    rank = (
        len(SENSITIVITY_RANK)
        if label.sensitivity is None
        else SENSITIVITY_RANK[Sensitivity(label.sensitivity)]
    )
    limits = (label.environment is not None, bool(label.task_types), bool(label.agent_visibility))
    return (EVERYONE not in label.groups, rank, *limits)


def _statement(
    at: int, row: Row, claim: Mapping[str, Any], subjects: Audience
) -> tuple[tuple[str, str], _Statement] | None:
    attribute: str = claim["attribute"]
    marked: list[str] = claim["words"].split()
    subject = subjects.own(row)
    defines = attribute == DEFINITION
    said = [word for word in marked if word[0] != "@"]
    named, left = subjects.named(row.tenant, said)
    if subject is None:
        if len(named) != 1 or any(not is_filler(word) and not is_verb(word) for word in left):
            return None
        subject = next(iter(named))
    if (named and subject not in named and defines) or "#by" in marked or "@past" in marked:
        return None
    local = set(words(folded(subject.replace("-", " ").replace(":", " "))))
    _, body = (
        subjects.named(row.tenant, claim["value"].split()) if defines else (set[str](), set[str]())
    )
    topic = tuple(word for word in said if word in left and word not in local and _tells(word))
    limits = {word[1:] for word in marked if word[0] == "@" and len(word) > 1}
    limits |= {word for word in (*said, *claim["object"].split()) if is_limiter(word)} | set(
        limited_by(said)
    )
    kept = frozenset(
        word for word in limits if word not in local and not is_filler(word) and not is_verb(word)
    )
    value = (
        " ".join(sorted(word for word in body if word not in local)) if defines else claim["value"]
    )
    text = claim["said"]
    return (row.tenant, subject), _Statement(
        at,
        row.item_id.partition("#")[0],
        _ALIKE.get(attribute, attribute),
        value,
        tuple(sorted(claim["object"].split())),
        text,
        topic,
        kept,
        tuple(word for word in said if "=" in word),
        any("\u3400" <= char <= "\u9fff" for char in text),
    )


def _tells(word: str) -> bool:
    return (
        not is_mark(word)
        and not is_filler(word)
        and not is_verb(word)
        and word[0] not in "#="
        and "=" not in word
    )


def _pairs(listed: list[_Statement]) -> Iterator[tuple[tuple[int, str], tuple[int, str]]]:
    """Yield each two rows that contradict each other once."""
    one_each: dict[tuple[str, tuple[str, ...]], dict[str, list[_Statement]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for said in listed:
        one_each[said.attribute, said.object][said.document].append(said)
    seen: set[tuple[int, int]] = set()
    for (attribute, _), documents in sorted(one_each.items()):
        clear = [said[0] for said in documents.values() if len({one.value for one in said}) == 1]
        for left, right in combinations(sorted(clear, key=lambda said: said.row), 2):
            if (left.row, right.row) not in seen and _differ(attribute, left, right):
                seen.add((left.row, right.row))
                yield (left.row, left.about), (right.row, right.about)


def _differ(attribute: str, left: _Statement, right: _Statement) -> bool:
    if left.value == right.value or not _equally_limited(left, right) or _sets_apart(left, right):
        return False
    if attribute == DEFINITION:
        return _other_definition(left, right)
    if attribute in _WORDED and left.chinese != right.chinese and not _translated(left, right):
        return False
    if attribute == "formula:words" and not _other_formula(left.value, right.value):
        return False
    if attribute.startswith("quantity:") and same_value(left.value, right.value):
        return False
    return _of_one_thing(left, right, strict=attribute.startswith(("stance", "polar:")))


_RHYTHMS: Final = frozenset(
    word
    for name in ("daily", "weekly", "monthly", "quarterly", "yearly", "annual")
    for word in words(name)
)
_WORDED: Final = ("formula:words", "one:basis")
"""Attributes whose values are words, which two languages share only where both know them."""


def _translated(left: _Statement, right: _Statement) -> bool:
    parts = (word for side in (left, right) for word in re.split(r"[-+*/ ]", side.value))
    return all(word in CONCEPTS for word in parts if word)


def _other_formula(left: str, right: str) -> bool:
    """Whether operands or signs differ; `paid orders` for `orders` is more detail."""
    if re.findall(r"[-+*/]", left) != re.findall(r"[-+*/]", right):
        return True
    operands = zip(re.split(r"[-+*/]", left), re.split(r"[-+*/]", right), strict=True)
    pairs = [(set(one.split()), set(other.split())) for one, other in operands]
    return any(one - other and other - one for one, other in pairs)


def _equally_limited(left: _Statement, right: _Statement) -> bool:
    """Whether nothing limits one side of which the other does not speak at all."""
    dimensions = {measure.partition("=")[0]: measure for measure in left.measures}
    if any(dimensions.get(other.partition("=")[0], other) != other for other in right.measures):
        return False
    rhythms = [_RHYTHMS.intersection(side.topic) for side in (left, right)]
    if all(rhythms) and rhythms[0] != rhythms[1]:
        return False
    mixed = left.chinese != right.chinese
    for one, other in ((left, right), (right, left)):
        spoken = other.limits | set(other.topic) | set(other.value.split())
        if any(word not in spoken and (not mixed or _in_both(word)) for word in one.limits):
            return False
    return True


def _in_both(word: str) -> bool:
    return word in CONCEPTS or is_limiter(word) or word[:4].isdigit()


def _sets_apart(left: _Statement, right: _Statement) -> bool:
    one = _NEIGHBOURS.intersection((*left.topic, *left.value.split()))
    other = _NEIGHBOURS.intersection((*right.topic, *right.value.split()))
    return one != other


def _of_one_thing(left: _Statement, right: _Statement, *, strict: bool) -> bool:
    one, other = set(left.topic), set(right.topic)
    if left.chinese != right.chinese:
        return True
    if not one or not other:
        return len(one | other) <= (4 if left.chinese else 2 if not strict else 1)
    shared = len(one & other)
    if not shared or (strict and shared < _LEAST_SHARED * len(one | other)):
        return False
    return not _parallel(left.topic, right.topic)


def _parallel(left: tuple[str, ...], right: tuple[str, ...]) -> bool:
    """Two sentences with another word in the same place, and only there, are about two things of a
    kind.
    """
    changes = [
        op
        for op in SequenceMatcher(None, left, right, autojunk=False).get_opcodes()
        if op[0] != "equal"
    ]
    shared = len(set(left) & set(right))
    return len(changes) == 1 and changes[0][0] == "replace" and shared > 1


def _other_definition(left: _Statement, right: _Statement) -> bool:
    """Whether each defines by something that the other does not name: more detail is no
    contradiction.
    """
    if (
        left.topic
        and right.topic
        and set(left.topic) != set(right.topic)
        and left.chinese == right.chinese
    ):
        return False
    one, other = set(left.value.split()), set(right.value.split())
    if left.chinese != right.chinese:
        one, other = one & CONCEPTS, other & CONCEPTS
    if not one & other:
        return False
    vague: frozenset[str] = frozenset() if len(one | other) <= 4 else _VAGUE
    return bool(one - other - vague) and bool(other - one - vague)
