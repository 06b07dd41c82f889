"""What can be said of a file in a few lines, from its bytes alone."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from mimetypes import MimeTypes
from typing import Any, cast

from ctx_pipeline.sources.documents.describe_image import image_size
from ctx_pipeline.sources.formats.charsets import text_encoding
from ctx_pipeline.sources.formats.json_lines import JsonProblem, load_json

TEXT_SAMPLE_BYTES = 64 * 1024
"""First bytes by which text is told from other content."""
MAX_JSON_BYTES = 32 * 1024 * 1024
MAX_PAGE_CHARS = 2_000_000
MAX_LINES_SHOWN = 12
MAX_LINE_CHARS = 160
MAX_COLUMNS_SHOWN = 40
MAX_KEYS_SHOWN = 30
MAX_CELLS_SHOWN = 30
MAX_CSV_FIELD_CHARS = 1024 * 1024

NOTEBOOK = "application/x-ipynb+json"

_TYPES = MimeTypes()
for _suffix, _type in {
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".ipynb": NOTEBOOK,
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".ndjson": "application/jsonl",
    ".log": "text/plain",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".svg": "image/svg+xml",
    ".toml": "application/toml",
    ".webp": "image/webp",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}.items():
    _TYPES.add_type(_type, _suffix)

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PAR1", "application/vnd.apache.parquet"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (b"\x1f\x8b", "application/gzip"),
    (b"PK\x03\x04", "application/zip"),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """The beginning of a file, or all of it."""

    head: bytes
    size_bytes: int
    """Of the whole file."""
    suffix: str
    """In lower case, with its dot."""

    @property
    def is_partial(self) -> bool:
        """Whether the file goes on after `head`."""
        return self.size_bytes > len(self.head)


def _type_by_bytes(sample: Sample) -> str | None:
    if sample.head[:4] == b"RIFF" and sample.head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for mark, kind in _SIGNATURES if sample.head.startswith(mark)), None)


def media_type(sample: Sample) -> str:
    """Return the media type by the suffix where the bytes do not say otherwise."""
    by_bytes = _type_by_bytes(sample)
    by_suffix = _TYPES.guess_type(f"x{sample.suffix}", strict=True)[0]
    if by_bytes == "application/zip" and by_suffix:
        return by_suffix
    if by_bytes:
        return by_bytes
    text = encoding_of(sample) is not None
    if by_suffix is None or (
        by_suffix.startswith(("image/", "application/pdf")) and by_suffix != "image/svg+xml"
    ):
        return "text/plain" if text else "application/octet-stream"
    return by_suffix if text or not by_suffix.startswith("text/") else "application/octet-stream"


def describe(sample: Sample, kind: str) -> Iterator[str]:
    """Yield what the bytes say, most telling first. Nothing in them makes this fail."""
    size = image_size(sample.head, kind)
    if size is not None:
        yield f"Image: {size[0]:,} x {size[1]:,} pixels"
    encoding = encoding_of(sample)
    if encoding is None:
        return
    text = sample.head.decode(encoding, "replace").removeprefix("\ufeff")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if encoding not in ("utf-8", "ascii"):
        yield f"Encoding: {encoding}"
    yield from _WAYS.get(kind, _lines)(text, sample)


def encoding_of(sample: Sample) -> str | None:
    """Return the encoding of a text file, None for one that is not text."""
    if _type_by_bytes(sample) is not None:
        return None
    head = sample.head[:TEXT_SAMPLE_BYTES]
    return text_encoding(head, whole=len(head) == sample.size_bytes)


def _lines(text: str, sample: Sample) -> Iterator[str]:
    lines = text.split("\n")
    count = len(lines) - (not lines[-1])
    yield f"Lines: {_least(sample)}{count:,}"
    shown = [line for line in lines if line.strip()]
    yield "First lines:"
    yield from _shown(shown[:MAX_LINES_SHOWN])
    if len(shown) > MAX_LINES_SHOWN + 1 and not sample.is_partial:
        yield "Last line:"
        yield from _shown(shown[-1:])


def _shown(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield f"  {_short(line)}"


def _short(text: str, limit: int = MAX_LINE_CHARS) -> str:
    line = " ".join(text[: limit * 4].split())
    return line if len(line) <= limit and len(text) <= limit * 4 else f"{line[:limit]} …"


def _least(sample: Sample) -> str:
    return "at least " if sample.is_partial else ""


_NAMED_DELIMITER = re.compile(r"\"?sep=(.)\"?[ \t]*\n", re.IGNORECASE)
"""What Excel writes above a table whose delimiter it names."""


def _table(text: str, sample: Sample) -> Iterator[str]:
    """Describe delimited text by its header, its first rows and how many there are."""
    delimiter = "\t" if sample.suffix == ".tsv" else _delimiter(text)
    named = _NAMED_DELIMITER.match(text)
    if named is not None:
        delimiter, text = named[1], text[named.end() :]
    csv.field_size_limit(MAX_CSV_FIELD_CHARS)
    rows = 0
    shown: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text), delimiter=delimiter):
            if row:
                rows += 1
                if len(shown) < 4:
                    shown.append(row)
    except csv.Error:
        yield from _lines(text, sample)
        return
    if not shown:
        return
    names = ", ".join(_short(name, 60) for name in shown[0][:MAX_COLUMNS_SHOWN])
    rest = len(shown[0]) - MAX_COLUMNS_SHOWN
    yield f"Columns ({len(shown[0]):,}): {names}{f', and {rest:,} more' if rest > 0 else ''}"
    yield f"Rows: {_least(sample)}{rows - 1:,}"
    if len(shown) > 1:
        yield "First rows:"
        yield from _shown(delimiter.join(row).replace("\n", " ") for row in shown[1:])


def _delimiter(text: str) -> str:
    first = text.split("\n", 1)[0]
    return max(",\t;|", key=lambda mark: (first.count(mark), mark == ","))


def _json(text: str, sample: Sample) -> Iterator[str]:
    value = _loaded(text, sample)
    if value is None:
        yield from _lines(text, sample)
    else:
        yield from _outline(value)


def _loaded(text: str, sample: Sample) -> Any:
    if sample.is_partial or sample.size_bytes > MAX_JSON_BYTES:
        return None
    try:
        return load_json(text)
    except JsonProblem:
        return None


def _outline(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value)
        yield f"JSON object with {len(pairs):,} keys:"
        for key, part in list(pairs.items())[:MAX_KEYS_SHOWN]:
            yield f"  {_short(key, 80)}: {_kind_of(part)}"
        if len(pairs) > MAX_KEYS_SHOWN:
            yield f"  and {len(pairs) - MAX_KEYS_SHOWN:,} more"
    elif isinstance(value, list):
        parts = cast("list[Any]", value)
        yield f"JSON list with {len(parts):,} entries"
        if parts:
            yield f"First entry: {_kind_of(parts[0])}"
            if isinstance(parts[0], dict):
                yield from _outline(parts[0])
    else:
        yield f"JSON {_kind_of(value)}"


def _kind_of(value: Any) -> str:
    if isinstance(value, dict):
        return f"object with {len(cast('dict[str, Any]', value)):,} keys"
    if isinstance(value, list):
        return f"list with {len(cast('list[Any]', value)):,} entries"
    if isinstance(value, str):
        return f"text {_short(value, 60)!r}"
    return (
        "null"
        if value is None
        else _short(str(value).lower() if isinstance(value, bool) else str(value), 40)
    )


def _json_lines(text: str, sample: Sample) -> Iterator[str]:
    lines = [line for line in text.split("\n") if line.strip()]
    yield f"Records: {_least(sample)}{len(lines):,}"
    try:
        first = load_json(lines[0]) if lines and len(lines[0]) <= MAX_JSON_BYTES else None
    except JsonProblem:
        first = None
    if first is None:
        yield from _shown(lines[:MAX_LINES_SHOWN])
    else:
        yield f"First record: {_kind_of(first)}"
        yield from _outline(first) if isinstance(first, dict) else ()


def _notebook(text: str, sample: Sample) -> Iterator[str]:
    value = _loaded(text, sample)
    cells = _cells(cast("dict[str, Any]", value)) if isinstance(value, dict) else None
    if cells is None:
        yield from _json(text, sample)
        return
    whole = [cast("dict[str, Any]", cell) for cell in cells if isinstance(cell, dict)]
    kinds = [str(cell.get("cell_type")) for cell in whole]
    yield f"Notebook with {kinds.count('code'):,} code and {kinds.count('markdown'):,} text cells"
    for number, cell in enumerate(whole[:MAX_CELLS_SHOWN], start=1):
        source = _joined(cell.get("source", cell.get("input")))
        first = next((line for line in source.split("\n") if line.strip()), "")
        outputs = ", ".join(_outputs(cell.get("outputs")))
        label = "code" if cell.get("cell_type") == "code" else "text"
        yield f"  [{number}] {label}: {_short(first, 80)}{f' -> {outputs}' if outputs else ''}"
    if len(whole) > MAX_CELLS_SHOWN:
        yield f"  and {len(whole) - MAX_CELLS_SHOWN:,} more cells"


def _cells(notebook: dict[str, Any]) -> list[Any] | None:
    """Return the cells of a notebook; up to format 3 they lie in worksheets."""
    cells: Any = notebook.get("cells")
    if isinstance(cells, list):
        return cast("list[Any]", cells)
    sheets: Any = notebook.get("worksheets")
    if not isinstance(sheets, list):
        return None
    whole = [
        cast("dict[str, Any]", sheet)
        for sheet in cast("list[Any]", sheets)
        if isinstance(sheet, dict)
    ]
    lists: list[Any] = [sheet.get("cells") for sheet in whole]
    return [cell for cells in lists if isinstance(cells, list) for cell in cast("list[Any]", cells)]


def _joined(value: Any) -> str:
    """Return a notebook's multi-line text, which is a string or a list of strings."""
    if isinstance(value, list):
        return "".join(part for part in cast("list[Any]", value)[:1_000] if isinstance(part, str))
    return value if isinstance(value, str) else ""


