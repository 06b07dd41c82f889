"""The version that was kept in a table `meta` before."""

from __future__ import annotations

from alembic.operations import Operations

from ctx_pipeline.ledger.migrations import run

revision = "0003"
down_revision = "0002"


def upgrade(op: Operations) -> None:
    """Drop the old table; its version was taken over before."""
    run(op, "DROP TABLE IF EXISTS meta")
