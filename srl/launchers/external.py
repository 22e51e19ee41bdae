"""`launcher: external`: another system starts the supervisors, and gives them a file with the credentials of the run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from srl.cluster.address import usual_address
from srl.cluster.security import Credentials, Join, new_credentials
from srl.core.load import option
from srl.core.types import HostGroup
from srl.graph.hosts import Host
from srl.launchers.base import Gone, Launcher


@dataclass(frozen=True, kw_only=True)
class ExternalArgs:
    """Where the credentials are, and where supervisors connect to."""

    folder: str = option(help="folder for join.json, which supervisors read, or with existing credentials")
    address: str | None = option(None, "address of this machine as the hosts reach it; null: the one that packets from here have")
    port: int = option(0, "port that supervisors connect to; 0: any free one", low=0, high=65535)
    patience: float = option(3600, "seconds to wait for hosts to join the run", above=0)


class External(Launcher):
    """Starts nothing. With credentials in the folder these are used, so that supervisors can be started before this run."""

    Args = ExternalArgs
    args: ExternalArgs

    def __init__(self, args: ExternalArgs, hosts: Sequence[Host], groups: Mapping[str, HostGroup], name: str) -> None:
        super().__init__(args, hosts, groups, name)
        self.patience = args.patience
        self._written = False

    @property
    def _join_file(self) -> Path:
        return Path(self.args.folder).expanduser() / "join.json"

    @property
    def _given(self) -> bool:
        """Whether the credentials were made before this run."""
        return (Path(self.args.folder).expanduser() / "token").exists()

    def credentials(self) -> Credentials:
        return Credentials.read(Path(self.args.folder).expanduser()) if self._given else new_credentials()

    def check(self) -> str:
        return f"{self.args.address or usual_address()}:{self.args.port}"

    def render(self) -> Mapping[str, str]:
        python, join = shlex.quote(sys.executable), shlex.quote(str(self._join_file))
        return {
            host.name: f"{python} -m srl.cluster.supervisor --join {join} --host {number}"
            for number, host in enumerate(self.hosts)
        }

    def start(self, join: Join, folder: Path) -> None:
        if not self._given:
            self._join_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            join.write(self._join_file)
            self._written = True

    def poll(self) -> list[Gone]:
        return []

    def stop(self, grace: float) -> None:
        if self._written:
            self._join_file.unlink(missing_ok=True)
