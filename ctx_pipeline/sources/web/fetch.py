"""The guarded HTTP client of web sources: public addresses only, bounded in bytes and time, without
any credential.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ctx_pipeline.sources.web.addresses import (
    Address,
    AddressRules,
    is_metadata_host,
    is_private,
    literal_address,
    parsed,
)
from ctx_pipeline.sources.web.fetch_response import Answer
from ctx_pipeline.sources.web.fetch_types import (
    MAX_URL_CHARS,
    Deadline,
    FetchCode,
    Fetched,
    FetchProblem,
    FetchRules,
    Resolver,
)

if TYPE_CHECKING:
    import httpx2

__all__ = [
    "FetchCode",
    "FetchProblem",
    "FetchRules",
    "Fetched",
    "check_url",
    "fetch",
    "permitted_addresses",
]

MAX_ADDRESSES = 4
"""Addresses of one host that are tried, in the resolver's order."""

_REDIRECTS = frozenset({301, 302, 303, 307, 308})


def fetch(
    url: str,
    rules: FetchRules | None = None,
    *,
    resolve: Resolver | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Fetched:
    """Get one page over HTTP or HTTPS.

    Each address on the way, redirects included, is checked: its scheme, port and host, and every
    network address that the host resolves to. The connection goes to an address that was checked;
    the name is resolved once. No cookie, credential, proxy or setting of the environment is used,
    but for certificates to trust.

    Raises:
        FetchProblem: the page may not be asked for, was not given, or is not what a web source
            reads.
    """
    rules = rules or FetchRules()
    deadline = Deadline(now() + rules.total_seconds, rules.operation_seconds, now)
    target = check_url(url, rules.addresses)

    def permitted(host: str, port: int) -> tuple[Address, ...]:
        return permitted_addresses(
            host, port, rules.addresses, resolve or resolve_host, deadline.left()
        )

    for _ in range(rules.max_redirects + 1):
        with Answer.to(target, permitted, deadline) as answer:
            if answer.status not in _REDIRECTS:
                return answer.read(target, rules.max_bytes)
            target = _next_url(target, answer.header("location"), rules.addresses)
    raise FetchProblem(
        FetchCode.TOO_MANY_REDIRECTS, f"redirects more than {rules.max_redirects} times"
    )


def check_url(url: str, rules: AddressRules) -> httpx2.URL:
    """Return an address without its fragment, if it may be asked for as far as the address itself
    tells.

    Raises:
        FetchProblem: it is not an address, has a user name or password, another scheme than http or
            https, a port or host that is refused, or is written so that readers of it may differ.
    """
    import httpx2

    text = url.strip()
    if (
        not text
        or len(text) > MAX_URL_CHARS
        or not text.isprintable()
        or "\\" in text
        or " " in text
    ):
        raise FetchProblem(FetchCode.BAD_URL, "is not a web address: write it as https://host/path")
    try:
        parts = httpx2.URL(text)
        host = parts.raw_host.decode("ascii")
        port = parts.port
    except (httpx2.InvalidURL, ValueError, TypeError):
        raise FetchProblem(
            FetchCode.BAD_URL, "is not a web address: write it as https://host/path"
        ) from None
    if parts.scheme not in ("http", "https"):
        raise FetchProblem(FetchCode.REFUSED_SCHEME, "has another scheme than http and https")
    authority = text.partition("://")[2].partition("/")[0].partition("?")[0].partition("#")[0]
    if not host or not authority:
        raise FetchProblem(FetchCode.BAD_URL, "names no host")
    if "@" in authority:
        raise FetchProblem(FetchCode.USERINFO, "has a user name or password: take it out")
    if rules.refuses_port(port if port is not None else (443 if parts.scheme == "https" else 80)):
        raise FetchProblem(
            FetchCode.REFUSED_PORT,
            "has an unusual port: only 80 and 443 are asked without allow_private",
        )
    _check_host(host, rules)
    return parts.copy_with(fragment=None)


def _check_host(host: str, rules: AddressRules) -> None:
    try:
        literal = literal_address(host)
    except ValueError:
        raise FetchProblem(
            FetchCode.BAD_URL, "has a host that is neither a name nor a plain address"
        ) from None
    if is_metadata_host(host):
        raise FetchProblem(FetchCode.REFUSED_HOST, "is a host of cloud metadata")
    if literal is not None:
        _check_address(literal, rules)


def _check_address(address: Address, rules: AddressRules) -> None:
    kind = rules.refusal(address)
    if kind is not None:
        hint = (
            ": set allow_private if the source may read private pages"
            if is_private(address)
            else ""
        )
        raise FetchProblem(FetchCode.REFUSED_ADDRESS, f"leads to {kind}{hint}")


def _next_url(current: httpx2.URL, location: str, rules: AddressRules) -> httpx2.URL:
    import httpx2

    try:
        target = str(current.join(location)) if location else ""
    except (httpx2.InvalidURL, ValueError, TypeError):
        target = ""
    if not target:
        raise FetchProblem(FetchCode.BAD_REDIRECT, "redirects to nothing that is a web address")
    following = check_url(target, rules)
    if current.scheme == "https" and following.scheme != "https":
        raise FetchProblem(FetchCode.INSECURE_REDIRECT, "redirects from https to http")
    return following


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host name as the system resolves it.

    Raises:
        OSError: it does not resolve.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def permitted_addresses(
    host: str, port: int, rules: AddressRules, resolve: Resolver, seconds: float
) -> tuple[Address, ...]:
    """Return the addresses of a host, all of which may be asked.

    Raises:
        FetchProblem: it does not resolve, or one of its addresses is refused: a name that leads to
            a public and a private address is a trap or a mistake.
    """
    literal = literal_address(host)
    if literal is not None:
        _check_address(literal, rules)
        return (literal,)
    try:
        addresses = tuple(parsed(text) for text in _within(seconds, resolve, host, port))
    except (OSError, ValueError, UnicodeError):
        raise FetchProblem(FetchCode.NOT_RESOLVED, "has a host that does not resolve") from None
    if not addresses:
        raise FetchProblem(FetchCode.NOT_RESOLVED, "has a host that does not resolve")
    for address in addresses:
        _check_address(address, rules)
    return addresses[:MAX_ADDRESSES]


def _within(seconds: float, resolve: Resolver, host: str, port: int) -> list[str]:
    """Resolve in a thread of its own: the system's resolver takes no time limit."""
    outcome: list[list[str] | Exception] = []

    def run() -> None:
        try:
            outcome.append(resolve(host, port))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, name="ctx-resolve", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise FetchProblem(FetchCode.TIMEOUT, "takes too long to resolve")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]
