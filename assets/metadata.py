"""What an asset shows in the graph: counts, versions, ids and column types; never what a source says.

Event logs are kept for long, are not erased by `ctx forget`, and are read by people who may not read the items. So
neither content nor titles go into them, and names of files, tools and items only where everybody of the tenant may know
them; others stand there by a hash. `ctx build` and `ctx items` name them to who may see them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg

from ctx_pipeline.contracts import Sensitivity
from ctx_pipeline.security.visibility import EVERYONE
from ctx_pipeline.text import reference

if TYPE_CHECKING:
    from ctx_pipeline.config.settings import Freshness, SourceConfig
    from ctx_pipeline.contracts import FileError, SourceFile

TABLE_ROWS = 50
"""Most rows of a Markdown table in an event; the rest is counted."""
SAMPLE_ROWS = 5
RETRY_CRON = "0 * * * *"
"""When something that is missing or past its window, because its runs failed, is tried again."""
DEFAULT_STAGE_WINDOW = timedelta(hours=24)
PLAIN_COLUMNS = frozenset({"tenant", "item_id", "version", "kind", "rendition"})
"""Text columns that name a row; of all others only the length is shown."""

_OPEN_TO_ALL = frozenset({Sensitivity.PUBLIC, Sensitivity.INTERNAL})
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


def is_open(source: SourceConfig) -> bool:
    """Return whether everybody may know what a source calls its files and items."""
    return EVERYONE in source.groups and source.sensitivity in _OPEN_TO_ALL


def owner_of(name: str | None) -> list[str]:
    """Return an owner as Dagster takes it: an address, or `team:<slug>`."""
    plain = (name or "").strip()
    if not plain:
        return []
    if _EMAIL.fullmatch(plain) or plain.startswith("team:"):
        return [plain]
    slug = re.sub(r"[^\w]+", "-", plain.lower()).strip("-")
    return [f"team:{slug}"] if slug else []


def freshness_policy(window: Freshness) -> dg.FreshnessPolicy:
    """Return a source's freshness window as a policy that the daemon evaluates."""
    return dg.FreshnessPolicy.time_window(fail_window=window.fail, warn_window=window.warn)


def stage_freshness(sources: Iterable[SourceConfig]) -> dg.FreshnessPolicy:
    """Return the tightest window of the sources, for what is built from all of them."""
    windows = [source.freshness for source in sources if source.freshness is not None]
    fail = min((window.fail for window in windows), default=DEFAULT_STAGE_WINDOW)
    warn = min((window.warn for window in windows), default=DEFAULT_STAGE_WINDOW * 3 / 4)
    return dg.FreshnessPolicy.time_window(fail_window=fail, warn_window=warn)


def stays_fresh(*, bootstrap: bool) -> dg.AutomationCondition[dg.AssetKey]:
    """Return the condition that rebuilds an asset when its window starts to run out, and once more when it has.

    `bootstrap` also builds it where it has never been built. Each cause counts once, and what has failed is tried
    again once an hour: neither a failing source nor a data version that stays the same makes it loop.
    """
    due = dg.AutomationCondition.freshness_failed()
    if bootstrap:
        due |= dg.AutomationCondition.missing()
    wanted = dg.AutomationCondition.freshness_warned().newly_true() | due.newly_true()
    wanted |= due & dg.AutomationCondition.cron_tick_passed(RETRY_CRON)
    return (wanted & ~dg.AutomationCondition.in_progress()).with_label("stays fresh")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table of at most `TABLE_ROWS` rows that says how many more there are."""
    lines = [
        _line(header),
        _line(["---"] * len(header)),
        *(_line(row) for row in rows[:TABLE_ROWS]),
    ]
    if len(rows) > TABLE_ROWS:
        lines.append(f"\n{len(rows) - TABLE_ROWS} more rows are not shown.")
    return "\n".join(lines)


def _line(cells: Iterable[object]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").split())


def files_table(files: Sequence[SourceFile], *, named: bool) -> str:
    """Return the files of a source as a Markdown table, the failed ones first.

    A file that was read stands there by a hash: what is in it may be for fewer people than its source is. So does
    every file unless `named`.
    """
    order = {"failed": 0, "skipped": 1, "empty": 2}
    ranked = sorted(files, key=lambda file: (order.get(file.status.value, 3), file.path))
    rows = [
        (
            file.path if named and file.status.value in order else reference(file.path),
            file.status.value,
            file.items,
            file.bytes,
            file.reason,
        )
        for file in ranked
    ]
    return markdown_table(("file", "status", "items", "bytes", "reason"), rows)


def errors_table(errors: Sequence[FileError], *, named: bool) -> str:
    """Return the errors of a source as a Markdown table; unless `named`, hashes of its files and no messages."""
    rows = [
        (error.path, error.line, error.code.value, error.message)
        if named
        else (reference(error.path), error.line, error.code.value, "`ctx build` says it")
        for error in errors
    ]
    return markdown_table(("file", "line", "code", "what to do"), rows)


def column_schema(columns: Iterable[tuple[str, str]]) -> dg.TableSchema:
    """Return column names and types as Dagster shows them."""
    return dg.TableSchema(columns=[dg.TableColumn(name, kind) for name, kind in columns])


def sample_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return up to `SAMPLE_ROWS` rows as a Markdown table; text that is not an id is shown by its length."""
    if not rows:
        return "no rows"
    header = tuple(rows[0])
    shown = [[_shown(name, row.get(name)) for name in header] for row in rows[:SAMPLE_ROWS]]
    return markdown_table(header, shown)


def _shown(name: str, value: Any) -> object:
    if value is None or isinstance(value, (bool, int, float)) or name in PLAIN_COLUMNS:
        return value
    if isinstance(value, str):
        return f"{len(value)} characters"
    return f"{len(value)} entries"
