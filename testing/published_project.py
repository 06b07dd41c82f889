"""A project with a registry of metrics and a warehouse of two tables, published into with a clock
of its own.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ctx_pipeline.building.refresh import refresh_source
from ctx_pipeline.contracts import ContextRequest, DefinitionFinding, PublishReport, Task
from ctx_pipeline.orchestration.publish import check, publish
from testing.artifacts import ANA, NOW, build_index, open_project, open_workspace, write_config

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


def codes(
    findings: Sequence[DefinitionFinding], severity: str = "error"
) -> list[tuple[str, int | None]]:
    return [
        (finding.code.value, finding.line) for finding in findings if finding.severity == severity
    ]


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
