"""What hits say of each other: columns by their tables and by what joins them, chunks by others of
their document.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import sqrt

from ctx_pipeline.contracts import ItemKind
from ctx_pipeline.stages.candidates import Candidate
from ctx_pipeline.stages.discover.serve import RELATED

TABLE_SHARE = 0.2
"""How much of its table's relevance a column gains."""
JOIN_SHARE = 0.4
"""How much of two tables' common relevance a column gains that both have by one name: what a query
of both joins over.

No question names such a column. Of 104 questions to five databases .93 of the columns needed are
among the first ten, without both shares .87 (`bench.retrieval`, the half for choosing); 0.1 to 0.3
and 0.2 to 0.4 differ by .015.
"""
NEXT_CHUNK = 0.8
"""What each further chunk of a document keeps of its relevance: the first already speaks for the
document.

Questions over ten files find .59 of the files they need within 4,000 tokens, without it .36, and
.52 with 0.9.
"""
LEAST_KEPT = 0.5
"""What a chunk keeps however many come before it."""
RELATED_SHARE = 0.5
"""What an item that might help beside a hit keeps of the hit's relevance."""
_SCHEMA = ItemKind.SCHEMA.value


def link_columns(relevance: Mapping[Candidate, float]) -> dict[Candidate, float]:
    """Return the relevance of columns, raised by that of their table and of tables with a column of
    the same name.

    A column is a schema item that needs another one whose title begins its own. Relevance stays
    within 0 to 1: a gain `g` leaves `1 - g` of what is missing to 1.
    """
    by_row = {candidate.row: candidate for candidate in relevance if candidate.kind == _SCHEMA}
    table_of = {
        row: table
        for row, column in by_row.items()
        if (table := _table(column, by_row)) is not None
    }
    if not table_of:
        return {}
    strength = _strengths(table_of, {row: relevance[c] for row, c in by_row.items()})
    holders: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for row, table in table_of.items():
        holders[_name(by_row[row])][table] = strength[table]
    raised: dict[Candidate, float] = {}
    for row, table in table_of.items():
        column = by_row[row]
        others = [value for other, value in holders[_name(column)].items() if other != table]
        joined = sqrt(strength[table] * max(others)) if others else 0.0
        missing = (
            (1 - relevance[column])
            * (1 - TABLE_SHARE * strength[table])
            * (1 - JOIN_SHARE * joined)
        )
        raised[column] = 1 - missing
    return raised


def _table(column: Candidate, by_row: Mapping[int, Candidate]) -> int | None:
    needed = (by_row[row] for row in column.needs if row in by_row)
    return next((table.row for table in needed if column.title.startswith(f"{table.title}.")), None)


def _name(column: Candidate) -> tuple[str, str]:
    """Return what two columns share that join: their source, which is one database, and their own
    name.
    """
    return column.source, column.title.rpartition(".")[2].lower()


def _strengths(table_of: Mapping[int, int], relevance: Mapping[int, float]) -> dict[int, float]:
    """Return how relevant each table is: half by itself, half by its best column."""
    best: dict[int, float] = defaultdict(float)
    for row, table in table_of.items():
        best[table] = max(best[table], relevance[row])
    return {table: (relevance[table] + value) / 2 for table, value in best.items()}


def spread_chunks(relevance: Mapping[Candidate, float]) -> dict[Candidate, float]:
    """Return the relevance of the chunks of each document, lowered for all but the best, so that
    one document does not crowd out the others.

    Chunks have one item id up to `#`. Equal relevance goes by item id and version.
    """
    documents: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in relevance:
        document, mark, _ = candidate.item_id.partition("#")
        if mark:
            documents[document].append(candidate)
    lowered: dict[Candidate, float] = {}
    for chunks in documents.values():
        chunks.sort(key=lambda chunk: (-relevance[chunk], chunk.item_id, chunk.version))
        for place, chunk in enumerate(chunks):
            lowered[chunk] = relevance[chunk] * max(NEXT_CHUNK**place, LEAST_KEPT)
    return lowered


def lift_related(relevance: Mapping[Candidate, float]) -> dict[Candidate, float]:
    """Return for what came in beside a hit a share of the hit's relevance, where it has less."""
    beside = [
        candidate
        for candidate in relevance
        if RELATED in candidate.discovered_by and candidate.parent
    ]
    if not beside:
        return {}
    best: dict[str, float] = defaultdict(float)
    for candidate, value in relevance.items():
        best[candidate.item_id] = max(best[candidate.item_id], value)
    return {
        candidate: max(relevance[candidate], RELATED_SHARE * best[candidate.parent or ""])
        for candidate in beside
    }
