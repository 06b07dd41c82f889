"""Recall notices, and what pruning by age needs."""

from __future__ import annotations

from alembic.operations import Operations

from ctx_pipeline.ledger.migrations import run

revision = "0002"
down_revision = "0001"

# Which snapshot needs which of the blobs stored so far is not known: they are kept as long as the
# newest snapshot.
_SQL = """
CREATE TABLE recalls (
    sequence {int64} PRIMARY KEY, tenant TEXT NOT NULL, item_id TEXT NOT NULL,
    version TEXT NOT NULL, code TEXT NOT NULL, since {int64} NOT NULL, reason TEXT NOT NULL,
    at {int64} NOT NULL, actor TEXT NOT NULL,
    snapshots {int64} NOT NULL, snapshot_ids_json TEXT NOT NULL,
    UNIQUE (tenant, item_id, version, code, since));
CREATE TABLE pruned (
    snapshot_id TEXT PRIMARY KEY NOT NULL, tenant TEXT NOT NULL, principal TEXT NOT NULL,
    created_at {int64} NOT NULL){clustered};
CREATE TABLE snapshot_blobs (
    snapshot_sequence {int64} NOT NULL, hash TEXT NOT NULL,
    PRIMARY KEY (snapshot_sequence, hash)){clustered};
CREATE INDEX snapshot_blobs_by_hash ON snapshot_blobs (hash);
CREATE INDEX snapshots_by_time ON snapshots (created_at);
CREATE INDEX snapshot_items_by_snapshot ON snapshot_items (snapshot_sequence, selected);
CREATE INDEX used_by_snapshot ON used (snapshot_sequence);
INSERT INTO snapshot_blobs (snapshot_sequence, hash)
    SELECT
        COALESCE(
            (SELECT sequence FROM snapshots ORDER BY created_at DESC, sequence DESC LIMIT 1), 0
        ),
        hash
    FROM blobs
"""


def upgrade(op: Operations) -> None:
    """Add the tables and indexes."""
    run(op, _SQL)
