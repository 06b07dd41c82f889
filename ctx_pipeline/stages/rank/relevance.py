"""Relevance: how much each candidate of the index has to do with the request, 0 to 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ctx_pipeline.contracts import ContextRequest, EffectivePolicy
from ctx_pipeline.stages.candidates import Candidate
from ctx_pipeline.stages.discover.queries import LONG_MEANING, is_long
from ctx_pipeline.stages.discover.serve import DEPENDENCY, LEXICAL, NEIGHBOUR_DECAY, VECTOR
from ctx_pipeline.stages.rank.related import lift_related, link_columns, spread_chunks


@dataclass(frozen=True, slots=True)
class Relevance:
    """What is known of each candidate before anything but the request is weighed."""

    of: Mapping[Candidate, float]
    """Relevance, 0 to 1."""
    signal: Mapping[Candidate, float]
    """The stronger of meaning and words, each 0 to 1 among the hits."""
    lent: Mapping[Candidate, float]
    """Part of the relevance that it has only because something else needs it."""

    def with_values(self, values: Mapping[Candidate, float]) -> Relevance:
        """Return the same with other relevance for some."""
        return replace(self, of={**self.of, **values})


def serve(
    candidates: Sequence[Candidate], request: ContextRequest, policy: EffectivePolicy
) -> Relevance:
    """Fuse meaning and words; a neighbour inherits a share of what led to it.

    Convex fusion of min-max scores (Bruch et al., TOIS 2023); the policy's `fusion` is the share of
    meaning by kind.
    """
    kept = LONG_MEANING if is_long(request.task.text) else 1.0
    fusion = {kind: share * kept for kind, share in policy.fusion.items()}
    values, signal = _fused(candidates, fusion)
    own: dict[str, float] = {}
    for candidate in candidates:
        own[candidate.item_id] = max(values[candidate], own.get(candidate.item_id, 0.0))
    values.update(link_columns(values))
    values.update(spread_chunks(values))
    lent: dict[Candidate, float] = {}
    for candidate in candidates:
        if candidate.parent is not None and DEPENDENCY in candidate.discovered_by:
            inherited = NEIGHBOUR_DECAY * own.get(candidate.parent, 0.0)
            lent[candidate] = max(0.0, inherited - values[candidate])
            values[candidate] += lent[candidate]
    values.update(lift_related(values))
    return Relevance(values, signal, lent)


def _fused(
    candidates: Sequence[Candidate], fusion: Mapping[str, float]
) -> tuple[dict[Candidate, float], dict[Candidate, float]]:
    """Return the mixture of meaning and words of each candidate, and the stronger of the two."""
    hits = [c for c in candidates if VECTOR in c.discovered_by or LEXICAL in c.discovered_by]
    top_dense = max((candidate.dense for candidate in hits), default=0.0)
    low_dense = min((candidate.dense for candidate in hits), default=0.0)
    top_lexical = max((candidate.lexical for candidate in hits), default=0.0)
    span = top_dense - low_dense
    values: dict[Candidate, float] = {}
    signal: dict[Candidate, float] = {}
    for candidate in candidates:
        meaning = (
            (candidate.dense - low_dense) / span if span > 1e-6 else float(candidate.dense > 0)
        )
        meaning = min(1.0, max(0.0, meaning))
        words = candidate.lexical / top_lexical if top_lexical > 0 else 0.0
        share = fusion[candidate.kind]
        values[candidate] = share * meaning + (1 - share) * words
        signal[candidate] = max(meaning, words)
    return values, signal
