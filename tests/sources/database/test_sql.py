from __future__ import annotations

import sqlite3

import pytest

pytest.importorskip("sqlalchemy")

from ctx_pipeline.config.settings import SourceConfig
from ctx_pipeline.contracts import FileCode, FileStatus, ItemKind, Trust
from ctx_pipeline.errors import ConfigError
from ctx_pipeline.sources import SourceReading, read_source
from ctx_pipeline.sources.database import sql, sql_stats

CANARY = "canary-secret"


@pytest.fixture
def query(tmp_path):
    """Return a function that reads the database at `url` as a source."""

    def run(url: str, **settings) -> SourceReading:
        source = SourceConfig.model_validate(
            {"name": "src", "kind": "sql", "url": url, "groups": ["*"], **settings}
        )
        return read_source(source, tmp_path, tenant="acme")

    return run


SHOP = """
CREATE TABLE regions(id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE orders(order_id INTEGER PRIMARY KEY, region_id INT REFERENCES regions(id),
    amount DECIMAL(10,2),
  status VARCHAR(20), customer_email TEXT, contact TEXT, apiToken TEXT, 手机号 TEXT,
  ordered_at DATE, photo BLOB,
  "odd ""name" INT, parent INT REFERENCES orders(order_id));
INSERT INTO regions VALUES (1, 'East'), (2, 'West');
WITH RECURSIVE i(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM i WHERE n < 999) INSERT INTO orders
  SELECT n, 1 + n % 2, n * 1.5, CASE n % 3 WHEN 0 THEN 'paid' ELSE 'sent' END,
  'hidden-mail-' || n % 3,
  'a' || n || '@b.example', 'hidden-token', '13800000000', '2026-01-' || printf('%02d', 1 + n % 30),
  x'00',
  CASE WHEN n % 4 THEN 7 END, NULL FROM i;
CREATE VIEW paid AS SELECT * FROM orders WHERE status = 'paid';
"""


