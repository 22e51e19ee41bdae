"""The interface of launchers. A launcher starts hosts, never single workers: one supervisor on each, which dials in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from srl.cluster.security import Join
from srl.core.load import load
from srl.core.registry import REGISTRIES
from srl.core.types import HostGroup
from srl.graph.hosts import Host, hosts_of
from srl.graph.spec import Graph


@dataclass(frozen=True, slots=True)
class Gone:
    """A host whose supervisor has ended, or never started."""

    host: int
    """Its number among the hosts of the run."""
    reason: str


class Launcher(ABC):
    """Starts a supervisor on every host, and ends them."""

    Args: ClassVar[type]
    """Frozen dataclass; the settings in the file are loaded into it strictly."""
    patience: ClassVar[float] = 60.0
    """Seconds that a host has to join the run."""

    def __init__(self, args: Any, hosts: Sequence[Host], groups: Mapping[str, HostGroup], name: str) -> None:
        self.args = args
        self.hosts, self.groups = hosts, groups
        self.name = name
        """Of the run."""

    @abstractmethod
    def check(self) -> str:
        """What can be checked before the start, or UserError; the address of this machine as the hosts reach it, with a port.

        Port 0: any that is free.
        """

    @abstractmethod
    def render(self) -> Mapping[str, str]:
        """What would be run or submitted, for `--dry-run`: name -> text, without secrets."""

    @abstractmethod
    def start(self, join: Join, folder: Path) -> None:
        """Start all supervisors; returns at once. `join` has secrets: it goes through a pipe or a file with mode 600.

        `folder` is for files of this start, in the run folder. It does not exist yet.
        """

    def again(self, host: int, join: Join) -> bool:
        """Start the supervisor of this host, which is gone, once more; False if that is not possible."""
        return False

    @abstractmethod
    def poll(self) -> Sequence[Gone]:
        """The hosts that are gone since the last call. Never waits."""

    @abstractmethod
    def stop(self, grace: float) -> None:
        """End all supervisors, after `grace` seconds by force. Idempotent."""


def launcher_of(graph: Graph) -> Launcher:
    """The launcher of a graph that has hosts."""
    kind = REGISTRIES["launcher"].resolve(graph.launcher.use)
    launcher: Launcher = kind(load(kind.Args, graph.launcher.args, path=("launcher",)), hosts_of(graph), graph.hosts, graph.name)
    return launcher
