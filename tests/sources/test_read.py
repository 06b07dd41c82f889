from __future__ import annotations

from pathlib import Path

import pytest

from ctx_pipeline.config.settings import SourceConfig
from ctx_pipeline.contracts import FileCode, FileStatus, Sensitivity, SourceKind, Trust
from ctx_pipeline.errors import ConfigError
from ctx_pipeline.sources import read_source
from ctx_pipeline.sources.read import ADAPTERS


def codes(batch) -> list[FileCode]:
    return [error.code for error in batch.errors]


def test_a_kind_without_adapter_is_refused_by_name(tmp_path):
    source = SourceConfig(name="s", kind=SourceKind.SESSION_HISTORY, path=".")
    with pytest.raises(ConfigError) as caught:
        read_source(source, tmp_path, tenant="acme")
    assert all(kind.value in caught.value.fix for kind in ADAPTERS)


def test_a_source_without_path_is_refused(tmp_path):
    with pytest.raises(ConfigError):
        read_source(
            SourceConfig(name="s", kind=SourceKind.DOCUMENTS, url="https://example.org"),
            tmp_path,
            tenant="acme",
        )


@pytest.mark.parametrize("path", ["nothing", "nothing/*.md", "a\0b", "../nothing", "*.none"])
@pytest.mark.parametrize("kind", sorted(kind.value for kind in ADAPTERS))
def test_a_missing_path_is_one_error_and_no_exception(read, kind, path):
    batch = read(kind, path)
    assert (batch.items, codes(batch)) == ((), [FileCode.MISSING])


def test_every_file_found_is_accounted_for_once(read, tmp_path):
    (tmp_path / "a.md").write_text("text", encoding="utf-8")
    (tmp_path / "b.md").write_text("\n \n", encoding="utf-8")
    (tmp_path / "c.png").write_bytes(b"\x89PNG")
    (tmp_path / "d.md").write_bytes(b"\xff\xfe\x00")
    (tmp_path / ".hidden.md").write_text("text", encoding="utf-8")
    (tmp_path / ".ctx").mkdir()
    (tmp_path / ".ctx" / "x.md").write_text("text", encoding="utf-8")
    batch = read("documents")
    assert [(file.path, file.status) for file in batch.files] == [
        ("a.md", FileStatus.LOADED),
        ("b.md", FileStatus.EMPTY),
        ("c.png", FileStatus.SKIPPED),
        ("d.md", FileStatus.FAILED),
    ]
    assert batch.files[2].reason is not None
    assert codes(batch) == [FileCode.NOT_UTF8]


def test_folders_are_read_to_the_bottom_in_one_order(read, tmp_path):
    for name in ("b/2.md", "b/c/1.md", "a/9.md", "z.md"):
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_text(name, encoding="utf-8")
    batch = read("documents", "docs")
    ids = [item.item_id for item in batch.items]
    assert ids == [f"document:src/{name}#1" for name in ("z.md", "a/9.md", "b/2.md", "b/c/1.md")]
    assert batch.items[0].provenance.locator.path == "docs/z.md"