def build(path, script: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()


@pytest.fixture
def shop(query, tmp_path):
    build(tmp_path / "shop.db", SHOP)
    return query("sqlite:///shop.db")


def by_id(batch) -> dict:
    return {item.item_id: item for item in batch.items}


def text_of(batch, name: str) -> list[str]:
    return (by_id(batch)[f"schema:src/{name}"].content or "").split("\n")


def test_a_database_gives_tables_and_columns(shop):
    assert shop.errors == ()
    orders = by_id(shop)["schema:src/orders"]
    assert (orders.kind, orders.subject, orders.authority) == (ItemKind.SCHEMA, "schema:orders", 90)
    assert (orders.trust, orders.provenance.source_type) == (Trust.ENTERPRISE_TRUSTED, "sql")
    assert {
        "table: orders", "rows: 1,000", "primary key: order_id",
        "foreign key: region_id -> regions(id)",
        "newest ordered_at: 2026-01-30", "- amount DECIMAL(10, 2)",
    } <= set(text_of(shop, "orders"))  # fmt: skip
    amount = by_id(shop)["schema:src/orders.amount"]
    assert (amount.subject, amount.depends_on) == ("schema:orders.amount", ("schema:src/orders",))
    assert "range: 0 to 1498.5" in text_of(shop, "orders.amount")
    assert "top values: sent (66.6 %), paid (33.4 %)" in text_of(shop, "orders.status")
    assert "nulls: 25.0 %" in text_of(shop, 'orders.odd "name')
    assert "references: regions(id)" in text_of(shop, "orders.region_id")


def test_a_table_depends_on_those_its_foreign_keys_name_and_not_on_itself(shop):
    assert by_id(shop)["schema:src/orders"].depends_on == ("schema:src/regions",)
    assert by_id(shop)["schema:src/regions"].depends_on == ()


@pytest.mark.parametrize("column", ["customer_email", "contact", "apiToken", "手机号"])
def test_values_of_personal_columns_are_withheld(shop, column):
    assert "values withheld: they look like personal data or a secret" in text_of(
        shop, f"orders.{column}"
    )
    text = "".join(item.content or "" for item in shop.items)
    assert not any(value in text for value in ("hidden", "@b.example", "13800000000"))


def test_every_table_and_view_is_accounted_for_and_a_view_is_never_run(shop):
    assert [(file.path, file.status, file.items) for file in shop.files] == [
        ("src/orders", FileStatus.LOADED, 13),
        ("src/paid", FileStatus.LOADED, 13),
        ("src/regions", FileStatus.LOADED, 3),
    ]
    assert text_of(shop, "paid")[:2] == ["view: paid", "columns:"]
    assert text_of(shop, "paid.amount") == ["column: paid.amount", "type: DECIMAL(10, 2)"]


def test_reading_changes_nothing_and_is_repeatable(shop, query, tmp_path):
    before = (tmp_path / "shop.db").read_bytes()
    assert query("sqlite:///shop.db") == shop
    assert (tmp_path / "shop.db").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["shop.db"]


def test_a_large_table_is_sampled_and_says_so(query, tmp_path, monkeypatch):
    monkeypatch.setattr(sql_stats, "EXACT_ROWS", 1_000)
    monkeypatch.setattr(sql_stats, "EXACT_DISTINCT_ROWS", 500)
    monkeypatch.setattr(sql_stats, "SAMPLE_ROWS", 100)
    numbers = (
        "WITH RECURSIVE i(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM i WHERE n < {})"
        " INSERT INTO {} SELECT n, n % 7 FROM i;"
    )
    build(
        tmp_path / "big.db",
        "CREATE TABLE big(n INT, k INT); CREATE TABLE mid(n INT, k INT); "
        "CREATE TABLE bare(n INT PRIMARY KEY, k INT)"
        " WITHOUT ROWID;"
        + numbers.format(4_999, "big")
        + numbers.format(799, "mid")
        + numbers.format(1_999, "bare"),
    )
    batch = query("sqlite:///big.db")
    assert batch.errors == ()
    assert "rows: ~5,000 (estimate)" in text_of(batch, "big")
    assert "rows: 800" in text_of(batch, "mid")
    assert "rows: more than 1,000" in text_of(batch, "bare")
    for table in ("big", "mid", "bare"):
        assert "statistics: approximate, from a sample" in text_of(batch, f"{table}.k")
        assert "distinct values: 7" in text_of(batch, f"{table}.k")
        assert "distinct values: nearly every row has its own" in text_of(batch, f"{table}.n")
    high = next(line for line in text_of(batch, "big.n") if line.startswith("range: "))
    assert int(high.split()[-1]) > 4_900


def test_a_table_full_of_holes_shows_its_first_rows(query, tmp_path, monkeypatch):
    monkeypatch.setattr(sql_stats, "EXACT_DISTINCT_ROWS", 500)
    build(
        tmp_path / "holes.db",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, k INT); WITH RECURSIVE i(n) "
        "AS (SELECT 0 UNION ALL SELECT n + 1 FROM i"
        " WHERE n < 999) INSERT INTO t SELECT n * 4000000000, n % 7 FROM i;",
    )
    batch = query("sqlite:///holes.db")
    assert "rows: 1,000" in text_of(batch, "t")
    assert "distinct values: 7" in text_of(batch, "t.k")


def test_what_takes_too_long_is_described_without_statistics(query, tmp_path, monkeypatch):
    from ctx_pipeline.sources.database import sql_connect

    build(tmp_path / "slow.db", "CREATE TABLE t(n INT); INSERT INTO t VALUES (1);")
    monkeypatch.setattr(sql_connect, "SQLITE_STEPS", 1)
    ticks = iter(range(10_000_000))
    monkeypatch.setattr(sql_connect.time, "monotonic", lambda: next(ticks))
    batch = query("sqlite:///slow.db")
    assert (batch.items, [error.code for error in batch.errors]) == ((), [FileCode.UNREADABLE])


def test_after_the_time_for_statistics_tables_are_still_described(query, tmp_path, monkeypatch):
    build(tmp_path / "shop.db", SHOP)
    monkeypatch.setattr(sql, "MAX_STATISTICS_SECONDS", 0.0)
    batch = query("sqlite:///shop.db")
    assert [(error.path, error.code) for error in batch.errors] == [("src", FileCode.TOO_LARGE)]
    assert text_of(batch, "orders.amount") == ["column: orders.amount", "type: DECIMAL(10, 2)"]


