"""Writes a model for ONNX Runtime: the few parts of the ONNX format that a transformer encoder
needs.

The format is Protocol Buffers with the field numbers of `onnx.proto3`, which never change. The
package `onnx` writes it too, for 14 MB more to install.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[Any]

MICROSOFT: Final = "com.microsoft"
"""Operators that ONNX Runtime adds to the standard."""

_IR_VERSION: Final = 8
_OPSET: Final = 17
_MICROSOFT_OPSET: Final = 1
_TENSOR_TYPES: Final = {"float32": 1, "uint8": 2, "int8": 3, "int64": 7}
_FLOAT, _INT, _INTS = 1, 2, 7
"""Kinds of attributes."""


class Graph:
    """A graph of named tensors, built in the order in which it runs."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []

    def constant(self, name: str, values: Array) -> str:
        """Add a tensor that the model holds; return its name."""
        dims = b"".join(_number(1, size) for size in values.shape)
        kind = _number(2, _TENSOR_TYPES[values.dtype.name])
        self._constants.append(
            _block(5, dims + kind + _text(8, name) + _block(9, values.tobytes()))
        )
        return name

    def add(
        self,
        operator: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        domain: str = "",
        **attributes: float | Sequence[int],
    ) -> str:
        """Add an operation; return the name of its first output. An input that is left out has an
        empty name.
        """
        node = b"".join(_text(1, name) for name in inputs) + b"".join(
            _text(2, name) for name in outputs
        )
        node += _text(4, operator) + b"".join(
            _block(5, _attribute(*pair)) for pair in attributes.items()
        )
        self._nodes.append(_block(1, node + _text(7, domain)))
        return outputs[0]

    def model(
        self, given: tuple[str, Sequence[int | str]], result: tuple[str, Sequence[int | str]]
    ) -> bytes:
        """Return the model's bytes: one float input and one float output, each a name and its
        sizes.
        """
        graph = b"".join(self._nodes) + _text(2, "graph") + b"".join(self._constants)
        graph += _block(11, _value(*given)) + _block(12, _value(*result))
        opsets = (("", _OPSET), (MICROSOFT, _MICROSOFT_OPSET))
        versions = b"".join(
            _block(8, _text(1, domain) + _number(2, version)) for domain, version in opsets
        )
        return _number(1, _IR_VERSION) + _block(7, graph) + versions


def _attribute(name: str, value: float | Sequence[int]) -> bytes:
    if isinstance(value, int):
        return _text(1, name) + _number(3, value) + _number(20, _INT)
    if isinstance(value, float):
        return _text(1, name) + _tag(2, 5) + struct.pack("<f", value) + _number(20, _FLOAT)
    return _text(1, name) + b"".join(_number(8, each) for each in value) + _number(20, _INTS)


def _value(name: str, sizes: Sequence[int | str]) -> bytes:
    dims = b"".join(
        _block(1, _number(1, size) if isinstance(size, int) else _text(2, size)) for size in sizes
    )
    tensor = _number(1, _TENSOR_TYPES["float32"]) + _block(2, dims)
    return _text(1, name) + _block(2, _block(1, tensor))


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _tag(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _number(field: int, value: int) -> bytes:
    return _tag(field, 0) + _varint(value)


def _block(field: int, data: bytes) -> bytes:
    return _tag(field, 2) + _varint(len(data)) + data


def _text(field: int, value: str) -> bytes:
    return _block(field, value.encode("utf-8"))
