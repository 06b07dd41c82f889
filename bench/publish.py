"""Replay the history of a public metric registry through publishing, and time what readers see.

Run: `python -m bench.publish [--changes 20]`; `CTX_CORPORA` names the folder of public corpora.

First, every change of `metric_hub/versions.jsonl` in the order of time: all changes of one instant
are one publish at that instant, then the stages absorb it, then each changed metric is asked for:
its pack has to hold the live definition and no other. Then packs of random moments of the past
(`as_of`). At last, new versions are published and built while another process assembles in a loop:
every pack holds exactly one version, and one that began after the build returned not the version
before. `python -m bench.publish_switch` does so with `ctx publish`, and kills some of them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import sqlglot

from ctx_pipeline.building.generation import current_generation
from ctx_pipeline.building.pipeline import Pipeline
from ctx_pipeline.contracts import ContextRequest, Identity, Task
from ctx_pipeline.index.history import published_generation
from ctx_pipeline.orchestration.publish import DefinitionFile, publish
from ctx_pipeline.project import ContextProject
from ctx_pipeline.workspace import Workspace
from testing.artifacts import STAGES, WordEmbedder, open_workspace, write_config

REPOSITORY = Path(__file__).resolve().parent.parent
CORPORA = Path(os.environ.get("CTX_CORPORA", REPOSITORY.parent / "shared" / "corpora"))
ANA = Identity(principal="ana", tenant="acme", groups=("analysts",))
PAST_PACKS = 50
SEED = 7


@dataclass(frozen=True)
class Change:
    """One version of one metric, and when it counted."""

    product: str
    name: str
    version: int
    begins: datetime
    ends: datetime | None
    removed: bool
    definition: Mapping[str, Any]

    @property
    def metric(self) -> str:
        """Name in the registry: products share names."""
        return f"{self.product}.{self.name}"

    @property
    def item_id(self) -> str:
        """Id of the item."""
        return f"metric:registry/{self.metric}"

    @property
    def question(self) -> str:
        """What a person would ask."""
        return f"what is {self.metric} ({self.definition.get('friendly_name') or self.name})?"

    def record(self) -> dict[str, Any]:
        """Return the definition in our own format; its SQL is BigQuery's."""
        found = {
            "name": self.metric,
            "version": self.version,
            "valid_from": self.begins.isoformat(),
        }
        sql = self.definition.get("select_expression")
        if sql:
            found["expression"] = sqlglot.transpile(sql, read="bigquery", write="duckdb")[0]
        if self.definition.get("friendly_name"):
            found["synonyms"] = [self.definition["friendly_name"]]
        names = {
            "data_source": "table",
            "description": "description",
            "category": "category",
            "type": "aggregation",
        }
        return found | {
            ours: self.definition[name] for name, ours in names.items() if self.definition.get(name)
        }


