"""Fold what says the same twice: equal texts, and prose that says nothing which a text much like it
does not.

The batch half writes a MinHash signature of each prose item and the group of rows that might be its
near-duplicates; serving compares signatures inside a group alone, and then the words: what is left
out has no term that what stays lacks. Two texts that differ in a number, a negation or a name say
different things, however alike they are: they are left to conflicts.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ctx_pipeline.contracts import Exclusion, ItemKind
from ctx_pipeline.contracts.codes import TRUST_RANK, Rendition, Trust
from ctx_pipeline.index.rows import Row
from ctx_pipeline.language.terms import terms
from ctx_pipeline.stages.candidates import Candidate, Judged, Verdict, Verdicts
from ctx_pipeline.stages.sections import INSTRUCTING_SECTIONS

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.contracts import ContextItem
    from ctx_pipeline.index.reader import ArtifactReader

PROSE_KINDS: Final = frozenset({ItemKind.DOCUMENT.value, ItemKind.MEMORY.value, ItemKind.WEB.value})
"""Kinds whose texts may say one thing in other words. In definitions, schemas and code each word
counts."""
BANDS, BAND = 20, 6
PERMUTATIONS: Final = BANDS * BAND
"""Numbers of a signature. An estimate of 0.85 leaves at most 18 unequal, so one of 20 bands of 6 is
equal."""
SIMILAR: Final = 0.85
"""Estimated Jaccard similarity from which two texts are one."""
WORDS, CHARS = 3, 4
"""Length of a shingle in words, and in characters of Chinese."""
MIN_SHINGLES: Final = 5
_SEED = 42

_HAN = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")
_WORD = re.compile(r"\w+")
_BLANK = re.compile(r"[\W_]+")
_FACTS = re.compile(
    r"\d+(?:[.,:/-]\d+)*%?"
    r"|(?i:\b(?:not?|never|none|neither|nor|without|cannot|except|unless|excluded?|excluding|included?|including"
    r"|before|after|increas\w+|decreas\w+|more|less|min(?:imum)?|max(?:imum)?|always|must|may|optional)\b)|n['’]t\b"
    r"|(?<=[^\W\d_] )[A-Z]\w+|\b\w*(?:[a-z][A-Z]|[A-Z]{2}|_)\w*\b"
    r"|[不没未无非勿莫别免禁拒除含增减升降前后上下]|[零〇一二三四五六七八九十百千万亿两]+"
)
"""What two texts must have alike, in this order: numbers, negations and their like, names."""


def signature_version() -> str:
    """Return what signatures depend on besides the text."""
    from importlib.metadata import version

    return f"2 {PERMUTATIONS} {WORDS} {CHARS} rensa {version('rensa')}"


def signatures(items: Sequence[ContextItem]) -> pa.Table:
    """Return what near-duplicates are found by. Column: signature, empty for what is never one."""
    import pyarrow as pa

    return pa.table(
        {"signature": pa.array([_signature(item) for item in items], _signature_type())}
    )


def _signature_type() -> pa.DataType:
    import pyarrow as pa

    return pa.list_(pa.field("item", pa.uint32()))


def _signature(item: ContextItem) -> list[int]:
    if item.kind.value not in PROSE_KINDS:
        return []
    found = shingles(unicodedata.normalize("NFKC", item.content or ""))
    if len(found) < MIN_SHINGLES:
        return []
    import rensa

    minhash = rensa.RMinHash(num_perm=PERMUTATIONS, seed=_SEED)
    minhash.update(sorted(found))
    return minhash.digest()


def shingles(text: str) -> set[str]:
    """Return the shingles of a text: of characters where at least a quarter are Chinese, else of
    words.
    """
    plain = _BLANK.sub("", text)
    if not plain.isascii() and len(_HAN.findall(plain)) * 4 >= len(plain):
        return {plain[at : at + CHARS].lower() for at in range(len(plain) - CHARS + 1)}
    words = _WORD.findall(text.lower())
    return {" ".join(words[at : at + WORDS]) for at in range(len(words) - WORDS + 1)}


def mark_columns(rows: Sequence[Row], marks: pa.Table | None) -> dict[str, pa.Array]:
    """Return the columns twins (-1 for none) and signature (empty without twins)."""
    import pyarrow as pa

    twins, kept = [-1] * len(rows), [None] * len(rows)
    if marks is not None:
        column = marks.column("signature")
        twins = _groups(rows, column)
        kept = [column[at].as_py() if twin >= 0 else None for at, twin in enumerate(twins)]
    return {
        "twins": pa.array(twins, pa.int32()),
        "signature": pa.array(
            [[] if value is None else value for value in kept], _signature_type()
        ),
    }


def _groups(rows: Sequence[Row], column: pa.ChunkedArray) -> list[int]:
    """Return the number of each row's group: rows of one tenant that share a band, directly or by
    others.
    """
    import pyarrow.compute as pc

    signed = pc.indices_nonzero(pc.list_value_length(column)).to_numpy()
    groups = [-1] * len(rows)
    if len(signed) < 2:
        return groups
    numbers = (
        column.combine_chunks().flatten().to_numpy().reshape(-1, PERMUTATIONS).astype(np.uint64)
    )
    tenants: dict[str, int] = {}
    places: list[int] = signed.tolist()
    tenant = np.asarray(
        [tenants.setdefault(rows[at].tenant, len(tenants)) for at in places], np.uint64
    )
    parent = np.arange(len(signed))
    for first, second in np.unique(_sharing(numbers, tenant), axis=0).tolist():
        low, high = sorted((_root(parent, first), _root(parent, second)))
        parent[high] = low
    roots = [_root(parent, at) for at in range(len(signed))]
    sizes: dict[int, int] = defaultdict(int)
    for root in roots:
        sizes[root] += 1
    for at, root in zip(places, roots, strict=True):
        if sizes[root] > 1:
            groups[at] = places[root]
    return groups


def _sharing(numbers: NDArray[np.uint64], tenant: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return pairs of positions that share a band and are neighbours in its order; a hash of the
    band stands for it.
    """
    pairs: list[NDArray[np.intp]] = [np.empty((0, 2), np.intp)]
    for band in range(BANDS):
        key = tenant.copy()
        for value in numbers[:, band * BAND : (band + 1) * BAND].T:
            key = key * np.uint64(0x9E3779B97F4A7C15) + value
            key ^= key >> np.uint64(29)
        order = np.argsort(key, kind="stable")
        same = np.flatnonzero(key[order[1:]] == key[order[:-1]])
        pairs.append(np.stack((order[same], order[same + 1]), axis=1))
    return np.concatenate(pairs)


