"""SQL databases: tables, columns, keys, comments and statistics of SQLite, Postgres and DuckDB,
read only.

Each table is accounted for like a file, under `<source>/<table>`. No row leaves the database, only
the lowest, highest and most frequent values of columns that do not look like personal data; views
and foreign tables are never run.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctx_pipeline.config.source_rules import DUCKDB, POSTGRES, SQLITE
from ctx_pipeline.contracts import FileCode, FileError
from ctx_pipeline.sources.database.column_stats import Column
from ctx_pipeline.sources.database.sql_connect import (
    Unreachable,
    connect_postgres,
    connect_sqlite,
    error_name,
    parse_url,
)
from ctx_pipeline.sources.database.sql_schema import (
    ForeignKey,
    Measured,
    Table,
    linked_ids,
    table_items,
)
from ctx_pipeline.sources.database.sql_stats import TypedColumn, count_rows, measure, typed_column
from ctx_pipeline.sources.files import FoundFile, shown_path
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.reading import ReadingBuilder, SourceReading
from ctx_pipeline.text import repair

if TYPE_CHECKING:
    from sqlalchemy import Connection, Inspector, TableClause

MAX_TABLES = 5_000
MAX_STATISTICS_SECONDS = 300.0
"""Of one reading; tables that come later are described without statistics."""
_SYSTEM_SCHEMAS = frozenset(("information_schema", "pg_catalog", "pg_toast"))


def read_sql(origin: Origin, home: Path) -> SourceReading:
    """Turn each table into `schema:<source>/<table>` and each column into
    `schema:<source>/<table>.<column>`.

    Tables outside the default schema are `<schema>.<table>`. A table depends on those that its
    foreign keys name.

    Raises:
        ConfigError: the source's url is missing or of an unsupported database.
    """
    kind, url = parse_url(origin.source.url, origin.name)
    try:
        if kind == POSTGRES:
            with connect_postgres(url) as connection:
                return _Reading(connection, origin).read()
        path = _database_file(url.database, home)
        if path is None:
            return _failed(
                origin,
                FileCode.MISSING,
                "no such database file: check the path in the source's url",
            )
        if kind == DUCKDB:
            return _read_duckdb(path, origin, home)
        assert kind == SQLITE
        with connect_sqlite(path) as connection:
            return _Reading(connection, origin).read()
    except Unreachable as problem:
        return _failed(origin, FileCode.UNREADABLE, problem.args[0])


def _failed(origin: Origin, code: FileCode, message: str) -> SourceReading:
    return SourceReading((), (FileError(path=origin.name, code=code, message=message),), ())


def _database_file(name: str | None, home: Path) -> Path | None:
    """Return the file that a url names, relative ones from the project's home; None where there is
    none.
    """
    if not name or "\0" in name:
        return None
    path = Path(normpath(home / name))
    return path if path.is_file() else None


def _read_duckdb(path: Path, origin: Origin, home: Path) -> SourceReading:
    from ctx_pipeline.sources.database.schema_metadata import Unreadable, describe_database

    found = FoundFile(
        path=path, name=path.name, shown=shown_path(path, home), size_bytes=path.stat().st_size
    )
    batch = ReadingBuilder()
    batch.open(found)
    try:
        for _, items in describe_database(found, origin):
            batch.add(found, *items)
    except Unreadable as problem:
        batch.fail(
            found, FileError(path=found.shown, code=FileCode.UNREADABLE, message=problem.args[0])
        )
    return batch.build()


@dataclass(frozen=True, slots=True)
class _Place:
    """A table or view of the database."""

    schema: str | None
    """None: the default schema."""
    table: str
    readable: bool
    """Whether rows may be looked at: of views and foreign tables they are not."""

    @property
    def name(self) -> str:
        return self.table if self.schema is None else f"{self.schema}.{self.table}"


@dataclass(slots=True)
class _Reading:
    connection: Connection
    origin: Origin
    batch: ReadingBuilder = field(default_factory=ReadingBuilder)
    unmeasured: int = 0
    ids: set[str] = field(default_factory=set[str])

    def read(self) -> SourceReading:
        from sqlalchemy import inspect
        from sqlalchemy.exc import SAWarning, SQLAlchemyError

        deadline = time.monotonic() + MAX_STATISTICS_SECONDS
        with warnings.catch_warnings():
            # Types that SQLAlchemy does not know are shown as such.
            warnings.simplefilter("ignore", SAWarning)
            inspector = inspect(self.connection)
            try:
                places = [*self._places(inspector)]
            except SQLAlchemyError as error:
                name = error_name(error)
                return _failed(
                    self.origin, FileCode.UNREADABLE, f"the tables cannot be listed ({name})"
                )
            names = {place.name for place in places}
            for place in places[:MAX_TABLES]:
                self._table(inspector, place, names, measured=time.monotonic() < deadline)
        return self._built(len(places))

    def _built(self, tables: int) -> SourceReading:
        batch = self.batch.build()
        errors = [*batch.errors]
        if tables > MAX_TABLES:
            message = (
                f"has {tables:,} tables, the first {MAX_TABLES:,} are described: give the "
                "user fewer"
            )
            errors.append(
                FileError(path=self.origin.name, code=FileCode.TOO_LARGE, message=message)
            )
        if self.unmeasured:
            message = (
                f"{self.unmeasured:,} tables are described without statistics:"
                f" the others took more than {MAX_STATISTICS_SECONDS:.0f} s"
            )
            errors.append(
                FileError(path=self.origin.name, code=FileCode.TOO_LARGE, message=message)
            )
        return SourceReading(
            batch.items, tuple(errors), tuple(sorted(batch.files, key=lambda file: file.path))
        )

    def _places(self, inspector: Inspector) -> Iterator[_Place]:
        from sqlalchemy.dialects.postgresql.base import PGInspector

        default = inspector.default_schema_name
        partitions = self._partitions()
        postgres = self.connection.dialect.name == POSTGRES
        schemas = inspector.get_schema_names() if postgres else [default or "main"]
        for schema in sorted(name for name in schemas if name not in _SYSTEM_SCHEMAS):
            own = None if schema == (default or "main") else schema
            asked = schema if postgres else None
            views = {*inspector.get_view_names(asked)}
            tables = {*inspector.get_table_names(asked)}
            if isinstance(inspector, PGInspector):
                views.update(inspector.get_foreign_table_names(asked))
                tables.update(inspector.get_materialized_view_names(asked))
            for table in sorted(tables | views):
                place = _Place(own, table, readable=table not in views)
                if (schema, table) in partitions:
                    self.batch.skip(
                        self._found(place), "partition: described with the table it belongs to"
                    )
                else:
                    yield place

    def _partitions(self) -> set[tuple[str, str]]:
        from sqlalchemy import text

        if self.connection.dialect.name != POSTGRES:
            return set()
        query = text(
            "SELECT space.nspname, part.relname FROM pg_catalog.pg_class AS part JOIN "
            "pg_catalog.pg_namespace AS space ON space.oid = part.relnamespace WHERE "
            "part.relispartition"
        )
        return {(str(schema), str(name)) for schema, name in self.connection.execute(query)}

    def _found(self, place: _Place) -> FoundFile:
        name = repair(place.name)
        return FoundFile(
            path=Path(name.replace("\0", "")),
            name=name,
            shown=f"{self.origin.name}/{name}",
            size_bytes=0,
        )

    def _table(
        self, inspector: Inspector, place: _Place, names: set[str], *, measured: bool
    ) -> None:
        from sqlalchemy.exc import SQLAlchemyError

        found = self._found(place)
        self.batch.open(found)
        try:
            with self.connection.begin_nested():
                table, columns = self._described(inspector, place, found)
        except SQLAlchemyError as error:
            message = (
                f"cannot be described ({error_name(error)}): check the user's rights and the table"
            )
            self.batch.fail(
                found, FileError(path=found.shown, code=FileCode.UNREADABLE, message=message)
            )
            return
        facts = None
        if place.readable and columns:
            if measured:
                facts = self._measured(place, table, columns)
            else:
                self.unmeasured += 1
        items = table_items(
            table, facts, self.origin, depends_on=linked_ids(table, names, self.origin)
        )
        taken = self.ids.intersection(item.item_id for item in items)
        if taken:
            message = (
                f"{len(taken)} of its names are those of another table's columns or of "
                "another schema's table"
            )
            self.batch.fail(
                found, FileError(path=found.shown, code=FileCode.DUPLICATE_ID, message=message)
            )
            return
        self.ids.update(item.item_id for item in items)
        self.batch.add(found, *items)

    def _described(
        self, inspector: Inspector, place: _Place, found: FoundFile
    ) -> tuple[Table, list[TypedColumn]]:
        key = (place.table, place.schema)
        typed = [self._column(entry) for entry in inspector.get_columns(*key)]
        primary: list[str] = []
        foreign: list[Any] = []
        if place.readable:
            primary = inspector.get_pk_constraint(*key).get("constrained_columns") or []
            foreign = inspector.get_foreign_keys(*key)
        keys = [_foreign_key(entry, inspector.default_schema_name) for entry in foreign]
        table = Table(
            name=place.name,
            found=found,
            columns=tuple(entry.column for entry in typed),
            relation=place.name if place.readable else None,
            comment=_comment(inspector, key),
            primary_key=tuple(primary),
            foreign_keys=tuple(sorted(keys, key=lambda part: part.columns)),
        )
        return table, typed

    def _column(self, entry: Any) -> TypedColumn:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            type_name = entry["type"].compile(dialect=self.connection.dialect)
        except SQLAlchemyError:
            type_name = "unknown type"
        column = Column(
            name=str(entry["name"]),
            type=type_name,
            comment=entry.get("comment"),
            nullable=bool(entry.get("nullable", True)),
        )
        return typed_column(
            column, entry["type"], orders_all=self.connection.dialect.name == SQLITE
        )

    def _measured(self, place: _Place, table: Table, columns: list[TypedColumn]) -> Measured | None:
        from sqlalchemy.exc import SQLAlchemyError

        clause = _clause(place, columns)
        try:
            with self.connection.begin_nested():
                rows = count_rows(self.connection, clause)
                stats, failed = measure(self.connection, clause, columns, rows)
        except SQLAlchemyError as error:
            message = (
                f"described without statistics ({error_name(error)}): check the user's "
                "rights, or it takes too long"
            )
            self.batch.fail(
                table.found,
                FileError(path=table.found.shown, code=FileCode.UNREADABLE, message=message),
            )
            return None
        if failed:
            message = f"{len(failed)} columns have no statistics: {', '.join(failed[:5])}"
            self.batch.fail(
                table.found,
                FileError(path=table.found.shown, code=FileCode.UNREADABLE, message=message),
            )
        dates = {typed.column.name: typed.is_date for typed in columns}
        return Measured(
            rows.text,
            stats,
            dates,
            sampled=any(part is not None and part.approximate for part in stats),
        )


def _clause(place: _Place, columns: list[TypedColumn]) -> TableClause:
    from sqlalchemy import ColumnClause, column, table
    from sqlalchemy.sql.elements import quoted_name

    names: list[ColumnClause[Any]] = [
        column(quoted_name(typed.column.name, quote=True)) for typed in columns
    ]
    schema = None if place.schema is None else quoted_name(place.schema, quote=True)
    return table(quoted_name(place.table, quote=True), *names, schema=schema)


def _comment(inspector: Inspector, key: tuple[str, str | None]) -> str | None:
    try:
        return inspector.get_table_comment(*key).get("text")
    except NotImplementedError:
        return None


def _foreign_key(entry: Any, default: str | None) -> ForeignKey:
    schema = entry.get("referred_schema")
    # Without a schema the target lies in the default one.
    target = _Place(
        None if schema == default else schema, str(entry["referred_table"]), readable=True
    )
    return ForeignKey(
        tuple(entry["constrained_columns"]), target.name, tuple(entry.get("referred_columns") or ())
    )
