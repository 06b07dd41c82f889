"""The text of a block: one item as a model sees it, between delimiters that its own text cannot
close or imitate.

A block starts with `<` and ends with `>` and a newline, so no token of any supported vocabulary
crosses a block boundary: the count of a text is the sum of the counts of its blocks (checked in
tests/language/test_tokens.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from ctx_pipeline.contracts.codes import Rendition
from ctx_pipeline.text import legible, sha256_hex

RENDITION_VERSION = "3"
"""Changes whenever the bytes of a rendition change; part of every build's generation."""

COMPACT_CHARS = 480
"""Most characters of a compact rendition of Latin text; text that is mostly Chinese gets a third.
"""
COMPACT_MIN_SAVING = 0.25
"""A compact rendition that saves less than this share of the full one is not offered."""

# A reader may skip blanks and marks of what was no text inside a tag, so these imitate one as well.
# Characters that nobody sees are taken out before. Possessive: linear time.
_GAP = r"[\s\ufffd]*+"
_IMITATION = re.compile(rf"<(?={_GAP}(?:/{_GAP})?(?:item|section)\b)", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?;。！？；\n](?=\s|[^\x00-\x7f]|$)")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


@dataclass(frozen=True, slots=True)
class BlockLabels:
    """What the delimiters of a block say."""

    item_id: str
    version: str
    title: str
    source: str
    trust: str
    times: tuple[tuple[str, str], ...] = ()
    """Names of times and the times, for what is only as good as it is recent."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The renditions of one item. `compact` is None where it would save too little."""

    full: str
    compact: str | None
    pointer: str

    def of(self, rendition: Rendition) -> str | None:
        """Return one of them."""
        match rendition:
            case Rendition.FULL:
                return self.full
            case Rendition.COMPACT:
                return self.compact
            case Rendition.POINTER:
                return self.pointer


def make_blocks(labels: BlockLabels, content: str) -> Blocks:
    """Render an item in every rendition."""
    body = escape(legible(content))
    tag = _tag(body)
    full = _wrap(tag, _attributes(labels, Rendition.FULL), body)
    short = _shorten(body)
    compact = None
    if short is not None:
        compact = _wrap(tag, _attributes(labels, Rendition.COMPACT), short)
        if len(compact) > len(full) * (1 - COMPACT_MIN_SAVING):
            compact = None
    return Blocks(full=full, compact=compact, pointer=_pointer(labels, len(body)))


def sent_blocks(labels: BlockLabels, content: str, characters: int | None = None) -> Blocks:
    """Render what came with a request: nobody keeps it, so that a pointer leads nowhere.

    `characters` is its length where `content` is only its beginning.
    """
    body = escape(legible(content))
    length = len(body) if characters is None else characters
    pointer = f'<item {_attributes(labels, Rendition.POINTER)} characters="{length}"/>\n'
    full = _wrap(_tag(body), _attributes(labels, Rendition.FULL), body)
    return Blocks(full=full, compact=None, pointer=pointer)


def cut_block(labels: BlockLabels, content: str) -> str:
    """Return the block of a content that has been cut."""
    body = escape(legible(content))
    return _wrap(_tag(body), _attributes(labels, Rendition.COMPACT), body)


def escape(body: str) -> str:
    """Replace the `<` of everything that imitates a delimiter, so that no content can open or close
    one.
    """
    return _IMITATION.sub("&lt;", body)


def _tag(body: str) -> str:
    digest = sha256_hex(body)
    length = 6
    while f"item-{digest[:length]}" in body and length < len(digest):
        length += 2
    return f"item-{digest[:length]}"


def _attributes(labels: BlockLabels, rendition: Rendition) -> str:
    pairs = [
        ("id", labels.item_id),
        ("version", labels.version),
        ("title", labels.title),
        ("source", labels.source),
        ("trust", labels.trust),
        *labels.times,
    ]
    if rendition is not Rendition.FULL:
        pairs.append(("shown", rendition.value))
    return " ".join(f'{name}="{attribute(value)}"' for name, value in pairs if value)


def time_text(moment: datetime) -> str:
    """Return a time as blocks say it, in UTC: the day alone where it is midnight."""
    utc = moment.astimezone(UTC)
    midnight = (utc.hour, utc.minute, utc.second) == (0, 0, 0)
    return f"{utc:%Y-%m-%d}" if midnight else f"{utc:%Y-%m-%dT%H:%M}Z"


def attribute(value: str, limit: int = 160) -> str:
    """Return a value that is safe inside double quotes on one line, at most `limit` characters."""
    flat = " ".join(legible(value).split())
    flat = (
        flat.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    )
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def _wrap(tag: str, attributes: str, body: str) -> str:
    return f"<{tag} {attributes}>\n{body}\n</{tag}>\n"


def _pointer(labels: BlockLabels, characters: int) -> str:
    return (
        f"<item {_attributes(labels, Rendition.POINTER)} "
        f'characters="{characters}" more="expand by id"/>\n'
    )


def _shorten(body: str) -> str | None:
    limit = (
        COMPACT_CHARS // 3
        if len(_CJK.findall(body[:COMPACT_CHARS])) * 3 > min(len(body), COMPACT_CHARS)
        else COMPACT_CHARS
    )
    if len(body) <= limit:
        return None
    ends = [found.end() for found in _SENTENCE_END.finditer(body, 0, limit)]
    cut = ends[-1] if ends and ends[-1] > limit // 3 else limit
    return (
        f"{body[:cut].rstrip()}\n[truncated: {cut} of {len(body)} "
        "characters shown, has_more=true, expand by id]"
    )
