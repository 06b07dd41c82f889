from __future__ import annotations

import subprocess
import sys

import pytest

duckdb = pytest.importorskip("duckdb")

from ctx_pipeline.contracts import FileCode, FileStatus, ItemKind  # noqa: E402 - after the check above
from ctx_pipeline.sources.database import column_stats  # noqa: E402

SHOP = """
CREATE TABLE regions(id INTEGER PRIMARY KEY, name VARCHAR NOT NULL);
CREATE TABLE orders(
    order_id BIGINT PRIMARY KEY, region_id INTEGER REFERENCES regions(id), amount DECIMAL(10,2),
    status VARCHAR,
    customer_email VARCHAR, contact VARCHAR, apiToken VARCHAR, 手机号 VARCHAR,
    ordered_at TIMESTAMPTZ, tags VARCHAR[],
    photo BLOB, "odd ""name" INTEGER);
COMMENT ON TABLE orders IS '所有订单';
COMMENT ON COLUMN orders.amount IS 'Gross amount';
INSERT INTO regions VALUES (1, 'East'), (2, 'West');
INSERT INTO orders SELECT i, 1 + i % 2, i * 1.5, ['paid', 'sent', 'refunded'][1 + i % 3],
    'hidden-mail-' || i % 3,
    'a' || i || '@b.example', 'hidden-token', '13800000000',
    TIMESTAMPTZ '2026-01-01 00:00:00+00' + to_days(i::INT % 30),
    ['t'], 'x'::BLOB, CASE WHEN i % 4 = 0 THEN NULL ELSE 7 END FROM range(1000) t(i);
CREATE SCHEMA sales;
CREATE TABLE sales.targets(month DATE, target INTEGER);
CREATE VIEW paid AS SELECT * FROM orders WHERE status = 'paid';
"""


def build(path, sql: str) -> None:
    connection = duckdb.connect(str(path))
    connection.execute(sql)
    connection.close()


