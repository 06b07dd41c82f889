from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from ctx_pipeline.contracts import Lifecycle
from ctx_pipeline.errors import ConfigError, Corrupt, Unavailable
from ctx_pipeline.ledger import Ledger, OverlayEntry
from ctx_pipeline.ledger.migrations import MIGRATIONS, SCHEMA_VERSION, migrate
from ctx_pipeline.ledger.schema import METADATA
from tests.ledger.builders import BLOBS, NOW, event, overlay, snapshot

FIXTURES = Path(__file__).parent / "fixtures"
PRAGMAS = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 15_000, "secure_delete": 1}
ROOT = Path(__file__).parents[2]


def execute(path: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        return raw.execute(statement).fetchall()


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
            assert ledger.integrity()["ok"]
    with Ledger.open(path) as ledger:
        assert ledger.reserve(1) > max(step.sequence or 0 for step in ledger.events_for("acme", "item-1"))


def test_there_is_a_fixture_of_every_schema_version() -> None:
    assert [file.name for file in sorted(FIXTURES.glob("*.db"))] == [
        f"ledger_v{number}.db" for number in range(1, SCHEMA_VERSION + 1)
    ]


def test_the_tables_of_the_code_are_those_that_the_migrations_make(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    engine = create_engine(f"sqlite:///{path}")
    found = inspect(engine)
    assert set(found.get_table_names()) == set(METADATA.tables)
    for name, table in METADATA.tables.items():
        columns = [(column["name"], column["nullable"]) for column in found.get_columns(name)]
        # SQLite reports the row's own key as nullable; it never is.
        keys = set(found.get_pk_constraint(name)["constrained_columns"])
        assert [(n, nullable and n not in keys) for n, nullable in columns] == [
            (column.name, bool(column.nullable)) for column in table.columns
        ]
        assert keys == {column.name for column in table.primary_key}
    engine.dispose()


def test_the_tables_can_be_made_in_postgres() -> None:
    for table in METADATA.tables.values():
        assert "BIGINT" in str(CreateTable(table).compile(dialect=postgresql.dialect())) or table.name in {
            "meta",
            "blobs",
        }


def test_a_schema_of_a_later_release_is_refused_by_name_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    execute(path, "UPDATE meta SET schema_version = 99")
    for readonly in (False, True):
        with pytest.raises(Unavailable, match="99") as refused:
            Ledger.open(path, readonly=readonly)
        assert refused.value.stable_code == "ledger_too_new"
    assert execute(path, "SELECT schema_version FROM meta") == [(99,)]


def test_an_older_schema_is_upgraded_once_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    engine = create_engine(f"sqlite:///{path}")

    def add_column(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE sources ADD COLUMN owner TEXT"))

    def fail(connection: Connection) -> None:
        raise RuntimeError

    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        with pytest.raises(RuntimeError):
            migrate(connection, [*MIGRATIONS, add_column, fail])
    assert execute(path, "SELECT schema_version FROM meta") == [(SCHEMA_VERSION,)]
    for _ in range(2):
        with engine.begin() as connection:
            assert migrate(connection, [*MIGRATIONS, add_column]) == SCHEMA_VERSION + 1
    assert execute(path, "SELECT schema_version FROM meta") == [(SCHEMA_VERSION + 1,)]
    assert "owner" in {column["name"] for column in inspect(engine).get_columns("sources")}
    engine.dispose()


def test_a_file_that_is_no_ledger_is_refused_and_left_alone(tmp_path: Path) -> None:
    foreign, text_file = tmp_path / "foreign.db", tmp_path / "notes.db"
    execute(foreign, "CREATE TABLE t (x)")
    text_file.write_text("not a database, 不是数据库 " * 100, encoding="utf-8")
    before = text_file.read_bytes()
    for path in (foreign, text_file):
        with pytest.raises(Corrupt) as refused:
            Ledger.open(path)
        assert refused.value.fix
    assert execute(foreign, "SELECT name FROM sqlite_master") == [("t",)]
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


def test_a_reader_reads_writes_nothing_and_says_when_there_is_no_ledger(tmp_path: Path) -> None:
    path = tmp_path / "state" / "ledger.db"
    with pytest.raises(Unavailable) as missing:
        Ledger.open(path, readonly=True)
    assert missing.value.stable_code == "ledger_missing"
    assert not path.parent.exists()
    with Ledger.open(path) as ledger:
        ledger.append_overlay([overlay()])
        with Ledger.open(path, readonly=True) as reader:
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
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=50, check=False).returncode == 0
