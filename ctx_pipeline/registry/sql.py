"""The SQL of a definition: whether it parses, and whether the tables and columns it names exist."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from ctx_pipeline.config.layers import nearest
from ctx_pipeline.contracts import ContextItem
from ctx_pipeline.contracts.publish import DefinitionCode
from ctx_pipeline.registry.fields import definition_fields, listed_names, same_name, split_list
from ctx_pipeline.sources.semantic.dbt_manifest import METRIC_TYPES

if TYPE_CHECKING:
    from sqlglot import exp

DIALECT = "duckdb"
PSEUDO_COLUMNS = frozenset({"rowid"})
COMPOSED = METRIC_TYPES - {"simple"}
"""dbt's types whose expression names other metrics, not columns."""
MAX_JOIN_DETAILS = 6
"""Words that may follow the condition of a join: up to three keys with their values."""

_TEMPLATE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_DBT_DETAILS = re.compile(r" \[[^\[\]]*\]$")


class Problem(NamedTuple):
    """What is wrong with one part of a definition."""

    severity: Literal["error", "warning"]
    code: DefinitionCode
    key: str
    """Key of the definition that it stands under."""
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or a semantic model that a definition may take columns from."""

    names: frozenset[str]
    """What may stand before the dot of a column, in lower case."""
    columns: Mapping[str, str]
    """Lower case: as written. Empty where they are not known."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What one tenant's definitions may refer to."""

    tables: Mapping[str, Mapping[str, str]]
    """Table in lower case: its columns, lower case: as written."""
    models: Mapping[str, ContextItem]
    """Semantic models of the registry, by item id."""
    metrics: frozenset[str]
    """Names of the registry's metrics in lower case: an expression may be made of them."""


def check_sql(item: ContextItem, around: Surroundings) -> Iterator[Problem]:
    """Yield what is wrong with the SQL, tables and columns of one metric."""
    fields = definition_fields(item.content or "")
    relations: list[Relation] = []
    missing: list[Problem] = []
    for reference in item.depends_on:
        found = _relation(reference, around)
        if isinstance(found, Problem):
            missing.append(found)
        elif found is not None:
            relations.append(found)
    yield from missing
    parsed: list[tuple[str, exp.Expr]] = []
    for key, text in _expressions(fields):
        tree = parse_expression(text)
        if isinstance(tree, str):
            yield Problem(
                "error",
                DefinitionCode.BAD_EXPRESSION,
                key,
                f"{key} is no SQL expression: {tree}",
                _FIX_SQL,
            )
        else:
            parsed.append((key, tree))
    if not around.tables or missing:
        return
    if fields.get("type") not in COMPOSED or "table" in fields:
        yield from _columns(parsed, fields, relations, around)


_FIX_SQL = "write one expression that DuckDB accepts, without FROM and without a semicolon"


def _relation(reference: str, around: Surroundings) -> Relation | Problem | None:
    """Return what a `depends_on` entry stands for; None where it is no table or nothing is known of
    tables.
    """
    kind, _, rest = reference.partition(":")
    source, _, name = rest.partition("/")
    if kind != "schema":
        return None
    if source != "*":
        model = around.models.get(reference)
        return None if model is None else _model_relation(model, around)
    table = find_table(name, around.tables)
    if table is not None:
        return Relation(_names_of(name) | _names_of(table), around.tables[table])
    if not around.tables:
        return None
    near = nearest(name, list(around.tables))
    return Problem(
        "error",
        DefinitionCode.UNKNOWN_TABLE,
        "table",
        f"no schema source has a table {name!r}",
        f"did you mean {near!r}?"
        if near
        else "name a table of a schema source, or build that source first",
    )


def find_table(name: str, tables: Mapping[str, object]) -> str | None:
    """Return the known table that a name means: the very name, else the one whose last part it
    shares.
    """
    lowered = name.lower().strip('"`')
    if lowered in tables:
        return lowered
    last = lowered.rpartition(".")[2]
    same = [
        table
        for table in tables
        if table.rpartition(".")[2] == last and ("." not in lowered or "." not in table)
    ]
    return same[0] if len(same) == 1 else None


def _names_of(table: str) -> frozenset[str]:
    lowered = table.lower()
    return frozenset((lowered, lowered.rpartition(".")[2]))


def _model_relation(model: ContextItem, around: Surroundings) -> Relation:
    """Return a semantic model's own names and the columns of its table; nothing where the table is
    not known.
    """
    name = model.item_id.partition("/model.")[2].lower()
    fields = definition_fields(model.content or "")
    own = {
        part.lower(): part
        for key in ("entities", "dimensions", "measures", "fields")
        for part in listed_names(fields.get(key, ""))
    }
    for reference in model.depends_on:
        table = find_table(reference.partition("/")[2], around.tables)
        if table is None:
            return Relation(frozenset({name}), {})
        return Relation(_names_of(table) | {name}, {**around.tables[table], **own})
    return Relation(frozenset({name}), {})


