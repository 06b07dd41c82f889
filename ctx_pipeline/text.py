"""Text that every store, tokenizer and model can hold, and its canonical bytes. A leaf: imports
nothing of ours.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, cast

# tiktoken's regular expression overflows its stack on very long runs of blanks; no reader needs
# them.
MAX_BLANK_RUN = 200

_UNSTORABLE = re.compile("[\ud800-\udfff\x00]")
_CONTROL = re.compile("[\x01-\x08\x0e-\x1f\x7f-\x9f\u2028\u2029\ufdd0-\ufdef\ufffe\uffff]")
_PAGE_BREAK = re.compile("[\x0b\x0c]")
_BLANK_RUN = re.compile(rf"\s{{{MAX_BLANK_RUN + 1},}}")

# Default_Ignorable_Code_Point of Unicode 16, the bidirectional controls, and the annotation marks
# U+FFF9 to U+FFFB.
_UNSEEN_SET = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_PICTURE = (
    "\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2934\u2935\u2b00-\u2bff\u3030\u303d"
    "\u3297\u3299\U0001f000-\U0001faff"
)
"""Characters that a variation selector may follow and that a joiner may join to one picture."""
_JOINED = (
    "\u0620-\u06ff\u0710-\u077f\u08a0-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18aa\ufb50-\ufdcf"
    "\ufe70-\ufefc"
)
"""Letters and marks of scripts that are spelled with joiners: Arabic, Syriac, Indic, Burmese,
Khmer, Mongolian."""
_FLAGS = "|".join(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
_LEGIBLE = (
    f"{_FLAGS}|(?<=[{_PICTURE}])[\ufe0e\ufe0f]|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    f"|(?:(?<=[{_PICTURE}])|(?<=[{_PICTURE}]\ufe0f))\u200d(?=[{_PICTURE}])"
    f"|(?<=[{_JOINED}])[\u200c\u200d](?=[{_JOINED}])|(?<=[\u1820-\u18aa])[\u180b-\u180d\u180f]"
)
_UNSEEN = re.compile(f"({_LEGIBLE})|[{_UNSEEN_SET}]")
_ANY_UNSEEN = re.compile(f"[{_UNSEEN_SET}]")
_NO_TEXT = f"[{_UNSEEN_SET}\ud800-\udfff\x00{_CONTROL.pattern[1:-1]}\ufffd]"
_UNREADABLE = re.compile(f"({_LEGIBLE})|{_NO_TEXT}")
# The alternatives above are tried at every place; one set alone is looked for at the speed of
# memory.
_ANY_UNREADABLE = re.compile(_NO_TEXT)


def repair(value: str) -> str:
    """Replace lone surrogates and NUL by U+FFFD; every other character is kept."""
    if value.isascii() and "\x00" not in value:
        return value
    return _UNSTORABLE.sub("\ufffd", value)


def normalise(value: str) -> str:
    """Return text as it is stored: one kind of newline, no control characters, bounded blank runs.

    Idempotent. Runs of more than `MAX_BLANK_RUN` white-space characters are cut to that length.
    Characters that nobody sees stay, so that whoever stores the text can say where they were;
    `legible` takes them out.
    """
    text = _UNSTORABLE.sub("\ufffd", value.replace("\r\n", "\n").replace("\r", "\n"))
    text = _PAGE_BREAK.sub(" ", _CONTROL.sub("\ufffd", text))
    return _BLANK_RUN.sub(lambda run: run.group()[:MAX_BLANK_RUN], text)


def legible(value: str) -> str:
    """Return text as it is rendered: normalised, and without characters that nobody sees.

    Idempotent. Joiners and selectors stay where they belong: in pictures made of several
    characters, and between letters of scripts that are spelled with them.
    """
    return normalise(_without_unseen(value))


def _without_unseen(value: str) -> str:
    if value.isascii() or not _ANY_UNSEEN.search(value):
        return value
    return _UNSEEN.sub(lambda found: found.group(1) or "", value)


def unreadable(value: str) -> list[int]:
    """Return the places of all characters that `legible` takes out, or that stand for what is no
    text.
    """
    if not _ANY_UNREADABLE.search(value):
        return []
    return [found.start() for found in _UNREADABLE.finditer(value) if found.group(1) is None]


def spelled(value: str) -> str:
    """Return a name with every character that nobody sees, or that is no text, written as
    `[U+200B]`.

    Two names stay two names.
    """
    if not _ANY_UNREADABLE.search(value):
        return value
    return _UNREADABLE.sub(lambda found: found.group(1) or _code_point(found.group()), value)


def _code_point(char: str) -> str:
    return char if char == "\ufffd" else f"[U+{ord(char):04X}]"


def legible_json(value: Any) -> Any:
    """Return a JSON value with legible texts, keys among them."""
    if isinstance(value, str):
        return legible(value)
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {legible(key): legible_json(part) for key, part in pairs}
    if isinstance(value, list):
        return [legible_json(part) for part in cast("list[Any]", value)]
    return value


def escape_unreadable(text: str) -> str:
    """Return JSON text that means the same, with escapes for all that nobody sees or that a
    terminal obeys.
    """
    if not _ANY_UNREADABLE.search(text):
        return text
    return _UNREADABLE.sub(lambda found: found.group(1) or _json_escape(found.group()), text)


def _json_escape(char: str) -> str:
    return char if char in "\ufffd\n" else json.dumps(char)[1:-1]


MAX_JSON_DEPTH = 64


def repair_json(value: Any, depth: int = 0) -> Any:
    """Return a JSON value whose strings every store can hold.

    Raises:
        ValueError: it is not JSON (another type, NaN, infinity) or is nested deeper than
            `MAX_JSON_DEPTH`.
    """
    if depth > MAX_JSON_DEPTH:
        raise ValueError(f"nested deeper than {MAX_JSON_DEPTH} levels")
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return repair(value)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError("NaN and infinity are not JSON")
        return value
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return {repair(str(key)): repair_json(part, depth + 1) for key, part in pairs}
    if isinstance(value, list | tuple):
        return [repair_json(part, depth + 1) for part in cast("list[Any]", value)]
    raise ValueError(f"{type(value).__name__} is not JSON")


def canonical_json(value: Any) -> str:
    """Serialise to the one JSON text that hashes are taken of: sorted keys, no
    blanks, UTF-8 kept.
    """
    return json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )


def sha256_hex(value: str | bytes) -> str:
    """Return the SHA-256 of text (as UTF-8) or bytes, in hexadecimal."""
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return hashlib.sha256(data).hexdigest()


def short_hash(value: str | bytes, length: int = 12) -> str:
    """Return the first `length` hexadecimal digits of `sha256_hex`."""
    return sha256_hex(value)[:length]


def reference(name: str) -> str:
    """Return what stands for a name where not everybody may read it: the beginning of its hash."""
    return f"#{short_hash(name, 12)}"
