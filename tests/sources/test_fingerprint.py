"""A source looks the same until it changes, whatever kind it is."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import pytest
from sqlalchemy import create_engine, text

from ctx_pipeline.config.settings import SourceConfig
from ctx_pipeline.contracts import SourceKind
from ctx_pipeline.sources.fingerprint import source_fingerprint
from testing.postgres_server import Server


def _source(kind: str = "documents", **settings: Any) -> SourceConfig:
    return SourceConfig.model_validate({"name": "s", "kind": SourceKind(kind), **settings})


def _digest(source: SourceConfig, home: Path) -> str | None:
    found = source_fingerprint(source, home)
    return None if found is None else found.digest


@pytest.mark.parametrize("path", ["docs", "docs/**/*.md", "docs/a.md", "file://docs"])
def test_files_look_different_when_one_is_written_added_or_removed(
    tmp_path: Path, path: str
) -> None:
    home = tmp_path
    (home / "docs").mkdir()
    file = home / "docs" / "a.md"
    file.write_text("一", encoding="utf-8")
    source = _source(path=path.replace("file://docs", f"file://{home / 'docs'}"))
    first = _digest(source, home)
    assert first is not None
    assert _digest(source, home) == first
    found = source_fingerprint(source, home)
    assert found is not None
    assert found.newest == file.stat().st_mtime_ns
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    second = _digest(source, home)
    file.write_text("一二", encoding="utf-8")
    third = _digest(source, home)
    file.unlink()
    assert len({first, second, third, _digest(source, home)}) == 4


def test_the_settings_of_a_source_are_part_of_how_it_looks(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("a", encoding="utf-8")
    assert _digest(_source(path="a.md"), tmp_path) != _digest(
        _source(path="a.md", groups=["x"]), tmp_path
    )


def test_a_repository_looks_different_at_another_commit_and_not_before(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
        subprocess.run(
            ["git", *identity, *words], cwd=tmp_path / "repo", check=True, capture_output=True
        )

    (tmp_path / "repo").mkdir()
    source = _source("git", path="repo")
    git("init", "-q")
    assert source_fingerprint(source, tmp_path) is None
    git("commit", "-q", "--allow-empty", "-m", "one")
    first = _digest(source, tmp_path)
    (tmp_path / "repo" / "a.md").write_text("not committed", encoding="utf-8")
    assert (_digest(source, tmp_path), first is None) == (first, False)
    git("commit", "-q", "--allow-empty", "-m", "two")
    assert _digest(source, tmp_path) != first


def test_database_files_look_different_after_a_write_and_not_after_a_read(tmp_path: Path) -> None:
    for name, connect in (("sqlite", sqlite3.connect), ("duckdb", duckdb.connect)):
        source = _source("sql", url=f"{name}:///{name}.db")
        assert source_fingerprint(source, tmp_path) is None
        for statement in ("CREATE TABLE t (a int)", "INSERT INTO t SELECT 1"):
            before = _digest(source, tmp_path)
            connection = connect(str(tmp_path / f"{name}.db"))
            connection.execute(statement)
            connection.commit()
            connection.close()
            after = _digest(source, tmp_path)
            assert after not in (None, before)
        connection = connect(str(tmp_path / f"{name}.db"))
        connection.execute("SELECT * FROM t").fetchall()
        connection.close()
        assert _digest(source, tmp_path) == after


def test_object_storage_looks_different_when_an_object_changes(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/looks/a.md", b"one")
    source = _source(path="memory://looks")
    first = _digest(source, tmp_path)
    assert (first is None, _digest(source, tmp_path)) == (False, first)
    memory.pipe("/looks/a.md", b"three")
    assert _digest(source, tmp_path) != first


@pytest.mark.parametrize(
    "source",
    [
        _source("web", url="https://example.com"),
        _source("git", path="nowhere"),
        _source("documents", path="nothing://x"),
        _source("sql", url="postgresql://nobody@127.0.0.1:1/none"),
    ],
)
def test_what_cannot_be_looked_at_has_no_fingerprint(tmp_path: Path, source: SourceConfig) -> None:
    assert source_fingerprint(source, tmp_path) is None


def test_postgres_looks_different_after_a_write_or_another_column(
    tmp_path: Path, postgres_server: Server
) -> None:
    address = postgres_server.database().replace("+psycopg", "")
    engine = create_engine(address.replace("postgresql:", "postgresql+psycopg:"))
    source = _source("sql", url=address)
    seen: set[str | None] = set()
    statements = (
        "CREATE TABLE t (a int)",
        "ALTER TABLE t ADD COLUMN b text",
        "COMMENT ON COLUMN t.b IS '说明'",
        "INSERT INTO t SELECT 1",
    )
    for statement in statements:
        with engine.begin() as connection:
            connection.execute(text(statement))
        with engine.connect() as connection:
            connection.execute(
                text("SELECT pg_stat_force_next_flush()" if _has_flush(connection) else "SELECT 1")
            )
        engine.dispose()
        first, second = _digest(source, tmp_path), _digest(source, tmp_path)
        assert (first is None, second) == (False, first)
        seen.add(first)
    assert len(seen) == len(statements)


def _has_flush(connection: Any) -> bool:
    return bool(connection.dialect.server_version_info >= (15,))
