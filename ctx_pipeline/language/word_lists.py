"""Lists of words as data: each room keeps its own in a file `words.txt` beside its code.

A list begins with its name in square brackets and ends where the next one begins. Words stand
between blanks, in an order that counts where a pattern is made of them; lines that begin with `#`
are comments. A file is read when the first of its lists is asked for. Modules pass their
`__file__`, beside which it lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

FILE = "words.txt"


def words_of(module_file: str, name: str) -> tuple[str, ...]:
    """Return the words of a list that lies beside a module, in order."""
    return tuple(word for line in lines_of(module_file, name) for word in line.split())


def pattern_of(module_file: str, name: str) -> str:
    """Return the words of a list as the alternatives of a pattern, in the order of the list."""
    return "|".join(words_of(module_file, name))


def named_words(module_file: str, name: str) -> dict[str, tuple[str, ...]]:
    """Return a list whose lines are `name: words`, by name, in order."""
    found: dict[str, tuple[str, ...]] = {}
    for line in lines_of(module_file, name):
        head, _, words = line.partition(":")
        found[head] = tuple(words.split())
    return found


def lines_of(module_file: str, name: str) -> tuple[str, ...]:
    """Return the lines of a list.

    Raises:
        KeyError: there is no list of this name.
    """
    return _lists(Path(module_file).with_name(FILE))[name]


@cache
def _lists(file: Path) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    name = ""
    for line in file.read_text(encoding="utf-8").splitlines():
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            name = line[1:-1]
            found[name] = []
        elif line and not line.startswith("#"):
            found[name].append(line)
    return {name: tuple(lines) for name, lines in found.items()}
