"""Move a ledger to another database:
`CTX_LEDGER__URL=postgresql://... python -m ctx_pipeline.ledger.copy ledger.db`.

The target comes from the environment, because a command line can be read by everybody on the
machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from sqlalchemy import delete, func, insert, select
from sqlalchemy.engine import Connection

from ctx_pipeline.errors import Conflict, CtxError, InvalidRequest
from ctx_pipeline.ledger.database import Database
from ctx_pipeline.ledger.schema import COUNTERS, IDENTITY, METADATA

BATCH_ROWS = 200
"""Rows in memory at a time; one snapshot takes some tens of kilobytes."""
TARGET_VARIABLE = "CTX_LEDGER__URL"
_MADE_FULL = (COUNTERS, IDENTITY)
"""Tables that have their one row from the beginning."""


def copy_ledger(source: str | Path, target: str | Path) -> dict[str, int]:
    """Copy everything from one ledger into an empty one, all or nothing; return the rows of each
    table.

    What is written to the source meanwhile is not copied: stop everything that writes first. The
    source is not changed.

    Raises:
        Unavailable: one of the two cannot be reached, or the source has an older schema (open it
            once before).
        Conflict: the target is not empty (`ledger_not_empty`).
    """
    with closing(Database(source, readonly=True)) as before, closing(Database(target)) as after:
        before.prepare()
        after.prepare()
        with before.read() as reader, after.write() as writer:
            _require_empty(writer, after.where)
            for table in _MADE_FULL:
                writer.execute(delete(table))
            return {
                table.name: _copy_table(reader, writer, table.name)
                for table in METADATA.sorted_tables
            }


def _require_empty(connection: Connection, where: str) -> None:
    for table in METADATA.sorted_tables:
        if (
            table not in _MADE_FULL
            and connection.execute(select(table).limit(1)).first() is not None
        ):
            fix = "name an empty database"
            raise Conflict(
                "there is a ledger already", where=where, fix=fix, code="ledger_not_empty"
            )


def _copy_table(reader: Connection, writer: Connection, name: str) -> int:
    table = METADATA.tables[name]
    rows = reader.execution_options(yield_per=BATCH_ROWS).execute(select(table)).mappings()
    for part in rows.partitions():
        writer.execute(insert(table), [dict(row) for row in part])
    return int(writer.execute(select(func.count()).select_from(table)).scalar_one())


def main(arguments: Sequence[str], target: str | None) -> int:
    """Copy one ledger and say what was copied; return the exit code."""
    try:
        if len(arguments) != 1 or not target:
            fix = f"name the ledger to copy, and where to in {TARGET_VARIABLE}"
            raise InvalidRequest(
                "one source and one target are needed",
                where="python -m ctx_pipeline.ledger.copy",
                fix=fix,
            )
        for table, rows in copy_ledger(arguments[0], target).items():
            sys.stdout.write(f"{table} {rows}\n")
    except CtxError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], os.environ.get(TARGET_VARIABLE)))
