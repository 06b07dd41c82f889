"""A web server on this machine's loopback for the tests of web sources: it answers with what a test
wrote down.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network

from ctx_pipeline.sources.web.addresses import AddressRules

TLS_HANDSHAKE = b"\x16"

Script = bytes | Callable[[socket.socket], None]


@dataclass
class WebServer:
    """Answers each path with its script; `requests` is what was received, head by head."""

    port: int
    scripts: dict[str, Script] = field(default_factory=dict)
    requests: list[bytes] = field(default_factory=list)

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    @property
    def rules(self) -> AddressRules:
        """Admit this server alone."""
        return AddressRules(allowed=(ip_network("127.0.0.1/32"),), ports=frozenset({self.port}))

    def page(
        self, path: str, body: bytes, content_type: str = "text/html; charset=utf-8", **headers: str
    ) -> str:
        self.scripts[path] = response(body, content_type, **headers)
        return self.url(path)

    def redirect(self, path: str, target: str, status: int = 302) -> str:
        self.scripts[path] = (
            f"HTTP/1.1 {status} Moved\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()
        )
        return self.url(path)


def response(
    body: bytes, content_type: str | None = "text/html", status: int = 200, **headers: str
) -> bytes:
    """Write a whole answer; a keyword such as `content_encoding` is a header."""
    lines = [f"HTTP/1.1 {status} OK"]
    if content_type is not None:
        lines.append(f"Content-Type: {content_type}")
    named = {"content-length": str(len(body))} | {
        key.replace("_", "-"): value for key, value in headers.items()
    }
    lines += [f"{key}: {value}" for key, value in named.items() if value]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextmanager
def serving() -> Iterator[WebServer]:
    """Run a server until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = WebServer(listener.getsockname()[1])

    def run() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=_answer, args=(server, connection), daemon=True).start()

    threading.Thread(target=run, daemon=True).start()
    try:
        yield server
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _answer(server: WebServer, connection: socket.socket) -> None:
    with connection:
        head = b""
        connection.settimeout(10)
        try:
            while (
                b"\r\n\r\n" not in head
                and not head.startswith(TLS_HANDSHAKE)
                and (block := connection.recv(65_536))
            ):
                head += block
            server.requests.append(head)
            if head.startswith(TLS_HANDSHAKE):
                return
            path = head.split(b" ", 2)[1].decode() if head.count(b" ") >= 2 else ""
            script = server.scripts.get(path, response(b"nothing here", status=404))
            if callable(script):
                script(connection)
            else:
                connection.sendall(script)
        except OSError:
            return
