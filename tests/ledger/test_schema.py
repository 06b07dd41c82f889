from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Integer, MetaData, Table, inspect, text

from ctx_pipeline.contracts import Lifecycle
from ctx_pipeline.errors import ConfigError, Corrupt, Unavailable
from ctx_pipeline.ledger import Ledger, OverlayEntry
from ctx_pipeline.ledger.migrations import (
    SCHEMA_VERSION,
    VERSION_TABLE,
    VERSIONS,
    migrate,
    migration_context,
)
from ctx_pipeline.ledger.schema import METADATA
from tests.ledger.builders import BLOBS, NOW, event, execute, overlay, recall, snapshot

FIXTURES = Path(__file__).parent / "fixtures"
PRAGMAS = {
    "journal_mode": "wal",
    "synchronous": 2,
    "foreign_keys": 1,
    "busy_timeout": 15_000,
    "secure_delete": 1,
}
ROOT = Path(__file__).parents[2]


FIRST = """
from ctx_pipeline.ledger.migrations import run
revision, down_revision = {revision!r}, {before!r}
def upgrade(op):
    run(op, {statement!r})
"""
FORMER = (
    f"DROP TABLE {VERSION_TABLE}", "DROP TABLE identity",
    "CREATE TABLE meta (schema_version INTEGER NOT NULL)", "INSERT INTO meta VALUES (2)",
)  # fmt: skip
"""Makes a ledger look as it did when its version was kept in `meta`."""


def newer(folder: Path, *statements: str) -> Path:
    """Copy the revisions and add one for each statement."""
    versions = folder / "versions"
    shutil.copytree(VERSIONS, versions, ignore=shutil.ignore_patterns("__pycache__"))
    for number, statement in enumerate(statements, SCHEMA_VERSION + 1):
        text = FIRST.format(revision=f"{number:04}", before=f"{number - 1:04}", statement=statement)
        (versions / f"{number:04}_more.py").write_text(text, encoding="utf-8")
    return versions


def version_of(url: str) -> list[tuple[object, ...]]:
    return execute(url, f"SELECT version_num FROM {VERSION_TABLE}")


@pytest.mark.parametrize("name", sorted(file.name for file in FIXTURES.glob("*.db")))
def test_every_schema_ever_released_opens_with_its_contents(name: str, tmp_path: Path) -> None:
    """Ours: promise P24. A fixture is never rewritten; a new schema version adds one."""
    path = tmp_path / "ledger.db"
    shutil.copy(FIXTURES / name, path)
    for _ in range(2):
        with Ledger.open(path) as ledger:
            assert ledger.integrity()["schema_version"] == SCHEMA_VERSION
            assert [step.to_state for step in ledger.events_for("acme", "item-1")] == [
                Lifecycle.CREATED,
                Lifecycle.SUPERSEDED,
            ]
            entry: OverlayEntry = ledger.overlay_since(0)[0]
            assert (entry.item_id, entry.reason, entry.effective_at) == ("item-1", "下线", NOW)
            assert ledger.source_times() == {"docs": NOW}
            stored = ledger.snapshot("s1")
            assert stored is not None
            assert (stored.pack_json, stored.created_at) == (snapshot("s1").pack_json, NOW)
            assert ledger.get_blobs(BLOBS) == snapshot("s1").blobs
            assert ledger.used_counts("acme") == {"item-0": 1}
            assert ledger.usage("s1") == ({"input_tokens": 10},)
            if name != "ledger_v1.db":
                assert [replace(notice, sequence=None) for notice in ledger.recalls()] == [recall()]
                assert ledger.pruned("s0") is not None
            assert ledger.integrity()["ok"]
    with Ledger.open(path) as ledger:
        # What an older schema does not say about blobs, the upgrade assumes so that none is lost.
        ledger.submit_snapshot(
            snapshot("s2", number=3, created_at=NOW + timedelta(days=1)), durable=True
        )
        assert ledger.prune_snapshots(NOW + timedelta(seconds=1)) == 1
        assert ledger.get_blobs(BLOBS) == snapshot("s2", number=3).blobs
        assert ledger.reserve(1) > max(
            step.sequence or 0 for step in ledger.events_for("acme", "item-1")
        )


