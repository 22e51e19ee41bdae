"""Job groups of `launcher=sky`: read by SkyPilot's own loader (SKY_PYTHON if it is elsewhere), and their tasks as processes."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from srl.cluster.security import new_credentials
from srl.core.errors import UserError
from srl.core.types import Component, HostGroup
from srl.launchers.base import launcher_of
from srl.launchers.sky import Sky
from tests.control.rig import graph, with_node

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("SKY_PYTHON") or (sys.executable if importlib.util.find_spec("sky") else "")
LOAD = """
import json, sys
from sky.utils import dag_utils
dag = dag_utils.load_job_group_from_yaml(sys.argv[1])
found = {"primary": dag.primary_tasks, "tasks": {}}
for task in dag.tasks:
    task.expand_and_validate_file_mounts()
    (one,) = task.resources
    found["tasks"][task.name] = [task.num_nodes, one.cpus, one.memory, one.accelerators, one.job_recovery]
print("found", json.dumps(found))
"""


def launcher(**settings: Any) -> Sky:
    groups = {"cpu": HostGroup(count=2, cores=8, memory=16), "gpu": HostGroup(gpus=4)}
    given = {"home": {"cores": 4, "gpus": 1}, "accelerators": {"home": "L4", "gpu": "A100"}, "name": "group", **settings}
    work = graph(counters=2, via="zmq", hosts=groups, launcher=Component("sky", given))
    found = launcher_of(with_node(with_node(work, "counter", hosts="cpu"), "adder", hosts="gpu"))
    assert isinstance(found, Sky)
    return found


@pytest.mark.skipif(not PYTHON, reason="needs SkyPilot (pip install skypilot, or SKY_PYTHON=python of an environment with it)")
def test_skypilots_own_loader_reads_the_job_group(tmp_path: Path) -> None:
    launcher(tasks={"cpu": {"resources": {"use_spot": True}}}).write(tmp_path, "env: CartPole-v1\n", new_credentials())
    told = {**os.environ, "HOME": str(tmp_path), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    command = [PYTHON, "-c", LOAD, str(tmp_path / "group.yaml")]
    done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.partition("found ")[2])
    recovery = {"max_restarts_on_errors": 3, "recover_on_exit_codes": [75]}
    assert found["primary"] == ["home"]
    for name, expected in {
        "home": [1, "4+", None, {"L4": 1}],
        "cpu": [2, "8+", "16+", None],
        "gpu": [1, "1+", None, {"A100": 4}],
    }.items():
        assert found["tasks"][name][:4] == expected
        assert recovery.items() <= found["tasks"][name][4].items()


def test_secrets_are_files_that_others_cannot_read(tmp_path: Path) -> None:
    credentials = new_credentials()
    launcher().write(tmp_path, "env: CartPole-v1\n", credentials)
    with_token = [file for file in tmp_path.rglob("*") if file.is_file() and credentials.token in file.read_text()]
    assert sorted(str(file.relative_to(tmp_path)) for file in with_token) == ["home/token", "hosts/join.json"]
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in with_token)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"accelerators": {"home": "L4"}}, "which GPUs 'gpu' has"),
        ({"name": "My_Run"}, "small letters"),
        ({"tasks": {"x": {}}}, "no such"),
    ],
)
def test_what_skypilot_would_refuse_is_refused_before(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        launcher(**settings)


@pytest.mark.long
def test_the_tasks_of_a_run_find_each_other(tmp_path: Path) -> None:
    """The words and files of the group are run here: `~` is a folder for each task, home has the loopback address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    words = [
        "experiment=cartpole", "launcher=sky", "launcher.name=group", f"launcher.port={port}", "hosts.cpu={count: 2, cores: 1}",
        f"launcher.python={sys.executable}", "launcher.setup=[]", "workers.actor.hosts=cpu", "sampling.workers=2",
        "evaluation=null", "stop.env_steps=8000", "--dry-run",
    ]  # fmt: skip
    command = [sys.executable, "-m", "srl.launch", *words]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    files = shown.partition("\nit could not be started from here")[0]
    experiment = yaml.safe_load(files.partition("--- experiment.yaml\n")[2])
    experiment["launcher"]["address"] = "127.0.0.1"
    (tmp_path / "given").mkdir()
    work = graph(
        counters=2, via="zmq", hosts={"cpu": HostGroup(count=2)}, launcher=Component("sky", {"name": "group", "port": port})
    )
    sky = launcher_of(with_node(work, "counter", hosts="cpu"))
    assert isinstance(sky, Sky)
    sky._experiment = "cartpole"
    sky.write(tmp_path / "given", yaml.safe_dump(experiment), new_credentials())
    (join := tmp_path / "given/hosts/join.json").write_text(join.read_text().replace("home-0.group", "127.0.0.1"))
    header, *tasks = yaml.safe_load_all(files.partition("--- group.yaml\n")[2].partition("\n--- experiment.yaml")[0])
    assert header["primary_tasks"] == ["home"]
    running = []
    try:
        for task in reversed(tasks):
            for rank in range(task["num_nodes"]):
                (place := tmp_path / f"{task['name']}{rank}").mkdir()
                for target, source in task["file_mounts"].items():
                    (place / target[2:]).symlink_to(tmp_path / "given" / source.partition("/")[2])
                told = {**os.environ, "HOME": str(place), "SKYPILOT_NODE_RANK": str(rank)}
                shell = ["bash", "-c", task["run"]]
                pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
                running.append(subprocess.Popen(shell, env=told, cwd=ROOT, text=True, **pipe))
        said, _ = running[-1].communicate(timeout=100)
        assert running[-1].returncode == 0 and " ok\n" in said, said
        assert [one.wait(20) for one in running] == [0, 0, 0]
    finally:
        for one in running:
            one.kill()
            one.communicate()
