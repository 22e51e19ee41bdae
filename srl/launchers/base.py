"""What a launcher is: it brings up hosts, never single workers. On each host a supervisor dials in and starts processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from srl.control.crew import Crew
from srl.control.security import Join
from srl.graph.spec import Graph


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Like hosts that are asked for together."""

    name: str
    hosts: int
    cores: int = 1
    gpus: int = 0
    memory: int = 0
    elastic: bool = False
    """They may come and go while the run goes on."""


@dataclass(frozen=True, slots=True)
class HostEvent:
    """What the scheduler says of one host."""

    group: str
    index: int
    kind: Literal["pending", "lost", "preempted"]
    text: str = ""


class Launcher(ABC):
    """Hosts for a run."""

    @abstractmethod
    def crew(self, graph: Graph) -> Crew:
        """Where the processes of this graph will live; its hosts are being brought up. `close` of the crew ends them."""

    def groups(self, graph: Graph) -> Sequence[HostGroup]:
        """The hosts that this graph needs besides this one."""
        return ()

    def render(self, groups: Sequence[HostGroup], join: Join) -> Mapping[str, str]:
        """File name -> text, without any secret: what `--dry-run` prints."""
        return {}

    def start(self, rendered: Mapping[str, str], join: Join) -> Mapping[str, Any]:
        """Begin; supervisors dial in. What comes back is plain data, kept in the run folder for `poll` and `stop`."""
        return {}

    def poll(self, handle: Mapping[str, Any]) -> Sequence[HostEvent]:
        """What has become of the hosts."""
        return ()

    def stop(self, handle: Mapping[str, Any], grace: float) -> None:
        """End all hosts; idempotent, from any process."""
        return