def test_there_is_a_fixture_of_every_schema_version() -> None:
    assert [file.name for file in sorted(FIXTURES.glob("*.db"))] == [
        f"ledger_v{number}.db" for number in range(1, SCHEMA_VERSION + 1)
    ]


def test_the_tables_of_the_code_are_those_that_the_migrations_make(url: str) -> None:
    """Tables, columns, types, nullability, keys, indexes, unique and foreign keys."""
    with Ledger.open(url) as ledger, ledger._database.read() as connection:
        found = list(compare_metadata(migration_context(connection), METADATA))
        # SQLite reports the row's own key as nullable; it never is.
        own_keys = {
            (name, columns[0].name)
            for name, table in METADATA.tables.items()
            if len(columns := list(table.primary_key)) == 1
        }
        if connection.dialect.name == "sqlite":
            found = [
                d for d in found if not (d[0][0] == "modify_nullable" and d[0][2:4] in own_keys)
            ]
        assert found == []
        # A difference would be found: of this one there is no table.
        Table("more", metadata := MetaData(), Column("id", Integer))
        assert len(compare_metadata(migration_context(connection), metadata)) > 1


def test_the_newest_revision_is_the_version_of_the_code() -> None:
    script = ScriptDirectory(str(VERSIONS.parent), version_locations=[str(VERSIONS)])
    revisions = [revision.revision for revision in script.walk_revisions()]
    assert revisions == [f"{number:04}" for number in range(SCHEMA_VERSION, 0, -1)]


def test_a_schema_of_a_later_release_is_refused_by_name_and_left_alone(url: str) -> None:
    Ledger.open(url).close()
    execute(url, f"UPDATE {VERSION_TABLE} SET version_num = '0099'")
    for readonly in (False, True):
        with pytest.raises(Unavailable, match="99") as refused:
            Ledger.open(url, readonly=readonly)
        assert refused.value.stable_code == "ledger_too_new"
    assert version_of(url) == [("0099",)]


def test_a_ledger_with_the_former_table_of_versions_is_taken_over(url: str) -> None:
    with Ledger.open(url) as ledger:
        ledger.append_overlay([overlay()])
    for statement in FORMER:
        execute(url, statement)
    with pytest.raises(Unavailable) as refused:
        Ledger.open(url, readonly=True)
    assert refused.value.stable_code == "ledger_too_old"
    for _ in range(2):
        with Ledger.open(url) as ledger:
            assert ledger.overlay_sequence() == 1
            assert ledger.integrity()["schema_version"] == SCHEMA_VERSION
    with pytest.raises(Corrupt), Ledger.open(url) as ledger, ledger._database.read() as connection:
        connection.execute(text("SELECT * FROM meta"))


