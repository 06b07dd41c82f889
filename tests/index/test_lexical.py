"""BM25 over what a viewer may see: what is not visible weighs nothing, and no short cut changes a
bit of a score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isclose, log

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_pipeline.index import lexical as lexical_module
from ctx_pipeline.index.lexical import (
    K1,
    TITLE_BOOST,
    B,
    Lexical,
    LexicalHits,
    join_terms,
    lexical_tables,
)
from ctx_pipeline.language.terms import query_terms, terms

WORDS = ("refund", "order", "parcel", "退款", "订单", "区域", "gmv")

texts = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
rows_of = st.lists(st.tuples(texts, texts, st.booleans()), max_size=12)


def lexical_index(rows: Sequence[tuple[str, str]]) -> Lexical:
    """An index of titles and bodies."""
    columns = ([join_terms(row[at]) for row in rows] for at in range(2))
    titles, bodies = (pa.array(column, pa.large_string()) for column in columns)
    return Lexical(lexical_tables(pa.table({"title": titles, "body": bodies})))


def search(
    index: Lexical, query: str, visible: Sequence[bool], *, first: int = 0, limit: int = 10
) -> LexicalHits:
    """What the viewer finds who sees these rows of a tenant that begins at `first`."""
    return index.search(query, index.readership(first, np.asarray(visible, np.bool_)), limit=limit)


def straight(rows: Sequence[tuple[str, str]], query: str) -> dict[int, float]:
    """BM25 of titles and of bodies, written down as it is defined."""
    scores: dict[int, float] = {}
    for field, boost in ((0, TITLE_BOOST), (1, 1.0)):
        counts = [Counter(terms(row[field])) for row in rows]
        lengths = [sum(count.values()) for count in counts]
        mean = max(sum(lengths) / max(1, len(rows)), 1.0)
        for word in query_terms(query):
            having = sum(word in count for count in counts)
            rarity = log(1 + (len(rows) - having + 0.5) / (having + 0.5))
            for row, count in enumerate(counts):
                if word in count:
                    often = count[word]
                    share = often * (K1 + 1) / (often + K1 * (1 - B + B * lengths[row] / mean))
                    scores[row] = scores.get(row, 0.0) + boost * rarity * share
    return scores


@given(rows=rows_of, query=texts)
def test_scores_are_those_of_the_visible_rows_by_themselves(
    rows: list[tuple[str, str, bool]], query: str
):
    shown = [row[2] for row in rows]
    hits = search(lexical_index([row[:2] for row in rows]), query, shown)
    places = [at for at, is_shown in enumerate(shown) if is_shown]
    alone = straight([rows[at][:2] for at in places], query)
    assert sorted(hits.rows) == sorted(places[row] for row in alone)
    for row, score in zip(hits.rows, hits.scores, strict=True):
        assert isclose(score, alone[places.index(row)], rel_tol=1e-9)
    assert hits.scores == sorted(hits.scores, reverse=True)


@given(rows=rows_of, query=texts, limit=st.integers(1, 12))
def test_rows_that_are_not_visible_change_no_bit_of_a_score(
    rows: list[tuple[str, str, bool]], query: str, limit: int
):
    shown = [row[:2] for row in rows if row[2]]
    whole = search(
        lexical_index([row[:2] for row in rows]), query, [row[2] for row in rows], limit=limit
    )
    alone = search(lexical_index(shown), query, [True] * len(shown), limit=limit)
    places = [at for at, row in enumerate(rows) if row[2]]
    assert (whole.rows, whole.scores) == ([places[row] for row in alone.rows], alone.scores)


@given(rows=rows_of, others=rows_of, query=texts)
def test_rows_of_other_tenants_change_no_bit_of_a_score(
    rows: list[tuple[str, str, bool]], others: list[tuple[str, str, bool]], query: str
):
    shown = [row[2] for row in rows]
    between = [row[:2] for row in (*others, *rows, *others)]
    whole = search(lexical_index(between), query, shown, first=len(others))
    alone = search(lexical_index([row[:2] for row in rows]), query, shown)
    assert (whole.rows, whole.scores) == ([row + len(others) for row in alone.rows], alone.scores)


@pytest.mark.parametrize("seed", range(4))
def test_leaving_out_what_cannot_be_among_the_best_changes_no_bit(
    seed: int, monkeypatch: pytest.MonkeyPatch
):
    rng = np.random.default_rng(seed)
    words = (
        ["common"] * 40
        + ["often"] * 10
        + [f"rare{n}" for n in range(20)]
        + ["退款"] * 15
        + ["区域"]
    )
    rows = [
        (str(rng.choice(words)), " ".join(rng.choice(words, rng.integers(1, 12))))
        for _ in range(400)
    ]
    visible = (rng.random(400) < 0.7).tolist()
    index = lexical_index(rows)
    queries = ("rare1 common often", "rare3 rare4 退款 common", "区域 often 退款", "common")
    everything = [search(index, query, visible, limit=5) for query in queries]
    monkeypatch.setattr(lexical_module, "PRUNED_ROWS", 1)
    assert [search(index, query, visible, limit=5) for query in queries] == everything


def test_the_rows_of_several_reads_are_one_index(monkeypatch: pytest.MonkeyPatch):
    rows = [(f"title {n}", "refund order 退款" if n % 3 else "parcel") for n in range(20)]
    whole = lexical_index(rows)
    monkeypatch.setattr(lexical_module, "READ_ROWS", 3)
    for query in ("refund", "parcel title", "退款 7"):
        assert search(lexical_index(rows), query, [True] * 20) == search(whole, query, [True] * 20)


def test_a_match_in_the_title_comes_before_one_in_the_body():
    index = lexical_index([("other", "refund polici"), ("refund polici", "other")])
    assert search(index, "refund", [True, True]).rows == [1, 0]


def test_nothing_is_found_where_nothing_is_visible_or_there_is_nothing():
    assert search(lexical_index([("refund", "退款")]), "refund 退款", [False]).rows == []
    assert search(lexical_index([]), "refund 退款", []).rows == []


def test_a_word_that_is_said_very_often_counts_up_to_the_most_that_is_kept():
    index = lexical_index([("t", "refund " * 900 + "order"), ("t", "order " + "parcel " * 900)])
    hits = search(index, "refund", [True, True])
    assert hits.rows == [0]
    assert hits.scores[0] > 0
