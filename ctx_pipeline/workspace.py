"""What building and serving both open of a project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ctx_pipeline.config.settings import LedgerSection

if TYPE_CHECKING:
    from ctx_pipeline.ledger import Ledger


def state_folder(home: Path) -> Path:
    """Return where a project's durable record lies."""
    return home / ".ctx" / "state"


def open_ledger(home: Path, settings: LedgerSection) -> Ledger:
    """Open a project's ledger."""
    from ctx_pipeline.ledger import Ledger

    if settings.url is not None:
        return Ledger.open(settings.url.get_secret_value())
    state_folder(home).mkdir(parents=True, exist_ok=True)
    return Ledger.open(state_folder(home) / "ledger.db")
