"""Schema metadata: tables and columns of a DuckDB file or of Parquet and CSV files, with
statistics.

Data stays where it is: files are read through an in-memory connection that may open nothing but
them, is closed at the end, and never writes. The size limit of a source does not apply, because no
file is loaded as a whole.
"""

# ruff: noqa: S608 - identifiers pass `quoted`, paths pass `literal`
from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ctx_pipeline.contracts import ContextItem, FileCode, FileError
from ctx_pipeline.sources.database.column_stats import Column, column_stats, literal, quoted
from ctx_pipeline.sources.database.csv_files import Unreadable, open_csv, why_unreadable
from ctx_pipeline.sources.database.sql_schema import (
    ForeignKey,
    Measured,
    Table,
    linked_ids,
    table_items,
)
from ctx_pipeline.sources.files import FoundFile
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.reading import ReadingBuilder, SourceReading

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

DATABASE_SUFFIXES = (".duckdb", ".db", ".ddb")
CSV_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
PARQUET_SUFFIX = ".parquet"
MEMORY_LIMIT = "1GB"
WHOLE_CSV_BYTES = 16 * 1024 * 1024
"""Up to this size a CSV file is parsed once, as a whole; above, its types are found in its first
rows."""
CSV_SAMPLE_ROWS = 20_480


def read_schema_metadata(files: tuple[FoundFile, ...], origin: Origin) -> SourceReading:
    """Turn each table into `schema:<source>/<table>` and each column into
    `schema:<source>/<table>.<column>`.

    A database gives all its tables (of other schemas than `main` as `<schema>.<table>`). Of other
    files each is a table, except that all Parquet files below a sub-folder are the parts of one
    table named like the folder.
    """
    batch = ReadingBuilder()
    taken: dict[str, FoundFile] = {}
    for found in files:
        if _suffix(found) is None:
            batch.skip(found, "not a DuckDB, Parquet or CSV file")
        elif found.size_bytes == 0:
            batch.fail(found, _problem(found, EMPTY_FILE))
    full = [found for found in files if _suffix(found) is not None and found.size_bytes]
    for name, parts in _groups(full).items():
        main = parts[0]
        suffix = _suffix(main) or ""
        try:
            tables = list(_describe(name, parts, suffix, origin))
        except Unreadable as problem:
            for part in parts:
                batch.fail(part, _problem(part, problem))
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
                batch.fail(
                    main, FileError(path=main.shown, code=FileCode.DUPLICATE_ID, message=message)
                )
    return batch.build()


EMPTY_FILE = Unreadable("has no content, so there is no table", FileCode.EMPTY)


def _problem(found: FoundFile, problem: Unreadable) -> FileError:
    return FileError(path=found.shown, code=problem.code, message=problem.args[0])


def describe_database(
    found: FoundFile, origin: Origin
) -> list[tuple[str, tuple[ContextItem, ...]]]:
    """Return the items of each table of a DuckDB file; a table depends on those that its foreign
    keys name.

    Raises:
        Unreadable: DuckDB cannot read the file.
    """
    tables = _describe(found.name, [found], DATABASE_SUFFIXES[0], origin, linked=True)
    return list(tables)


def _suffix(found: FoundFile) -> str | None:
    name = found.name.lower()
    for suffix in (*CSV_SUFFIXES, PARQUET_SUFFIX, *DATABASE_SUFFIXES):
        if name.endswith(suffix):
            return suffix
    return None


def _groups(files: Iterable[FoundFile]) -> dict[str, list[FoundFile]]:
    """Return the files of each table or database by its name; other files stand alone under their
    path.
    """
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
    name: str, parts: list[FoundFile], suffix: str, origin: Origin, *, linked: bool = False
) -> Iterator[tuple[str, tuple[ContextItem, ...]]]:
    import duckdb

    if suffix in CSV_SUFFIXES:
        yield _csv_table(_table_name(name, suffix), parts[0], origin)
        return
    try:
        paths = [part.path for part in parts]
        with _connect(paths, database=suffix in DATABASE_SUFFIXES) as connection:
            if suffix in DATABASE_SUFFIXES:
                tables = _database_tables(connection, parts[0])
            else:
                listed = ", ".join(literal(str(path)) for path in paths)
                relation = f"read_parquet([{listed}], union_by_name = true)"
                table_name = _table_name(name, suffix)
                tables = [_file_table(connection, table_name, parts, relation, parquet=True)]
            for table in tables:
                depends_on = (
                    linked_ids(table, {table.name for table in tables}, origin) if linked else ()
                )
                yield table.name, _items(connection, table, origin, depends_on)
    except duckdb.Error as error:
        kind = type(error).__name__.removesuffix("Exception")
        what = "DuckDB database" if suffix in DATABASE_SUFFIXES else suffix.lstrip(".")
        raise Unreadable(
            f"cannot be read as {what} ({kind}): check that it is whole "
            "and that no writer has it open"
        ) from None


