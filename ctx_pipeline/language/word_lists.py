"""Lists of words as data: each room keeps its own in a file `words.txt` beside its code.

A list begins with its name in square brackets and ends where the next one begins. Words stand
between blanks, in an order that counts where a pattern is made of them; lines that begin with `#`
are comments. A file is read when the first of its lists is asked for. Modules pass their
`__name__`, which says in which room they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

FILE = "words.txt"


def words_of(module: str, name: str) -> tuple[str, ...]:
    """Return the words of a list of the room of `module`, in order."""
    return tuple(word for line in lines_of(module, name) for word in line.split())


def pattern_of(module: str, name: str) -> str:
    """Return the words of a list as the alternatives of a pattern, in the order of the list."""
    return "|".join(words_of(module, name))


def named_words(module: str, name: str) -> dict[str, tuple[str, ...]]:
    """Return a list whose lines are `name: words`, by name, in order."""
    found: dict[str, tuple[str, ...]] = {}
    for line in lines_of(module, name):
        head, _, words = line.partition(":")
        found[head] = tuple(words.split())
    return found


def lines_of(module: str, name: str) -> tuple[str, ...]:
    """Return the lines of a list.

    Raises:
        KeyError: the room keeps no list of this name.
    """
    return _lists(module.rpartition(".")[0])[name]


@cache
def _lists(package: str) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    name = ""
    for line in files(package).joinpath(FILE).read_text(encoding="utf-8").splitlines():
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            name = line[1:-1]
            found[name] = []
        elif line and not line.startswith("#"):
            found[name].append(line)
    return {name: tuple(lines) for name, lines in found.items()}
