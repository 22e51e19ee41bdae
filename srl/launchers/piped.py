"""Launchers whose supervisors are commands of this machine. The pipe to a command carries the secrets and is its lifeline."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import tempfile
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from srl.cluster.security import Join
from srl.control.processes import environment
from srl.core.types import HostGroup
from srl.graph.hosts import Host
from srl.launchers.base import Gone, Launcher, said


class PipedLauncher(Launcher):
    """One command for each host: it runs `python -m srl.cluster.supervisor --lifeline`, here or far away."""

    def __init__(self, args: Any, hosts: Sequence[Host], groups: Mapping[str, HostGroup], name: str) -> None:
        super().__init__(args, hosts, groups, name)
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        """Number of the host -> its command."""
        self._outputs: dict[int, IO[bytes]] = {}

    @abstractmethod
    def command(self, host: int) -> list[str]:
        """The command that starts the supervisor of this host; no secrets."""

    def why(self, code: int) -> str:
        """What an exit code of the command means, in words."""
        return f"its supervisor ended with exit code {code}"

    def advice(self, host: int, code: int) -> str:
        """What a person can try after this exit code; empty if what the command printed says it."""
        return ""

    def render(self) -> Mapping[str, str]:
        return {self.hosts[host].name: shlex.join(self.command(host)) for host in range(len(self.hosts))}

    def start(self, join: Join, folder: Path) -> None:
        for host in range(len(self.hosts)):
            self.again(host, join)

    def again(self, host: int, join: Join) -> None:
        if host in self.running:  # it hangs: its host was given up
            self._end(host, 0.0)
        self._outputs[host] = tempfile.TemporaryFile()  # noqa: SIM115
        self.running[host] = start_supervisor(self.command(host), join, self._outputs[host])

    def poll(self) -> list[Gone]:
        ended = {host: code for host, one in self.running.items() if (code := one.poll()) is not None}
        gone = [
            Gone(host, f"{self.why(code)}{said(self._outputs[host])}", self.advice(host, code)) for host, code in ended.items()
        ]
        for host in ended:
            self._end(host, 0.0)
        return gone

    def stop(self, grace: float) -> None:
        end = time.monotonic() + grace
        for one in self.running.values():
            _cut(one)
        for host in list(self.running):
            self._end(host, max(0.0, end - time.monotonic()))

    def _end(self, host: int, grace: float) -> None:
        end_supervisor(self.running.pop(host), grace)
        self._outputs.pop(host).close()


def start_supervisor(command: Sequence[str], join: Join, output: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Start a command, and write the join line into its standard input, which stays open: its lifeline."""
    supervisor = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment(), process_group=0
    )
    assert supervisor.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended already: `poll` says so
        supervisor.stdin.write(join.dump().encode() + b"\n")
        supervisor.stdin.flush()
    return supervisor


def end_supervisor(supervisor: subprocess.Popen[bytes], grace: float = 5.0) -> None:
    """Cut its lifeline, and kill it if it does not end within `grace` seconds. Idempotent."""
    _cut(supervisor)
    with contextlib.suppress(subprocess.TimeoutExpired):
        supervisor.wait(grace)
    supervisor.kill()
    supervisor.wait()


def _cut(supervisor: subprocess.Popen[bytes]) -> None:
    if supervisor.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            supervisor.stdin.close()
