"""Processes of this machine; with `hosts`, also supervisors on loopback, as a rehearsal of a cluster."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from srl.control.crew import Crew, JointCrew
from srl.control.local import ROOT, LocalCrew
from srl.control.security import Join
from srl.graph.spec import Graph
from srl.launchers.base import HostEvent, HostGroup, Launcher

if TYPE_CHECKING:
    from srl.control.rpc import RemoteCrew


class LocalLauncher(Launcher):
    """The controller is its own supervisor. Each of `hosts` more is a supervisor process that dials in over gRPC."""

    def __init__(self, hosts: int = 0, options: Sequence[str] = ()) -> None:
        self.hosts = hosts
        self._options = list(options)
        self.supervisors: list[subprocess.Popen[bytes]] = []

    def crew(self, graph: Graph) -> Crew:
        if not self.hosts:
            return LocalCrew()
        from srl.control.rpc import RemoteCrew
        from srl.control.security import new_credentials

        def place(process: str) -> int:
            """Worker i of n to host i * hosts // n; number 0 is this one."""
            node, _, index = process.rpartition("/")
            return int(index) * (self.hosts + 1) // graph.node(node).count

        remote = RemoteCrew(self.hosts, lambda process: place(process) - 1, credentials=new_credentials(), run=graph.name)
        self.start({}, remote.join)
        return _Rehearsal(LocalCrew(), remote, lambda process: int(place(process) > 0), self)

    def groups(self, graph: Graph) -> Sequence[HostGroup]:
        return [HostGroup("local", self.hosts)] if self.hosts else []

    def start(self, rendered: Mapping[str, str], join: Join) -> Mapping[str, Any]:
        """The join line goes through stdin, which is also the lifeline: when it closes, the supervisor ends."""
        for host in range(self.hosts):
            command = [sys.executable, "-m", "srl.control.supervisor", "--join", "-", "--lifeline", "--host", str(host)]
            path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
            supervisor = subprocess.Popen(
                [*command, *self._options], stdin=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}, process_group=0
            )
            assert supervisor.stdin is not None
            supervisor.stdin.write(join.dump().encode() + b"\n")
            supervisor.stdin.flush()
            self.supervisors.append(supervisor)
        return {"pids": [supervisor.pid for supervisor in self.supervisors]}

    def poll(self, handle: Mapping[str, Any]) -> Sequence[HostEvent]:
        codes = [supervisor.poll() for supervisor in self.supervisors]
        return [HostEvent("local", i, "lost", f"exit code {code}") for i, code in enumerate(codes) if code not in (None, 0)]

    def stop(self, handle: Mapping[str, Any], grace: float) -> None:
        for supervisor in self.supervisors:
            if supervisor.stdin is not None:
                supervisor.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                supervisor.wait(grace)
            supervisor.kill()
            supervisor.wait()


class _Rehearsal(JointCrew):
    """Home and remote supervisors; its end is theirs."""

    def __init__(self, home: LocalCrew, remote: RemoteCrew, place: Any, launcher: LocalLauncher) -> None:
        super().__init__([home, remote], place)
        self.remote = remote
        self._home, self._launcher = home, launcher

    @property
    def processes(self) -> dict[str, int]:
        """Process -> pid, of those at home."""
        return self._home.processes

    def close(self) -> None:
        super().close()
        self._launcher.stop({}, 5.0)
