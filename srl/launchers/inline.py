"""No process but this one."""

from __future__ import annotations

from srl.control.crew import Crew, InlineCrew
from srl.graph.spec import Graph
from srl.launchers.base import Launcher


class InlineLauncher(Launcher):
    """Every worker in this process: deterministic, and a debugger sees everything."""

    def crew(self, graph: Graph) -> Crew:
        return InlineCrew()
