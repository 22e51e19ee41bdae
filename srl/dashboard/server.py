"""The dashboard: the page about runs, and news of them as server-sent events. Nothing is read while no page is open."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from srl.dashboard.curves import read_curves
from srl.dashboard.news import News
from srl.dashboard.page import live_page
from srl.dashboard.runs import FILMS, Runs, films
from srl.show.site import Site, Visit
from srl.store.run_folder import RunFolder

EVERY = 1.0
"""Seconds between two looks at the files of a run."""
PATIENCE = 15.0
"""Seconds for which a browser may take nothing."""
GOODBYE = 2.0
"""Seconds within which pages are told the last news."""
MOST = 16
"""Pages that are told news at a time."""


class Dashboard:
    """Serves the page until it is closed."""

    def __init__(self, roots: Iterable[Path], *, port: int = 0) -> None:
        self.runs = Runs(roots)
        self.closing = threading.Event()
        self.room = threading.BoundedSemaphore(MOST)
        board = self

        class Seen(_Visit):
            shown, timeout = board, PATIENCE

        self._site = Site(Seen, port=port, name="the dashboard")
        self.address = self._site.address

    def close(self) -> None:
        """Tell every page the last news, and stop listening. Idempotent."""
        if not self.closing.is_set():
            self.closing.set()
            end = time.monotonic() + GOODBYE
            for _ in range(MOST):
                self.room.acquire(timeout=max(0.0, end - time.monotonic()))
            self._site.close()


class _Visit(Visit):
    shown: Dashboard

    def get(self, path: list[str], query: str) -> None:
        names = parse_qs(query).get("id", [])
        chosen = [(name, run) for name in names if (run := self.shown.runs.get(name)) is not None]
        match path, chosen:
            case [""], _:
                self.page(live_page())
            case ["runs"], _:
                self._json(self.shown.runs.summaries())
            case ["news"], [_, *_]:
                self._news(chosen)
            case ["run"], [(name, run)]:
                self._json(self.shown.runs.detail(name, run))
            case ["curves"], [(_, run)]:
                self._json(read_curves(run))
            case ["film", film], [(_, run)] if film in {one["name"] for one in films(run)}:
                self._film(run.videos / film)
            case _:
                self.missing()

    def _json(self, data: Any) -> None:
        self.answer(200, "application/json", json.dumps(data, separators=(",", ":")).encode())

    def _film(self, path: Path) -> None:
        """The whole file, or the part that a browser asks for."""
        data, kind = path.read_bytes(), FILMS[path.suffix]
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first = int(asked[1]) if asked else 0
        if not asked or first >= len(data):
            self.answer(200, kind, data, Accept_Ranges="bytes")
            return
        last = min(int(asked[2] or len(data)), len(data) - 1)
        self.answer(206, kind, data[first : last + 1], Accept_Ranges="bytes", Content_Range=f"bytes {first}-{last}/{len(data)}")

    def _news(self, chosen: list[tuple[str, RunFolder]]) -> None:
        """What has changed, once a second, until the browser goes or the dashboard closes."""
        board = self.shown
        if not board.room.acquire(blocking=False):
            self.answer(503, "text/plain", b"too many pages are open\n")
            return
        try:
            self.head(200, "text/event-stream")
            self.end_headers()
            news = [News(name, run, self._seen(name)) for name, run in chosen]
            over = False
            while not over:
                over = board.closing.wait(EVERY)
                for one in news:
                    for text in one.latest():
                        self.wfile.write(b"data: " + text + b"\n\n")
                self.wfile.write(b": still here\n\n")  # a browser that has gone is noticed
            self.wfile.write(b"event: closed\ndata: {}\n\n")
        finally:
            board.room.release()

    def _seen(self, name: str) -> int:
        """Bytes of metrics.jsonl that the page has of this run."""
        ends = dict(text.rpartition("@")[::2] for text in parse_qs(self.path.partition("?")[2]).get("seen", []))
        return int(ends[name]) if ends.get(name, "").isdigit() else 0
