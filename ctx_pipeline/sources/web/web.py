"""Web pages: saved files and pages fetched by address. What they say comes from outside and is
believed least.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ctx_pipeline.contracts import FileCode, FileError, ItemKind
from ctx_pipeline.sources.files import FoundFile, read_bytes, read_text, suffix_of
from ctx_pipeline.sources.formats.charsets import decode_page
from ctx_pipeline.sources.formats.pages import (
    HTML_SUFFIXES,
    MHTML_SUFFIXES,
    Page,
    PageProblem,
    cited_url,
    page_drafts,
    read_html_file,
    read_page,
    version_of,
)
from ctx_pipeline.sources.formats.pdf import (
    PDF_SUFFIX,
    PdfProblem,
    pdf_drafts,
    pdf_errors,
    read_pdf,
)
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.reading import ReadingBuilder, SourceReading
from ctx_pipeline.sources.record_item import Draft, make_item
from ctx_pipeline.sources.web.addresses import AddressRules
from ctx_pipeline.sources.web.fetch import (
    FetchCode,
    Fetched,
    FetchProblem,
    FetchRules,
    check_url,
    fetch,
)
from ctx_pipeline.sources.web.fetch_types import MAX_BYTES
from ctx_pipeline.text import normalise, repair, short_hash

LIST_SUFFIXES = (".urls", ".txt")
"""Files with one address a line; `#` starts a comment."""

MAX_URLS = 1_000
"""Most addresses of one source."""

MAX_LINE_ERRORS = 20
"""Most lines of one file that are reported singly as no addresses."""

MAX_NAME_CHARS = 200

_FILE_CODES = {
    FetchCode.BAD_URL: FileCode.BAD_URL,
    FetchCode.TOO_LARGE: FileCode.TOO_LARGE,
    FetchCode.CONTENT_TYPE: FileCode.UNSUPPORTED_TYPE,
    FetchCode.USERINFO: FileCode.FETCH_REFUSED,
    FetchCode.REFUSED_SCHEME: FileCode.FETCH_REFUSED,
    FetchCode.REFUSED_PORT: FileCode.FETCH_REFUSED,
    FetchCode.REFUSED_HOST: FileCode.FETCH_REFUSED,
    FetchCode.REFUSED_ADDRESS: FileCode.FETCH_REFUSED,
    FetchCode.INSECURE_REDIRECT: FileCode.FETCH_REFUSED,
}
"""Other reasons are `fetch_failed`."""

_Read = tuple[tuple[Draft, ...], tuple[FileError, ...]]


@dataclass(frozen=True, slots=True)
class _Listed:
    """One address, and where it is written."""

    url: str
    found: FoundFile | None = None
    line: int | None = None


def read_web(files: tuple[FoundFile, ...], origin: Origin) -> SourceReading:
    """Turn each page into items `web:<source>/<path or address>#<n>`, n from 1.

    Saved pages (HTML, MHTML, PDF) are read from the source's path; the source's `url` and the
    addresses in `.urls` and `.txt` files are fetched, each once. A page that cannot be fetched is
    an error of its address and keeps what is stored of it.
    """
    batch = ReadingBuilder()
    listed: list[_Listed] = []
    for found in files:
        batch.open(found)
        if suffix_of(found) in LIST_SUFFIXES:
            addresses = _addresses(found, origin, batch)
            listed.extend(addresses)
        elif suffix_of(found) in (*HTML_SUFFIXES, *MHTML_SUFFIXES, PDF_SUFFIX):
            _add(batch, found, _saved(found, origin), origin)
        else:
            batch.skip(
                found,
                f"suffix {suffix_of(found)!r} is neither a saved page nor a list of addresses",
            )
    if origin.source.url is not None:
        listed.insert(0, _Listed(origin.source.url))
    _fetch_all(listed, origin, batch)
    return batch.build()


def shown_url(url: str) -> str:
    """Return an address as messages and file lists show it: without a user part, fragment and the
    query's words.

    Two addresses that differ in their queries alone are told apart by a hash.
    """
    bare, _, query = url.partition("#")[0].partition("?")
    bare = re.sub(r"(://)[^/?#]*@", r"\1****@", bare)
    name = f"{bare}?{short_hash(query, 8)}" if query else bare
    name = name if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]}~{short_hash(url, 8)}"
    return "".join(char if char.isprintable() else "\ufffd" for char in name)


def _addresses(found: FoundFile, origin: Origin, batch: ReadingBuilder) -> list[_Listed]:
    text = read_text(found, origin.limit_bytes)
    if isinstance(text, FileError):
        batch.fail(found, text)
        return []
    listed: list[_Listed] = []
    for number, line in enumerate(text.split("\n"), start=1):
        url = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
        if url:
            listed.append(_Listed(url, found, number))
    if listed:
        batch.part(found, f"lists {len(listed):,} addresses")
    return listed


def _fetch_all(listed: list[_Listed], origin: Origin, batch: ReadingBuilder) -> None:
    rules = FetchRules(
        addresses=AddressRules(allow_private=origin.source.allow_private),
        max_bytes=min(MAX_BYTES, origin.limit_bytes),
    )
    seen: set[str] = set()
    refused: Counter[FoundFile] = Counter()
    for entry in listed:
        try:
            url = str(check_url(entry.url, rules.addresses))
        except FetchProblem as problem:
            found = entry.found or _page_file(entry.url, 0)
            refused[found] += 1
            if refused[found] <= MAX_LINE_ERRORS:
                code = _FILE_CODES.get(problem.code, FileCode.FETCH_FAILED)
                batch.fail(
                    found,
                    FileError(path=found.shown, line=entry.line, code=code, message=_said(problem)),
                )
            continue
        if url in seen:
            continue
        seen.add(url)
        if len(seen) > MAX_URLS:
            found = entry.found or _page_file(url, 0)
            message = (
                f"the source has more than {MAX_URLS:,} addresses; from here "
                "on none was asked: split the source"
            )
            batch.fail(
                found,
                FileError(
                    path=found.shown, line=entry.line, code=FileCode.TOO_LARGE, message=message
                ),
            )
            break
        _fetch_one(url, rules, origin, batch)
    for found, count in refused.items():
        if count > MAX_LINE_ERRORS:
            message = f"{count - MAX_LINE_ERRORS:,} more lines are no addresses that may be asked"
            batch.fail(found, FileError(path=found.shown, code=FileCode.BAD_URL, message=message))


def _fetch_one(url: str, rules: FetchRules, origin: Origin, batch: ReadingBuilder) -> None:
    found = _page_file(url, 0)
    try:
        fetched = fetch(url, rules)
    except FetchProblem as problem:
        code = _FILE_CODES.get(problem.code, FileCode.FETCH_FAILED)
        batch.fail(found, FileError(path=found.shown, code=code, message=_said(problem)))
        return
    found = _page_file(url, len(fetched.content))
    _add(batch, found, _read_fetched(found, fetched), origin)


def _said(problem: FetchProblem) -> str:
    return f"the address {problem.message} ({problem.code.value})"


def _page_file(url: str, size_bytes: int) -> FoundFile:
    """Return an address as a file of the source."""
    shown = shown_url(url)
    name = shown.removeprefix("https://")
    return FoundFile(path=Path(name), name=name, shown=shown, size_bytes=size_bytes)


def _add(batch: ReadingBuilder, found: FoundFile, read: _Read, origin: Origin) -> None:
    drafts, errors = read
    batch.add(found, *(make_item(draft, origin) for draft in drafts))
    batch.fail(found, *errors)
    if not drafts and not errors:
        batch.skip(found, "has no text that a reader sees")


def _saved(found: FoundFile, origin: Origin) -> _Read:
    content = read_bytes(found, origin.limit_bytes)
    if isinstance(content, FileError):
        return (), (content,)
    if suffix_of(found) == PDF_SUFFIX:
        return _pdf(found, content, None)
    page = read_html_file(found, content)
    if isinstance(page, FileError):
        return (), (page,)
    return page_drafts(found, page, kind=ItemKind.WEB, source_version=version_of(content)), ()


def _read_fetched(found: FoundFile, fetched: Fetched) -> _Read:
    url = cited_url(fetched.url)
    if fetched.content_type == "application/pdf":
        return _pdf(found, fetched.content, url)
    try:
        page = _text_page(fetched) if fetched.content_type == "text/plain" else _html_page(fetched)
    except PageProblem as problem:
        return (), (FileError(path=found.shown, code=problem.code, message=problem.message),)
    return page_drafts(
        found, page, kind=ItemKind.WEB, source_version=version_of(fetched.content)
    ), ()


def _html_page(fetched: Fetched) -> Page:
    page = read_page(fetched.content, charset=fetched.charset, url=fetched.url)
    return Page(
        title=page.title,
        text=page.text,
        url=page.url or cited_url(fetched.url),
        published=page.published,
        modified=page.modified or fetched.modified,
    )


def _text_page(fetched: Fetched) -> Page:
    text = decode_page(fetched.content, fetched.charset)
    if text is None:
        raise PageProblem(
            FileCode.NOT_UTF8, "is not text of the character set that its server names"
        )
    plain = normalise(repair(text)).strip()
    return Page(title="", text=plain, url=cited_url(fetched.url), modified=fetched.modified)


def _pdf(found: FoundFile, content: bytes, url: str | None) -> _Read:
    try:
        pdf = read_pdf(content)
    except PdfProblem as problem:
        return (), (FileError(path=found.shown, code=problem.code, message=problem.message),)
    drafts = pdf_drafts(found, pdf, kind=ItemKind.WEB, source_version=version_of(content), url=url)
    return drafts, pdf_errors(found, pdf)
