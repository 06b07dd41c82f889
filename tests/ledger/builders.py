"""Values that the ledger's tests share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import NullPool, create_engine, text

from ctx_pipeline.contracts import Lifecycle, LifecycleEvent
from ctx_pipeline.ledger import OverlayEntry, RecallNotice, SnapshotRecord

NOW = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
BLOBS = {f"block-{n}": f"text of block {n}, 第 {n} 块" for n in range(8)}


def snapshot(name: str, *, number: int = 0, **changes: Any) -> SnapshotRecord:
    """A snapshot that shows item-<number> in two blobs, and leaves item-x out."""
    keys = [f"block-{(number + n) % 8}" for n in range(2)]
    values: dict[str, Any] = {
        "snapshot_id": name,
        "tenant": "acme",
        "principal": "ana",
        "created_at": NOW + timedelta(microseconds=number),
        "run_id": "run",
        "turn_id": str(number),
        "hash": f"hash-{name}",
        "snapshot_json": f'{{"id":"{name}"}}',
        "pack_json": '{"title":"毛利"}',
        "trace_json": "[]",
        "request_json": "{}",
        "status": "ok",
        "blobs": {key: BLOBS[key] for key in keys},
        "items": ((f"item-{number}", "v1", "full", True), ("item-x", "v1", None, False)),
    }
    return SnapshotRecord(**(values | changes))


def overlay(item_id: str = "item-1", code: Any = "retired", **changes: Any) -> OverlayEntry:
    values: dict[str, Any] = {
        "tenant": "acme",
        "actor": "ana",
        "reason": "下线",
        "effective_at": NOW,
        "recorded_at": NOW,
    }
    return OverlayEntry(code=code, item_id=item_id, **(values | changes))


def event(
    item_id: str = "item-1", to_state: Lifecycle = Lifecycle.CREATED, **changes: Any
) -> LifecycleEvent:
    values: dict[str, Any] = {
        "from_state": None,
        "version": "v1",
        "reason": "built",
        "actor": "build",
    }
    return LifecycleEvent(
        tenant="acme", item_id=item_id, to_state=to_state, at=NOW, **(values | changes)
    )


def recall(item_id: str = "item-1", **changes: Any) -> RecallNotice:
    values: dict[str, Any] = {
        "tenant": "acme",
        "version": "v1",
        "code": "superseded",
        "reason": "新版本",
        "at": NOW,
        "actor": "sweep",
        "snapshots": 1,
        "snapshot_ids": ("s1",),
    }
    return RecallNotice(item_id=item_id, **(values | changes))


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run one statement past the ledger; return the rows it gives, if any."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    with engine.begin() as connection:
        result = connection.execute(text(statement))
        return [tuple(row) for row in result] if result.returns_rows else []


def stored_ids(url: str) -> list[str]:
    return [row[0] for row in execute(url, "SELECT snapshot_id FROM snapshots ORDER BY sequence")]
