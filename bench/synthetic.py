"""Seeded synthetic projects for benchmarks: realistic sizes, scopes and texts, random unit vectors.

Run: `python -m bench.synthetic HOME ITEMS OPEN_SHARE` builds one and notes in `HOME/built.json`
what that took.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ctx_pipeline.claims.extract import claims_table
from ctx_pipeline.contracts import (
    ContextItem,
    ItemKind,
    Provenance,
    Scope,
    Sensitivity,
    Trust,
    WhenToLoad,
)
from ctx_pipeline.index.artifact import Generation, Layout, Staging
from ctx_pipeline.index.facts import fact_values, facts_table
from ctx_pipeline.index.lexical import lexical_tables, terms_table
from ctx_pipeline.index.rows import Row, tenant_slices
from ctx_pipeline.language.tokens import count_many
from ctx_pipeline.security.visibility import NEVER
from ctx_pipeline.stages import assemble, routing
from ctx_pipeline.stages import filter as filter_stage
from ctx_pipeline.stages.budget import batch as budget
from ctx_pipeline.stages.discover import batch as discover
from ctx_pipeline.stages.rank import batch as rank
from ctx_pipeline.stages.rank import conflicts, duplicates
from ctx_pipeline.stages.rank.batch import SourceFacts
from ctx_pipeline.stages.transform import batch as transform

if TYPE_CHECKING:
    import pyarrow as pa

DIM = 384
ENCODINGS = ("o200k_base",)
START = datetime(2026, 1, 1, tzinfo=UTC)
TENANTS = {"half": 0.5, "tenth": 0.1, "rest": 0.4}
"""Share of all items per tenant."""
GROUPS = 20
KIND_SHARES = {
    ItemKind.DOCUMENT: 0.7,
    ItemKind.MEMORY: 0.15,
    ItemKind.SCHEMA: 0.1,
    ItemKind.METRIC: 0.05,
}
WORDS_EN = [
    f"{a}{b}"
    for a in ("order", "refund", "region", "metric", "price", "store", "table", "stock")
    for b in ("ing", "ed", "er", "able", "ment", "ness", "less", "ful", "ity", "ive", "ance", "ism")
]
WORDS_ZH = list(
    "订单退款区域指标价格门店库存同比环比华东用户渠道品类金额毛利促销物流客服规则口径日期分区"
)


BUILT = "built.json"
CHUNK_ITEMS = 50_000
"""Items that exist at a time; what is kept of them is columns."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """Who owns each item, of which kind it is and who sees it, in the order of the catalogue."""

    numbers: np.ndarray
    tenants: list[str]
    kinds: list[ItemKind]
    groups: np.ndarray
    is_open: np.ndarray


def _plan(count: int, seed: int, open_share: float) -> _Plan:
    rng = np.random.default_rng(seed)
    tenants = rng.choice(list(TENANTS), count, p=list(TENANTS.values()))
    kinds = rng.choice([kind.value for kind in KIND_SHARES], count, p=list(KIND_SHARES.values()))
    groups, is_open = rng.integers(0, GROUPS, count), rng.random(count) < open_share
    order = np.lexsort((np.arange(count), kinds, tenants))
    named = {kind.value: kind for kind in KIND_SHARES}
    return _Plan(
        order,
        tenants[order].tolist(),
        [named[kind] for kind in kinds[order].tolist()],
        groups[order],
        is_open[order],
    )


def make_items(
    count: int, seed: int = 7, *, open_share: float = 0.07
) -> Iterator[list[ContextItem]]:
    """Yield `count` items over three tenants, in the order of the catalogue and a chunk at a time.

    `open_share` of them are visible to the whole tenant.
    """
    plan = _plan(count, seed, open_share)
    for first in range(0, count, CHUNK_ITEMS):
        last = min(first + CHUNK_ITEMS, count)
        rng = np.random.default_rng([seed, first])
        words = (rng.zipf(1.3, (last - first, 70)) % len(WORDS_EN)).tolist()
        chinese = rng.integers(0, len(WORDS_ZH), (last - first, 60)).tolist()
        yield [
            _make_item(plan, at, count, words[at - first], chinese[at - first])
            for at in range(first, last)
        ]


def _make_item(
    plan: _Plan, at: int, count: int, words: list[int], chinese: list[int]
) -> ContextItem:
    number, kind = int(plan.numbers[at]), plan.kinds[at]
    text = (
        "".join(WORDS_ZH[word] for word in chinese)
        if number % 3 == 0
        else " ".join(WORDS_EN[word] for word in words)
    )
    return ContextItem(
        item_id=f"{kind.value}:synthetic/{number:07d}",
        version="1",
        kind=kind,
        subject=f"{kind.value}:{number // 3}" if number % 5 == 0 else None,
        title=f"Item {number} {WORDS_EN[words[0]]}",
        content=f"{text} #{number}",
        provenance=Provenance(source_type="documents", source_id="synthetic"),
        authority=60,
        trust=Trust.RETRIEVED_INTERNAL,
        sensitivity=Sensitivity.INTERNAL,
        scope=Scope(
            tenant=plan.tenants[at], groups=("*",) if plan.is_open[at] else (f"g{plan.groups[at]}",)
        ),
        valid_from=START - timedelta(days=number % 300),
        valid_until=START + timedelta(days=720) if number % 7 == 0 else None,
        depends_on=(f"schema:*/{(number * 7) % count:07d}",) if kind is ItemKind.METRIC else (),
    )


def make_rows(items: Sequence[ContextItem], start: int = 0) -> list[Row]:
    """Return the rows of a catalogue for items in its order; `start` is the number of rows before
    them.
    """
    facts = zip(*fact_values(facts_table(items)), strict=True)
    keys = (
        (item.scope.tenant or "", item.item_id, item.version, item.content_hash) for item in items
    )
    return [
        Row(tenant, item_id, version, at + 1, 0, "", digest, at, *values)
        for at, ((tenant, item_id, version, digest), values) in enumerate(
            zip(keys, facts, strict=True), start
        )
    ]


class _Columns:
    """What is kept of the items: columns that the stages' batch halves make."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.terms: list[pa.Table] = []
        self.blocks: list[pa.Table] = []
        self.claims: list[pa.Table] = []
        self.signatures: list[pa.Table] = []

    def add(self, items: list[ContextItem]) -> None:
        self.rows.extend(make_rows(items, len(self.rows)))
        self.terms.append(terms_table(items))
        self.blocks.append(transform.batch(items))
        self.claims.append(claims_table(items))
        self.signatures.append(duplicates.signatures(items))


