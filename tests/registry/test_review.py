"""What a review of definitions refuses, warns of and lets through, each with its code and line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ctx_pipeline.errors import Unavailable
from ctx_pipeline.orchestration.publish import DefinitionFile, check, publish
from testing.artifacts import write_config
from testing.published_project import (
    AOV,
    DBT,
    GMV,
    ORDERS,
    REGISTRY,
    V2,
    WAREHOUSE,
    Home,
    codes,
)

# --- what is refused


WRONG: dict[str, tuple[list[dict[str, Any]], list[tuple[str, int | None]]]] = {
    "a name with blanks": ([{**AOV, "name": "basket size"}], [("bad_name", 2)]),
    "two spellings of a name": (
        [{**AOV, "name": "Rate"}, {**AOV, "name": "rate"}],
        [("duplicate_name", 3)],
    ),
    "a synonym that is a name": ([{**AOV, "synonyms": ["ＧＭＶ"]}, GMV], [("synonym_taken", 2)]),
    "a Chinese synonym that is a name": (
        [AOV, {**GMV, "synonyms": ["客单价"]}],
        [("synonym_taken", 3)],
    ),
    "an expression that does not parse": (
        [{**GMV, "version": 2, "expression": "sum(amount"}],
        [("bad_expression", 2)],
    ),
    "two statements": ([{**AOV, "expression": "1; drop table orders"}], [("bad_expression", 2)]),
    "a whole query": ([{**AOV, "expression": "sum(amount) from orders"}], [("bad_expression", 2)]),
    "an unknown table": ([{**AOV, "table": "order"}], [("unknown_table", 2)]),
    "a join to an unknown table": (
        [{**GMV, "version": 2, "joins": [{"to": "region", "on": "orders.region_id = region.id"}]}],
        [("unknown_table", 2)],
    ),
    "an unknown column": ([{**AOV, "expression": "avg(金钱)"}], [("unknown_column", 2)]),
    "an unknown column of a join": (
        [
            {
                **GMV,
                "version": 2,
                "joins": [{"to": "regions", "on": "orders.region = regions.id", "type": "left"}],
            }
        ],
        [("unknown_column", 2)],
    ),
    "a table that is not joined": (
        [{**AOV, "expression": "sum(regions.id)"}],
        [("unknown_table", 2)],
    ),
    "an unknown dimension": ([{**AOV, "dimensions": ["regio_id"]}], [("unknown_column", 2)]),
    "an unknown time column": ([{**AOV, "time_column": "order_at"}], [("unknown_column", 2)]),
    "an unknown column in a filter": (
        [{**AOV, "filters": ["status = 'a, b'", "stat = 1"]}],
        [("unknown_column", 2)],
    ),
    "other content under one version": (
        [{**GMV, "expression": "sum(金额)"}],
        [("version_reused", 2)],
    ),
    "an older version": ([{**GMV, "version": "0.9"}], [("version_not_newer", 2)]),
    "no version": (
        [{key: part for key, part in GMV.items() if key != "version"}],
        [("version_not_newer", 2)],
    ),
    "an earlier beginning": (
        [{**V2, "valid_from": "2025-01-01T00:00:00Z"}],
        [("valid_from_too_early", 2)],
    ),
    "an unknown tenant": ([{**AOV, "tenant": "acne"}], [("wrong_tenant", 2)]),
    "a naive time": ([{**V2, "valid_from": "2026-06-01T00:00:00"}], [("naive_time", 2)]),
    "a record without a name": ([{"expression": "1"}], [("bad_record", 2)]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_named_with_code_and_line_and_nothing_is_written(
    published: Home, wrong: str
):
    metrics, expected = WRONG[wrong]
    before = published.state()
    report = published.publish(*metrics)
    assert codes(report.findings) == expected
    assert not report.published
    assert all(finding.fix for finding in report.findings)
    assert {finding.path for finding in report.findings} == {"semantic/gmv.yaml"}
    assert published.state() == before
    assert codes(published.check(*metrics).findings) == expected


def test_the_nearest_name_is_proposed(published: Home):
    (finding,) = published.check(GMV, {**AOV, "expression": "sum(amout)"}).findings
    assert "'amout'" in finding.message
    assert finding.fix == "did you mean 'amount'?"


RIGHT: dict[str, dict[str, Any]] = {
    "a qualified column": {"expression": "sum(orders.amount)", "table": "orders"},
    "a table with its schema": {"expression": "sum(amount)", "table": "main.orders"},
    "another case": {"expression": "SUM(Amount)", "table": "Orders"},
    "other metrics": {"expression": "gmv / nullif(count(*), 0)", "table": "orders"},
    "a lambda": {"expression": "sum(len(list_filter([amount], x -> x > 1)))", "table": "orders"},
    "a window": {
        "expression": "sum(amount) over (partition by region_id order by ordered_at)",
        "table": "orders",
    },
    "comments": {"expression": "sum(amount) -- 不含退款", "table": "orders"},
    "a filter with commas": {
        "expression": "sum(amount)",
        "filters": "status in ('a', 'b')",
        "table": "orders",
    },
    "a joined dimension": {
        "expression": "count(*)",
        "table": "orders",
        "dimensions": ["name"],
        "joins": [
            {
                "to": "regions",
                "on": "orders.region_id = regions.id and coalesce(status, 'x') <> 'y'",
            }
        ],
    },
}


@pytest.mark.parametrize("right", RIGHT)
def test_what_duckdb_accepts_is_accepted(published: Home, right: str):
    report = published.check(GMV, {"name": "new", "version": 1, **RIGHT[right]})
    assert [finding.message for finding in report.findings] == []


def test_a_name_that_another_file_has_is_refused(published: Home):
    report = published.publish({**AOV, "name": "GMV"}, name="other.yaml")
    assert codes(report.findings) == [("duplicate_name", 2)]
    assert "semantic/gmv.yaml:2" in report.findings[0].message
    report = published.publish({**AOV, "synonyms": ["gmv"]}, name="other.yaml")
    assert codes(report.findings) == [("synonym_taken", 2)]


def test_an_error_in_a_file_that_is_not_published_is_a_warning(published: Home):
    (published.folder / "semantic" / "broken.yaml").write_text("metrics: [", encoding="utf-8")
    report = published.publish(V2)
    assert report.published
    assert [(finding.path, finding.code.value) for finding in report.findings] == [
        ("semantic/broken.yaml", "bad_yaml")
    ]


def test_a_failing_second_file_leaves_the_first_untouched(published: Home):
    before = published.state()
    files = [published.draft(V2), published.draft({**AOV, "expression": "sum("}, name="other.yaml")]
    report = publish(published.folder, files, build=False)
    assert not report.published
    assert codes(report.findings) == [("bad_expression", 2)]
    assert published.state() == before
    assert published.live("other.yaml") is None


def test_a_file_that_cannot_be_put_in_its_place_leaves_the_others_as_they_were(published: Home):
    (published.folder / "semantic" / ".other.yaml.ctx-publish").mkdir()
    before = published.state()
    with pytest.raises(Unavailable, match="registry_readonly"):
        publish(
            published.folder,
            [published.draft(V2), published.draft(AOV, name="other.yaml")],
            build=False,
        )
    assert published.state() == before
    assert sorted(
        file.name for file in (published.folder / "semantic").iterdir() if file.is_file()
    ) == ["gmv.yaml"]


def test_a_replacement_that_fails_half_way_is_undone(
    published: Home, monkeypatch: pytest.MonkeyPatch
):
    before = published.state()
    replace = os.replace

    def failing(source: Any, target: Any) -> None:
        if Path(target).name == "other.yaml":
            raise OSError("disk")
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(Unavailable):
        publish(
            published.folder,
            [published.draft(V2), published.draft(AOV, name="other.yaml")],
            build=False,
        )
    assert published.state() == before


# --- tables


def test_without_a_schema_source_nothing_is_known_and_that_is_said(home: Home):
    report = home.publish({**GMV, "table": "nowhere"})
    assert report.published
    assert codes(report.findings, "warning") == [("not_checked", None)]


def test_the_schema_of_another_tenant_is_not_consulted(tmp_path: Path):
    home = Home(tmp_path)
    write_config(
        tmp_path,
        {
            "registry": {**REGISTRY, "tenants": ["globex"]},
            "warehouse": {**WAREHOUSE, "tenant": "globex"},
        },
    )
    home.read_warehouse()
    assert codes(home.check({**GMV, "table": "nowhere"}).findings, "warning") == [
        ("not_checked", None)
    ]
    assert codes(home.check({**GMV, "table": "nowhere", "tenant": "globex"}).findings) == [
        ("unknown_table", 2)
    ]


def test_a_column_that_the_source_dropped_is_unknown(published: Home):
    (published.folder / "warehouse" / "orders.csv").write_text(
        ORDERS.replace("status", "state"), encoding="utf-8"
    )
    published.read_warehouse()
    assert codes(published.check(V2).findings) == [("unknown_column", 2)]


OSSIE = """\
semantic_model:
  - name: shop
    datasets:
      - name: sales
        source: main.orders
        fields: [{name: net, expression: {dialects: [{dialect: ANSI_SQL, expression: amount}]}}]
    metrics:
      - name: net_sales
        expression: {dialects: [{dialect: ANSI_SQL, expression: "SUM(sales.COLUMN)"}]}
"""


@pytest.mark.parametrize(("content", "right"), [(DBT, "amount"), (OSSIE, "net"), (OSSIE, "amount")])
def test_other_formats_are_checked_by_their_own_adapter(published: Home, content: str, right: str):
    def found(column: str) -> list[str]:
        file = DefinitionFile("other.yaml", content=content.replace("COLUMN", column).encode())
        return [code for code, _ in codes(check(published.folder, [file]).findings)]

    assert found(right) == []
    assert found("amuont") == ["unknown_column"]
