"""A page with the running picture, over HTTP on this host only. The address holds a token; nothing else is needed to see it.

The picture is one response that never ends (multipart/x-mixed-replace): each part replaces the one before. Every browser has a
thread of its own, which sends the newest picture and skips those in between. One that takes nothing for five seconds is dropped.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from srl.core.errors import UserError
from srl.show.base import Facts, Show, rgb
from srl.show.png import png

HOST = "127.0.0.1"
PATIENCE = 5.0
"""Seconds for which a browser may take nothing."""
MOST = 16
"""Pictures are sent to so many at a time."""
_THREADS = 64
_BEAT = 1.0
"""Seconds after which the same picture is sent again: a browser that has gone is noticed."""
_CLOSES = 0.1
"""Seconds within which it stops listening."""
_BUFFER = 1 << 18
"""Bytes in flight to one browser: few pictures, so what it shows is new."""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>srl</title><style nonce="NONCE">
body { background: #111; color: #ddd; font: 15px/1.6 system-ui, sans-serif; margin: 24px; }
img { display: block; max-width: 100%; background: #222; min-width: 320px; min-height: 200px; image-rendering: pixelated; }
b { color: #fff; font-weight: 600; } #off { color: #e8a33d; }
</style></head><body><p id="head">srl</p><img id="picture" alt=""><p>env steps <b id="env_steps"></b> &nbsp;
update <b id="update"></b> <span id="source"></span> &nbsp; episode <b id="episode"></b>, step <b id="step"></b> &nbsp;
return so far <b id="returned"></b> &nbsp; episode before <b id="last"></b></p><p id="off"></p><script nonce="NONCE">
const at = name => document.getElementById(name);
const number = x => Number(x.toPrecision(4)).toLocaleString();
const sums = all => Object.entries(all).map(([team, x]) => `${team} ${number(x)}`.trim()).join(", ") || "-";
const connect = () => { at("picture").src = "pictures?" + Date.now(); };
at("picture").onerror = () => setTimeout(connect, 1000);
async function ask() {
  try {
    const facts = await (await fetch("state")).json();
    at("head").textContent = document.title = facts.experiment;
    for (const name of ["env_steps", "update", "episode", "step"]) at(name).textContent = facts[name].toLocaleString();
    for (const name of ["returned", "last"]) at(name).textContent = sums(facts[name]);
    at("source").textContent = facts.source;
    if (at("off").textContent) { at("off").textContent = ""; connect(); }
  } catch { at("off").textContent = "not connected: the run has ended, or this viewer has"; }
  setTimeout(ask, 500);
}
connect(); ask();
</script></body></html>
"""


class Page(Show):
    """Serves the newest picture and its facts until it is closed."""

    def __init__(self, *, port: int = 0) -> None:
        self._token = secrets.token_urlsafe(16)
        self._news = threading.Condition()
        self._png = b""
        self._number = 0
        """Pictures so far."""
        self._facts = b"{}"
        self._looking = 0
        self._closed = False
        page = self

        class Handler(_Handler):
            shown, timeout = page, PATIENCE

        try:
            self._server = _Server((HOST, port), Handler)
        except OSError as error:
            raise UserError(
                f"the viewer's page cannot use port {port}", ("found", error.strerror or str(error)), ("try", "port 0: any")
            ) from error
        self.address = f"http://{HOST}:{self._server.server_port}/{self._token}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_CLOSES,), name="srl-page", daemon=True)
        self._thread.start()

    @property
    def wanted(self) -> bool:
        return self._looking > 0

    def picture(self, frame: Any, facts: Facts) -> None:
        file, told = png(rgb(frame)), json.dumps(facts.plain()).encode()
        with self._news:
            self._png, self._facts = file, told
            self._number += 1
            self._news.notify_all()

    def close(self) -> None:
        if self._closed:
            return
        with self._news:
            self._closed = True
            self._news.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # called by the threads of the server --------------------------------------------------------------------------

    def known(self, token: str) -> bool:
        """The one in the address."""
        return hmac.compare_digest(token.encode(), self._token.encode())

    @property
    def facts(self) -> bytes:
        """JSON."""
        return self._facts

    def look(self) -> bool:
        """Somebody wants pictures; False if there are too many already."""
        with self._news:
            if self._looking >= MOST:
                return False
            self._looking += 1
            return True

    def leave(self) -> None:
        """They have gone."""
        with self._news:
            self._looking -= 1

    def newer(self, number: int) -> tuple[int, bytes] | None:
        """The newest picture, once it is newer than that, or after a while the same; None at the end."""
        with self._news:
            self._news.wait_for(lambda: self._closed or self._number > number, _BEAT)
            return None if self._closed else (self._number, self._png)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a thread that sends to a browser that takes nothing ends by itself

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """A flood of connections must not become a flood of threads."""
        return threading.active_count() < _THREADS

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that has gone or takes nothing is no news."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    shown: Page
    server_version, sys_version = "srl", ""

    def setup(self) -> None:
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        super().setup()

    def do_GET(self) -> None:
        _, token, *rest = [*self.path.partition("?")[0].split("/"), ""]
        if not self.shown.known(token):
            self._answer(403, "text/plain", b"the address must hold the token that was printed at the start\n")
        elif rest == [""]:
            self.send_response(301)
            self.send_header("Location", f"/{token}/")
            self.end_headers()
        elif rest[:1] == ["pictures"]:
            self._pictures()
        elif rest[:1] == ["state"]:
            self._answer(200, "application/json", self.shown.facts)
        elif rest[:1] == [""] and len(rest) == 2:
            nonce = secrets.token_urlsafe(8)
            rules = f"default-src 'self'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; frame-ancestors 'none'"
            self._answer(200, "text/html; charset=utf-8", _PAGE.replace("NONCE", nonce).encode(), rules)
        else:
            self._answer(404, "text/plain", b"there is no such page\n")

    def log_message(self, format: str, *args: Any) -> None:
        """The run's log has no use for it, and the address holds the token."""

    def _answer(self, code: int, kind: str, body: bytes, rules: str = "default-src 'none'") -> None:
        self._head(code, kind, rules)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _head(self, code: int, kind: str, rules: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Content-Security-Policy", rules)

    def _pictures(self) -> None:
        if not self.shown.look():
            self._answer(503, "text/plain", b"too many are looking\n")
            return
        try:
            self._head(200, "multipart/x-mixed-replace; boundary=picture", "default-src 'none'")
            self.end_headers()
            self.wfile.write(b"--picture\r\n")
            number = 0
            while (found := self.shown.newer(number)) is not None:
                number, file = found
                if file:  # the boundary comes at once: only then a browser shows the part
                    head = f"Content-Type: image/png\r\nContent-Length: {len(file)}\r\n\r\n"
                    self.wfile.write(head.encode() + file + b"\r\n--picture\r\n")
        finally:
            self.shown.leave()