def read_changes() -> list[Change]:
    """Return the metrics of the corpus, oldest first."""
    lines = (CORPORA / "metric_hub" / "versions.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for line in lines if (row := json.loads(line))["kind"] == "metrics"]
    changes = [
        Change(
            product=row["product"],
            name=row["name"],
            version=row["version"],
            begins=_moment(row["valid_from"]),
            ends=_moment(row["valid_to"]) if row.get("valid_to") else None,
            removed=row["end"] == "removed",
            definition=row["def"],
        )
        for row in rows
    ]
    return sorted(changes, key=lambda change: (change.begins, change.metric, change.version))


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@dataclass
class Replay:
    """What the replay counted and how long its parts took."""

    instants: int = 0
    changes: int = 0
    removals: int = 0
    packs: int = 0
    superseded: int = 0
    missing: int = 0
    removed_shown: int = 0
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


def open_reader(home: Path) -> ContextProject:
    """Open the project with an embedder that costs nothing."""
    return ContextProject(Workspace.open(home, embedder=WordEmbedder()))


def absorb(home: Path, at: datetime) -> None:
    """Run what the sensor's run runs: the stages, when the record has moved past the artifact."""
    with open_workspace(home, at) as workspace:
        if current_generation(workspace) != published_generation(workspace.layout):
            pipeline = Pipeline(workspace)
            for stage in STAGES:
                getattr(pipeline, stage)()


def instants(changes: list[Change]) -> Iterator[tuple[datetime, list[Change], list[Change]]]:
    """Yield each moment with what begins and what is removed then."""
    begins: dict[datetime, list[Change]] = defaultdict(list)
    removed: dict[datetime, list[Change]] = defaultdict(list)
    for change in changes:
        begins[change.begins].append(change)
        if change.removed and change.ends is not None:
            removed[change.ends].append(change)
    for moment in sorted({*begins, *removed}):
        yield moment, begins[moment], removed[moment]


def replay(home: Path, changes: list[Change]) -> Replay:
    """Publish the whole history, and ask for each changed metric at each instant."""
    done = Replay()
    live: dict[str, Change] = {}
    with open_reader(home) as project:
        for moment, begun, removed in instants(changes):
            live.update({change.metric: change for change in begun})
            gone = [change for change in removed if live.get(change.metric) is change]
            for change in gone:
                del live[change.metric]
            touched = {change.product for change in (*begun, *gone)}
            files = [_product_file(product, live) for product in sorted(touched)]
            with _timed(done, "publish"):
                report = publish(home, files, yes=True, build=False, clock=lambda now=moment: now)
            if not report.published:
                raise SystemExit(
                    [finding.message for finding in report.findings if finding.severity == "error"]
                )
            with _timed(done, "absorb"):
                absorb(home, moment)
            done.instants += 1
            done.changes += len(begun)
            done.removals += len(gone)
            for change in (*begun, *gone):
                with _timed(done, "pack"):
                    shown = ask(project, change.question, at=moment)
                _judge(done, change, shown, live)
    return done


def _product_file(product: str, live: Mapping[str, Change]) -> DefinitionFile:
    records = [change.record() for _, change in sorted(live.items()) if change.product == product]
    content = json.dumps({"metrics": records}, ensure_ascii=False, indent=1)
    return DefinitionFile(f"{product}.yaml", content=content.encode())


class _timed:
    def __init__(self, done: Replay, name: str) -> None:
        self.times = done.seconds[name]

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.times.append(time.perf_counter() - self.started)


def ask(project: ContextProject, question: str, **when: datetime) -> dict[str, set[int]]:
    """Return the versions of each metric in the default pack for a question."""
    request = ContextRequest(task=Task(text=question), identity=ANA, as_of=when.get("as_of"))
    pack = project.assemble(request, at=when["at"])
    found: dict[str, set[int]] = defaultdict(set)
    for item in pack.items:
        if item.item_id.startswith("metric:"):
            found[item.item_id].add(int(item.version))
    return found


def _judge(
    done: Replay, change: Change, shown: Mapping[str, set[int]], live: Mapping[str, Change]
) -> None:
    done.packs += 1
    current = {found.item_id: found.version for found in live.values()}
    done.superseded += sum(
        1 for item, versions in shown.items() if item in current and versions != {current[item]}
    )
    done.removed_shown += sum(1 for item in shown if item not in current)
    if change.metric in live and change.item_id not in shown:
        done.missing += 1


def past(home: Path, changes: list[Change], at: datetime) -> tuple[int, int]:
    """Return how many of the packs of random moments held exactly the version of that moment, and
    of how many.
    """
    chosen = random.Random(SEED)
    right = 0
    with open_reader(home) as project:
        for _ in range(PAST_PACKS):
            change = chosen.choice(changes)
            until = change.ends or at
            moment = change.begins + (until - change.begins) * chosen.random()
            shown = ask(project, change.question, at=at, as_of=moment)
            right += shown.get(change.item_id) == {change.version}
    return right, PAST_PACKS


# --- two processes


def read_in_a_loop(
    home: str, question: str, item_id: str, ready: Any, stop: Any, results: Any
) -> None:
    """Assemble until told to stop; hand back (begun, ended, versions) of every pack, in monotonic
    seconds.
    """
    packs: list[tuple[float, float, tuple[int, ...]]] = []
    with open_reader(Path(home)) as project:
        while not stop.is_set():
            begun = time.monotonic()
            shown = ask(project, question, at=datetime.now(UTC))
            packs.append((begun, time.monotonic(), tuple(shown.get(item_id, ()))))
            ready.set()
    results.put(packs)


def race(home: Path, change: Change, count: int) -> list[dict[str, float]]:
    """Publish `count` new versions while another process assembles; return what each publish took,
    in seconds.
    """
    context = multiprocessing.get_context("spawn")
    ready, stop, results = context.Event(), context.Event(), context.Queue()
    arguments = (str(home), change.question, change.item_id, ready, stop, results)
    child = context.Process(target=read_in_a_loop, args=arguments)
    child.start()
    ready.wait(60)
    moments: list[tuple[int, float, float]] = []
    for old in range(change.version, change.version + count):
        record = {
            **change.record(),
            "version": old + 1,
            "valid_from": datetime.now(UTC).isoformat(),
        }
        record["description"] = f"Version {old + 1} of the definition"
        called = time.monotonic()
        publish(home, [_with_record(home, change, record)], build=False)
        absorb(home, datetime.now(UTC))
        moments.append((old, called, time.monotonic()))
        time.sleep(0.2)
    stop.set()
    packs = results.get(timeout=60)
    child.join(30)
    return [_measured(packs, *moment) for moment in moments]


def _with_record(home: Path, change: Change, record: Mapping[str, Any]) -> DefinitionFile:
    name = f"{change.product}.yaml"
    document = json.loads((home / "semantic" / name).read_text(encoding="utf-8"))
    metrics = [
        record if metric["name"] == change.metric else metric for metric in document["metrics"]
    ]
    return DefinitionFile(
        name, content=json.dumps({"metrics": metrics}, ensure_ascii=False, indent=1).encode()
    )


def _measured(
    packs: list[tuple[float, float, tuple[int, ...]]], old: int, called: float, built: float
) -> dict[str, float]:
    with_old = [(begun, ended) for begun, ended, versions in packs if old in versions]
    with_new = [ended for _, ended, versions in packs if old + 1 in versions]
    meanwhile = [versions for begun, _, versions in packs if called <= begun <= built]
    return {
        "late": sum(begun > built for begun, _ in with_old),
        "gaps": sum(len(versions) != 1 for versions in meanwhile),
        "publish": built - called,
        "last_old": max((ended - called for _, ended in with_old), default=0.0),
        "first_new": min(with_new, default=float("nan")) - called,
        "packs": len(meanwhile),
    }


# --- what is printed


def main() -> None:
    """Run all three parts and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--changes", type=int, default=20, help="versions published while another process assembles"
    )
    arguments = parser.parse_args()
    changes = read_changes()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_config(home, {"registry": {"kind": "semantic_registry", "path": "semantic"}})
        started = time.perf_counter()
        done = replay(home, changes)
        took = time.perf_counter() - started
        at = max(change.ends or change.begins for change in changes) + timedelta(days=1)
        right, asked = past(home, changes, at)
        print(f"replay of {done.instants} instants in {took:.0f} s")
        counts = ("changes", "removals", "packs", "superseded", "missing", "removed_shown")
        print("  " + "  ".join(f"{name} {getattr(done, name)}" for name in counts))
        for name, times in done.seconds.items():
            print(f"  {name:8} {_spread(times)}  of {len(times)}, {sum(times):.1f} s in all")
        print(f"as_of: {right} of {asked} packs hold exactly the version of their moment")
        last = max(
            (change for change in changes if change.ends is None),
            key=lambda one: (one.version, one.metric),
        )
        rows = race(home, last, arguments.changes)
        late = int(sum(row["late"] for row in rows))
        gaps = int(sum(row["gaps"] for row in rows))
        print(
            f"race of {len(rows)} publishes: {late} packs begun after the build hold the old "
            "version"
        )
        print(f"  packs meanwhile that hold not exactly one version: {gaps}")
        labels = {
            "publish": "publish and build",
            "last_old": "to the last pack with the old version",
            "first_new": "to the first pack with the new version",
        }
        for name, label in labels.items():
            print(f"  {label:40} {_spread([row[name] for row in rows])}")
        print(f"  packs assembled meanwhile: {int(sum(row['packs'] for row in rows))}")
    if done.superseded or done.missing or done.removed_shown or late or gaps:
        raise SystemExit(1)


def _spread(times: list[float]) -> str:
    return f"p50 {np.percentile(times, 50) * 1_000:7.1f} ms  max {max(times) * 1_000:7.1f} ms"


if __name__ == "__main__":
    main()
