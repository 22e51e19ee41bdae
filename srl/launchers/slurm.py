"""`launcher: slurm`: a supervisor on each node of one job, which is heterogeneous if there are several groups of hosts."""

from __future__ import annotations

import math
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from srl.cluster.address import address_towards
from srl.cluster.security import Join
from srl.core.errors import UserError
from srl.core.load import option
from srl.core.types import HostGroup
from srl.graph.hosts import Host
from srl.launchers.base import Gone, Launcher, check_program

_ASK_EVERY = 2.0
"""Seconds between two questions to Slurm."""
_WAITING = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED")
_LINES = 6


@dataclass(frozen=True, kw_only=True)
class SlurmArgs:
    """What is submitted. Cores, GPUs and memory of nodes come from `hosts`."""

    options: tuple[str, ...] = option((), "options of sbatch for every group: [--account=lab, --time=4:00:00]")
    groups: Mapping[str, tuple[str, ...]] = option({}, "options of sbatch by group of hosts: {gpu: [--partition=gpu]}")
    setup: tuple[str, ...] = option((), "shell commands to run before the supervisors start: [module load cuda]")
    python: str | None = option(None, "Python on the nodes, with srl installed; null: the path of the one in use here")
    directory: str | None = option(None, "folder on the nodes to start in; null: this one")
    address: str | None = option(None, "address of this machine as the nodes reach it; null: the one that packets to them have")
    port: int = option(0, "port that supervisors connect to; 0: any free one", low=0, high=65535)


