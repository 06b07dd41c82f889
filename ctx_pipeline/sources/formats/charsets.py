"""The characters of a text: by mark and declaration, or else by what its bytes can be."""

from __future__ import annotations

import codecs
import re
import unicodedata

PRESCAN_BYTES = 4_096
"""How far a declaration is looked for; the HTML standard asks for the first 1,024 bytes."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_META = re.compile(
    rb"<meta\b[^>]{0,1000}?\bcharset\s*=\s*[\"']?\s*([A-Za-z0-9_:.\-]{2,40})", re.IGNORECASE
)
_XML = re.compile(
    rb"<\?xml\b[^>]{0,200}?\bencoding\s*=\s*[\"']([A-Za-z0-9_:.\-]{2,40})", re.IGNORECASE
)
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)

# The WHATWG encoding standard reads these labels as supersets of what they name.
_SUPERSETS = {
    "ascii": "cp1252",
    "big5": "big5hkscs",
    "cp936": "gb18030",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso8859-1": "cp1252",
    "euc_kr": "cp949",
    "shift_jis": "cp932",
}
_REFUSED = {
    "utf-7",
    "hz",
    "punycode",
    "idna",
    "unicode_escape",
    "raw_unicode_escape",
    "undefined",
    "mbcs",
    "oem",
}
"""Codecs that are no character set of a page, or that hide markup from a reader."""


def decode_page(content: bytes, charset: str | None = None) -> str | None:
    """Return the text of a page, None if its bytes are not text of the character set that counts.

    A byte order mark counts most, then `charset` (of the transport), then a declaration in the
    page, then UTF-8, then GB 18030 and Windows-1252, each only without an error. A page of a
    declared character set may have a few wrong bytes; they become U+FFFD.
    """
    for mark, name in _MARKS:
        if content.startswith(mark):
            return content[len(mark) :].decode(name, "replace")
    if b"\0" in content[:PRESCAN_BYTES]:
        return None
    for label in (charset, _declared(content)):
        codec = codec_of(label)
        if codec is not None:
            text = content.decode(codec, "replace")
            if text.count("\ufffd") * 100 <= len(text):
                return text
    for codec in ("utf-8", "gb18030", "cp1252"):
        try:
            return content.decode(codec)
        except UnicodeDecodeError:
            continue
    return None


def codec_of(label: str | None) -> str | None:
    """Return the codec of a character set's label, None for what no page may be written in."""
    if not label:
        return None
    try:
        name = codecs.lookup(label.strip().lower().replace("x-", "")).name
    except (LookupError, ValueError):
        return None
    if name in _REFUSED or not getattr(codecs.lookup(name), "_is_text_encoding", True):
        return None
    # A page whose declaration could be read as ASCII is not UTF-16, whatever it says.
    return "utf-8" if name.startswith(("utf-16", "utf-32")) else _SUPERSETS.get(name, name)


def _declared(content: bytes) -> str | None:
    head = _COMMENT.sub(b"", content[:PRESCAN_BYTES])
    match = _META.search(head) or _XML.search(head)
    return match[1].decode("ascii") if match else None


_HIGH_RUN = re.compile(rb"[\x80-\xff]+")
_BREAKS = ("\n", ",", "\t", ";", " ")


def text_encoding(head: bytes, *, whole: bool) -> str | None:
    """Return the encoding of a text by its first bytes, None for what is no text.

    A byte order mark counts most. UTF-16 without one is told by its NUL bytes, then UTF-8. What is
    left is GB 18030 where letters beyond ASCII come in pairs, else Windows-1252. `whole`: there is
    no more than this.
    """
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    if b"\0" in head:
        return _wide_encoding(head)
    if (text := _decoded(head, "utf-8", whole=whole)) is not None:
        return "utf-8" if is_readable(text) else None
    runs = [len(run) for run in _HIGH_RUN.findall(head)]
    # Chinese words are runs of pairs; an accented letter mostly stands alone between others.
    names = ("cp1252", "gb18030") if runs.count(1) * 2 > len(runs) else ("gb18030", "cp1252")
    for name in names:
        text = _decoded(head, name, whole=whole)
        if text is not None and is_readable(text, guessed=True):
            return name
    return None


def _wide_encoding(head: bytes) -> str | None:
    even = head[: len(head) // 2 * 2]
    for name in ("utf-16-le", "utf-16-be"):
        text = _decoded(even, name, whole=False)
        if (
            text is not None
            and any(mark in text for mark in _BREAKS)
            and is_readable(text, guessed=True)
        ):
            return name
    return None


def _decoded(head: bytes, name: str, *, whole: bool) -> str | None:
    try:
        # The first bytes may end within a character; an incremental decoder waits for the rest.
        return codecs.getincrementaldecoder(name)().decode(head, final=whole)
    except UnicodeDecodeError:
        return None


def is_readable(text: str, *, guessed: bool = False) -> bool:
    """Return whether text has few control characters; where its encoding is a guess, also few
    unknown ones.
    """
    if not text:
        return False
    some = text[:8_000]
    odd = sum((char < " " and char not in "\t\n\r\f\x1b") or char == "\x7f" for char in some)
    if guessed:
        odd += sum(
            char >= "\x80" and unicodedata.category(char) in ("Cn", "Co", "Cc") for char in some
        )
    return odd * 50 <= len(some)
