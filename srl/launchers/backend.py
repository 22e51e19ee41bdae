"""The processes of a run over several hosts: those of this machine as children, all others by the supervisors of their hosts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from srl.cluster.files import seeds
from srl.cluster.preflight import Preflight
from srl.cluster.rpc import RemoteBackend
from srl.cluster.wire import LEASE
from srl.control.backend import CompositeBackend
from srl.control.processes import ProcessBackend
from srl.core.errors import UserError
from srl.graph.hosts import hosts_of, processes_by_host
from srl.graph.placement import workers_by_process
from srl.graph.spec import Graph
from srl.launchers.base import Gone, Launcher, launcher_of
from srl.workers.messages import Message

_GRACE = 5.0
_PAUSE = 1.0
_TRIED = float("inf")
"""Due: nothing, its supervisor was started again and has neither joined nor failed."""


@dataclass(slots=True)
class _Absence:
    """A host that was lost or has left, and whose workers may start again."""

    until: float
    """When its workers count as failed once more."""
    due: float
    """When its supervisor is started again."""
    supervisor: int
    """The one that was lost."""


class LaunchedBackend(CompositeBackend):
    """The processes of this machine, and those of the hosts that a launcher starts."""

    def __init__(self, graph: Graph, run_folder: Path, *, lease: float = LEASE) -> None:
        launcher = launcher_of(graph)
        assert isinstance(launcher, Launcher)
        self.launcher = launcher
        self._hosts = hosts_of(graph)
        names = [host.name for host in self._hosts]
        placed = {process: host for host, processes in processes_by_host(graph).items() for process in processes}
        self._where = where = {process: names.index(host) if host in names else -1 for process, host in placed.items()}
        self._elastic = {number for number, host in enumerate(self._hosts) if graph.hosts[host.group].elastic}
        restarts = {
            process: all(graph.node(worker.node).on_failure == "restart" for worker in workers)
            for process, workers in workers_by_process(graph).items()
        }
        firm = {where[process] for process in where if not restarts[process]}
        bind = self.launcher.check()
        self._home = ProcessBackend()
        self.remote = RemoteBackend(
            len(names),
            lambda one: where[one],
            credentials=launcher.credentials(),
            run=graph.name,
            lease=lease,
            bind=bind,
            folder=run_folder,
            seeds=lambda one: seeds(graph, run_folder, self._hosts[one].group),
            encrypt=not graph.insecure,
            elastic=self._elastic,
            may_leave=self._elastic | (set(range(len(names))) - firm),
            name_of=lambda one: self._hosts[one].words,
        )
        self._preflight = Preflight(graph, self._hosts, self.remote, checked=self.launcher.own_hosts)
        super().__init__([self._home, self.remote], lambda one: int(where[one] >= 0))
        self._late = time.monotonic() + self.launcher.patience
        self._waiting = set(range(len(names))) - self._elastic
        self._restarted = ({where[process] for process in where if restarts[process]} - {-1}) | self._elastic
        self._returning: dict[int, _Absence] = {}
        try:
            self.launcher.start(self.remote.join, run_folder / "launch")
        except BaseException:
            self.close()
            raise

    @property
    def processes(self) -> dict[str, int]:
        """Process -> pid, of those that this process started itself."""
        return self._home.processes

    @property
    def waiting(self) -> bool:
        nobody = bool(self._elastic) and not any(self.remote.supervisor(host) for host in self._elastic)
        return bool(self._waiting or set(self._returning) - self._elastic) or nobody

    def poll(self, timeout: float) -> list[Message]:
        messages = super().poll(timeout)
        self._preflight.poll()
        self._waiting = {host for host in self._waiting if not self.remote.supervisor(host)}
        for gone in self.launcher.poll():
            if gone.host in self._waiting:
                raise _not_there(self._hosts[gone.host].words, gone.reason, gone.advice)
            self._lost(gone)
        for host in {self._where[message["process"]] for message in messages if message["type"] == "lost" or "left" in message}:
            self._expect_back(host)
        self._start_again()
        if self._waiting and time.monotonic() > self._late:
            late = ", ".join(self._hosts[host].words for host in sorted(self._waiting))
            raise _not_there(late, f"no answer within {self.launcher.patience:g} seconds")
        return messages

    def _lost(self, gone: Gone) -> None:
        """A host that was there is gone. It has some time to come back, if a worker of it may be restarted."""
        if self.remote.supervisor(gone.host) and gone.host not in self._returning:
            self.remote.give_up(gone.host, gone.reason)
        self._expect_back(gone.host)

    def _expect_back(self, host: int) -> None:
        """Its supervisor is started again after a pause."""
        if host in self._restarted:
            now = time.monotonic()
            absence = self._returning.setdefault(host, _Absence(now + self.launcher.patience, 0.0, self.remote.supervisor(host)))
            absence.due = now + _PAUSE

    def _start_again(self) -> None:
        """Start the supervisors of hosts that were lost, with a pause between two attempts."""
        now = time.monotonic()
        for host, absence in list(self._returning.items()):
            supervisor = self.remote.supervisor(host)
            if supervisor not in (0, absence.supervisor):
                del self._returning[host]
            elif now > absence.until and host not in self._elastic:
                self.remote.give_up(host, f"it has not come back within {self.launcher.patience:g} seconds")
                absence.until = now + self.launcher.patience
            elif now > absence.due and not supervisor:
                self.launcher.again(host, self.remote.join)
                absence.due = _TRIED

    def close(self) -> None:
        super().close()
        self._preflight.close()
        self.launcher.stop(_GRACE)


def _not_there(host: str, reason: str, advice: str = "") -> UserError:
    hints = [("try", advice)] if advice else []
    return UserError(f"host {host} did not join the run", ("because", reason), *hints, code="E08")
