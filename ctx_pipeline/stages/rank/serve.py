"""Rank: what matters most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctx_pipeline.contracts import (
    ContextRequest,
    EffectivePolicy,
    Exclusion,
    ItemKind,
    WhenToLoad,
)
from ctx_pipeline.stages.candidates import Candidate, Judged, Verdict
from ctx_pipeline.stages.rank.features import Case, scored
from ctx_pipeline.stages.rank.recency import lead_with_newer
from ctx_pipeline.stages.rank.relevance import Relevance
from ctx_pipeline.stages.routing import REFERENCED

if TYPE_CHECKING:
    pass

RANKING_VERSION = "rank-4"
"""Changes whenever the same candidates could be ordered differently; part of every snapshot."""

EVEN_SHARE = 0.5
"""Share of meaning at which words and meaning weigh the same."""
SENT = Verdict(score=1.0, features={"relevance": 1.0})
"""What came with the request is what it is about."""
_PROACTIVE = frozenset({WhenToLoad.ALWAYS.value, WhenToLoad.PREFETCH.value})
_INSTRUCTION = ItemKind.INSTRUCTION.value
_ON_REQUEST = WhenToLoad.ON_REQUEST.value


def serve(judged: Judged, relevance: Relevance, case: Case) -> Judged:
    """Score the candidates that are still in, best first; what is excluded keeps its place at the
    end.

    Ties go by item id and version.
    """
    indexed = judged.indexed()
    weights = case.policy.weights
    verdicts: dict[Candidate, Verdict] = dict.fromkeys(judged.alive(), SENT)
    for candidate, found in zip(indexed, scored(indexed, relevance.of, case), strict=True):
        lent = relevance.lent.get(candidate, 0.0)
        if found.features["dependency"]:
            lent = weights.relevance * lent + weights.dependency * found.features["relevance"]
        stale = found.stale and case.policy.exclude_stale
        verdicts[candidate] = Verdict(
            excluded=Exclusion.STALE if stale else None,
            score=found.score,
            features=found.features,
            signal=relevance.signal[candidate],
            lent=lent,
            stale=found.stale,
        )
    return in_order(lead_with_newer(in_order(judged.ruled(verdicts))))


def in_order(judged: Judged) -> Judged:
    """Return the same with what is in best first, and what is out at the end, by item id."""
    verdicts = judged.verdicts
    alive = sorted(judged.alive(), key=lambda c: (-verdicts[c].score, c.item_id, c.version))
    out = [c for c in judged.candidates if verdicts[c].excluded is not None]
    out.sort(key=lambda c: (c.item_id, c.version))
    return Judged([*alive, *out], verdicts)


def layer_instructions(judged: Judged, request: ContextRequest) -> Judged:
    """Keep the instructions of the project and of the folders above the file at hand
    (`state.path`).
    """
    path = str(request.state.get("path", "")).replace("\\", "/").strip("/")
    out: dict[Candidate, Verdict] = {}
    for candidate in judged.indexed():
        if candidate.kind == _INSTRUCTION:
            folder = candidate.item_id.partition("/")[2].rpartition("/")[0]
            if folder and not path.startswith(f"{folder}/"):
                way_in = f"applies to files under {folder}/: name the file at hand in state.path"
                out[candidate] = judged.verdicts[candidate].out(Exclusion.LOW_RANK, way_in)
    return judged.ruled(out)


def cut_low_rank(judged: Judged, policy: EffectivePolicy) -> Judged:
    """Leave out hits far below the best one, and what loads only on request.

    Half of the stronger of meaning and words counts where the kind's own weights give less: they
    order hits, and a hit that one of the two speaks for is none to leave out. The floor is lower
    for kinds that live by their words: one without any of them reaches no more than the share of
    its meaning.
    """
    alive, verdicts = judged.indexed(), judged.verdicts
    best = max((verdicts[c].features["relevance"] for c in alive), default=0.0)
    floor = best * policy.min_relevance
    out: dict[Candidate, Verdict] = {}
    for candidate in alive:
        if candidate.when_to_load in _PROACTIVE or REFERENCED in candidate.discovered_by:
            continue
        verdict = verdicts[candidate]
        relevance = verdict.features["relevance"]
        least = floor * min(1.0, policy.fusion[candidate.kind] / EVEN_SHARE)
        if candidate.when_to_load == _ON_REQUEST:
            out[candidate] = verdict.out(
                Exclusion.LOW_RANK, "loads only on request: expand it by id"
            )
        elif max(relevance, verdict.signal / 2) < least:
            out[candidate] = verdict.out(
                Exclusion.LOW_RANK, f"+{max(0.01, least - relevance):.2f} relevance"
            )
    return judged.ruled(out)
