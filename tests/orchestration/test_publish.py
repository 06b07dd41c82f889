"""Publishing definitions: nothing wrong gets in, nothing replaced is shown, and what was cut off is
finished.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ctx_pipeline.building.generation import current_generation
from ctx_pipeline.building.refresh import refresh_source
from ctx_pipeline.contracts import ContextRequest, DefinitionFinding, Identity, PublishReport, Task
from ctx_pipeline.errors import ConfigError, InvalidRequest, NotFound, Unavailable
from ctx_pipeline.index.history import roll_back, unpin
from ctx_pipeline.index.store import Store
from ctx_pipeline.ledger import Ledger
from ctx_pipeline.lifecycle.retire import retire_item
from ctx_pipeline.orchestration.publish import DefinitionFile, check, publish
from testing.artifacts import ANA, NOW, build_index, open_project, open_workspace, write_config
from testing.children import processes

REGISTRY = {"kind": "semantic_registry", "path": "semantic"}
WAREHOUSE = {"kind": "schema_metadata", "path": "warehouse"}
ORDERS = "id,amount,status,ordered_at,region_id,金额\n1,10.5,paid,2026-01-01,1,3\n"
REGIONS = "id,name\n1,East\n"
GMV: dict[str, Any] = {
    "name": "gmv",
    "version": 1,
    "valid_from": "2026-01-01T00:00:00Z",
    "description": "Gross merchandise value of all orders",
    "synonyms": ["成交总额", "gross merchandise value"],
    "table": "orders",
    "expression": "sum(amount)",
    "time_column": "ordered_at",
    "dimensions": ["region_id"],
    "joins": [{"to": "regions", "on": "orders.region_id = regions.id"}],
}
V2 = {
    **GMV,
    "version": 2,
    "valid_from": "2026-06-01T00:00:00Z",
    "expression": "sum(amount) filter (status = 'paid')",
}
AOV = {
    "name": "客单价",
    "version": 1,
    "table": "orders",
    "expression": "avg(金额)",
    "synonyms": ["aov"],
}


def text(*metrics: Mapping[str, Any]) -> str:
    """A file of our own format; JSON is YAML, one metric a line."""
    return "metrics:\n" + "".join(
        f"  - {json.dumps(metric, ensure_ascii=False)}\n" for metric in metrics
    )


class Home:
    """A project with a registry and a warehouse, published into with a clock of its own."""

    def __init__(self, folder: Path, now: datetime = NOW) -> None:
        self.folder = folder
        self.now = now
        if (folder / "ctx.toml").exists():
            return
        write_config(folder, {"registry": REGISTRY, "warehouse": WAREHOUSE})
        (folder / "warehouse").mkdir()
        (folder / "warehouse" / "orders.csv").write_text(ORDERS, encoding="utf-8")
        (folder / "warehouse" / "regions.csv").write_text(REGIONS, encoding="utf-8")

    def read_warehouse(self) -> Home:
        with open_workspace(self.folder) as workspace:
            refresh_source(workspace, "warehouse")
        return self

    def draft(self, *metrics: Mapping[str, Any], name: str = "gmv.yaml") -> Path:
        path = self.folder / "drafts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(*metrics), encoding="utf-8")
        return path

    def publish(
        self, *metrics: Mapping[str, Any], name: str = "gmv.yaml", **more: Any
    ) -> PublishReport:
        return publish(
            self.folder,
            [self.draft(*metrics, name=name)],
            build=False,
            clock=lambda: self.now,
            **more,
        )

    def check(self, *metrics: Mapping[str, Any], name: str = "gmv.yaml") -> PublishReport:
        return check(self.folder, [self.draft(*metrics, name=name)], clock=lambda: self.now)

    def live(self, name: str = "gmv.yaml") -> str | None:
        path = self.folder / "semantic" / name
        return path.read_text(encoding="utf-8") if path.exists() else None

    def versions(
        self, item_id: str = "metric:registry/gmv", at: datetime | None = None
    ) -> dict[str, str | None]:
        """Each version that the index knows, and why it would not be shown."""
        with open_project(self.folder) as project:
            probes = project.why_not(item_id, identity=ANA, at=at or self.now)
            return {probe.version: probe.code and probe.code.value for probe in probes}

    def shown(self, question: str = "gmv", **more: Any) -> set[str]:
        request = ContextRequest(task=Task(text=question), identity=ANA, **more)
        with open_project(self.folder) as project:
            pack = project.assemble(request, at=self.now, durable=True)
            return {
                f"{item.item_id}@{item.version}"
                for item in pack.items
                if item.item_id.startswith("metric:")
            }

    def state(self) -> tuple[int, int, str | None]:
        with open_workspace(self.folder) as workspace:
            return workspace.store.max_seq(), workspace.ledger.overlay_sequence(), self.live()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = Home(tmp_path_factory.mktemp("built") / "shop").read_warehouse()
    assert home.publish(GMV).published
    build_index(home.folder)
    return home.folder


@pytest.fixture
def published(built: Path, tmp_path: Path) -> Home:
    """A project whose registry has gmv version 1, built, with a known warehouse."""
    return Home(shutil.copytree(built, tmp_path / "shop"), NOW + timedelta(hours=1))


def codes(
    findings: Sequence[DefinitionFinding], severity: str = "error"
) -> list[tuple[str, int | None]]:
    return [
        (finding.code.value, finding.line) for finding in findings if finding.severity == severity
    ]


# --- what becomes live, and when


def test_a_published_definition_is_stored_and_its_file_is_in_the_registry(home: Home):
    report = home.publish(GMV, AOV)
    assert (report.published, report.added, report.errors) == (True, 2, 0)
    assert [(file.path, file.status) for file in report.files] == [("semantic/gmv.yaml", "created")]
    assert home.live() == text(GMV, AOV)
    build_index(home.folder)
    assert home.shown("成交总额") == {"metric:registry/gmv@1"}
    assert "metric:registry/客单价@1" in home.shown("客单价 aov")


def test_an_old_version_is_served_until_the_build_that_has_the_new_one(published: Home):
    assert published.shown() == {"metric:registry/gmv@1"}
    with open_project(published.folder) as reader:
        reader.index.view()
        report = published.publish(V2)
        assert (report.published, report.served, report.changed) == (True, False, 1)
        assert report.superseded == ("metric:registry/gmv@1",)
        assert published.shown("成交总额") == published.shown("gmv") == {"metric:registry/gmv@1"}
        assert reader.status(at=published.now).waiting == 1
        build_index(published.folder)
        # A process that had the old index open goes over to the new one, in one step.
        probes = reader.why_not("metric:registry/gmv", identity=ANA, at=published.now)
        assert {p.version: p.code and p.code.value for p in probes} == {
            "1": "superseded",
            "2": None,
        }
        assert reader.status(at=published.now).waiting == 0
    assert published.shown("成交总额") == {"metric:registry/gmv@2"}
    assert published.shown(as_of=datetime(2026, 3, 1, tzinfo=UTC)) == {"metric:registry/gmv@1"}


def test_publishing_again_changes_nothing(published: Home):
    published.publish(V2)
    before = published.state()
    published.now += timedelta(days=1)
    again = published.publish(V2)
    assert (again.published, again.changed, again.unchanged, again.served) == (True, 0, 1, False)
    assert again.superseded == ("metric:registry/gmv@1",), "it is served still"
    assert published.state() == before
    build_index(published.folder)
    again = published.publish(V2)
    assert (again.served, again.superseded) == (True, ())
    assert again.note == "what agents are shown is up to date"


def test_a_version_that_begins_later_leaves_the_old_one_until_then(published: Home):
    begins = published.now + timedelta(days=10)
    report = published.publish({**V2, "valid_from": begins.isoformat()})
    assert [change.effective_at for change in report.changes] == [begins]
    assert report.superseded_from == (begins,)
    assert published.versions(at=begins) == {"1": None}, "nothing has been built"
    build_index(published.folder)
    assert published.versions() == {"1": None, "2": "not_yet_valid"}
    assert published.versions(at=begins) == {"1": "superseded", "2": None}


@pytest.mark.parametrize("absorbed", [False, True])
def test_a_planned_version_that_is_taken_back_leaves_the_old_one_for_good(
    published: Home, absorbed: bool
):
    begins = published.now + timedelta(days=10)
    published.publish({**V2, "valid_from": begins.isoformat()})
    if absorbed:
        build_index(published.folder)
    with pytest.raises(InvalidRequest, match="metric:registry/gmv@2") as refused:
        published.publish(GMV)
    assert refused.value.stable_code == "removal_not_confirmed"
    assert published.publish(GMV, yes=True).removed == 1
    for _ in range(2):
        assert published.versions(at=begins + timedelta(days=1))["1"] is None
        build_index(published.folder)
    assert published.versions(at=begins + timedelta(days=1)) == {"1": None, "2": "retired"}


def test_definitions_without_versions_may_change_and_change_back(published: Home):
    plain = {"name": "orders", "table": "orders", "expression": "count(*)"}
    other = {**plain, "expression": "count(distinct id)"}
    for metric in (plain, other, plain):
        published.now += timedelta(hours=1)
        published.publish(metric, name="orders.yaml")
        build_index(published.folder)
        (current,) = [item for item in published.shown("orders count") if "/orders@" in item]
        assert published.versions("metric:registry/orders")[current.partition("@")[2]] is None


def test_a_file_that_is_edited_back_by_hand_brings_the_old_version_back(published: Home):
    published.publish(V2)
    build_index(published.folder)
    (published.folder / "semantic" / "gmv.yaml").write_text(text(GMV), encoding="utf-8")
    with open_workspace(published.folder, published.now) as workspace:
        refresh_source(workspace, "registry")
    for _ in range(2):
        assert published.versions() == {"1": None, "2": "retired"}
        build_index(published.folder)


def test_a_definition_that_comes_back_in_a_new_version_shows_nothing_of_before_until_that_is_built(
    published: Home,
):
    published.publish(AOV, yes=True)
    build_index(published.folder)
    assert published.versions() == {"1": "retired"}
    published.publish(V2, AOV)
    assert published.versions() == {"1": "superseded"}
    assert "metric:registry/gmv@1" not in published.shown("成交总额")
    build_index(published.folder)
    assert published.versions() == {"1": "superseded", "2": None}
    # The same version as before is there at once.
    published.publish(AOV, yes=True)
    published.publish(V2, AOV)
    assert published.versions() == {"1": "superseded", "2": None}


def test_removed_definitions_need_a_confirmation_and_are_retired_at_once(published: Home):
    published.publish(GMV, AOV)
    before = published.state()
    with pytest.raises(InvalidRequest) as refused:
        published.publish(AOV)
    assert (refused.value.stable_code, refused.value.exit_code) == ("removal_not_confirmed", 2)
    assert "metric:registry/gmv" in refused.value.message
    assert published.state() == before
    report = published.publish(AOV, yes=True)
    assert [(change.change, change.item_id) for change in report.changes] == [
        ("removed", "metric:registry/gmv"),
        ("unchanged", "metric:registry/客单价"),
    ]
    assert published.versions() == {"1": "retired"}


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


DBT = """\
semantic_models:
  - name: order_facts
    node_relation: {schema_name: main, alias: orders}
    entities: [{name: order, type: primary, expr: id}]
    dimensions: [{name: day, type: time, expr: ordered_at}]
    measures: [{name: total, agg: sum, expr: COLUMN}]