def _expressions(fields: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the parts of a definition that are SQL, each under its key."""
    text = fields.get("expression", "")
    if fields.get("type") in METRIC_TYPES:
        text = _DBT_DETAILS.sub("", text)
    if text:
        yield "expression", text
    for key in ("filter", "filters", "where"):
        text = _TEMPLATE.sub("ctx_template", fields.get(key, ""))
        # A list is written with commas; where the parts are not conditions of their own it was one
        # text.
        parts = split_list(text)
        whole = [text] if any(isinstance(parse_expression(part), str) for part in parts) else parts
        yield from ((key, part) for part in whole if not text.startswith(("{", "[")))
    for entry in split_list(fields.get("joins", "")):
        _, on, condition = entry.partition(" on ")
        if on:
            yield "joins", _without_details(condition)
    if fields.get("time_column"):
        yield "time_column", fields["time_column"]


def _without_details(condition: str) -> str:
    """Return a join's condition without the keys that follow it, as `type left`."""
    words = condition.split(" ")
    for count in range(0, min(MAX_JOIN_DETAILS, len(words) - 1) + 1, 2):
        text = " ".join(words[: len(words) - count])
        if not isinstance(parse_expression(text), str):
            return text
    return condition


def parse_expression(text: str) -> exp.Expr | str:
    """Return one SQL expression, or what is wrong with it; never its text."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import ParseError, SqlglotError

    try:
        statements = sqlglot.parse(f"SELECT\n{text}\n", read=DIALECT)
    except SqlglotError as problem:
        errors = problem.errors if isinstance(problem, ParseError) else []
        # The line that was put before it is not its own.
        line = max(1, int(errors[0].get("line") or 2) - 1) if errors else 1
        return f"it cannot be parsed, line {line} of it"
    except RecursionError:
        return "it is nested too deeply"
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        return "it is more than one statement"
    select = statements[0]
    more = [key for key, part in select.args.items() if part and key not in ("expressions", "kind")]
    if more or len(select.expressions) != 1:
        return "it is more than one expression"
    return select.expressions[0].pop()


def _columns(
    parsed: Iterable[tuple[str, exp.Expr]],
    fields: Mapping[str, str],
    relations: list[Relation],
    around: Surroundings,
) -> Iterator[Problem]:
    """Yield the columns that no relation of the definition has."""
    from sqlglot import exp

    if any(tree.find(exp.Query) for _, tree in parsed):
        message = "the columns of its subqueries are not checked"
        yield Problem("warning", DefinitionCode.NOT_CHECKED, "expression", message, "")
    used = [(key, column) for key, tree in parsed for column in _own_columns(tree)]
    for name in listed_names(fields.get("dimensions", "")):
        tree = parse_expression(name)
        if isinstance(tree, exp.Column):
            used.append(("dimensions", tree))
    used = [
        (key, column)
        for key, column in used
        if column.name.lower() not in (*around.metrics, "ctx_template")
    ]
    if used and not relations:
        message = "the definition names no table that is known, so its columns are not checked"
        yield Problem(
            "warning", DefinitionCode.NOT_CHECKED, "expression", message, "name its table"
        )
        return
    if any(not relation.columns for relation in relations):
        return
    seen: set[tuple[str, str, str]] = set()
    for key, column in used:
        problem = _missing(key, column, relations)
        place = (key, column.table.lower(), column.name.lower())
        if problem is not None and place not in seen:
            seen.add(place)
            yield problem


def _own_columns(tree: exp.Expr) -> Iterator[exp.Column]:
    """Yield the columns an expression takes from its own tables: none of its subqueries and
    lambdas.
    """
    from sqlglot import exp

    local = {
        str(name.name).lower() for each in tree.find_all(exp.Lambda) for name in each.expressions
    }
    for column in tree.find_all(exp.Column):
        inside = column.find_ancestor(exp.Query) is not None
        if (
            not inside
            and column.name.lower() not in local
            and not isinstance(column.this, exp.Star)
        ):
            yield column


def _missing(key: str, column: exp.Column, relations: list[Relation]) -> Problem | None:
    name, table = column.name.lower(), column.table.lower()
    if name in PSEUDO_COLUMNS:
        return None
    every = {known: shown for relation in relations for known, shown in relation.columns.items()}
    if not table:
        return None if name in every else _unknown_column(key, column.name, every)
    named = [relation for relation in relations if table in relation.names]
    if named:
        found: dict[str, str] = {}
        for relation in named:
            found.update(relation.columns)
        return (
            None if name in found else _unknown_column(key, f"{column.table}.{column.name}", found)
        )
    if table in every or column.args.get("db") is not None:
        # `event.category` is a field of the column `event`; longer paths lead into a structure as
        # well.
        return None
    near = nearest(table, [known for relation in relations for known in relation.names])
    return Problem(
        "error",
        DefinitionCode.UNKNOWN_TABLE,
        key,
        f"{key} takes a column from {column.table!r}, which the definition neither names nor joins",
        f"did you mean {near!r}?" if near else "add it to joins",
    )


def _unknown_column(key: str, shown: str, known: Mapping[str, str]) -> Problem:
    near = nearest(shown.rpartition(".")[2], list(known.values()))
    fix = (
        f"did you mean {near!r}?"
        if near
        else "name a column of its tables, or join the table that has it"
    )
    return Problem(
        "error",
        DefinitionCode.UNKNOWN_COLUMN,
        key,
        f"{key} names {shown!r}, which no table of it has",
        fix,
    )


def metric_names(items: Iterable[ContextItem]) -> frozenset[str]:
    """Return the names of metrics as an expression may write them."""
    return frozenset(same_name(item.item_id.partition("/")[2]) for item in items)
