"""What a table is to a reader: the text of its item and of its columns' items, whatever database it
is in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from ctx_pipeline.contracts import ContextItem, ItemKind
from ctx_pipeline.sources.database.column_stats import (
    Column,
    ColumnStats,
    count_text,
    share_text,
    value_text,
)
from ctx_pipeline.sources.files import FoundFile
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.record_item import Draft, make_item
from ctx_pipeline.text import normalise, repair, short_hash

MOSTLY_DISTINCT = 0.9
"""Share of distinct values in a sample above which their number is not shown."""


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Columns of a table that name a row of another, as items name it."""

    columns: tuple[str, ...]
    target: str
    target_columns: tuple[str, ...]

    @property
    def referenced(self) -> str:
        """Return the other side as it is shown."""
        return f"{self.target}({', '.join(self.target_columns)})"


@dataclass(frozen=True, slots=True)
class Table:
    """A table to describe. `relation` is its SQL, None for a view, which is never run."""

    name: str
    found: FoundFile
    columns: tuple[Column, ...]
    relation: str | None
    comment: str | None = None
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    parquet: tuple[str, ...] = ()
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found in a table's rows: their number as it is shown, and statistics by column."""

    rows: str
    stats: tuple[ColumnStats | None, ...]
    dates: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """Whether a column holds dates, where its type's name does not tell."""
    sampled: bool = False
    """Whether lowest and highest values are those of a sample."""


def table_items(
    table: Table, measured: Measured | None, origin: Origin, *, depends_on: tuple[str, ...] = ()
) -> tuple[ContextItem, ...]:
    """Return the item `schema:<source>/<table>` and one for each column, which depends on it.

    `depends_on` are ids of the items that the table's own depends on.
    """
    stats = measured.stats if measured else (None,) * len(table.columns)
    text = _table_text(table, measured, stats)
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
        item(
            f"{name}.{repair(column.name)}",
            _column_text(table, column, part),
            depends_on=(table_id,),
        )
        for column, part in pairs
    ]
    return (item(name, text, depends_on=depends_on), *columns)


def linked_ids(table: Table, known: Collection[str], origin: Origin) -> tuple[str, ...]:
    """Return the ids of the known tables that a table's foreign keys name, itself aside."""
    targets = dict.fromkeys(key.target for key in table.foreign_keys if key.target in known)
    return tuple(
        origin.item_id(ItemKind.SCHEMA.value, repair(target))
        for target in targets
        if target != table.name
    )


def _table_text(
    table: Table, measured: Measured | None, stats: tuple[ColumnStats | None, ...]
) -> str:
    lines = [f"table: {table.name}" if table.relation else f"view: {table.name}"]
    if table.comment:
        lines.append(f"comment: {table.comment}")
    if measured is not None:
        lines.append(f"rows: {measured.rows}")
    if table.primary_key:
        lines.append(f"primary key: {', '.join(table.primary_key)}")
    lines += (
        f"foreign key: {', '.join(key.columns)} -> {key.referenced}" for key in table.foreign_keys
    )
    if table.partition:
        lines.append(f"newest partition: {table.partition}")
    for column, part in zip(table.columns, stats, strict=True):
        is_date = measured.dates.get(column.name, column.is_date) if measured else False
        if is_date and part and part.high:
            sampled = "at least " if measured and measured.sampled else ""
            lines.append(f"newest {column.name}: {sampled}{part.high}")
    lines.append("columns:")
    for column in table.columns:
        note = f" -- {value_text(column.comment)}" if column.comment else ""
        lines.append(f"- {column.name} {column.type}{'' if column.nullable else ' NOT NULL'}{note}")
    return normalise("\n".join(lines))


def _column_text(table: Table, column: Column, stats: ColumnStats | None) -> str:
    lines = [
        f"column: {table.name}.{column.name}",
        f"type: {column.type}{'' if column.nullable else ' NOT NULL'}",
    ]
    if column.comment:
        lines.append(f"comment: {column.comment}")
    if column.name in table.primary_key:
        lines.append("key: primary key")
    lines += (
        f"references: {key.referenced}" for key in table.foreign_keys if column.name in key.columns
    )
    if stats is not None:
        lines += _stats_lines(stats)
    return normalise("\n".join(lines))


def _stats_lines(stats: ColumnStats) -> Iterator[str]:
    if stats.approximate:
        yield "statistics: approximate, from a sample"
    yield f"nulls: {share_text(stats.nulls, stats.rows)}"
    present = stats.rows - stats.nulls
    if (
        stats.approximate
        and stats.distinct is not None
        and stats.distinct > present * MOSTLY_DISTINCT
    ):
        # The number says how large the sample is, not how many values the column has.
        yield "distinct values: nearly every row has its own"
    elif stats.distinct is not None:
        yield f"distinct values: {count_text(int(stats.distinct), exact=not stats.approximate)}"
    if stats.withheld:
        yield "values withheld: they look like personal data or a secret"
    elif stats.low is not None and stats.high is not None:
        yield f"range: {value_text(stats.low)} to {value_text(stats.high)}"
    if stats.top:
        yield (
            "top values: "
            f"{', '.join(f'{value_text(value)} ({share})' for value, share in stats.top)}"
        )
