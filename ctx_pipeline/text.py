"""Text that every store, tokenizer and model can hold, and its canonical bytes. A leaf: imports nothing of ours."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

# tiktoken's regular expression overflows its stack on very long runs of blanks; no reader needs them.
MAX_BLANK_RUN = 200

_UNSTORABLE = re.compile("[\ud800-\udfff\x00]")
_CONTROL = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f\x85\u2028\u2029]")
_BLANK_RUN = re.compile(r"\s{%d,}" % (MAX_BLANK_RUN + 1))


def repair(value: str) -> str:
    """Replace lone surrogates and NUL by U+FFFD; every other character is kept."""
    return _UNSTORABLE.sub("\ufffd", value)


def normalise(value: str) -> str:
    """Return text as it is rendered: one kind of newline, no control characters, bounded blank runs.

    Idempotent. Runs of more than `MAX_BLANK_RUN` white-space characters are cut to that length.
    """
    text = _UNSTORABLE.sub("\ufffd", value.replace("\r\n", "\n").replace("\r", "\n"))
    text = _CONTROL.sub("\ufffd", text)
    return _BLANK_RUN.sub(lambda run: run.group()[:MAX_BLANK_RUN], text)


def canonical_json(value: Any) -> str:
    """Serialise to the one JSON text that hashes are taken of: sorted keys, no blanks, UTF-8 kept."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def sha256_hex(value: str | bytes) -> str:
    """Return the SHA-256 of text (as UTF-8) or bytes, in hexadecimal."""
    data = value.encode("utf-8") if isinstance(value, str) else value
    return hashlib.sha256(data).hexdigest()


def short_hash(value: str | bytes, length: int = 12) -> str:
    """Return the first `length` hexadecimal digits of `sha256_hex`."""
    return sha256_hex(value)[:length]