def _csv_table(name: str, found: FoundFile, origin: Origin) -> tuple[str, tuple[ContextItem, ...]]:
    """Read a CSV file, with the types of all its rows; what has none in common is text."""
    import duckdb

    said = ""
    with open_csv(found.path) as file:
        for types in _CSV_TYPES if found.size_bytes > WHOLE_CSV_BYTES else _CSV_TYPES[1:]:
            relation = f"read_csv([{literal(str(file.path))}], {types}{file.options})"
            try:
                with _connect([file.path], database=False) as connection:
                    if found.size_bytes <= WHOLE_CSV_BYTES:
                        connection.execute(f"CREATE TEMP TABLE ctx_csv AS SELECT * FROM {relation}")
                        relation = "ctx_csv"
                    table = _file_table(connection, name, [found], relation)
                    return name, _items(connection, table, origin, ())
            except duckdb.Error as error:
                said = str(error)
        raise Unreadable(why_unreadable(said))


_CSV_TYPES = (
    f"sample_size = {CSV_SAMPLE_ROWS}",
    "sample_size = -1",
    "sample_size = -1, all_varchar = true, null_padding = true, parallel = false",
)
"""Ways to find the types of columns, the cheapest first: each is tried where the one before fails.
"""


def _table_name(name: str, suffix: str) -> str:
    if name.endswith("/"):
        return name.rstrip("/")
    return name[: -len(suffix)].replace("/", ".")


@contextmanager
def _connect(files: list[Path], *, database: bool) -> Generator[DuckDBPyConnection]:
    """Open an in-memory connection that can read `files` and nothing else."""
    import duckdb

    paths = ", ".join(literal(str(file)) for file in files)
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
            connection.execute(f"ATTACH {literal(str(files[0]))} AS source (READ_ONLY)")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield connection
    finally:
        connection.close()


def _file_table(
    connection: DuckDBPyConnection,
    name: str,
    parts: list[FoundFile],
    relation: str,
    *,
    parquet: bool = False,
) -> Table:
    rows = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    columns = tuple(Column(str(row[0]), str(row[1])) for row in rows)
    return Table(
        name=name,
        found=parts[0],
        columns=columns,
        relation=relation,
        parquet=tuple(str(part.path) for part in parts) if parquet else (),
        partition=max((part for found in parts if (part := _partition(found))), default=None),
    )


def _partition(found: FoundFile) -> str | None:
    folders = [part for part in PurePosixPath(found.name).parts[:-1] if "=" in part]
    return "/".join(folders) or None


def _database_tables(connection: DuckDBPyConnection, found: FoundFile) -> list[Table]:
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
        "SELECT schema_name, table_name, constraint_type, "
        "constraint_column_names, referenced_table,"
        " referenced_column_names FROM duckdb_constraints() WHERE "
        "database_name = 'source' ORDER BY ALL"
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
) -> Table:
    schema, table = place
    comment, is_table = described
    own = [key[2:] for key in keys if (key[0], key[1]) == place]
    return Table(
        name=table if schema == "main" else f"{schema}.{table}",
        found=found,
        columns=columns,
        relation=f"source.{quoted(schema)}.{quoted(table)}" if is_table else None,
        comment=comment,
        primary_key=next((tuple(names) for kind, names, *_ in own if kind == "PRIMARY KEY"), ()),
        foreign_keys=tuple(
            ForeignKey(tuple(names), str(target), tuple(targets))
            for kind, names, target, targets in own
            if kind == "FOREIGN KEY"
        ),
    )


def _items(
    connection: DuckDBPyConnection, table: Table, origin: Origin, depends_on: tuple[str, ...]
) -> tuple[ContextItem, ...]:
    if table.relation is None:
        return table_items(table, None, origin, depends_on=depends_on)
    rows, stats = column_stats(connection, table.relation, table.columns, parquet=table.parquet)
    return table_items(table, Measured(f"{rows:,}", stats), origin, depends_on=depends_on)
