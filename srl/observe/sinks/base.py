"""The base class of sinks. The run log passes the same reports and events to every sink, in one thread."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from srl.core.component import resolved
from srl.core.types import Component

if TYPE_CHECKING:
    from srl.graph.spec import Graph
    from srl.observe.report import Lines, Report
    from srl.observe.result import RunResult


class Sink:
    """Override what you need. One of your own is made with the run folder: `my.py:Csv` in `sinks:` calls `Csv(folder)`.

    With a `Config`, a frozen dataclass, it has settings: `{use: my.py:Csv, every: 5}` calls `Csv(folder, config)`.
    """

    Config: ClassVar[type | None] = None
    address: str = ""
    """Where a person finds what it shows, once the run has begun."""

    @classmethod
    def check(cls) -> None:
        """Before anything starts: a UserError that says what to install, if something is missing."""

    def begin(self, graph: Graph, plan: Lines) -> None:
        """The run starts."""

    def report(self, report: Report) -> None:
        """About once a second (inline: at most twenty times), and once more before the end."""

    def event(self, what: str, /, **facts: Any) -> None:
        """Something happened: `started`, `died`, `note` with a `text` for people ..."""

    def end(self, result: RunResult) -> None:
        """The run is over: close files."""


def make_sink(wanted: Component, folder: Path) -> Sink:
    """The sink of a run."""
    kind, settings = resolved("sink", wanted, ("sinks",))
    sink: Sink = kind(folder, *settings)
    return sink
