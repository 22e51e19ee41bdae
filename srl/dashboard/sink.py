"""The dashboard of one run, in the process that controls it: it lives as long as the run."""

from __future__ import annotations

from srl.dashboard import server
from srl.observe.result import RunResult
from srl.observe.sinks.base import Sink
from srl.store.run_folder import RunFolder


class Dashboard(Sink):
    """Reports reach its pages through the files of the run, so it must come after the sinks that write them."""

    def __init__(self, folder: RunFolder) -> None:
        self._board = server.Dashboard([folder.path])
        self.address = self._board.address

    def end(self, result: RunResult) -> None:
        self._board.close()