def test_a_ledger_that_is_up_to_date_is_opened_without_alembic(url: str) -> None:
    program = (
        "import sys; from ctx_pipeline.ledger import Ledger; Ledger.open(sys.argv[1]).close()\n"
    )
    program += "print('alembic' in sys.modules)"
    answers = [
        subprocess.run(
            [sys.executable, "-c", program, url],
            cwd=ROOT,
            timeout=50,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for _ in range(2)
    ]
    assert answers == ["True", "False"]


def test_an_older_schema_is_upgraded_once_or_not_at_all(url: str, tmp_path: Path) -> None:
    with Ledger.open(url) as ledger:
        change = "ALTER TABLE sources ADD COLUMN owner TEXT"
        bad = newer(tmp_path / "bad", change, "INSERT INTO nowhere VALUES (1)")
        with pytest.raises(Corrupt), ledger._database.write() as connection:
            migrate(connection, bad)
        assert version_of(url) == [(f"{SCHEMA_VERSION:04}",)]
        for _ in range(2):
            with ledger._database.write() as connection:
                migrate(connection, newer(tmp_path / str(_), change))
        assert version_of(url) == [(f"{SCHEMA_VERSION + 1:04}",)]
        with ledger._database.read() as connection:
            assert "owner" in {
                column["name"] for column in inspect(connection).get_columns("sources")
            }


def test_a_file_that_is_no_ledger_is_refused_and_left_alone(tmp_path: Path) -> None:
    foreign, text_file = tmp_path / "foreign.db", tmp_path / "notes.db"
    execute(f"sqlite:///{foreign}", "CREATE TABLE t (x)")
    text_file.write_text("not a database, 不是数据库 " * 100, encoding="utf-8")
    before = text_file.read_bytes()
    for path in (foreign, text_file):
        with pytest.raises(Corrupt) as refused:
            Ledger.open(path)
        assert refused.value.fix
    assert execute(f"sqlite:///{foreign}", "SELECT name FROM sqlite_master") == [("t",)]
    assert text_file.read_bytes() == before


def test_damaged_pages_are_found_by_the_integrity_report(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.append_events([event(f"item-{number}") for number in range(2_000)])
        assert ledger.integrity()["counts"]["events"] == 2_000
    bytes_ = bytearray(path.read_bytes())
    bytes_[-40_000:-20_000] = b"\xff" * 20_000
    path.write_bytes(bytes_)
    with Ledger.open(path) as ledger:
        report = ledger.integrity()
    assert report["ok"] is False
    assert report["problems"]


def test_a_reader_reads_writes_nothing_and_says_when_there_is_no_ledger(
    url: str, tmp_path: Path
) -> None:
    with pytest.raises(Unavailable) as missing:
        Ledger.open(url, readonly=True)
    assert missing.value.stable_code == "no_ledger"
    assert not (tmp_path / "state").exists()
    with Ledger.open(url) as ledger:
        ledger.append_overlay([overlay()])
        with Ledger.open(url, readonly=True) as reader:
            assert reader.overlay_sequence() == 1
            ledger.append_overlay([overlay()])
            assert reader.overlay_sequence() == 2
            for call in (
                lambda: reader.append_overlay([overlay()]),
                lambda: reader.submit_snapshot(snapshot("s1")),
                lambda: reader.reserve(1),
            ):
                with pytest.raises(Unavailable) as refused:
                    call()
                assert refused.value.stable_code == "ledger_readonly"


def test_a_ledger_whose_folder_cannot_exist_is_unavailable_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(Unavailable) as refused:
        Ledger.open(tmp_path / "file" / "ledger.db")
    assert refused.value.fix


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "://"])
def test_a_url_that_names_no_file_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigError):
        Ledger.open(url)


def test_a_path_and_its_url_open_the_same_file_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "订单 100%?#.db"
    with Ledger.open(str(path)) as ledger:
        ledger.append_overlay([overlay()])
    assert path.is_file()
    plain = tmp_path / "plain.db"
    with Ledger.open(f"sqlite:///{plain}") as ledger:
        ledger.append_overlay([overlay()])
    with Ledger.open(plain) as ledger:
        assert ledger.overlay_sequence() == 1


def test_every_commit_is_synced_into_a_write_ahead_log(tmp_path: Path) -> None:
    """Ours: promise P2. FULL is 2; with NORMAL a power cut takes acknowledged commits back."""
    with Ledger.open(tmp_path / "ledger.db") as ledger, ledger._database.write() as connection:
        read = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in PRAGMAS}
    assert read == PRAGMAS


def test_a_url_without_its_driver_is_unavailable_and_keeps_the_password_to_itself() -> None:
    with pytest.raises(Unavailable) as refused:
        Ledger.open("postgresql+nodriver://ana:hunter2@localhost/ledger")
    assert refused.value.stable_code == "no_driver"
    assert "hunter2" not in str(refused.value)


def test_importing_the_package_loads_no_database_library() -> None:
    program = "import sys, ctx_pipeline.ledger; sys.exit('sqlalchemy' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, timeout=50, check=False
        ).returncode
        == 0
    )
