"""A cluster on one machine: this process and supervisors on loopback. Rehearses everything but the network."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Sequence

from srl.cluster.rpc import RemoteBackend
from srl.cluster.security import Join, new_credentials
from srl.control.backend import CompositeBackend
from srl.control.processes import ProcessBackend, environment
from srl.graph.spec import Graph


class LoopbackCluster(CompositeBackend):
    """`hosts` supervisors beside this process; the workers of each node are spread over all of them."""

    def __init__(self, graph: Graph, hosts: int = 1) -> None:
        def host_of(process: str) -> int:
            """Worker i of n goes to host i * hosts // n; host 0 is this process."""
            node, _, index = process.rpartition("/")
            return int(index) * (hosts + 1) // graph.node(node).count

        self.remote = RemoteBackend(hosts, lambda process: host_of(process) - 1, credentials=new_credentials(), run=graph.name)
        self._home = ProcessBackend()
        self.supervisors = [start_supervisor(self.remote.join, host) for host in range(hosts)]
        super().__init__([self._home, self.remote], lambda process: int(host_of(process) > 0))

    @property
    def processes(self) -> dict[str, int]:
        """Process -> pid, of those that this process started itself."""
        return self._home.processes

    def close(self) -> None:
        super().close()
        for supervisor in self.supervisors:
            end_supervisor(supervisor)


def start_supervisor(join: Join, host: int, options: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """A supervisor process. The join line goes through stdin, which is also its lifeline: when it closes, the supervisor ends."""
    command = [sys.executable, "-m", "srl.cluster.supervisor", "--lifeline", "--host", str(host), *options]
    supervisor = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment(), process_group=0)
    assert supervisor.stdin is not None
    supervisor.stdin.write(join.dump().encode() + b"\n")
    supervisor.stdin.flush()
    return supervisor


def end_supervisor(supervisor: subprocess.Popen[bytes], grace: float = 5.0) -> None:
    """Cut its lifeline, and kill it if it does not end within `grace` seconds. Idempotent."""
    if supervisor.stdin is not None:
        supervisor.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        supervisor.wait(grace)
    supervisor.kill()
    supervisor.wait()
