"""Kills builds at random moments, and lets builds and readers contend for one project.

`python -m bench.faults kill [--kills 25]`: a rebuild is killed at random moments while a reader
assembles; every pack must come from one whole artifact, the next build must finish, and nothing
that was embedded is embedded again.

`python -m bench.faults contend [--seconds 60]`: two processes edit and build, four assemble; no
call may fail, and every version that a build has read must be stored.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.build import SyntheticEmbedder, write_document, write_project
from ctx_pipeline.contracts import ContextRequest, Identity, Task
from ctx_pipeline.index import embedder
from ctx_pipeline.index.artifact import Layout, read_pointer, wrong_parts
from ctx_pipeline.index.store import Store
from ctx_pipeline.project import ContextProject

ANA = Identity(principal="ana", tenant="acme", groups=("analysts",))
QUESTIONS = ("orderment refunder priceness", "订单退款区域指标")
EMBED_PAUSE_SECONDS = 0.02
"""Slows a batch of embeddings, so that kills hit them as well."""


class SlowEmbedder(SyntheticEmbedder):
    """The synthetic embedder at a pace at which it can be interrupted."""

    def embed_documents(self, texts: Any) -> Any:
        """Return one vector per text, after a while."""
        time.sleep(EMBED_PAUSE_SECONDS)
        return super().embed_documents(texts)


def use_synthetic_vectors() -> None:
    """Let every project of this process embed without a model."""
    embedder.load_embedder = lambda model="default": SlowEmbedder()


def ask(project: ContextProject, number: int) -> str:
    """Assemble one pack and return the artifact it came from."""
    text = QUESTIONS[number % len(QUESTIONS)]
    pack = project.assemble(ContextRequest(task=Task(text=text), identity=ANA, token_budget=2_000))
    if not pack.items:
        raise AssertionError("an empty pack")
    return pack.index_version


# --- kill


def child(*arguments: str) -> subprocess.Popen[bytes]:
    """Start this module again."""
    command = [sys.executable, "-m", "bench.faults", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run_build(home: str) -> None:
    """Build once and print how many texts were embedded."""
    from ctx_pipeline import build

    use_synthetic_vectors()
    print(json.dumps({"embedded": build(home, progress=False).embedded}))


class Reader(threading.Thread):
    """Assembles without a pause, and keeps what it saw."""

    def __init__(self, home: Path) -> None:
        super().__init__(daemon=True)
        self.home = home
        self.done = threading.Event()
        self.packs = 0
        self.artifacts: set[str] = set()
        self.errors: list[str] = []

    def run(self) -> None:
        """Assemble until told to end."""
        with ContextProject.open(self.home) as project:
            while not self.done.is_set():
                try:
                    self.artifacts.add(ask(project, self.packs))
                except Exception as error:
                    self.errors.append(f"{type(error).__name__}: {error}")
                self.packs += 1


def vectors(home: Path) -> int:
    """Return how many texts have a vector."""
    store = Store.of_project(home)
    hashes = store.scan_keys()["embed_hash"].to_pylist()
    return len(store.known(hashes, SyntheticEmbedder.name))


def published(home: Path) -> str:
    """Return the content hash of the published artifact, whose every part is what was written."""
    layout = Layout(home)
    pointer = read_pointer(layout)
    assert pointer is not None
    directory = layout.artifacts / pointer["artifact"]
    problems = list(
        wrong_parts(
            directory, json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
        )
    )
    if problems:
        raise AssertionError(problems)
    return pointer["content_hash"]


def finish(process: subprocess.Popen[bytes]) -> int:
    """Wait for a build and return how many texts it embedded."""
    out, err = process.communicate(timeout=300)
    if process.returncode:
        raise AssertionError(err.decode()[-2_000:])
    return int(json.loads(out.decode().strip().splitlines()[-1])["embedded"])


def kill(kills: int, items: int, seed: int) -> None:
    """Kill rebuilds and check what is left of each."""
    use_synthetic_vectors()
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        documents, _ = write_project(home, items)
        finish(child("build", folder))
        started = time.monotonic()
        edit(home, documents, 1)
        finish(child("build", folder))
        whole = time.monotonic() - started
        reader = Reader(home)
        reader.start()
        known = {published(home)}
        again = interrupted = late = 0
        for number in range(kills):
            edit(home, documents, number + 2)
            process = child("build", folder)
            time.sleep(rng.uniform(0.1, 1.05) * whole)
            late += process.poll() is not None
            process.send_signal(signal.SIGKILL)
            process.communicate()
            known.add(published(home))
            before = vectors(home)
            embedded = finish(child("build", folder))
            known.add(published(home))
            missing = vectors(home) - before
            again += embedded - missing
            interrupted += missing > 0
        reader.done.set()
        reader.join()
    print(
        f"{kills} kills over {whole:.1f} s of a rebuild of {items} "
        f"items ({late} came after its end)"
    )
    print(
        f"packs assembled meanwhile {reader.packs}, errors {len(reader.errors)} {reader.errors[:1]}"
    )
    print(
        f"artifacts seen by packs {len(reader.artifacts)}, not "
        f"published {len(reader.artifacts - known)}"
    )
    print(f"embedding cut off {interrupted} times, embedded again {again}")
    if reader.errors or again or reader.artifacts - known:
        raise SystemExit(1)


def edit(home: Path, documents: int, edition: int) -> None:
    """Change a twentieth of the documents."""
    for number in range(edition % 20, documents, 20):
        write_document(home, number, edition)


# --- contend


def run_builder(home: str, name: str, seconds: str) -> None:
    """Edit one document and build, until the time is over; print the hashes of what was read."""
    from ctx_pipeline import build

    use_synthetic_vectors()
    until = time.monotonic() + float(seconds)
    written: list[str] = []
    while time.monotonic() < until:
        text = f"Edition {len(written)} of the document that {name} writes. 第 {len(written)} 版。"
        (Path(home) / "documents" / f"{name}.md").write_text(text + "\n", encoding="utf-8")
        build(home, progress=False)
        written.append(hashlib.sha256(text.encode()).hexdigest())
    print(json.dumps(written))


def run_assembler(home: str, name: str, seconds: str) -> None:
    """Assemble until the time is over; print how many packs there were and from
    how many artifacts.
    """
    use_synthetic_vectors()
    until = time.monotonic() + float(seconds)
    packs = 0
    artifacts: set[str] = set()
    with ContextProject.open(home) as project:
        while time.monotonic() < until:
            artifacts.add(ask(project, packs))
            packs += 1
    print(json.dumps({"name": name, "packs": packs, "artifacts": len(artifacts)}))


def contend(seconds: float, items: int) -> None:
    """Let two builders and four assemblers work on one project."""
    with tempfile.TemporaryDirectory() as folder:
        write_project(Path(folder), items)
        finish(child("build", folder))
        builders = [child("builder", folder, name, str(seconds)) for name in ("one", "two")]
        assemblers = [child("assembler", folder, str(number), str(seconds)) for number in range(4)]
        outputs: list[Any] = []
        errors: list[str] = []
        for process in (*builders, *assemblers):
            out, err = process.communicate(timeout=seconds + 300)
            if process.returncode:
                errors.append(err.decode()[-500:])
            else:
                outputs.append(json.loads(out.decode().strip().splitlines()[-1]))
        stored = set(Store.of_project(Path(folder)).scan_keys()["content_hash"].to_pylist())
        published(Path(folder))
    written = [digest for entry in outputs if isinstance(entry, list) for digest in entry]
    packs = [entry for entry in outputs if isinstance(entry, dict)]
    lost = len(set(written) - stored)
    print(
        f"{seconds:.0f} s: {len(written)} builds, "
        f"{sum(entry['packs'] for entry in packs)} packs by 4 processes"
    )
    print(
        f"artifacts seen by one process {max((entry['artifacts'] for entry in packs), default=0)}"
    )
    print(f"failed processes {len(errors)} {errors[:1]}, lost versions {lost}")
    if errors or lost:
        raise SystemExit(1)


def main() -> None:
    """Run what was asked for."""
    children = {"build": run_build, "builder": run_builder, "assembler": run_assembler}
    if len(sys.argv) > 2 and sys.argv[1] in children:
        children[sys.argv[1]](*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("kill", "contend"))
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--items", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    if options.what == "kill":
        kill(options.kills, options.items, options.seed)
    else:
        contend(options.seconds, options.items)


if __name__ == "__main__":
    os.environ.pop("CTX_HOME", None)
    main()
