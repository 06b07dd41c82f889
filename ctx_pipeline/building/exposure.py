"""How often each item was shown, left out and cited: finished days from their files, the rest
counted now.

`.ctx/derived/exposure/<day>.arrow` holds one UTC day. A day to which something was added after it
was written (a call with a clock in the past, a late report of cited items) is counted from the
record until it is written again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from ctx_pipeline.errors import Corrupt
from ctx_pipeline.index.artifact import read_table, write_table
from ctx_pipeline.ledger.rollup import DayMark, day_bounds
from ctx_pipeline.stages.snapshot import ExposureRow, batch
from ctx_pipeline.text import canonical_json, sha256_hex

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.ledger import Ledger

FORMAT_VERSION: Final = 1
"""Changes with what a day's file holds."""
FOLDER = "exposure"
TOTALS_FILE = "exposure.arrow"
_MARK = b"ctx.mark"
_TOKENS = "tokens"
_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class DayExposure:
    """What one rolled-up day held."""

    rows: int
    tenants: int
    shown: int
    left_out: int
    cited: int
    tokens: int
    digest: str
    """SHA-256 of the file."""


def day_file(derived: Path, day: date) -> Path:
    """Return where a day is kept."""
    return derived / FOLDER / f"{day.isoformat()}.arrow"


def roll_up_day(derived: Path, ledger: Ledger, day: date) -> DayExposure:
    """Write what the snapshots of one UTC day showed, whole or not at all; doing it again replaces
    it.
    """
    import pyarrow as pa

    # The mark first: what is added while we count makes it old, and the day is then counted anew.
    mark = ledger.day_marks().get(day, DayMark(0, 0))
    since, until = day_bounds(day)
    rows = [ExposureRow(*row) for row in ledger.exposures(since, until)]
    tokens = ledger.shown_tokens(since, until)
    counts = pa.array([tokens.get(row[:3], 0) for row in rows], pa.int64())
    table = (
        batch(rows)
        .append_column(_TOKENS, counts)
        .replace_schema_metadata({_MARK: canonical_json(astuple(mark))})
    )
    file = day_file(derived, day)
    file.parent.mkdir(parents=True, exist_ok=True)
    digest = write_table(file, table)
    return DayExposure(
        rows=len(rows),
        tenants=len({row.tenant for row in rows}),
        shown=sum(row.selected for row in rows),
        left_out=sum(row.excluded for row in rows),
        cited=sum(row.used for row in rows),
        tokens=sum(tokens.values()),
        digest=digest,
    )


def first_day(derived: Path, ledger: Ledger) -> date | None:
    """Return the first UTC day that there is anything of; None when there is nothing."""
    days = [*_files(derived), *ledger.snapshot_days()[:1]]
    return min(days, default=None)


def write_totals(derived: Path, ledger: Ledger) -> tuple[int, str, int]:
    """Write the sum of all days; return its rows, its SHA-256 and how many days came from their
    files.
    """
    marks = ledger.day_marks()
    finished = _finished(derived, marks)
    table = batch(_sum(ledger, marks, finished)).replace_schema_metadata(
        {_MARK: _digest(marks, finished)}
    )
    return table.num_rows, write_table(derived / TOTALS_FILE, table), len(finished)


def shown_counts(derived: Path, ledger: Ledger, tenant: str) -> dict[tuple[str, str], int]:
    """Return, by item id and version, how many calls of a tenant have shown it."""
    marks = ledger.day_marks()
    finished = _finished(derived, marks)
    known = _read(derived / TOTALS_FILE)
    if known is None or _mark_of(known) != _digest(marks, finished):
        return {
            row[1:3]: row.selected for row in _sum(ledger, marks, finished) if row.tenant == tenant
        }
    return {row[1:3]: row.selected for row in _rows(known) if row.tenant == tenant}


def _digest(marks: Mapping[date, DayMark], finished: Mapping[date, pa.Table]) -> bytes:
    facts = [[day.isoformat(), *astuple(mark)] for day, mark in marks.items()]
    return sha256_hex(canonical_json([facts, [day.isoformat() for day in finished]])).encode(
        "ascii"
    )


def _mark_of(table: pa.Table) -> bytes | None:
    metadata = cast("dict[bytes, bytes] | None", table.schema.metadata)
    return (metadata or {}).get(_MARK)


def _files(derived: Path) -> list[date]:
    days: list[date] = []
    for file in (derived / FOLDER).glob("????-??-??.arrow"):
        try:
            days.append(date.fromisoformat(file.stem))
        except ValueError:
            continue
    return sorted(days)


def _read(file: Path) -> pa.Table | None:
    """Return a file's table; None where there is none or it is damaged: it can be counted again."""
    try:
        return read_table(file) if file.exists() else None
    except Corrupt:
        return None


def _finished(derived: Path, marks: Mapping[date, DayMark]) -> dict[date, pa.Table]:
    """Return the days whose file holds all there is of them. What was pruned since lives on in its
    file.
    """
    found: dict[date, pa.Table] = {}
    for day in _files(derived):
        table = _read(day_file(derived, day))
        mark = None if table is None else _mark_of(table)
        if table is None or mark is None:
            continue
        last, cited = json.loads(mark)
        now = marks.get(day, DayMark(0, 0))
        if now.last_sequence <= last and now.cited <= cited:
            found[day] = table
    return found


def _sum(
    ledger: Ledger, marks: Mapping[date, DayMark], finished: Mapping[date, pa.Table]
) -> list[ExposureRow]:
    sums: dict[_Key, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in (row for table in finished.values() for row in _rows(table)):
        _add(sums, row)
    for first, last in _gaps(marks, finished):
        for row in ledger.exposures(day_bounds(first)[0], day_bounds(last)[1]):
            _add(sums, ExposureRow(*row))
    return [ExposureRow(*key, *sums[key]) for key in sorted(sums)]


def _add(sums: dict[_Key, list[int]], row: ExposureRow) -> None:
    entry = sums[row.tenant, row.item_id, row.version]
    for at, count in enumerate((row.selected, row.excluded, row.used)):
        entry[at] += count


def _rows(table: pa.Table) -> Iterator[ExposureRow]:
    columns = (table.column(name).to_pylist() for name in ExposureRow._fields)
    return (ExposureRow(*values) for values in zip(*columns, strict=True))


def _gaps(marks: Iterable[date], finished: Mapping[date, pa.Table]) -> list[tuple[date, date]]:
    """Return the spans of days with snapshots that no file holds: first and last day of each."""
    gaps: list[tuple[date, date]] = []
    is_open = False
    for day in sorted({*marks, *finished}):
        if day in finished:
            is_open = False
        elif is_open:
            gaps[-1] = (gaps[-1][0], day)
        else:
            gaps.append((day, day))
            is_open = True
    return gaps
