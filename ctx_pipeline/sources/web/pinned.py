"""Connections that go only to addresses that were checked, and that a deadline ends however slowly
bytes arrive.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from typing import Any

import httpcore2

from ctx_pipeline.sources.web.addresses import Address

Addresses = Callable[[str, int], tuple[Address, ...]]
"""Returns the checked addresses of a host and port, or raises."""


class PinnedStream(httpcore2.NetworkStream):
    """A connection whose every step has the time that is left."""

    def __init__(self, stream: httpcore2.NetworkStream, left: Callable[[], float]) -> None:
        self._stream = stream
        self._left = left

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return what arrived, waiting no longer than the deadline allows."""
        return self._stream.read(max_bytes, timeout=self._left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send, waiting no longer than the deadline allows."""
        self._stream.write(buffer, timeout=self._left())

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        """Secure the connection for the host's name, which its certificate has to be for."""
        secured = self._stream.start_tls(
            ssl_context, server_hostname=server_hostname, timeout=self._left()
        )
        return PinnedStream(secured, self._left)

    def get_extra_info(self, info: str) -> Any:
        """Return what the connection says of itself."""
        return self._stream.get_extra_info(info)


class PinnedBackend(httpcore2.NetworkBackend):
    """Opens connections to the checked addresses of a host; the name is never resolved a second
    time.
    """

    def __init__(self, addresses: Addresses, left: Callable[[], float]) -> None:
        self._addresses = addresses
        self._left = left
        self._backend = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        """Connect to the first address that answers."""
        failure: Exception | None = None
        for address in self._addresses(host, port):
            try:
                stream = self._backend.connect_tcp(
                    str(address), port, timeout=self._left(), socket_options=socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
            else:
                return PinnedStream(stream, self._left)
        raise failure or httpcore2.ConnectError("no address")

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore2.NetworkStream:
        """Refuse: no page lies behind a socket of this machine."""
        raise httpcore2.ConnectError("not a network address")
