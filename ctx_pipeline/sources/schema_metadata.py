"""Schema metadata: tables and columns of a DuckDB file or of Parquet and CSV files, with statistics.

Data stays where it is: files are read through an in-memory connection that may open nothing but them, is closed at
the end, and never writes. The size limit of a source does not apply, because no file is loaded as a whole.
"""

# ruff: noqa: S608 - identifiers pass `quoted`, paths pass `literal`
from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ctx_pipeline.contracts import ContextItem, FileCode, FileError, ItemKind
from ctx_pipeline.sources.base import SourceBatch
from ctx_pipeline.sources.batch import BatchBuilder
from ctx_pipeline.sources.column_stats import (
    Column,
    ColumnStats,
    column_stats,
    count_text,
    literal,
    quoted,
    share_text,
    value_text,
)
from ctx_pipeline.sources.files import FoundFile
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.records import Draft, make_item
from ctx_pipeline.text import normalise, repair, short_hash

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

DATABASE_SUFFIXES = (".duckdb", ".db", ".ddb")
CSV_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
PARQUET_SUFFIX = ".parquet"
MEMORY_LIMIT = "1GB"
WHOLE_CSV_BYTES = 16 * 1024 * 1024
"""Up to this size a CSV file is parsed once, as a whole; above, its types are found in its first rows."""
CSV_SAMPLE_ROWS = 20_480


@dataclass(frozen=True, slots=True)
class _Table:
    """A table to describe. `relation` is its SQL, None for a view, which is never run."""

    name: str
    found: FoundFile
    columns: tuple[Column, ...]
    relation: str | None
    comment: str | None = None
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = ()
    parquet: tuple[str, ...] = ()
    partition: str | None = None


def read_schema_metadata(files: tuple[FoundFile, ...], origin: Origin) -> SourceBatch:
    """Turn each table into `schema:<source>/<table>` and each column into `schema:<source>/<table>.<column>`.

    A database gives all its tables (of other schemas than `main` as `<schema>.<table>`). Of other files each is a
    table, except that all Parquet files below a sub-folder are the parts of one table named like the folder.
    """
    batch = BatchBuilder()
    taken: dict[str, FoundFile] = {}
    for name, parts in _groups(files).items():
        main = parts[0]
        suffix = _suffix(main)
        if suffix is None:
            batch.skip(main, "not a DuckDB, Parquet or CSV file")
            continue
        try:
            tables = list(_describe(name, parts, suffix, origin))
        except _Unreadable as problem:
            for part in parts:
                code = FileCode.UNREADABLE
                batch.fail(part, FileError(path=part.shown, code=code, message=problem.args[0]))
            continue
        for part in parts[1:]:
            batch.part(part, f"part of table {name!r}")
        batch.open(main)
        for table, items in tables:
            first = taken.setdefault(table, main)
            if first is main:
                batch.add(main, *items)
            else:
                message = f"table {table!r} is in {first.shown} too: rename one file"
                batch.fail(main, FileError(path=main.shown, code=FileCode.DUPLICATE_ID, message=message))
    return batch.build()


class _Unreadable(Exception):
    """A file that DuckDB cannot read; the message never holds its content."""


def _suffix(found: FoundFile) -> str | None:
    name = found.name.lower()
    for suffix in (*CSV_SUFFIXES, PARQUET_SUFFIX, *DATABASE_SUFFIXES):
        if name.endswith(suffix):
            return suffix
    return None


def _groups(files: Iterable[FoundFile]) -> dict[str, list[FoundFile]]:
    """Return the files of each table or database by its name; other files stand alone under their path."""
    groups: dict[str, list[FoundFile]] = {}
    for found in files:
        path = PurePosixPath(found.name)
        suffix = _suffix(found)
        if suffix == PARQUET_SUFFIX and len(path.parts) > 1:
            folder = path.parts[0]
            if "=" in folder:  # the source's folder is itself a partitioned table
                folder = found.path.parents[len(path.parts) - 1].name
            groups.setdefault(folder + "/", []).append(found)
        else:
            groups.setdefault(found.name, []).append(found)
    return groups


