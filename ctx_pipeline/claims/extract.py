"""What an item version claims: values of attributes, as small rows that can be compared without
reading the text.

A claim is an attribute (how long, includes, defaults to, must, column type ...), the words that say
of what, and a value. Which subject the words mean is settled where all items are known
(`contested.py`); nothing here looks beyond the item, so a build keeps the claims of a version under
its hash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ctx_pipeline.claims.columns import schema_item_claims, schema_text_claims
from ctx_pipeline.claims.defined import defining_words, definition
from ctx_pipeline.claims.kin import DEFINITION, DESCRIBED
from ctx_pipeline.claims.sentences import Clause, clauses
from ctx_pipeline.claims.values import clause_claims, described_formula, plain_code
from ctx_pipeline.claims.words import folded, marked, words
from ctx_pipeline.contracts import ItemKind

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.contracts import ContextItem

STATING: Final = frozenset(
    {
        ItemKind.DOCUMENT,
        ItemKind.WEB,
        ItemKind.MEMORY,
        ItemKind.METRIC,
        ItemKind.GLOSSARY,
        ItemKind.SCHEMA,
    }
)
"""Kinds that state facts. What instructs (policies, instructions, skills) is not overruled by a
comparison of texts."""
MAX_CLAIMS: Final = 48
"""Claims kept of one item version, first come first; a chunk of 2 kB has fewer than 20."""
MAX_CHARS: Final = 20_000
MAX_SAID_CHARS: Final = 80
_DEFINING: Final = frozenset({ItemKind.METRIC, ItemKind.GLOSSARY})
_KEYED = re.compile(r"^([a-z][a-z_]*): (.+)$", re.MULTILINE)
_FIELDS: Final = (
    "expression",
    "expr",
    "filters",
    "filter",
    "agg",
    "unit",
    "numerator",
    "denominator",
    "measure",
)


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim of an item, not yet tied to a subject."""

    attribute: str
    value: str
    words: tuple[str, ...]
    """The words it is about, in order (`claim_words.words`)."""
    object: tuple[str, ...] = ()
    """What is included or left out, for claims of that."""
    about: str = ""
    """The subject, where the text names a table or column."""
    said: str = ""
    """The clause, short."""
    loose: bool = False
    """From a table, a list of keys or a heading, which say nothing without their surroundings."""


def claims_of(item: ContextItem) -> list[Claim]:
    """Return the claims of an item in the order of its text, each once, at most `MAX_CLAIMS`."""
    if item.kind not in STATING or not item.content:
        return []
    found = dict.fromkeys(_claims(item))
    return list(found)[:MAX_CLAIMS]


def _claims(item: ContextItem) -> Iterator[Claim]:
    text = folded((item.content or "")[:MAX_CHARS])
    if item.kind is ItemKind.SCHEMA:
        for attribute, value, about in schema_item_claims(text):
            yield Claim(attribute, value, (), about=about)
        return
    if item.kind is ItemKind.METRIC and text.startswith("metric: "):
        for name, value in _KEYED.findall(text):
            if name in _FIELDS:
                yield Claim(f"field:{name}", plain_code(value), (), said=f"{name} of {item.title}")
        described = [value for name, value in _KEYED.findall(text) if name == "description"]
        text = described[0] if described else ""
        yield from _described(text)
    if item.kind is ItemKind.GLOSSARY:
        yield from _described(text.partition(": ")[2])
    defining = item.kind in _DEFINING or item.subject is not None
    title = folded(item.title) if item.kind is ItemKind.DOCUMENT else ""
    for clause in clauses(text, title):
        yield from _of_clause(clause, defining=defining)


def _described(text: str) -> Iterator[Claim]:
    """Yield the definition that the first sentence of a metric's or a term's description is."""
    first = re.split(r"(?<=[.;])\s|[。;；]", text, maxsplit=1)[0]
    parts = re.split(r"[,，:：]", first)[:2]
    formula = next(filter(None, map(described_formula, parts)), None)
    if formula is not None:
        yield Claim(DESCRIBED, formula, (), said=first[:MAX_SAID_CHARS])
    elif definition(first) is None and (value := defining_words(first)):
        yield Claim(DEFINITION, value, (), said=first[:MAX_SAID_CHARS])


def _of_clause(clause: Clause, *, defining: bool) -> Iterator[Claim]:
    schema = list(schema_text_claims(clause.text))
    for attribute, value, about in schema:
        yield Claim(attribute, value, clause.scope, about=about)
    if schema:
        return
    values = list(clause_claims(clause.text, defining=defining or bool(clause.scope)))
    defined = definition(clause.text)
    if defined is not None and not any(found.attribute.startswith("formula:") for found in values):
        value, head = defined
        about = (*marked(head), *clause.scope)
        yield Claim(DEFINITION, value, about, said=clause.text[:MAX_SAID_CHARS], loose=clause.loose)
    for found in values:
        about = (*marked(found.about), *found.more, *clause.scope)
        said = clause.text[:MAX_SAID_CHARS]
        yield Claim(
            found.attribute,
            found.value,
            about,
            tuple(words(found.object)),
            said=said,
            loose=clause.loose or found.event,
        )


def claims_table(items: Sequence[ContextItem]) -> pa.Table:
    """Return the claims of items, and the names that metrics and glossary terms go by, one list
    each.
    """
    import pyarrow as pa

    record = pa.struct(
        [(name, pa.string()) for name in ("attribute", "value", "words", "object", "about", "said")]
    )
    record = pa.struct([*record, pa.field("loose", pa.bool_())])
    made = [[_row(claim) for claim in claims_of(item)] for item in items]
    names = pa.array([_names(item) for item in items], pa.list_(pa.field("item", pa.string())))
    return pa.table({"claims": pa.array(made, pa.list_(pa.field("item", record))), "names": names})


def _names(item: ContextItem) -> list[str]:
    """Return the names of a metric or term as words, its own first."""
    if item.kind not in _DEFINING:
        return []
    return list(
        dict.fromkeys(
            name for text in (item.title, *item.synonyms) if (name := " ".join(words(folded(text))))
        )
    )


def _row(claim: Claim) -> dict[str, str | bool]:
    return {
        "attribute": claim.attribute,
        "value": claim.value,
        "words": " ".join(claim.words),
        "object": " ".join(claim.object),
        "about": claim.about,
        "said": claim.said,
        "loose": claim.loose,
    }
