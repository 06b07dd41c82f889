"""A question that names metrics of different tables is flagged; others are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctx_pipeline.contracts import ContextItem, ContextRequest, ItemKind, PackWarning, Task
from testing.artifacts import ANA, NOW, make_item, make_project, open_project


def table(name: str) -> ContextItem:
    return make_item(name, f"table {name}", kind=ItemKind.SCHEMA, source="warehouse")


def metric(name: str, *tables: str, synonyms: tuple[str, ...] = ()) -> ContextItem:
    return make_item(
        name,
        f"metric: {name}",
        kind=ItemKind.METRIC,
        source="registry",
        depends_on=tuple(f"schema:warehouse/{each}" for each in tables),
        synonyms=synonyms,
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(
        tmp_path_factory.mktemp("grain"),
        [
            *(table(name) for name in ("orders", "stock", "regions")),
            metric("revenue", "orders", synonyms=("营收",)),
            metric("profit", "orders", synonyms=("利润",)),
            metric("inventory", "stock", synonyms=("库存",)),
            metric("turnover", "orders", "stock", synonyms=("周转率",)),
            metric("headcount", synonyms=("人数",)),
        ],
    )


def flagged(home: Path, text: str) -> list[PackWarning]:
    with open_project(home) as project:
        pack = project.assemble(ContextRequest(task=Task(text=text), identity=ANA), at=NOW)
    return [warning for warning in pack.warnings if warning.code == "mixed_grain"]


@pytest.mark.parametrize("text", ["revenue against inventory", "营收和库存的对比"])
def test_metrics_of_different_tables_are_flagged_with_both_names(home: Path, text: str):
    (warning,) = flagged(home, text)
    assert {"metric:registry/revenue", "metric:registry/inventory"} <= set(warning.message.split())
    assert warning.item_id in ("metric:registry/revenue", "metric:registry/inventory")


@pytest.mark.parametrize(
    "text",
    [
        "revenue and profit",
        "revenue against turnover",
        "inventory against turnover",
        "revenue for each headcount",
        "revenue",
        "why is the shop closed",
    ],
)
def test_metrics_with_a_table_in_common_or_without_tables_are_not(home: Path, text: str):
    assert flagged(home, text) == []


def test_each_pair_that_has_no_table_in_common_is_flagged_once(home: Path):
    found = flagged(home, "revenue, profit and inventory")
    pairs = {
        frozenset(warning.message.split(" are computed")[0].split(" and ")) for warning in found
    }
    assert pairs == {
        frozenset({"metric:registry/revenue", "metric:registry/inventory"}),
        frozenset({"metric:registry/profit", "metric:registry/inventory"}),
    }
    assert len(found) == 2
