"""The interfaces of launchers. A launcher starts hosts, never single workers: one supervisor on each, which dials in."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

from srl.cluster.security import Credentials, Join, new_credentials
from srl.core.errors import UserError
from srl.core.files import last_lines
from srl.core.load import load, option
from srl.core.registry import REGISTRIES
from srl.core.types import HostGroup
from srl.graph.hosts import Host, hosts_of
from srl.graph.spec import Graph

_LINES = 6
"""Lines of an output that are shown."""


@dataclass(frozen=True, slots=True)
class Gone:
    """A host whose supervisor has ended, or never started."""

    host: int
    """Its number among the hosts of the run."""
    reason: str
    advice: str = ""
    """What a person can try, if that is known."""


class AnyLauncher(ABC):
    """What all launchers have: settings, and the hosts of a run."""

    Args: ClassVar[type]
    """Frozen dataclass; the settings in the file are loaded into it strictly."""

    def __init__(self, args: Any, hosts: Sequence[Host], groups: Mapping[str, HostGroup], name: str) -> None:
        self.args = args
        self.hosts, self.groups = hosts, groups
        self.name = name
        """Of the run."""

    def groups_in_use(self) -> Iterator[tuple[int, str, HostGroup]]:
        """Of each group that has hosts of the run: the number of its first host, its name, and what it is."""
        first = 0
        for name in dict.fromkeys(host.group for host in self.hosts):
            yield first, name, self.groups[name]
            first += self.groups[name].size

    def check_groups(self, setting: str, names: Iterable[str], *more: str) -> None:
        """UserError if this setting of the launcher names a group that does not exist; `more`: other names that it may have."""
        if strange := [one for one in names if one not in self.groups and one not in more]:
            raise UserError(
                f"'launcher.{setting}' names hosts '{strange[0]}', but there is no such group",
                ("groups", ", ".join((*more, *self.groups))),
                path=("launcher", setting, strange[0]),
            )


class Launcher(AnyLauncher):
    """Starts a supervisor on every host, and ends them. Home is the machine that the run is started on."""

    own_hosts: ClassVar[bool] = True
    """Whether each host is a machine of its own, which must have what `hosts` says."""
    patience: float = 60.0
    """Seconds that a host has to join the run, and to come back if it was lost."""

    def credentials(self) -> Credentials:
        """The secrets of this run."""
        return new_credentials()

    @abstractmethod
    def check(self) -> str:
        """What can be checked before the start, or UserError; the address of this machine as the hosts reach it, with a port.

        Port 0: any free one.
        """

    @abstractmethod
    def render(self) -> Mapping[str, str]:
        """What would be run or submitted, for `--dry-run`: name -> text, without secrets."""

    @abstractmethod
    def start(self, join: Join, folder: Path) -> None:
        """Start all supervisors; returns at once. `join` has secrets: it goes through a pipe or a file with mode 600.

        `folder` is for files of this start, in the run folder. It does not exist yet.
        """

    def again(self, host: int, join: Join) -> None:
        """Start the supervisor of this host, which is gone, once more. Not needed where another system does that."""

    @abstractmethod
    def poll(self) -> Sequence[Gone]:
        """The hosts that are gone since the last call. Never waits."""

    @abstractmethod
    def stop(self, grace: float) -> None:
        """End all supervisors, after `grace` seconds by force. Idempotent."""


@dataclass(frozen=True, kw_only=True)
class Home:
    """The machine of the trainers and the run folder, for launchers that start it too."""

    cores: int = option(1, "cores, for trainers and the evaluator", low=1)
    gpus: int = option(0, "GPUs, for trainers", low=0)
    memory: float | None = option(None, "GB of memory; null: not requested", above=0)


class Submitter(AnyLauncher):
    """Hands the whole run over to another system, home included, and returns. Its `Args` have a `home: Home`."""

    @property
    @abstractmethod
    def there(self) -> Mapping[str, Any]:
        """The launcher of the run on the machine that will be its home: plain data for `launcher:`."""

    @abstractmethod
    def check(self) -> None:
        """What can be checked before the start, or UserError."""

    @abstractmethod
    def render(self, experiment: str) -> Mapping[str, str]:
        """What would be submitted: name -> text, without secrets. `experiment` is the text of its file there."""

    @abstractmethod
    def submit(self, experiment: str) -> Mapping[str, str]:
        """Submit it, or UserError and nothing is left. What to do next, in words: label -> command."""


def check_program(launcher: str, program: str, hint: str) -> None:
    """UserError if a program that a launcher runs is not on this machine."""
    if shutil.which(program) is None:
        raise UserError(f"launcher {launcher} needs the program {program}", ("try", hint), path=("launcher",))


def said(output: IO[bytes]) -> str:
    """The last lines of what a command printed, for the reason of its failure."""
    return "".join(f"\n{line}" for line in last_lines(output, _LINES))


def launcher_of(graph: Graph) -> Launcher | Submitter:
    """The launcher of a graph that has hosts."""
    kind = REGISTRIES["launcher"].resolve(graph.launcher.use)
    launcher: Launcher | Submitter = kind(
        load(kind.Args, graph.launcher.args, path=("launcher",)), hosts_of(graph), graph.hosts, graph.name
    )
    return launcher
