"""`launcher: ssh`: a supervisor on each host by ssh, with the keys and the configuration of the person who starts the run."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from srl.cluster.address import address_towards
from srl.core.errors import UserError
from srl.core.load import option
from srl.launchers.base import check_program
from srl.launchers.piped import PipedLauncher

_OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=12", "LogLevel=ERROR")
"""No question is asked. A link may be cut for a while: the lease of a host ends before ssh gives up."""
_BROKEN, _NOT_FOUND, _NO_FOLDER = 255, 127, 66
"""Exit codes: of ssh itself, of a shell without that program, and our own."""


@dataclass(frozen=True, kw_only=True)
class SshArgs:
    """How to reach the hosts. Users, ports and keys stand best in ~/.ssh/config."""

    user: str | None = option(None, "user name on the hosts; null: as ssh decides")
    options: tuple[str, ...] = option((), "options of ssh: [-i, key], [-F, file], [-p, '2222']")
    python: str | None = option(None, "Python on the hosts, with srl installed; null: the path of the one in use here")
    directory: str | None = option(None, "folder on the hosts to start in; null: this one")
    address: str | None = option(None, "address of this machine as the hosts reach it; null: the one that packets to them have")
    port: int = option(0, "port that supervisors connect to; 0: any free one", low=0, high=65535)


class Ssh(PipedLauncher):
    """Starts supervisors by ssh. When the connection ends, they do too, with everything that they have started."""

    Args = SshArgs
    args: SshArgs

    def check(self) -> str:
        check_program("ssh", "ssh", "apt install openssh-client")
        for host in self.hosts:
            if not host.address:
                raise UserError(
                    f"'hosts.{host.group}' has no addresses",
                    ("because", "launcher ssh must know where to connect"),
                    ("try", f"hosts.{host.group}.addresses=[name-of-a-host, 10.0.0.2]"),
                    path=("hosts", host.group),
                )
        return f"{self._own_address()}:{self.args.port}"

    def command(self, host: int) -> list[str]:
        python, directory = self.args.python or sys.executable, self.args.directory or str(Path.cwd())
        supervisor = [python, "-m", "srl.cluster.supervisor", "--lifeline", "--host", str(host)]
        options = [word for one in _OPTIONS for word in ("-o", one)]
        run = f"cd {shlex.quote(directory)} || exit {_NO_FOLDER}; exec {shlex.join(supervisor)}"
        return ["ssh", "-T", *self.args.options, *options, "--", self._target(host), run]

    def why(self, code: int) -> str:
        if code == _BROKEN:
            return "ssh cannot connect, or the connection broke"
        if code == _NOT_FOUND:
            return f"there is no {self.args.python or sys.executable}"
        if code == _NO_FOLDER:
            return f"there is no folder {self.args.directory or Path.cwd()}"
        return super().why(code)

    def advice(self, host: int, code: int) -> str:
        if code == _BROKEN:
            command = shlex.join(["ssh", *self.args.options, self._target(host), "true"])
            return f"`{command}` by hand: it must work without asking anything"
        if code == _NO_FOLDER:
            return "launcher.directory=... with a folder that exists there"
        if code in (1, _NOT_FOUND):
            return "launcher.python=... with a Python there, 3.11 or newer, with this package installed"
        return super().advice(host, code)

    def _target(self, host: int) -> str:
        there = self.hosts[host].address
        return f"{self.args.user}@{there}" if self.args.user else there

    def _own_address(self) -> str:
        """The address of this machine towards the first host."""
        if self.args.address is not None:
            return self.args.address
        first = self.hosts[0].address
        asked = subprocess.run(["ssh", *self.args.options, "-G", "--", first], capture_output=True, text=True, check=False).stdout
        name = next((line.partition(" ")[2] for line in asked.splitlines() if line.startswith("hostname ")), first)
        try:
            return address_towards(name)
        except socket.gaierror as error:
            raise UserError(
                f"host '{first}' has no address that is known here",
                ("cause", f"{name}: {error.strerror}"),
                ("try", "its address, or a name as it is in ~/.ssh/config"),
                ("or", "launcher.address=10.0.0.1 (of this machine), if ssh reaches that host through another one"),
                path=("hosts", self.hosts[0].group, "addresses"),
            ) from error
        except OSError as error:
            raise UserError(
                f"cannot find an address at which host '{first}' reaches this machine",
                ("cause", f"{name}: {error.strerror or error}"),
                ("try", "launcher.address=10.0.0.1 (the address of this machine)"),
                path=("launcher", "address"),
            ) from error