metrics:
  - name: total_amount
    type: simple
    type_params: {measure: {name: total}}
    filter: "{{ Dimension('order__status') }} = 'paid'"
  - name: share
    type: ratio
    type_params: {numerator: {name: total_amount}, denominator: {name: total_amount}}
"""

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


# --- who is affected


def test_the_report_says_what_changed_and_who_was_shown_the_old_version(published: Home):
    glossary = {"kind": "glossary", "path": "glossary.yaml"}
    write_config(
        published.folder, {"registry": REGISTRY, "warehouse": WAREHOUSE, "words": glossary}
    )
    (published.folder / "glossary.yaml").write_text(
        "terms: [{name: GMV, definition: What was sold, subject: 'metric:gmv'}]\n", encoding="utf-8"
    )
    with open_workspace(published.folder) as workspace:
        refresh_source(workspace, "words")
    build_index(published.folder)
    bo = Identity(principal="bo", tenant="acme")
    with open_project(published.folder) as project:
        for run, (identity, agent) in enumerate(
            ((ANA, "analyst"), (bo, "reporter"), (bo, "reporter"))
        ):
            request = ContextRequest(
                task=Task(text="gmv"), identity=identity, agent_id=agent, run_id=str(run)
            )
            last = project.assemble(request, at=published.now, durable=True)
    report = published.check(V2)
    (change,) = report.changes
    assert (change.change, change.old_version, change.new_version) == ("changed", "1", "2")
    assert change.fields == ("version", "expression", "valid_from")
    assert (
        "-expression: sum(amount)\n+expression: sum(amount) filter (status = 'paid')" in change.diff
    )
    assert len(change.same_subject) == 1
    assert change.same_subject[0].startswith("glossary:words/")
    assert change.exposure is not None
    assert (change.exposure.snapshots, change.exposure.principals) == (3, ("ana", "bo"))
    assert change.exposure.agents == ("analyst", "reporter")
    assert change.exposure.latest[0] == last.snapshot_id


def test_items_that_depend_on_a_definition_are_named(home: Home):
    content = DBT.replace("COLUMN", "amount")
    publish(home.folder, [DefinitionFile("dbt.yaml", content=content.encode())], build=False)
    report = check(
        home.folder, [DefinitionFile("dbt.yaml", content=content.replace("paid", "sent").encode())]
    )
    (changed,) = [change for change in report.changes if change.change == "changed"]
    assert (changed.item_id, changed.dependents) == (
        "metric:registry/total_amount",
        ("metric:registry/share",),
    )


def test_a_change_beside_the_text_keeps_its_version(published: Home):
    report = published.publish({**GMV, "synonyms": ["成交总额", "sales value"]})
    (change,) = report.changes
    assert (report.published, change.change, change.fields) == (True, "changed", ("synonyms",))
    assert report.superseded == ()


# --- which registry, which file


def test_the_registry_must_be_clear(tmp_path: Path):
    home = Home(tmp_path)
    second = {"registry": REGISTRY, "other": {**REGISTRY, "path": "other"}, "docs": {}}
    write_config(tmp_path, second)
    for source, code in ((None, "several_registries"), ("docs", "not_a_registry")):
        with pytest.raises(ConfigError) as refused:
            home.publish(GMV, source=source)
        assert refused.value.stable_code == code
    with pytest.raises(NotFound):
        home.publish(GMV, source="none")
    assert home.publish(GMV, source="other").source == "other"
    assert (tmp_path / "other" / "gmv.yaml").exists()
    write_config(tmp_path, {"docs": {}})
    with pytest.raises(ConfigError, match="no_registry"):
        home.publish(GMV)
    write_config(tmp_path, {"registry": {**REGISTRY, "path": "s3://bucket/metrics"}})
    with pytest.raises(ConfigError, match="registry_not_local"):
        home.publish(GMV)


def test_a_registry_of_one_file_is_replaced_by_whatever_is_published(tmp_path: Path):
    home = Home(tmp_path)
    write_config(tmp_path, {"registry": {**REGISTRY, "path": "semantic/metrics.yaml"}})
    report = home.publish(GMV, name="any.yaml")
    assert [file.path for file in report.files] == ["semantic/metrics.yaml"]
    assert home.live("metrics.yaml") == text(GMV)


def test_a_file_of_the_registry_is_published_as_it_lies_there(home: Home):
    path = home.folder / "semantic" / "sales" / "gmv.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text(GMV), encoding="utf-8")
    report = publish(home.folder, [path], build=False)
    assert [(file.path, file.status) for file in report.files] == [
        ("semantic/sales/gmv.yaml", "unchanged")
    ]
    assert report.added == 1
    # A file elsewhere whose path ends like one of the registry takes that one's place.
    draft = home.draft(V2, name="sales/gmv.yaml")
    assert publish(home.folder, [draft], build=False).files[0].path == "semantic/sales/gmv.yaml"


@pytest.mark.parametrize(
    "name", ["../gmv.yaml", ".hidden/gmv.yaml", "gmv.txt", "/etc/gmv.yaml", "a/../../b.yaml"]
)
def test_a_name_outside_the_registry_is_refused(home: Home, name: str):
    with pytest.raises(InvalidRequest, match="not_in_registry"):
        publish(home.folder, [DefinitionFile(name, content=text(GMV).encode())], build=False)
    assert not (home.folder / "semantic").exists()


def test_nothing_is_published_through_a_link(home: Home):
    folder = home.folder / "semantic"
    folder.mkdir()
    (folder / "real.yaml").write_text(text(GMV), encoding="utf-8")
    (folder / "gmv.yaml").symlink_to(folder / "real.yaml")
    (folder / "out.yaml").symlink_to(home.draft(AOV, name="secret.yaml"))
    for name in ("gmv.yaml", "out.yaml"):
        with pytest.raises(InvalidRequest, match="not_in_registry"):
            publish(home.folder, [DefinitionFile(name, content=text(V2).encode())], build=False)


def test_a_glob_decides_which_new_files_there_may_be(tmp_path: Path):
    home = Home(tmp_path)
    write_config(tmp_path, {"registry": {**REGISTRY, "path": "semantic/**/*.metrics.yaml"}})
    with pytest.raises(InvalidRequest, match="not_in_registry"):
        home.publish(GMV)
    assert home.publish(GMV, name="gmv.metrics.yaml").added == 1
    assert home.publish(AOV, name="gmv.metrics.yaml", yes=True).removed == 1


def test_two_files_of_one_place_are_refused(home: Home):
    files = [DefinitionFile("gmv.yaml", content=b""), home.draft(GMV)]
    with pytest.raises(InvalidRequest, match="same_target"):
        publish(home.folder, files, build=False)
    with pytest.raises(InvalidRequest, match="unreadable_file"):
        publish(home.folder, [home.folder / "none.yaml"], build=False)
    with pytest.raises(InvalidRequest, match="unnamed_file"):
        publish(home.folder, [DefinitionFile(None, content=b"")], build=False)


def test_a_check_writes_nothing_at_all(home: Home):
    report = home.check(GMV, AOV)
    assert (report.published, report.added) == (False, 2)
    assert not (home.folder / ".ctx").exists()
    assert not (home.folder / "semantic").exists()


# --- cut off, and at once


@pytest.mark.parametrize("step", ["append", "append_events"])
def test_a_publish_that_was_cut_off_is_finished_by_the_next(
    published: Home, monkeypatch: pytest.MonkeyPatch, step: str
):
    with monkeypatch.context() as patch:
        patch.setattr(Store if step == "append" else Ledger, step, _cut_off)
        with pytest.raises(KeyboardInterrupt):
            published.publish(V2)
    assert published.live() == text(V2)
    report = published.publish(V2)
    assert report.superseded == ("metric:registry/gmv@1",)
    assert published.versions() == {"1": None}
    build_index(published.folder)
    assert published.versions() == {"1": "superseded", "2": None}
    with open_project(published.folder) as project:
        told = [
            (event.version, event.to_state.value)
            for event in project.history("metric:registry/gmv", identity=ANA)
        ]
    assert told == [("1", "created"), ("2", "created")], "what was stored and not logged is logged"


def _cut_off(*_: Any) -> None:
    raise KeyboardInterrupt


def _publish_many(folder: str, name: str, ready: Any) -> None:
    ready.wait(30)
    for version in range(2, 6):
        metric = {**GMV, "name": name, "version": version, "expression": f"sum(amount) + {version}"}
        file = DefinitionFile(f"{name}.yaml", content=text(metric).encode())
        assert publish(folder, [file], build=False).published
        shared = {**AOV, "name": "shared", "version": version, "description": name}
        publish(folder, [DefinitionFile("shared.yaml", content=text(shared).encode())], build=False)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_two_processes_that_publish_at_once_lose_no_version_and_mix_no_file(home: Home):
    context = processes()
    ready = context.Barrier(2)
    children = [
        context.Process(target=_publish_many, args=(str(home.folder), name, ready))
        for name in ("one", "two")
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(200)
        assert child.exitcode == 0
    with open_workspace(home.folder) as workspace:
        keys = workspace.store.scan_keys()
        stored = list(zip(keys["item_id"].to_pylist(), keys["version"].to_pylist(), strict=True))
        assert workspace.ledger.overlay_since(0) == ()
    every = [
        (f"metric:registry/{name}", str(n))
        for name in ("one", "two", "shared")
        for n in range(2, 6)
    ]
    assert sorted(stored) == sorted(every)
    build_index(home.folder)
    for name in ("one", "two", "shared"):
        codes_of = home.versions(f"metric:registry/{name}", at=datetime.now(UTC))
        assert codes_of == {**dict.fromkeys("234", "superseded"), "5": None}
    shared = home.live("shared.yaml")
    assert shared in {
        text({**AOV, "name": "shared", "version": 5, "description": name})
        for name in ("one", "two")
    }


def test_retiring_a_published_version_brings_the_one_before_back(published: Home) -> None:
    published.publish(V2)
    build_index(published.folder)
    with open_workspace(published.folder, at=published.now) as workspace:
        retire_item(
            workspace,
            "metric:registry/gmv",
            version="2",
            reason="wrong",
            tenant="acme",
            actor="ana",
        )
    assert published.shown() == {"metric:registry/gmv@1"}
    build_index(published.folder)
    assert published.shown() == {"metric:registry/gmv@1"}


def test_what_is_published_while_the_index_is_pinned_waits_and_the_version_before_is_served(
    published: Home,
) -> None:
    published.publish(AOV, name="aov.yaml")
    build_index(published.folder)
    with open_workspace(published.folder) as workspace:
        roll_back(workspace.layout, current_generation(workspace), workspace.store, at=NOW)
    published.publish(V2)
    build_index(published.folder)
    assert published.shown() == {"metric:registry/gmv@1"}
    with open_workspace(published.folder) as workspace:
        unpin(workspace.layout)
    assert published.shown() == {"metric:registry/gmv@2"}


def test_rolling_back_a_published_version_serves_the_one_before(published: Home) -> None:
    published.publish(V2)
    build_index(published.folder)
    with open_workspace(published.folder) as workspace:
        roll_back(workspace.layout, current_generation(workspace), workspace.store, at=NOW)
    assert published.shown() == {"metric:registry/gmv@1"}