_OLD_NAMES = {"text": "text/plain", "html": "text/html", "png": "image/png", "jpeg": "image/jpeg"}
"""What outputs are called up to format 3."""


def _outputs(value: Any) -> Iterator[str]:
    for output in cast("list[Any]", value)[:3] if isinstance(value, list) else ():
        entry = cast("dict[str, Any]", output) if isinstance(output, dict) else {}
        if entry.get("output_type") in ("error", "pyerr"):
            yield f"error {_short(str(entry.get('ename')), 40)}"
        elif entry.get("output_type") == "stream":
            yield f"prints {_short(_joined(entry.get('text')), 60)!r}"
        elif isinstance(entry.get("data"), dict):
            yield _shown_data(cast("dict[str, Any]", entry["data"]))
        elif old := {_OLD_NAMES[key]: part for key, part in entry.items() if key in _OLD_NAMES}:
            yield _shown_data(old)


def _shown_data(parts: dict[str, Any]) -> str:
    picture = next((key for key in parts if str(key).startswith("image/")), None)
    if picture is not None:
        return f"picture {_short(picture, 30)}"
    if "text/html" in parts and "<table" in _joined(parts["text/html"]):
        return f"table with {max(0, _joined(parts['text/html']).count('<tr') - 1):,} rows"
    return f"shows {_short(_joined(parts.get('text/plain')), 60)!r}"


def _drawing(text: str, sample: Sample) -> Iterator[str]:
    """Describe SVG by its title, its description and the words in it that a reader sees."""
    from ctx_pipeline.sources.documents.describe_image import svg_words

    title, words = svg_words(text)
    if title:
        yield f"Title: {_short(title)}"
    if words:
        yield f"Words: {_short('; '.join(words), 600)}"


def _page(text: str, sample: Sample) -> Iterator[str]:
    from ctx_pipeline.sources.formats.pages import PageProblem, page_of

    try:
        page = page_of(text[:MAX_PAGE_CHARS])
    except PageProblem:
        return
    if page.title:
        yield f"Title: {_short(page.title)}"
    yield from _lines(page.text, Sample(page.text.encode(), 0, "")) if page.text else ()


_WAYS: dict[str, Callable[[str, Sample], Iterator[str]]] = {
    "text/csv": _table,
    "text/tab-separated-values": _table,
    "application/json": _json,
    "application/jsonl": _json_lines,
    NOTEBOOK: _notebook,
    "image/svg+xml": _drawing,
    "text/html": _page,
}
