"""`launcher: ray`: a supervisor on each host of a Ray cluster that is running, as the child of an actor with its resources."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from srl.cluster.address import usual_address
from srl.cluster.security import Join
from srl.core.errors import UserError
from srl.core.load import option
from srl.core.types import HostGroup
from srl.graph.hosts import Host
from srl.launchers.base import Gone, Launcher, said

_DRIVER = Path(__file__).with_name("ray_driver.py")
_HAS_RAY = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ray') is None)"


@dataclass(frozen=True, kw_only=True)
class RayArgs:
    """Which cluster, and what hosts are. Cores, GPUs and memory come from `hosts`."""

    cluster: str = option("auto", "address of the Ray cluster, HOST:PORT; auto: the one that this machine is part of")
    strategy: Literal["SPREAD", "STRICT_SPREAD", "PACK", "STRICT_PACK"] = option(
        "SPREAD", "how hosts are placed on nodes; STRICT_SPREAD: each on a node of its own"
    )
    resources: Mapping[str, Mapping[str, float]] = option(
        {}, "more resources of each host, by group: {gpu: {'accelerator_type:A100': 0.01}}"
    )
    ray_python: str | None = option(None, "Python with Ray on this machine; null: the one in use here")
    python: str | None = option(None, "Python with srl on the nodes; null: the path of the one in use here")
    directory: str | None = option(None, "folder on the nodes to start in; null: this one")
    address: str | None = option(None, "address of this machine as the nodes reach it; null: the one that packets from here have")
    port: int = option(0, "port that supervisors connect to; 0: any free one", low=0, high=65535)
    patience: float = option(600, "seconds to wait for hosts to join the run, for example while the cluster grows", above=0)


class RayCluster(Launcher):
    """Asks a process with Ray for one actor per host; this process does not import Ray, and outlives it."""

    Args = RayArgs
    args: RayArgs

    def __init__(self, args: RayArgs, hosts: Sequence[Host], groups: Mapping[str, HostGroup], name: str) -> None:
        super().__init__(args, hosts, groups, name)
        self.patience = args.patience
        self._driver: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._unread = b""

    def check(self) -> str:
        python = self.args.ray_python or sys.executable
        if shutil.which(python) is None or subprocess.run([python, "-c", _HAS_RAY], check=False).returncode:
            raise UserError(
                f"launcher ray needs Ray, but {python} cannot import it",
                ("try", "pip install ray, or launcher.ray_python=/path/to/python with the version of Ray of the cluster"),
                path=("launcher",),
            )
        self.check_groups("resources", self.args.resources)
        return f"{self.args.address or usual_address()}:{self.args.port}"

    def render(self) -> Mapping[str, str]:
        told = self._told()
        bundles, commands = told.pop("bundles"), told.pop("commands")
        hosts = zip(self.hosts, bundles, commands, strict=True)
        lines = [f"{host.name}: {json.dumps(bundle)}, {' '.join(command)}" for host, bundle, command in hosts]
        return {"placement group": "\n".join([json.dumps(told), *lines])}

    def start(self, join: Join, folder: Path) -> None:
        python = self.args.ray_python or sys.executable
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._driver = subprocess.Popen(
            [python, "-P", str(_DRIVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, process_group=0
        )
        assert self._driver.stdout is not None
        os.set_blocking(self._driver.stdout.fileno(), False)
        self._tell({**self._told(), "join": join.dump()})

    def again(self, host: int, join: Join) -> None:
        self._tell({"again": host})

    def poll(self) -> list[Gone]:
        if self._driver is None:
            return []
        assert self._driver.stdout is not None and self._errors is not None
        ended = self._driver.poll() is not None
        *lines, self._unread = (self._unread + (self._driver.stdout.read() or b"")).split(b"\n")
        gone = [Gone(said["gone"], said["reason"]) for said in map(json.loads, lines)]
        if ended:
            reason = f"the connection to Ray has ended{said(self._errors)}"
            self.stop(0.0)
            gone = [Gone(host, reason) for host in range(len(self.hosts))]
        return gone

    def stop(self, grace: float) -> None:
        driver, self._driver = self._driver, None
        if driver is None:
            return
        assert driver.stdin is not None and driver.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            driver.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(grace)
        driver.kill()
        driver.wait()
        driver.stdout.close()
        if self._errors is not None:
            self._errors.close()

    def _told(self) -> dict[str, Any]:
        """What the driver is told, without the join line."""
        supervisor = [self.args.python or sys.executable, "-m", "srl.cluster.supervisor", "--lifeline", "--host"]
        return {
            "address": self.args.cluster,
            "strategy": self.args.strategy,
            "directory": self.args.directory or str(Path.cwd()),
            "bundles": [self._bundle(host.group) for host in self.hosts],
            "commands": [[*supervisor, str(number)] for number in range(len(self.hosts))],
        }

    def _bundle(self, name: str) -> dict[str, float]:
        """The resources of one host."""
        group = self.groups[name]
        found: dict[str, float] = {"CPU": group.cores or 1}
        found |= {"GPU": group.gpus} if group.gpus else {}
        found |= {"memory": math.ceil(group.memory * 1e9)} if group.memory is not None else {}
        return {**found, **self.args.resources.get(name, {})}

    def _tell(self, line: Mapping[str, Any]) -> None:
        if self._driver is None:
            return
        assert self._driver.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: `poll` says so
            self._driver.stdin.write(json.dumps(line).encode() + b"\n")
            self._driver.stdin.flush()
