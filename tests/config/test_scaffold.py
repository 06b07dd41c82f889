"""A new project is complete, loads, and never overwrites what is there."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ctx_pipeline.config.scaffold import FOLDERS, init_project
from ctx_pipeline.config.settings import ProjectConfig, SourceConfig, load_config
from ctx_pipeline.errors import Conflict, InvalidRequest

CHINESE = re.compile("[\u4e00-\u9fff]")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("CTX_")]:
        monkeypatch.delenv(name)


def _state(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_new_project_loads_and_every_source_has_its_files(tmp_path: Path):
    home = tmp_path / "shop"
    written = init_project(home)
    assert written == sorted(path for path in home.rglob("*") if path.is_file())
    loaded = load_config(home)
    assert loaded.config.project.name == "shop"
    assert loaded.config.identity_contract() is not None
    for source in loaded.config.sources:
        assert source.path is not None
        assert any((home / source.path).iterdir()), source.name


def test_each_folder_holds_an_example_and_the_examples_speak_both_languages(tmp_path: Path):
    init_project(tmp_path)
    for folder in FOLDERS:
        text = "".join(
            path.read_text(encoding="utf-8")
            for path in (tmp_path / folder).rglob("*")
            if path.is_file()
        )
        assert CHINESE.search(text), folder
        assert re.search("[A-Za-z]{4}", text), folder


def test_the_examples_are_well_formed(tmp_path: Path):
    init_project(tmp_path)
    for path in tmp_path.rglob("*.yaml"):
        assert yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in tmp_path.rglob("*.jsonl"):
        assert all(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    tools = json.loads((tmp_path / "tools" / "orders.json").read_text(encoding="utf-8"))["tools"]
    assert {tool["name"] for tool in tools} == {"orders_search", "refund_create"}


def test_every_example_becomes_items_and_the_cases_name_some_of_them(tmp_path: Path):
    from ctx_pipeline.sources import read_source

    init_project(tmp_path)
    config = load_config(tmp_path).config
    batches = {
        s.name: read_source(s, tmp_path, tenant=config.project.tenant) for s in config.sources
    }
    assert {
        name: (bool(batch.items), batch.errors) for name, batch in batches.items()
    } == dict.fromkeys(batches, (True, ()))
    items = {item.item_id for batch in batches.values() for item in batch.items}
    cases = (tmp_path / "evals" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    assert {item_id for case in cases for item_id in json.loads(case)["required"]} <= items


def test_the_settings_file_explains_every_key(tmp_path: Path):
    init_project(tmp_path)
    text = (tmp_path / "ctx.toml").read_text(encoding="utf-8")
    tables: list[Any] = [field.default for field in ProjectConfig.model_fields.values()]
    keys = {
        key
        for table in tables
        if hasattr(type(table), "model_fields")
        for key in type(table).model_fields
    }
    keys |= set(ProjectConfig.model_fields) | set(SourceConfig.model_fields) - {"url"}
    assert {key for key in keys - {"schema_version"} if not re.search(rf"\b{key}\b", text)} == set()


def test_the_commented_keys_of_the_settings_file_are_accepted_too(tmp_path: Path):
    init_project(tmp_path)
    settings = tmp_path / "ctx.toml"
    text = settings.read_text(encoding="utf-8")
    text = re.sub(r"^# (?=(\w+ = |\[+\w))", "", text, flags=re.MULTILINE)
    (tmp_path / "policies" / "context.toml").write_text("min_relevance = 0.3\n", encoding="utf-8")
    settings.write_text(text, encoding="utf-8")
    config = load_config(tmp_path).config
    assert config.models[0].model_id == "house-model"
    assert config.policy.path == "policies/context.toml"


@pytest.mark.parametrize("name", ['my "shop"', "商店", "back\\slash", "a\nb", "\x7f \ud800 x"])
def test_any_name_survives_the_settings_file(name: str, tmp_path: Path):
    init_project(tmp_path, name=name)
    loaded = load_config(tmp_path).config.project.name
    assert loaded.split() == re.sub("[\x7f\ud800]", "\ufffd", name).split()


@pytest.mark.parametrize("name", ["", "  ", "x" * 200])
def test_an_empty_or_endless_name_is_refused(name: str, tmp_path: Path):
    with pytest.raises(InvalidRequest) as caught:
        init_project(tmp_path, name=name)
    assert caught.value.stable_code == "invalid_name"
    assert _state(tmp_path) == {}


def test_existing_files_are_named_and_nothing_is_written(tmp_path: Path):
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "refunds.md").write_text("ours", encoding="utf-8")
    before = _state(tmp_path)
    with pytest.raises(Conflict) as caught:
        init_project(tmp_path)
    assert caught.value.stable_code == "already_exists"
    assert "documents/refunds.md" in caught.value.message
    assert _state(tmp_path) == before


def test_a_second_init_is_refused_and_a_forced_one_replaces(tmp_path: Path):
    init_project(tmp_path, name="first")
    with pytest.raises(Conflict):
        init_project(tmp_path, name="second")
    assert load_config(tmp_path).config.project.name == "first"
    init_project(tmp_path, name="second", force=True)
    assert load_config(tmp_path).config.project.name == "second"


def test_files_that_are_not_in_the_way_stay(tmp_path: Path):
    (tmp_path / "README.md").write_text("ours", encoding="utf-8")
    init_project(tmp_path)
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "ours"


@pytest.mark.parametrize("existing", ["*.log", "*.log\n", ".ctx/\n*.log\n", ""])
def test_an_existing_gitignore_is_kept_and_ignores_the_state(existing: str, tmp_path: Path):
    (tmp_path / ".gitignore").write_text(existing, encoding="utf-8")
    init_project(tmp_path)
    lines = (tmp_path / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert lines.count(".ctx/") == 1
    assert [line for line in lines if line != ".ctx/"] == [
        line for line in existing.splitlines() if line != ".ctx/"
    ]


def test_a_target_that_is_a_file_is_refused(tmp_path: Path):
    target = tmp_path / "file"
    target.write_text("ours", encoding="utf-8")
    with pytest.raises(InvalidRequest) as caught:
        init_project(target)
    assert caught.value.stable_code == "cannot_write"
    assert target.read_text(encoding="utf-8") == "ours"


def test_a_folder_that_cannot_be_made_leaves_no_half_project(tmp_path: Path):
    (tmp_path / "skills").write_text("a file where a folder must be", encoding="utf-8")
    before = _state(tmp_path)
    with pytest.raises(InvalidRequest) as caught:
        init_project(tmp_path)
    assert caught.value.stable_code == "cannot_write"
    assert _state(tmp_path) == before
