"""What a Postgres server may do to a ledger."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import quote

import pytest
from sqlalchemy import text

from ctx_pipeline.errors import (
    ConfigError,
    Conflict,
    Corrupt,
    CtxError,
    InvalidRequest,
    Unavailable,
)
from ctx_pipeline.ledger import Ledger
from ctx_pipeline.ledger import server as connections
from ctx_pipeline.ledger.counters import touch_sources
from testing.postgres_server import PASSWORD, Server, running_server, unavailable
from tests.ledger.builders import execute, overlay, snapshot, stored_ids

RAISED = "DO $$ BEGIN RAISE EXCEPTION 'canary-4711' USING ERRCODE = '{}'; END $$"


@pytest.fixture
def url(postgres_server: Server) -> str:
    return postgres_server.database()


@pytest.fixture(scope="module")
def fragile() -> Iterator[Server]:
    """A server of this module's own, to be stopped and started."""
    with running_server() as server:
        yield server


def test_a_server_that_has_to_be_there_is_a_failure_and_not_a_skip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CTX_REQUIRE_POSTGRES", raising=False)
    with pytest.raises(pytest.skip.Exception, match="none here"):
        unavailable("none here")
    monkeypatch.setenv("CTX_REQUIRE_POSTGRES", "1")
    with pytest.raises(pytest.fail.Exception, match="none here"):
        unavailable("none here")


def with_setting(url: str, setting: str) -> str:
    return f"{url}?options={quote(f'-c {setting}')}"


@pytest.mark.parametrize(
    ("state", "kind", "code", "retryable"),
    [
        ("40001", Unavailable, "ledger_busy", True),
        ("40P01", Unavailable, "ledger_busy", True),
        ("53100", Unavailable, "disk_full", True),
        ("53300", Unavailable, "ledger_busy", True),
        ("57014", Unavailable, "ledger_timeout", True),
        ("58030", Unavailable, "disk_error", True),
        ("25006", Unavailable, "ledger_readonly", True),
        ("42501", Unavailable, "ledger_readonly", True),
        ("XX001", Corrupt, "ledger_corrupt", False),
        ("42P01", Corrupt, "ledger_corrupt", False),
        ("23505", Conflict, "conflict", True),
        ("22021", InvalidRequest, "invalid_request", False),
        ("54000", InvalidRequest, "invalid_request", False),
        ("0A000", Unavailable, "unavailable", True),
    ],
)
def test_what_the_server_reports_is_typed_and_repeats_nothing(
    url: str, state: str, kind: type[CtxError], code: str, retryable: bool
) -> None:
    with Ledger.open(url) as ledger:
        with pytest.raises(kind) as told, ledger._database.write() as connection:
            connection.execute(text(RAISED.format(state)))
        assert (told.value.stable_code, told.value.retryable) == (code, retryable)
        assert told.value.fix
        assert not any(secret in str(told.value) for secret in ("canary-4711", PASSWORD))
        assert ledger.append_overlay([overlay()]) == 1


def test_a_server_that_refuses_says_why_and_keeps_the_password_to_itself(
    url: str, postgres_server: Server
) -> None:
    port, (server, _, name) = postgres_server.port, url.rpartition("/")
    for address, code in {
        f"postgresql://owner:hunter2@127.0.0.1:{port}/{name}": "ledger_denied",
        f"postgresql://nobody:hunter2@127.0.0.1:{port}/{name}": "ledger_denied",
        f"postgresql://owner@127.0.0.1:{port}/{name}": "ledger_denied",
        f"{server}/no_such_database": "ledger_unreachable",
        "postgresql://owner:hunter2@127.0.0.1:1/ledger": "ledger_unreachable",
    }.items():
        with pytest.raises(Unavailable) as told:
            Ledger.open(address)
        assert told.value.stable_code == code
        assert not any(secret in str(told.value) for secret in ("hunter2", PASSWORD))


