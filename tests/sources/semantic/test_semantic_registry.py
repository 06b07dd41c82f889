from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from ctx_pipeline.contracts import FileCode, FileStatus, ItemKind

GMV = """
metrics:
  - name: gmv
    version: 1
    description: Gross merchandise value
    table: orders
    expression: sum(amount)
  - name: gmv
    version: 2
    valid_from: 2026-01-01T00:00:00Z
    description: Gross merchandise value, refunds excluded
    synonyms: [成交总额, gross merchandise value]
    owner: finance-data
    table: orders
    expression: sum(amount) filter (where status <> 'refunded')
    time_column: ordered_at
    dimensions: [region, category, channel]
    unit: CNY
    grain: day
    joins: [{to: regions, on: orders.region_id = regions.id}]
"""


@pytest.fixture
def registry(read, tmp_path):
    """Read files of a registry given as name=text."""

    def run(*texts: str, name: str = "m{}.yaml", **settings):
        for number, text in enumerate(texts):
            (tmp_path / name.format(number)).write_text(text, encoding="utf-8")
        return read("semantic_registry", **settings)

    return run


def found(batch) -> list[tuple[FileCode, str, int | None]]:
    return [(error.code, error.path, error.line) for error in batch.errors]


def test_two_versions_of_a_metric_are_two_versions_of_one_item(registry):
    batch = registry(GMV)
    assert batch.errors == ()
    old, new = batch.items
    assert old.item_id == new.item_id == "metric:src/gmv"
    assert (old.version, new.version) == ("1", "2")
    assert (new.kind, new.subject, new.authority) == (ItemKind.METRIC, "metric:gmv", 100)
    assert new.valid_from == datetime(2026, 1, 1, tzinfo=UTC)
    assert new.synonyms == ("成交总额", "gross merchandise value")
    assert new.depends_on == ("schema:*/orders", "schema:*/regions")
    assert (new.provenance.locator.line_start, new.provenance.locator.line_end) == (8, 20)


def test_the_definition_reads_as_lines_in_a_fixed_order(registry):
    assert registry(GMV).items[1].content == "\n".join(
        [
            "metric: gmv",
            "version: 2",
            "description: Gross merchandise value, refunds excluded",
            "expression: sum(amount) filter (where status <> 'refunded')",
            "table: orders",
            "dimensions: region, category, channel",
            "unit: CNY",
            "time_column: ordered_at",
            "joins: regions on orders.region_id = regions.id",
            "owner: finance-data",
            "valid_from: 2026-01-01T00:00:00Z",
            "grain: day",
        ]
    )


def test_a_version_used_twice_for_two_definitions_is_reported(registry):
    other = "metrics:\n  - {name: gmv, version: 2, expression: sum(x)}\n"
    batch = registry(GMV, GMV, other)
    assert len(batch.items) == 2
    assert found(batch) == [(FileCode.VERSION_REUSED, "m2.yaml", 2)]
    assert [file.status for file in batch.files] == [
        FileStatus.LOADED,
        FileStatus.SKIPPED,
        FileStatus.FAILED,
    ]


def test_a_metric_without_version_is_known_by_its_definition(registry):
    text = (
        "metrics:\n- {name: a, expression: sum(x)}\n- {name: a, expression: sum(y)}\n- {name: "
        "a, expression: sum(x)}\n"
    )
    batch = registry(text)
    (item,) = batch.items
    assert len(item.version) == 12
    assert found(batch) == [(FileCode.DUPLICATE_ID, "m0.yaml", 3)]


def test_records_override_permissions_but_not_ceilings(registry):
    text = (
        "metrics: [{name: a, expression: x, groups: finance, sensitivity: restricted, "
        "authority: 100, trust: user}]"
    )
    (item,) = registry(text, authority=80).items
    assert (item.scope.groups, item.sensitivity, item.authority, item.trust) == (
        ("finance",),
        "restricted",
        80,
        "user",
    )
    assert "finance" not in (item.content or "")


