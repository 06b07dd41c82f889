"""The ledger: the durable record beside the item store. Snapshots, lifecycle events, overlay,
source observations.

Importing this package loads no database library; `Ledger` is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ctx_pipeline.ledger.records import (
    OVERLAY_CODES,
    Exposure,
    OverlayCode,
    OverlayEntry,
    PrunedSnapshot,
    RecallNotice,
    SnapshotRecord,
    SourceObservation,
)
from ctx_pipeline.ledger.transitions import check_transition

if TYPE_CHECKING:
    from ctx_pipeline.ledger.ledger import Ledger

__all__ = [
    "OVERLAY_CODES",
    "Exposure",
    "Ledger",
    "OverlayCode",
    "OverlayEntry",
    "PrunedSnapshot",
    "RecallNotice",
    "SnapshotRecord",
    "SourceObservation",
    "check_transition",
]


def __getattr__(name: str) -> object:
    if name != "Ledger":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = import_module("ctx_pipeline.ledger.ledger").Ledger
    globals()[name] = value
    return value
