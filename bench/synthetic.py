"""Seeded synthetic projects for benchmarks: realistic sizes, scopes and texts, random unit vectors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from ctx_pipeline.contracts import ContextItem, ItemKind, Provenance, Scope, Sensitivity, Trust, WhenToLoad
from ctx_pipeline.index.artifact import Generation, Layout, Staging
from ctx_pipeline.index.catalogue import Row, tenant_slices
from ctx_pipeline.index.facts import fact_values, facts_table
from ctx_pipeline.index.lexical import terms_table
from ctx_pipeline.security.visibility import NEVER
from ctx_pipeline.stages import assemble, budget, discover, rank, routing, transform
from ctx_pipeline.stages import filter as filter_stage
from ctx_pipeline.stages.rank import SourceFacts
from ctx_pipeline.tokens import count_many

DIM = 384
ENCODINGS = ("o200k_base",)
START = datetime(2026, 1, 1, tzinfo=UTC)
TENANTS = {"half": 0.5, "tenth": 0.1, "rest": 0.4}
"""Share of all items per tenant."""
GROUPS = 20
KIND_SHARES = {ItemKind.DOCUMENT: 0.7, ItemKind.MEMORY: 0.15, ItemKind.SCHEMA: 0.1, ItemKind.METRIC: 0.05}
WORDS_EN = [
    f"{a}{b}"
    for a in ("order", "refund", "region", "metric", "price", "store", "table", "stock")
    for b in ("ing", "ed", "er", "able", "ment", "ness", "less", "ful", "ity", "ive", "ance", "ism")
]
WORDS_ZH = list("订单退款区域指标价格门店库存同比环比华东用户渠道品类金额毛利促销物流客服规则口径日期分区")


def make_items(count: int, seed: int, *, open_share: float) -> list[ContextItem]:
    """Return `count` items over three tenants; `open_share` of them are visible to the whole tenant."""
    rng = np.random.default_rng(seed)
    tenants = rng.choice(list(TENANTS), count, p=list(TENANTS.values()))
    kinds = rng.choice(list(KIND_SHARES), count, p=list(KIND_SHARES.values()))
    groups = rng.integers(0, GROUPS, count)
    is_open = rng.random(count) < open_share
    words = rng.zipf(1.3, (count, 70)) % len(WORDS_EN)
    chinese = rng.integers(0, len(WORDS_ZH), (count, 60))
    items: list[ContextItem] = []
    for at in range(count):
        text = (
            "".join(WORDS_ZH[number] for number in chinese[at])
            if at % 3 == 0
            else " ".join(WORDS_EN[number] for number in words[at])
        )
        kind = ItemKind(str(kinds[at]))
        items.append(
            ContextItem(
                item_id=f"{kind.value}:synthetic/{at:07d}",
                version="1",
                kind=kind,
                subject=f"{kind.value}:{at // 3}" if at % 5 == 0 else None,
                title=f"Item {at} {WORDS_EN[words[at][0]]}",
                content=f"{text} #{at}",
                provenance=Provenance(source_type="documents", source_id="synthetic"),
                authority=60,
                trust=Trust.RETRIEVED_INTERNAL,
                sensitivity=Sensitivity.INTERNAL,
                scope=Scope(tenant=str(tenants[at]), groups=("*",) if is_open[at] else (f"g{groups[at]}",)),
                valid_from=START - timedelta(days=int(at % 300)),
                valid_until=START + timedelta(days=720) if at % 7 == 0 else None,
                depends_on=(f"schema:*/{(at * 7) % count:07d}",) if kind is ItemKind.METRIC else (),
            )
        )
    return items


def make_rows(items: list[ContextItem]) -> list[Row]:
    """Return catalogue rows in artifact order; `items` is put into it, too."""
    items.sort(key=lambda item: (item.scope.tenant or "", item.item_id))
    facts = zip(*fact_values(facts_table(items)), strict=True)
    return [
        Row(item.scope.tenant or "", item.item_id, item.version, at + 1, 0, "", item.content_hash, at, *values)
        for at, (item, values) in enumerate(zip(items, facts, strict=True))
    ]


def make_artifact(home: Path, count: int, *, seed: int = 7, open_share: float = 0.07) -> str:
    """Build and publish a synthetic artifact through the stages' batch halves; return its content hash."""
    items = make_items(count, seed, open_share=open_share)
    rows = make_rows(items)
    facts = [SourceFacts("synthetic", "documents", WhenToLoad.ON_MATCH, NEVER, NEVER)]
    staging = Staging(Layout(home), Generation(count, 0, "synthetic", DIM, str(seed)))
    vectors = np.random.default_rng(seed + 1).standard_normal((count, DIM), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    staging.write("discovered", discover.batch(rows))
    staging.write("vectors", discover.vector_table(vectors))
    staging.write("filtered", filter_stage.batch(rows, {}, terms_table(items), staging.lexical_directory()))
    staging.write("ranked", rank.batch(rows, facts))
    blocks = transform.batch(items)
    tools = [items[at] for at in routing.tool_places(rows)]
    staging.write("tools", routing.batch(rows, tools, {}, {}, ENCODINGS[0], count_many))
    staging.write("transformed", blocks)
    staging.write("budgeted", budget.batch(blocks, ENCODINGS, count_many))
    return assemble.batch(
        staging,
        {
            "tenants": {tenant: list(span) for tenant, span in tenant_slices(rows).items()},
            "sources": [{"name": "synthetic", "kind": "documents", "warn_after": NEVER, "fail_after": NEVER}],
            "encodings": list(ENCODINGS),
            "rows": count,
        },
        keep=1,
    )


def query_vectors(count: int, seed: int = 99) -> np.ndarray:
    """Return seeded random unit vectors."""
    vectors = np.random.default_rng(seed).standard_normal((count, DIM), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


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
