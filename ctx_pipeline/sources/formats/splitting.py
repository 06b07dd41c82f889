"""Cutting a text into chunks at its own boundaries, with exact offsets and the headings above each
chunk.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING

from ctx_pipeline.sources.formats.enclosing import Enclosures, outside_code
from ctx_pipeline.text import normalise, repair

if TYPE_CHECKING:
    from semantic_text_splitter import MarkdownSplitter, TextSplitter

LATIN_CHARS = (1_200, 1_600)
"""A chunk of mostly Latin text is full from the first number on and never longer than the second:
~400 tokens."""

CJK_CHARS = (600, 800)
"""The same for mostly Chinese, Japanese or Korean text, which has about one token per character."""

CJK_SHARE = 0.3
"""From this share of non-blank characters on a text is mostly CJK."""

SMALL_CHARS = 200
"""A chunk below this is joined to its neighbour where both fit."""

LONG_LINE_CHARS = 4_000
"""A longer line is cut before it is split: finding sentences in one line takes time in the square
of its length."""

MAX_HEADING_CHARS = 120

_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
_BLANK = re.compile(r"\s")
_ATX = re.compile(r" {0,3}(#{1,6})[ \t]+(\S.*)")
_UNDERLINE = re.compile(r"(={3,}|-{3,})[ \t]*$")
_NOT_PARAGRAPH = re.compile(r"\s|[-*+>|#]|\d+[.)]\s")
_CODE_OR_REFERENCE = re.compile(
    r"""
    `[^`]*`                             # code
    | & \# [0-9]{1,7} ;                 # &#62;
    | & \# [xX] [0-9a-fA-F]{1,6} ;      # &#x3e;
    | & [A-Za-z] [A-Za-z0-9]{1,31} ;    # &gt;
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """`source[start:end] == text`; never blank."""

    start: int
    end: int
    text: str
    whole: str | None = None
    """`text` so that it can be read alone, where that is something else: see `Enclosures`."""

    @property
    def content(self) -> str:
        """What an item made of it holds."""
        return self.text if self.whole is None else self.whole


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading and where its line starts."""

    start: int
    level: int
    text: str


def split_text(text: str, *, markdown: bool) -> tuple[Chunk, ...]:
    """Cut `text` into chunks in order, without overlap and without blank chunks.

    Lone surrogates must have been repaired. Only blanks lie between chunks, and in Markdown fences
    without a line of code.
    """
    low, high = CJK_CHARS if is_cjk(text) else LATIN_CHARS
    if len(text) <= high:
        return tuple(_trimmed(text))
    splitter = _splitter(low, high, markdown)
    spans: list[tuple[int, int]] = []
    for start, end in _segments(text):
        for offset, piece in splitter.chunk_indices(text[start:end]):
            if piece.strip():
                spans.append((start + offset, start + offset + len(piece)))
    joined = _join_small(spans, high)
    chunks = (Chunk(start, end, text[start:end]) for start, end in joined)
    return tuple(_enclosed(text, chunks) if markdown else chunks)


def _enclosed(text: str, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    enclosures = Enclosures(text)
    for chunk in chunks:
        piece = enclosures.piece(chunk.start, chunk.end)
        if piece.whole == chunk.text:
            yield chunk
        elif piece.whole:
            yield Chunk(piece.start, piece.end, text[piece.start : piece.end], piece.whole)


def _trimmed(text: str) -> Iterator[Chunk]:
    body = text.strip()
    if body:
        start = text.index(body)
        yield Chunk(start, start + len(body), body)


def is_cjk(text: str) -> bool:
    """Say whether a text, by its first 20,000 characters, is mostly Chinese, Japanese or Korean."""
    sample = text[:20_000]
    visible = len(sample) - len(_BLANK.findall(sample))
    return visible > 0 and len(_CJK.findall(sample)) >= visible * CJK_SHARE


@lru_cache(maxsize=8)
def _splitter(low: int, high: int, markdown: bool) -> MarkdownSplitter | TextSplitter:
    from semantic_text_splitter import MarkdownSplitter, TextSplitter

    return MarkdownSplitter((low, high)) if markdown else TextSplitter((low, high))


def _segments(text: str) -> Iterator[tuple[int, int]]:
    """Yield spans that cover the text, none with a line longer than `LONG_LINE_CHARS`."""
    start = position = 0
    while position < len(text):
        newline = text.find("\n", position)
        line_end = len(text) if newline < 0 else newline + 1
        if line_end - position > LONG_LINE_CHARS:
            if position > start:
                yield start, position
            start = yield from _cut_line(text, position, line_end)
        position = line_end
    if start < len(text):
        yield start, len(text)


def _cut_line(text: str, start: int, end: int) -> Generator[tuple[int, int], None, int]:
    """Yield pieces of a long line, cut after a blank where there is one in the last tenth; return
    where it ends.
    """
    while end - start > LONG_LINE_CHARS:
        limit = start + LONG_LINE_CHARS
        blank = max(text.rfind(mark, limit - LONG_LINE_CHARS // 10, limit) for mark in " \t。.")
        cut = blank + 1 if blank > 0 else limit
        yield start, cut
        start = cut
    yield start, end
    return end


def _join_small(spans: list[tuple[int, int]], high: int) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined:
            before_start, before_end = joined[-1]
            small = min(before_end - before_start, end - start) < SMALL_CHARS
            if small and end - before_start <= high:
                joined[-1] = (before_start, end)
                continue
        joined.append((start, end))
    return joined


class Outline:
    """The headings of a text, and which of them stand above a span of it."""

    def __init__(self, text: str) -> None:
        self.headings = tuple(_headings(text))
        self._starts = [heading.start for heading in self.headings]
        self._paths: list[tuple[str, ...]] = []
        open_headings: list[Heading] = []
        for heading in self.headings:
            open_headings = [above for above in open_headings if above.level < heading.level]
            open_headings.append(heading)
            self._paths.append(tuple(above.text for above in open_headings))

    @property
    def title(self) -> str | None:
        """The first heading, if it is of level 1 or the only one of its level: the name of the
        whole text.
        """
        if not self.headings:
            return None
        first = self.headings[0]
        alone = sum(heading.level <= first.level for heading in self.headings) == 1
        return first.text if first.level == 1 or alone else None

    def above(self, start: int, end: int) -> tuple[str, ...]:
        """Return the headings, outermost first, that all of `start` to `end` lies under."""
        first = bisect_right(self._starts, start) - 1
        path: tuple[str, ...] = self._paths[first] if first >= 0 else ()
        for inner in range(first + 1, bisect_right(self._starts, end - 1)):
            if not path:
                break
            pairs = takewhile(
                lambda pair: pair[0] == pair[1], zip(path, self._paths[inner], strict=False)
            )
            path = tuple(pair[0] for pair in pairs)
        return path


def _headings(text: str) -> Iterator[Heading]:
    before, before_start = "", 0
    blank_above = True
    for line in outside_code(text):
        if atx := _ATX.match(line.text):
            yield Heading(line.start, len(atx[1]), _heading_text(_without_closing(atx[2])))
        elif (
            blank_above
            and before
            and _UNDERLINE.match(line.text)
            and not _NOT_PARAGRAPH.match(before)
        ):
            yield Heading(before_start, 1 if line.text[0] == "=" else 2, _heading_text(before))
        blank_above = not before.strip()
        before, before_start = line.text, line.start


def _without_closing(text: str) -> str:
    """Drop the closing sequence of `## Title ##`."""
    body = text.rstrip()
    bare = body.rstrip("#")
    return bare if bare and bare != body and bare[-1] in " \t" else body


def _heading_text(raw: str) -> str:
    return " ".join(normalise(repair(without_references(raw))).split())[:MAX_HEADING_CHARS]


def without_references(title: str) -> str:
    """Return a title with its character references as the characters: `R&amp;D` is `R&D`.

    Code in backticks stays as it is, as in Markdown.
    """
    return _CODE_OR_REFERENCE.sub(
        lambda found: found[0] if found[0][0] == "`" else html.unescape(found[0]), title
    )
