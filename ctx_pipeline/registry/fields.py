"""The parts of a definition, read back from the text of its item: the same for every format a
registry may hold.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

_OPEN, _CLOSE, _QUOTES = "([{", ")]}", "'\"`"


def definition_fields(content: str) -> dict[str, str]:
    """Return the `key: value` lines of a definition's text; lines that are indented belong to the
    key above.
    """
    found: dict[str, str] = {}
    key = ""
    for line in content.split("\n"):
        name, colon, value = line.partition(": ")
        if colon and not line.startswith(" "):
            key = name
            found[key] = value
        elif key:
            found[key] += f"\n{line.strip()}"
    return found


def split_list(text: str) -> list[str]:
    """Return the entries of a list that was written with commas; commas in brackets and quotes part
    nothing.
    """
    return [part for raw in _parts(text) if (part := raw.strip())]


def _parts(text: str) -> Iterator[str]:
    depth, quote, start = 0, "", 0
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in _QUOTES:
            quote = char
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        elif char == "," and depth <= 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def listed_names(text: str) -> list[str]:
    """Return the names of a list whose entries may have details: `day (time), total = sum(x)` is
    `day`, `total`.
    """
    return [entry.split(" (", 1)[0].split(" = ", 1)[0].strip() for entry in split_list(text)]


def same_name(name: str) -> str:
    """Return a name as two names are compared: whatever the case and the width of its letters."""
    return unicodedata.normalize("NFKC", name).casefold().strip()