def test_tables_beyond_the_limit_are_named_by_their_number(query, tmp_path, monkeypatch):
    build(tmp_path / "many.db", "".join(f"CREATE TABLE t{number}(a INT);" for number in range(5)))
    monkeypatch.setattr(sql, "MAX_TABLES", 3)
    batch = query("sqlite:///many.db")
    assert len(batch.files) == 3
    assert [(error.path, error.code) for error in batch.errors] == [("src", FileCode.TOO_LARGE)]


MALFORMED = {
    "broken view": "CREATE TABLE t(a INT); CREATE VIEW broken AS SELECT * FROM absent;",
    "wide": "CREATE TABLE t(" + ", ".join(f"c{number} INT" for number in range(500)) + ");",
    "no type": "CREATE TABLE t(a, b); INSERT INTO t VALUES (1, x'ff');",
    "bytes as text": (
        "CREATE TABLE t(a TEXT); INSERT INTO t VALUES (CAST(x'ff41' "
        "AS TEXT)), (CAST(x'4100' AS TEXT));"
    ),
    "text as date": (
        "CREATE TABLE t(a DATE, b TIMESTAMP, c DECIMAL); INSERT INTO "
        "t VALUES ('soon', 'now', 'much');"
    ),
    "huge value": (
        "CREATE TABLE t(a TEXT); INSERT INTO t VALUES (replace(hex(zeroblob(1000000)), '0', 'x'));"
    ),
    "odd names": 'CREATE TABLE "t"(a INT); CREATE TABLE "a""b; DROP TABLE t; --"("x""y\n" INT);'
    ' CREATE TABLE "表"("列 1" INT);',
    "dangling key": "CREATE TABLE t(a INT REFERENCES absent(b));",
    "cycle": "CREATE TABLE t(a INT REFERENCES u(a)); CREATE TABLE u(a INT REFERENCES t(a));",
    "empty": "",
    "generated": "CREATE TABLE t(a INT, b INT GENERATED ALWAYS AS (a * 2) STORED);",
}


@pytest.mark.parametrize("label", MALFORMED)
def test_a_malformed_database_gives_what_can_be_read(query, tmp_path, label):
    build(tmp_path / "m.db", MALFORMED[label])
    batch = query("sqlite:///m.db")
    failed = {file.path for file in batch.files if file.status is FileStatus.FAILED}
    assert (
        failed
        == {error.path for error in batch.errors}
        == ({"src/broken"} if label == "broken view" else set())
    )
    assert len({item.item_id for item in batch.items}) == len(batch.items)
    for item in batch.items:
        assert len(item.content or "") < 60_000
        assert "\0" not in (item.content or "")
    assert label == "empty" or "schema:src/t" in by_id(batch)


def test_tables_that_would_share_an_id_are_reported(query, tmp_path):
    build(tmp_path / "m.db", 'CREATE TABLE t(a INT); CREATE TABLE "t.a"(b INT);')
    batch = query("sqlite:///m.db")
    assert [(error.path, error.code) for error in batch.errors] == [
        ("src/t.a", FileCode.DUPLICATE_ID)
    ]


@pytest.mark.parametrize(
    "content", [b"", b"no database at all", b"SQLite format 3\0" + b"\xff" * 2_000]
)
def test_a_file_that_is_no_database_is_one_error_at_most(query, tmp_path, content):
    (tmp_path / "x.db").write_bytes(content)
    batch = query("sqlite:///x.db")
    assert batch.items == ()
    assert [error.code for error in batch.errors] == ([FileCode.UNREADABLE] if content else [])


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///absent.db",
        "sqlite://",
        "sqlite:///:memory:",
        "duckdb:///absent.duckdb",
        "sqlite:///a%00b",
    ],
)
def test_a_missing_file_is_one_error_and_is_not_created(query, tmp_path, url):
    batch = query(url)
    assert [(error.path, error.code) for error in batch.errors] == [("src", FileCode.MISSING)]
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://user:{CANARY}@host/db", f"no address {CANARY}", f"://{CANARY}",
        f"postgresql://u:{CANARY}@h:port/db",
        f"oracle+x://u:{CANARY}@h/d",
    ],
)  # fmt: skip
def test_an_address_of_another_kind_is_refused_without_repeating_it(query, url):
    with pytest.raises(ConfigError) as caught:
        query(url)
    assert CANARY not in str(caught.value)
    assert CANARY not in str(caught.value.as_dict())


def test_a_source_without_url_is_refused(tmp_path):
    with pytest.raises(ConfigError):
        read_source(SourceConfig(name="s", kind="sql", path="."), tmp_path, tenant="acme")


