"""The characters of a web page: mark, transport, declaration, in the order of the HTML standard."""

from __future__ import annotations

import codecs
import re

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

    A byte order mark counts most, then `charset` (of the transport), then a declaration in the page, then UTF-8, then
    GB 18030 and Windows-1252, each only without an error. A page of a declared character set may have a few wrong
    bytes; they become U+FFFD.
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
