"""Where each key of a TOML document stands. A leaf: `tomllib` keeps no positions, and messages need
them.
"""

from __future__ import annotations

import re
from ast import literal_eval

KeyPath = tuple[str | int, ...]
"""Keys from the root; an integer counts the entries of an array, from 0."""

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_KEY = re.compile(r"""[ \t]*("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[A-Za-z0-9_-]+)[ \t]*""")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|'
    r"'''.*?'{3,5}|"
    r'"(?:[^"\\\n]|\\.)*"|'
    r"'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]*")


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line, counted from 1, on which each table, key and array entry first stands.

    `text` must be a document that `tomllib` accepts, with a line feed as its only newline.
    """
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


class _Scanner:
    """One pass over a valid document."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.lines: dict[KeyPath, int] = {}
        self._entries: dict[KeyPath, int] = {}
        self._counted = (0, 1)

    def document(self) -> None:
        table: KeyPath = ()
        while self._skip_blank() < len(self.text):
            if self.text[self.position] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _skip_blank(self) -> int:
        match = _BLANK.match(self.text, self.position)
        self.position = match.end() if match else self.position
        return self.position

    def _record(self, path: KeyPath) -> None:
        position, line = self._counted
        line += self.text.count("\n", position, self.position)
        self._counted = (self.position, line)
        self.lines.setdefault(path, line)

    def _keys(self) -> tuple[str, ...]:
        keys: list[str] = []
        while match := _KEY.match(self.text, self.position):
            keys.append(_unquoted(match.group(1)))
            self.position = match.end()
            if self.text[self.position : self.position + 1] != ".":
                break
            self.position += 1
        return tuple(keys)

    def _header(self) -> KeyPath:
        brackets = 2 if self.text.startswith("[[", self.position) else 1
        self.position += brackets
        path: tuple[str | int, ...] = ()
        keys = self._keys()
        for depth, key in enumerate(keys, start=1):
            path = path + (key,)  # noqa: RUF005  # the type checker loses the element type of an unpacked tuple
            if depth == len(keys) and brackets == 2:
                self._entries[path] = self._entries.get(path, 0) + 1
            self._record(path)
            if path in self._entries:
                path = path + (self._entries[path] - 1,)  # noqa: RUF005
                self._record(path)
        self.position += brackets
        return path

    def _pair(self, table: KeyPath) -> None:
        path = table
        for key in self._keys():
            path = (*path, key)
            self._record(path)
        self.position += 1  # the equals sign
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        self._skip_blank()
        opening = self.text[self.position : self.position + 1]
        if opening == "[":
            self._array(path)
        elif opening == "{":
            self._inline_table(path)
        else:
            match = _STRING.match(self.text, self.position) or _SCALAR.match(
                self.text, self.position
            )
            self.position = match.end() if match else len(self.text)

    def _array(self, path: KeyPath) -> None:
        self.position += 1
        index = 0
        while self._more("]"):
            self._record((*path, index))
            self._value((*path, index))
            index += 1

    def _inline_table(self, path: KeyPath) -> None:
        self.position += 1
        while self._more("}"):
            self._pair(path)

    def _more(self, closing: str) -> bool:
        """Step over a comma; at the closing bracket step over it and return False."""
        self._skip_blank()
        if self.text[self.position : self.position + 1] == ",":
            self.position += 1
            self._skip_blank()
        if self.position >= len(self.text) or self.text[self.position] == closing:
            self.position += 1
            return False
        return True


def _unquoted(key: str) -> str:
    if key.startswith('"'):
        # A TOML basic key and a Python string agree on every escape that TOML has but the short \e
        # of TOML 1.1.
        return str(literal_eval(key))
    return key.strip("'")
