"""Regular expressions that a tool's schema brings along: searched in linear time, or not at all."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import re2

MAX_PATTERN_CHARS = 1_000
MAX_TEXT_CHARS = 4_096
"""Longer patterns and texts are not looked at: what a model is to fill in is shorter."""
MAX_MEMORY_BYTES = 1 << 20
"""Memory that one pattern may take; RE2 gives up on one that wants more."""
STEP_WORK = 20_000
"""Instructions times characters that count as one step: about a tenth of a millisecond."""


class Searched(NamedTuple):
    """What a search gave, and what it cost."""

    found: bool | None
    """None: the pattern cannot be searched in linear time, or it or the text is too long."""
    steps: int


def search(pattern: str, text: str) -> Searched:
    """Search a text for a pattern from outside, never longer than in proportion to pattern and
    text.

    RE2 has no backtracking: `(a+)+$` is as quick as `a+$`. Lookaround and back references it does
    not take.
    """
    if len(pattern) > MAX_PATTERN_CHARS or len(text) > MAX_TEXT_CHARS:
        return Searched(None, 1)
    compiled = _compiled(pattern)
    if compiled is None:
        return Searched(None, 1)
    return Searched(
        compiled.search(text) is not None, 1 + compiled.programsize * len(text) // STEP_WORK
    )


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re2.Regexp | None:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY_BYTES
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError):
        return None
