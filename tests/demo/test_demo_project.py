from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import yaml

from ctx_pipeline.demo import create_demo
from ctx_pipeline.demo.create import CLOCK, demo_files
from ctx_pipeline.errors import Conflict, InvalidRequest

ROWS = 3_000


def test_the_demo_says_where_it_is_what_to_ask_and_when(tmp_path: Path):
    demo = create_demo(tmp_path / "shop", rows=ROWS)
    assert demo.home == tmp_path / "shop"
    assert demo.questions == {
        "en": "East region GMV last month, year on year?",
        "zh": "华东区上个月 GMV 同比",
    }
    assert demo.clock.isoformat() == "2026-11-30T00:00:00+00:00"
    assert len(list(demo.orders_path.glob("*.parquet"))) == 25
    assert all(list(folder.glob("*.parquet")) for folder in demo.tables.values())


def test_two_demos_have_equal_bytes_of_text(tmp_path: Path):
    first, second = (create_demo(tmp_path / name, rows=ROWS).home for name in ("a", "b"))
    for path, content in demo_files().items():
        assert (first / path).read_bytes() == (second / path).read_bytes() == content


def test_a_whole_demo_is_reused_untouched(tmp_path: Path):
    demo = create_demo(tmp_path / "shop", rows=ROWS)
    edited = demo.home / "AGENTS.md"
    edited.write_text("mine", encoding="utf-8")
    before = {path: path.stat().st_mtime_ns for path in demo.home.rglob("*")}
    assert create_demo(demo.home, rows=ROWS) == demo
    assert {path: path.stat().st_mtime_ns for path in demo.home.rglob("*")} == before
    assert edited.read_text(encoding="utf-8") == "mine"


