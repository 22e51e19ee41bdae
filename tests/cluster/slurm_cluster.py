"""A real Slurm on this machine, as the user who runs the tests: three nodes with cores and one with GPUs."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from tests.cluster.two_hosts import ADDRESSES, HEAD, TwoHosts, network
from tests.waiting import until

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo", "scancel")
_NODES = ("cpu1", "cpu2", "cpu3", "gpu1")
_CONF = """\
ClusterName=srltest
SlurmctldHost={host}({home})
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=0
ReturnToService=2
SlurmdTimeout=12
SlurmdParameters=config_overrides
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=DEFAULT CPUs=16 RealMemory=16000
{nodes}
PartitionName=cpu Nodes=cpu[1-3] Default=YES State=UP PriorityTier=1 GraceTime=10
PartitionName=urgent Nodes=cpu[1-3] State=UP PriorityTier=2
PartitionName=gpu Nodes=gpu1 State=UP
"""


def missing() -> str:
    """Why Slurm cannot be started here; empty if it can."""
    absent = [name for name in _PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    return f"needs {', '.join(absent)} (apt install slurmctld slurmd slurm-client munge)" if absent else ""


def _free_ports() -> int:
    """The first of enough ports in a row that nobody has, or had a moment ago."""
    for base in range(22000 + 5 * (os.getpid() % 1000), 32000, 5):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(base, base + 1 + len(_NODES)):
                stack.enter_context(socket.socket()).bind(("", port))
            return base
    raise AssertionError("no free ports")


class SlurmCluster:
    """Started in a folder of its own; `close` leaves nothing behind."""

    def __init__(self, folder: Path, hosts: TwoHosts | None = None) -> None:
        """`hosts`: the nodes cpu1 and cpu2, which can lose their cable. The other nodes are in the network of this machine."""
        self.folder = folder
        home = "127.0.0.1" if hosts is None else HEAD
        self._addresses = dict.fromkeys(_NODES, home) | ({} if hosts is None else dict(zip(_NODES, ADDRESSES, strict=False)))
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
        base = _free_ports()
        for part in ("state", "spool"):
            (folder / part).mkdir()
        host, gpus = socket.gethostname().partition(".")[0], {"gpu1": "Gres=gpu:4"}
        nodes = [
            f"NodeName={name} NodeHostname={host} NodeAddr={address} Port={port} {gpus.get(name, '')}"
            for port, (name, address) in enumerate(self._addresses.items(), base + 1)
        ]
        names = {"host": host, "user": getpass.getuser(), "folder": folder, "home": home, "port": base}
        (folder / "slurm.conf").write_text(_CONF.format(**names, nodes="\n".join(nodes)))
        (folder / "gres.conf").write_text("NodeName=gpu1 Name=gpu File=/dev/tty[0-3]\n")
        key = os.open(folder / "munge.key", os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(key, os.urandom(1024))
        os.close(key)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def ask(self, *command: str) -> str:
        """The output of a command of Slurm."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True)
        return done.stdout

    def log(self) -> str:
        """What its controller has said last, for a test that fails."""
        return (self.folder / "slurmctld.log").read_text()[-2000:]

    def power_off(self, node: str) -> None:
        """Kill everything on the node at once: nothing of it says goodbye to Slurm."""
        while pids := self.processes(node):
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)

    def power_on(self, node: str) -> None:
        """After a loss of power."""
        self._run(*self._slurmd(node))
        self._until(node, {"idle", "mixed"})  # a job that was on it may be completing

    def processes(self, node: str) -> set[int]:
        """The daemons of the node, which hold its log open, and what its jobs have started."""
        log = str(self.folder / f"slurmd.{node}.log")
        wanted = {f"SLURMD_NODENAME={node}".encode(), f"SLURM_CONF={self.folder / 'slurm.conf'}".encode()}
        found = set()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                environment = (entry / "environ").read_bytes().split(b"\0")
                if wanted <= set(environment) or any(str(one.readlink()) == log for one in (entry / "fd").iterdir()):
                    found.add(int(entry.name))
        return found

    def close(self) -> None:
        """Idempotent."""
        for name in ("munged", "slurmctld"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((self.folder / f"{name}.pid").read_text()), signal.SIGKILL)
            (self.folder / f"{name}.pid").unlink(missing_ok=True)
        for node in _NODES:
            self.power_off(node)

    def _start(self) -> None:
        folder = self.folder
        paths = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munged.pid", "log-file": "munged.log"}
        options = [f"--{name}={folder / file}" for name, file in {**paths, "seed-file": "seed"}.items()]
        for command in [["munged", "--force", *options], ["slurmctld"], *map(self._slurmd, _NODES)]:
            self._run(*command)
        self._until(",".join(_NODES), {"idle"})

    def _until(self, nodes: str, wanted: set[str]) -> None:
        """Wait until Slurm says of each of these nodes that it is in one of these states."""
        command = ["sinfo", "-hN", "-n", nodes, "-o", "%T"]

        def states() -> set[str]:
            # it cannot answer before slurmctld listens
            return set(subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False).stdout.split())

        try:
            until(lambda: (found := states()) and found <= wanted, 60)
        except AssertionError:
            raise AssertionError(f"{states()}\n{self.log()}") from None

    def _slurmd(self, node: str) -> list[str]:
        """The daemon of a node, in the network of the node."""
        address = self._addresses[node]
        there = ["nsenter", f"--net={network(address)}"] if address in ADDRESSES else []
        return [*there, "slurmd", "-N", node]

    def _run(self, *command: str) -> None:
        subprocess.run(command, env=self.environment, check=True, stdin=subprocess.DEVNULL, capture_output=True)
