"""The size of a picture from its header, and the words of a drawing."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from ctx_pipeline.sources.formats.hidden import HiddenRules, own_text

if TYPE_CHECKING:
    from justhtml import Node

MAX_SVG_CHARS = 2_000_000
MAX_WORDS = 60
MAX_WORD_CHARS = 80
_MAX_JPEG_SEGMENTS = 500

_SVG = re.compile(r"<svg\b([^>]{0,4000})>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"\b(width|height|viewbox)\s*=\s*[\"']([^\"']{1,80})[\"']", re.IGNORECASE)
_NUMBER = re.compile(r"\s*(\d{1,7}(?:\.\d{1,6})?)\s*(?:px)?\s*")


def image_size(head: bytes, kind: str) -> tuple[int, int] | None:
    """Return width and height in pixels, None where the header does not say."""
    try:
        if kind == "image/png" and head[12:16] == b"IHDR":
            return struct.unpack(">II", head[16:24])
        if kind == "image/gif":
            return struct.unpack("<HH", head[6:10])
        if kind == "image/jpeg":
            return _jpeg_size(head)
        if kind == "image/webp":
            return _webp_size(head)
        if kind == "image/svg+xml":
            return _svg_size(head[:64_000].decode("utf-8", "replace"))
    except (struct.error, IndexError):
        pass
    return None


def svg_words(text: str) -> tuple[str, list[str]]:
    """Return the title of a drawing and the words that a reader sees in it, in order, each once."""
    from justhtml import JustHTML

    if len(text) > MAX_SVG_CHARS:
        return "", []
    title = ""
    words: dict[str, None] = {}
    rules = HiddenRules()
    stack: list[Node] = [JustHTML(text, sanitize=False).root]
    while stack and len(words) < MAX_WORDS:
        node = stack.pop()
        if node.name in ("title", "desc", "text"):
            line = " ".join(_text_below(node, rules).split())[:MAX_WORD_CHARS]
            if node.name == "title" and not title:
                title = line
            elif line and not (node.name == "text" and rules.hides(node)):
                words[line] = None
        elif node.name != "#text" and (node.name == "svg" or not rules.hides(node)):
            stack.extend(reversed(node.children or []))
    return title, list(words)


def _text_below(root: Node, rules: HiddenRules) -> str:
    parts: list[str] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if node.name == "#text":
            parts.append(own_text(node))
        elif node is root or not rules.hides(node):
            stack.extend(reversed(node.children or []))
    return " ".join(parts)


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    position = 2
    for _ in range(_MAX_JPEG_SEGMENTS):
        if head[position] != 0xFF:
            return None
        marker = head[position + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", head[position + 5 : position + 9])
            return width, height
        position += 2 + max(2, struct.unpack(">H", head[position + 2 : position + 4])[0])
    return None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    if head[12:16] == b"VP8X":
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if head[12:16] == b"VP8 ":
        width, height = struct.unpack("<HH", head[26:30])
        return width & 0x3FFF, height & 0x3FFF
    if head[12:16] == b"VP8L":
        (bits,) = struct.unpack("<I", head[21:25])
        return (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1
    return None


def _svg_size(text: str) -> tuple[int, int] | None:
    tag = _SVG.search(text)
    if tag is None:
        return None
    said = {name.lower(): value for name, value in _ATTRIBUTE.findall(tag[1])}
    sides = [_NUMBER.fullmatch(said.get(side, "")) for side in ("width", "height")]
    if sides[0] and sides[1]:
        return round(float(sides[0][1])), round(float(sides[1][1]))
    box = said.get("viewbox", "").replace(",", " ").split()
    if len(box) == 4 and all(_NUMBER.fullmatch(part) for part in box[2:]):
        return round(float(box[2])), round(float(box[3]))
    return None