def test_a_folder_with_other_files_is_refused_and_kept(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    with pytest.raises(Conflict) as refused:
        create_demo(tmp_path, rows=ROWS)
    assert refused.value.fix
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("change", [{"rows": ROWS + 1}, {"seed": 7}])
def test_a_demo_of_other_rows_or_seed_is_refused(tmp_path: Path, change: dict[str, int]):
    create_demo(tmp_path, rows=ROWS)
    with pytest.raises(Conflict, match="another demo"):
        create_demo(tmp_path, **{"rows": ROWS, **change})


def test_an_unreadable_stamp_is_a_conflict(tmp_path: Path):
    create_demo(tmp_path, rows=ROWS)
    (tmp_path / ".demo.json").write_bytes(b"{")
    with pytest.raises(Conflict, match="stamp"):
        create_demo(tmp_path, rows=ROWS)


def test_a_file_as_target_is_refused(tmp_path: Path):
    target = tmp_path / "shop"
    target.write_text("", encoding="utf-8")
    with pytest.raises(Conflict, match="a file"):
        create_demo(target, rows=ROWS)


def test_an_interrupted_demo_is_completed(tmp_path: Path):
    def stop(stage: str, done: int, total: int) -> None:
        if stage == "orders" and done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create_demo(tmp_path, rows=ROWS, progress=stop)
    assert not (tmp_path / ".demo.json").exists()
    demo = create_demo(tmp_path, rows=ROWS)
    assert len(list(demo.orders_path.iterdir())) == 25
    assert json.loads((tmp_path / ".demo.json").read_bytes())["rows"] == ROWS
    assert not (tmp_path / ".demo.started").exists()


def test_progress_counts_every_stage_to_its_end(tmp_path: Path):
    seen: list[tuple[str, int, int]] = []
    create_demo(tmp_path, rows=ROWS, progress=lambda *step: seen.append(step))
    last = {stage: (done, total) for stage, done, total in seen}
    assert set(last) == {"files", "tables", "orders"}
    assert all(done == total for done, total in last.values())
    assert last["orders"] == (ROWS, ROWS)


@pytest.mark.parametrize("arguments", [{"rows": 0}, {"rows": 10**12}, {"seed": -1}])
def test_impossible_numbers_are_refused_before_anything_is_written(
    tmp_path: Path, arguments: dict[str, int]
):
    with pytest.raises(InvalidRequest):
        create_demo(tmp_path / "shop", **arguments)
    assert not (tmp_path / "shop").exists()


def test_the_settings_name_three_tenants_and_every_path_exists():
    text = demo_files()
    settings = tomllib.loads(text["ctx.toml"].decode())
    assert settings["identity"] == {
        "principal": "ana",
        "tenant": "acme",
        "groups": ["analysts"],
        "clearance": "confidential",
    }
    sources = {source["name"]: source for source in settings["sources"]}
    assert {"registry", "warehouse", "memories", "handbook", "policies", "guide", "tools"} <= set(
        sources
    )
    assert {source.get("tenant", "acme") for source in sources.values()} == {
        "acme",
        "globex",
        "initech",
    }
    for source in sources.values():
        assert source["freshness"]
        assert source["owner"]
        below = [
            path for path in text if path == source["path"] or path.startswith(source["path"] + "/")
        ]
        assert below or source["kind"] == "schema_metadata", source["name"]


@pytest.mark.parametrize("tenant", ["globex", "initech"])
def test_each_other_tenant_has_its_own_gmv_documents_and_memories(tenant: str):
    text = demo_files()
    own = [path for path in text if path.startswith(f"tenants/{tenant}/")]
    assert {path.split("/")[2] for path in own} == {"documents", "memories", "semantic"}
    theirs = yaml.safe_load(text[f"tenants/{tenant}/semantic/metrics.yaml"])["metrics"][0]
    ours = yaml.safe_load(text["semantic/metrics.yaml"])["metrics"]
    assert theirs["name"] == "gmv"
    assert theirs["expression"] not in {metric["expression"] for metric in ours}


FOREIGN = ("7,341,902,118", "734,190.2", "GLX-", "52,768,431", "5,276.8", "INI-")
CLOSED = ("ACM-FIN-48213", "ACM-RST-9057", "318,240,000")


@pytest.mark.parametrize("number", FOREIGN + CLOSED)
def test_what_ana_may_not_see_stands_nowhere_that_she_may(number: str):
    """Ours: a leak check greps packs for these numbers, so they must occur in
    closed files alone.
    """
    holders = [path for path, content in demo_files().items() if number in content.decode()]
    assert holders
    for path in holders:
        head = demo_files()[path].decode().partition("\n---\n")[0]
        closed = (
            "groups: [finance]" in head
            or "sensitivity: restricted" in head
            or path.startswith("preferences/")
        )
        assert closed or path.startswith(("tenants/globex/", "tenants/initech/")), path


def test_gmv_changes_its_meaning_in_2026_and_carries_chinese_names():
    metrics = yaml.safe_load(demo_files()["semantic/metrics.yaml"])["metrics"]
    versions = {metric["version"]: metric for metric in metrics if metric["name"] == "gmv"}
    assert "refunded" in versions[1]["expression"]
    assert "refunded" not in versions[2]["expression"]
    assert versions[2]["valid_from"].isoformat() == "2026-01-01T00:00:00+00:00"
    assert {"成交总额", "商品交易总额"} <= set(versions[2]["synonyms"])
    names = {metric["name"] for metric in metrics}
    assert names == {"gmv", "orders", "aov", "refund_rate", "active_customers", "gross_margin"}
    assert all(
        metric["time_column"] == "ordered_at" and metric["unit"] and metric["owner"]
        for metric in metrics
    )


def test_every_source_loads_without_an_error(tmp_path: Path):
    from ctx_pipeline.config.settings import load_config
    from ctx_pipeline.contracts import FileStatus
    from ctx_pipeline.sources import read_source

    home = create_demo(tmp_path, rows=ROWS).home
    config = load_config(home).config
    items = {}
    for source in config.sources:
        batch = read_source(source, home, tenant=config.project.tenant)
        assert batch.errors == (), source.name
        assert {file.status for file in batch.files} == {FileStatus.LOADED}, source.name
        items[source.name] = batch.items
    assert len(items["tools"]) == 14
    tables = {item.item_id for item in items["warehouse"] if "." not in item.item_id}
    assert tables == {
        f"schema:warehouse/{name}" for name in ("orders", "regions", "customers", "products")
    }
    assert {
        item.version for item in items["registry"] if item.item_id == "metric:registry/gmv"
    } == {"1", "2"}
    assert any(item.valid_until and item.valid_until < CLOCK for item in items["memories"])
    assert any(item.scope.principals == ("bo",) for item in items["preferences"])
    paths = {item.provenance.locator.path for item in items["handbook"]}
    named = {name for item in items["handbook"] for name in item.supersedes}
    assert named == {"en/regional-structure-2025.md", "zh/refund-policy-2024.md"}
    assert {f"documents/{name}" for name in named} <= paths
