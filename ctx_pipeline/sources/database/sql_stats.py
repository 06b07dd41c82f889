"""Statistics of the columns of a live database at bounded cost: few statements, a sample of large
tables.
"""

# ruff: noqa: S608 - numbers are our own, names pass SQLAlchemy

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, Any, cast

from ctx_pipeline.sources.database.column_stats import (
    EXACT_DISTINCT_ROWS,
    EXACT_ROWS,
    FEW_VALUES,
    SAMPLE_ROWS,
    SAMPLE_SEED,
    TOP_DISTINCT,
    TOP_VALUES,
    Column,
    ColumnStats,
    count_text,
    share_text,
    withheld,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection, FromClause, Select, TableClause
    from sqlalchemy.sql.elements import ColumnElement

    Picks = list[ColumnElement[Any]]

COLUMNS_AT_ONCE = 50
GOLDEN_RATIO = (5**0.5 - 1) / 2
MAX_SPAN = 2**44
"""Row numbers further apart are no counter, and `SAMPLE_ROWS` times their distance must stay below
2**63."""
MIN_HITS = 0.02
"""Share of the picked row numbers that must exist; in a table full of holes the first rows say
more."""
MAX_SHOWN_CHARS = 200
"""Of a value that leaves the database."""


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """A column and what may be asked of its values."""

    column: Column
    is_text: bool = False
    countable: bool = False
    """Equal values can be counted."""
    ordered: bool = False
    """There is a lowest and a highest value."""
    is_date: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """How many rows a table has."""

    number: int
    exact: bool
    at_least: bool = False
    """There are more than `number`, and nothing says how many."""

    @property
    def text(self) -> str:
        """Return the number as it is shown; an estimate says so."""
        if self.at_least:
            return f"more than {self.number:,}"
        return (
            f"{self.number:,}"
            if self.exact
            else f"{count_text(self.number, exact=False)} (estimate)"
        )


def typed_column(column: Column, type_: Any, *, orders_all: bool) -> TypedColumn:
    """Classify a column by its SQLAlchemy type. `orders_all`: booleans and UUIDs have a minimum
    too.
    """
    from sqlalchemy import types

    base = getattr(type_, "data_type", None) or type_  # a domain has the type it is made of
    is_text = isinstance(base, types.String)
    plain = (types.Integer, types.Numeric, types.Date, types.DateTime, types.Time, types.Interval)
    ordered = is_text or isinstance(base, plain)
    extra = isinstance(base, types.Boolean | types.Uuid)
    return TypedColumn(
        column=column,
        is_text=is_text,
        countable=ordered or extra,
        ordered=ordered or (extra and orders_all),
        is_date=isinstance(base, types.Date | types.DateTime),
    )


def count_rows(connection: Connection, table: TableClause) -> Rows:
    """Count up to `EXACT_ROWS` rows; a table with more has an estimate.

    Raises:
        SQLAlchemyError: the table cannot be read, or not in time.
    """
    from sqlalchemy import func, literal_column, select

    estimate = _estimate(connection, table)
    if estimate > EXACT_ROWS:
        return Rows(estimate, exact=False)
    one: ColumnElement[int] = literal_column("1")
    some = select(one.label("one")).select_from(table).limit(EXACT_ROWS + 1).subquery()
    counted = int(connection.execute(select(func.count()).select_from(some)).scalar_one())
    if counted <= EXACT_ROWS:
        return Rows(counted, exact=True)
    span = _span(connection, table)
    return Rows(span, exact=False) if span else Rows(EXACT_ROWS, exact=False, at_least=True)


def measure(
    connection: Connection, table: TableClause, columns: Sequence[TypedColumn], rows: Rows
) -> tuple[tuple[ColumnStats | None, ...], tuple[str, ...]]:
    """Return the statistics of each column, and the names of columns that could not be measured
    (None).

    Above `EXACT_DISTINCT_ROWS` rows they come from a fixed sample and say so.

    Raises:
        SQLAlchemyError: the table cannot be read.
    """
    sampled = not rows.exact or rows.number > EXACT_DISTINCT_ROWS
    relation = _sample(connection, table, columns, rows) if sampled else table
    found: list[ColumnStats | None] = []
    for first in range(0, len(columns), COLUMNS_AT_ONCE):
        found += _measured(connection, relation, columns[first : first + COLUMNS_AT_ONCE])
    stats = tuple(part if part is None else replace(part, approximate=sampled) for part in found)
    failed = tuple(
        typed.column.name for typed, part in zip(columns, stats, strict=True) if part is None
    )
    return stats, failed


def _measured(
    connection: Connection, relation: FromClause, columns: Sequence[TypedColumn]
) -> list[ColumnStats | None]:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with connection.begin_nested():
            return [*_aggregates(connection, relation, columns)]
    except SQLAlchemyError:
        if len(columns) == 1:
            return [None]
    # One column of an unusual type must not cost the others their statistics.
    middle = len(columns) // 2
    return [
        *_measured(connection, relation, columns[:middle]),
        *_measured(connection, relation, columns[middle:]),
    ]


def _aggregates(
    connection: Connection, relation: FromClause, columns: Sequence[TypedColumn]
) -> list[ColumnStats]:
    from sqlalchemy import func, select

    picks: Picks = [func.count()]
    for typed in columns:
        picks += _picks(_column(relation, typed), typed)
    values = connection.execute(select(*picks).select_from(relation)).one()
    rows = int(values[0])
    found: list[ColumnStats] = []
    for number, typed in enumerate(columns):
        present, distinct, low, high = values[1 + 4 * number : 5 + 4 * number]
        stats = ColumnStats(
            nulls=rows - int(present),
            rows=rows,
            distinct=None if distinct is None else int(distinct),
            low=None if low is None else str(low),
            high=None if high is None else str(high),
        )
        count = stats.distinct
        repeats = count and (count <= FEW_VALUES or (count <= TOP_DISTINCT and count <= rows / 2))
        if typed.countable and not typed.column.is_personal and repeats:
            stats = replace(stats, top=_top(connection, relation, typed, rows))
        found.append(withheld(typed.column, stats, is_text=typed.is_text))
    return found


def _picks(value: ColumnElement[Any], typed: TypedColumn) -> Picks:
    from sqlalchemy import distinct, func, null

    count = func.count(distinct(value)) if typed.countable else null()
    low, high = (
        (_shown(func.min(value)), _shown(func.max(value))) if typed.ordered else (null(), null())
    )
    return [func.count(value), count, low, high]


def _shown(value: ColumnElement[Any]) -> ColumnElement[Any]:
    from sqlalchemy import Text, cast, func

    return func.substr(cast(value, Text), 1, MAX_SHOWN_CHARS)


def _column(relation: FromClause, typed: TypedColumn) -> ColumnElement[Any]:
    return relation.c[typed.column.name]


def _top(
    connection: Connection, relation: FromClause, typed: TypedColumn, rows: int
) -> tuple[tuple[str, str], ...]:
    from sqlalchemy import func, select

    value = _column(relation, typed)
    uses = func.count().label("uses")
    shown = _shown(value).label("shown")
    query = (
        select(shown, uses)
        .where(value.is_not(None))
        .group_by(value)
        .order_by(uses.desc(), shown)
        .limit(TOP_VALUES)
    )
    return tuple(
        (str(text), share_text(int(count), rows)) for text, count in connection.execute(query)
    )


def _estimate(connection: Connection, table: TableClause) -> int:
    """Return Postgres' own estimate of a table's rows, partitions added up; 0
    where there is none.
    """
    from sqlalchemy import text

    if connection.dialect.name != "postgresql":
        return 0
    query = text(
        "SELECT coalesce(sum(greatest(part.reltuples, 0)), 0)::bigint "
        "FROM pg_catalog.pg_class AS part"
        " WHERE part.oid IN (SELECT relid FROM "
        "pg_catalog.pg_partition_tree(to_regclass(:name)) WHERE isleaf"
        " UNION SELECT to_regclass(:name))"
    )
    quote = connection.dialect.identifier_preparer.quote_identifier
    name = ".".join(quote(str(part)) for part in (table.schema, table.name) if part)
    return int(connection.execute(query, {"name": name}).scalar_one())


def _span(connection: Connection, table: TableClause) -> int:
    """Return how many rows SQLite's row numbers leave room for; 0 where the table has none."""
    ends = _row_numbers(connection, table)
    return ends[1] - ends[0] + 1 if ends else 0


def _row_numbers(connection: Connection, table: TableClause) -> tuple[int, int] | None:
    from sqlalchemy import func, literal_column, select
    from sqlalchemy.exc import SQLAlchemyError

    if connection.dialect.name != "sqlite":
        return None
    number: ColumnElement[int] = literal_column("_rowid_")
    low = select(func.min(number)).select_from(table).scalar_subquery()
    high = select(func.max(number)).select_from(table).scalar_subquery()
    try:
        ends = cast("tuple[Any, Any]", tuple(connection.execute(select(low, high)).one()))
    except SQLAlchemyError:  # WITHOUT ROWID
        return None
    return (
        (int(ends[0]), int(ends[1]))
        if isinstance(ends[0], int) and isinstance(ends[1], int)
        else None
    )


def _sample(
    connection: Connection, table: TableClause, columns: Sequence[TypedColumn], rows: Rows
) -> FromClause:
    """Return a fixed sample of about `SAMPLE_ROWS` rows; the first rows where the database offers
    no better.
    """
    from sqlalchemy import func, select, tablesample

    if connection.dialect.name == "postgresql":
        percent = min(100.0, 100.0 * SAMPLE_ROWS / max(rows.number, 1))
        picked: FromClause = tablesample(table, func.system(percent), seed=_seed())
        return (
            select(*(picked.c[typed.column.name] for typed in columns))
            .limit(2 * SAMPLE_ROWS)
            .subquery()
        )
    query: Select[Any] = select(*(_column(table, typed) for typed in columns)).select_from(table)
    ends = _row_numbers(connection, table)
    if ends is not None and ends[1] - ends[0] < MAX_SPAN:
        spread = query.where(_spread(ends)).subquery()
        if (
            int(connection.execute(select(func.count()).select_from(spread)).scalar_one())
            >= SAMPLE_ROWS * MIN_HITS
        ):
            return spread
    return query.limit(SAMPLE_ROWS).subquery()


def _seed() -> ColumnElement[int]:
    from sqlalchemy import literal_column

    seed: ColumnElement[int] = literal_column(str(SAMPLE_SEED))
    return seed


def _spread(ends: tuple[int, int]) -> Any:
    """Return the condition that picks row numbers by their index, without a scan and without a
    period.

    Steps of the golden ratio cover a range evenly; a plain every-nth step would meet repeating data
    at one phase.
    """
    from sqlalchemy import text

    low, span = ends[0], ends[1] - ends[0] + 1
    step = max(1, round(span * GOLDEN_RATIO))
    while gcd(step, span) != 1:
        step += 1
    return text(
        "_rowid_ IN (WITH RECURSIVE pick(n) AS (SELECT 0 UNION ALL"
        f" SELECT n + 1 FROM pick WHERE n + 1 < {min(SAMPLE_ROWS, span)}) "
        f"SELECT {low} + n * {step} % {span} FROM pick)"
    )
