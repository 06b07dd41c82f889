"""Time one assembly, stage by stage, beside a straight-line floor that does the same work over the
same columns.

Run: `python -m bench.assemble [--items 10000 100000 1000000] [--calls 200] [--open-share 1.0]
[--home DIR]`. Query embedding is not timed: vectors are seeded. With `--home` an artifact that was
built is kept, and used again. The floor is one function without contracts, policies, traces'
reasons or checks: mask, exact dot product, BM25, score, greedy fill, render, hash, and the same
record handed to the same ledger.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from bench.synthetic import BUILT, query_texts, query_vectors
from ctx_pipeline.config.profiles import model_profile
from ctx_pipeline.contracts import ContextPolicy, ContextRequest, Identity, Rendition, Task
from ctx_pipeline.engine import Engine
from ctx_pipeline.index.serving import ServingIndex
from ctx_pipeline.index.view import ServingView
from ctx_pipeline.ledger import Ledger, OverlayEntry, SnapshotRecord
from ctx_pipeline.security.visibility import Clock, Viewer, micros
from ctx_pipeline.stages.call import Call

AT = datetime(2026, 11, 30, tzinfo=UTC)
BUDGET = 8_000
LIMIT = 64
TURN = 20
"""Calls of one side before the other has its turn."""
GROUPS = ("g1", "g2")
RECALL_QUERIES = 20


def floor(
    view: ServingView, ledger: Ledger, tenant: str, text: str, vector: np.ndarray, number: int
) -> int:
    """Do the work of one assembly in the straightest line; return the tokens used."""
    reader, state = view.reader, view.state
    at = micros(AT)
    first, last = reader.tenants[tenant]
    allowed = np.array(
        [
            label.tenant == tenant and not {"*", *GROUPS}.isdisjoint(label.groups)
            for label in view.labels
        ]
    )
    mask = (
        allowed[state.scope[first:last]]
        & (state.valid_from[first:last] <= at)
        & (state.valid_until[first:last] > at)
        & (state.superseded_at[first:last] > at)
        & (state.state[first:last] == 0)
    )
    rows = np.flatnonzero(mask) + first
    scores = reader.vectors[rows] @ vector
    top = np.argpartition(scores, -LIMIT)[-LIMIT:]
    dense = dict(zip(rows[top].tolist(), scores[top].tolist(), strict=True))
    words = dict(
        zip(
            *reader.lexical.search(text, reader.lexical.readership(first, mask), limit=LIMIT),
            strict=True,
        )
    )
    best = max(words.values(), default=1.0)
    fused = {
        row: 0.5 * dense.get(row, 0.0) + 0.5 * words.get(row, 0.0) / best for row in dense | words
    }
    tokens = reader.tokens["o200k_base"]
    used, parts, shown = 0, [f"<section>\n{text}\n"], []
    for row in sorted(fused, key=lambda row: (-fused[row], row)):
        cost = int(tokens[row][0])
        if used + cost <= BUDGET:
            used += cost
            parts.append(reader.block(row, Rendition.FULL))
            shown.append((reader.text("item_id", row), reader.text("version", row), "full", True))
    whole = "".join(parts)
    digest = hashlib.sha256(whole.encode()).hexdigest()
    record = SnapshotRecord(
        snapshot_id=f"floor_{tenant}_{number}", tenant=tenant, principal="p", created_at=AT,
        run_id="r", turn_id="t",
        hash=digest, snapshot_json=json.dumps({"items": shown}),
        pack_json=json.dumps({"text": digest}),
        trace_json=json.dumps(sorted(fused.items())), request_json="{}", status="committed",
        blobs={hashlib.sha256(part.encode()).hexdigest(): part for part in parts},
        items=tuple(shown),
    )  # fmt: skip
    ledger.submit_snapshot(lambda: record, snapshot_id=record.snapshot_id)
    return used


def run(
    count: int, calls: int, *, open_share: float, homes: Path | None
) -> list[dict[str, object]]:
    """Measure both tenants at one size; return one row per tenant."""
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        home = (homes or Path(folder)) / f"{count}-{open_share}"
        built = build(home, count, open_share)
        started = time.perf_counter()
        with Ledger.open(Path(folder) / "ledger.db") as ledger:
            index = ServingIndex(
                home, overlay_sequence=ledger.overlay_sequence, overlay_since=ledger.overlay_since
            )
            directory = index.view().reader.directory
            opened = {
                "open_s": round(time.perf_counter() - started, 2),
                "artifact_mb": _size_mb(directory),
            }
            for tenant in ("tenth", "half"):
                rows.append(
                    {
                        "items": count,
                        "open_share": open_share,
                        **measure(index, ledger, tenant, calls),
                    }
                )
                rows[-1] |= {**built, **opened, **_memory_mb()}
    return rows


def build(home: Path, count: int, open_share: float) -> dict[str, float]:
    """Build an artifact in a process of its own, unless it is there; return what that took."""
    if not (home / BUILT).exists():
        home.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "bench.synthetic", str(home), str(count), str(open_share)]
        subprocess.run(command, check=True)
    return json.loads((home / BUILT).read_text(encoding="utf-8"))


def _size_mb(directory: Path) -> float:
    return round(
        sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 1e6, 1
    )


def _memory_mb() -> dict[str, float]:
    """Return what this process holds in memory: all, and without the mapped files, which processes
    share.
    """
    fields = dict(
        line.split(":", 1)
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    )
    return {
        name: round(int(fields[field].split()[0]) / 1024, 1)
        for name, field in (("rss_mb", "VmRSS"), ("own_rss_mb", "RssAnon"))
    }


def measure(index: ServingIndex, ledger: Ledger, tenant: str, calls: int) -> dict[str, object]:
    """Time `calls` assemblies and floors of one tenant, in turns of `TURN`.

    In turns, because a floor leaves hundreds of megabytes behind for the next call to clean up.
    """
    texts, vectors = query_texts(calls), query_vectors(calls)
    engine = Engine(dict(zip(texts, vectors, strict=True)).__getitem__)
    identity = Identity(principal="p", tenant=tenant, groups=GROUPS)
    profile, policy = model_profile("gpt-5"), ContextPolicy(candidate_limit=LIMIT)
    ours: list[tuple[float, float]] = []
    floors: list[tuple[float, float]] = []
    stages: dict[str, list[float]] = {}
    items: list[int] = []
    for first in range(-TURN, calls, TURN):
        numbers = range(first, min(first + TURN, calls))
        for number in numbers:
            text = texts[number % calls]
            seconds: dict[str, float] = {}
            request = ContextRequest(
                task=Task(text=text),
                token_budget=BUDGET,
                run_id=f"{tenant}{number}",
                identity=identity,
            )
            call = Call(
                request=request,
                identity=identity,
                profile=profile,
                policy=policy,
                at=AT,
                refreshed={},
            )
            engine.query_vector(text)
            # CPU time of this thread: where many rows are visible, words are searched on a second
            # one.
            c0, t0 = time.thread_time(), time.perf_counter()
            result = engine.assemble(call, index.view(), seconds=seconds)
            c1 = time.thread_time()
            ledger.submit_snapshot(result.record, snapshot_id=result.pack.snapshot_id)
            t1 = time.perf_counter()
            ledger.flush()
            if number >= 0:
                ours.append((t1 - t0, c1 - c0))
                items.append(len(result.pack.items))
                for stage, taken in seconds.items():
                    stages.setdefault(stage, []).append(taken)
        for number in numbers:
            c0, t0 = time.thread_time(), time.perf_counter()
            floor(
                index.view(), ledger, tenant, texts[number % calls], vectors[number % calls], number
            )
            if number >= 0:
                floors.append((time.perf_counter() - t0, time.thread_time() - c0))
            ledger.flush()
    wall, cpu = zip(*ours, strict=True)
    floor_wall, floor_cpu = zip(*floors, strict=True)
    return {
        "tenant": tenant,
        "visible_rows": _visible_rows(index, tenant),
        "recall_at_64": recall(index, tenant, vectors[:RECALL_QUERIES]),
        **first_calls(index, tenant, vectors[0]),
        "p50_ms": _ms(wall, 50), "p99_ms": _ms(wall, 99), "cpu_p50_ms": _ms(cpu, 50),
        "cpu_p99_ms": _ms(cpu, 99),
        "floor_p50_ms": _ms(floor_wall, 50), "floor_p99_ms": _ms(floor_wall, 99),
        "floor_cpu_p50_ms": _ms(floor_cpu, 50),
        "ratio": round(statistics.median(wall) / statistics.median(floor_wall), 2),
        "pack_items": statistics.median(items),
        "stages_p50_ms": {stage: _ms(taken, 50) for stage, taken in stages.items()},
        "stages_p99_ms": {stage: _ms(taken, 99) for stage, taken in stages.items()},
    }  # fmt: skip


def recall(index: ServingIndex, tenant: str, vectors: np.ndarray) -> float:
    """Return which share of the exactly nearest visible rows a search finds."""
    view = index.view()
    viewer, clock = _viewer(tenant), Clock(micros(AT))
    first, last = view.reader.tenants[tenant]
    hidden = view.codes(slice(first, last), viewer, clock) != 0
    found = 0
    for vector in vectors:
        scores = view.reader.vectors[first:last] @ vector
        scores[hidden] = -np.inf
        exact = np.argpartition(scores, -LIMIT)[-LIMIT:] + first
        hits = view.search("", vector, viewer=viewer, clock=clock, limit=LIMIT)
        found += len(np.intersect1d(exact, hits.dense_rows))
    return round(found / (LIMIT * len(vectors)), 5)


def first_calls(index: ServingIndex, tenant: str, vector: np.ndarray) -> dict[str, float]:
    """Return the CPU time of the first search under a changed overlay, and of the first one of
    another viewer.
    """
    before, clock = index.view(), Clock(micros(AT))
    item = before.reader.text("item_id", before.reader.tenants[tenant][0])
    entry = OverlayEntry(
        code="quarantined",
        tenant=tenant,
        item_id=item,
        effective_at=AT,
        recorded_at=AT,
        actor="bench",
        reason="bench",
    )
    taken: list[float] = []
    started = time.thread_time()
    view = ServingView(before.reader, before.overlay_sequence + 1, [entry])
    for role in ("first", "second"):
        viewer = replace(_viewer(tenant), agent_role=role)
        view.search("", vector, viewer=viewer, clock=clock, limit=LIMIT)
        taken.append(time.thread_time() - started)
        started = time.thread_time()
    return {
        "after_overlay_cpu_ms": round(taken[0] * 1_000, 2),
        "new_viewer_cpu_ms": round(taken[1] * 1_000, 2),
    }


def _viewer(tenant: str) -> Viewer:
    return Viewer.of(Identity(principal="p", tenant=tenant, groups=GROUPS), task_type="general")


def _visible_rows(index: ServingIndex, tenant: str) -> int:
    view = index.view()
    codes = view.codes(slice(*view.reader.tenants[tenant]), _viewer(tenant), Clock(micros(AT)))
    return int((codes == 0).sum())


def _ms(values: Sequence[float], percentile: int) -> float:
    return round(float(np.percentile(values, percentile)) * 1_000, 3)


def main() -> None:
    """Run the benchmark and print one JSON line per size and tenant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument(
        "--open-share",
        type=float,
        default=0.07,
        help=(
            "share of items the whole tenant may see; two of twenty groups see a tenth of the rest"
        ),
    )
    parser.add_argument(
        "--home",
        type=Path,
        help="folder in which artifacts are kept; none: built anew, and removed",
    )
    arguments = parser.parse_args()
    for count in arguments.items:
        for row in run(
            count, arguments.calls, open_share=arguments.open_share, homes=arguments.home
        ):
            print(json.dumps(row))


if __name__ == "__main__":
    main()
