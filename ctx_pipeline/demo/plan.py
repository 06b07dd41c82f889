"""What the demo retailer sells, where, and how its sales move: plain numbers, no libraries.

The reference plant is **year on year**: October 2026 against October 2025. GMV falls 13.7 % in
total, 21.9 % in the East region, 31.0 % for Electronics in the East, and 4.5 % in every other
region and category. Month on month (against September 2026) the fall is a different one, so that a
mixed-up convention shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIN_ROWS = 2_000
"""Fewer rows could not give each month, region and category one paid order."""
MAX_ROWS = 1_000_000_000

FIRST_MONTH = (2024, 11)
LAST_MONTH = (2026, 11)
PLANT_MONTH = (2026, 10)
BASE_MONTH = (2025, 10)
LAST_DAY_OF_DATA = 29
"""The clock of the demo is 2026-11-30T00:00:00Z: the last month has 29 complete days."""

PLANT_TOTAL = -0.137
PLANT_EAST = -0.219
PLANT_CAUSE = -0.310
PLANT_ELSEWHERE = -0.045

# Shares that make the four numbers hold together: with share x of the cause and e of the East,
#   x * cause + (1 - x) * elsewhere = total    and    (x * cause + (e - x) * elsewhere) / e = east.
CAUSE_SHARE = (PLANT_TOTAL - PLANT_ELSEWHERE) / (PLANT_CAUSE - PLANT_ELSEWHERE)
EAST_SHARE = (PLANT_TOTAL - PLANT_ELSEWHERE) / (PLANT_EAST - PLANT_ELSEWHERE)

STATUSES = ("paid", "refunded", "cancelled")
STATUS_SHARES = (0.91, 0.06, 0.03)
CHANNELS = ("app", "web", "store", "partner")
CHANNEL_SHARES = (0.46, 0.18, 0.24, 0.12)
PAYMENT_METHODS = ("wallet", "card", "instalment", "bank_transfer", "cash_on_delivery")
PAYMENT_SHARES = (0.55, 0.24, 0.11, 0.06, 0.04)
QUANTITIES = (1, 2, 3, 4, 6)
QUANTITY_SHARES = (0.66, 0.19, 0.08, 0.05, 0.02)
DISCOUNTS = (0.0, 0.05, 0.10, 0.15, 0.25)
DISCOUNT_SHARES = (0.40, 0.22, 0.20, 0.12, 0.06)
SELF_OPERATED_SHARE = 0.74
"""Of app and web orders; stores are always self-operated, partners never."""

EAST = 0
ELECTRONICS = 0


@dataclass(frozen=True, slots=True)
class Region:
    """One sales region: its share of GMV outside the East, its growth a year, its provinces with
    shares.
    """

    region_id: int
    name: str
    name_zh: str
    share: float
    growth: float
    provinces: tuple[tuple[str, str, float], ...]


@dataclass(frozen=True, slots=True)
class Category:
    """One product category: share of GMV in a usual region, typical list price in CNY, cost as a
    share of price.
    """

    name: str
    name_zh: str
    share: float
    price: float
    cost_ratio: float


REGIONS = (
    Region(1, "East", "华东", EAST_SHARE, 1.02, (
        ("Shanghai", "上海", 0.24), ("Jiangsu", "江苏", 0.22), ("Zhejiang", "浙江", 0.21),
        ("Shandong", "山东", 0.13),
        ("Fujian", "福建", 0.09), ("Anhui", "安徽", 0.07), ("Jiangxi", "江西", 0.04),
    )),
    Region(2, "North", "华北", 0.25, 1.04, (
        ("Beijing", "北京", 0.45), ("Tianjin", "天津", 0.18), ("Hebei", "河北", 0.21),
        ("Shanxi", "山西", 0.11),
        ("Inner Mongolia", "内蒙古", 0.05),
    )),
    Region(3, "South", "华南", 0.31, 1.05, (
        ("Guangdong", "广东", 0.76), ("Guangxi", "广西", 0.16), ("Hainan", "海南", 0.08),
    )),
    Region(4, "Central", "华中", 0.19, 1.03, (
        ("Hubei", "湖北", 0.39), ("Henan", "河南", 0.34), ("Hunan", "湖南", 0.27),
    )),
    Region(5, "West", "西部", 0.16, 1.06, (
        ("Sichuan", "四川", 0.40), ("Chongqing", "重庆", 0.22), ("Shaanxi", "陕西", 0.20),
        ("Yunnan", "云南", 0.12),
        ("Gansu", "甘肃", 0.06),
    )),
    Region(6, "Northeast", "东北", 0.09, 0.99, (
        ("Liaoning", "辽宁", 0.50), ("Jilin", "吉林", 0.22), ("Heilongjiang", "黑龙江", 0.28),
    )),
)  # fmt: skip

CATEGORIES = (
    Category("Electronics", "电子产品", 0.44, 1_499.0, 0.82),
    Category("Home", "家居", 0.16, 459.0, 0.63),
    Category("Grocery", "食品杂货", 0.13, 89.0, 0.79),
    Category("Apparel", "服饰", 0.13, 259.0, 0.52),
    Category("Beauty", "美妆", 0.08, 219.0, 0.48),
    Category("Sports", "运动", 0.06, 329.0, 0.60),
)

# Level of a calendar month relative to October.
SEASON = (0.92, 0.80, 0.88, 0.90, 0.95, 1.18, 0.93, 0.92, 0.94, 1.00, 1.35, 1.08)
# (category, calendar month) -> lift of that category alone. October has none, so that the plant's
# shares hold.
CATEGORY_LIFT = {
    (0, 6): 1.10,
    (0, 11): 1.12,
    (1, 3): 1.08,
    (2, 1): 1.15,
    (2, 2): 1.20,
    (3, 12): 1.10,
    (5, 4): 1.10,
}
# After the plant: November 2026 against November 2025.
AFTER_CAUSE = 0.76
AFTER_ELSEWHERE = 0.97

CELLS = tuple(
    (region, category) for region in range(len(REGIONS)) for category in range(len(CATEGORIES))
)
"""Every pair (region index, category index), in the order of all arrays over cells."""


def months() -> tuple[tuple[int, int], ...]:
    """Return every (year, month) with orders, oldest first."""
    first, last = (year * 12 + month - 1 for year, month in (FIRST_MONTH, LAST_MONTH))
    return tuple((index // 12, index % 12 + 1) for index in range(first, last + 1))


def cell_shares() -> tuple[float, ...]:
    """Return each cell's share of GMV in the base month, in the order of `CELLS`; they sum to 1."""
    usual = [category.share for category in CATEGORIES]
    others = sum(usual) - usual[ELECTRONICS]
    shares: list[float] = []
    for region, category in CELLS:
        if region != EAST:
            shares.append((1 - EAST_SHARE) * REGIONS[region].share * usual[category])
        elif category == ELECTRONICS:
            shares.append(CAUSE_SHARE)
        else:
            shares.append((EAST_SHARE - CAUSE_SHARE) * usual[category] / others)
    return tuple(shares)


