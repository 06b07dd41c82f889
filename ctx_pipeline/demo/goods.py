"""The small tables of the demo retailer: regions, products and customers. No
person in it exists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from ctx_pipeline.demo import plan

MIN_CUSTOMERS = 2_000
MAX_CUSTOMERS = 60_000
ORDERS_PER_CUSTOMER = 100

_LINES = ("Basic", "Plus", "Pro", "Select")
_NOUNS: dict[str, tuple[str, ...]] = {
    "Electronics": (
        "Tablet 11", "Phone 6.1", "Laptop 14", "Television 55", "Headphones", "Robot Vacuum",
        "Smart Watch",
        "Camera", "Monitor 27", "Speaker",
    ),
    "Home": (
        "Desk Lamp", "Bookshelf", "Rice Cooker", "Air Purifier", "Bed Linen", "Dining Chair",
        "Kettle", "Curtain",
        "Storage Box", "Carpet",
    ),
    "Grocery": (
        "Green Tea", "Rice 5 kg", "Cooking Oil", "Oat Milk", "Noodles", "Dried Fruit",
        "Coffee Beans", "Honey",
        "Mixed Nuts", "Soy Sauce",
    ),
    "Apparel": (
        "Down Jacket", "Shirt", "Jeans", "Knitwear", "Trainers", "Scarf", "Raincoat", "Socks",
        "Skirt", "Cap",
    ),
    "Beauty": (
        "Face Cream", "Sunscreen", "Shampoo", "Serum", "Lip Balm", "Body Lotion", "Face Mask",
        "Hand Cream",
        "Perfume", "Toothpaste",
    ),
    "Sports": (
        "Yoga Mat", "Running Vest", "Badminton Racket", "Dumbbell", "Tent", "Bicycle Helmet",
        "Football",
        "Swim Goggles", "Skipping Rope", "Backpack",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Product:
    """One article: list price and unit cost in CNY, and how often it is chosen
    within its category.
    """

    product_id: int
    name: str
    category: int
    list_price: float
    unit_cost: float
    popularity: float


def products() -> tuple[Product, ...]:
    """Return every product, by category and then by descending popularity."""
    normal = NormalDist()
    found: list[Product] = []
    for index, category in enumerate(plan.CATEGORIES):
        names = [f"{noun} {line}" for line in _LINES for noun in _NOUNS[category.name]]
        for rank, name in enumerate(names):
            # Prices are spread log-normally; the stride of 17 keeps popularity and price unrelated.
            quantile = ((rank * 17) % len(names) + 0.5) / len(names)
            price = max(
                9.0,
                round(category.price * math.exp(0.55 * normal.inv_cdf(quantile)) / 10) * 10 - 1.0,
            )
            cost = round(price * category.cost_ratio * (0.94 + 0.12 * quantile), 2)
            found.append(
                Product((index + 1) * 1000 + rank + 1, name, index, price, cost, 1 / (rank + 4))
            )
    return tuple(found)


def mean_amounts(catalogue: Sequence[Product]) -> tuple[float, ...]:
    """Return the expected amount of one order in CNY for each category, discounts taken off."""
    quantity = sum(
        q * share for q, share in zip(plan.QUANTITIES, plan.QUANTITY_SHARES, strict=True)
    )
    kept = sum(
        (1 - d) * share for d, share in zip(plan.DISCOUNTS, plan.DISCOUNT_SHARES, strict=True)
    )
    means: list[float] = []
    for index in range(len(plan.CATEGORIES)):
        own = [product for product in catalogue if product.category == index]
        price = sum(p.list_price * p.popularity for p in own) / sum(p.popularity for p in own)
        means.append(price * quantity * kept)
    return tuple(means)


def customer_blocks(rows: int) -> tuple[tuple[int, int], ...]:
    """Return for each region its customers as (first customer_id, how many);
    every region has some.
    """
    total = min(MAX_CUSTOMERS, max(MIN_CUSTOMERS, rows // ORDERS_PER_CUSTOMER))
    blocks: list[tuple[int, int]] = []
    first = 1
    for index, region in enumerate(plan.REGIONS):
        share = region.share if index == plan.EAST else (1 - plan.EAST_SHARE) * region.share
        count = max(1, round(total * share))
        blocks.append((first, count))
        first += count
    return tuple(blocks)
