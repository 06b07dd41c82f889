"""Small copies never lose a row that is among the nearest, however vectors lie and whatever may be
seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctx_pipeline.index import quantised
from ctx_pipeline.index.quantised import Quantised, quantised_table
from ctx_pipeline.index.rows import Row
from ctx_pipeline.security.visibility import ALWAYS, NEVER, ScopeLabel
from testing.examples import examples

LIMIT = 8


def make_row(number: int, tenant: str, group: str) -> Row:
    label = ScopeLabel(tenant, (), (group,), "internal", None, (), (), "user")
    facts = (
        "document",
        None,
        "t",
        "s",
        None,
        50,
        "user",
        1.0,
        number,
        ALWAYS,
        ALWAYS,
        NEVER,
        ALWAYS,
        (),
        (),
        (),
        (),
        label,
    )
    return Row(tenant, f"document:s/{number:05d}", "1", number + 1, 0, "", "", number, *facts)


def make_vectors(rng: np.random.Generator, count: int, dim: int, shape: str) -> Any:
    vectors = rng.standard_normal((count, dim))
    if shape == "around one direction":
        vectors = vectors * 0.3 + rng.standard_normal(dim) * 2
    elif shape == "alike":
        vectors = vectors[rng.integers(0, min(3, count), count)]
    elif shape == "flat":
        vectors[:, dim // 2 :] = 0.0
    return (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)).astype(
        np.float32
    )


@settings(max_examples=examples(60))
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 400),
    dim=st.sampled_from((3, 32, 384)),
    shape=st.sampled_from(("random", "around one direction", "alike", "flat")),
    share=st.sampled_from((0.0, 0.02, 0.4, 0.97, 1.0)),
    groups=st.integers(1, 4),
)
def test_every_row_among_the_nearest_is_a_candidate(
    seed: int, count: int, dim: int, shape: str, share: float, groups: int
):
    rng = np.random.default_rng(seed)
    tenants = ["acme"] * (count // 3) + ["beta"] * (count - count // 3)
    rows = [
        make_row(number, tenant, f"g{rng.integers(groups)}")
        for number, tenant in enumerate(tenants)
    ]
    vectors, visible = make_vectors(rng, count, dim, shape), rng.random(count) < share
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("LEAST_ROWS", 1),
            ("LEAST_RUN", int(rng.integers(1, 30))),
            ("GATHER_ROWS", 16),
        ):
            patch.setattr(quantised, name, value)
        copies = Quantised(quantised_table(vectors, rows), dim)
        first = count // 3
        plan = copies.plan("beta", first, visible[first:])
        assert plan is not None
        query = (
            vectors[rng.integers(count)]
            if rng.random() < 0.5
            else make_vectors(rng, 1, dim, "random")[0]
        )
        found = copies.candidates(plan, query, LIMIT).tolist()
    own = [row for row in range(first, count) if visible[row]]
    scores = {row: float(vectors[row].astype(np.float64) @ query) for row in own}
    nearest = sorted(own, key=lambda row: (-scores[row], row))[:LIMIT]
    assert found == sorted(set(found))
    assert set(nearest) <= set(found) <= set(own)


def test_small_copies_spare_nearly_all_vectors():
    rng = np.random.default_rng(3)
    rows = [make_row(number, "acme", "g") for number in range(quantised.LEAST_ROWS)]
    vectors = make_vectors(rng, len(rows), 384, "random")
    copies = Quantised(quantised_table(vectors, rows), 384)
    plan = copies.plan("acme", 0, np.ones(len(rows), np.bool_))
    assert plan is not None
    assert (plan.runs, len(plan.loose), len(plan.hidden)) == (((0, len(rows)),), 0, 0)
    assert len(copies.candidates(plan, vectors[0], LIMIT)) < len(rows) / 10


def test_a_small_tenant_has_no_copies():
    rows = [make_row(number, "acme", "g") for number in range(20)]
    table = quantised_table(make_vectors(np.random.default_rng(1), 20, 32, "random"), rows)
    assert table.num_rows == 0
    assert Quantised(table, 32).plan("acme", 0, np.ones(20, np.bool_)) is None


def test_what_one_viewer_sees_is_read_in_few_runs():
    rng = np.random.default_rng(5)
    groups = rng.integers(0, 10, quantised.LEAST_ROWS)
    rows = [make_row(number, "acme", f"g{group}") for number, group in enumerate(groups)]
    copies = Quantised(quantised_table(make_vectors(rng, len(rows), 32, "random"), rows), 32)
    visible = np.isin(groups, (2, 7))
    plan = copies.plan("acme", 0, visible)
    assert plan is not None
    assert len(plan.runs) == 2
    assert plan.size == np.count_nonzero(visible)