def _describe(
    name: str, parts: list[FoundFile], suffix: str, origin: Origin
) -> Iterator[tuple[str, tuple[ContextItem, ...]]]:
    import duckdb

    try:
        with _connect(parts, database=suffix in DATABASE_SUFFIXES) as connection:
            if suffix in DATABASE_SUFFIXES:
                tables = _database_tables(connection, parts[0])
            else:
                tables = [_file_table(connection, _table_name(name, suffix), parts, suffix)]
            for table in tables:
                yield table.name, _items(connection, table, origin)
    except duckdb.Error as error:
        kind = type(error).__name__.removesuffix("Exception")
        what = "DuckDB database" if suffix in DATABASE_SUFFIXES else suffix.lstrip(".")
        raise _Unreadable(
            f"cannot be read as {what} ({kind}): check that it is whole and that no writer has it open"
        ) from None


def _table_name(name: str, suffix: str) -> str:
    if name.endswith("/"):
        return name.rstrip("/")
    return name[: -len(suffix)].replace("/", ".")


@contextmanager
def _connect(parts: list[FoundFile], *, database: bool) -> Generator[DuckDBPyConnection]:
    """Open an in-memory connection that can read `parts` and nothing else."""
    import duckdb

    paths = ", ".join(literal(str(part.path)) for part in parts)
    connection = duckdb.connect(":memory:")
    try:
        for setting in (
            "autoinstall_known_extensions = false",
            "autoload_known_extensions = false",
            "enable_progress_bar = false",
            "python_enable_replacements = false",
            f"memory_limit = '{MEMORY_LIMIT}'",
            "temp_directory = ''",
            "threads = 2",
            "TimeZone = 'UTC'",
            f"allowed_paths = [{paths}]",
        ):
            connection.execute(f"SET {setting}")
        if database:
            connection.execute(f"ATTACH {literal(str(parts[0].path))} AS source (READ_ONLY)")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield connection
    finally:
        connection.close()


def _file_table(connection: DuckDBPyConnection, name: str, parts: list[FoundFile], suffix: str) -> _Table:
    paths = tuple(str(part.path) for part in parts)
    listed = ", ".join(literal(path) for path in paths)
    if suffix == PARQUET_SUFFIX:
        relation = f"read_parquet([{listed}], union_by_name = true)"
    elif parts[0].size_bytes <= WHOLE_CSV_BYTES:
        relation = "ctx_csv"
        connection.execute(f"CREATE TEMP TABLE {relation} AS SELECT * FROM read_csv([{listed}], sample_size = -1)")
    else:
        relation = f"read_csv([{listed}], sample_size = {CSV_SAMPLE_ROWS})"
    rows = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    columns = tuple(Column(str(row[0]), str(row[1])) for row in rows)
    return _Table(
        name=name,
        found=parts[0],
        columns=columns,
        relation=relation,
        parquet=paths if suffix == PARQUET_SUFFIX else (),
        partition=max((part for found in parts if (part := _partition(found))), default=None),
    )


def _partition(found: FoundFile) -> str | None:
    folders = [part for part in PurePosixPath(found.name).parts[:-1] if "=" in part]
    return "/".join(folders) or None


def _database_tables(connection: DuckDBPyConnection, found: FoundFile) -> list[_Table]:
    where = "WHERE database_name = 'source' AND NOT internal"
    columns: dict[tuple[str, str], list[Column]] = {}
    for schema, table, name, kind, comment, nullable in connection.execute(
        "SELECT schema_name, table_name, column_name, data_type, comment, is_nullable"
        f" FROM duckdb_columns() {where} ORDER BY schema_name, table_name, column_index"
    ).fetchall():
        columns.setdefault((schema, table), []).append(Column(name, kind, comment, bool(nullable)))
    comments = {
        (schema, table): (comment, is_table)
        for schema, table, comment, is_table in connection.execute(
            f"SELECT schema_name, table_name, comment, true FROM duckdb_tables() {where} UNION ALL"
            f" SELECT schema_name, view_name, comment, false FROM duckdb_views() {where}"
        ).fetchall()
    }
    keys = connection.execute(
        "SELECT schema_name, table_name, constraint_type, constraint_column_names, referenced_table,"
        " referenced_column_names FROM duckdb_constraints() WHERE database_name = 'source' ORDER BY ALL"
    ).fetchall()
    return [
        _database_table(found, place, tuple(columns.get(place, ())), comments[place], keys)
        for place in sorted(comments)
    ]