def test_yaml_keeps_what_was_written(registry):
    text = (
        "metrics:\n- name: on\n  version: 1.10\n  unit: no\n  expression: 007\n  dimensions: "
        "[yes, 1e3]\n"
    )
    (item,) = registry(text).items
    assert (item.item_id, item.version) == ("metric:src/on", "1.10")
    assert "unit: no" in (item.content or "")
    assert "expression: 007" in (item.content or "")
    assert "dimensions: yes, 1e3" in (item.content or "")


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("metrics:\n- name: a\n  name: b\n", FileCode.BAD_YAML, 3),
        ("metrics:\n- {name: a\n", FileCode.BAD_YAML, 2),
        ("metrics:\n- !!python/object:os.system {}\n", FileCode.BAD_YAML, 2),
        ("metrics:\n- expression: sum(x)\n", FileCode.BAD_RECORD, 2),
        ("metrics:\n- name: a\n  valid_from: 2026-01-01T00:00:00\n", FileCode.NAIVE_TIME, 3),
        ("metrics:\n- name: a\n  valid_from: 1st of May\n", FileCode.BAD_RECORD, 3),
        ("metrics:\n- name: [a]\n", FileCode.BAD_RECORD, 2),
        ("metrics:\n- just text\n", FileCode.BAD_RECORD, 1),
        ("metrics:\n- name: a\n  groups: {x: y}\n", FileCode.BAD_RECORD, 3),
        ("[" * 5_000, FileCode.BAD_YAML, 1),
        ("a: &a [x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
            "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f "
            "[*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]\n",
            FileCode.BAD_YAML, None),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(registry, text, code, line):
    batch = registry(text)
    assert batch.items == ()
    assert found(batch) == [(code, "m0.yaml", line)]


def test_other_metrics_of_a_file_load_beside_a_bad_one(registry):
    batch = registry("metrics:\n- expression: x\n- {name: good, expression: x}\n")
    assert [item.item_id for item in batch.items] == ["metric:src/good"]
    assert found(batch) == [(FileCode.BAD_RECORD, "m0.yaml", 2)]


def test_files_of_something_else_are_skipped_with_a_reason(registry):
    batch = registry("integration_test: {name: x}", "- 1", "# nothing\n")
    assert batch.errors == ()
    assert [file.status for file in batch.files] == [
        FileStatus.SKIPPED,
        FileStatus.SKIPPED,
        FileStatus.EMPTY,
    ]


MANIFEST = {
    "semantic_models": [
        {
            "name": "orders",
            "node_relation": {
                "alias": "fct_orders",
                "schema_name": "dw",
                "relation_name": '"dw"."fct_orders"',
            },
            "defaults": {"agg_time_dimension": "ordered_at"},
            "entities": [{"name": "order", "type": "primary", "expr": "order_id"}],
            "dimensions": [
                {"name": "ordered_at", "type": "time", "type_params": {"time_granularity": "day"}}
            ],
            "measures": [
                {"name": "amount_sum", "agg": "sum", "expr": "amount", "create_metric": True}
            ],
        }
    ],
    "metrics": [
        {
            "name": "gmv",
            "label": "GMV",
            "type": "simple",
            "type_params": {
                "measure": {"name": "amount_sum", "filter": None},
                "input_measures": [{"name": "x"}],
            },
            "filter": {"where_filters": [{"where_sql_template": "{{ Dimension('order__paid') }}"}]},
            "config": {
                "meta": {
                    "version": 2,
                    "valid_from": "2026-01-01T00:00:00Z",
                    "supersedes": ["1", "old_gmv", "metric:other/gmv"],
                    "synonyms": ["成交额"],
                    "owner": "finance",
                    "groups": ["finance"],
                }
            },
        },
        {
            "name": "orders_new",
            "type": "simple",
            "type_params": {
                "expr": "1",
                "metric_aggregation_params": {
                    "semantic_model": "orders",
                    "agg": "sum",
                    "agg_time_dimension": "paid_at",
                },
            },
        },
        {
            "name": "aov",
            "type": "RATIO",
            "type_params": {"numerator": {"name": "gmv"}, "denominator": {"name": "orders_new"}},
        },
    ],
    "saved_queries": [
        {"name": "daily", "query_params": {"metrics": ["gmv"], "group_by": ["TimeDimension('x')"]}}
    ],
    "project_configuration": {},
}


