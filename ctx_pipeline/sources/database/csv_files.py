"""CSV files as a database can read them: their encoding, Excel's `sep=` line, and files without
rows.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import tempfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from ctx_pipeline.contracts import FileCode
from ctx_pipeline.sources.formats.charsets import text_encoding

HEAD_BYTES = 64 * 1024
STEP_BYTES = 4 * 1024 * 1024

_SEPARATOR = re.compile(r"\ufeff?\"?sep=(.)\"?\s*\Z", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?[\d.,]*\d[\d.,]*%?")
_LINE = re.compile(r"CSV Error on Line: (\d+)")
UTF8 = "utf-8"


class Unreadable(Exception):
    """A file that gives no table; the message never holds its content."""

    def __init__(self, message: str, code: FileCode = FileCode.UNREADABLE) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A CSV file in UTF-8, and how to read it."""

    path: Path
    options: str
    """Options of `read_csv` beside those of the types, each behind a comma."""


@contextmanager
def open_csv(path: Path) -> Generator[CsvFile]:
    """Give a file in UTF-8: itself, or for as long as it is open a copy of it.

    Raises:
        Unreadable: it has no rows (`empty`), or is no text of an encoding that can be told.
    """
    try:
        with _stream(path) as stream:
            head = stream.read(HEAD_BYTES)
            whole = not stream.read(1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise Unreadable("is no whole gzip file") from None
    if not head.lstrip(codecs.BOM_UTF8).strip():
        raise Unreadable("has no content, so there is no table", FileCode.EMPTY)
    encoding = text_encoding(head, whole=whole)
    if encoding == UTF8 and not whole:
        encoding = _later_encoding(path)
    if encoding is None:
        raise Unreadable("is no text in an encoding that can be told: save it as UTF-8")
    text = head.decode(encoding, "ignore")
    options = _options(text)
    if whole and _is_header_alone(text, options):
        raise Unreadable("has a header and no rows, so there is no table yet", FileCode.EMPTY)
    if encoding == UTF8:
        yield CsvFile(path, options)
        return
    with tempfile.TemporaryDirectory(prefix="ctx-csv-") as folder:
        copy = Path(folder) / "table.csv"
        _transcode(path, encoding, copy)
        yield CsvFile(copy, options)


def why_unreadable(error: str) -> str:
    """Return what the message of a CSV reader says of a file, without what it quotes of it."""
    line = _LINE.search(error)
    where = f": the first row that does not fit the others is on line {line[1]}" if line else ""
    return f"has rows that do not make one table{where}"


def _stream(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb"))


def _steps(path: Path) -> Iterator[bytes]:
    with _stream(path) as stream:
        while part := stream.read(STEP_BYTES):
            yield part


def _later_encoding(path: Path) -> str | None:
    """Return UTF-8, or what a file that only begins like it is written in."""
    decoder = codecs.getincrementaldecoder(UTF8)()
    for part in _steps(path):
        try:
            decoder.decode(part)
        except UnicodeDecodeError as error:
            wrong = part[max(0, error.start - 64) : error.start + HEAD_BYTES]
            return text_encoding(wrong, whole=False)
    return UTF8


def _transcode(path: Path, encoding: str, copy: Path) -> None:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        with copy.open("w", encoding=UTF8, newline="") as target:
            for part in _steps(path):
                target.write(decoder.decode(part))
            target.write(decoder.decode(b"", final=True))
    except UnicodeDecodeError:
        raise Unreadable(
            f"is not text of one encoding, it seemed to be {encoding}: save it as UTF-8"
        ) from None


def _options(text: str) -> str:
    """Return the options that Excel's first line, `sep=;`, asks for."""
    match = _SEPARATOR.match(text.split("\n", 1)[0])
    if match is None:
        return ""
    mark = match[1].replace("'", "''")
    return f", skip = 1, delim = '{mark}'"


def _is_header_alone(text: str, options: str) -> bool:
    lines = [line for line in text.lstrip("\ufeff").splitlines() if line.strip()]
    names = lines[1:] if options else lines
    if len(names) > 1:
        return False
    mark = options[-2] if options else max(",\t;|", key=lambda each: names[0].count(each))
    cells = [cell for row in csv.reader(names, delimiter=mark) for cell in row]
    return not any(_NUMBER.fullmatch(cell.strip()) for cell in cells)