class Slurm(Launcher):
    """Submits one job, whose tasks are the supervisors. The run folder must be on a file system that the nodes share."""

    Args = SlurmArgs
    args: SlurmArgs
    patience = math.inf

    def __init__(self, args: SlurmArgs, hosts: Sequence[Host], groups: Mapping[str, HostGroup], name: str) -> None:
        super().__init__(args, hosts, groups, name)
        self.job = ""
        self._folder = Path()
        self._due = 0.0

    def check(self) -> str:
        for program in ("sbatch", "squeue", "scancel", "sinfo"):
            check_program("slurm", program, "a login node of the cluster, or launcher=ssh")
        self.check_groups("groups", self.args.groups)
        if elastic := [name for name, group in self.groups.items() if group.elastic]:
            raise UserError(
                f"hosts '{elastic[0]}' cannot be elastic with launcher slurm",
                ("because", "all hosts are nodes of one job, which Slurm ends as a whole when a node is lost"),
                ("try", "launcher='{use: external, folder: SHARED_FOLDER}', with a job array as hosts (deploy/slurm/README.md)"),
                ("or", f"hosts.{elastic[0]}.elastic=false: a run that has lost a node continues with --resume"),
                code="E10",
                path=("hosts", elastic[0], "elastic"),
            )
        return f"{self.args.address or self._own_address()}:{self.args.port}"

    def render(self) -> Mapping[str, str]:
        used = list(self.groups_in_use())
        lines = ["#!/bin/bash", f"#SBATCH --job-name={self.name}", "#SBATCH --output=slurm-%j.out", "#SBATCH --no-requeue"]
        for first, name, _ in used:
            lines += ["#SBATCH hetjob"] if first else []
            lines += [f"#SBATCH {one}" for one in self._resources(name)]
        lines += ["JOIN=$PWD/join.json", f"cd {shlex.quote(self.args.directory or str(Path.cwd()))} || exit", *self.args.setup]
        for number, (first, _, _) in enumerate(used):
            python = shlex.quote(self.args.python or sys.executable)
            run = f'exec {python} -m srl.cluster.supervisor --patience 300 --join "$0" --host $(({first} + SLURM_PROCID))'
            component = f" --het-group={number}" if len(used) > 1 else ""
            lines.append(f'srun{component} bash -c {shlex.quote(run)} "$JOIN" &')
        lines += ["code=0", "for step in $(jobs -p); do wait $step || code=$?; done", "exit $code", ""]
        return {"job.sh": "\n".join(lines)}

    def start(self, join: Join, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        text = self.render()["job.sh"]
        same = self._script.is_file() and self._script.read_text() == text
        self._script.write_text(text)
        join.write(self._join_file)
        if (earlier := self._earlier()) and same:  # its controller is gone: the supervisors read the new join file
            self.job = earlier
            return
        if earlier:
            _ask("scancel", earlier)
        self._submit()

    def again(self, host: int, join: Join) -> None:
        """Submit the job once more, if it has ended. A host that was lost while it runs may come back by itself."""
        if not self.job:
            self._submit()

    def poll(self) -> list[Gone]:
        now = time.monotonic()
        if not self.job or now < self._due:
            return []
        self._due = now + _ASK_EVERY
        done = _ask("squeue", "--noheader", f"--jobs={self.job}", "--states=all", "--format=%T")
        states = done.stdout.split()
        if done.returncode and "Invalid job id" not in done.stderr:
            return []  # Slurm itself does not answer: supervisors and leases tell what is alive
        if states and all(state in _WAITING for state in states):
            return []
        reason = f"job {self.job} is {', '.join(sorted(set(states))) or 'gone'}{self._said()}"
        self.job = ""
        return [Gone(host, reason) for host in range(len(self.hosts))]

    def stop(self, grace: float) -> None:
        end = time.monotonic() + grace
        while self.job and time.monotonic() < end and _ask("squeue", "-h", "-j", self.job, "-t", "RUNNING", "-o", "%i").stdout:
            time.sleep(0.2)
        if self.job:
            _ask("scancel", self.job)
        self.job = ""
        if self._folder != Path():
            self._join_file.unlink(missing_ok=True)
            self._job_file.unlink(missing_ok=True)

    def _submit(self) -> None:
        done = _ask("sbatch", "--parsable", f"--chdir={self._folder}", str(self._script))
        if done.returncode:
            raise UserError(
                "Slurm does not accept the job",
                ("cause", done.stderr.strip() or done.stdout.strip()),
                ("script", str(self._script)),
                ("try", "launcher.options=[--account=..., --partition=...], or fewer cores or memory in hosts"),
                code="E08",
            )
        self.job = done.stdout.strip().partition(";")[0]
        self._job_file.write_text(f"{self.job}\n")

    def _earlier(self) -> str:
        """The job of a controller that was killed, if it is still there."""
        if not self._job_file.is_file():
            return ""
        job = self._job_file.read_text().strip()
        states = _ask("squeue", "--noheader", f"--jobs={job}", "--format=%T").stdout.split()
        return job if states and all(state in ("PENDING", "CONFIGURING", "RUNNING") for state in states) else ""

    @property
    def _script(self) -> Path:
        return self._folder / "job.sh"

    @property
    def _job_file(self) -> Path:
        return self._folder / "job"

    @property
    def _join_file(self) -> Path:
        return self._folder / "join.json"

    def _resources(self, name: str) -> list[str]:
        """Options of sbatch for the nodes of this group."""
        group = self.groups[name]
        found = [f"--nodes={group.size}", "--ntasks-per-node=1", f"--cpus-per-task={group.cores or 1}"]
        found += [f"--gpus-per-node={group.gpus}"] if group.gpus else []
        found += [f"--mem={math.ceil(group.memory * 1000)}M"] if group.memory is not None else []
        return [*found, *self.args.options, *self.args.groups.get(name, ())]

    def _own_address(self) -> str:
        """The address of this machine towards a node of the cluster."""
        nodes = _ask("sinfo", "--noheader", "--Node", "--format=%o")
        try:
            return address_towards(nodes.stdout.split()[0])
        except (OSError, IndexError) as error:
            raise UserError(
                "cannot find an address at which the nodes of the cluster reach this machine",
                ("cause", nodes.stderr.strip() or str(error)),
                ("try", "launcher.address=10.0.0.1 (the address of this machine)"),
                path=("launcher", "address"),
            ) from error

    def _said(self) -> str:
        """The last lines of the output of the job."""
        files = sorted(self._folder.glob("slurm-*.out"))
        lines = [line for file in files for line in file.read_text(errors="replace").splitlines()][-_LINES:]
        return "".join(f"\n{line}" for line in lines)


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)
