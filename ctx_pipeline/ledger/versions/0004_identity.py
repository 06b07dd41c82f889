"""What tells one ledger from another."""

from __future__ import annotations

import uuid

from alembic.operations import Operations

from ctx_pipeline.ledger.migrations import run

revision = "0004"
down_revision = "0003"


def upgrade(op: Operations) -> None:
    """Give the ledger a number that no other has; a copy of it keeps the number."""
    run(op, "CREATE TABLE identity (ledger_id TEXT PRIMARY KEY NOT NULL)")
    run(op, f"INSERT INTO identity VALUES ('{uuid.uuid4().hex}')")  # noqa: S608 - hexadecimal digits
