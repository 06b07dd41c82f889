"""The visible text of an HTML tree as Markdown-like text: headings, lists,
tables, code and links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from ctx_pipeline.sources.formats.hidden import HiddenRules, own_text
from ctx_pipeline.sources.formats.html_nodes import (
    BLOCK_TAGS,
    HEADINGS,
    SPACE,
    attribute,
    has_blocks,
    is_layout,
    join_item,
    pipe_rows,
    rows_of,
    take_carried,
    tidy,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from justhtml import Node

MAX_DEPTH = 120
"""Elements nested deeper than this give their text without structure."""
MAX_LIST_DEPTH = 8
MAX_TEXT_CHARS = 4_000_000
MAX_HREF_CHARS = 500
MAX_ALT_CHARS = 200
MAX_SPAN = 20
"""Most rows or columns that one cell of a table is repeated over."""
MAX_REPEATED_CHARS = 80
"""A longer cell is not repeated in the rows it spans."""

_PERMALINKS = frozenset(["¶", "#", "§", "🔗", "⚓"])

# Characters without a shape can carry text that no reader sees; joiners that scripts and emoji need
# stay.
_SHAPELESS = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\U000e0000-\U000e0fff]"
)
_MARKUP_LIKE = re.compile(r"(?m)^(?=#{1,6}[ \t]|(?:`{3}|~{3})|(?:-{3,}|={3,})[ \t]*$)")


class TextTooLong(Exception):
    """The text of a page is longer than `MAX_TEXT_CHARS`."""


@dataclass(slots=True)
class _Block:
    """Text that is being put together: finished blocks, and the line of inline text that comes
    next.
    """

    blocks: list[str] = field(default_factory=list[str])
    inline: list[str] = field(default_factory=list[str])

    def flush(self) -> None:
        text = tidy("".join(self.inline))
        self.inline.clear()
        if text:
            self.blocks.append(_MARKUP_LIKE.sub(r"\\", text))

    def add(self, block: str) -> None:
        self.flush()
        if block:
            self.blocks.append(block)


@dataclass(slots=True)
class TextRenderer:
    """Renders one page. Text that its readers do not see is left out, whatever its depth."""

    rules: HiddenRules
    skips: Callable[[Node], bool]
    """Says which elements are not part of the main text."""
    base_url: str | None = None
    chars: int = 0

    def render(self, root: Node) -> str:
        """Return the text below `root`, blocks separated by a blank line.

        Raises:
            TextTooLong: it would be longer than `MAX_TEXT_CHARS`.
        """
        return "\n\n".join(self._blocks_of(root, depth=0, lists=0))

    def _blocks_of(self, node: Node, depth: int, lists: int) -> list[str]:
        out = _Block()
        self._children(node, out, depth, lists)
        out.flush()
        return out.blocks

    def _children(self, node: Node, out: _Block, depth: int, lists: int) -> None:
        for child in node.children or ():
            if child.name == "#text":
                self._count(child.data)
                out.inline.append(SPACE.sub(" ", _SHAPELESS.sub("", child.data or "")))
            elif not child.name.startswith(("#", "!")) and not self._left_out(child):
                self._element(child, out, depth + 1, lists)

    def _left_out(self, node: Node) -> bool:
        return self.rules.hides(node) or self.skips(node)

    def _count(self, text: str | None) -> None:
        self.chars += len(text or "")
        if self.chars > MAX_TEXT_CHARS:
            raise TextTooLong

    def _element(self, node: Node, out: _Block, depth: int, lists: int) -> None:
        name = node.name
        if depth > MAX_DEPTH:
            out.inline.append(f" {self._plain(node)} ")
        elif name not in BLOCK_TAGS:
            self._inline(node, out, depth, lists)
        elif name in HEADINGS:
            text = tidy(self._line(node, depth))
            out.add(f"{'#' * HEADINGS[name]} {text}" if text else "")
        elif name in ("ul", "ol", "menu", "dir"):
            out.add(self._list(node, depth, lists))
        elif name in ("pre", "listing", "xmp", "plaintext"):
            out.add(self._code(node))
        elif name == "table":
            out.flush()
            out.blocks.extend(self._table(node, depth, lists))
        elif name == "blockquote":
            lines = "\n\n".join(self._blocks_of(node, depth, lists)).split("\n")
            out.add("\n".join(f"> {line}".rstrip() for line in lines) if any(lines) else "")
        else:
            out.flush()
            self._children(node, out, depth, lists)
            out.flush()

    def _inline(self, node: Node, out: _Block, depth: int, lists: int) -> None:
        name = node.name
        if name == "br":
            out.inline.append("\n")
        elif name == "img":
            alt = tidy(_SHAPELESS.sub("", attribute(node, "alt")))[:MAX_ALT_CHARS]
            out.inline.append(f"![{alt}]" if alt else "")
        elif name in ("code", "kbd", "samp", "tt") and not has_blocks(node):
            text = tidy(self._plain(node)).replace("\n", " ")
            out.inline.append(f"`{text}`" if text and "`" not in text else text)
        elif name == "a" and not has_blocks(node):
            out.inline.append(self._link(node, depth))
        elif name in ("wbr", "button"):
            return
        else:
            self._children(node, out, depth, lists)

    def _line(self, node: Node, depth: int) -> str:
        """Return the text below a heading or a cell on one line; buttons in it are part of it."""
        parts: list[str] = []
        for child in node.children or ():
            if child.name == "#text":
                self._count(child.data)
                parts.append(SPACE.sub(" ", _SHAPELESS.sub("", child.data or "")))
            elif child.name.startswith(("#", "!")) or self._left_out(child):
                continue
            elif depth >= MAX_DEPTH:
                parts.append(self._plain(child))
            elif child.name == "a":
                parts.append(self._link(child, depth + 1))
            elif child.name == "br" or child.name in BLOCK_TAGS:
                parts.append(f" {self._line(child, depth + 1)} ")
            elif child.name == "img":
                parts.append(tidy(attribute(child, "alt"))[:MAX_ALT_CHARS])
            else:
                parts.append(self._line(child, depth + 1))
        return "".join(parts)

    def _link(self, node: Node, depth: int) -> str:
        text = self._line(node, depth)
        label = tidy(text).replace("\n", " ")
        if label in _PERMALINKS:
            return ""
        href = self._target(attribute(node, "href"))
        if not label or href is None or "[" in label or "]" in label:
            return text
        before, after = " " * text.startswith(" "), " " * text.endswith(" ")
        return f"{before}[{label}]({href}){after}"

    def _target(self, href: str) -> str | None:
        """Return where a link leads if that is a page or a mailbox, resolved where the page's
        address is known.
        """
        target = _SHAPELESS.sub("", re.sub(r"[\t\r\n]+", "", href)).strip().replace(" ", "%20")
        if not target or target.startswith("#") or len(target) > MAX_HREF_CHARS:
            return None
        try:
            target = urljoin(self.base_url, target) if self.base_url else target
            scheme = urlsplit(target).scheme
        except ValueError:
            return None
        if scheme not in ("", "http", "https", "mailto") or not target.isprintable():
            return None
        return target.replace("(", "%28").replace(")", "%29")

    def _list(self, node: Node, depth: int, lists: int) -> str:
        numbered = node.name == "ol"
        number = whole(attribute(node, "start"), 1, 1_000_000)
        lines: list[str] = []
        for child in node.children or ():
            if child.name.startswith(("#", "!")) or self._left_out(child):
                continue
            blocks = self._blocks_of(child, depth + 1, lists + 1)
            if child.name not in ("li", "ul", "ol", "menu", "dir"):
                lines.extend(blocks)
                continue
            mark = f"{number}. " if numbered else "- "
            number += child.name == "li"
            indent = " " * len(mark) if lists < MAX_LIST_DEPTH else ""
            body = join_item(blocks).replace("\n", f"\n{indent}").replace(f"\n{indent}\n", "\n\n")
            if body:
                lines.append(f"{mark}{body}")
        return "\n".join(lines)

    def _code(self, node: Node) -> str:
        text = self._verbatim(node).strip("\n")
        if not text.strip():
            return ""
        longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
        fence = "`" * (longest + 1)
        return f"{fence}\n{text}\n{fence}"

    def _table(self, node: Node, depth: int, lists: int) -> Iterator[str]:
        """Yield the caption and the rows as one block; a table that only lays out a page gives its
        cells' blocks.
        """
        rows, captions = rows_of(node, self._left_out)
        if is_layout(node, rows):
            yield from self._cells(node, depth, lists)
            return
        for caption in captions:
            if text := tidy(self._line(caption, depth)).replace("\n", " "):
                yield text
        grid = [row for row in self._grid(rows, depth) if any(row)]
        if grid:
            yield pipe_rows(grid)

    def _cells(self, node: Node, depth: int, lists: int) -> Iterator[str]:
        out = _Block()
        self._children(node, out, depth, lists)
        out.flush()
        yield from out.blocks

    def _grid(self, rows: list[Node], depth: int) -> Iterator[list[str]]:
        """Yield rows of cells; a short cell that spans rows is repeated in each: every row speaks
        for itself.
        """
        carried: dict[int, tuple[str, int]] = {}
        for row in rows:
            cells: list[str] = []
            for cell in row.children or ():
                if cell.name not in ("td", "th") or self._left_out(cell):
                    continue
                take_carried(cells, carried)
                text = tidy(self._line(cell, depth + 2)).replace("\n", " ").replace("|", "\\|")
                span = whole(attribute(cell, "rowspan"), 1, MAX_SPAN)
                for column in range(whole(attribute(cell, "colspan"), 1, MAX_SPAN)):
                    if span > 1:
                        carried[len(cells)] = (
                            text if len(text) <= MAX_REPEATED_CHARS else "",
                            span - 1,
                        )
                    cells.append("" if column else text)
            take_carried(cells, carried)
            self._count("".join(cells))
            yield cells

    def _plain(self, node: Node) -> str:
        return SPACE.sub(" ", self._verbatim(node))

    def _verbatim(self, root: Node) -> str:
        """Return the visible text below a node as it stands, without recursion."""
        parts: list[str] = []
        stack = [root]
        while stack:
            node = stack.pop()
            if node.name == "#text":
                text = own_text(node)
                self._count(text)
                parts.append(_SHAPELESS.sub("", text))
            elif node.name == "br":
                parts.append("\n")
            elif node is root or not (node.name.startswith(("#", "!")) or self.rules.hides(node)):
                stack.extend(reversed(node.children or []))
        return "".join(parts)
