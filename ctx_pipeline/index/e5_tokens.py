"""The tokenizer of multilingual-e5-small: the most likely split of a text into known pieces
(SentencePiece unigram).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ctx_pipeline.index.e5_weights import Weights

_SPACES = re.compile(" {2,}")
_BLANK: Final = "\u2581"
"""Stands for a space in pieces."""
_UNKNOWN_PENALTY: Final = 10.0
"""How much worse than the least likely piece a character without a piece is."""


class Tokenizer:
    """Splits texts. Holds 40 MB; safe to share between threads."""

    def __init__(self, weights: Weights) -> None:
        self._pieces = weights.pieces()
        self._forms = weights.normal_forms()
        self._special = weights.special
        self._longest = max(map(len, self._pieces))
        self._unknown_score = min(score for _, score in self._pieces.values()) - _UNKNOWN_PENALTY
        self._most = weights.sizes.positions - 2

    def ids(self, text: str) -> list[int]:
        """Return the ids of a text between those that begin and end it; what the model has no room
        for is cut off.
        """
        spaced = _SPACES.sub(" ", text.translate(self._forms))
        if not spaced.startswith(" "):
            spaced = f" {spaced}"
        content = self._split(spaced.replace(" ", _BLANK))
        return [self._special.begin, *content[: self._most], self._special.end]

    def _split(self, text: str) -> list[int]:
        """Return the pieces of the split whose scores add up to most; of equals the one found
        first, from the left.
        """
        known, unknown, size = self._pieces.get, self._special.unknown, len(text)
        best = [float("-inf")] * (size + 1)
        best[0] = 0.0
        steps = [(0, 0)] * (size + 1)
        for start in range(size):
            score = best[start]
            for end in range(start + 1, min(size, start + self._longest) + 1):
                piece = known(text[start:end])
                if piece is not None and score + piece[1] > best[end]:
                    best[end], steps[end] = score + piece[1], (piece[0], start)
            if score + self._unknown_score > best[start + 1]:
                best[start + 1], steps[start + 1] = score + self._unknown_score, (unknown, start)
        found: list[int] = []
        at = size
        while at:
            piece_id, at = steps[at]
            found.append(piece_id)
        return found[::-1]
