"""Context metrics: worked values, and what holds for every ranking."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_pipeline.evals.metrics import (
    density,
    fitting,
    hit_at,
    order,
    precision,
    precision_at,
    recall,
    recall_at,
    reciprocal_rank,
)

ids = st.sampled_from(["metric:gmv", "表:订单", "c", "d", "e", "f"])
rankings = st.lists(ids, max_size=8)
needs = st.frozensets(ids, max_size=4)


def test_recall_is_the_share_of_the_required_and_precision_the_share_of_the_shown():
    shown, required = ["a", "b", "c", "d"], {"b", "d", "x"}
    assert recall(shown, required) == pytest.approx(2 / 3)
    assert precision(shown, required) == pytest.approx(2 / 4)


def test_an_empty_side_is_settled():
    assert (recall([], set()), recall(["a"], set()), recall([], {"a"})) == (1.0, 1.0, 0.0)
    assert (precision([], {"a"}), density([], {"a"}), order([], {"a"}), order([], set())) == (
        0.0,
        0.0,
        0.0,
        1.0,
    )


def test_a_repeated_id_takes_one_place():
    ranked = ["a", "a", "a", "b"]
    assert recall_at(ranked, {"b"}, 2) == 1.0
    assert precision_at(ranked, {"b"}, 2) == 0.5
    assert reciprocal_rank(ranked, {"b"}) == 0.5
    assert hit_at(ranked, {"b"}, 1) == 0.0


def test_order_is_the_discounted_gain_by_that_of_the_best_order():
    ideal = 1 + 1 / math.log2(3)
    assert order(["x", "a", "b"], {"a", "b"}) == pytest.approx(
        (1 / math.log2(3) + 1 / math.log2(4)) / ideal
    )
    assert order(["a"], {"a", "b"}) == pytest.approx(1 / ideal)


def test_density_counts_the_tokens_of_the_required():
    assert density([("a", 30), ("b", 10), ("a", 20), ("c", 40)], {"a"}) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="tokens"):
        density([("a", -1)], {"a"})


def test_fitting_passes_over_what_is_too_large_and_goes_on():
    assert fitting([("a", 6), ("b", 5), ("c", 4), ("d", 1)], 10) == [("a", 6), ("c", 4)]
    assert fitting([("a", 0), ("b", 1)], 0) == [("a", 0)]
    with pytest.raises(ValueError, match="tokens"):
        fitting([("a", -1)], 5)


@given(ranked=rankings, required=needs, k=st.integers(-1, 8))
def test_every_metric_lies_between_nothing_and_all(
    ranked: list[str], required: frozenset[str], k: int
):
    values = [
        recall(ranked, required),
        precision(ranked, required),
        recall_at(ranked, required, k),
        precision_at(ranked, required, k),
        hit_at(ranked, required, k),
        reciprocal_rank(ranked, required),
        order(ranked, required),
    ]
    assert all(0.0 <= value <= 1.0 + 1e-12 for value in values)
    assert (
        recall_at(ranked, required, k)
        <= recall_at(ranked, required, k + 1)
        <= recall(ranked, required)
    )
    assert (hit_at(ranked, required, k) > 0) == (
        bool(required) and recall_at(ranked, required, k) > 0
    )


@given(required=st.frozensets(ids, min_size=1, max_size=3))
def test_order_is_best_only_where_the_required_come_first(required: frozenset[str]):
    names = ["metric:gmv", "表:订单", "c", "d"]
    for ranked in permutations(names):
        found = [name in required for name in ranked]
        first = all(found[: len(required)]) and len(required & set(names)) == len(required)
        assert (order(ranked, required) > 1 - 1e-9) == first