def _database_table(
    found: FoundFile,
    place: tuple[str, str],
    columns: tuple[Column, ...],
    described: tuple[str | None, bool],
    keys: list[Any],
) -> _Table:
    schema, table = place
    comment, is_table = described
    own = [key[2:] for key in keys if (key[0], key[1]) == place]
    return _Table(
        name=table if schema == "main" else f"{schema}.{table}",
        found=found,
        columns=columns,
        relation=f"source.{quoted(schema)}.{quoted(table)}" if is_table else None,
        comment=comment,
        primary_key=next((tuple(names) for kind, names, *_ in own if kind == "PRIMARY KEY"), ()),
        foreign_keys=tuple(
            (tuple(names), str(target), tuple(targets)) for kind, names, target, targets in own if kind == "FOREIGN KEY"
        ),
    )


def _items(connection: DuckDBPyConnection, table: _Table, origin: Origin) -> tuple[ContextItem, ...]:
    rows: int | None = None
    stats: tuple[ColumnStats | None, ...] = (None,) * len(table.columns)
    if table.relation is not None:
        rows, stats = column_stats(connection, table.relation, table.columns, parquet=table.parquet)
    text = _table_text(table, rows, stats)
    version = short_hash(text)
    name = repair(table.name)
    table_id = origin.item_id(ItemKind.SCHEMA.value, name)

    def item(own_name: str, content: str, *, depends_on: tuple[str, ...]) -> ContextItem:
        draft = Draft(
            found=table.found,
            kind=ItemKind.SCHEMA,
            name=own_name,
            title=own_name,
            content=content,
            subject=f"schema:{own_name}",
            source_version=version,
            depends_on=depends_on,
        )
        return make_item(draft, origin)

    pairs = zip(table.columns, stats, strict=True)
    columns = [
        item(f"{name}.{repair(column.name)}", _column_text(table, column, part), depends_on=(table_id,))
        for column, part in pairs
    ]
    return (item(name, text, depends_on=()), *columns)


def _table_text(table: _Table, rows: int | None, stats: tuple[ColumnStats | None, ...]) -> str:
    lines = [f"table: {table.name}" if table.relation else f"view: {table.name}"]
    if table.comment:
        lines.append(f"comment: {table.comment}")
    if rows is not None:
        lines.append(f"rows: {rows:,}")
    if table.primary_key:
        lines.append(f"primary key: {', '.join(table.primary_key)}")
    for names, target, targets in table.foreign_keys:
        lines.append(f"foreign key: {', '.join(names)} -> {target}({', '.join(targets)})")
    if table.partition:
        lines.append(f"newest partition: {table.partition}")
    for column, part in zip(table.columns, stats, strict=True):
        if column.is_date and part and part.high:
            lines.append(f"newest {column.name}: {part.high}")
    lines.append("columns:")
    for column in table.columns:
        note = f" -- {value_text(column.comment)}" if column.comment else ""
        lines.append(f"- {column.name} {column.type}{'' if column.nullable else ' NOT NULL'}{note}")
    return normalise("\n".join(lines))


def _column_text(table: _Table, column: Column, stats: ColumnStats | None) -> str:
    lines = [f"column: {table.name}.{column.name}", f"type: {column.type}{'' if column.nullable else ' NOT NULL'}"]
    if column.comment:
        lines.append(f"comment: {column.comment}")
    if column.name in table.primary_key:
        lines.append("key: primary key")
    for names, target, targets in table.foreign_keys:
        if column.name in names:
            lines.append(f"references: {target}({', '.join(targets)})")
    if stats is not None:
        lines += _stats_lines(stats)
    return normalise("\n".join(lines))


def _stats_lines(stats: ColumnStats) -> Iterator[str]:
    if stats.approximate:
        yield "statistics: approximate, from a sample"
    yield f"nulls: {share_text(stats.nulls, stats.rows)}"
    if stats.distinct is not None:
        yield f"distinct values: {count_text(int(stats.distinct), exact=not stats.approximate)}"
    if stats.withheld:
        yield "values withheld: they look like personal data or a secret"
    elif stats.low is not None and stats.high is not None:
        yield f"range: {value_text(stats.low)} to {value_text(stats.high)}"
    if stats.top:
        yield f"top values: {', '.join(f'{value_text(value)} ({share})' for value, share in stats.top)}"
