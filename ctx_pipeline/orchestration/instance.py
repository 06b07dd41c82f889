"""The folder of a project's Dagster instance, and the database that it may keep its runs in.

A database URL holds a password, so no file has it: `dagster.yaml` names an environment variable,
which our processes set for themselves and for those they start.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ctx_pipeline.config.settings import ProjectConfig
from ctx_pipeline.errors import ConfigError, CtxError, Unavailable
from ctx_pipeline.machine_faults import can_write, cannot_write, system_error, typed_system_errors

STORAGE_VARIABLE = "CTX_DAGSTER__URL"
"""The same variable that the setting can be given in."""
INSTANCE_CONFIG = "dagster.yaml"
INSTANCE_TEMPLATE = """\
# Copied into a context project's own instance folder by `ctx`.
concurrency: {runs: {max_concurrent_runs: 8}, pools: {granularity: op, default_limit: 1}}
run_monitoring: {enabled: true, max_runtime_seconds: 7200, free_slots_after_run_end_seconds: 300}
run_retries: {enabled: true, max_retries: 2, retry_on_asset_or_op_failure: false}
retention:
  schedule: {purge_after_days: 30}
  sensor: {purge_after_days: {skipped: 2, failure: 14, success: 14}}
  auto_materialize: {purge_after_days: {skipped: 2, failure: 14, success: 14}}
