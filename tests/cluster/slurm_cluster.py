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

from tests.waiting import until

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo", "scancel")
_NODES = ("cpu1", "cpu2", "cpu3", "gpu1")
_CONF = """\
ClusterName=srltest
SlurmctldHost={host}(127.0.0.1)
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
SlurmdTimeout=6
SlurmdParameters=config_overrides
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=DEFAULT CPUs=16 RealMemory=16000
NodeName=cpu[1-3] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}]
NodeName=gpu1 NodeHostname={host} NodeAddr=127.0.0.1 Port={gpu} Gres=gpu:4
PartitionName=cpu Nodes=cpu[1-3] Default=YES State=UP PriorityTier=1 GraceTime=1
PartitionName=urgent Nodes=cpu[1-3] State=UP PriorityTier=2
PartitionName=gpu Nodes=gpu1 State=UP
"""


def missing() -> str:
    """Why Slurm cannot be started here; empty if it can."""
    absent = [name for name in _PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    return f"needs {', '.join(absent)} (apt install slurmctld slurmd slurm-client munge)" if absent else ""


class SlurmCluster:
    """Started in a folder of its own; `close` leaves nothing behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
        base = 22000 + 10 * (os.getpid() % 800)
        for part in ("state", "spool"):
            (folder / part).mkdir()
        names = {"host": socket.gethostname().partition(".")[0], "user": getpass.getuser(), "folder": folder}
        ports = {"port": base, "first": base + 1, "last": base + 3, "gpu": base + 4}
        (folder / "slurm.conf").write_text(_CONF.format(**names, **ports))
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

    def power_off(self, node: str) -> None:
        """Kill everything on the node at once: nothing of it says goodbye to Slurm."""
        file = self.folder / f"slurmd.{node}.pid"
        pids = [int(file.read_text()), *self._processes(node)]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        file.unlink()

    def power_on(self, node: str) -> None:
        """After a loss of power."""
        self._run("slurmd", "-N", node)
        until(lambda: self.ask("sinfo", "-hN", "-n", node, "-o", "%T").split()[0] == "idle", 30)

    def close(self) -> None:
        """Idempotent."""
        for file in self.folder.glob("*.pid"):
            try:
                os.kill(int(file.read_text()), signal.SIGKILL)
            except (OSError, ValueError):
                continue
            file.unlink(missing_ok=True)

    def _start(self) -> None:
        folder = self.folder
        paths = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munged.pid", "log-file": "munged.log"}
        options = [f"--{name}={folder / file}" for name, file in {**paths, "seed-file": "seed"}.items()]
        for command in [["munged", "--force", *options], ["slurmctld"], *(["slurmd", "-N", name] for name in _NODES)]:
            self._run(*command)
        try:
            until(lambda: set(self.ask("sinfo", "-hN", "-o", "%T").split()) == {"idle"}, 30)
        except AssertionError:
            raise AssertionError((folder / "slurmctld.log").read_text()[-2000:]) from None

    def _run(self, *command: str) -> None:
        subprocess.run(command, env=self.environment, check=True, stdin=subprocess.DEVNULL, capture_output=True)

    def _processes(self, node: str) -> set[int]:
        """What the jobs on the node have started, and the daemons that started them for Slurm."""
        wanted = {f"SLURMD_NODENAME={node}".encode(), f"SLURM_CONF={self.folder / 'slurm.conf'}".encode()}
        found = set()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if wanted <= set((entry / "environ").read_bytes().split(b"\0")):
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    daemon = (Path("/proc") / str(parent) / "comm").read_text() == "slurmstepd\n"
                    found |= {int(entry.name), *([parent] if daemon else [])}
            except OSError:  # it has ended
                continue
        return found
