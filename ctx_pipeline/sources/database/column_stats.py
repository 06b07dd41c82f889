"""Statistics of a table's columns at bounded cost, as text that stays the same while the table
does.
"""

# ruff: noqa: S608 - identifiers pass `quoted`, texts pass `literal`, types come from the engine itself
from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

EXACT_ROWS = 1_000_000
"""Up to this many rows every value is looked at; above, a sample and the Parquet footers."""

EXACT_DISTINCT_ROWS = 100_000
"""Up to this many rows distinct values are counted exactly."""

SAMPLE_ROWS = 50_000
SAMPLE_SEED = 42
TOP_VALUES = 5
TOP_DISTINCT = 1_000
"""A column with more distinct values has no top values worth showing."""

MAX_VALUE_CHARS = 60

FEW_VALUES = 20
"""Up to so many distinct values are worth showing even if each occurs once."""

_PERSONAL_NAME = re.compile(
    r"(?:^|_)(?:ssn|sin|nin|tax_?id|passport|passwd|password|pass|pwd|secrets?|tokens?|"
    r"credentials?|api_?keys?|private_?key"
    r"|e_?mails?|phones?|mobile|tel|telephone|fax|iban|swift|card|card_?(?:number|no|num)|cvc|"
    r"cvv|pin|account_?(?:no|number)"
    r"|routing|dob|birth|birth_?(?:date|day)|date_of_birth|street|address|license_?plate|"
    r"username|user_?name|ip|ip_?addr(?:ess)?"
    r"|(?:first|last|full|middle|given|family|sur|customer|contact|maiden)_?name|"
    r"surname|"
    r"salary|"
    r"national_id|"
    r"id_?card)(?:$|"
    r"_)",
)
_PERSONAL_CHINESE = re.compile(
    "身份证|护照|手机|电话|邮箱|密码|口令|姓名|住址|地址|银行卡|卡号|生日|出生|工资|社保"
)
_PERSONAL_VALUE = re.compile(
    r"\S@\S+\.\S|^\d{3}-\d{2}-\d{4}$|^\+?[\d ()-]{11,}$|^(?:sk|ghp|xox[bp])[-_]"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SCALAR = re.compile(
    r"^(?:BOOLEAN|U?(?:TINY|SMALL|BIG|HUGE)?INT(?:EGER)?|FLOAT|DOUBLE|DECIMAL.*|VARCHAR|DATE|"
    r"TIME.*|ENUM.*|UUID|INTERVAL)$"
)
_DATE = re.compile(r"^(?:DATE|TIMESTAMP.*)$")


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the database declares it."""

    name: str
    type: str
    comment: str | None = None
    nullable: bool = True

    @property
    def is_personal(self) -> bool:
        """Say whether the name looks like personal data or a secret."""
        words = re.sub(r"[^0-9a-z]+", "_", _CAMEL.sub("_", self.name).lower())
        return bool(_PERSONAL_NAME.search(words) or _PERSONAL_CHINESE.search(self.name))

    @property
    def is_scalar(self) -> bool:
        """Say whether values can be compared and shown."""
        return bool(_SCALAR.match(self.type))

    @property
    def is_date(self) -> bool:
        """Say whether it holds dates or timestamps."""
        return bool(_DATE.match(self.type))


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """What is known of a column's values. `approximate`: taken from a sample."""

    nulls: int
    rows: int
    """Rows that were looked at."""
    distinct: int | None = None
    low: str | None = None
    high: str | None = None
    top: tuple[tuple[str, str], ...] = ()
    """Most frequent values, each with its share."""
    approximate: bool = False
    withheld: bool = False


def quoted(name: str) -> str:
    """Quote an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def column_stats(
    connection: DuckDBPyConnection,
    relation: str,
    columns: Sequence[Column],
    *,
    parquet: Sequence[str] = (),
) -> tuple[int, tuple[ColumnStats, ...]]:
    """Return the number of rows and the statistics of each column of `relation` (an SQL table
    expression).

    Above `EXACT_ROWS` rows the statistics come from a fixed sample and say so, except lowest and
    highest values and nulls of Parquet files, which their footers state exactly.
    """
    rows = int(_one(connection, f"SELECT count(*) FROM {relation}")[0])
    if rows <= EXACT_ROWS:
        return rows, _measured(connection, relation, columns, rows)
    picks = ", ".join(quoted(column.name) for column in columns)
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE ctx_sample AS SELECT {picks} FROM {relation}"
        f" USING SAMPLE reservoir({SAMPLE_ROWS} ROWS) REPEATABLE ({SAMPLE_SEED})"
    )
    stats = tuple(
        replace(part, approximate=True)
        for part in _measured(connection, "ctx_sample", columns, SAMPLE_ROWS)
    )
    connection.execute("DROP TABLE ctx_sample")
    if not parquet:
        return rows, stats
    pairs = zip(columns, stats, strict=True)
    return rows, tuple(_with_footer(connection, column, part, parquet) for column, part in pairs)


def _one(connection: DuckDBPyConnection, sql: str) -> tuple[Any, ...]:
    row = connection.execute(sql).fetchone()
    return row if row is not None else ()


def _measured(
    connection: DuckDBPyConnection, relation: str, columns: Sequence[Column], rows: int
) -> tuple[ColumnStats, ...]:
    distinct = (
        "count(DISTINCT {0})" if rows <= EXACT_DISTINCT_ROWS else "approx_count_distinct({0})"
    )
    if not columns:
        return ()
    picks: list[str] = []
    for column in columns:
        name = quoted(column.name)
        picks.append(f"count({name})")
        if column.is_scalar:
            # `infinity` is no date that says how new a table is.
            real = f" FILTER (isfinite({name}))" if column.is_date else ""
            picks += [
                distinct.format(name),
                f"CAST(min({name}){real} AS VARCHAR)",
                f"CAST(max({name}){real} AS VARCHAR)",
            ]
        else:
            picks += ["NULL", "NULL", "NULL"]
    values = _one(connection, f"SELECT {', '.join(picks)} FROM {relation}")
    found: list[ColumnStats] = []
    for number, column in enumerate(columns):
        present, count, low, high = (values[number * 4 + part] for part in range(4))
        stats = ColumnStats(
            nulls=rows - int(present), rows=rows, distinct=count, low=low, high=high
        )
        repeats = count and (count <= FEW_VALUES or (count <= TOP_DISTINCT and count <= rows / 2))
        if column.is_scalar and not column.is_personal and repeats:
            stats = replace(stats, top=_top(connection, relation, column, rows))
        found.append(withheld(column, stats, is_text=column.type == "VARCHAR"))
    return tuple(found)


def _top(
    connection: DuckDBPyConnection, relation: str, column: Column, rows: int
) -> tuple[tuple[str, str], ...]:
    name = quoted(column.name)
    sql = (
        f"SELECT CAST({name} AS VARCHAR) AS value, count(*) AS uses FROM "
        f"{relation} WHERE {name} IS NOT NULL"
        f" GROUP BY {name} ORDER BY uses DESC, value LIMIT {TOP_VALUES}"
    )
    return tuple(
        (str(value), share_text(int(uses), rows))
        for value, uses in connection.execute(sql).fetchall()
    )


def withheld(column: Column, stats: ColumnStats, *, is_text: bool) -> ColumnStats:
    """Drop the values of a column whose name, or text values, look like
    personal data or a secret.
    """
    texts = [text for text in (stats.low, stats.high, *(value for value, _ in stats.top)) if text]
    looks_personal = is_text and any(_PERSONAL_VALUE.search(text) for text in texts)
    if column.is_personal or looks_personal:
        return replace(stats, low=None, high=None, top=(), withheld=True)
    return stats


def _with_footer(
    connection: DuckDBPyConnection, column: Column, stats: ColumnStats, paths: Sequence[str]
) -> ColumnStats:
    """Replace lowest, highest and nulls by what the footers of the Parquet files state, where all
    of them do.
    """
    if not column.is_scalar:
        return stats
    files = ", ".join(literal(path) for path in paths)
    sql = (
        "SELECT sum(num_values), sum(stats_null_count),"
        f" CAST(min(TRY_CAST(stats_min_value AS {column.type})) AS VARCHAR),"
        f" CAST(max(TRY_CAST(stats_max_value AS {column.type})) AS VARCHAR),"
        " bool_and(stats_null_count IS NOT NULL)"
        f" FROM parquet_metadata([{files}]) WHERE path_in_schema = {literal(column.name)}"
    )
    values, nulls, low, high, complete = _one(connection, sql)
    if not complete or not values:
        return stats
    if stats.withheld:
        return replace(stats, nulls=int(nulls), rows=int(values))
    exact = replace(
        stats, nulls=int(nulls), rows=int(values), low=low or stats.low, high=high or stats.high
    )
    return withheld(column, exact, is_text=column.type == "VARCHAR")


def count_text(count: int, *, exact: bool) -> str:
    """Return a count with thousands separators; one that is not exact is rounded to two digits and
    marked `~`.
    """
    if exact or count < 100:
        return f"{count:,}"
    digits = len(str(count)) - 2
    return f"~{round(count, -digits):,}"


def share_text(part: int, whole: int) -> str:
    """Return a share in per cent, to a tenth."""
    if not whole or not part:
        return "0 %"
    share = 100 * part / whole
    return "<0.1 %" if share < 0.05 else f"{share:.1f} %"


def value_text(value: str) -> str:
    """Return a value on one line, cut where it is long."""
    line = " ".join(value.split())
    return line if len(line) <= MAX_VALUE_CHARS else line[: MAX_VALUE_CHARS - 1] + "…"
