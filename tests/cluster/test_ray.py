"""Runs whose hosts are actors of a real Ray: two nodes on this machine. Set RAY_PYTHON if Ray is in another environment."""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srl.cluster.address import usual_address
from srl.control.controller import Controller
from srl.core.errors import UserError
from srl.core.types import Component, HostGroup, Stop
from srl.launchers.backend import LaunchedBackend
from srl.launchers.base import launcher_of
from srl.observe.ledger import table
from srl.store.run_folder import RunFolder
from tests.control.rig import derived, graph, with_node
from tests.waiting import run_while, until

PYTHON = os.environ.get("RAY_PYTHON") or (sys.executable if importlib.util.find_spec("ray") else "")
needs_ray = pytest.mark.skipif(not PYTHON, reason="needs Ray (pip install ray, or RAY_PYTHON=python of an environment with it)")


class RayNodes:
    """`ray start` twice, with a token, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(24), "RAY_USAGE_STATS_ENABLED": "0"}
        self._nodes: list[subprocess.Popen[bytes]] = []
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.address = f"{usual_address()}:{port}"
        try:
            self._node("--head", f"--port={port}", "--include-dashboard=false", "--num-cpus=0", f"--temp-dir={folder}")
            for _ in range(2):
                self._node(f"--address={self.address}", "--num-cpus=1")
        except BaseException:
            self.close()
            raise

    def _node(self, *options: str) -> None:
        words = [
            PYTHON,
            "-m",
            "ray.scripts.scripts",
            "start",
            "--block",
            "--disable-usage-stats",
            "--object-store-memory=80000000",
        ]
        with (self.folder / f"node{len(self._nodes)}.log").open("wb") as log:
            node = subprocess.Popen(
                [*words, *options], env={**os.environ, **self.environment}, stdout=log, stderr=log, process_group=0
            )
        self._nodes.append(node)
        ask = f"import ray; ray.init(address='{self.address}', log_to_driver=False); print(len(ray.nodes()))"
        for _ in range(20):
            if node.poll() is not None:
                break
            asked = [PYTHON, "-c", ask]
            done = subprocess.run(asked, env={**os.environ, **self.environment}, capture_output=True, text=True, check=False)
            if done.stdout.strip() == str(len(self._nodes)):
                return
        raise AssertionError(done.stderr[-2000:] + (self.folder / f"node{len(self._nodes) - 1}.log").read_text()[-2000:])

    def lose(self, node: int) -> None:
        """Kill everything that `ray start` has started for this node."""
        os.killpg(self._nodes[node].pid, 9)

    def close(self) -> None:
        for one in reversed(self._nodes):
            one.terminate()
            try:
                one.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(one.pid, 9)
                one.wait()


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    before = dict(os.environ)
    nodes = RayNodes(tmp_path_factory.mktemp("r"))
    os.environ.update(nodes.environment)
    yield nodes
    nodes.close()
    os.environ.clear()
    os.environ.update(before)


def placed(ray: RayNodes, on_failure: str = "stop", **launcher: Any) -> Any:
    """Two counters on two nodes that feed an adder at home."""
    args = {"ray_python": PYTHON, "cluster": ray.address, "strategy": "STRICT_SPREAD", **launcher}
    groups = {"cpu": HostGroup(count=2, cores=1)}
    work = graph(counters=2, via="zmq", hosts=groups, launcher=Component("ray", args), stop={"env_steps": 2000})
    return with_node(work, "counter", hosts="cpu", on_failure=on_failure)


@pytest.mark.long
@needs_ray
@pytest.mark.timeout(400)
def test_cartpole_learns_on_the_nodes_of_a_ray_cluster(ray: RayNodes, tmp_path: Path) -> None:
    words = [
        "experiment=cartpole", "launcher=ray", f"launcher.ray_python={PYTHON}", f"launcher.cluster={ray.address}",
        "launcher.strategy=STRICT_SPREAD", "hosts.cpu.count=2", "hosts.cpu.cores=1", "workers.actor.hosts=cpu",
        "sampling.workers=2", "evaluation=null", f"--runs={tmp_path / 'runs'}", "--quiet",
    ]  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "srl.launch", *words], capture_output=True, text=True, timeout=390, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "solved" in done.stdout and " ok\n" in done.stdout, done.stdout


@pytest.mark.long
@needs_ray
def test_nothing_is_lost_between_two_nodes_and_home(ray: RayNodes, tmp_path: Path) -> None:
    work = placed(ray)
    folder = RunFolder.create(tmp_path / "runs", "rig", 1)
    controller = Controller(work, folder=folder, derived=derived(work), backend=lambda: LaunchedBackend(work, folder.path))
    result = controller.run()
    assert result.kind == "done", result.format()
    (ledger,) = controller.totals.ledgers()
    assert ledger.balanced, table([ledger])


@pytest.mark.long
@needs_ray
def test_a_python_that_is_not_on_the_nodes_is_named(ray: RayNodes, tmp_path: Path) -> None:
    work = placed(ray, python="/nowhere/python")
    folder = RunFolder.create(tmp_path / "runs", "rig", 1)
    result = Controller(work, folder=folder, derived=derived(work), backend=lambda: LaunchedBackend(work, folder.path)).run()
    assert result.kind == "user error" and "No such file or directory: /nowhere/python" in result.format(), result.format()


@pytest.mark.long
@needs_ray
def test_an_actor_that_is_killed_is_started_again_with_its_workers(ray: RayNodes, tmp_path: Path) -> None:
    work = replace(placed(ray, on_failure="restart"), stop=Stop(seconds=100))
    folder = RunFolder.create(tmp_path / "runs", "rig", 1)
    controller = Controller(work, folder=folder, derived=derived(work), backend=lambda: LaunchedBackend(work, folder.path))

    def kill() -> None:
        os.kill(min(actors()), signal.SIGKILL)
        until(lambda: controller.totals.restarts["counter"] == 1)
        before = controller.totals.env_steps
        until(lambda: controller.totals.env_steps > before + 2000 and len(actors()) == 2)
        controller.stop()

    result = run_while(controller, kill)
    assert result.kind == "done", result.format()
    (ledger,) = controller.totals.ledgers()
    assert ledger.balanced, table([ledger])


def actors() -> list[int]:
    """The processes of Ray that have a supervisor."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"ray::Host" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.long