sensors: {use_threads: true, num_workers: 2}
telemetry: {enabled: false}
nux: {enabled: false}
"""
"""What a project's instance starts with. Runs wait in a queue, a killed run gives its pool slots
back, ticks are pruned, nothing is reported to anybody and nobody is asked to sign up."""
STORAGE_LINE = (
    f"storage: {{postgres: {{postgres_url: {{env: {STORAGE_VARIABLE}}}}}}}  # written "
    "by ctx: [dagster] url\n"
)
"""The one line of the project's own file that follows a setting; everything else in it is never
overwritten."""
_STORAGES = ("storage:", "run_storage:", "event_log_storage:", "schedule_storage:")


def dagster_url(config: ProjectConfig) -> str | None:
    """Return the URL of the database that Dagster keeps its runs in, with its driver; None is
    SQLite.

    Raises:
        ConfigError: it is no PostgreSQL URL, or the ledger is in the same database.
    """
    if config.dagster.url is None:
        return None
    scheme, found, rest = config.dagster.url.get_secret_value().partition("://")
    where = "[dagster] url"
    if not found or scheme not in (
        "postgres",
        "postgresql",
        "postgresql+psycopg",
        "postgresql+psycopg2",
    ):
        raise ConfigError(
            "this is no PostgreSQL URL", where=where, fix="write postgresql://user@host/database"
        )
    ledger = config.ledger.url.get_secret_value().partition("://")[2] if config.ledger.url else ""
    if ledger.rpartition("@")[2] == rest.rpartition("@")[2]:
        fix = "make a database for each: both have a table `snapshots`"
        raise ConfigError("Dagster and the ledger cannot share a database", where=where, fix=fix)
    return f"postgresql+psycopg2://{rest}"


def write_instance(home: Path, url: str | None = None) -> Path:
    """Write the project's Dagster instance folder where it is missing, and return it.

    Its file names a database if and only if there is a `url`.

    Raises: ConfigError: there is a `url`, and the file names a storage of its own. Unavailable: the
        folder cannot be written (`cannot_write`), or the disk is full (`disk_full`).
    """
    folder = home / ".ctx" / "dagster"
    with typed_system_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _write_config(folder / INSTANCE_CONFIG, url)
    if not can_write(folder):
        # Dagster writes there when it is too late to say so.
        raise cannot_write(folder)
    return folder


def _write_config(file: Path, url: str | None) -> None:
    before = file.read_text(encoding="utf-8") if file.exists() else None
    lines = (INSTANCE_TEMPLATE if before is None else before).splitlines(keepends=True)
    kept = [line for line in lines if line != STORAGE_LINE]
    if url is not None:
        if _names_storage(kept):
            raise ConfigError(
                "the instance has a storage of its own, and [dagster] url names another",
                where=f"{INSTANCE_CONFIG} in .ctx/dagster",
                fix="remove one of the two",
            )
        if kept and not kept[-1].endswith("\n"):
            kept[-1] += "\n"
        kept.append(STORAGE_LINE)
    if (text := "".join(kept)) != before:
        # In one step: another process may be reading it.
        draft = file.with_name(f"{INSTANCE_CONFIG}.{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)


@contextmanager
def storage_errors(home: Path, url: str | None) -> Generator[None]:
    """Raise what Dagster's storage fails with inside the block as a typed error.

    Raises: Unavailable: the disk is full (`disk_full`), the folder cannot be written
        (`cannot_write`), or the storage
            cannot be used for another reason (`dagster_unreachable`).
    """
    from sqlalchemy.exc import SQLAlchemyError

    folder = home / ".ctx" / "dagster"
    try:
        yield
    except SQLAlchemyError as broken:  # the ledger and the sources raise their own as typed errors
        typed = None if url is not None else system_error(broken, folder)
        raise (typed or _storage_failed(broken, url)) from broken


def _storage_failed(broken: Exception, url: str | None) -> Unavailable:
    cause = getattr(broken, "orig", None) or broken
    if url is None:
        fix = (
            "move .ctx/dagster away: it holds the history of runs alone, and the next build "
            "makes it anew"
        )
    else:
        fix = "check that the database runs and what its log says"
    return Unavailable(
        f"Dagster's storage cannot be used ({type(cause).__name__})",
        where=".ctx/dagster" if url is None else "[dagster] url",
        fix=fix,
        code="dagster_unreachable",
    )


def keeps_own_files(folder: Path) -> bool:
    """Return whether an instance folder names no storage, so that Dagster keeps its runs in files
    beside it.
    """
    return not _names_storage((folder / INSTANCE_CONFIG).read_text(encoding="utf-8").splitlines())


def _names_storage(lines: Sequence[str]) -> bool:
    return any(line.startswith(_STORAGES) for line in lines)


@contextmanager
def storage_variable(url: str | None) -> Generator[None]:
    """Let Dagster find its database while the block runs, in this process and in those it starts.

    Raises: Unavailable: the server cannot be reached (`dagster_unreachable`), or a library is
        missing (`no_driver`).
    """
    if url is None:
        yield
        return
    _require_reachable(url)
    before = os.environ.get(STORAGE_VARIABLE)
    os.environ[STORAGE_VARIABLE] = url
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(STORAGE_VARIABLE, None)
        else:
            os.environ[STORAGE_VARIABLE] = before


def _require_reachable(url: str) -> None:
    """Ask the server once: Dagster tries again for seconds, and its errors say neither what nor
    where.
    """
    from importlib.util import find_spec

    from sqlalchemy import NullPool, create_engine
    from sqlalchemy.engine import make_url

    from ctx_pipeline.ledger.faults import typed_errors

    try:
        where = f"[dagster] url = {make_url(url).render_as_string(hide_password=True)}"
    except ValueError:  # the cause repeats what cannot be read
        fix = "write postgresql://user@host:5432/database"
        raise ConfigError("this is no PostgreSQL URL", where="[dagster] url", fix=fix) from None
    if find_spec("dagster_postgres") is None or find_spec("psycopg2") is None:
        fix = "pip install 'ctx-pipeline[postgres]'"
        raise Unavailable(
            "Dagster cannot keep its runs in PostgreSQL here",
            where=where,
            fix=fix,
            code="no_driver",
        )
    try:
        with typed_errors(where):
            create_engine(url, poolclass=NullPool, hide_parameters=True).connect().close()
    except CtxError as refused:
        raise Unavailable(
            f"Dagster's storage cannot be used: {refused.message}",
            where=where,
            fix=refused.fix,
            code="dagster_unreachable",
        ) from refused
