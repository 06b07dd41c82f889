"""Text that every store, tokenizer and model can hold, and its canonical bytes. A leaf: imports nothing of ours."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, cast

# tiktoken's regular expression overflows its stack on very long runs of blanks; no reader needs them.
MAX_BLANK_RUN = 200

_UNSTORABLE = re.compile("[\ud800-\udfff\x00]")
_CONTROL = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f\x85\u2028\u2029]")
_BLANK_RUN = re.compile(rf"\s{{{MAX_BLANK_RUN + 1},}}")


def repair(value: str) -> str:
    """Replace lone surrogates and NUL by U+FFFD; every other character is kept."""
    if value.isascii() and "\x00" not in value:
        return value
    return _UNSTORABLE.sub("\ufffd", value)


def normalise(value: str) -> str:
    """Return text as it is rendered: one kind of newline, no control characters, bounded blank runs.

    Idempotent. Runs of more than `MAX_BLANK_RUN` white-space characters are cut to that length.
    """
    text = _UNSTORABLE.sub("\ufffd", value.replace("\r\n", "\n").replace("\r", "\n"))
    text = _CONTROL.sub("\ufffd", text)
    return _BLANK_RUN.sub(lambda run: run.group()[:MAX_BLANK_RUN], text)


MAX_JSON_DEPTH = 64


def repair_json(value: Any, depth: int = 0) -> Any:
    """Return a JSON value whose strings every store can hold.

    Raises:
        ValueError: it is not JSON (another type, NaN, infinity) or is nested deeper than `MAX_JSON_DEPTH`.
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
    """Serialise to the one JSON text that hashes are taken of: sorted keys, no blanks, UTF-8 kept."""
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
