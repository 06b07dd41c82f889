"""What a stage of the build says of the part that it has written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctx_pipeline.contracts import FileError, Sensitivity
from ctx_pipeline.security.visibility import EVERYONE, NEVER, ScopeLabel
from ctx_pipeline.text import reference

if TYPE_CHECKING:
    import pyarrow as pa


QUOTING_COLUMNS = frozenset({"title", "full", "compact", "pointer"})
"""Columns whose text is an item's own; run logs are read by people who may not read the items."""


@dataclass(frozen=True, slots=True)
class StageResult:
    """What a stage asset shows of its part."""

    rows: int
    data_version: str
    facts: dict[str, Any]
    sample: tuple[dict[str, Any], ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    """Name and type of each column written."""
    errors: tuple[FileError, ...] = ()
    """What is wrong with items of several sources together."""


def live_rows(filtered: pa.Table, now: int) -> int:
    """Return how many rows are valid at `now` (microseconds): not superseded, retired, expired or
    set aside.
    """
    import pyarrow.compute as pc

    rules = (
        pc.less_equal(filtered.column("valid_from"), now),
        pc.greater(filtered.column("valid_until"), now),
        pc.greater(filtered.column("superseded_at"), now),
        pc.equal(filtered.column("retired_at"), NEVER),
        pc.equal(filtered.column("state"), 0),
    )
    alive = rules[0]
    for rule in rules[1:]:
        alive = pc.and_(alive, rule)
    return int(pc.sum(alive).as_py() or 0)


def without_content(row: Mapping[str, Any], label: ScopeLabel) -> dict[str, Any]:
    """Return a row for people who run builds: of what quotes an item, only its length."""
    shown = {
        name: len(value or "") if name in QUOTING_COLUMNS else value for name, value in row.items()
    }
    return {**shown, "item_id": shown_id(row["item_id"], label)} if "item_id" in row else shown


def shown_id(item_id: str, label: ScopeLabel) -> str:
    """Return an item's id as logs show it, which people read who may not read the item.

    An id is the name of a file, a tool, a table. It is shown where everybody of a tenant may know
    it, else its hash.
    """
    is_open = EVERYONE in label.groups and label.sensitivity in (
        Sensitivity.PUBLIC,
        Sensitivity.INTERNAL,
    )
    closed = label.environment is not None or label.task_types or label.agent_visibility
    return item_id if is_open and not closed else reference(item_id)
