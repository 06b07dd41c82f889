"""Web pages: the main text of HTML as Markdown-like text, its title, its address and its times."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.errors import MessageError
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urljoin, urlsplit

from pydantic_core import PydanticCustomError

from ctx_pipeline.contracts import FileCode, FileError, ItemKind
from ctx_pipeline.sources.files import FoundFile
from ctx_pipeline.sources.formats.charsets import decode_page
from ctx_pipeline.sources.formats.hidden import HiddenRules, hidden_rules, own_text
from ctx_pipeline.sources.formats.html_nodes import HEADINGS, tidy
from ctx_pipeline.sources.formats.html_text import TextRenderer, TextTooLong
from ctx_pipeline.sources.formats.splitting import Outline, split_text
from ctx_pipeline.sources.record_item import NO_FIELDS, Draft, RecordFields, parse_time
from ctx_pipeline.text import normalise, repair, short_hash

if TYPE_CHECKING:
    from justhtml import Node

HTML_SUFFIXES = (".html", ".htm", ".xhtml")
MHTML_SUFFIXES = (".mhtml", ".mht")

MAX_HTML_BYTES = 16 * 1024 * 1024
MAX_TAGS = 250_000
"""Most `<` of a page: a parser takes up to 20 microseconds for each."""
MAX_TITLE_CHARS = 240
MAX_URL_CHARS = 2_048
MIN_MAIN_CHARS = 200
"""A main part with less text than this is not believed where the page around it has more."""
MAX_NAVIGATION_NODES = 200
LINK_SHARE = 0.75
"""A list or a division with more of its text in links than this is navigation."""

_ROLES = frozenset(
    [
        "navigation",
        "banner",
        "contentinfo",
        "complementary",
        "search",
        "menu",
        "menubar",
        "toolbar",
        "alert",
        "alertdialog",
    ]
)
_EDGES = frozenset(["nav", "footer", "aside", "form", "header"])
_SAVED_FROM = re.compile(r"<!--\s*saved from url=\(\d{1,8}\)(\S{1,2000})\s*-->", re.IGNORECASE)
_PUBLISHED = (
    "article:published_time",
    "datepublished",
    "date",
    "dc.date",
    "dcterms.created",
    "pubdate",
)
_MODIFIED = (
    "article:modified_time",
    "og:updated_time",
    "datemodified",
    "last-modified",
    "dcterms.modified",
    "revised",
)


_SECRET = re.compile(
    r"(?i)(?:^|[-_.])(?:key|apikey|token|sig|signature|secret|password|passwd|pwd|auth|authorization|credential|code|"
    r"session|sessionid|sid|jwt|ticket|hmac|access|expires)(?:$|[-_.])|^x-amz-|^x-goog-|token$|key$"
)
"""Names of query parameters whose value may be a credential."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a web page says. Times are the page's own claims."""

    title: str
    """Empty if it names none."""
    text: str
    """Markdown-like and normalised."""
    url: str | None = None
    published: datetime | None = None
    modified: datetime | None = None


