"""Two hosts on this machine: network namespaces with their own address, host name, processes and /dev/shm, and sshd on each."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

HEAD, ADDRESSES = "10.78.0.254", ("10.78.0.1", "10.78.0.2")
_SSHD = "/usr/sbin/sshd"
_ENTER = ["unshare", "--uts", "--ipc", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child=KILL"]


def missing() -> str:
    """Why these hosts cannot be made here; empty if they can."""
    if os.geteuid() != 0:
        return "needs root for network namespaces"
    for program in ("ip", "ssh", "ssh-keygen", _SSHD, "nsenter", "unshare"):
        if shutil.which(program) is None:
            return f"needs {program} (apt install openssh-server openssh-client iproute2)"
    name = f"srl-probe-{os.getpid()}"  # another process may look at the same time
    probe = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return f"cannot make a network namespace: {probe.stderr.strip()}" if probe.returncode else ""


def network(address: str) -> str:
    """The network namespace of the host with this address."""
    return f"/run/netns/srl-n{1 + ADDRESSES.index(address)}"


class TwoHosts:
    """`srl-n1` and `srl-n2` at a bridge of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sshds: list[subprocess.Popen[bytes]] = []
        self._lock = (Path(tempfile.gettempdir()) / "srl-two-hosts.lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # there is one bridge: tests in another process wait
        try:
            self._network()
            self._keys()
            for host in (1, 2):
                self.sshds.append(self._sshd(host))
            self._answers()
        except BaseException:
            self.close()
            raise

    @property
    def options(self) -> list[str]:
        """Options of ssh that reach both."""
        known = self.folder / "known"
        return ["-F", "/dev/null", "-i", str(self.folder / "id"), "-o", f"UserKnownHostsFile={known}"]

    def cut(self, host: int) -> None:
        """Take the cable out."""
        _run("ip", "link", "set", f"srl-v{host}", "nomaster")

    def part(self, *, apart: bool) -> None:
        """Whether the two hosts cannot reach each other, while both reach this machine."""
        for host, other in ((1, ADDRESSES[1]), (2, ADDRESSES[0])):
            _run("ip", "-n", f"srl-n{host}", "route", "add" if apart else "del", "blackhole", f"{other}/32")

    def power_off(self, host: int) -> None:
        """Kill everything on the host at once."""
        self.sshds[host - 1].kill()

    def power_on(self, host: int) -> None:
        """After a loss of power."""
        self.sshds[host - 1].wait()
        self.sshds[host - 1] = self._sshd(host)

    def plug(self, host: int) -> None:
        """Put the cable in again."""
        _run("ip", "link", "set", f"srl-v{host}", "master", "srl-br")

    def processes(self, host: int) -> list[str]:
        """Command lines of what runs on the host besides sshd's own processes."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and str((entry / "ns/net").readlink()) == self._net(host):
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found += [line] if "sshd" not in line else []
            except OSError:
                continue
        return found

    def secrets_visible(self, host: int, secret: str) -> bool:
        """Whether the text stands in the arguments or the environment of a process of the host."""
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and str((entry / "ns/net").readlink()) == self._net(host):
                    text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                    if secret.encode() in text:
                        return True
            except OSError:
                continue
        return False

    def close(self) -> None:
        """Idempotent."""
        if self._lock.closed:
            return
        for one in self.sshds:
            one.send_signal(signal.SIGKILL)
            one.wait()
        for host in (1, 2):
            subprocess.run(["ip", "link", "del", f"srl-v{host}"], capture_output=True, check=False)
            subprocess.run(["ip", "netns", "del", f"srl-n{host}"], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", "srl-br"], capture_output=True, check=False)
        self._lock.close()

    def _network(self) -> None:
        _run("ip", "link", "add", "srl-br", "type", "bridge")
        _run("ip", "addr", "add", f"{HEAD}/24", "dev", "srl-br")
        _run("ip", "link", "set", "srl-br", "up")
        for host, address in enumerate(ADDRESSES, 1):
            name, cable = f"srl-n{host}", f"srl-v{host}"
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
            _run("ip", "link", "set", cable, "master", "srl-br", "up")
            _run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            _run("ip", "-n", name, "link", "set", "lo", "up")
            _run("ip", "-n", name, "link", "set", "eth0", "up")

    def _keys(self) -> None:
        Path("/run/sshd").mkdir(exist_ok=True)
        _run("ssh-keygen", "-qt", "ed25519", "-N", "", "-f", str(self.folder / "id"))
        known = ""
        for host, address in enumerate(ADDRESSES, 1):
            _run("ssh-keygen", "-qt", "ed25519", "-N", "", "-f", str(self.folder / f"host{host}"))
            known += f"{address} {' '.join((self.folder / f'host{host}.pub').read_text().split()[:2])}\n"
        (self.folder / "known").write_text(known)

    def _sshd(self, host: int) -> subprocess.Popen[bytes]:
        settings = {
            "ListenAddress": ADDRESSES[host - 1],
            "AuthorizedKeysFile": self.folder / "id.pub",
            "PasswordAuthentication": "no",
            "StrictModes": "no",
            "PidFile": "none",
            "PermitRootLogin": "yes",
        }
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        ready = f'hostname srl-n{host}; mount -t tmpfs tmpfs /dev/shm; exec "$@"'
        server = [_SSHD, "-De", "-f", "/dev/null", "-h", str(self.folder / f"host{host}"), *options]
        with (self.folder / f"log{host}").open("wb") as log:
            return subprocess.Popen(
                ["nsenter", f"--net={network(ADDRESSES[host - 1])}", *_ENTER, "sh", "-c", ready, "sh", *server], stderr=log
            )

    def _answers(self) -> None:
        for host, address in enumerate(ADDRESSES, 1):
            end = time.monotonic() + 20
            command = ["ssh", *self.options, "-o", "BatchMode=yes", address, "hostname"]
            while (answer := subprocess.run(command, capture_output=True, text=True, check=False)).stdout != f"srl-n{host}\n":
                assert time.monotonic() < end, (answer.stderr, (self.folder / f"log{host}").read_text())

    def _net(self, host: int) -> str:
        inode = Path(network(ADDRESSES[host - 1])).stat().st_ino
        return f"net:[{inode}]"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
