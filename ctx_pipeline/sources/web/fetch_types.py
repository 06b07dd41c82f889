"""What a fetch takes, gives and says when it cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from ctx_pipeline.sources.web.addresses import AddressRules

CONTENT_TYPES = ("text/html", "text/plain", "application/pdf")
MAX_URL_CHARS = 2_048
MAX_BYTES = 32 * 1024 * 1024
MAX_REDIRECTS = 5
OPERATION_SECONDS = 10.0
"""Most time for one step: resolving, connecting, one read."""
TOTAL_SECONDS = 60.0
"""Most time for one page with its redirects, however slowly it drips."""


class FetchCode(StrEnum):
    """Why a page was not fetched."""

    BAD_URL = "bad_url"
    USERINFO = "userinfo"
    REFUSED_SCHEME = "refused_scheme"
    REFUSED_PORT = "refused_port"
    REFUSED_HOST = "refused_host"
    REFUSED_ADDRESS = "refused_address"
    INSECURE_REDIRECT = "insecure_redirect"
    BAD_REDIRECT = "bad_redirect"
    TOO_MANY_REDIRECTS = "too_many_redirects"
    NOT_RESOLVED = "not_resolved"
    NOT_CONNECTED = "not_connected"
    TLS_FAILED = "tls_failed"
    TIMEOUT = "timeout"
    BAD_RESPONSE = "bad_response"
    HTTP_STATUS = "http_status"
    CONTENT_TYPE = "content_type"
    CONTENT_ENCODING = "content_encoding"
    TOO_LARGE = "too_large"


class FetchProblem(Exception):
    """Why a page was not fetched. The message never has the address or anything
    that a server sent.
    """

    def __init__(self, code: FetchCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


Resolver = Callable[[str, int], list[str]]
"""Returns the addresses of a host name, in the order they should be tried; raises OSError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRules:
    """How far a fetch may go."""

    addresses: AddressRules = field(default_factory=AddressRules)
    max_bytes: int = MAX_BYTES
    """Of the body, both as sent and unpacked."""
    max_redirects: int = MAX_REDIRECTS
    operation_seconds: float = OPERATION_SECONDS
    total_seconds: float = TOTAL_SECONDS


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a server gave."""

    url: str
    """Where it was found in the end."""
    content_type: str
    charset: str | None
    content: bytes
    """Unpacked."""
    modified: datetime | None
    """What the server says, in UTC."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a fetch has to be over, and how long one step of it may take."""

    end: float
    operation_seconds: float
    now: Callable[[], float]

    def left(self) -> float:
        """Return the seconds that the next step may take.

        Raises:
            FetchProblem: there are none (`timeout`).
        """
        left = min(self.operation_seconds, self.end - self.now())
        if left <= 0:
            raise FetchProblem(FetchCode.TIMEOUT, "takes too long")
        return left