@pytest.mark.parametrize(
    "address", ["postgresql://ana:hunter2@host:port/db", "mysql://ana:hunter2@host/db"]
)
def test_a_url_that_cannot_be_used_is_a_configuration_error_without_its_password(
    address: str,
) -> None:
    with pytest.raises(ConfigError) as told:
        Ledger.open(address)
    assert "hunter2" not in f"{told.value} {told.value.__cause__}"


def test_a_database_of_somebody_else_is_refused_and_left_alone(url: str) -> None:
    execute(url, "CREATE TABLE alembic_version (version_num TEXT)")
    with pytest.raises(Corrupt) as told:
        Ledger.open(url)
    assert told.value.stable_code == "not_a_ledger"
    assert execute(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == [
        ("alembic_version",)
    ]


def test_a_writer_waits_for_another_one_for_a_bounded_time(url: str) -> None:
    with Ledger.open(url) as ledger:
        for setting, code in {
            "lock_timeout=150": "ledger_busy",
            "statement_timeout=150": "ledger_timeout",
        }.items():
            with Ledger.open(with_setting(url, setting)) as other:
                with ledger._database.write() as held:
                    touch_sources(held)
                    with pytest.raises(Unavailable) as told:
                        other.append_events([], recalls=[]) or other.reserve(1)
                    assert told.value.stable_code == code
                assert other.reserve(1) > 0


def test_of_two_transactions_that_wait_for_each_other_one_is_told_to_try_again(url: str) -> None:
    told: list[CtxError] = []
    meet = threading.Barrier(2)
    with Ledger.open(url) as ledger:
        ledger.put_blobs({"a": "", "b": ""})

    def change(first: str, second: str) -> None:
        with Ledger.open(with_setting(url, "deadlock_timeout=50")) as ledger:
            try:
                with ledger._database.write() as connection:
                    connection.execute(text(f"UPDATE blobs SET text = '1' WHERE hash = '{first}'"))
                    meet.wait(20)
                    connection.execute(text(f"UPDATE blobs SET text = '1' WHERE hash = '{second}'"))
            except CtxError as error:
                told.append(error)

    threads = [threading.Thread(target=change, args=pair) for pair in ("ab", "ba")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [(error.stable_code, error.retryable) for error in told] == [("ledger_busy", True)]


def test_a_connection_that_is_lost_in_the_middle_of_a_transaction_changes_nothing(url: str) -> None:
    with Ledger.open(url) as ledger:

        def lose() -> None:
            with ledger._database.write() as connection:
                touch_sources(connection)
                number = connection.execute(text("SELECT pg_backend_pid()")).scalar()
                execute(url, f"SELECT pg_terminate_backend({number})")
                touch_sources(connection)

        with pytest.raises(Unavailable) as told:
            lose()
        assert told.value.stable_code == "ledger_unreachable"
        assert ledger._database.counters() == (0, 0)


def test_a_connection_that_broke_while_nobody_used_it_is_replaced_unnoticed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.0)
    with Ledger.open(url) as ledger:
        for call in (ledger.overlay_sequence, lambda: ledger.reserve(1), ledger.sources):
            execute(
                url,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = 'ctx-ledger'",
            )
            call()


def test_a_server_that_was_killed_and_comes_back_has_everything_that_was_acknowledged(
    fragile: Server,
) -> None:
    """Ours: promise P1. What was queued meanwhile is stored then."""
    url = fragile.database()
    with Ledger.open(url) as ledger:
        ledger.submit_snapshot(snapshot("before"), durable=True)
        with ExitStack() as again:
            fragile.stop()
            again.callback(fragile.start)
            for call in (
                ledger.overlay_sequence,
                lambda: ledger.append_overlay([overlay()]),
                lambda: ledger.submit_snapshot(snapshot("meanwhile"), durable=True),
                ledger.flush,
                lambda: Ledger.open(url),
            ):
                with pytest.raises(Unavailable) as told:
                    call()
                assert told.value.stable_code == "ledger_unreachable"
                assert PASSWORD not in str(told.value)
        ledger.flush()
        assert ledger.overlay_sequence() == 0
        assert stored_ids(url) == ["before", "meanwhile"]
