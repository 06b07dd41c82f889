"""One answer of a web server: sent, checked and unpacked within bounds."""

from __future__ import annotations

import ssl
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ctx_pipeline.sources.web.fetch_types import (
    CONTENT_TYPES,
    Deadline,
    FetchCode,
    Fetched,
    FetchProblem,
)

if TYPE_CHECKING:
    import httpx2

    from ctx_pipeline.sources.web.pinned import Addresses

_BLOCK_BYTES = 64 * 1024
_USER_AGENT = "ctx-pipeline"


@dataclass(slots=True)
class Answer:
    """An open response; leaving it closes the connection."""

    pool: Any
    response: Any

    @classmethod
    def to(cls, target: httpx2.URL, permitted: Addresses, deadline: Deadline) -> Answer:
        """Ask for an address at one of the permitted network addresses of its host.

        Raises:
            FetchProblem: there is no answer.
        """
        import httpcore2
        import httpx2

        from ctx_pipeline.sources.web.pinned import PinnedBackend

        pool = httpcore2.ConnectionPool(
            ssl_context=_trusted() if target.scheme == "https" else None,
            max_connections=1,
            max_keepalive_connections=0,
            network_backend=PinnedBackend(permitted, deadline.left),
        )
        headers = httpx2.Headers(
            {
                "Host": target.netloc.decode("ascii"),
                "User-Agent": _USER_AGENT,
                "Accept": ", ".join(CONTENT_TYPES),
                "Accept-Encoding": "gzip",
                "Connection": "close",
            }
        )
        url = httpcore2.URL(
            scheme=target.raw_scheme, host=target.raw_host, port=target.port, target=target.raw_path
        )
        answer = cls(pool, None)
        try:
            with _Translated():
                answer.response = pool.handle_request(
                    httpcore2.Request("GET", url, headers=headers.raw)
                )
        except BaseException:
            answer.close()
            raise
        return answer

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, whatever state it is in."""
        if self.response is not None:
            self.response.close()
        self.pool.close()

    @property
    def status(self) -> int:
        """The status code."""
        return int(self.response.status)

    def header(self, name: str) -> str:
        """Return a header; several of one name are joined."""
        wanted = name.encode()
        values = [value for key, value in self.response.headers if key.lower() == wanted]
        value = b", ".join(values)
        try:
            return value.decode().strip()
        except UnicodeDecodeError:
            return value.decode("latin-1").strip()

    def read(self, target: httpx2.URL, max_bytes: int) -> Fetched:
        """Return the body, unpacked and of a type that a web source reads.

        Raises:
            FetchProblem: it is neither.
        """
        if self.status != 200:
            raise FetchProblem(
                FetchCode.HTTP_STATUS, f"was answered with HTTP status {self.status}"
            )
        content_type, charset = _content_type(self.header("content-type"))
        if content_type not in CONTENT_TYPES:
            raise FetchProblem(FetchCode.CONTENT_TYPE, "is neither HTML nor plain text nor PDF")
        length = self.header("content-length")
        if length.isascii() and length.isdigit() and int(length[:18]) > max_bytes:
            raise _too_large(max_bytes)
        content = self._content(max_bytes)
        return Fetched(
            str(target), content_type, charset, content, _http_time(self.header("last-modified"))
        )

    def _content(self, max_bytes: int) -> bytes:
        encoding = self.header("content-encoding")
        parts: list[bytes] = []
        with _Translated():
            parts.extend(_unpacked(self._blocks(max_bytes), encoding, max_bytes))
        return b"".join(parts)

    def _blocks(self, max_bytes: int) -> Iterator[bytes]:
        seen = 0
        for block in self.response.iter_stream():
            seen += len(block)
            if seen > max_bytes:
                raise _too_large(max_bytes)
            yield block


@lru_cache(maxsize=1)
def _trusted() -> ssl.SSLContext:
    """Return the certificates that the system trusts; reading them takes longer than a request."""
    import httpx2

    return httpx2.create_ssl_context()


def _too_large(max_bytes: int) -> FetchProblem:
    return FetchProblem(FetchCode.TOO_LARGE, f"has more than {max_bytes:,} bytes")


class _Translated:
    """Turns what the HTTP library raises into `FetchProblem`."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool:
        import httpcore2

        if isinstance(error, FetchProblem) or not isinstance(error, Exception):
            return False
        causes = list(_causes(error))
        if any(isinstance(cause, FetchProblem) for cause in causes):
            raise next(cause for cause in causes if isinstance(cause, FetchProblem)) from None
        if any(isinstance(cause, ssl.SSLError) for cause in causes):
            raise FetchProblem(
                FetchCode.TLS_FAILED, "has no certificate that is trusted for its host"
            ) from None
        if isinstance(error, httpcore2.TimeoutException | TimeoutError):
            raise FetchProblem(FetchCode.TIMEOUT, "takes too long") from None
        if isinstance(error, httpcore2.ConnectError | OSError):
            raise FetchProblem(FetchCode.NOT_CONNECTED, "could not be reached") from None
        if isinstance(error, httpcore2.ProtocolError | httpcore2.NetworkError | zlib.error):
            raise FetchProblem(
                FetchCode.BAD_RESPONSE, "was answered with something that is not HTTP"
            ) from None
        return False


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _content_type(header: str) -> tuple[str, str | None]:
    kind, *parameters = header.split(";")
    charset = None
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "charset":
            charset = value.strip().strip("\"'")[:40] or None
    return kind.strip().lower(), charset


def _unpacked(blocks: Iterable[bytes], encoding: str, max_bytes: int) -> Iterator[bytes]:
    """Yield the body's bytes, never more than `max_bytes` of them, whatever a small packed body
    would grow to.
    """
    names = [
        name
        for part in encoding.split(",")
        if (name := part.strip().lower()) not in ("", "identity")
    ]
    if not names:
        yield from blocks
        return
    if names not in (["gzip"], ["x-gzip"]):
        raise FetchProblem(FetchCode.CONTENT_ENCODING, "is packed in another way than gzip")
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    grown = 0
    for block in blocks:
        rest = block
        while rest:
            if unpacker.eof:
                unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
            piece = unpacker.decompress(rest, _BLOCK_BYTES)
            grown += len(piece)
            if grown > max_bytes:
                raise _too_large(max_bytes)
            yield piece
            rest = unpacker.unconsumed_tail or (unpacker.unused_data if unpacker.eof else b"")
    if not unpacker.eof:
        raise FetchProblem(FetchCode.BAD_RESPONSE, "was cut off on its way")


def _http_time(header: str) -> datetime | None:
    try:
        return parsedate_to_datetime(header).astimezone(UTC) if header else None
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
