"""Pages for people, over HTTP on this host only. The address holds a token; nothing else is needed to see them.

Every browser has a thread of its own.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from srl.core.errors import UserError

HOST = "127.0.0.1"
_THREADS = 64
_CLOSES = 0.1
"""Seconds within which it stops listening."""


class Site:
    """Answers by `visit` until it is closed. `name` says in errors whose page it is."""

    def __init__(self, visit: type[Visit], *, port: int = 0, name: str = "the page") -> None:
        self.token = secrets.token_urlsafe(16)
        try:
            self.server = _Server((HOST, port), visit)
        except (OSError, OverflowError) as error:
            found = getattr(error, "strerror", None) or str(error)
            raise UserError(f"{name} cannot use port {port}", ("found", found), ("try", "port 0: any")) from error
        self.server.token = self.token.encode()
        self.address = f"http://{HOST}:{self.server.server_port}/{self.token}/"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(_CLOSES,), name="srl-page", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Threads that still answer end by themselves."""
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a thread that sends to a browser that takes nothing ends by itself
    token: bytes = b""

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """A flood of connections must not become a flood of threads."""
        return threading.active_count() < _THREADS

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that has gone or takes nothing is no news."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Visit(BaseHTTPRequestHandler):
    """One request. `get` answers those that hold the token."""

    buffer: ClassVar[int] = 1 << 18
    """Bytes in flight to one browser: little, so that what it shows is new."""
    server_version, sys_version = "srl", ""

    def get(self, path: list[str], query: str) -> None:
        """Answer a request for a path below the token: `[""]` is the page itself."""
        raise NotImplementedError

    def setup(self) -> None:
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.buffer)
        super().setup()

    def do_GET(self) -> None:
        place, _, query = self.path.partition("?")
        _, token, *path = [*place.split("/"), ""]
        if not hmac.compare_digest(token.encode(), self.server.token):  # type: ignore[attr-defined]
            self.answer(403, "text/plain", b"the address must hold the token that was printed at the start\n")
        elif path == [""]:
            self.send_response(301)
            self.send_header("Location", f"/{token}/")
            self.end_headers()
        else:
            self.get(path[:-1], query)

    def page(self, html: str) -> None:
        """A page whose scripts and styles hold the word NONCE in their tags."""
        nonce = secrets.token_urlsafe(8)
        rules = f"default-src 'self'; img-src 'self' data:; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'"
        rules += "; frame-ancestors 'none'"
        self.answer(200, "text/html; charset=utf-8", html.replace("NONCE", nonce).encode(), rules)

    def missing(self) -> None:
        """There is nothing at this path."""
        self.answer(404, "text/plain", b"there is no such page\n")

    def log_message(self, format: str, *args: Any) -> None:
        """The run's log has no use for it, and the address holds the token."""

    def answer(self, code: int, kind: str, body: bytes, rules: str = "default-src 'none'", **headers: str) -> None:
        """The whole answer."""
        self.head(code, kind, rules, **headers)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def head(self, code: int, kind: str, rules: str = "default-src 'none'", **headers: str) -> None:
        """The first lines of an answer."""
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", rules)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
