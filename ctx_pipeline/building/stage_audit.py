"""Audit what a stage of a build has just written, before it is served: gathers what the checks
compare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ctx_pipeline.building.audit import (
    Ints,
    Recorded,
    authority_is_within_policy,
    every_row_has_a_scope,
    labels_are_within_scope,
    one_row_per_version,
    only_current_versions_are_live,
    rows_match_the_store,
    token_counts_are_exact,
    vectors_are_of_one_model,
    version_keys,
    withdrawn_rows_stay_out,
)
from ctx_pipeline.building.checks import STAGE_CHECKS, Finding
from ctx_pipeline.contracts import ContextItem
from ctx_pipeline.index.artifact import Generation, Staging
from ctx_pipeline.security.visibility import (
    micros,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.ledger import OverlayEntry
    from ctx_pipeline.workspace import Workspace


_PARTS = {
    "discovered_items": ("discovered", "vectors"),
    "filtered_items": ("filtered",),
    "ranked_items": ("claims", "ranked"),
    "budgeted_items": ("budgeted",),
}


def audit_stage(workspace: Workspace, generation: Generation, stage: str) -> tuple[Finding, ...]:
    """Audit what a stage has just written for a generation; a stage without checks gives none.

    What failed a check that blocks is no longer taken for written: the next build writes it anew.
    """
    if stage not in STAGE_CHECKS:
        return ()
    staging = Staging(workspace.layout, generation)
    discovered, part = staging.read("discovered"), staging.read(_PARTS[stage][-1])
    if part.num_rows == discovered.num_rows:
        recorded = Recorded.of(workspace.store.scan_keys(), generation.store_sequence)
        findings = _AUDITS[stage](workspace, staging, discovered, recorded)
    else:
        counts = {"rows": part.num_rows, "expected_rows": discovered.num_rows}
        # Rows are missing, so that no check could have compared them.
        findings = tuple(Finding(check.name, False, True, counts) for check in STAGE_CHECKS[stage])
    if any(finding.blocking and not finding.passed for finding in findings):
        for name in _PARTS[stage]:
            staging.discard(name)
    return findings


def _discovered(
    workspace: Workspace, staging: Staging, discovered: pa.Table, recorded: Recorded
) -> tuple[Finding, ...]:
    import pyarrow as pa

    keys = version_keys(discovered).combine_chunks()

    def stored(rows: Ints) -> NDArray[np.float32]:
        places = recorded.places(keys.take(pa.array(rows)))
        hashes = recorded.hashes.take(pa.array(places[places >= 0])).to_pylist()
        found = np.full((len(rows), staging.generation.dim), np.nan, np.float32)
        if hashes:
            found[places >= 0] = workspace.store.get_vectors(staging.generation.embedder, hashes)
        return found

    return (
        one_row_per_version(discovered),
        rows_match_the_store(discovered, recorded, _entries(workspace, staging)),
        vectors_are_of_one_model(
            discovered, staging.read("vectors"), staging.generation.dim, stored, _seed(staging)
        ),
    )


def _filtered(
    workspace: Workspace, staging: Staging, discovered: pa.Table, recorded: Recorded
) -> tuple[Finding, ...]:
    filtered = staging.read("filtered")
    names = [source.name for source in workspace.config.sources]

    def read(tenant: str, item_id: str, version: str) -> ContextItem | None:
        row = workspace.store.read(tenant, item_id, version)
        return None if row is None else row.item()

    return (
        every_row_has_a_scope(discovered, filtered),
        withdrawn_rows_stay_out(
            discovered, filtered, recorded, _entries(workspace, staging), names
        ),
        only_current_versions_are_live(discovered, filtered, recorded, micros(workspace.clock())),
        labels_are_within_scope(discovered, filtered, read, _seed(staging)),
    )


def _ranked(
    workspace: Workspace, staging: Staging, discovered: pa.Table, recorded: Recorded
) -> tuple[Finding, ...]:
    ranked = staging.read("ranked")
    return (authority_is_within_policy(discovered, ranked, recorded, workspace.config.sources),)


def _budgeted(
    workspace: Workspace, staging: Staging, discovered: pa.Table, recorded: Recorded
) -> tuple[Finding, ...]:
    from ctx_pipeline.language.tokens import count_tokens

    del recorded
    blocks, counts = staging.read("transformed"), staging.read("budgeted")
    encodings = workspace.config.engine.encodings
    return (
        token_counts_are_exact(discovered, blocks, counts, encodings, count_tokens, _seed(staging)),
    )


_AUDITS: Mapping[str, Callable[[Workspace, Staging, Any, Recorded], tuple[Finding, ...]]] = {
    "discovered_items": _discovered,
    "filtered_items": _filtered,
    "ranked_items": _ranked,
    "budgeted_items": _budgeted,
}


def _entries(workspace: Workspace, staging: Staging) -> tuple[OverlayEntry, ...]:
    """Return the overlay as far as the generation knows it."""
    last = staging.generation.overlay_sequence
    return tuple(
        entry for entry in workspace.ledger.overlay_since(0) if (entry.sequence or 0) <= last
    )


def _seed(staging: Staging) -> int:
    """Return a number that two builds of one generation share."""
    return int(staging.generation.name[:8], 16)
