"""Times a full build and a build after one item in a hundred was edited, over real files and with
synthetic vectors.

`python -m bench.build [--items 100000] [--real FOLDER] [--profile]`. Prints wall and CPU seconds of
every step, and compares the artifact of the second build with one that is built from nothing but
the record.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import json
import pstats
import resource
import shutil
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.synthetic import WORDS_EN, WORDS_ZH
from ctx_pipeline.building.pipeline import Pipeline
from ctx_pipeline.building.refresh import refresh_source
from ctx_pipeline.workspace import Workspace

STAGES = (
    "discovered_items",
    "filtered_items",
    "ranked_items",
    "transformed_items",
    "budgeted_items",
    "assembled_items",
)
SECTIONS = 5
ITEMS_PER_DOCUMENT = 4
"""What the sections of a document come to: short ones share an item."""
MEMORIES = 500
"""Memories, each an item, of one file."""
EDITED_SHARE = 0.01
DIM = 384
_corpora: list[Path] = []
"""Folder of public corpora that texts are taken from; without one they are random words."""


class SyntheticEmbedder:
    """A unit vector drawn from a text's hash: what a build costs beside the model."""

    name = "synthetic/1"
    dim = DIM

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one vector per text."""
        return np.stack([self.embed_query(text) for text in texts])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the text's vector."""
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
        vector = np.random.default_rng(int.from_bytes(digest, "big")).standard_normal(
            DIM, np.float32
        )
        return vector / np.linalg.norm(vector)


