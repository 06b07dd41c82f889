"""Command lines of the documentation with what they print: `docs/src/*.sh`.

A file is a list of steps. `#: name` opens one; below it stand commands, and below each command, as
`# > ` lines, what it printed when it was recorded. After the name may stand `save=WORD` (the first
snapshot id that the step prints is called `$WORD` from there on), `head=N` and `tail=N` (show only
so many lines of each output) and `quiet` (not shown in a page).

A Python snippet has what it prints in a file of the same name that ends in `.out`.
`python -m docs.transcripts` runs everything and records it anew.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "src"
OUTPUT = "# > "
OUTPUT_SUFFIX = ".out"
"""Of the file beside a Python snippet that holds what it printed."""
HOME = "/home/ana"
"""What a page shows where the folder was that the commands ran in."""

SOME_NUMBER = "N.N"

_ID = re.compile(r"snap_[0-9a-f]{32}")
_STEP = re.compile(r"#: ([\w-]+)(.*)")
_VOLATILE = (
    (_ID, "SNAPSHOT"),
    (re.compile(r"\b(?:[0-9a-f]{64}\b|[0-9a-f]{16}…)"), "HASH"),
    (re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}Z"), "TIME"),
    # With its sign: the last digits of a score depend on the processor.
    (re.compile(r"[+-]?\d+(?:\.\d+)+"), SOME_NUMBER),
    (re.compile(r"on (?:Linux|Darwin) \w+"), "on PLATFORM"),
    (re.compile(r" {2,}"), "  "),
    (re.compile(r" +$"), ""),
)
"""What differs from run to run or from machine to machine; it is not compared."""

DEFECTS = ("internal:", "build_failed:")
"""What no page should show."""

RunCtx = Callable[[list[str], Path], str]
"""Runs one command line of `ctx` in a folder and returns what it prints: stderr, then stdout."""


@dataclass(slots=True)
class Command:
    """One command and what it printed."""

    line: str
    output: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class Step:
    """Commands that a page shows as one block."""

    name: str
    options: str = ""
    commands: list[Command] = field(default_factory=list[Command])

    def option(self, name: str) -> str | None:
        """Return the value of an option of this step; None without it."""
        found = re.search(rf"\b{name}=(\S+)", self.options)
        return found.group(1) if found else None

    @property
    def quiet(self) -> bool:
        """Whether pages leave the step out."""
        return "quiet" in self.options.split()

    def shortened(self, output: list[str]) -> list[str]:
        """Return what the step shows of an output."""
        head, tail = self.option("head"), self.option("tail")
        if head is None and tail is None:
            return output
        first, last = int(head or 0), int(tail or 0)
        return (
            output
            if len(output) <= first + last + 1
            else [*output[:first], "…", *output[len(output) - last :]]
        )


def read_steps(path: Path) -> list[Step]:
    """Return the steps of a file. A line that ends in a backslash, and a here-document, belong to
    one command.
    """
    steps: list[Step] = []
    pending: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if pending:
            pending.append(line)
            if _is_whole(pending):
                steps[-1].commands.append(Command("\n".join(pending)))
                pending = []
        elif found := _STEP.fullmatch(line):
            steps.append(Step(found.group(1), found.group(2)))
        elif line.startswith(OUTPUT.rstrip()) and steps:
            steps[-1].commands[-1].output.append(line[len(OUTPUT) :])
        elif line.strip() and steps:
            pending = [line]
            if _is_whole(pending):
                steps[-1].commands.append(Command(line))
                pending = []
    return steps


def _is_whole(lines: list[str]) -> bool:
    if opened := re.search(r"<<'?(\w+)'?", lines[0]):
        return lines[-1] == opened.group(1)
    return not lines[-1].endswith("\\")


def console(path: Path, name: str | None) -> str:
    """Return a step as a page shows it."""
    steps = read_steps(path)
    names: dict[str, str] = {}
    for step in steps:
        if (word := step.option("save")) and (found := _ID.search("\n".join(_printed(step)))):
            names[word] = found.group()
    chosen = [step for step in steps if step.name == name or (name is None and not step.quiet)]
    assert chosen, f"{path.name} has no step {name!r}"
    lines: list[str] = []
    for command in (command for step in chosen for command in step.commands):
        first, *rest = _named(command.line, names).split("\n")
        lines += [f"$ {first}", *(f"> {line}" if line else ">" for line in rest), *command.output]
    return "```console\n" + "\n".join(lines) + "\n```\n"


def source_block(path: Path) -> str:
    """Return a file as a page shows it."""
    language = {
        ".py": "python",
        ".toml": "toml",
        ".yaml": "yaml",
        ".bash": "bash",
        OUTPUT_SUFFIX: "text",
    }[path.suffix]
    return f"```{language}\n" + path.read_text(encoding="utf-8").strip("\n") + "\n```\n"


def recorded_output(path: Path) -> list[str]:
    """Return what a Python snippet printed when it was recorded; empty when no page shows it."""
    recorded = path.with_suffix(OUTPUT_SUFFIX)
    return recorded.read_text(encoding="utf-8").splitlines() if recorded.exists() else []


def _printed(step: Step) -> list[str]:
    return [line for command in step.commands for line in command.output]


def _named(line: str, names: dict[str, str]) -> str:
    for word, value in names.items():
        line = line.replace(f"${word}", value)
    return line


def run_steps(steps: list[Step], folder: Path, ctx: RunCtx) -> list[Step]:
    """Run every step in `folder` and return the same steps with what they print now."""
    names: dict[str, str] = {}
    here = folder
    done: list[Step] = []
    for step in steps:
        now = Step(step.name, step.options)
        for command in step.commands:
            line = _named(command.line, names)
            if line.startswith("cd "):
                here = (here / line.removeprefix("cd ")).resolve()
                printed = ""
            else:
                printed = (
                    _run_ctx(line, here, ctx) if line.startswith("ctx ") else _run_shell(line, here)
                )
            shown = printed.replace(str(folder), HOME).rstrip("\n")
            now.commands.append(
                Command(command.line, step.shortened(shown.split("\n")) if shown else [])
            )
            if (
                (word := step.option("save"))
                and word not in names
                and (found := _ID.search(printed))
            ):
                names[word] = found.group()
        done.append(now)
    return done


def _run_ctx(line: str, here: Path, ctx: RunCtx) -> str:
    words = shlex.split(line.replace("\\\n", " "))[1:]
    if ">" in words:
        at = words.index(">")
        (here / words[at + 1]).write_text(ctx(words[:at], here), encoding="utf-8")
        return ""
    return ctx(words, here)


def _run_shell(line: str, here: Path) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=here,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    return done.stdout


def comparable(step: Step) -> list[str]:
    """Return a step without what differs from run to run."""
    lines: list[str] = []
    for command in step.commands:
        lines += [f"$ {command.line}", *settled(command.output)]
    return lines


def settled(lines: list[str]) -> list[str]:
    """Return lines without what differs from run to run.

    Neighbouring lines with a score are sorted: which of two nearly equal ones comes first depends
    on the processor as the last digits do.
    """
    plain = [_without_volatile(line) for line in lines]
    done: list[str] = []
    for scored, group in groupby(plain, key=lambda line: SOME_NUMBER in line):
        run = list(group)
        done += sorted(run) if scored else run
    return done


def _without_volatile(line: str) -> str:
    for pattern, replacement in _VOLATILE:
        line = pattern.sub(replacement, line)
    return line


def write_steps(path: Path, steps: list[Step]) -> None:
    """Record steps in a file, the lines above the first step kept. A defect is not recorded."""
    for line in (line for step in steps for line in _printed(step)):
        if line.startswith(DEFECTS):
            raise SystemExit(f"{path.name}: {line}")
    head = path.read_text(encoding="utf-8").split("#: ", 1)[0]
    blocks: list[str] = []
    for step in steps:
        lines = [f"#: {step.name}{step.options}"]
        for command in step.commands:
            lines += [command.line, *(f"{OUTPUT}{line}".rstrip() for line in command.output)]
        blocks.append("\n".join(lines) + "\n")
    path.write_text(head + "\n".join(blocks), encoding="utf-8", newline="\n")


def _process(arguments: list[str], here: Path) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("CTX_")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=here,
        capture_output=True,
        encoding="utf-8",
        env={**kept, "PYTHONPATH": str(SOURCES.parent.parent)},
        check=False,
    )


def _ctx_process(words: list[str], here: Path) -> str:
    done = _process(["-c", "from ctx_pipeline.cli.app import main; main()", *words], here)
    return done.stderr + done.stdout


def _record(path: Path, base: Path) -> None:
    """Run one file on a copy of the tutorial's project and record it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve() / "copy"
        shutil.copytree(base, folder)
        if path.suffix == ".sh":
            write_steps(path, run_steps(read_steps(path), folder, _ctx_process))
        else:
            done = _process([str(path)], folder)
            if done.returncode != 0:
                raise SystemExit(done.stderr)
            path.with_suffix(OUTPUT_SUFFIX).write_text(done.stdout, encoding="utf-8", newline="\n")
    sys.stderr.write(f"recorded {path.name}\n")


def main() -> None:
    """Run the tutorial, and then every other file on a copy of its project, and record what they
    print.
    """
    with tempfile.TemporaryDirectory() as name:
        base = Path(name).resolve()
        first = SOURCES / "tutorial.sh"
        write_steps(first, run_steps(read_steps(first), base, _ctx_process))
        for path in sorted(SOURCES.glob("*.sh")) + [
            path.with_suffix(".py") for path in sorted(SOURCES.glob("*.out"))
        ]:
            if path != first:
                _record(path, base)


if __name__ == "__main__":
    main()
