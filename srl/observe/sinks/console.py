"""The console: a live screen on a terminal, a plain line every ten seconds elsewhere, and the result."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

from srl.core.text import aligned
from srl.graph.spec import Graph
from srl.observe.report import Lines, Report
from srl.observe.result import RunResult
from srl.observe.screen import LOG_WIDTH, line, screen
from srl.observe.sinks.base import Sink

SCREEN_EVERY = 0.5
LINE_EVERY = 10.0


class Console(Sink):
    """Shows reports. `quiet` leaves the plan, the progress and the notes out, never the result."""

    def __init__(
        self,
        out: IO[str] | None = None,
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.out = out if out is not None else sys.stdout
        self.quiet = quiet
        self.live = not quiet and _is_terminal(self.out)
        self._clock = clock
        self._every = SCREEN_EVERY if self.live else LINE_EVERY
        self._next = clock() if self.live else clock() + LINE_EVERY
        self._latest: Report | None = None
        self._screen: Any = None
        self._gone = False
        """The terminal was closed: output is discarded, the run continues."""

    def begin(self, graph: Graph, plan: Lines) -> None:
        if not self.quiet:
            self._print(aligned(plan, self.width))

    def report(self, report: Report) -> None:
        """Show it if it is time to."""
        self._latest = report
        now = self._clock()
        if not self.quiet and now >= self._next:
            self._next = now + self._every
            self._show(report)

    def event(self, what: str, /, **facts: Any) -> None:
        """Print notes: a worker restarted, a checkpoint was written."""
        if what == "note" and not self.quiet:
            self._print("\n".join(textwrap.wrap(facts["text"], self.width, break_long_words=False, break_on_hyphens=False)))

    def end(self, result: RunResult) -> None:
        """The last report, then how the run ended; that also when quiet."""
        if self._latest is not None and not self.quiet:
            self._show(self._latest)
        self.close()
        self._print(result.format())

    def close(self) -> None:
        """Leave the terminal as it was. Idempotent."""
        if self._screen is not None:
            with self._reached():
                self._screen.stop()
            self._screen = None

    @property
    def width(self) -> int:
        """Columns of a line."""
        return shutil.get_terminal_size().columns if self.live else LOG_WIDTH

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        """Discard all further output once the terminal is closed."""
        try:
            yield
        except OSError:
            self._gone, self._screen = True, None
            with contextlib.suppress(OSError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self.out.fileno())  # what is still in the buffer must not fail again at the exit

    def _show(self, report: Report) -> None:
        if self._gone:
            return
        if self.live:
            with self._reached():
                self._draw(report)
        else:
            self._print(line(report))

    def _draw(self, report: Report) -> None:
        from rich.text import Text

        if self._screen is None:
            from rich.console import Console as Terminal
            from rich.live import Live

            terminal = Terminal(file=self.out)
            self._screen = Live(console=terminal, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
            self._screen.start()
        text = "\n".join(screen(report, self._screen.console.width))
        self._screen.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)

    def _print(self, text: str) -> None:
        if self._gone:
            return
        with self._reached():
            if self._screen is not None:
                self._screen.console.print(text, markup=False, highlight=False, soft_wrap=True)
            else:
                print(text, file=self.out, flush=True)


def _is_terminal(out: IO[str]) -> bool:
    """A screen that can be redrawn. Notebooks, log files and terminals without `rich` are not."""
    return out.isatty() and os.environ.get("TERM", "dumb") != "dumb" and importlib.util.find_spec("rich") is not None
