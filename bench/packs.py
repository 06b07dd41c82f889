"""What packs of a budget hold of what their questions need:
`python -m bench.packs [--sets bfcl ...] [--cache FOLDER]`.

Runs the questions of `bench.retrieval` through the stages up to the budget, and prints for each
budget in tokens: the share of what is needed that is shown, the same whole, and how many items and
tokens of the index a pack has.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from bench.retrieval import ENCODING, Built, CachedEmbedder
from bench.retrieval_sets import SETS, Pool, Question
from ctx_pipeline.config.profiles import model_profile
from ctx_pipeline.contracts import (
    ContextPolicy,
    ContextRequest,
    EffectivePolicy,
    Rendition,
    Task,
    resolve_policy,
)
from ctx_pipeline.index.embedder import DEFAULT_MODEL
from ctx_pipeline.stages.budget import serve as budget
from ctx_pipeline.stages.candidates import REQUEST_ROW, Judged
from ctx_pipeline.stages.packing import heading_tokens

BUDGETS = (500, 1_000, 2_000, 4_000, 8_000, 32_000)
QUESTIONS = 200
PROFILE = model_profile("gpt-5")


def packed(
    judged: Judged,
    pool: Pool,
    question: Question,
    tokens: int,
    policy: EffectivePolicy,
) -> tuple[float, float, int, int]:
    """Return of one pack the share of what is needed, of what is needed whole, its items, and their
    tokens.
    """
    request = ContextRequest(task=Task(text=question.text), token_budget=tokens)
    done = budget.serve(
        judged,
        request,
        profile=PROFILE,
        policy=policy,
        heading_tokens=heading_tokens(ENCODING),
    )
    shown = {c: done.judged.verdicts[c].rendition for c in done.judged.selected()}
    read = {pool.unit(c.item_id) for c, form in shown.items() if form is not Rendition.POINTER}
    whole = {pool.unit(c.item_id) for c, form in shown.items() if form is Rendition.FULL}
    size = len(question.gold)
    return (
        len(read & question.gold) / size,
        len(whole & question.gold) / size,
        len(shown),
        sum(c.cost(form) for c, form in shown.items()),
    )


def main() -> None:
    """Run the sets and print one line per budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    named: dict[str, Any] = {make.__name__: make for make in SETS}
    parser.add_argument(
        "--sets", nargs="+", default=["bfcl", "context_bench", "bird"], choices=list(named)
    )
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "ctx_retrieval")
    parser.add_argument("--min-value", type=float, default=ContextPolicy().min_value)
    arguments = parser.parse_args()
    policy = resolve_policy(ContextPolicy(min_value=arguments.min_value))
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.sets:
            rows: dict[int, list[tuple[float, float, int, int]]] = {
                tokens: [] for tokens in BUDGETS
            }
            for pool in named[name](Path(folder)).pools:
                built = Built(pool, CachedEmbedder(DEFAULT_MODEL, arguments.cache))
                for question in pool.questions[:QUESTIONS]:
                    judged = built.judged(question.text)
                    hits = [c for c in judged.candidates if c.row != REQUEST_ROW]
                    found_hits = Judged(hits, {c: judged.verdicts[c] for c in hits})
                    for tokens, found in rows.items():
                        found.append(packed(found_hits, pool, question, tokens, policy))
                built.close()
            for tokens, found in rows.items():
                read, whole, items, used = (
                    sum(column) / len(found) for column in zip(*found, strict=True)
                )
                print(
                    f"{name:14} {tokens:6}  shown {read:.3f}  whole {whole:.3f}  "
                    f"items {items:.1f}  tokens {used:.0f}"
                )


if __name__ == "__main__":
    main()
