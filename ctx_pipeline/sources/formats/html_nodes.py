"""What kinds of elements HTML has, and what their parts are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from justhtml import Node

BLOCK_TAGS = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "caption",
        "center",
        "dd",
        "details",
        "dialog",
        "dir",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hgroup",
        "hr",
        "html",
        "legend",
        "li",
        "listing",
        "main",
        "menu",
        "nav",
        "ol",
        "p",
        "plaintext",
        "pre",
        "search",
        "section",
        "summary",
        "table",
        "tbody",
        "td",
        "tfoot",
        "th",
        "thead",
        "tr",
        "ul",
        "xmp",
    ]
)
HEADINGS = {f"h{level}": level for level in range(1, 7)}
SPACE = re.compile(r"[ \t\r\n\f\v\xa0\u2000-\u200a\u202f\u205f\u3000]+")
"""Any run of blanks, line ends among them."""


def tidy(text: str) -> str:
    """Return text without blanks at the ends of its lines, and without empty lines."""
    return "\n".join(line for part in text.split("\n") if (line := SPACE.sub(" ", part).strip()))


def attribute(node: Node, name: str) -> str:
    """Return the value of an attribute, empty where there is none."""
    return (node.attrs or {}).get(name) or ""


def whole(value: str, least: int, most: int) -> int:
    """Return a whole number within bounds, the least one for what is no number."""
    digits = value.strip()
    number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else least
    return max(least, min(most, number))


def has_blocks(node: Node) -> bool:
    """Say whether blocks stand below an element."""
    stack = list(node.children or [])
    while stack:
        child = stack.pop()
        if child.name in BLOCK_TAGS:
            return True
        stack.extend(child.children or [])
    return False


def join_item(blocks: list[str]) -> str:
    """Join the blocks of a list item: nested lists follow at once, other blocks after an empty
    line.
    """
    text = ""
    for block in blocks:
        nested = re.match(r"(?:- |\d+\. )", block) is not None
        text += f"{'' if not text else chr(10) if nested else chr(10) * 2}{block}"
    return text


def rows_of(table: Node, left_out: Callable[[Node], bool]) -> tuple[list[Node], list[Node]]:
    """Return the rows and the captions of a table."""
    rows: list[Node] = []
    captions: list[Node] = []
    for child in table.children or ():
        if child.name.startswith(("#", "!")) or left_out(child):
            continue
        if child.name == "tr":
            rows.append(child)
        elif child.name == "caption":
            captions.append(child)
        elif child.name in ("thead", "tbody", "tfoot"):
            rows.extend(
                row for row in child.children or () if row.name == "tr" and not left_out(row)
            )
    return rows, captions


def is_layout(table: Node, rows: list[Node]) -> bool:
    """Say whether a table only places parts of a page side by side."""
    if attribute(table, "role").strip().lower() in ("presentation", "none"):
        return True
    cells = [cell for row in rows for cell in row.children or () if cell.name in ("td", "th")]
    if len(cells) < 2:
        return True
    return any(_holds_table(cell) for cell in cells)


def _holds_table(cell: Node) -> bool:
    stack = list(cell.children or [])
    while stack:
        child = stack.pop()
        if child.name in ("table", "pre") or child.name in HEADINGS:
            return True
        stack.extend(child.children or [])
    return False


def take_carried(cells: list[str], carried: dict[int, tuple[str, int]]) -> None:
    """Put in the cells that reach down from rows above, as long as they come next."""
    while (entry := carried.pop(len(cells), None)) is not None:
        text, left = entry
        if left > 1:
            carried[len(cells)] = (text, left - 1)
        cells.append(text)


def pipe_rows(grid: list[list[str]]) -> str:
    """Return rows of cells as a Markdown table; the first row is its head."""
    width = max(len(row) for row in grid)
    head, *body = ([*row, *[""] * (width - len(row))] for row in grid)
    lines = [head, ["---"] * width, *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