def make_artifact(home: Path, count: int, *, seed: int = 7, open_share: float = 0.07) -> str:
    """Build and publish a synthetic artifact through the stages' batch halves; return its content
    hash.
    """
    import pyarrow as pa

    staging = Staging(Layout(home), Generation(count, 0, "synthetic", DIM, f"{seed}-{open_share}"))
    made = _Columns()
    for items in make_items(count, seed, open_share=open_share):
        made.add(items)
    blocks = pa.concat_tables(made.blocks)
    made.blocks.clear()
    staging.write("transformed", blocks)
    staging.write("budgeted", budget.batch(blocks, ENCODINGS, count_many))
    del blocks
    terms = pa.concat_tables(made.terms)
    made.terms.clear()
    for part, table in lexical_tables(terms).items():
        staging.write(part, table)
    del terms
    staging.write("filtered", filter_stage.batch(made.rows, {}))
    staging.write("discovered", discover.batch(made.rows))
    vectors = _vectors(count, seed + 1)
    staging.write("vectors", discover.vector_table(vectors))
    staging.write("quantised", discover.quantised_table(vectors, made.rows))
    del vectors
    facts = [SourceFacts("synthetic", "documents", WhenToLoad.ON_MATCH, NEVER, NEVER)]
    staging.write("ranked", rank.batch(made.rows, facts, pa.concat_tables(made.signatures)))
    staging.write("claims", conflicts.batch(made.rows, pa.concat_tables(made.claims), {}))
    staging.write("tools", routing.batch(made.rows, [], {}, {}, ENCODINGS[0], count_many))
    return assemble.batch(
        staging,
        {
            "tenants": {tenant: list(span) for tenant, span in tenant_slices(made.rows).items()},
            "sources": [
                {"name": "synthetic", "kind": "documents", "warn_after": NEVER, "fail_after": NEVER}
            ],
            "encodings": list(ENCODINGS),
            "rows": count,
        },
        keep=1,
    )


def _vectors(count: int, seed: int) -> np.ndarray:
    """Return random unit vectors: the hardest to tell apart by anything less than all of their
    numbers.
    """
    rng = np.random.default_rng(seed)
    vectors = np.empty((count, DIM), np.float32)
    for first in range(0, count, CHUNK_ITEMS):
        part = vectors[first : first + CHUNK_ITEMS]
        rng.standard_normal(dtype=np.float32, out=part)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return vectors


def query_vectors(count: int, seed: int = 99) -> np.ndarray:
    """Return seeded random unit vectors."""
    return _vectors(count, seed)


def query_texts(count: int, seed: int = 5) -> list[str]:
    """Return seeded questions in English and Chinese."""
    rng = np.random.default_rng(seed)
    texts: list[str] = []
    for at in range(count):
        if at % 3 == 0:
            texts.append("".join(WORDS_ZH[number] for number in rng.integers(0, len(WORDS_ZH), 8)))
        else:
            texts.append(" ".join(WORDS_EN[number] for number in rng.integers(0, len(WORDS_EN), 8)))
    return texts


def main() -> None:
    """Build one artifact."""
    home, count, open_share = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    make_artifact(home, count, open_share=open_share)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    took = {"build_cpu_s": round(time.process_time(), 1), "build_rss_mb": round(peak_mb)}
    (home / BUILT).write_text(json.dumps(took), encoding="utf-8")


if __name__ == "__main__":
    main()