def test_a_glob_names_files_relative_to_its_fixed_part(read, tmp_path):
    for name in ("docs/a/1.md", "docs/a/2.txt", "docs/3.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    batch = read("documents", "docs/**/*.md")
    assert {item.item_id for item in batch.items} == {
        "document:src/a/1.md#1",
        "document:src/3.md#1",
    }


def test_a_single_file_is_known_by_its_name_and_may_lie_outside(read, tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside.md"
    outside.write_text("text", encoding="utf-8")
    for path in (f"../{outside.name}", str(outside)):
        batch = read("documents", path)
        assert [item.item_id for item in batch.items] == [f"document:src/{outside.name}#1"]
        assert batch.items[0].provenance.locator.path == f"../{outside.name}"


@pytest.mark.parametrize("path", ["docs", "docs/**/*.md", "docs/*.md"])
def test_no_link_inside_a_folder_leads_out_of_it(read, tmp_path, path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key.md").write_text("secret", encoding="utf-8")
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "own.md").write_text("own", encoding="utf-8")
    (docs / "same.md").symlink_to(docs / "own.md")
    (docs / "out.md").symlink_to(secret / "key.md")
    (docs / "dir.md").symlink_to(secret, target_is_directory=True)
    (docs / "loop.md").symlink_to(docs / "loop.md")
    batch = read("documents", path)
    assert {item.item_id for item in batch.items} == {
        "document:src/own.md#1",
        "document:src/same.md#1",
    }
    assert "secret" not in "".join(item.content or "" for item in batch.items)
    failed = {error.path: error.code for error in batch.errors}
    assert failed["docs/out.md"] == failed["docs/dir.md"] == FileCode.OUTSIDE_ROOT
    assert failed["docs/loop.md"] == FileCode.UNREADABLE


def test_a_pipe_is_not_opened(read, tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe.md")
    assert read("documents").files[0].status is FileStatus.SKIPPED


def test_a_file_above_the_limit_is_reported_with_both_sizes(read, tmp_path):
    (tmp_path / "a.md").write_text("x" * 101, encoding="utf-8")
    batch = read("documents", max_file_bytes=100)
    assert codes(batch) == [FileCode.TOO_LARGE]
    assert "101" in batch.errors[0].message
    assert "100" in batch.errors[0].message


@pytest.mark.parametrize("settings", [{"sensitivity": None}, {"groups": ()}, {"tenant": None}])
def test_an_item_that_nobody_may_see_is_reported(read, tmp_path, settings):
    (tmp_path / "a.md").write_text("text", encoding="utf-8")
    batch = read(
        "documents",
        **{"tenant": "acme", **settings} if "tenant" not in settings else {"tenant": None},
    )
    if "tenant" in settings:
        assert batch.items[0].scope.tenant is None
    assert codes(batch) == [FileCode.MISSING_SCOPE]
    assert (batch.errors[0].path, batch.errors[0].items) == ("ctx.toml", 1)


def test_a_source_sets_the_defaults_of_its_items(read, tmp_path):
    (tmp_path / "a.md").write_text("text", encoding="utf-8")
    item = read(
        "documents",
        authority=55,
        trust="retrieved_external",
        sensitivity="confidential",
        groups=["hr"],
        environment="prod",
        task_types=["bi"],
        agent_visibility=["planner"],
    ).items[0]
    assert (item.authority, item.trust, item.sensitivity) == (
        55,
        Trust.RETRIEVED_EXTERNAL,
        Sensitivity.CONFIDENTIAL,
    )
    scope = item.scope
    assert (scope.tenant, scope.groups, scope.environment) == ("acme", ("hr",), "prod")
    assert (scope.task_types, scope.agent_visibility) == (("bi",), ("planner",))


def test_reading_is_repeatable(read, corpora: Path):
    folder = corpora / "dsi_manifests"
    assert read("semantic_registry", folder) == read("semantic_registry", folder)


@pytest.mark.parametrize("kind", ["documents", "web", "schema_metadata", "sql", "git"])
@pytest.mark.parametrize(
    ("library", "named"), [("pyarrow.lib", "pyarrow.lib"), (None, "cannot be loaded")]
)
def test_a_library_that_is_not_installed_is_an_error_of_its_source(
    tmp_path, monkeypatch, kind, library, named
):
    def missing(name: str) -> None:
        raise ImportError("libfoo.so.1: cannot open shared object file", name=library)

    monkeypatch.setattr("ctx_pipeline.sources.read.import_module", missing)
    (tmp_path / "说明.md").write_text("# 说明\n\n你好。\n", encoding="utf-8")
    place = {"url": "sqlite:///a.db"} if kind == "sql" else {"path": "."}
    batch = read_source(
        SourceConfig.model_validate({"name": "src", "kind": kind, **place}), tmp_path, tenant="acme"
    )
    assert (batch.items, codes(batch)) == ((), [FileCode.UNREADABLE])
    assert named in batch.errors[0].message
    assert "pip install ctx-pipeline" in batch.errors[0].message
