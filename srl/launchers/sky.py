"""`launcher: sky`: a job group of SkyPilot, with one task for home and one for each group of hosts."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from srl.cluster.security import Credentials, Join, new_credentials, write_private
from srl.core.errors import UserError
from srl.core.load import option
from srl.core.types import HOME, HostGroup
from srl.graph.hosts import Host
from srl.launchers.base import Home, Submitter, check_program
from srl.launchers.documents import document, fresh_name, merged, plain_name

_SECRETS = "~/.srl-join"
_EXPERIMENT = "~/srl-experiment.yaml"
_WAIT = 3600
"""Seconds that hosts wait for home, whose setup may take longer than theirs."""
_LONGEST = 40


@dataclass(frozen=True, kw_only=True)
class SkyArgs:
    """What is submitted. Cores, GPUs and memory come from `hosts` and `launcher.home`."""

    home: Home = field(default_factory=Home)
    """The machine of the trainers"""
    accelerators: Mapping[str, str] = option({}, "type of GPU by group, or for home: {home: A100, gpu: L4}")
    setup: tuple[str, ...] = option(
        ("pip install 'really-scalable-rl[cluster]'",), "shell commands that install srl and the envs"
    )
    task: Mapping[str, Any] = option({}, "fields added to all tasks: {resources: {infra: kubernetes}}")
    tasks: Mapping[str, Mapping[str, Any]] = option({}, "the same by group, or for home: {home: {volumes: {/runs: my-volume}}}")
    runs: str = option("~/runs", "folder for run folders at home; with a volume or a bucket there, they outlive the machine")
    python: str = option("python", "Python with srl on all machines")
    name: str | None = option(None, "name of the run and its job group; null: that of the experiment and six letters")
    port: int = option(6400, "port of home that supervisors connect to", low=1, high=65535)


class Sky(Submitter):
    """Submits a job group with the program `sky`. SkyPilot finds machines, copies the files, and recovers each task alone."""

    Args = SkyArgs
    args: SkyArgs

    def __init__(self, args: SkyArgs, hosts: Sequence[Host], groups: Mapping[str, HostGroup], name: str) -> None:
        super().__init__(args, hosts, groups, args.name or fresh_name(name, _LONGEST))
        self._experiment = name
        used = {name: group for _, name, group in self.groups_in_use()}
        self.check_groups("accelerators", args.accelerators, HOME)
        self.check_groups("tasks", args.tasks, HOME)
        for role, gpus in ((HOME, args.home.gpus), *((name, group.gpus) for name, group in used.items())):
            if gpus and role not in args.accelerators:
                raise UserError(
                    f"'launcher.accelerators' must say which GPUs '{role}' has",
                    ("because", "SkyPilot needs the type of the GPUs"),
                    ("try", f"launcher.accelerators.{role}=A100    known: sky show-gpus"),
                    path=("launcher", "accelerators"),
                )
        for one in (self.name, *used):
            if one != plain_name(one):
                raise UserError(
                    f"'{one}' must be small letters, digits and '-'",
                    ("because", "machines of launcher sky are named after it"),
                    path=("launcher",) if one == self.name else ("hosts", one),
                )

    @property
    def there(self) -> Mapping[str, Any]:
        return {"use": "external", "folder": _SECRETS, "port": self.args.port, "patience": 30 * 86_400}

    def check(self) -> None:
        check_program("sky", "sky", "pip install skypilot, in an environment of its own; then `sky check`")

    def render(self, experiment: str) -> Mapping[str, str]:
        return {"group.yaml": self.group("(private folder)"), "experiment.yaml": experiment}

    def submit(self, experiment: str) -> Mapping[str, str]:
        with tempfile.TemporaryDirectory(prefix="srl-sky-") as folder:  # mode 700; SkyPilot has copied it when it returns
            self.write(Path(folder), experiment, new_credentials())
            command = ["sky", "jobs", "launch", "--yes", "--detach-run", f"--name={self.name}", str(Path(folder, "group.yaml"))]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(
                "SkyPilot does not accept the job group",
                ("cause", (done.stderr.strip() or done.stdout.strip())[-2000:]),
                ("try", "`sky check`, and --dry-run to see what is submitted"),
                code="E08",
            )
        return {
            "follow": f"sky jobs logs --name {self.name}",
            "hosts": "sky jobs queue",
            "end": f"sky jobs cancel --name {self.name}",
        }

    def write(self, folder: Path, experiment: str, credentials: Credentials) -> None:
        """All files, those with secrets with mode 600."""
        address = f"{HOME}-0.{self.name}:{self.args.port}"
        join = Join(self._experiment, address, credentials.ca.decode(), credentials.token)
        secret = {f"{HOME}/{name}": text for name, text in credentials.files().items()} | {"hosts/join.json": join.dump() + "\n"}
        for name, text in {"group.yaml": self.group(str(folder)), "experiment.yaml": experiment, **secret}.items():
            (folder / name).parent.mkdir(mode=0o700, exist_ok=True)
            write_private(folder / name, text)

    def group(self, folder: str) -> str:
        """The YAML of the job group. Files to copy are in `folder`."""
        python, home = shlex.quote(self.args.python), self.args.home
        private = f"chmod -R go= {_SECRETS}"  # copies may have lost their mode on the way
        launch = f"{private}\nexec {python} -m srl.launch {_EXPERIMENT} --resume-or-start {self.name} --runs {self.args.runs}"
        header = {"name": self.name, "execution": "parallel", "primary_tasks": [HOME], "termination_delay": "60s"}
        mounts = {_SECRETS: f"{folder}/{HOME}", _EXPERIMENT: f"{folder}/experiment.yaml"}
        tasks = [self._task(HOME, 1, (home.cores, home.gpus, home.memory), mounts, launch)]
        for first, name, group in self.groups_in_use():
            options = f"--join {_SECRETS}/join.json --wait {_WAIT} --patience 300 --host $(({first} + SKYPILOT_NODE_RANK))"
            run = f"{private}\nexec {python} -m srl.cluster.supervisor {options}"
            needs = (group.cores or 1, group.gpus, group.memory)
            tasks.append(self._task(name, group.size, needs, {_SECRETS: f"{folder}/hosts"}, run))
        return "---\n".join(document(one) for one in (header, *tasks))

    def _task(
        self, role: str, nodes: int, needs: tuple[int, int, float | None], mounts: Mapping[str, str], run: str
    ) -> dict[str, Any]:
        cores, gpus, memory = needs
        resources: dict[str, Any] = {"cpus": f"{cores}+"}
        resources |= {"memory": f"{memory:g}+"} if memory is not None else {}
        resources |= {"accelerators": f"{self.args.accelerators[role]}:{gpus}"} if gpus else {}
        task = {
            "name": role,
            "num_nodes": nodes,
            "resources": {**resources, "job_recovery": {"max_restarts_on_errors": 3, "recover_on_exit_codes": [75]}},
            "file_mounts": dict(mounts),
            "setup": "\n".join(self.args.setup) + "\n",
            "run": f"{run}\n",
        }
        done: dict[str, Any] = merged(merged(task, self.args.task), self.args.tasks.get(role, {}))
        return done
