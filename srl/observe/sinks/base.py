"""The base class of sinks. The run log passes the same reports and events to every sink, in one thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from srl.graph.spec import Graph
    from srl.observe.report import Report
    from srl.observe.result import RunResult

Lines: TypeAlias = Iterable[tuple[str, str]]
"""(label, text)"""


class Sink:
    """Override what you need. One of your own is made with the run folder: `my.py:Csv` in `sinks:` calls `Csv(folder)`."""

    def begin(self, graph: Graph, plan: Lines) -> None:
        """The run starts."""

    def report(self, report: Report) -> None:
        """About once a second (inline: at most twenty times), and once more before the end."""

    def event(self, what: str, /, **facts: Any) -> None:
        """Something happened: `started`, `died`, `note` with a `text` for people ..."""

    def end(self, result: RunResult) -> None:
        """The run is over: close files."""