def _root(parent: NDArray[np.intp], at: int) -> int:
    while parent[at] != at:
        parent[at] = parent[parent[at]]
        at = int(parent[at])
    return at


def serve(judged: Judged, reader: ArtifactReader) -> Judged:
    """Fold equal texts, then prose that says the same."""
    folded = judged.ruled(fold_duplicates(judged.indexed(), judged.verdicts))
    return folded.ruled(fold_near_duplicates(folded.indexed(), folded.verdicts, reader))


def fold_duplicates(
    candidates: Sequence[Candidate], verdicts: Verdicts
) -> dict[Candidate, Verdict]:
    """Of items with the same text, keep one that may instruct, then highest authority, then score,
    then id.
    """
    by_content: dict[int, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_content[candidate.content].append(candidate)
    out: dict[Candidate, Verdict] = {}
    for group in by_content.values():
        if len(group) > 1:
            kept, *losers = sorted(
                group,
                key=lambda c: (
                    c.section not in INSTRUCTING_SECTIONS,
                    -c.authority,
                    -verdicts[c].score,
                    c.item_id,
                ),
            )
            for loser in losers:
                out[loser] = verdicts[loser].out(
                    Exclusion.DUPLICATE, f"same text as {kept.item_id}"
                )
    return out


def fold_near_duplicates(
    candidates: Sequence[Candidate], verdicts: Verdicts, reader: ArtifactReader
) -> dict[Candidate, Verdict]:
    """Of prose that says the same, keep the highest authority, then trust, then the newest, then
    score, then id.
    """
    groups: dict[int, list[Candidate]] = defaultdict(list)
    rows = np.asarray([candidate.row for candidate in candidates], np.intp)
    twins = reader.twins[rows]
    for at in np.flatnonzero(twins >= 0).tolist():
        if not candidates[at].protected:
            groups[int(twins[at])].append(candidates[at])
    out: dict[Candidate, Verdict] = {}
    for group in groups.values():
        if len(group) > 1:
            out.update(_fold_group(group, verdicts, reader))
    return out


def _fold_group(
    group: list[Candidate], verdicts: Verdicts, reader: ArtifactReader
) -> Iterator[tuple[Candidate, Verdict]]:
    ranks = _trust_ranks()
    group.sort(
        key=lambda c: (
            -c.authority,
            -ranks[c.trust],
            -c.dated_at,
            -verdicts[c].score,
            c.item_id,
            c.version,
        )
    )
    table = np.stack([reader.signature(candidate.row) for candidate in group])
    kept: list[int] = []
    for at, candidate in enumerate(group):
        alike = _alike(table[kept], table[at]) if kept else np.zeros(0, np.bool_)
        same = [
            kept[place]
            for place in np.flatnonzero(alike).tolist()
            if _covers(group[kept[place]], candidate, reader)
        ]
        if same:
            leader = group[same[0]].item_id
            near = f"near-duplicate of {leader}"
            yield candidate, verdicts[candidate].out(Exclusion.DUPLICATE, near)
        else:
            kept.append(at)


def _alike(kept: NDArray[np.uint32], other: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return which signatures are near to one that they share a band with.

    A group is joined by all of its rows, those too that the viewer may not see; a band is of two
    rows alone.
    """
    equal = kept == other
    return (equal.mean(axis=1) >= SIMILAR) & equal.reshape(len(kept), BANDS, BAND).all(axis=2).any(
        axis=1
    )


def _covers(kept: Candidate, other: Candidate, reader: ArtifactReader) -> bool:
    """Return whether a text says all that the other says, about the same thing."""
    if kept.subject != other.subject and kept.subject >= 0 and other.subject >= 0:
        return False
    facts, said = _said(reader.block(kept.row, Rendition.FULL))
    same, more = _said(reader.block(other.row, Rendition.FULL))
    return facts == same and more <= said


@lru_cache(maxsize=512)
def _said(block: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the numbers, negations and names between the delimiters of a block, and the search
    terms.
    """
    text = unicodedata.normalize("NFKC", block.partition("\n")[2].rpartition("\n</")[0])
    return tuple(found.lower() for found in _FACTS.findall(text)), frozenset(terms(text))


@cache
def _trust_ranks() -> dict[str, int]:
    return {trust.value: TRUST_RANK[Trust(trust)] for trust in Trust}
