"""Whether a source looks as it did: names, sizes, times and counters, never content.

Equal fingerprints mean that reading again is not worth it; different ones that it may be. What
nobody can look at cheaply, such as the web, has no fingerprint and is left to its freshness window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctx_pipeline.config.settings import SourceConfig
from ctx_pipeline.contracts import SourceKind
from ctx_pipeline.errors import ConfigError
from ctx_pipeline.sources.files import locate, shown_path
from ctx_pipeline.text import repair, sha256_hex

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

_SQLITE_SIDES = ("-wal", "-journal")
_DUCKDB_SIDES = (".wal",)
_REMOTE_FACTS = (
    *("ETag", "etag", "md5Hash", "content_md5", "generation"),
    *("LastModified", "last_modified", "mtime", "updated", "created"),
    "size",
)
"""What listings of S3, Google, Azure, local and in-memory file systems say of an object; each store
says some."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """How a source looked."""

    digest: str
    newest: int | None = None
    """Latest change of a file, nanoseconds since 1970; None where the source says no such thing."""


def source_fingerprint(source: SourceConfig, home: Path) -> Fingerprint | None:
    """Return how a source looks now; None when it cannot be told cheaply, or not now.

    The settings of the source are part of it: a changed `path` or `sensitivity` is a change of the
    source.
    """
    try:
        found = _look(source, home)
    except (ConfigError, OSError, ValueError, RuntimeError):
        # What is wrong is told by the reading of the source, with its place.
        return None
    if found is None:
        return None
    lines, newest = found
    return Fingerprint(sha256_hex("\n".join([source.model_dump_json(), *lines]))[:32], newest)


_Look = tuple[list[str], int | None]
"""Lines that change when the source does, and the latest change of a file."""


def _look(source: SourceConfig, home: Path) -> _Look | None:
    if source.kind is SourceKind.SQL:
        return _sql(source, home)
    if source.kind is SourceKind.WEB or not source.path:
        return None
    if source.kind is SourceKind.GIT:
        return _git(source.path, home)
    if "://" in source.path:
        return _remote(source, home)
    located = locate(source.path, home)
    return _stats((file.path for file in located.files), home), _newest(
        file.path for file in located.files
    )


def _stats(paths: Iterable[Path], home: Path) -> list[str]:
    """Return a line a file; names are relative, so that a project that was
    moved looks as it did.
    """
    lines: list[str] = []
    for path in paths:
        try:
            found = path.stat()
        except OSError:
            continue
        lines.append(f"{shown_path(path, home)}\t{found.st_size}\t{found.st_mtime_ns}")
    return lines


def _newest(paths: Iterable[Path]) -> int | None:
    times: list[int] = []
    for path in paths:
        try:
            times.append(path.stat().st_mtime_ns)
        except OSError:
            continue
    return max(times, default=None)


def _git(path: str, home: Path) -> _Look | None:
    """Files of a repository are read as HEAD has them, so HEAD is all there is to look at."""
    from ctx_pipeline.sources.code.git_objects import GitProblem, Repository

    try:
        with Repository(Path(normpath(home / repair(path)))) as repository:
            head = repository.head()
    except GitProblem:
        return None
    # A commit is complete when HEAD names it: nothing is still being written.
    return None if head is None else ([head], None)


def _remote(source: SourceConfig, home: Path) -> _Look | None:
    from ctx_pipeline.sources.remote import list_remote

    listed = list_remote(source, home)
    if listed is None:
        return None
    if isinstance(listed, dict):
        lines = [
            "\t".join([name, *(str(info.get(fact)) for fact in _REMOTE_FACTS)])
            for name, info in sorted(listed.items())
        ]
        # An object of a store appears whole.
        return lines, None
    return _stats(listed, home), _newest(listed)


def _sql(source: SourceConfig, home: Path) -> _Look | None:
    from ctx_pipeline.config.source_rules import DUCKDB, POSTGRES
    from ctx_pipeline.sources.database.sql_connect import Unreachable, parse_url

    kind, url = parse_url(source.url, source.name)
    if kind == POSTGRES:
        try:
            return _postgres(url), None
        except Unreachable:
            return None
    if not url.database:
        return None
    file = Path(normpath(home / url.database))
    sides = [Path(f"{file}{side}") for side in (_DUCKDB_SIDES if kind == DUCKDB else _SQLITE_SIDES)]
    # A reader may leave an empty log behind, which is no change.
    paths = [file, *(side for side in sides if side.is_file() and side.stat().st_size)]
    return (_stats(paths, home), _newest(paths)) if file.is_file() else None


_POSTGRES_SQL = (
    # Tables and columns with their comments, as the source describes them ...
    "SELECT table_schema, table_name, column_name, ordinal_position, "
    "data_type, is_nullable, column_default, "
    "col_description(format('%I.%I', table_schema, table_name)::regclass, ordinal_position), "
    "obj_description(format('%I.%I', table_schema, "
    "table_name)::regclass) FROM information_schema.columns "
    "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2, 4",
    # ... and the counters of what was written to them; they start anew after a crash, which counts
    # as a change.
    (
        "SELECT schemaname, relname, n_tup_ins, n_tup_upd, n_tup_del "
        "FROM pg_stat_user_tables ORDER BY 1, 2"
    ),
)


def _postgres(url: URL) -> list[str]:
    from sqlalchemy import text
    from sqlalchemy.exc import SQLAlchemyError

    from ctx_pipeline.sources.database.sql_connect import Unreachable, connect_postgres

    try:
        with connect_postgres(url) as connection:
            rows: list[Sequence[Any]] = [
                row for sql in _POSTGRES_SQL for row in connection.execute(text(sql)).all()
            ]
    except SQLAlchemyError as refused:
        raise Unreachable("the database does not say what it holds") from refused
    return ["\t".join(str(value) for value in row) for row in rows]


__all__ = ["Fingerprint", "source_fingerprint"]
