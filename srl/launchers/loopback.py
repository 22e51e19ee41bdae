"""`launcher: loopback`: a supervisor for each host, all on this machine. It rehearses everything but the network."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from srl.launchers.piped import PipedLauncher


@dataclass(frozen=True, kw_only=True)
class LoopbackArgs:
    """No settings."""


class Loopback(PipedLauncher):
    """Every host is this machine: a rehearsal of a run over several hosts."""

    Args = LoopbackArgs
    own_hosts = False

    def check(self) -> str:
        return "127.0.0.1:0"

    def command(self, host: int) -> list[str]:
        return [sys.executable, "-m", "srl.cluster.supervisor", "--lifeline", "--host", str(host)]
