"""Measure the ledger: appends by p50 and p99, and a whole assemble, on SQLite and on Postgres, in
turns in one run.

`python -m bench.ledger [--postgres postgresql://owner@host/empty]` prints one JSON object. Without
an address a throw-away server is started, which does not sync its commits; name a real one to
measure its disk.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sqlalchemy import event

from ctx_pipeline.contracts import ContextRequest, Task
from ctx_pipeline.ledger import Ledger
from ctx_pipeline.project import ContextProject
from testing.artifacts import ANA, NOW, make_item, make_project, open_project
from testing.postgres_server import running_server
from tests.ledger.builders import event as life_event
from tests.ledger.builders import overlay, snapshot

ITEMS = 40
Call = Callable[[ContextProject, int], object]


def _durable(project: ContextProject, number: int) -> None:
    project.ledger.submit_snapshot(snapshot(f"d{number}", number=number + 10_000), durable=True)


def _assemble(project: ContextProject, number: int, *, durable: bool = False) -> None:
    request = ContextRequest(
        task=Task(text=f"refund {number % 7} 退款"), run_id=f"{durable}{number}", identity=ANA
    )
    project.assemble(request, at=NOW, durable=durable)


CALLS: dict[str, Call] = {
    "append_overlay": lambda project, n: project.ledger.append_overlay([overlay(f"none-{n}")]),
    "append_events": lambda project, n: project.ledger.append_events([life_event(f"item-{n}")]),
    "append_snapshot": _durable,
    "overlay_sequence": lambda project, n: project.ledger.overlay_sequence(),
    "assemble": _assemble,
    "assemble_durable": lambda project, n: _assemble(project, n, durable=True),
}


def measure(projects: Mapping[str, ContextProject], call: Call, calls: int) -> dict[str, object]:
    """Time a call on each database in turn, after a tenth of warm-up; what is queued is written
    untimed.
    """
    taken: dict[str, list[float]] = {name: [] for name in projects}
    for number in range(-(calls // 10), calls):
        for name, project in projects.items():
            started = time.perf_counter()
            call(project, number)
            if number >= 0:
                taken[name].append((time.perf_counter() - started) * 1_000)
            project.ledger.flush()
    cuts = {name: statistics.quantiles(times, n=100) for name, times in taken.items()}
    row: dict[str, object] = {
        name: {"p50_ms": round(cut[49], 3), "p99_ms": round(cut[98], 3)}
        for name, cut in cuts.items()
    }
    return {**row, "ratio": round(cuts["postgres"][49] / cuts["sqlite"][49], 2)}


def statements(ledger: Ledger, call: Callable[[], object]) -> int:
    """Count the statements of one call, its queued writes included, without the reads of counters
    in SQLite.
    """
    sent: list[str] = []
    engine = ledger._database._engine

    def note(connection: object, cursor: object, statement: str, *more: object) -> None:
        sent.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    call()
    ledger.flush()
    event.remove(engine, "before_cursor_execute", note)
    return len(sent)


@contextmanager
def _address(given: str | None) -> Iterator[str]:
    if given is not None:
        yield given
        return
    with running_server() as server:
        yield server.database()


def _project(home: Path, url: str) -> ContextProject:
    items = [make_item(f"doc-{n}", f"refund {n} 退款 rule {n}") for n in range(ITEMS)]
    return open_project(make_project(home, items, head=f"[ledger]\nurl = {json.dumps(url)}"))


def main() -> None:
    """Print one row per call: both databases, and Postgres as a multiple of SQLite."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--calls", type=int, default=300)
    options.add_argument("--postgres", help="URL of an empty database")
    chosen = options.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = {
            "sqlite": f"sqlite:///{folder / 'ledger.db'}",
            "postgres": stack.enter_context(_address(chosen.postgres)),
        }
        projects = {
            name: stack.enter_context(_project(folder / name, url)) for name, url in urls.items()
        }
        rows = {name: measure(projects, call, chosen.calls) for name, call in CALLS.items()}
        sent = {
            name: statements(project.ledger, lambda project=project: _assemble(project, 10**6))
            for name, project in projects.items()
        }
    print(json.dumps({"calls": chosen.calls, **rows, "statements_per_assemble": sent}, indent=2))


if __name__ == "__main__":
    main()
