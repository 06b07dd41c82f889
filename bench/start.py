"""Times whole commands on the project that `ctx init` writes:
`python -m bench.start [--rounds 5] [--beside TREE]`.

What a user waits for without a server: `ctx --help`, `ctx assemble` of a built index, and a build
that finds nothing new. With `--beside`, another checkout takes turns with this one, so that both
meet the same load. `--imports` prints where the imports of `ctx assemble` go. CPU seconds are those
of the whole process; trust their ratios.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
COMMANDS = {
    "help": ("--help",),
    "assemble": ("assemble", "how do refunds work?"),
    "build": ("build",),
}
_MAIN = "from ctx_pipeline.cli.app import main; main()"
_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)")


def run(tree: Path, home: Path, command: tuple[str, ...], *python: str) -> tuple[float, float, str]:
    """Run one command in a process of its own; return CPU and wall seconds and what it wrote to
    stderr.
    """
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *python, "-c", _MAIN, *command],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(tree)},
        check=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall, done.stderr


def prepare(tree: Path, home: Path) -> Path:
    """Write and build the starter project with one tree."""
    home.mkdir()
    run(tree, home, ("init", "."))
    run(tree, home, ("build",))
    return home


def show_imports(home: Path) -> None:
    """Print the packages whose modules take longest to load, in ms of wall time."""
    took: Counter[str] = Counter()
    _, _, told = run(HERE, home, COMMANDS["assemble"], "-X", "importtime")
    for found in _LINE.finditer(told):
        took[found[2].partition(".")[0]] += int(found[1])
    for name, micros in took.most_common(12):
        print(f"{name:24} {micros / 1_000:8.1f}")


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", type=Path, help="another checkout to take turns with")
    parser.add_argument("--imports", action="store_true", help="also print where imports go")
    options = parser.parse_args()
    trees = [HERE, *([options.beside.resolve()] if options.beside else [])]
    with tempfile.TemporaryDirectory() as folder:
        homes = [prepare(tree, Path(folder) / str(number)) for number, tree in enumerate(trees)]
        print(f"{'command':10} {'tree':32} {'CPU s':>7} {'least':>7} {'wall s':>7} {'least':>7}")
        for name, command in COMMANDS.items():
            turns = [
                [run(tree, home, command)[:2] for tree, home in zip(trees, homes, strict=True)]
                for _ in range(options.rounds)
            ]
            for tree, times in zip(trees, zip(*turns, strict=True), strict=True):
                cpu, wall = zip(*times, strict=True)
                row = (statistics.median(cpu), min(cpu), statistics.median(wall), min(wall))
                print(
                    f"{name:10} {str(tree)[-32:]:32} " + " ".join(f"{value:7.2f}" for value in row)
                )
        if options.imports:
            show_imports(homes[0])


if __name__ == "__main__":
    main()
