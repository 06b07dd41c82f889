"""The first schema."""

from __future__ import annotations

from alembic.operations import Operations

from ctx_pipeline.ledger.migrations import run

revision = "0001"
down_revision = None

_SQL = """
CREATE TABLE counters (
    id {int64} PRIMARY KEY CHECK (id = 1),
    sequence {int64} NOT NULL, overlay_sequence {int64} NOT NULL,
    source_revision {int64} NOT NULL, blob_revision {int64} NOT NULL);
INSERT INTO counters VALUES (1, 0, 0, 0, 0);
CREATE TABLE events (
    sequence {int64} PRIMARY KEY, tenant TEXT NOT NULL, item_id TEXT NOT NULL,
    version TEXT NOT NULL,
    from_state TEXT, to_state TEXT NOT NULL, reason TEXT NOT NULL, at {int64} NOT NULL,
    actor TEXT NOT NULL, snapshot_id TEXT, schema_version TEXT NOT NULL);
CREATE INDEX events_by_item ON events (tenant, item_id);
CREATE TABLE overlay (
    sequence {int64} PRIMARY KEY, code TEXT NOT NULL, tenant TEXT NOT NULL, item_id TEXT NOT NULL,
    version TEXT, principal TEXT, group_name TEXT, effective_at {int64} NOT NULL,
    recorded_at {int64} NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL);
CREATE TABLE sources (
    name TEXT PRIMARY KEY NOT NULL, kind TEXT NOT NULL, observed_at {int64} NOT NULL,
    succeeded_at {int64}, fingerprint TEXT NOT NULL, status TEXT NOT NULL, items {int64} NOT NULL,
    errors_json TEXT NOT NULL, files_json TEXT NOT NULL);
CREATE TABLE blobs (hash TEXT PRIMARY KEY NOT NULL, text TEXT NOT NULL);
CREATE TABLE snapshots (
    sequence {int64} PRIMARY KEY, snapshot_id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL,
    principal TEXT NOT NULL, created_at {int64} NOT NULL, run_id TEXT NOT NULL,
    turn_id TEXT NOT NULL, session_id TEXT, hash TEXT NOT NULL, snapshot_json TEXT NOT NULL,
    pack_json TEXT, trace_json TEXT NOT NULL, request_json TEXT NOT NULL,
    status TEXT NOT NULL);
CREATE INDEX snapshots_by_owner ON snapshots (tenant, principal, sequence);
CREATE INDEX snapshots_by_tenant ON snapshots (tenant, sequence);
CREATE TABLE snapshot_items (
    tenant TEXT NOT NULL, item_id TEXT NOT NULL,
    snapshot_sequence {int64} NOT NULL REFERENCES snapshots (sequence), version TEXT NOT NULL,
    rendition TEXT, selected BOOLEAN NOT NULL,
    PRIMARY KEY (tenant, item_id, snapshot_sequence, version)){clustered};
CREATE TABLE used (
    tenant TEXT NOT NULL, item_id TEXT NOT NULL,
    snapshot_sequence {int64} NOT NULL REFERENCES snapshots (sequence), used_at {int64} NOT NULL,
    PRIMARY KEY (tenant, item_id, snapshot_sequence)){clustered};
CREATE TABLE usage (
    snapshot_sequence {int64} NOT NULL REFERENCES snapshots (sequence), digest TEXT NOT NULL,
    sequence {int64} NOT NULL, reported_at {int64} NOT NULL, usage_json TEXT NOT NULL,
    PRIMARY KEY (snapshot_sequence, digest)){clustered}
"""


def upgrade(op: Operations) -> None:
    """Create the tables."""
    run(op, _SQL)