def level(month: tuple[int, int], region: int, category: int) -> float:
    """Return the GMV of a cell in a month relative to the same cell in the base month."""
    year, calendar_month = month
    is_cause = (region, category) == (EAST, ELECTRONICS)
    if month == PLANT_MONTH:
        return 1 + (PLANT_CAUSE if is_cause else PLANT_ELSEWHERE)
    if month > PLANT_MONTH:
        ratio = AFTER_CAUSE if is_cause else AFTER_ELSEWHERE
        return level((year - 1, calendar_month), region, category) * ratio * LAST_DAY_OF_DATA / 30
    elapsed_months = (year - BASE_MONTH[0]) * 12 + calendar_month - BASE_MONTH[1]
    lift = CATEGORY_LIFT.get((category, calendar_month), 1.0)
    return SEASON[calendar_month - 1] * lift * REGIONS[region].growth ** (elapsed_months / 12)


@dataclass(frozen=True, slots=True)
class MonthPlan:
    """How many orders each cell has in a month and what its paid orders sum to, both in the order
    of `CELLS`.
    """

    year: int
    month: int
    order_counts: tuple[int, ...]
    target_cents: tuple[int, ...]
    """GMV of all statuses together, in 1/100 CNY."""
    first_order: int
    """Orders in the months before."""


def plan_months(rows: int, mean_amounts: Sequence[float]) -> tuple[MonthPlan, ...]:
    """Spread `rows` orders over months and cells, each at least one, in proportion to GMV over mean
    amount.

    `mean_amounts` holds the expected amount of an order in CNY for each category.
    """
    shares = cell_shares()
    grid = [
        [share * level(month, *cell) for cell, share in zip(CELLS, shares, strict=True)]
        for month in months()
    ]
    weights = [
        [gmv / mean_amounts[c] for gmv, (_, c) in zip(row, CELLS, strict=True)] for row in grid
    ]
    spare = rows - len(grid) * len(CELLS)
    scale = spare / sum(map(sum, weights))
    total_cents = 100 * rows / sum(map(sum, weights))
    plans: list[MonthPlan] = []
    running = 0.0
    placed = done = 0
    for (year, month), row, row_weights in zip(months(), grid, weights, strict=True):
        counts: list[int] = []
        for weight in row_weights:
            running += weight * scale
            # Rounding the running sum keeps the grand total exact.
            extra = round(running) - placed
            placed += extra
            counts.append(1 + extra)
        plans.append(
            MonthPlan(
                year, month, tuple(counts), tuple(round(gmv * total_cents) for gmv in row), done
            )
        )
        done += sum(counts)
    return tuple(plans)
