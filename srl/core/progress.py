"""How far a command is: one line on stderr that a terminal draws again and again; elsewhere a plain line now and then."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import IO, TypeAlias

from srl.core.text import clock_time

Tell: TypeAlias = Callable[[str, float, float], None]
"""Called with what is done or counted, how many are done, and of how many; 0: that is not known."""

AFTER = 1.0
"""Seconds before the line appears on a terminal: what is over sooner shows nothing."""
PLAIN_EVERY = 30.0
"""Seconds between two plain lines."""
_EVERY = 0.25
_WIDEST = 30
"""Characters of a bar."""
_ERASE = "\r\x1b[K"


def silent(what: str, done: float = 0.0, total: float = 0.0) -> None:
    """Tells nobody."""


class Progress:
    """Shows what it was last called with, until the end of the `with` block.

    `look` is asked instead, whenever the line is drawn.
    """

    def __init__(
        self, what: str, *, look: Callable[[], tuple[str, float, float]] | None = None, out: IO[str] | None = None
    ) -> None:
        self.out = out if out is not None else sys.stderr
        self.live = self.out.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._look = look
        self._what, self._done, self._total = what, 0.0, 0.0
        self._since = time.monotonic()
        """When this part began."""
        self._lasts = 0.0
        self._drawn = False
        self._writing = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._draw_on, daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        with self._writing, contextlib.suppress(OSError):
            self._erase()

    def __call__(self, what: str, done: float = 0.0, total: float = 0.0) -> None:
        if what != self._what:
            self._what, self._since, self._lasts = what, time.monotonic(), 0.0
        self._done, self._total = done, total

    def lasting(self, what: str, seconds: float) -> None:
        """A part of which only the duration is known."""
        self(what)
        self._lasts = seconds

    def print(self, text: str) -> None:
        """A line of the command's own output, above this one."""
        with self._writing:
            with contextlib.suppress(OSError):
                self._erase()
            print(text, flush=True)

    def _draw_on(self) -> None:
        wait = AFTER if self.live else PLAIN_EVERY
        with contextlib.suppress(OSError, ValueError):  # the terminal was closed: the command goes on
            while not self._over.wait(wait):
                wait = _EVERY if self.live else PLAIN_EVERY
                if self._look is not None:
                    self(*self._look())
                self._draw()

    def _draw(self) -> None:
        passed = time.monotonic() - self._since
        done, total = (min(passed, self._lasts), self._lasts) if self._lasts else (self._done, self._total)
        text = line(self._what, done, total, passed, width=self._width() - 1, timed=bool(self._lasts))
        with self._writing:
            self.out.write(f"{_ERASE}{text}" if self.live else f"{text}\n")
            self.out.flush()
            self._drawn = self.live

    def _erase(self) -> None:
        if self._drawn:
            self.out.write(_ERASE)
            self.out.flush()
            self._drawn = False

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self.out.fileno()).columns or 80
        except OSError:
            return 80


def line(what: str, done: float, total: float, passed: float, *, width: int = 79, timed: bool = False) -> str:
    """`episodes 12 of 20  [############........]  00:00:07, 00:00:05 to go`. `timed`: what is counted is seconds."""
    show = clock_time if timed else _whole
    counted = f"{show(done)} of {show(total)}" if total else show(done) if done else ""
    part = min(1.0, done / total) if total else 0.0
    clock = "" if timed else clock_time(passed) + (f", {clock_time(passed * (1 - part) / part)} to go" if part else "")
    left = f"{what} {counted}".rstrip()
    room = min(_WIDEST, width - len(left) - len(clock) - 6)
    bar = f"[{'#' * int(part * room):.<{room}}]" if total and room >= 10 else ""
    return "  ".join(one for one in (left, bar, clock) if one)[:width]


def _whole(value: float) -> str:
    return f"{int(value):,}"
