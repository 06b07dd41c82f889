"""Code blocks and tables of a Markdown text: what a piece cut out of one needs
to be read as one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MAX_HEAD_CHARS = 400
"""A longer first line of a block, or header of a table, is not repeated."""

_FENCE = re.compile(
    r"((?:[ \t]|>)*)((?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}(?=[^`]*$)|~{3,})(.*)", re.DOTALL
)
_RULE = re.compile(r"[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")


@dataclass(frozen=True, slots=True)
class Block:
    """A block that covers `start` to `end` of a text; what it holds stands in `body` to `close`."""

    start: int
    body: int
    close: int
    end: int
    head: str
    """What opens it anew: the line of its fence, the header of its table."""
    tail: str
    """What closes it; empty for a table."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a text that is no line of a fence and stands in no code block,
    and where it starts.
    """

    start: int
    text: str


def outside_code(text: str) -> Iterator[Line]:
    """Yield the lines of a text that stand in no code block; a block's own lines are one empty
    line.
    """
    yield from (part for part in _parts(text) if isinstance(part, Line))


def blocks(text: str) -> tuple[Block, ...]:
    """Return the code blocks and tables of a text, in order; they do not overlap."""
    found: list[Block] = []
    lines: list[Line] = []
    for part in _parts(text):
        if isinstance(part, Block):
            found.extend(_tables(lines))
            lines.clear()
            found.append(part)
        else:
            lines.append(part)
    found.extend(_tables(lines))
    return tuple(sorted(found, key=lambda block: block.start))


def _parts(text: str) -> Iterator[Block | Line]:
    """Yield code blocks, each with an empty line in its place, and the lines outside of them."""
    opened: tuple[int, int, str, str] | None = None
    position = 0
    for line in text.split("\n"):
        after = min(position + len(line) + 1, len(text))
        match = _FENCE.fullmatch(line)
        if opened is None:
            if match is None:
                yield Line(position, line)
            else:
                indent = match[1] + " " * len(match[2] or "")
                opened = (position, after, f"{indent}{match[3]}{match[4]}", f"{indent}{match[3]}")
                yield Line(position, "")
        elif match and not match[2] and not match[4].strip() and _closes(match[3], opened[3]):
            yield Block(opened[0], opened[1], position, after, opened[2], opened[3])
            opened = None
        position += len(line) + 1
    if opened is not None:
        yield Block(opened[0], opened[1], len(text), len(text), opened[2], opened[3])


def _closes(marker: str, opening: str) -> bool:
    return marker.startswith(opening.lstrip(" \t>"))


def _tables(lines: Sequence[Line]) -> Iterator[Block]:
    """Yield the tables in lines that follow each other."""
    at = 1
    while at < len(lines):
        rule, header = lines[at].text, lines[at - 1].text
        if "|" not in header or "-" not in rule or "|" not in rule or not _RULE.fullmatch(rule):
            at += 1
            continue
        last = at
        while last + 1 < len(lines) and "|" in lines[last + 1].text:
            last += 1
        end = lines[last].start + len(lines[last].text)
        body = lines[at + 1].start if last > at else end
        yield Block(lines[at - 1].start, body, end, end, f"{header}\n{rule}", "")
        at = last + 2


@dataclass(frozen=True, slots=True)
class Piece:
    """`start` to `end` of a text, and how it reads alone."""

    start: int
    end: int
    whole: str


class Enclosures:
    """The blocks of a text, for the pieces that it is cut into."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._blocks = blocks(text) if "```" in text or "~~~" in text or "|" in text else ()
        self._starts = [block.start for block in self._blocks]

    def piece(self, start: int, end: int) -> Piece:
        """Return `start` to `end` of the text so that it can be read alone, and what of the text it
        holds.

        What begins within a code block begins with its fence, what ends within one ends with a
        fence, and rows of a table stand below its header. A fence without a line of code goes; a
        piece of nothing else is empty.
        """
        head = tail = ""
        first = self._around(start)
        if first is not None and start >= first.close and first.tail:
            start = min(first.end, end)
        elif first is not None and start >= first.body:
            whole = len(first.head) <= MAX_HEAD_CHARS
            head = f"{first.head if whole else first.tail}\n" if whole or first.tail else ""
            # A piece begins at its first letter; what it is indented by belongs to the code.
            start = max(first.body, self._text.rfind("\n", 0, start) + 1)
        last = self._around(end - 1) if end > start else None
        if last is not None and last.tail:
            if end <= last.body or not self._text[max(start, last.body) : end].strip():
                end = min(end, last.start)
            elif end <= last.close:
                tail = f"\n{last.tail}"
        held = self._text[start:end].rstrip()
        return Piece(start, start + len(held), f"{head}{held}{tail}" if held else "")

    def _around(self, place: int) -> Block | None:
        at = bisect_right(self._starts, place) - 1
        return self._blocks[at] if at >= 0 and place < self._blocks[at].end else None