def write_parquet(path, sql: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = duckdb.connect()
    connection.execute(f"COPY ({sql}) TO '{path}' (FORMAT parquet)")
    connection.close()


@pytest.fixture
def shop(read, tmp_path):
    build(tmp_path / "shop.duckdb", SHOP)
    return read("schema_metadata", "shop.duckdb")


def test_a_database_gives_tables_and_columns(shop):
    assert shop.errors == ()
    items = {item.item_id: item for item in shop.items}
    orders = items["schema:src/orders"]
    assert (orders.kind, orders.subject, orders.depends_on, orders.authority) == (
        ItemKind.SCHEMA, "schema:orders", (), 90,
    )  # fmt: skip
    text = orders.content or ""
    for line in (
        "comment: 所有订单",
        "rows: 1,000",
        "primary key: order_id",
        "foreign key: region_id -> regions(id)",
        "newest ordered_at: 2026-01-30 00:00:00+00",
        "- amount DECIMAL(10,2) -- Gross amount",
    ):
        assert line in text.split("\n")
    amount = items["schema:src/orders.amount"]
    assert (amount.subject, amount.depends_on) == ("schema:orders.amount", ("schema:src/orders",))
    assert "range: 0.00 to 1498.50" in (amount.content or "")
    assert "top values: paid (33.4 %), refunded (33.3 %), sent (33.3 %)" in (
        items["schema:src/orders.status"].content or ""
    )
    assert "nulls: 25.0 %" in (items['schema:src/orders.odd "name'].content or "")
    assert "schema:src/sales.targets.month" in items
    assert (items["schema:src/paid"].content or "").startswith("view: paid")


@pytest.mark.parametrize("column", ["customer_email", "contact", "apiToken", "手机号"])
def test_values_of_personal_columns_are_withheld(shop, column):
    item = next(item for item in shop.items if item.item_id == f"schema:src/orders.{column}")
    assert "values withheld" in (item.content or "")
    everything = "\n".join(item.content or "" for item in shop.items)
    assert not any(
        secret in everything
        for secret in ("hidden-mail", "hidden-token", "13800000000", "@b.example")
    )


@pytest.mark.parametrize(
    "name",
    ["ssn", "user_password", "API_KEY", "phoneNumber", "mail", "e_mail", "first_name", "身份证号"],
)
def test_names_of_personal_data_are_known(name):
    personal = column_stats.Column(name, "VARCHAR").is_personal
    assert personal is (name != "mail")


@pytest.mark.parametrize(
    "name", ["amount", "region", "product_name", "description", "pinned", "emailed_count_x"]
)
def test_ordinary_names_are_not_personal(name):
    assert not column_stats.Column(name, "VARCHAR").is_personal


def test_an_unchanged_table_keeps_its_versions_and_a_changed_one_does_not(read, tmp_path, shop):
    again = read("schema_metadata", "shop.duckdb")
    assert again == shop
    build(tmp_path / "shop.duckdb", "INSERT INTO regions VALUES (3, 'North')")
    after = {item.item_id: item.version for item in read("schema_metadata", "shop.duckdb").items}
    before = {item.item_id: item.version for item in shop.items}
    assert before["schema:src/orders"] == after["schema:src/orders"]
    assert before["schema:src/regions"] != after["schema:src/regions"]


def test_the_file_is_free_again_after_reading(read, tmp_path, shop):
    build(tmp_path / "shop.duckdb", "CREATE TABLE more(i INTEGER)")
    assert any(
        item.item_id == "schema:src/more" for item in read("schema_metadata", "shop.duckdb").items
    )


def test_a_database_that_another_process_writes_is_unreadable(read, tmp_path):
    path = tmp_path / "busy.duckdb"
    build(path, "CREATE TABLE t(i INTEGER)")
    program = (
        f"import duckdb, sys; c = duckdb.connect({str(path)!r}); "
        "print('open', flush=True); sys.stdin.read()"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stdin is not None
    assert writer.stdout.readline().strip() == b"open"
    batch = read("schema_metadata", "busy.duckdb")
    writer.stdin.close()
    writer.wait(timeout=30)
    writer.stdout.close()
    assert (batch.items, [error.code for error in batch.errors]) == ((), [FileCode.UNREADABLE])


@pytest.mark.parametrize("name", ["a.duckdb", "a.db", "a.parquet", "a.csv.gz"])
@pytest.mark.parametrize(
    "content",
    [b"", b"SQLite format 3\0" + b"\0" * 200, b"\xff\xfe junk" * 999],
    ids=["empty", "sqlite", "junk"],
)
def test_a_file_of_something_else_is_unreadable(read, tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    batch = read("schema_metadata", name)
    code = FileCode.UNREADABLE if content else FileCode.EMPTY
    assert (batch.items, [error.code for error in batch.errors]) == ((), [code])
    assert batch.files[0].status is FileStatus.FAILED


def test_files_and_sub_folders_of_parts_are_tables(read, tmp_path):
    write_parquet(tmp_path / "data" / "orders.parquet", "SELECT 1 AS id, DATE '2026-01-02' AS day")
    for day in (1, 2):
        sql = f"SELECT {day} AS id, 'x' AS kind"
        write_parquet(tmp_path / "data" / "events" / f"dt=2026-01-0{day}" / "part-0.parquet", sql)
    (tmp_path / "data" / "regions.csv").write_text("id,region\n1,Süd\n2,东\n", encoding="utf-8")
    (tmp_path / "data" / "notes.txt").write_text("x", encoding="utf-8")
    batch = read("schema_metadata", "data")
    assert batch.errors == ()
    items = {item.item_id: item for item in batch.items}
    events = items["schema:src/events"].content or ""
    assert "rows: 2" in events
    assert "newest partition: dt=2026-01-02" in events
    assert "- dt DATE" in events
    assert "newest day: 2026-01-02" in (items["schema:src/orders"].content or "")
    assert "top values: Süd (50.0 %), 东 (50.0 %)" in (
        items["schema:src/regions.region"].content or ""
    )
    assert [file.status for file in batch.files].count(FileStatus.LOADED) == 4
    partitioned = read("schema_metadata", "data/events")
    assert partitioned.items[0].item_id == "schema:src/events"


def test_one_table_name_in_two_files_is_reported(read, tmp_path):
    write_parquet(tmp_path / "t.parquet", "SELECT 1 AS a")
    (tmp_path / "t.csv").write_text("a\n1\n", encoding="utf-8")
    assert [error.code for error in read("schema_metadata").errors] == [FileCode.DUPLICATE_ID]


def test_a_view_cannot_make_us_read_another_file(read, tmp_path):
    (tmp_path / "secret.csv").write_text("key\ncanary-value\n", encoding="utf-8")
    build(
        tmp_path / "v.duckdb",
        f"CREATE VIEW v AS SELECT * FROM read_csv('{tmp_path / 'secret.csv'}')",
    )
    batch = read("schema_metadata", "v.duckdb")
    assert batch.errors == ()
    assert "canary" not in "".join(item.content or "" for item in batch.items)


def test_a_large_table_is_sampled_and_its_footers_are_exact(read, tmp_path, monkeypatch):
    monkeypatch.setattr(column_stats, "EXACT_ROWS", 10_000)
    monkeypatch.setattr(column_stats, "SAMPLE_ROWS", 1_000)
    sql = (
        "SELECT i AS id, 'k' || i % 7 AS kind, CASE WHEN i % 10 = 0 THEN NULL ELSE i END AS part,"
        " DATE '2026-01-01' + (i % 365)::INT AS day, 'p' || i AS phone FROM range(50000) t(i)"
    )
    write_parquet(tmp_path / "big.parquet", sql)
    build(tmp_path / "big.duckdb", f"CREATE TABLE rows AS {sql}")
    batch = read("schema_metadata", "big.parquet")
    items = {item.item_id: item.content or "" for item in batch.items}
    assert "rows: 50,000" in items["schema:src/big"]
    assert "newest day: 2026-12-31" in items["schema:src/big"]
    assert "range: 0 to 49999" in items["schema:src/big.id"]
    assert "nulls: 10.0 %" in items["schema:src/big.part"]
    assert "statistics: approximate, from a sample" in items["schema:src/big.kind"]
    assert "distinct values: 7" in items["schema:src/big.kind"]
    assert "values withheld" in items["schema:src/big.phone"]
    assert read("schema_metadata", "big.parquet") == batch
    table = read("schema_metadata", "big.duckdb")
    assert read("schema_metadata", "big.duckdb") == table
    assert "approximate" in (table.items[1].content or "")


def test_real_tables_have_an_item_for_every_column(read, corpora):
    batch = read("schema_metadata", corpora / "tpc" / "tpc-h" / "*.csv.gz")
    assert batch.errors == ()
    tables = [item for item in batch.items if not item.depends_on]
    assert {item.title for item in tables} >= {"customer", "lineitem", "orders", "region"}
    columns = sum((item.content or "").count("\n- ") for item in tables)
    assert len(batch.items) == len(tables) + columns
