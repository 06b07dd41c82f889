"""What building and serving both open of a project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ctx_pipeline.config.settings import LedgerSection
from ctx_pipeline.machine_faults import typed_system_errors

if TYPE_CHECKING:
    from ctx_pipeline.ledger import Ledger


def state_folder(home: Path) -> Path:
    """Return where a project's durable record lies."""
    return home / ".ctx" / "state"


def open_ledger(home: Path, settings: LedgerSection) -> Ledger:
    """Open a project's ledger; where its folder cannot be written, for reading alone: a project serves from there.

    Raises:
        Unavailable: it is not there and cannot be made (`cannot_write`), or it cannot be read.
    """
    from ctx_pipeline.ledger import Ledger
    from ctx_pipeline.ledger.database import is_writable

    if settings.url is not None:
        url: str | Path = settings.url.get_secret_value()
    else:
        url = state_folder(home) / "ledger.db"
        with typed_system_errors(url.parent):
            url.parent.mkdir(parents=True, exist_ok=True)
    return Ledger.open(url, readonly=not is_writable(url))