class PageProblem(Exception):
    """Why a page cannot be read."""

    def __init__(self, code: FileCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def read_page(content: bytes, *, charset: str | None = None, url: str | None = None) -> Page:
    """Return the main text of an HTML page.

    What a reader of the page does not see is left out: scripts, styles, comments, hidden elements,
    characters without a shape. So is what surrounds the main text: navigation, headers, footers,
    forms.

    Args:
        content: The bytes of the page.
        charset: What the transport says of them.
        url: Where the page comes from. It may name another address of the same host as its own; a
            page that nothing is known of may name any.

    Raises:
        PageProblem: the bytes are not text of a known character set (`not_utf8`), or too many
            (`too_large`).
    """
    if len(content) > MAX_HTML_BYTES:
        raise PageProblem(
            FileCode.TOO_LARGE, f"has more than {MAX_HTML_BYTES:,} bytes of HTML: split the page"
        )
    text = decode_page(content, charset)
    if text is None:
        message = "is not text of a character set that the page declares: save it as UTF-8"
        raise PageProblem(FileCode.NOT_UTF8, message)
    return page_of(text, url=url)


def page_of(text: str, *, url: str | None = None) -> Page:
    """Return the main text of decoded HTML; see `read_page`.

    Raises:
        PageProblem: it is too large.
    """
    from justhtml import JustHTML

    if text.count("<") > MAX_TAGS:
        raise PageProblem(FileCode.TOO_LARGE, f"has more than {MAX_TAGS:,} tags: split the page")
    root = JustHTML(repair(text), sanitize=False).root
    head = _Head.of(root)
    address = _address(head, url or _saved_from(text))
    base = urljoin(address or "", head.base) if head.base else address
    rules = hidden_rules(head.styles)
    try:
        body = _main_text(root, rules, base)
    except TextTooLong:
        raise PageProblem(
            FileCode.TOO_LARGE, "has more text than one page may have: split the page"
        ) from None
    return Page(
        title=head.title,
        text=normalise(body),
        url=cited_url(address) if address else None,
        published=head.time(_PUBLISHED),
        modified=head.time(_MODIFIED),
    )


def cited_url(url: str) -> str:
    """Return an address as items cite it: without fragment, and without its query where that may
    hold a credential.
    """
    bare, _, query = url.partition("#")[0].partition("?")
    names = [name for name, _ in parse_qsl(query, keep_blank_values=True)]
    keeps = bool(names) and not any(_SECRET.search(name) for name in names)
    return f"{bare}?{query}" if keeps else bare


def page_drafts(
    found: FoundFile,
    page: Page,
    *,
    kind: ItemKind,
    source_version: str,
    fields: RecordFields = NO_FIELDS,
    key_lines: Mapping[str, int] | None = None,
    title: str = "",
) -> tuple[Draft, ...]:
    """Cut a page into drafts `<name>#<n>`, n from 1, each with the headings above it."""
    outline = Outline(page.text)
    name = title or page.title or outline.title or PurePosixPath(found.name).name
    return tuple(
        Draft(
            found=found,
            kind=kind,
            name=f"{found.name}#{number}",
            title=name if not path or path[-1] == name else f"{name} > {path[-1]}",
            content=normalise(chunk.content),
            fields=fields,
            key_lines=key_lines or {},
            source_version=source_version,
            heading_path=path,
            created_at=page.published,
            observed_at=page.modified,
            url=page.url,
        )
        for number, chunk in enumerate(split_text(page.text, markdown=True), start=1)
        for path in (outline.above(chunk.start, chunk.end),)
    )


def html_of_mhtml(content: bytes) -> tuple[bytes, str | None, str | None]:
    """Return the first HTML part of a saved web archive, its character set and the page's address.

    Raises:
        PageProblem: there is none.
    """
    from email import message_from_bytes, policy

    try:
        message = message_from_bytes(content, policy=policy.compat32)
        for part in message.walk():
            if part.get_content_type() == "text/html":
                payload = part.get_payload(decode=True)
                address = str(
                    part.get("Content-Location") or message.get("Snapshot-Content-Location") or ""
                )
                if isinstance(payload, bytes):
                    return payload, part.get_content_charset(), _http_url(address.strip())
    except (MessageError, LookupError, ValueError, RecursionError):
        pass
    raise PageProblem(FileCode.BAD_RECORD, "has no HTML part: save the page as HTML")


def read_html_file(found: FoundFile, content: bytes) -> Page | FileError:
    """Return the page that a saved file holds, or the error that says why not."""
    try:
        if PurePosixPath(found.name).suffix.lower() in MHTML_SUFFIXES:
            html, charset, url = html_of_mhtml(content)
            return read_page(html, charset=charset, url=url)
        return read_page(content)
    except PageProblem as problem:
        return FileError(path=found.shown, code=problem.code, message=problem.message)


def version_of(content: bytes) -> str:
    """Return the version of a page or a file that declares none: a hash of its bytes."""
    return short_hash(content)


@dataclass(frozen=True, slots=True)
class _Head:
    """What a page says of itself."""

    title: str
    base: str
    canonical: str
    styles: tuple[str, ...]
    meta: dict[str, str]

    @classmethod
    def of(cls, root: Node) -> _Head:
        title = base = canonical = ""
        styles: list[str] = []
        meta: dict[str, str] = {}
        for node in _elements(root):
            attributes = node.attrs or {}
            if node.name == "title" and not title and node.namespace in (None, "html"):
                title = _text_of(node)
            elif node.name == "style":
                styles.append(_text_of(node))
            elif node.name == "base" and not base:
                base = (attributes.get("href") or "").strip()
            elif (
                node.name == "link" and "canonical" in (attributes.get("rel") or "").lower().split()
            ):
                canonical = canonical or (attributes.get("href") or "").strip()
            elif node.name == "meta":
                key = (
                    attributes.get("property")
                    or attributes.get("name")
                    or attributes.get("itemprop")
                    or ""
                )
                meta.setdefault(key.strip().lower(), (attributes.get("content") or "").strip())
            elif node.name == "time" and "datetime" in attributes:
                key = attributes.get("itemprop") or ("pubdate" if "pubdate" in attributes else "")
                meta.setdefault(key.strip().lower(), (attributes.get("datetime") or "").strip())
        title = tidy(normalise(title or meta.get("og:title", ""))).replace("\n", " ")[
            :MAX_TITLE_CHARS
        ]
        return cls(title, base, canonical or meta.get("og:url", ""), tuple(styles), meta)

    def time(self, keys: tuple[str, ...]) -> datetime | None:
        """Return the first time with a zone, or date, of the keys; what a page says otherwise is no
        time.
        """
        for key in keys:
            try:
                if stated := parse_time(self.meta.get(key) or None):
                    return stated
            except PydanticCustomError:
                continue
        return None


def _elements(root: Node) -> Iterator[Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        if node.name != "#text":
            yield node
            stack.extend(reversed(node.children or []))


def _text_of(node: Node) -> str:
    return "".join(child.data or "" for child in node.children or () if child.name == "#text")


def _saved_from(text: str) -> str | None:
    match = _SAVED_FROM.search(text[:8_000])
    return _http_url(match[1]) if match else None


def _http_url(text: str) -> str | None:
    try:
        parts = urlsplit(text)
        ok = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
    except ValueError:
        return None
    return (
        text
        if ok and len(text) <= MAX_URL_CHARS and text.isprintable() and " " not in text
        else None
    )


def _address(head: _Head, known: str | None) -> str | None:
    try:
        stated = _http_url(urljoin(known or "", head.canonical)) if head.canonical else None
    except ValueError:
        stated = None
    if known is None or stated is None:
        return known or stated
    same_host = urlsplit(stated).hostname == urlsplit(known).hostname
    return stated if same_host else known


def _main_text(root: Node, rules: HiddenRules, base: str | None) -> str:
    """Return the text of the part that a page marks as its main one, else of the page without what
    surrounds it.
    """

    def rendered(node: Node, *, edges: frozenset[str] | set[str], dense: bool) -> str:
        skips = _Skips(rules, edges, dense)
        return TextRenderer(rules, skips, base).render(node)

    whole = rendered(root, edges=_EDGES, dense=True)
    if len(whole) < MIN_MAIN_CHARS:
        looser = rendered(root, edges=_EDGES - {"form", "header", "aside"}, dense=False)
        whole = looser if len(looser) > len(whole) * 2 else whole
    main = _main_node(root, rules)
    if main is None:
        return whole or rendered(root, edges=set(), dense=False)
    text = rendered(main, edges={"nav"}, dense=False)
    return text if len(text) >= min(MIN_MAIN_CHARS, len(whole)) else whole


def _main_node(root: Node, rules: HiddenRules) -> Node | None:
    """Return the one `main` or `article` of a page that a reader sees."""
    found: dict[str, list[Node]] = {"main": [], "article": []}
    stack = [root]
    while stack:
        node = stack.pop()
        if node.name == "#text" or rules.hides(node):
            continue
        role = ((node.attrs or {}).get("role") or "").strip().lower()
        name = "main" if role == "main" else node.name
        if name in found:
            found[name].append(node)
        if name != "article":
            stack.extend(node.children or [])
    if len(found["main"]) == 1:
        return found["main"][0]
    return found["article"][0] if len(found["article"]) == 1 else None


@dataclass(frozen=True, slots=True)
class _Skips:
    """Says which elements surround the main text."""

    rules: HiddenRules
    edges: frozenset[str] | set[str]
    dense: bool

    def __call__(self, node: Node) -> bool:
        name = node.name
        if name in self.edges:
            return name not in ("header", "form") or not _has_heading(node)
        role = ((node.attrs or {}).get("role") or "").strip().lower()
        if role in _ROLES and (self.edges or role == "navigation"):
            return not (role == "banner" and _has_heading(node))
        return (
            self.dense and name in ("ul", "ol", "div", "table", "section") and _is_navigation(node)
        )


def _has_heading(node: Node) -> bool:
    return any(child.name in HEADINGS for child in _elements(node))


def _is_navigation(node: Node) -> bool:
    """Say whether nearly all text of a small part stands in several links."""
    links = linked = total = seen = 0
    stack = [(node, False)]
    while stack:
        part, within = stack.pop()
        seen += 1
        if seen > MAX_NAVIGATION_NODES or part.name in HEADINGS or part.name == "p":
            return False
        if part.name == "#text":
            length = len(own_text(part).strip())
            total += length
            linked += length if within else 0
            continue
        links += part.name == "a"
        stack.extend((child, within or part.name == "a") for child in part.children or [])
    return links >= 4 and total > 0 and linked >= total * LINK_SHARE
