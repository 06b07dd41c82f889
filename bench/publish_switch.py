"""Publish while another process polls, kill some of the publishes, and count what each pack held.

Run: `python -m bench.publish_switch [--publishes 20] [--killed 5] [--seed 7]`.

Each publish is `ctx publish` in a process of its own, as people run it; those that are killed get
SIGKILL at a random moment. A poller assembles without pause and counts the live versions of the
definition in each pack: one that holds none, or two, is a fault, and so is one with the version
before that begins after `ctx publish` returned.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ctx_pipeline.contracts import ContextRequest, Identity, Task
from ctx_pipeline.project import ContextProject
from testing.artifacts import write_config

ANA = Identity(principal="ana", tenant="acme", groups=("analysts",))
ITEM = "metric:registry/gmv"
CTX = (sys.executable, "-c", "from ctx_pipeline.cli.app import main; main()")
PATIENCE_SECONDS = 600


@dataclass
class Outcome:
    """What happened to the publishes, and what the packs held."""

    finished: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    """Version and the moment at which its publish returned."""
    seconds: list[float] = field(default_factory=list[float])
    killed: int = 0
    switched: int = 0
    """Killed publishes after whose death the new version was live."""


def poll(home: str, ready: Any, stop: Any, results: Any) -> None:
    """Assemble until told to stop; hand back when each pack began, and which versions it held."""
    packs: list[tuple[float, tuple[int, ...]]] = []
    with ContextProject.open(home) as project:
        while not stop.is_set():
            begun = time.monotonic()
            packs.append((begun, live(project)))
            ready.set()
    results.put(packs)


def live(project: ContextProject) -> tuple[int, ...]:
    """Return the versions of the definition in the default pack for its question."""
    request = ContextRequest(task=Task(text="what is gmv, 成交总额是什么?"), identity=ANA)
    pack = project.assemble(request, at=datetime.now(UTC))
    return tuple(int(item.version) for item in pack.items if item.item_id == ITEM)


def write_draft(home: Path, version: int) -> Path:
    """Write the file of one version beside the registry."""
    metric = {"name": "gmv", "version": version, "table": "orders", "synonyms": ["成交总额"]}
    metric |= {"expression": f"sum(amount) + {version}", "description": f"Definition {version}"}
    path = home / "drafts" / "gmv.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"metrics": [metric]}, ensure_ascii=False), encoding="utf-8")
    return path


def run_publishes(home: Path, count: int, killed: int, seed: int) -> Outcome:
    """Publish `count` versions one after the other, and kill some of the publishes."""
    chance, outcome = random.Random(seed), Outcome()
    doomed = set(chance.sample(range(2, count + 2), killed))
    with ContextProject.open(home) as project:
        for version in range(2, count + 2):
            draft = write_draft(home, version)
            command = [*CTX, "publish", str(draft), "--home", str(home)]
            began = time.monotonic()
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            if version in doomed:
                usual = outcome.seconds[-1] if outcome.seconds else 10.0
                try:
                    process.wait(chance.random() * usual)
                except subprocess.TimeoutExpired:
                    process.kill()
                outcome.killed += process.wait() < 0
                outcome.switched += live(project) == (version,)
                continue
            if process.wait(PATIENCE_SECONDS) != 0:
                raise SystemExit(f"publishing version {version} failed")
            outcome.finished.append((version, time.monotonic()))
            outcome.seconds.append(time.monotonic() - began)
    return outcome


def main() -> None:
    """Publish beside a poller and print what it saw; the exit code is 1 when that is not one
    version at a time.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--publishes", type=int, default=20)
    parser.add_argument("--killed", type=int, default=5)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_config(
            home, {"registry": {"kind": "semantic_registry", "path": "semantic", "groups": ["*"]}}
        )
        subprocess.run(
            [*CTX, "publish", str(write_draft(home, 1)), "--home", folder],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        context = multiprocessing.get_context("spawn")
        ready, stop, results = context.Event(), context.Event(), context.Queue()
        poller = context.Process(target=poll, args=(folder, ready, stop, results))
        poller.start()
        ready.wait(PATIENCE_SECONDS)
        outcome = run_publishes(home, given.publishes, given.killed, given.seed)
        stop.set()
        packs: list[tuple[float, tuple[int, ...]]] = results.get(timeout=PATIENCE_SECONDS)
        poller.join(PATIENCE_SECONDS)
    report(outcome, packs)


def report(outcome: Outcome, packs: list[tuple[float, tuple[int, ...]]]) -> None:
    """Print the counts, and end with 1 when a pack held anything but one version."""
    held = Counter(len(versions) for _, versions in packs)
    late = sum(
        begun > returned and bool(versions) and max(versions) < version
        for begun, versions in packs
        for version, returned in outcome.finished
    )
    seconds = sorted(outcome.seconds)
    print(f"{len(outcome.seconds)} publishes finished, {outcome.killed} were killed")
    print(f"  publish: p50 {seconds[len(seconds) // 2]:.1f} s  max {seconds[-1]:.1f} s")
    print(f"  after being killed the new version was live: {outcome.switched}")
    more = len(packs) - held[1] - held[0]
    print(
        f"{len(packs)} packs: {held[1]} with one live version, "
        f"{held[0]} with none, {more} with more"
    )
    print(
        f"  {len({versions for _, versions in packs})} different versions "
        f"seen, {late} packs too late with an old one"
    )
    if held[1] != len(packs) or late:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
