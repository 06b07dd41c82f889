"""What the machine refuses is a typed error, and a built project serves from where nothing can be
written.
"""

from __future__ import annotations

import errno
import os
import pkgutil
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ctx_pipeline
from ctx_pipeline.cli.app import app
from ctx_pipeline.contracts import ContextRequest, Task
from ctx_pipeline.errors import CtxError, NotFound, Unavailable
from ctx_pipeline.ledger import Ledger
from ctx_pipeline.machine_faults import system_error, typed_system_errors
from ctx_pipeline.project import SNAPSHOT_NOT_KEPT
from testing.artifacts import ANA, NOW, make_item, make_project, open_project, overlay

NOBODY = 65_534


@cache
def load_everything() -> None:
    """Import what commands import when they run: another user may not be able to read the
    interpreter's own files.
    """
    for module in pkgutil.walk_packages(ctx_pipeline.__path__, "ctx_pipeline."):
        if not any(part in module.name for part in (".versions", ".schema", "policy_cedar")):
            import_module(module.name)
    for name in ("filelock", "rich.progress", "sqlalchemy.dialects.sqlite", "lancedb"):
        import_module(name)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Act as a user without rights of its own: root may write whatever the permissions say."""
    if os.geteuid() != 0:
        yield
        return
    load_everything()
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def close(home: Path) -> None:
    """Take from everybody the right to write to a folder and all that is in it."""
    for path in [home, *home.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)


@pytest.fixture
def home() -> Iterator[Path]:
    """Make a folder that other users can reach, unlike those of the test runner."""
    folder = Path(tempfile.mkdtemp(prefix="ctx-closed-"))
    folder.chmod(0o755)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        with suppress(FileNotFoundError):
            path.chmod(0o755)
    shutil.rmtree(folder)


@pytest.fixture
def built(home: Path) -> Path:
    items = [
        make_item("a", "refund rules: within three days"),
        make_item("b", "退款规则：三个工作日"),
    ]
    return make_project(home, items, head="[policy]\nmin_relevance = 0.0")


def ask(text: str) -> ContextRequest:
    return ContextRequest(task=Task(text=text), identity=ANA)


# --- a read-only disk


@pytest.mark.parametrize("text", ["refund rules", "退款规则"])
def test_a_built_project_serves_where_nothing_can_be_written(built: Path, text: str):
    with open_project(built) as project:
        kept = project.assemble(ask(text), at=NOW, durable=True)
    close(built)
    with unprivileged(), open_project(built) as project:
        pack = project.assemble(ask(text), at=NOW)
        assert [warning.code for warning in pack.warnings] == [SNAPSHOT_NOT_KEPT]
        assert (pack.items, pack.hash) == (kept.items, kept.hash)
        assert project.items(identity=ANA)
        assert project.expand("document:handbook/a", identity=ANA).text
        assert project.explain(kept.snapshot_id, ANA)
        assert project.replay(kept.snapshot_id, ANA).hash == kept.hash
        assert project.status().sources


def test_what_must_be_recorded_is_refused_there(built: Path):
    with open_project(built) as project:
        kept = project.assemble(ask("refund rules"), at=NOW, durable=True)
    close(built)
    with unprivileged(), open_project(built) as project:
        for refused in (
            lambda: project.assemble(ask("refund rules"), at=NOW, durable=True),
            lambda: project.report_used(kept.snapshot_id, ["document:handbook/a"], ANA),
        ):
            with pytest.raises(Unavailable) as caught:
                refused()
            assert caught.value.stable_code == "ledger_readonly"
            assert "cannot be written" in caught.value.message
        with pytest.raises(NotFound):
            project.explain("snap_" + "0" * 32, ANA)


COMMANDS = [
    ("build", "cannot_write"),
    ("build --partitions 2026-11-01..2026-11-02", "cannot_write"),
    ("demo new --rows 2000", "cannot_write"),
    ("retire document:handbook/a --reason old", "cannot_write"),
    ("index rollback", "cannot_write"),
    ("index unpin", "cannot_write"),
    ("dev", "cannot_write"),
]


@pytest.mark.parametrize(("words", "code"), COMMANDS)
def test_every_command_that_writes_says_which_folder_it_cannot_write(
    built: Path, monkeypatch: pytest.MonkeyPatch, words: str, code: str
):
    close(built)
    monkeypatch.chdir(built)
    with unprivileged():
        result = CliRunner().invoke(app, words.split(), env={"CTX_HOME": None, "CTX_DEBUG": None})
    assert result.stderr.splitlines()[0].startswith(f"{code}: ")
    assert str(built) in result.stderr
    assert "fix: " in result.stderr


@pytest.mark.parametrize(
    "words", ["status", "items", "config show", "index list", "policy lint", "explain"]
)
def test_every_command_that_reads_answers_there(
    built: Path, monkeypatch: pytest.MonkeyPatch, words: str
):
    with open_project(built) as project:
        project.assemble(ask("refund rules"), at=NOW, durable=True)
    close(built)
    monkeypatch.chdir(built)
    with unprivileged():
        given = [*words.split(), "--json"]
        if words in ("items", "explain"):
            given += ["--tenant", ANA.tenant, "--principal", ANA.principal]
        result = CliRunner().invoke(app, given, env={"CTX_HOME": None, "CTX_DEBUG": None})
    assert result.exit_code == 0, result.stderr


# --- the ledger


def test_a_ledger_is_told_from_its_folder(home: Path):
    with pytest.raises(Unavailable) as gone:
        Ledger.open(home / "none" / "ledger.db", readonly=True)
    assert gone.value.stable_code == "no_ledger"
    close(home)
    with unprivileged(), pytest.raises(Unavailable) as closed:
        Ledger.open(home / "ledger.db")
    assert closed.value.stable_code == "ledger_readonly"
    assert "exists" not in closed.value.fix
    home.chmod(0o755)
    (home / "folder.db").mkdir()
    with pytest.raises(Unavailable) as folder:
        Ledger.open(home / "folder.db")
    assert "no file" in folder.value.message


def test_a_ledger_that_cannot_be_written_shows_what_others_write_meanwhile(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    path = home / "ledger.db"
    with Ledger.open(path) as writer:
        monkeypatch.setattr("ctx_pipeline.ledger.database.is_writable", lambda url: False)
        with Ledger.open(path, readonly=True) as reader:
            assert (reader.readonly, reader.overlay_sequence()) == (True, 0)
            writer.append_overlay([overlay("retired", "document:handbook/a")])
            assert reader.overlay_sequence() == writer.overlay_sequence() > 0
            assert len(list(reader.overlay_since(0))) == 1
    with Ledger.open(path, readonly=True) as reader:
        assert reader.overlay_sequence() > 0


# --- errors of the system


def raised(error: BaseException) -> CtxError | None:
    return system_error(error, Path("/data/project"))


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError(
            "lance error: LanceError(IO): Generic LocalFileSystem error: No space left (os error "
            "28)"
        ),
        ValueError("An IO error occurred: 'No space left on device (os error 28)'"),
        OSError("[Errno 28] Error writing bytes to file"),
    ],
)
def test_a_full_disk_is_known_by_whatever_a_library_makes_of_it(error: Exception):
    found = raised(error)
    assert found is not None
    assert (found.stable_code, found.where, found.exit_code) == ("disk_full", "/data/project", 7)
    try:
        raise KeyError("内容") from error
    except KeyError as wrapped:
        chained = raised(wrapped)
    assert chained is not None
    assert chained.stable_code == "disk_full"
    assert "内容" not in str(chained)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_refused_folder_is_named(home: Path, number: int):
    found = raised(OSError(number, "refused", str(home / "sub" / "file")))
    assert found is not None
    assert (found.stable_code, found.where) == ("cannot_write", str(home))


def test_other_errors_pass_as_they_are():
    for error in (
        OSError(errno.EIO, "broken"),
        ValueError("os error"),
        KeyError("x"),
        RuntimeError("(os error 5)"),
    ):
        assert raised(error) is None
        with pytest.raises(type(error)), typed_system_errors(Path("/data")):
            raise error


def test_a_database_on_a_full_disk_is_a_full_disk(tmp_path: Path):
    from sqlalchemy import create_engine, event, text
    from sqlalchemy.exc import OperationalError

    engine = create_engine(f"sqlite:///{tmp_path / 'runs.db'}")
    event.listen(
        engine,
        "connect",
        lambda connection, record: connection.execute("PRAGMA max_page_count = 2"),
    )
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE a (b TEXT)"))
        with pytest.raises(OperationalError) as full:
            connection.execute(text("INSERT INTO a VALUES (:b)"), {"b": "x" * 100_000})
    engine.dispose()
    found = raised(full.value)
    assert isinstance(full.value.orig, sqlite3.OperationalError)
    assert found is not None
    assert found.stable_code == "disk_full"


def test_a_build_whose_run_history_fills_the_disk_says_so_and_goes_on_later(tmp_path: Path):
    from sqlalchemy import Engine, event

    from ctx_pipeline.orchestration.build import build

    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# Refunds\n\n退款需要三个工作日。\n", encoding="utf-8")
    text = (
        '[project]\nname = "p"\ntenant = "acme"\n[[sources]]\nname = '
        '"docs"\nkind = "documents"\npath = "docs"\n'
    )
    (tmp_path / "ctx.toml").write_text(text, encoding="utf-8")

    def no_room(connection: sqlite3.Connection, record: object) -> None:
        place = connection.execute("PRAGMA database_list").fetchone()[2]
        if ".ctx/dagster/" in place:
            connection.execute("PRAGMA max_page_count = 1")

    event.listen(Engine, "connect", no_room)
    try:
        with pytest.raises(Unavailable) as caught:
            build(tmp_path, progress=False)
    finally:
        event.remove(Engine, "connect", no_room)
    assert caught.value.stable_code == "disk_full"
    assert caught.value.where.endswith(".ctx/dagster")
    assert build(tmp_path, progress=False).items == 1
