"""What a person sees while a run goes on: a live table on a terminal, one plain line every ten seconds elsewhere."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any

from srl.observe.report import Report, StreamRow, WorkerRow

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

TABLE_EVERY = 0.5
LINE_EVERY = 10.0


class Console:
    """Shows reports. `quiet` leaves the plan, the progress and the messages out, never the result."""

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
        self._every = TABLE_EVERY if self.live else LINE_EVERY
        self._next = clock() if self.live else clock() + LINE_EVERY
        self._screen: Any = None
        self._gone = False
        """Nobody reads any more: the terminal was closed. What is said then is lost, and the run goes on."""

    def plan(self, lines: Iterable[tuple[str, str]]) -> None:
        """What is about to start, as (label, text) lines."""
        if not self.quiet:
            self._print(aligned(lines))

    def update(self, report: Report) -> bool:
        """Show a report if it is time to; True if it was shown."""
        now = self._clock()
        if self.quiet or now < self._next:
            return False
        self._next = now + self._every
        self._show(report)
        return True

    def message(self, text: str) -> None:
        """A line that stays: a worker restarted, a checkpoint was written."""
        if not self.quiet:
            self._print(text)

    def finish(self, report: Report | None, text: str) -> None:
        """The last report, then the text that ends a run (result, ledger); shown even when quiet."""
        if report is not None and not self.quiet:
            self._show(report)
        self.close()
        self._print(text)

    def close(self) -> None:
        """Leave the terminal as it was. Idempotent."""
        if self._screen is not None:
            with self._reached():
                self._screen.stop()
            self._screen = None

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        """Output goes nowhere from the moment on at which nobody can be reached."""
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
        if self._screen is None:
            from rich.console import Console as Terminal
            from rich.live import Live

            terminal = Terminal(file=self.out)
            self._screen = Live(console=terminal, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
            self._screen.start()
        self._screen.update(table(report), refresh=True)

    def _print(self, text: str) -> None:
        if self._gone:
            return
        with self._reached():
            if self._screen is not None:
                self._screen.console.print(text, markup=False, highlight=False, soft_wrap=True)
            else:
                print(text, file=self.out, flush=True)


def aligned(lines: Iterable[tuple[str, str]]) -> str:
    """Labels in one column, texts in the next; a text of several lines stays in its column."""
    pairs = list(lines)
    width = max((len(label) for label, _ in pairs), default=0)
    rows = []
    for label, text in pairs:
        first, *rest = text.split("\n")
        rows.append(f"{label:<{width}}  {first}")
        rows += [f"{'':<{width}}  {each}" for each in rest]
    return "\n".join(row.rstrip() for row in rows)


def line(report: Report) -> str:
    """A report as one plain line."""
    parts = [clock_time(report.elapsed), headline(report)]
    parts += [returns(report)] if report.returns else []
    parts += [stats(report)] if report.stats else []
    parts += [rates(report), *(_waits(row) for row in report.workers)]
    stale = [f"{row.name} staleness {row.staleness[1]:.1f}" for row in report.streams if row.staleness]
    lost = [f"{row.name} dropped {_drops(row)}" for row in report.streams if any(row.drops.values())]
    return " | ".join([*parts, *stale, *lost, *([report.advice] if report.advice else [])])


def table(report: Report) -> RenderableType:
    """A report as one screen for `rich`."""
    from rich.console import Group
    from rich.text import Text

    head = [f"{report.experiment}  {clock_time(report.elapsed)}  {headline(report)}", rates(report)]
    if report.returns:
        head.append(returns(report))
    if report.stats:
        head.append(stats(report))
    parts: list[RenderableType] = [Text(each) for each in head]
    parts += [_worker_table(report.workers)] if report.workers else []
    parts += [_stream_table(report.streams)] if report.streams else []
    parts += [Text(report.advice, style="bold")] if report.advice else []
    return Group(*parts)


def headline(report: Report) -> str:
    """`env steps 120,000 of 300,000 (40 %), 00:00:18 to go, update 117`"""
    text = f"env steps {report.env_steps:,}"
    if report.target:
        text += f" of {report.target:,}"
    if report.progress is not None:
        text += f" ({100 * report.progress:.0f} %)"
    if report.eta is not None:
        text += f", {clock_time(report.eta)} to go"
    return text + f", update {report.update:,}"


def returns(report: Report) -> str:
    """`return 187.3 (episodes 512, length 187, best 201.0)`"""
    named = report.returns.items()
    text = "return " + ", ".join(f"{team} {value:.4g}" if team else f"{value:.4g}" for team, value in named)
    facts = [f"episodes {report.episodes:,}"] if report.episodes else []
    facts += [f"length {report.episode_length:.4g}"] if report.episode_length is not None else []
    facts += [f"best {report.best:.4g}"] if report.best is not None else []
    return f"{text} ({', '.join(facts)})" if facts else text


def stats(report: Report) -> str:
    """`seen 0.26, box_lock 0.13`"""
    return ", ".join(f"{name} {value:.2f}" for name, value in report.stats.items())


def rates(report: Report) -> str:
    """`env 52,310/s, agent 104,620/s (hider 52,310, seeker 52,310), train 52,100/s`"""
    text = f"env {report.env_rate:,.0f}/s"
    if report.agent_rate and round(report.agent_rate) != round(report.env_rate):
        text += f", agent {report.agent_rate:,.0f}/s"
    if len(report.policy_rates) > 1:
        text += f" ({', '.join(f'{name} {rate:,.0f}' for name, rate in report.policy_rates.items())})"
    return text + f", train {report.train_rate:,.0f}/s"


def clock_time(seconds: float) -> str:
    """`00:12:41`, days in front when there are any."""
    whole = int(seconds)
    days, rest = divmod(whole, 86400)
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}d {text}" if days else text


def size(number: float) -> str:
    """Bytes for people: `3.1 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def _worker_table(rows: Iterable[WorkerRow]) -> Table:
    from rich.table import Table

    grid = Table(expand=False)
    for name in ("worker", "busy", "cores", "memory", "waits for"):
        grid.add_column(name, justify="left" if name in ("worker", "waits for") else "right", no_wrap=name != "waits for")
    for row in rows:
        restarts = f" ({row.restarts} restarts)" if row.restarts else ""
        name = f"{row.kind} x {row.count}" if row.count > 1 else row.kind
        grid.add_row(name + restarts, f"{100 * row.busy:.0f} %", f"{row.cpu:.2f}", size(row.rss), _waited(row))
    return grid


def _stream_table(rows: Iterable[StreamRow]) -> Table:
    from rich.table import Table

    grid = Table(expand=False)
    for name in ("stream", "items/s", "bytes/s", "queue", "staleness", "dropped"):
        grid.add_column(name, justify="left" if name in ("stream", "dropped") else "right", no_wrap=name != "dropped")
    for row in rows:
        queue = f"{row.queue:.0f}/{row.slots}" if row.slots else f"{row.queue:.0f}"
        stale = " / ".join(f"{value:.1f}" for value in row.staleness) if row.staleness else ""
        grid.add_row(f"{row.name} ({row.kind})", f"{row.items:,.1f}", size(row.bytes), queue, stale, _drops(row))
    return grid


def _waits(row: WorkerRow) -> str:
    waited = _waited(row)
    return f"{row.kind} busy {100 * row.busy:.0f} %" + (f" (waits: {waited})" if waited else "")


def _waited(row: WorkerRow) -> str:
    most = sorted(row.waits.items(), key=lambda item: -item[1])[:2]
    return ", ".join(f"{what} {100 * part:.0f} %" for what, part in most if part >= 0.005)


def _drops(row: StreamRow) -> str:
    return ", ".join(f"{reason} {number:,}" for reason, number in sorted(row.drops.items()) if number)


def _is_terminal(out: IO[str]) -> bool:
    """A screen that can be drawn on again and again. Notebooks and log files are not; nor is a terminal without `rich`."""
    if not out.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return False
    return importlib.util.find_spec("rich") is not None