@cache
def real_paragraphs(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return paragraphs of the public corpora, English and Chinese."""
    faq = folder / "docs_cn_versions" / "faq_qa_first110.jsonl"
    chinese: list[str] = [
        str(json.loads(line)["text"]) for line in faq.read_text(encoding="utf-8").splitlines()
    ]
    files = sorted(file for file in folder.rglob("*.md") if file.is_file())
    parts = (
        part
        for file in files
        for part in file.read_text(encoding="utf-8", errors="replace").split("\n\n")
    )
    english = [
        " ".join(part.split())[:600] for part in parts if len(part) > 100 and "```" not in part
    ]
    return tuple(english), tuple(" ".join(text.split())[:300] for text in chinese)


def paragraph(rng: np.random.Generator, number: int) -> str:
    """Return one text of about 90 tokens; every third is Chinese. Of real ones
    no two are the same.
    """
    if _corpora:
        pool = real_paragraphs(_corpora[0])[number % 3 == 0]
        text = pool[int(rng.integers(len(pool)))].split(" ")
        # Half of a text is common to many items, as in real folders.
        at = int(rng.integers(len(text)))
        return " ".join([*text[:at], f"{rng.integers(1_000_000):,}", *text[at:]])
    if number % 3 == 0:
        return "".join(WORDS_ZH[at] for at in rng.integers(0, len(WORDS_ZH), 80)) + "。"
    return " ".join(WORDS_EN[at] for at in rng.zipf(1.3, 80) % len(WORDS_EN)) + "."


def write_document(home: Path, number: int, edition: int) -> None:
    """Write a document of `SECTIONS` sections; an edition changes the text of every one."""
    rng = np.random.default_rng((number, edition))
    texts = [f"{paragraph(rng, number)} {paragraph(rng, number)}" for _ in range(SECTIONS)]
    parts = [
        f"# Document {number}",
        *(f"## Part {at} of {number}\n\n{text}" for at, text in enumerate(texts)),
    ]
    folder = home / "documents" / f"{number % 100:02d}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"doc{number:06d}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def write_memories(home: Path, number: int, edited: frozenset[int] = frozenset()) -> None:
    """Write one file of `MEMORIES` memories; the lines in `edited` say something new."""
    lines: list[str] = []
    for line in range(MEMORIES):
        rng = np.random.default_rng((number, line, int(line in edited)))
        lines.append(
            json.dumps(
                {"id": f"m{number:04d}-{line:04d}", "text": paragraph(rng, line)},
                ensure_ascii=False,
            )
        )
    (home / "memories").mkdir(exist_ok=True)
    (home / "memories" / f"m{number:04d}.jsonl").write_text(
        "\n".join(lines) + "\n", encoding="utf-8"
    )


def write_project(home: Path, items: int) -> tuple[int, int]:
    """Write a project: seven tenths of the items in documents, the rest memories. Returns how many
    files of each.
    """
    documents, memories = round(items * 0.7 / ITEMS_PER_DOCUMENT), round(items * 0.3 / MEMORIES)
    home.mkdir(parents=True, exist_ok=True)
    (home / "ctx.toml").write_text(
        '[project]\nname = "bench"\ntenant = "acme"\ndefault_model = "gpt-5"\n'
        '[[sources]]\nname = "documents"\nkind = "documents"\npath = "documents"\n'
        'sensitivity = "internal"\ngroups = ["*"]\n'
        '[[sources]]\nname = "memories"\nkind = "memories"\npath = "memories"\n'
        'sensitivity = "internal"\ngroups = ["*"]\n',
        encoding="utf-8",
    )
    for number in range(documents):
        write_document(home, number, 0)
    for number in range(memories):
        write_memories(home, number)
    return documents, memories


def edit_project(home: Path, documents: int, memories: int) -> None:
    """Change one item in a hundred: whole documents, and lines spread over
    every file of memories.
    """
    for number in range(0, documents, round(1 / EDITED_SHARE)):
        write_document(home, number, 1)
    edited = frozenset(range(0, MEMORIES, round(1 / EDITED_SHARE)))
    for number in range(memories):
        write_memories(home, number, edited)


def count_items(home: Path) -> int:
    """Return how many items the sources have."""
    with Workspace.open(home) as workspace:
        return sum(source.items for source in workspace.ledger.sources().values())


def build(home: Path) -> tuple[dict[str, tuple[float, float]], int, str]:
    """Build once; return (wall, CPU) seconds by step, how many texts were embedded, and the
    artifact's hash.
    """
    took: dict[str, tuple[float, float]] = {}
    digest = ""
    with Workspace.open(home, embedder=SyntheticEmbedder()) as workspace:
        pipeline = Pipeline(workspace)
        steps = [
            (f"sources/{s.name}", lambda s=s: refresh_source(workspace, s.name))
            for s in workspace.config.sources
        ]
        steps += [(f"stages/{stage}", getattr(pipeline, stage)) for stage in STAGES]
        for name, step in steps:
            wall, cpu = time.perf_counter(), time.process_time()
            result = step()
            took[name] = (time.perf_counter() - wall, time.process_time() - cpu)
            digest = getattr(result, "data_version", digest)
        return took, pipeline.embedded, digest


def profiled(home: Path) -> tuple[dict[str, tuple[float, float]], int, str]:
    """Build, and print the functions that took most CPU time."""
    profile = cProfile.Profile(time.thread_time)
    done = profile.runcall(build, home)
    pstats.Stats(profile).sort_stats("tottime").print_stats(40).sort_stats(
        "cumulative"
    ).print_stats(90)
    return done


def main() -> None:
    """Run the benchmark and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument(
        "--real",
        type=Path,
        help="folder of public corpora to take texts from; default: random words",
    )
    parser.add_argument(
        "--profile", action="store_true", help="print where the full build's CPU time goes"
    )
    options = parser.parse_args()
    items = int(options.items)
    _corpora.extend([options.real] if options.real else [])
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        documents, memories = write_project(home, items)
        full, embedded, _ = profiled(home) if options.profile else build(home)
        edit_project(home, documents, memories)
        part, changed, artifact = build(home)
        shutil.rmtree(home / ".ctx" / "derived")
        again, _, rebuilt = build(home)
        items = count_items(home)
    print(
        f"{'step':28} {'full wall':>10} {'cpu':>8} {'1 % wall':>10} {'cpu':>8} {'ratio':>7} "
        f"{'rebuild':>8}"
    )
    for name in full:
        ratio = part[name][0] / full[name][0]
        row = (*full[name], *part[name], ratio, again[name][0])
        print(
            f"{name:28} {row[0]:10.2f} {row[1]:8.2f} {row[2]:10.2f} {row[3]:8.2f} {row[4]:7.3f} "
            f"{row[5]:8.2f}"
        )
    walls = [sum(seconds for seconds, _ in run.values()) for run in (full, part)]
    cpus = [sum(seconds for _, seconds in run.values()) for run in (full, part)]
    print(
        f"{'all':28} {walls[0]:10.2f} {cpus[0]:8.2f} {walls[1]:10.2f} {cpus[1]:8.2f} "
        f"{walls[1] / walls[0]:7.3f}"
    )
    print(f"{items} items, embedded {embedded} then {changed}")
    print(f"same artifact as from the record alone: {artifact == rebuilt}")
    print(f"peak RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