def test_duckdb_gives_the_same_items_with_keys_between_tables(query, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect(str(tmp_path / "shop.duckdb"))
    connection.execute(
        "CREATE TABLE regions(id INTEGER PRIMARY KEY, name VARCHAR);"
        "CREATE TABLE orders(id INTEGER, region_id INTEGER REFERENCES regions(id));"
        "INSERT INTO regions VALUES (1, '东')"
    )
    connection.close()
    batch = query("duckdb:///shop.duckdb")
    assert batch.errors == ()
    assert by_id(batch)["schema:src/orders"].depends_on == ("schema:src/regions",)
    assert "top values: 东 (100.0 %)" in text_of(batch, "regions.name")
    assert [(file.path, file.items) for file in batch.files] == [("shop.duckdb", 6)]
    (tmp_path / "bad.duckdb").write_bytes(b"nothing")
    assert [error.code for error in query("duckdb:///bad.duckdb").errors] == [FileCode.UNREADABLE]


POSTGRES = """
CREATE TYPE mood AS ENUM ('ok', 'bad');
CREATE DOMAIN code AS text CHECK (length(value) < 9);
CREATE TABLE regions(id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE orders(order_id bigint PRIMARY KEY, region_id int REFERENCES regions(id),
    amount numeric(10,2),
  customer_email text, 手机号 text, ordered_at timestamptz, tags text[], photo bytea, doc jsonb,
  ok boolean, uid uuid,
  feeling mood, short code, place point, "odd ""name" int,
  parent bigint REFERENCES orders(order_id));
COMMENT ON TABLE orders IS '所有订单';
COMMENT ON COLUMN orders.amount IS 'Gross amount';
INSERT INTO regions VALUES (1, 'East'), (2, 'West');
INSERT INTO orders SELECT i, 1 + i % 2, i * 1.5, 'hidden-' || i % 3, '13800000000',
  '2026-01-01Z'::timestamptz + i % 30 * interval '1 day', '{a}', '\\x00', '{}', i % 2 = 0,
  md5((i % 3)::text)::uuid,
  'ok', 'x', point(1, 2), 7, NULL FROM generate_series(0, 999) AS i;
CREATE SCHEMA sales;
CREATE TABLE sales.targets(month date, "order" bigint REFERENCES orders(order_id));
CREATE VIEW paid AS SELECT 1 / (order_id - order_id) AS boom FROM orders;
CREATE MATERIALIZED VIEW per_region AS SELECT region_id, count(*) AS n FROM orders GROUP BY 1;
CREATE TABLE events(id int, day date) PARTITION BY RANGE (day);
CREATE TABLE events_2026 PARTITION OF events FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
INSERT INTO events SELECT i, '2026-02-01' FROM generate_series(1, 10) AS i;
CREATE TABLE closed(a int);
CREATE ROLE reader LOGIN PASSWORD 'reader-secret';
GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader;
REVOKE ALL ON closed FROM reader;
CREATE TABLE big AS SELECT i, i % 7 AS k FROM generate_series(1, 20000) AS i;
GRANT SELECT ON big TO reader;
ANALYZE big;
"""


@pytest.fixture(scope="module")
def postgres(postgres_server):
    """Return the address of a server with the shop in database `postgres`."""
    import psycopg

    with psycopg.connect(f"{postgres_server.address}/postgres") as connection:
        connection.execute(POSTGRES)
    return postgres_server.address


def test_postgres_gives_tables_columns_keys_and_comments(query, postgres):
    batch = query(f"{postgres}/postgres")
    assert batch.errors == ()
    assert {
        "table: orders", "comment: 所有订单", "rows: 1,000", "primary key: order_id",
        "foreign key: region_id -> regions(id)", "newest ordered_at: 2026-01-30 00:00:00+00",
        "- amount NUMERIC(10, 2) -- Gross amount", "- feeling mood",
    } <= set(text_of(batch, "orders"))  # fmt: skip
    assert by_id(batch)["schema:src/orders"].depends_on == ("schema:src/regions",)
    assert by_id(batch)["schema:src/sales.targets"].depends_on == ("schema:src/orders",)
    assert "range: 0.00 to 1498.50" in text_of(batch, "orders.amount")
    assert "top values: ok (100.0 %)" in text_of(batch, "orders.feeling")
    assert "top values: x (100.0 %)" in text_of(batch, "orders.short")
    assert "top values: false (50.0 %), true (50.0 %)" in text_of(batch, "orders.ok")
    text = "".join(item.content or "" for item in batch.items)
    assert "hidden" not in text
    assert "13800000000" not in text
    assert query(f"{postgres}/postgres") == batch


def test_postgres_views_are_never_run_and_partitions_are_part_of_their_table(query, postgres):
    batch = query(f"{postgres}/postgres")
    assert text_of(batch, "paid") == ["view: paid", "columns:", "- boom BIGINT"]
    assert "rows: 2" in text_of(batch, "per_region")
    assert "rows: 10" in text_of(batch, "events")
    skipped = {file.path: file.reason for file in batch.files if file.status is FileStatus.SKIPPED}
    assert [*skipped] == ["src/events_2026"]


def test_a_large_postgres_table_is_estimated_and_sampled(query, postgres, monkeypatch):
    monkeypatch.setattr(sql_stats, "EXACT_ROWS", 10_000)
    monkeypatch.setattr(sql_stats, "SAMPLE_ROWS", 2_000)
    batch = query(f"{postgres}/postgres")
    assert "rows: ~20,000 (estimate)" in text_of(batch, "big")
    assert "statistics: approximate, from a sample" in text_of(batch, "big.k")
    assert "distinct values: 7" in text_of(batch, "big.k")


def test_a_table_without_the_right_to_read_it_is_described_and_reported(query, postgres):
    batch = query(postgres.replace("owner:throw-away", "reader:reader-secret") + "/postgres")
    errors = {error.path: error.message for error in batch.errors}
    assert {"src/closed"} <= set(errors)
    assert "InsufficientPrivilege" in errors["src/closed"]
    assert text_of(batch, "closed") == ["table: closed", "columns:", "- a INTEGER"]
    assert "rows: 1,000" in text_of(batch, "orders")


def test_a_slow_statement_is_stopped_by_the_server(query, postgres, monkeypatch):
    from ctx_pipeline.sources.database import sql_connect

    monkeypatch.setattr(sql_connect, "STATEMENT_SECONDS", 0.001)
    batch = query(f"{postgres}/postgres")
    assert any("QueryCanceled" in error.message for error in batch.errors)


def test_a_postgres_connection_cannot_write(postgres):
    from sqlalchemy import make_url, text
    from sqlalchemy.exc import InternalError

    from ctx_pipeline.sources.database.sql_connect import connect_postgres

    with (
        connect_postgres(make_url(f"{postgres}/postgres")) as connection,
        pytest.raises(InternalError),
    ):
        connection.execute(text("CREATE TABLE written(a int)"))


def test_a_sqlite_connection_cannot_write(tmp_path):
    from sqlalchemy import text
    from sqlalchemy.exc import OperationalError

    from ctx_pipeline.sources.database.sql_connect import connect_sqlite

    build(tmp_path / "shop.db", SHOP)
    with connect_sqlite(tmp_path / "shop.db") as connection, pytest.raises(OperationalError):
        connection.execute(text("DELETE FROM orders"))


@pytest.mark.parametrize("part", ["password", "database", "port", "option"])
def test_a_server_that_refuses_is_one_error_without_the_address(query, postgres, part, caplog):
    address = {
        "password": postgres.replace("throw-away", CANARY) + "/postgres",
        "database": f"{postgres}/{CANARY}",
        "port": f"postgresql://user:{CANARY}@127.0.0.1:1/db",
        "option": f"postgresql://user:{CANARY}@127.0.0.1:1/db?no_such_option={CANARY}",
    }[part]
    with caplog.at_level("DEBUG"):
        batch = query(address)
    assert (batch.items, [(error.path, error.code) for error in batch.errors]) == (
        (),
        [("src", FileCode.UNREADABLE)],
    )
    assert CANARY not in batch.errors[0].message
    assert CANARY not in caplog.text


def test_a_missing_driver_is_an_error_that_names_the_extra(query, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "psycopg", None)
    batch = query("postgresql://user@127.0.0.1:1/db")
    assert [error.code for error in batch.errors] == [FileCode.UNREADABLE]
    assert "ctx-pipeline[postgres]" in batch.errors[0].message
