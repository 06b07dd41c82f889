"""Text of a page that its readers do not see. It is a carrier of instructions to models, so it is
dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from justhtml import Node

UNSEEN_TAGS = frozenset(
    [
        "applet",
        "area",
        "audio",
        "base",
        "canvas",
        "datalist",
        "dialog",
        "embed",
        "frame",
        "frameset",
        "head",
        "iframe",
        "input",
        "link",
        "map",
        "meta",
        "meter",
        "noembed",
        "noframes",
        "noscript",
        "object",
        "option",
        "optgroup",
        "param",
        "portal",
        "progress",
        "rp",
        "rt",
        "script",
        "select",
        "source",
        "style",
        "svg",
        "template",
        "textarea",
        "title",
        "track",
        "video",
    ]
)
"""Elements without text for a reader, or whose text a browser shows elsewhere or not at first."""

UNSEEN_CLASSES = frozenset(
    [
        "a11y-hidden",
        "assistive-text",
        "element-invisible",
        "invisible",
        "screen-reader",
        "screen-reader-only",
        "screen-reader-text",
        "sr-only",
        "visually-hidden",
        "visuallyhidden",
    ]
)
"""Classes that common style sheets use for text that is not shown."""

MAX_STYLE_CHARS = 400_000
MAX_STYLE_RULES = 5_000
MIN_FONT_PX = 2.0
"""Text up to this size cannot be read."""
FAR_PX = 500.0
"""Text moved this far up or left is off the screen."""

_PLAIN_SELECTOR = re.compile(r"([A-Za-z][A-Za-z0-9]*)?((?:[.#][\w-]+)*)")
_PART = re.compile(r"([.#])([\w-]+)")
_RULE = re.compile(r"([^{}]*)\{([^{}]*)\}")
_SAYS_WHETHER_SHOWN = re.compile(r"\b(?:display|visibility)\b", re.IGNORECASE)
_CSS_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_LENGTH = re.compile(r"(-?(?:\d+\.?\d*|\.\d+))(px|pt|em|rem|ex|ch|vw|vh|vmin|vmax|cm|mm|in|pc|%)?")
_PX_PER_UNIT = {
    "pt": 4 / 3,
    "em": 16,
    "rem": 16,
    "ex": 8,
    "ch": 8,
    "cm": 37.8,
    "mm": 3.78,
    "in": 96,
    "pc": 16,
}
# Pages hide these until a script has run.
_NEVER_HIDDEN = frozenset({"html", "body"})
_SHOWN_LATER = re.compile(
    r"[:-](?:block|flex|grid|inline|inline-block|inline-flex|table|contents)$"
)


@dataclass(frozen=True, slots=True)
class HiddenRules:
    """Which simple selectors the style sheets of one page hide."""

    rules: Mapping[str, tuple[frozenset[str], ...]] = field(
        default_factory=dict[str, tuple[frozenset[str], ...]]
    )
    """By one of its parts: all parts (`p`, `.note`, `#x`) that a hidden element has."""

    def hides(self, node: Node) -> bool:
        """Say whether an element and all below it are not shown to a reader of the page."""
        name = node.name
        if name in UNSEEN_TAGS:
            return not (name == "dialog" and "open" in (node.attrs or {}))
        if name in _NEVER_HIDDEN:
            return False
        attributes = node.attrs or {}
        if not attributes:
            return frozenset((name,)) in self.rules.get(name, ())
        if (
            "hidden" in attributes
            or (attributes.get("aria-hidden") or "").strip().lower() == "true"
        ):
            return True
        style = attributes.get("style")
        if style and is_hiding(style):
            return True
        classes = (attributes.get("class") or "").split()
        return _hiding_classes(classes) or (
            bool(self.rules) and self._matches(name, classes, attributes)
        )

    def _matches(self, name: str, classes: list[str], attributes: Mapping[str, str | None]) -> bool:
        has = {name, *(f".{part}" for part in classes), f"#{attributes.get('id') or ''}"}
        return any(rule <= has for part in has for rule in self.rules.get(part, ()))


def own_text(node: Node) -> str:
    """Return the text that a text node holds."""
    return node.data if isinstance(node.data, str) else ""


def hidden_rules(styles: Iterable[str]) -> HiddenRules:
    """Read which elements the text of `<style>` elements hides; rules within `@media` and the like
    do not count.
    """
    hidden: dict[frozenset[str], bool] = {}
    left = MAX_STYLE_CHARS
    for style in styles:
        text = _without_at_rules(_CSS_COMMENT.sub(" ", style[:left]))
        left -= min(left, len(style))
        for number, rule in enumerate(_RULE.finditer(text)):
            if number >= MAX_STYLE_RULES:
                break
            if not _SAYS_WHETHER_SHOWN.search(rule[2]) and not is_hiding(rule[2]):
                continue
            for selector in rule[1].split(","):
                if parts := _parts(selector.strip()):
                    hidden[parts] = is_hiding(rule[2])
    rules: dict[str, tuple[frozenset[str], ...]] = {}
    for parts, hides in hidden.items():
        if hides:
            key = max(parts, key=lambda part: (part[0] in ".#", part))
            rules[key] = (*rules.get(key, ()), parts)
    return HiddenRules(rules)


def is_hiding(style: str) -> bool:
    """Say whether declarations such as `display: none` keep an element from being read."""
    values = _declarations(style)
    if values.get("display") == "none" or values.get("visibility") in ("hidden", "collapse"):
        return True
    if values.get("content-visibility") == "hidden" or values.get("color") in (
        "transparent",
        "rgba(0,0,0,0)",
    ):
        return True
    return _too_small(values) or _off_screen(values) or _same_colour(values)


def _declarations(style: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for declaration in style.lower().split(";"):
        key, colon, value = declaration.partition(":")
        if colon:
            values[key.strip()] = "".join(value.replace("!important", "").split())
    return values


def _too_small(values: dict[str, str]) -> bool:
    opacity = _number(values.get("opacity"))
    size = _pixels(values.get("font-size"))
    if (opacity is not None and opacity <= 0.05) or (size is not None and size <= MIN_FONT_PX):
        return True
    if any(
        part in values.get("transform", "")
        for part in ("scale(0)", "scale(0,0)", "scalex(0)", "scaley(0)")
    ):
        return True
    if (
        values.get("clip", "").startswith(("rect(0", "rect(1px"))
        or values.get("clip-path", "") in _CLIPPED
    ):
        return True
    clipped = "hidden" in values.get("overflow", "") or "clip" in values.get("overflow", "")
    sides = (_pixels(values.get(side)) for side in ("height", "width", "max-height", "max-width"))
    return clipped and any(side is not None and 0 <= side <= 1 for side in sides)


_CLIPPED = ("inset(100%)", "inset(50%)", "circle(0)", "circle(0px)", "circle(0%)")


def _off_screen(values: dict[str, str]) -> bool:
    moved = ["text-indent", "margin-left", "margin-top"]
    if values.get("position") in ("absolute", "fixed", "relative"):
        moved += ["left", "top", "right", "bottom"]
    lengths = [_pixels(values.get(key)) for key in moved]
    lengths += [
        _pixels(value)
        for value in re.findall(r"translate[xy]?\(([^,)]*)", values.get("transform", ""))
    ]
    return any(length is not None and length <= -FAR_PX for length in lengths)


def _same_colour(values: dict[str, str]) -> bool:
    colour = _colour(values.get("color"))
    return colour is not None and colour == _colour(
        values.get("background-color") or values.get("background")
    )


def _colour(value: str | None) -> str | None:
    if not value:
        return None
    if re.fullmatch(r"#[0-9a-f]{3}", value):
        return "#" + "".join(digit * 2 for digit in value[1:])
    return {
        "white": "#ffffff",
        "black": "#000000",
        "rgb(255,255,255)": "#ffffff",
        "rgb(0,0,0)": "#000000",
    }.get(value, value)


def _number(value: str | None) -> float | None:
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)(%?)", value) if value else None
    return None if match is None else float(match[1]) / (100 if match[2] else 1)


def _pixels(value: str | None) -> float | None:
    """Return a length in CSS pixels, relative ones at the default size; None for what is not a
    length.
    """
    match = _LENGTH.fullmatch(value) if value and len(value) <= 40 else None
    if match is None:
        return None
    # Percentages and view sizes are of something unknown; ten pixels each is near enough to tell
    # far from near.
    return float(match[1]) * (
        _PX_PER_UNIT.get(match[2], 10) if match[2] and match[2] != "px" else 1
    )


def _hiding_classes(classes: list[str]) -> bool:
    if not classes:
        return False
    if UNSEEN_CLASSES.intersection(part.lower() for part in classes):
        return not any(part.endswith(("not-sr-only", ":visible")) for part in classes)
    # `hidden md:block` and `d-none d-md-block` are shown on a wider screen.
    return ("hidden" in classes or "d-none" in classes) and not any(
        _SHOWN_LATER.search(part) for part in classes if part not in ("hidden", "d-none")
    )


def _without_at_rules(text: str) -> str:
    """Drop `@media {...}` and the like with what is nested in them."""
    kept: list[str] = []
    position = 0
    while (start := text.find("@", position)) >= 0:
        kept.append(text[position:start])
        position = _end_of_at_rule(text, start)
    kept.append(text[position:])
    return "".join(kept)


def _end_of_at_rule(text: str, start: int) -> int:
    depth = 0
    for match in re.compile(r"[;{}]").finditer(text, start):
        mark = match.group()
        depth += (mark == "{") - (mark == "}")
        if depth <= 0 and (mark != "{"):
            return match.end()
    return len(text)


def _parts(selector: str) -> frozenset[str]:
    """Return the parts of `p.note` or `#x`; empty for selectors that look at other elements or at
    states.
    """
    match = _PLAIN_SELECTOR.fullmatch(selector)
    tag = (match[1] or "").lower() if match else ""
    if match is None or tag in _NEVER_HIDDEN:
        return frozenset()
    parts = {f"{kind}{name}" for kind, name in _PART.findall(match[2] or "")}
    return frozenset(parts | ({tag} if tag else set()))
