"""Creating the demo project: text files, small tables, orders, and a stamp
that says it is whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from ctx_pipeline.demo import plan
from ctx_pipeline.errors import Conflict, InvalidRequest
from ctx_pipeline.machine_faults import typed_system_errors

DEFAULT_ROWS = 1_000_000
DEFAULT_SEED = 20261130
DEMO_VERSION = 1
"""Grows when the same rows and seed would give other content."""

CLOCK = datetime(2026, 11, 30, tzinfo=UTC)
QUESTIONS: Mapping[str, str] = MappingProxyType(
    {"en": "East region GMV last month, year on year?", "zh": "华东区上个月 GMV 同比"}
)
TABLES = ("orders", "regions", "customers", "products")

STAMP = ".demo.json"
_STARTED = ".demo.started"
_LOCK = ".demo.lock"
_OWN_MARKS = frozenset({STAMP, _STARTED, _LOCK})

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total); the stages are `files`, `tables` and `orders`, the last counted
in rows."""


@dataclass(frozen=True, slots=True)
class DemoProject:
    """A demo on disk. `clock` is the time at which its questions are asked."""

    home: Path
    orders_path: Path
    """Folder with one Parquet file a month, `2024-11.parquet` to `2026-11.parquet`."""
    questions: Mapping[str, str]
    clock: datetime

    @property
    def tables(self) -> dict[str, Path]:
        """Folders of Parquet files by table name."""
        return {name: self.home / "warehouse" / name for name in TABLES}


def create_demo(
    target: Path,
    *,
    rows: int = DEFAULT_ROWS,
    seed: int = DEFAULT_SEED,
    progress: Progress | None = None,
) -> DemoProject:
    """Create the demo retailer in `target`, or return the one that is there.

    The same rows and seed give the same text bytes and the same orders. A whole demo with these
    rows and seed is left as it is, edits included; one that was interrupted is completed.

    Raises:
        Conflict: `target` holds something else: other files, or a demo of other rows, seed or
            version.
        InvalidRequest: `rows` is outside 2,000 to 1,000,000,000, or `seed` is negative.
        Unavailable: the folder cannot be written (`cannot_write`), or the disk is full
            (`disk_full`).
    """
    _check_arguments(rows, seed)
    home = target.expanduser().absolute()
    wanted = {"demo_version": DEMO_VERSION, "rows": rows, "seed": seed}
    found = DemoProject(
        home=home, orders_path=home / "warehouse" / "orders", questions=QUESTIONS, clock=CLOCK
    )
    if _is_whole(home, wanted):
        return found
    _refuse_foreign(home)
    from filelock import FileLock

    with typed_system_errors(home):
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / _LOCK):
            # Another process may have completed it while this one waited.
            if not _is_whole(home, wanted):
                _write_atomically(home / _STARTED, b"{}\n")
                _fill(home, rows=rows, seed=seed, progress=progress or _silent)
                _write_atomically(
                    home / STAMP, (json.dumps(wanted, sort_keys=True) + "\n").encode()
                )
                (home / _STARTED).unlink(missing_ok=True)
    return found


def demo_files() -> dict[str, bytes]:
    """Return the text files of the demo by path relative to its home, sorted."""
    found = dict(_walk(files("ctx_pipeline.demo") / "files", PurePosixPath()))
    return {path: found[path] for path in sorted(found)}


def _silent(stage: str, done: int, total: int) -> None:
    del stage, done, total


def _check_arguments(rows: int, seed: int) -> None:
    if not plan.MIN_ROWS <= rows <= plan.MAX_ROWS:
        raise InvalidRequest(
            f"the demo cannot have {rows} orders",
            where="rows",
            fix=f"choose between {plan.MIN_ROWS} and {plan.MAX_ROWS}",
        )
    if seed < 0:
        raise InvalidRequest(
            f"seed {seed} is negative", where="seed", fix="choose 0 or a positive whole number"
        )


def _is_whole(home: Path, wanted: Mapping[str, int]) -> bool:
    """Tell whether `home` holds the wanted demo.

    Raises:
        Conflict: it holds another demo.
    """
    try:
        stamp = json.loads((home / STAMP).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as cause:
        raise Conflict(
            "the stamp of this demo cannot be read",
            where=str(home / STAMP),
            fix="choose another folder, or remove this one",
        ) from cause
    if stamp != wanted:
        raise Conflict(
            f"this folder holds another demo than {dict(wanted)}",
            where=str(home),
            fix=(
                "choose another folder, ask for the rows and seed in "
                ".demo.json, or remove this folder"
            ),
        )
    return True


def _refuse_foreign(home: Path) -> None:
    if home.exists() and not home.is_dir():
        raise Conflict(
            "this is a file, not a folder", where=str(home), fix="choose a new or empty folder"
        )
    if not home.is_dir() or (home / _STARTED).exists():
        return
    if any(entry.name not in _OWN_MARKS for entry in home.iterdir()):
        raise Conflict(
            "this folder is not empty and is not a demo",
            where=str(home),
            fix="choose a new or empty folder",
        )


def _fill(home: Path, *, rows: int, seed: int, progress: Progress) -> None:
    text = demo_files()
    for done, (path, content) in enumerate(text.items(), start=1):
        _write_atomically(home / path, content)
        progress("files", done, len(text))
    from ctx_pipeline.demo import tables
    from ctx_pipeline.demo.goods import customer_blocks, mean_amounts, products
    from ctx_pipeline.demo.orders import OrderMaker

    catalogue = products()
    blocks = customer_blocks(rows)
    small = {
        "regions": tables.regions_table(),
        "products": tables.products_table(catalogue),
        "customers": tables.customers_table(blocks, seed=seed),
    }
    for done, (name, table) in enumerate(small.items(), start=1):
        tables.write_table(home / "warehouse" / name / f"{name}.parquet", table)
        progress("tables", done, len(small))
    maker = OrderMaker(catalogue, blocks, seed=seed)
    done = 0
    for month in plan.plan_months(rows, mean_amounts(catalogue)):
        path = home / "warehouse" / "orders" / f"{month.year}-{month.month:02}.parquet"
        tables.write_table(path, tables.orders_table(maker.columns(month)))
        done += sum(month.order_counts)
        progress("orders", done, rows)


def _walk(folder: Traversable, under: PurePosixPath) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        path = under / entry.name
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _walk(entry, path)
        else:
            yield str(path), entry.read_bytes()


def _write_atomically(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.tmp")
    partial.write_bytes(content)
    os.replace(partial, path)
