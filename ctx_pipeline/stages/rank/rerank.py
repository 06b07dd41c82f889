"""Let a cross-encoder look again at the most relevant candidates. Optional, and off unless
`ctx.toml` names one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctx_pipeline.contracts import Rendition
from ctx_pipeline.stages.rank.relevance import Relevance

if TYPE_CHECKING:
    from ctx_pipeline.index.reader import ArtifactReader
    from ctx_pipeline.index.reranker import Reranker

RERANKED = 24
"""Candidates that it reads: a small model takes 10 to 30 ms for each on one core."""
SHARE = 0.5
"""Its part in their relevance."""


def serve(relevance: Relevance, text: str, reader: ArtifactReader, reranker: Reranker) -> Relevance:
    """Move the relevance of the best candidates halfway to what the reranker says."""
    known = relevance.of
    best = sorted(known, key=lambda c: (-known[c], c.item_id, c.version))[:RERANKED]
    scores = reranker.scores(
        text, [reader.block(candidate.row, Rendition.FULL) for candidate in best]
    )
    moved = {
        candidate: known[candidate] + SHARE * (score - known[candidate])
        for candidate, score in zip(best, scores, strict=True)
    }
    return relevance.with_values(moved)
