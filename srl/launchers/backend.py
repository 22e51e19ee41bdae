"""The processes of a run over several hosts: those of this machine as children, all others by the supervisors of their hosts."""

from __future__ import annotations

import time
from pathlib import Path

from srl.cluster.files import seeds
from srl.cluster.preflight import Preflight
from srl.cluster.rpc import RemoteBackend
from srl.cluster.wire import LEASE
from srl.control.backend import CompositeBackend
from srl.control.processes import ProcessBackend
from srl.core.errors import UserError
from srl.graph.hosts import hosts_of, processes_by_host
from srl.graph.spec import Graph
from srl.launchers.base import Gone, Launcher, launcher_of
from srl.workers.messages import Message

_GRACE = 5.0
_RETURN = 60.0
"""Seconds in which a host that was lost may come back before its workers count as failed once more."""
_PAUSE = 1.0
_TRIED = float("inf")
"""Due: nothing, its supervisor was started again and has neither joined nor failed."""


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
        )
        self._preflight = Preflight(graph, self._hosts, self.remote, checked=self.launcher.own_hosts)
        super().__init__([self._home, self.remote], lambda one: int(where[one] >= 0))
        self._late = time.monotonic() + self.launcher.patience
        self._waiting = set(range(len(names))) - self._elastic
        restarted = {where[one] for one in where if graph.node(one.rpartition("/")[0]).on_failure == "restart"}
        self._restarted = (restarted - {-1}) | self._elastic
        self._returning: dict[int, tuple[float, float]] = {}
        """Host that was lost -> until when it may come back, and when its supervisor is started again."""
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
        nobody = bool(self._elastic) and not any(self.remote.has_joined(host) for host in self._elastic)
        return bool(self._waiting) or nobody

    def poll(self, timeout: float) -> list[Message]:
        messages = super().poll(timeout)
        self._preflight.poll()
        self._waiting = {host for host in self._waiting if not self.remote.has_joined(host)}
        for gone in self.launcher.poll():
            if gone.host in self._waiting:
                raise _not_there(self._hosts[gone.host].words, gone.reason, gone.advice)
            self._lost(gone)
        for host in {self._where[message["process"]] for message in messages if message["type"] == "lost"}:
            self._expect_back(host)  # its lease has ended
        self._start_again()
        if self._waiting and time.monotonic() > self._late:
            late = ", ".join(self._hosts[host].words for host in sorted(self._waiting))
            raise _not_there(late, f"no answer within {self.launcher.patience:g} seconds")
        return messages

    def _lost(self, gone: Gone) -> None:
        """A host that was there is gone. It has some time to come back, if a worker of it may be restarted."""
        now = time.monotonic()
        until, _ = self._returning.get(gone.host, (now, now))
        if until <= now and not (gone.host in self._elastic and not self.remote.has_joined(gone.host)):
            # gone for the first time, or for too long: its processes count as dead
            self.remote.give_up(gone.host, gone.reason)
        self._expect_back(gone.host)

    def _expect_back(self, host: int) -> None:
        """Its supervisor is started again after a pause."""
        now = time.monotonic()
        until, _ = self._returning.get(host, (now, now))
        if host in self._restarted:
            self._returning[host] = (until if until > now else now + _RETURN, now + _PAUSE)

    def _start_again(self) -> None:
        """Start the supervisors of hosts that were lost, with a pause between two attempts."""
        for host, (until, due) in list(self._returning.items()):
            if self.remote.has_joined(host) and due == _TRIED:
                del self._returning[host]
            elif time.monotonic() > due and self.launcher.again(host, self.remote.join):
                self._returning[host] = (until, _TRIED)

    def close(self) -> None:
        super().close()
        self._preflight.close()
        self.launcher.stop(_GRACE)


def _not_there(host: str, reason: str, advice: str = "") -> UserError:
    hints = [("try", advice)] if advice else []
    return UserError(f"host {host} did not join the run", ("because", reason), *hints, code="E08")
