"""PDF: the text of each page, bounded in pages, bytes and time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ctx_pipeline.contracts import FileCode, FileError, ItemKind
from ctx_pipeline.sources.files import FoundFile
from ctx_pipeline.sources.formats.splitting import split_text
from ctx_pipeline.sources.record_item import NO_FIELDS, Draft, RecordFields
from ctx_pipeline.text import normalise, repair

if TYPE_CHECKING:
    from pypdf import PdfReader

PDF_SUFFIX = ".pdf"

MAX_PDF_BYTES = 64 * 1024 * 1024
MAX_PAGES = 2_000
MAX_STREAM_BYTES = 32 * 1024 * 1024
"""Most bytes that one compressed stream may unpack to."""
MAX_OPERATORS = 500_000
"""Most operands and operators of one page."""
MAX_PAGE_CHARS = 1_000_000
MAX_TITLE_CHARS = 240
MAX_SECONDS = 120.0
"""Most time for one file. It is checked at every text operator; a file that takes longer is not
loaded."""

_LIMITS: dict[str, Any] = {
    "maximum_declared_stream_length": MAX_STREAM_BYTES,
    "array_based_stream_maximum_output_length": MAX_STREAM_BYTES,
    "lzw_maximum_output_length": MAX_STREAM_BYTES,
    "run_length_maximum_output_length": MAX_STREAM_BYTES,
    "zlib_maximum_output_length": MAX_STREAM_BYTES,
    "stream_parsing_work_maximum_count": MAX_OPERATORS,
    "jbig2dec_binary": None,
}
"""Limits of the PDF library; the others are its own defaults. It starts no other program."""

_HEADER_WITHIN = 1_024
"""The header stands within these first bytes, as readers accept it."""


@dataclass(frozen=True, slots=True)
class PdfPage:
    """The text of one page. `number` counts from 1."""

    number: int
    text: str
    """Normalised; empty for a page without text."""


@dataclass(frozen=True, slots=True)
class Pdf:
    """What a PDF says. `problems` are pages that could not be read, and why."""

    title: str
    pages: tuple[PdfPage, ...]
    problems: tuple[str, ...] = ()


class PdfProblem(Exception):
    """Why a PDF cannot be read."""

    def __init__(self, code: FileCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class _OutOfTime(Exception):
    """The deadline has passed."""


def read_pdf(
    content: bytes, *, max_seconds: float = MAX_SECONDS, now: Callable[[], float] = time.monotonic
) -> Pdf:
    """Return the text of every page. A page that cannot be read is a problem; the others are read.

    A file that is protected against changes alone, with an empty password for reading, is read.

    Raises:
        PdfProblem: it is protected by a password (`encrypted`), broken (`bad_pdf`), or has too many
            pages or bytes or takes too long (`too_large`).
    """
    if len(content) > MAX_PDF_BYTES:
        raise PdfProblem(
            FileCode.TOO_LARGE, f"has more than {MAX_PDF_BYTES:,} bytes: split the file"
        )
    if b"%PDF-" not in content[:_HEADER_WITHIN]:
        raise PdfProblem(FileCode.BAD_PDF, "is not a PDF: it has no %PDF header")
    from pypdf import apply_configuration
    from pypdf.errors import DependencyError, PyPdfError

    # The library reports each oddity of a file as a warning; what matters to us is an error of the
    # file.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    deadline = now() + max_seconds
    try:
        with apply_configuration(**_LIMITS):
            reader = _open(content)
            count = len(reader.pages)
            if count == 0:
                raise PdfProblem(
                    FileCode.BAD_PDF, "has no pages: open it in a viewer and save it anew"
                )
            if count > MAX_PAGES:
                raise PdfProblem(
                    FileCode.TOO_LARGE,
                    f"has {count:,} pages, the limit is {MAX_PAGES:,}: split the file",
                )
            return _read(reader, count, deadline, now)
    except _OutOfTime:
        message = f"takes longer than {max_seconds:g} seconds: split the file, or save it anew"
        raise PdfProblem(FileCode.TOO_LARGE, message) from None
    except DependencyError:
        message = "is encrypted in a way that cannot be read here: save it without a password"
        raise PdfProblem(FileCode.ENCRYPTED, message) from None
    except (PyPdfError, *_BROKEN):
        raise PdfProblem(
            FileCode.BAD_PDF, "is broken: open it in a viewer and save it anew"
        ) from None


# A broken file makes the library fail in its own code, with whatever its values happen to be.
_BROKEN = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, NotImplementedError,
    OSError,
    RecursionError, TypeError, ValueError,
)  # fmt: skip


def pdf_drafts(
    found: FoundFile,
    pdf: Pdf,
    *,
    kind: ItemKind,
    source_version: str,
    fields: RecordFields = NO_FIELDS,
    url: str | None = None,
) -> tuple[Draft, ...]:
    """Cut a PDF into drafts `<name>#<n>`, n from 1 over all pages; no draft spans two pages."""
    title = pdf.title or PurePosixPath(found.name).name
    chunks = (
        (page, chunk.text) for page in pdf.pages for chunk in split_text(page.text, markdown=False)
    )
    return tuple(
        Draft(
            found=found,
            kind=kind,
            name=f"{found.name}#{number}",
            title=f"{title} > page {page.number}",
            content=normalise(text),
            fields=fields,
            source_version=source_version,
            page=page.number,
            url=url,
        )
        for number, (page, text) in enumerate(chunks, start=1)
    )


def pdf_errors(found: FoundFile, pdf: Pdf) -> tuple[FileError, ...]:
    """Return an error for each page that could not be read."""
    return tuple(
        FileError(path=found.shown, code=FileCode.BAD_PDF, message=problem)
        for problem in pdf.problems
    )


def _open(content: bytes) -> PdfReader:
    from pypdf import PasswordType, PdfReader

    reader = PdfReader(BytesIO(content))
    if reader.is_encrypted and reader.decrypt("") is PasswordType.NOT_DECRYPTED:
        raise PdfProblem(FileCode.ENCRYPTED, "is protected by a password: save it without one")
    return reader


def _read(reader: PdfReader, count: int, deadline: float, now: Callable[[], float]) -> Pdf:
    pages: list[PdfPage] = []
    problems: list[str] = []
    for number in range(1, count + 1):
        text = _page_text(reader, number, deadline, now)
        if text is None:
            problems.append(
                f"page {number} is broken and was left out: open the file "
                "in a viewer and save it anew"
            )
        pages.append(PdfPage(number, text or ""))
    if problems and not any(page.text for page in pages):
        raise PdfProblem(FileCode.BAD_PDF, "is broken: no page of it can be read")
    return Pdf(_title(reader), tuple(pages), tuple(problems))


def _page_text(
    reader: PdfReader, number: int, deadline: float, now: Callable[[], float]
) -> str | None:
    from pypdf.errors import PyPdfError

    def check(*_: Any) -> None:
        if now() > deadline:
            raise _OutOfTime

    check()
    try:
        text = reader.pages[number - 1].extract_text(visitor_operand_before=check)
    except (PyPdfError, *_BROKEN):
        return None
    return normalise(repair("\n".join(_lines(text[:MAX_PAGE_CHARS])))).strip()


def _lines(text: str) -> Iterator[str]:
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        yield line.rstrip()


def _title(reader: PdfReader) -> str:
    from pypdf.errors import PyPdfError

    try:
        stated = reader.metadata.title if reader.metadata else None
    except (PyPdfError, *_BROKEN):
        stated = None
    return " ".join(normalise(repair(str(stated or ""))).split())[:MAX_TITLE_CHARS]