@needs_ray
def test_a_node_that_is_lost_ends_the_run(ray: RayNodes, tmp_path: Path) -> None:
    """The last test with these nodes."""
    work = replace(placed(ray), stop=Stop(seconds=120))
    folder = RunFolder.create(tmp_path / "runs", "rig", 1)
    controller = Controller(work, folder=folder, derived=derived(work), backend=lambda: LaunchedBackend(work, folder.path))
    result = run_while(controller, lambda: ray.lose(2))
    assert result.kind == "worker failure", result.format()


def test_a_host_is_a_bundle_of_its_resources() -> None:
    groups = {"cpu": HostGroup(count=2, cores=8, memory=16), "gpu": HostGroup(gpus=4)}
    args = {"resources": {"gpu": {"a100": 1}}, "python": "/opt/rl/bin/python"}
    work = graph(counters=2, via="zmq", hosts=groups, launcher=Component("ray", args))
    work = with_node(with_node(work, "counter", hosts="cpu"), "adder", hosts="gpu")
    (text,) = launcher_of(work).render().values()  # type: ignore[call-arg]
    assert text.splitlines()[1:] == [
        'cpu/0: {"CPU": 8, "memory": 16000000000}, /opt/rl/bin/python -m srl.cluster.supervisor --lifeline --host 0',
        'cpu/1: {"CPU": 8, "memory": 16000000000}, /opt/rl/bin/python -m srl.cluster.supervisor --lifeline --host 1',
        'gpu/0: {"CPU": 1, "GPU": 4, "a100": 1.0}, /opt/rl/bin/python -m srl.cluster.supervisor --lifeline --host 2',
    ]


def test_a_python_without_ray_is_refused_before_the_start() -> None:
    work = graph(counters=2, via="zmq", hosts={"cpu": HostGroup()}, launcher=Component("ray", {"ray_python": "/bin/false"}))
    with pytest.raises(UserError, match="/bin/false cannot import it"):
        launcher_of(with_node(work, "counter", hosts="cpu")).check()
