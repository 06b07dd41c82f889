"""Measure the ledger: appends by p50 and p99, and a whole assemble, on SQLite and on Postgres, in one run.

`python -m bench.ledger --calls 300 [--postgres postgresql://owner@host]` prints one JSON object. Without an address a
throw-away server is started, which does not sync its commits; name a real one to measure its disk.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import event

from ctx_pipeline.contracts import ContextRequest, Task
from ctx_pipeline.ledger import Ledger
from tests.artifacts import ANA, NOW, make_item, make_project, open_project
from tests.ledger.builders import event as life_event
from tests.ledger.builders import overlay, snapshot
from tests.postgres_server import running_server

ITEMS = 40


def milliseconds(call: Callable[[int], object], calls: int) -> dict[str, float]:
    """Time a call after a tenth of warm-up."""
    taken: list[float] = []
    for number in range(-(calls // 10), calls):
        started = time.perf_counter()
        call(number)
        if number >= 0:
            taken.append((time.perf_counter() - started) * 1_000)
    cuts = statistics.quantiles(taken, n=100)
    return {"p50_ms": round(cuts[49], 3), "p99_ms": round(cuts[98], 3)}


def statements(ledger: Ledger, call: Callable[[int], object]) -> int:
    """Count what one call sends to the database through SQLAlchemy, its queued writes included."""
    sent: list[str] = []
    engine = ledger._database._engine

    def note(connection: object, cursor: object, statement: str, *more: object) -> None:
        sent.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    call(10**6)
    ledger.flush()
    event.remove(engine, "before_cursor_execute", note)
    return len(sent)


def measure(home: Path, url: str, calls: int) -> dict[str, object]:
    """Measure one database."""
    make_project(
        home,
        [make_item(f"doc-{n}", f"refund {n} 退款 rule {n}") for n in range(ITEMS)],
        head=f"[ledger]\nurl = {json.dumps(url)}",
    )
    with Ledger.open(url) as ledger:
        appends = {
            "overlay": milliseconds(lambda n: ledger.append_overlay([overlay()]), calls),
            "events": milliseconds(lambda n: ledger.append_events([life_event(f"item-{n}")]), calls),
            "snapshot_durable": milliseconds(
                lambda n: ledger.submit_snapshot(snapshot(f"d{n}", number=n + calls), durable=True), calls
            ),
            "overlay_sequence": milliseconds(lambda n: ledger.overlay_sequence(), calls),
        }
    return {"appends": appends, **assembles(home, calls)}


def assembles(home: Path, calls: int) -> dict[str, object]:
    """Measure assemble of one project on this ledger."""
    with open_project(home) as project:

        def assemble(number: int, *, durable: bool = False) -> None:
            request = ContextRequest(task=Task(text=f"refund {number % 7} 退款"), run_id=f"r{number}", identity=ANA)
            project.assemble(request, at=NOW, durable=durable)

        queued = milliseconds(assemble, calls)
        project.ledger.flush()
        durable = milliseconds(lambda n: assemble(n + 10 * calls, durable=True), calls)
        return {"assemble": queued, "assemble_durable": durable, "statements": statements(project.ledger, assemble)}


@contextmanager
def _address(given: str | None) -> Iterator[str]:
    if given is not None:
        yield given
        return
    with running_server() as server:
        yield server.database()


def main() -> None:
    """Print one row per database and the ratio of the two."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--calls", type=int, default=300)
    options.add_argument("--postgres", help="URL of an empty database")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, _address(chosen.postgres) as address:
        home = Path(folder)
        rows = {
            "sqlite": measure(home / "one", f"sqlite:///{home / 'ledger.db'}", chosen.calls),
            "postgres": measure(home / "two", address, chosen.calls),
        }
    ratio = {
        name: round(rows["postgres"][name]["p50_ms"] / rows["sqlite"][name]["p50_ms"], 2)  # type: ignore[index]
        for name in ("assemble", "assemble_durable")
    }
    print(json.dumps({"calls": chosen.calls, **rows, "postgres_to_sqlite": ratio}, indent=2))


if __name__ == "__main__":
    main()
