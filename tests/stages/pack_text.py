"""A small parser of rendered packs that shares nothing with the renderer."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

OPEN_SECTION = re.compile(r'<section name="([a-z]+)" zone="(instruction|data)">\n')
CLOSE_SECTION = "</section>\n"
ATTRIBUTES = r'((?: [a-z]+="[^"<>\n]*")+)'
OPEN_ITEM = re.compile(rf"<item-([0-9a-f]{{6,64}}){ATTRIBUTES}>\n")
POINTER = re.compile(rf"<item{ATTRIBUTES}/>\n")
ATTRIBUTE = re.compile(r' ([a-z]+)="([^"<>\n]*)"')
IMITATION = re.compile(
    "<[\\s\u200b\u200d\ufeff/]*(?:item|section)(?![a-z0-9_])", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True)
class ParsedItem:
    """One block: what its delimiter says, and what lies between the delimiters (None for a
    pointer).
    """

    attributes: dict[str, str]
    body: str | None


@dataclass(frozen=True)
class ParsedSection:
    """One section and its blocks."""

    name: str
    zone: str
    items: list[ParsedItem] = field(default_factory=list[ParsedItem])


def parse(text: str) -> list[ParsedSection]:
    """Read a rendered pack from its first byte to its last; anything that is not a section or a
    block is an error.
    """
    sections: list[ParsedSection] = []
    at = 0
    while at < len(text):
        opened = OPEN_SECTION.match(text, at)
        assert opened, f"no section opens at {at}: {text[at : at + 60]!r}"
        section = ParsedSection(opened.group(1), opened.group(2))
        at = opened.end()
        while not text.startswith(CLOSE_SECTION, at):
            item, at = _parse_item(text, at)
            section.items.append(item)
        at += len(CLOSE_SECTION)
        sections.append(section)
    return sections


def _parse_item(text: str, at: int) -> tuple[ParsedItem, int]:
    if pointer := POINTER.match(text, at):
        return ParsedItem(_attributes(pointer.group(1)), None), pointer.end()
    opened = OPEN_ITEM.match(text, at)
    assert opened, f"no block opens at {at}: {text[at : at + 60]!r}"
    close = f"\n</item-{opened.group(1)}>\n"
    end = text.index(close, opened.end() - 1)
    body = text[opened.end() : end]
    assert not IMITATION.search(body), "a body imitates a delimiter"
    return ParsedItem(_attributes(opened.group(2)), body), end + len(close)


def _attributes(text: str) -> dict[str, str]:
    pairs = ATTRIBUTE.findall(text)
    assert len(dict(pairs)) == len(pairs), "an attribute is given twice"
    return {name: html.unescape(value) for name, value in pairs}
