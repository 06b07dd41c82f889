"""Orders of one month as columns: every attribute is spread evenly, every total is exact.

Attributes come from a Richtmyer sequence (fractions of multiples of square roots of primes): within
a region and category their shares are met far more closely than by independent draws, so a
comparison of two months shows the plant and not the noise. Amounts are then scaled so that each
total is the planned one to the cent.
"""

from __future__ import annotations

import math
from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

import numpy as np
import numpy.typing as npt

from ctx_pipeline.demo import plan
from ctx_pipeline.demo.goods import Product
from ctx_pipeline.demo.plan import MonthPlan
from ctx_pipeline.text import sha256_hex

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FIRST_ORDER_ID = 100_000_001
STORES_PER_REGION = 40
LATE_DAYS = 2
"""Partner orders of the last two days of data have not arrived: the late partition of the data
quality notice."""

_SPREAD = ("product", "quantity", "discount", "channel", "province", "payment", "status", "own")
_PRIMES = dict(zip(_SPREAD, (2, 3, 5, 7, 11, 13, 17, 19), strict=True))
_WEEKDAY = (0.94, 0.93, 0.95, 0.98, 1.08, 1.12, 1.05)
_HOUR = (
    1.2, 0.6, 0.4, 0.3, 0.3, 0.4, 0.8, 1.6, 2.8, 4.2, 5.4, 5.6,
    5.8, 5.0, 4.6, 4.8, 5.0, 5.2, 5.4, 6.2, 7.4, 7.0, 5.0, 2.6,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rows:
    """Attributes of the orders of a month before amounts are scaled; codes are indices into the
    plan's tuples.
    """

    cell: Ints
    region: Ints
    category: Ints
    status: Ints
    channel: Ints
    payment: Ints
    province: Ints
    product: Ints
    quantity: Ints
    is_self_operated: npt.NDArray[np.bool_]
    weight: Floats
    """Amount in CNY before scaling."""


class OrderMaker:
    """Makes the orders of any month of one demo; the same (rows, seed, month) gives the same
    orders.
    """

    def __init__(
        self, catalogue: Sequence[Product], blocks: Sequence[tuple[int, int]], *, seed: int
    ) -> None:
        self._catalogue = tuple(catalogue)
        self._blocks = tuple(blocks)
        self._seed = seed
        self._by_category = [
            np.array([i for i, p in enumerate(self._catalogue) if p.category == c], dtype=np.int64)
            for c in range(len(plan.CATEGORIES))
        ]
        self._prices: Floats = np.array(
            [product.list_price for product in self._catalogue], dtype=np.float64
        )
        self._cost_ratios = np.array(
            [product.unit_cost / product.list_price for product in self._catalogue]
        )

    def columns(self, month: MonthPlan) -> dict[str, Ints]:
        """Return the orders of `month`, sorted by time.

        Names are codes (indices into the plan's tuples), money is in 1/100 CNY, times are
        microseconds since 1970 (UTC).
        """
        rows = self._attributes(month)
        return self._sorted(month, rows, exact_cents(rows, month))

    def _attributes(self, month: MonthPlan) -> Rows:
        counts = np.array(month.order_counts, dtype=np.int64)
        cell = np.repeat(np.arange(len(plan.CELLS), dtype=np.int64), counts)
        position = np.arange(len(cell), dtype=np.int64) - np.repeat(
            np.cumsum(counts) - counts, counts
        )
        region, category = cell // len(plan.CATEGORIES), cell % len(plan.CATEGORIES)
        spread = {
            name: self._spread(name, prime, cell, position) for name, prime in _PRIMES.items()
        }
        status = _pick(spread["status"], plan.STATUS_SHARES)
        status[position == 0] = 0
        channel = _pick(spread["channel"], plan.CHANNEL_SHARES)
        own = (channel == 2) | ((channel < 2) & (spread["own"] < plan.SELF_OPERATED_SHARE))
        product = self._pick_products(spread["product"], category)
        quantity = np.array(plan.QUANTITIES, dtype=np.int64)[
            _pick(spread["quantity"], plan.QUANTITY_SHARES)
        ]
        kept: Floats = (
            1.0
            - np.array(plan.DISCOUNTS, dtype=np.float64)[
                _pick(spread["discount"], plan.DISCOUNT_SHARES)
            ]
        )
        return Rows(
            cell=cell,
            region=region,
            category=category,
            status=status,
            channel=channel,
            payment=_pick(spread["payment"], plan.PAYMENT_SHARES),
            province=_pick_provinces(spread["province"], region),
            product=product,
            quantity=quantity,
            is_self_operated=own,
            weight=self._prices[product] * quantity * kept,
        )

    def _spread(self, name: str, prime: int, cell: Ints, position: Ints) -> Floats:
        shifts = np.array(
            [_unit(f"{self._seed}/{name}/{index}") for index in range(len(plan.CELLS))]
        )
        return np.mod(shifts[cell] + (position + 1) * math.sqrt(prime), 1.0)

    def _pick_products(self, spread: Floats, category: Ints) -> Ints:
        product = np.empty(len(category), dtype=np.int64)
        for code, own in enumerate(self._by_category):
            mask = category == code
            popularity = [self._catalogue[int(index)].popularity for index in own]
            product[mask] = own[_pick(spread[mask], popularity)]
        return product

    def _sorted(self, month: MonthPlan, rows: Rows, cents: Ints) -> dict[str, Ints]:
        """Add what need not be spread evenly, drawn by a hash of the order, and sort by time."""
        keys = np.arange(month.first_order, month.first_order + len(cents), dtype=np.uint64)
        draws = ("day", "hour", "second", "customer", "store")
        draw = {name: hash_unit(keys, f"{self._seed}/{name}") for name in draws}
        micros = _order_times(month, rows.channel, draw)
        order = np.argsort(micros, kind="stable")
        first = np.array([block[0] for block in self._blocks])[rows.region]
        block_size = np.array([block[1] for block in self._blocks])[rows.region]
        # The power favours low ids: few customers buy often.
        customer = first + (block_size * draw["customer"] ** 1.6).astype(np.int64)
        store = (rows.region + 1) * 100 + 1 + (draw["store"] * STORES_PER_REGION).astype(np.int64)
        cost = np.rint(cents * self._cost_ratios[rows.product]).astype(np.int64)
        product_ids = np.array([product.product_id for product in self._catalogue], dtype=np.int64)
        return {
            "order_id": FIRST_ORDER_ID + month.first_order + np.arange(len(cents), dtype=np.int64),
            "ordered_at": micros[order],
            "customer_id": customer[order],
            "product_id": product_ids[rows.product[order]],
            "region": rows.region[order],
            "province": rows.province[order],
            "channel": rows.channel[order],
            "category": rows.category[order],
            "payment_method": rows.payment[order],
            "status": rows.status[order],
            "quantity": rows.quantity[order],
            "amount": cents[order],
            "cost": cost[order],
            "is_self_operated": rows.is_self_operated[order].astype(np.int64),
            "store_id": store[order],
        }


def exact_cents(rows: Rows, month: MonthPlan) -> Ints:
    """Return amounts in 1/100 CNY whose totals are the planned ones exactly.

    Paid orders meet the target of their region and category. Refunded and cancelled orders, which
    are few, meet that of the plant's three parts (Electronics in the East, the rest of the East,
    elsewhere), so that the plant holds whichever statuses a metric counts.
    """
    cells = len(plan.CELLS)
    part = np.array([_part(*cell) for cell in plan.CELLS], dtype=np.int64)
    group = np.where(rows.status == 0, rows.cell, cells + part[rows.cell] * 2 + rows.status - 1)
    targets = np.zeros(cells + 6)
    targets[:cells] = np.array(month.target_cents) * plan.STATUS_SHARES[0]
    for status in (1, 2):
        sums = np.bincount(part, weights=np.array(month.target_cents, dtype=float), minlength=3)
        targets[cells + status - 1 :: 2] = sums * plan.STATUS_SHARES[status]
    targets = np.rint(targets)
    sums = np.bincount(group, weights=rows.weight, minlength=len(targets))
    factor = np.divide(targets, sums, out=np.zeros_like(targets), where=sums > 0)
    cents = np.maximum(np.rint(rows.weight * factor[group]), 1).astype(np.int64)
    _settle(cents, group, targets.astype(np.int64))
    return cents


def _settle(cents: Ints, group: Ints, targets: Ints) -> None:
    """Put what rounding left over, a few cents, on the largest order of each group."""
    order = np.lexsort((cents, group))
    last = np.flatnonzero(np.diff(group[order], append=-1) != 0)
    ends = np.cumsum(cents[order])[last]
    sums = np.diff(ends, prepend=0)
    present = group[order][last]
    cents[order[last]] += targets[present] - sums


def _part(region: int, category: int) -> int:
    if region != plan.EAST:
        return 2
    return 0 if category == plan.ELECTRONICS else 1


def _order_times(month: MonthPlan, channel: Ints, draw: dict[str, Floats]) -> Ints:
    """Return microseconds since 1970 (UTC) for each order."""
    is_last = (month.year, month.month) == plan.LAST_MONTH
    days = plan.LAST_DAY_OF_DATA if is_last else monthrange(month.year, month.month)[1]
    weights = [_WEEKDAY[date(month.year, month.month, day + 1).weekday()] for day in range(days)]
    day = _pick(draw["day"], weights)
    if is_last:
        # The seven-day step keeps the weekday.
        day[(channel == plan.CHANNELS.index("partner")) & (day >= days - LATE_DAYS)] -= 7
    hour = _pick(draw["hour"], _HOUR)
    start = int(datetime(month.year, month.month, 1, tzinfo=UTC).timestamp())
    seconds = start + day * 86_400 + hour * 3_600 + (draw["second"] * 3_600).astype(np.int64)
    return seconds * 1_000_000


def _pick_provinces(spread: Floats, region: Ints) -> Ints:
    province = np.empty(len(region), dtype=np.int64)
    offset = 0
    for code, entry in enumerate(plan.REGIONS):
        mask = region == code
        province[mask] = offset + _pick(spread[mask], [share for _, _, share in entry.provinces])
        offset += len(entry.provinces)
    return province


def _pick(spread: Floats, shares: Sequence[float]) -> Ints:
    """Return for each number in [0, 1) the index whose share of the interval holds it."""
    edges = np.cumsum(np.array(shares, dtype=float))
    return np.searchsorted(edges[:-1] / edges[-1], spread, side="right").astype(np.int64)


def _unit(label: str) -> float:
    return int(sha256_hex(label)[:13], 16) / 2**52


def hash_unit(keys: npt.NDArray[np.uint64], label: str) -> Floats:
    """Return a number in [0, 1) for each key: the finaliser of SplitMix64 over key and label."""
    mixed = (keys + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(
        int(sha256_hex(label)[:16], 16)
    )
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return (mixed >> np.uint64(11)).astype(np.float64) / 2**53
