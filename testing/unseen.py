"""Characters that nobody sees, named one by one, and a check of text that shares nothing with
`ctx_pipeline.text`.
"""

from __future__ import annotations

import re

_RANGES = (
    (0x00, 0x08), (0x0E, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x034F, 0x034F), (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF9, 0xFFFB), (0xD800, 0xD800),
    (0xDFFF, 0xDFFF),
    (0xE0000, 0xE007F), (0xE0100, 0xE01EF),
)  # fmt: skip
UNSEEN = [chr(code) for first, last in _RANGES for code in range(first, last + 1)]
_SET = frozenset(UNSEEN)
_FLAG = re.compile("\U0001f3f4[\U000e0061-\U000e007a]{5}\U000e007f")
_SPELLED_WITH_JOINERS = re.compile("[\u0600-\u0dff\u1000-\u109f\u1780-\u18aa\ufb50-\ufefc]")


def _is_picture(char: str) -> bool:
    return char in "❤☎©®™" or "\u2190" <= char <= "\u2bff" or "\U0001f000" <= char <= "\U0001faff"


def is_legible(text: str) -> bool:
    """Whether every unseen character of a text is part of a picture, or joins letters of a script
    that needs it.
    """
    text = _FLAG.sub("", text)
    return all(_belongs(text, at) for at, char in enumerate(text) if char in _SET)


def _belongs(text: str, at: int) -> bool:
    char, before, after = text[at], text[at - 1 : at], text[at + 1 : at + 2]
    if char in "\ufe0e\ufe0f":
        return bool(before) and (
            _is_picture(before) or (before in "0123456789#*" and after == "\u20e3")
        )
    if char == "\u200d" and after and _is_picture(after):
        return bool(before) and (
            _is_picture(before) or (before == "\ufe0f" and _is_picture(text[at - 2 : at - 1]))
        )
    if char in "\u200c\u200d":
        return bool(_SPELLED_WITH_JOINERS.match(before) and _SPELLED_WITH_JOINERS.match(after))
    return char in "\u180b\u180c\u180d\u180f" and "\u1820" <= before <= "\u18aa"