def test_a_dbt_manifest_of_both_generations_is_read(registry):
    batch = registry(json.dumps(MANIFEST), name="semantic_manifest{}.json")
    assert batch.errors == ()
    items = {item.item_id: item for item in batch.items}
    gmv = items["metric:src/gmv"]
    assert (gmv.version, gmv.synonyms, gmv.scope.groups) == ("2", ("成交额", "GMV"), ("finance",))
    assert gmv.valid_from == datetime(2026, 1, 1, tzinfo=UTC)
    assert gmv.supersedes == ("metric:src/old_gmv", "metric:other/gmv")
    assert gmv.depends_on == ("schema:src/model.orders",)
    assert "expression: sum(amount)" in (gmv.content or "")
    assert "filter: {{ Dimension('order__paid') }}" in (gmv.content or "")
    assert "time_column: ordered_at" in (gmv.content or "")
    new = items["metric:src/orders_new"]
    assert (new.depends_on, len(new.version)) == (("schema:src/model.orders",), 12)
    assert "expression: sum(1)" in (new.content or "")
    assert "time_column: paid_at" in (new.content or "")
    assert items["metric:src/aov"].depends_on == ("metric:src/gmv", "metric:src/orders_new")
    assert "expression: gmv / orders_new" in (items["metric:src/aov"].content or "")
    model = items["schema:src/model.orders"]
    assert (model.depends_on, model.kind) == (("schema:*/fct_orders",), ItemKind.SCHEMA)
    assert "table: dw.fct_orders" in (model.content or "")
    assert "metric:src/amount_sum" in items
    assert items["artifact_ref:src/saved_query.daily"].depends_on == ("metric:src/gmv",)


def test_a_changed_measure_changes_the_metrics_version(registry):
    before = {
        item.item_id: item.version for item in registry(json.dumps(MANIFEST), name="m{}.json").items
    }
    changed = json.loads(json.dumps(MANIFEST))
    changed["semantic_models"][0]["measures"][0]["expr"] = "amount - refunds"
    changed["metrics"][0]["config"] = {}
    plain = json.loads(json.dumps(MANIFEST))
    plain["metrics"][0]["config"] = {}
    first = {
        item.item_id: item.version for item in registry(json.dumps(plain), name="m{}.json").items
    }
    second = {
        item.item_id: item.version for item in registry(json.dumps(changed), name="m{}.json").items
    }
    assert before["metric:src/aov"] == second["metric:src/aov"]
    assert first["metric:src/gmv"] != second["metric:src/gmv"]


def test_our_metric_on_a_semantic_model_depends_on_it(registry):
    model = "semantic_model:\n  name: orders\n  node_relation: {alias: fct}\n---\n"
    batch = registry(
        model
        + "metrics:\n- {name: a, expression: sum(x), model: orders}\n- {name: b, expression: y, "
        "model: z}"
    )
    depends = {item.item_id: item.depends_on for item in batch.items}
    assert depends["metric:src/a"] == ("schema:src/model.orders",)
    assert depends["metric:src/b"] == ("schema:*/z",)


def test_a_broken_manifest_is_reported(registry):
    assert found(registry('{"metrics": [', name="m{}.json")) == [(FileCode.BAD_JSON, "m0.json", 1)]


