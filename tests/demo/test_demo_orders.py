from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import yaml

from ctx_pipeline.demo import DemoProject, create_demo
from ctx_pipeline.demo.create import demo_files
from ctx_pipeline.demo.plan import CELLS, EAST_SHARE, cell_shares, months, plan_months

ROWS = 200_000
OCTOBER = "ordered_at >= timestamp '2026-10-01' and ordered_at < timestamp '2026-11-01'"
OCTOBER_BEFORE = "ordered_at >= timestamp '2025-10-01' and ordered_at < timestamp '2025-11-01'"
CAUSE = "region = 'East' and category = 'Electronics'"
REFERENCE = [("true", -13.7), ("region = 'East'", -21.9), (CAUSE, -31.0), (f"not ({CAUSE})", -4.5)]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> DemoProject:
    return create_demo(tmp_path_factory.mktemp("demo") / "shop", rows=ROWS)


@pytest.fixture(scope="module")
def warehouse(demo: DemoProject) -> Iterator[duckdb.DuckDBPyConnection]:
    with connect(demo) as connection:
        yield connection


def connect(demo: DemoProject) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name, folder in demo.tables.items():
        connection.execute(f"create view {name} as from read_parquet('{folder}/*.parquet')")
    return connection


def one(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[object, ...]:
    row = connection.execute(sql).fetchone()
    assert row is not None
    return row


def change(connection: duckdb.DuckDBPyConnection, expression: str, segment: str) -> float:
    now, before = (
        float(
            str(
                one(connection, f"select {expression} from orders where {period} and ({segment})")[
                    0
                ]
            )
        )
        for period in (OCTOBER, OCTOBER_BEFORE)
    )
    return 100 * (now - before) / before


def gmv(version: int) -> str:
    metrics = yaml.safe_load(demo_files()["semantic/metrics.yaml"])["metrics"]
    return next(m["expression"] for m in metrics if (m["name"], m["version"]) == ("gmv", version))


@pytest.mark.parametrize(("segment", "percent"), REFERENCE)
def test_gmv_of_october_against_the_year_before_is_the_reference_plant(
    warehouse: duckdb.DuckDBPyConnection, segment: str, percent: float
):
    assert change(warehouse, gmv(2), segment) == pytest.approx(percent, abs=0.3)


@pytest.mark.parametrize(
    "expression", [gmv(1), "sum(amount) filter (where status <> 'refunded')", "sum(amount)"]
)
@pytest.mark.parametrize(("segment", "percent"), REFERENCE)
def test_the_plant_holds_whichever_orders_a_definition_counts(
    warehouse: duckdb.DuckDBPyConnection, expression: str, segment: str, percent: float
):
    assert change(warehouse, expression, segment) == pytest.approx(percent, abs=0.3)


def test_every_other_region_and_category_falls_alike(warehouse: duckdb.DuckDBPyConnection):
    cells = warehouse.execute("select distinct region, category from orders").fetchall()
    assert len(cells) == len(CELLS)
    for region, category in cells:
        segment = f"region = '{region}' and category = '{category}'"
        expected = -31.0 if segment == CAUSE else -4.5
        assert change(warehouse, gmv(2), segment) == pytest.approx(expected, abs=0.3), segment


@pytest.mark.parametrize("dimension", ["channel", "payment_method", "is_self_operated"])
def test_no_other_dimension_looks_like_a_cause(
    warehouse: duckdb.DuckDBPyConnection, dimension: str
):
    for (value,) in warehouse.execute(f"select distinct {dimension} from orders").fetchall():
        found = change(warehouse, gmv(2), f"{dimension} = '{value}'")
        assert found == pytest.approx(-13.7, abs=5), value


def test_month_on_month_is_another_answer_than_year_on_year(warehouse: duckdb.DuckDBPyConnection):
    period = "year(ordered_at) = 2026 and month(ordered_at)"
    now, before = (
        float(str(one(warehouse, f"select {gmv(2)} from orders where {period} = {month}")[0]))
        for month in (10, 9)
    )
    assert 100 * (now - before) / before == pytest.approx(-10.6, abs=0.3)


def test_the_same_rows_and_seed_give_the_same_orders_and_another_seed_others(
    demo: DemoProject, tmp_path: Path
):
    aggregates = (
        "select bit_xor(hash(o)), count(*), sum(amount), sum(cost), sum(customer_id) from orders o"
    )
    with connect(demo) as first, connect(create_demo(tmp_path / "again", rows=ROWS)) as second:
        assert one(first, aggregates) == one(second, aggregates)
    small = [create_demo(tmp_path / str(seed), rows=5_000, seed=seed) for seed in (0, 1)]
    with connect(small[0]) as first, connect(small[1]) as second:
        assert one(first, aggregates) != one(second, aggregates)


def test_orders_have_the_promised_shape(warehouse: duckdb.DuckDBPyConnection):
    total, ids, customers, lowest, odd_stores, self_operated_partners = one(
        warehouse,
        """select count(*), count(distinct order_id), count(distinct customer_id), min(amount),
             count(*) filter (where (store_id is null) = (channel = 'store')),
             count(*) filter (where channel = 'partner' and is_self_operated) from orders""",
    )
    assert (total, ids) == (ROWS, ROWS)
    assert int(str(customers)) > 1_000
    assert float(str(lowest)) > 0
    assert (odd_stores, self_operated_partners) == (0, 0)
    types = dict(
        warehouse.execute("select column_name, column_type from (describe orders)").fetchall()
    )
    assert types["amount"] == "DECIMAL(12,2)"
    assert types["ordered_at"] == "TIMESTAMP"
    assert types["region"] == "VARCHAR"


def test_each_file_holds_its_month_sorted_by_time(
    demo: DemoProject, warehouse: duckdb.DuckDBPyConnection
):
    for year, month in months():
        file = demo.orders_path / f"{year}-{month:02}.parquet"
        assert one(
            warehouse,
            f"""select count(*) filter (where strftime(ordered_at, '%Y-%m') <> '{year}-{month:02}'),
                 count(*) filter (where ordered_at < earlier)
               from (select ordered_at, lag(ordered_at) over (order by file_row_number) as earlier
                     from read_parquet('{file}', file_row_number = true))""",
        ) == (0, 0)


def test_every_reference_to_another_table_is_met(warehouse: duckdb.DuckDBPyConnection):
    assert one(
        warehouse,
        """select count(*) from orders
           join regions on orders.region = regions.name
             and list_contains(string_split(regions.provinces, ', '), orders.province)
           join products on orders.product_id = products.product_id
             and orders.category = products.category
           join customers on orders.customer_id = customers.customer_id
             and orders.region = customers.region""",
    ) == (ROWS,)


def test_partner_orders_of_the_last_two_days_are_late(warehouse: duckdb.DuckDBPyConnection):
    query = "select channel, max(ordered_at)::date::varchar from orders group by channel"
    last = dict(warehouse.execute(query).fetchall())
    assert last == {
        "app": "2026-11-29",
        "web": "2026-11-29",
        "store": "2026-11-29",
        "partner": "2026-11-27",
    }


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_handbook_explains_every_column_that_the_files_have(
    warehouse: duckdb.DuckDBPyConnection, language: str
):
    page = demo_files()[f"documents/{language}/warehouse-tables.md"].decode()
    for table in ("orders", "regions", "products", "customers"):
        section = page.partition(f"{table}\n\n")[2].partition("\n## ")[0]
        for (column,) in warehouse.execute(
            f"select column_name from (describe {table})"
        ).fetchall():
            assert f"`{column}`" in section, (table, column)


@pytest.mark.parametrize("rows", [2_000, 12_345, 30_000_000])
def test_the_plan_spends_every_row_and_leaves_no_cell_empty(rows: int):
    plan = plan_months(rows, (2_500.0, 770.0, 150.0, 430.0, 370.0, 550.0))
    assert sum(sum(month.order_counts) for month in plan) == rows
    assert min(min(month.order_counts) for month in plan) >= 1
    assert [month.first_order for month in plan][1:] == [
        sum(sum(month.order_counts) for month in plan[:index]) for index in range(1, len(plan))
    ]


def test_the_shares_of_the_base_month_sum_to_one():
    shares = cell_shares()
    assert sum(shares) == pytest.approx(1)
    assert sum(shares[:6]) == pytest.approx(EAST_SHARE)
