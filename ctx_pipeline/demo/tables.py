"""The demo retailer's tables as Arrow tables, and how they become Parquet files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ctx_pipeline.demo import plan
from ctx_pipeline.demo.goods import Product
from ctx_pipeline.demo.orders import Ints, hash_unit

# pyarrow ships no types.
pa: Any = import_module("pyarrow")
pq: Any = import_module("pyarrow.parquet")

ROWS_PER_GROUP = 250_000
KEY_SHARE, REGULAR_SHARE = 0.05, 0.45
"""Customers of a region with the lowest ids: they buy most often."""
FIRST_JOINED = date(2020, 1, 1)
LAST_JOINED = date(2024, 10, 26)


def write_table(path: Path, table: Any) -> None:
    """Write an Arrow table as a Parquet file that appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.tmp")
    # Without the Arrow schema every reader sees plain strings, not one library's dictionaries.
    pq.write_table(
        table, partial, compression="zstd", row_group_size=ROWS_PER_GROUP, store_schema=False
    )
    os.replace(partial, path)


def orders_table(columns: dict[str, Ints]) -> Any:
    """Return the orders of `OrderMaker.columns` with names for codes, decimals for cents and
    timestamps.
    """
    names: dict[str, Sequence[str]] = {
        "region": [region.name for region in plan.REGIONS],
        "province": [name for region in plan.REGIONS for name, _, _ in region.provinces],
        "channel": plan.CHANNELS,
        "category": [category.name for category in plan.CATEGORIES],
        "payment_method": plan.PAYMENT_METHODS,
        "status": plan.STATUSES,
    }
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        if name in names:
            arrays[name] = pa.DictionaryArray.from_arrays(
                values.astype(np.int8), pa.array(list(names[name]))
            )
        elif name in ("amount", "cost"):
            arrays[name] = _decimals(values)
        elif name == "ordered_at":
            arrays[name] = pa.array(values, pa.timestamp("us"))
        elif name == "is_self_operated":
            arrays[name] = pa.array(values.astype(np.bool_))
        elif name == "store_id":
            elsewhere = columns["channel"] != plan.CHANNELS.index("store")
            arrays[name] = pa.array(values.astype(np.int32), mask=elsewhere)
        elif name in ("quantity", "product_id"):
            arrays[name] = pa.array(values.astype(np.int32))
        else:
            arrays[name] = pa.array(values)
    return pa.table(arrays)


def _decimals(cents: Ints) -> Any:
    """Return positive cents as DECIMAL(12, 2) without going through a float."""
    words = np.zeros((len(cents), 2), dtype="<i8")
    words[:, 0] = cents
    return pa.Array.from_buffers(
        pa.decimal128(12, 2), len(cents), [None, pa.py_buffer(words.tobytes())]
    )


def regions_table() -> Any:
    """Return the six regions with their provinces in both languages."""
    return pa.table(
        {
            "region_id": pa.array([region.region_id for region in plan.REGIONS], pa.int32()),
            "name": [region.name for region in plan.REGIONS],
            "name_zh": [region.name_zh for region in plan.REGIONS],
            "provinces": [
                ", ".join(name for name, _, _ in region.provinces) for region in plan.REGIONS
            ],
            "provinces_zh": [
                "、".join(name for _, name, _ in region.provinces) for region in plan.REGIONS
            ],
            "valid_from": pa.array([date(2026, 1, 1)] * len(plan.REGIONS), pa.date32()),
        }
    )


def products_table(catalogue: Sequence[Product]) -> Any:
    """Return the articles with price and cost."""
    categories = [plan.CATEGORIES[product.category] for product in catalogue]
    prices, costs = (
        np.array([round(100 * value) for value in values], dtype=np.int64)
        for values in ([p.list_price for p in catalogue], [p.unit_cost for p in catalogue])
    )
    return pa.table(
        {
            "product_id": pa.array([product.product_id for product in catalogue], pa.int32()),
            "name": [product.name for product in catalogue],
            "category": [category.name for category in categories],
            "category_zh": [category.name_zh for category in categories],
            "list_price": _decimals(prices),
            "unit_cost": _decimals(costs),
        }
    )


def customers_table(blocks: Sequence[tuple[int, int]], *, seed: int) -> Any:
    """Return one row per customer of `customer_blocks`."""
    ids = np.concatenate(
        [np.arange(first, first + count, dtype=np.int64) for first, count in blocks]
    )
    rank = np.concatenate([np.arange(count) / count for _, count in blocks])
    region = np.repeat([region.name for region in plan.REGIONS], [count for _, count in blocks])
    keys = ids.astype(np.uint64)
    member = hash_unit(keys, f"{seed}/member") < 0.8 - 0.5 * rank
    days = (hash_unit(keys, f"{seed}/joined") * ((LAST_JOINED - FIRST_JOINED).days + 1)).astype(int)
    segment = np.select([rank < KEY_SHARE, rank < REGULAR_SHARE], ["key", "regular"], "occasional")
    return pa.table(
        {
            "customer_id": ids,
            "region": pa.array(region.tolist()),
            "segment": pa.array(segment.tolist()),
            "is_member": member,
            "joined_on": pa.array(
                [FIRST_JOINED + timedelta(days=int(day)) for day in days], pa.date32()
            ),
        }
    )