@pytest.mark.parametrize("manifest", ["simple_semantic_manifest", "measure_migrated_manifest"])
def test_both_generations_of_a_real_manifest_load_whole(read, corpora, manifest):
    folder = corpora / "dsi_manifests" / "tests" / "fixtures" / "semantic_manifest_yamls" / manifest
    batch = read("semantic_registry", folder)
    assert batch.errors == ()
    written = sum(
        path.read_text(encoding="utf-8").count("\nmetric:") for path in folder.rglob("*.yaml")
    )
    metrics = [item for item in batch.items if item.kind is ItemKind.METRIC]
    assert len(metrics) >= written > 40
    ids = {item.item_id for item in batch.items}
    for item in metrics:
        assert set(item.depends_on) <= ids
        assert item.depends_on
    instant = next(
        item for item in metrics if item.item_id == "metric:src/average_instant_booking_value"
    )
    assert "expression: average(booking_value)" in (instant.content or "")
    assert "filter: {{ Dimension('booking__is_instant') }}" in (instant.content or "")


def test_every_real_manifest_loads_or_says_why_not(read, corpora):
    root = (
        corpora
        / "metricflow_manifests"
        / "metricflow_semantics"
        / "test_helpers"
        / "semantic_manifest_yamls"
    )
    folders = sorted(path for path in root.iterdir() if path.is_dir())
    assert len(folders) > 15
    for folder in folders:
        batch = read("semantic_registry", folder)
        if (
            folder.name == "config_linter_manifest"
        ):  # two models in one document: a key is given twice
            assert [error.code for error in batch.errors] == [FileCode.BAD_YAML]
        else:
            assert batch.errors == ()


def test_an_ossie_model_gives_datasets_and_metrics(read, corpora):
    batch = read("semantic_registry", corpora / "osi" / "examples" / "tpcds_semantic_model.yaml")
    assert batch.errors == ()
    items = {item.item_id: item for item in batch.items}
    value = items["metric:src/customer_lifetime_value"]
    assert value.depends_on == ("schema:src/model.store_sales", "schema:src/model.customer")
    assert "CLV" in value.synonyms
    sales = items["schema:src/model.store_sales"]
    assert sales.depends_on == ("schema:*/store_sales",)
    assert "date_dim on ss_sold_date_sk = d_date_sk" in (sales.content or "")


def test_an_ossie_extension_states_version_and_permissions(registry):
    def model(data: str) -> str:
        metric = {
            "name": "m",
            "expression": {"dialects": [{"dialect": "ANSI_SQL", "expression": "SUM(d.x)"}]},
            "custom_extensions": [{"vendor_name": "CTX_PIPELINE", "data": data}],
        }
        return json.dumps({"semantic_model": [{"name": "s", "datasets": [], "metrics": [metric]}]})

    (item,) = registry(model('{"version": 3, "groups": ["hr"]}'), name="o{}.json").items
    assert (item.version, item.scope.groups) == ("3", ("hr",))
    broken = registry(model('{"groups": ["hr"'), name="o{}.json")
    assert (broken.items, [error.code for error in broken.errors]) == ((), [FileCode.BAD_RECORD])


def test_the_history_of_real_metrics_becomes_versions(registry, corpora):
    rows = [
        json.loads(line)
        for line in (corpora / "metric_hub" / "versions.jsonl").read_text("utf-8").splitlines()
    ]
    metrics = [
        row for row in rows if row["kind"] == "metrics" and row["def"].get("select_expression")
    ]
    records = [
        {
            "name": f"{row['product']}.{row['name']}",
            "version": row["version"],
            "valid_from": row["valid_from"],
            "description": row["def"].get("description"),
            "expression": row["def"]["select_expression"],
            "table": row["def"].get("data_source"),
        }
        for row in metrics
    ]
    batch = registry(json.dumps({"metrics": records}, ensure_ascii=False), name="h{}.json")
    assert batch.errors == ()
    assert len(batch.items) == len(records)
    assert len({item.item_id for item in batch.items}) < len(records)
