"""JSON as other systems write it: strict, without NaN, without a key given
twice, bounded in depth.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn, cast

MAX_DEPTH = 64
"""Deepest nesting of a record; deeper values cannot be serialised again safely."""


class JsonProblem(Exception):
    """Why a text is not JSON that can be used; `line` counts from 1 in the text, None where
    unknown.
    """

    def __init__(self, line: int | None, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


def load_json(text: str) -> Any:
    """Parse one JSON value.

    Raises:
        JsonProblem: it is not JSON, has NaN or a key twice, or is nested deeper than `MAX_DEPTH`.
    """
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise JsonProblem(error.lineno, f"is not valid JSON: {error.msg}") from None
    except RecursionError:
        raise JsonProblem(None, f"is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError:
        raise JsonProblem(None, "is not valid JSON: a number is too long") from None
    if _deeper_than(value, MAX_DEPTH):
        raise JsonProblem(None, f"is nested deeper than {MAX_DEPTH} levels")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise JsonProblem(None, f"is not valid JSON: {name} is not a number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise JsonProblem(None, "has a key twice in one object: keep one")
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_object)


def _deeper_than(value: Any, limit: int) -> bool:
    layer: list[Any] = [value]
    for _ in range(limit + 1):
        below: list[Any] = []
        for part in layer:
            if isinstance(part, dict):
                below.extend(cast("dict[str, Any]", part).values())
            elif isinstance(part, list):
                below.extend(cast("list[Any]", part))
        layer = [part for part in below if isinstance(part, dict | list)]
        if not layer:
            return False
    return True


def lines_of(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each line that is not blank with its number from 1. Only line feeds end a line."""
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            yield number, line
