"""A page with the running picture.

The picture is one response that never ends (multipart/x-mixed-replace): each part replaces the one before. The thread of a
browser sends the newest picture and skips those in between. A browser that takes nothing for five seconds is dropped.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from srl.show.base import Facts, Show, rgb
from srl.show.png import png
from srl.show.site import Site, Visit

PATIENCE = 5.0
"""Seconds for which a browser may take nothing."""
MOST = 16
"""Pictures are sent to so many at a time."""
_BEAT = 1.0
"""Seconds after which the same picture is sent again: a browser that has gone is noticed."""

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
        self._news = threading.Condition()
        self._png = b""
        self._number = 0
        """Pictures so far."""
        self._facts = b"{}"
        self._looking = 0
        self._closed = False
        page = self

        class Seen(_Visit):
            shown, timeout = page, PATIENCE

        self._site = Site(Seen, port=port, name="the viewer's page")
        self.address = self._site.address

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
        self._site.close()

    # called by the threads of the server --------------------------------------------------------------------------

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


class _Visit(Visit):
    shown: Page

    def get(self, path: list[str], query: str) -> None:
        if path == ["pictures"]:
            self._pictures()
        elif path == ["state"]:
            self.answer(200, "application/json", self.shown.facts)
        elif path == [""]:
            self.page(_PAGE)
        else:
            self.missing()

    def _pictures(self) -> None:
        if not self.shown.look():
            self.answer(503, "text/plain", b"too many are looking\n")
            return
        try:
            self.head(200, "multipart/x-mixed-replace; boundary=picture")
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
