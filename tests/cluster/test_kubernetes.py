"""Manifests of `launcher=kubernetes`: against the published schemas, and their pods as processes of this machine."""

from __future__ import annotations

import copy
import os
import socket
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
from srl.launchers.kubernetes import Kubernetes
from srl.run import make_run
from tests.cluster.pods import Pods
from tests.control.rig import graph, with_node
from tests.waiting import until

ROOT = Path(__file__).parents[2]
VERSIONS = ("1.31", "1.33", "1.37")
WORDS = [
    "experiment=cartpole", "launcher=kubernetes", "launcher.image=lab/srl:1", "launcher.name=rehearsal", "hosts.cpu.count=2",
    "hosts.cpu.cores=1", "workers.actor.hosts=cpu", "sampling.workers=2", "evaluation=null", "stop.env_steps=8000",
]  # fmt: skip


def launcher(**settings: Any) -> Kubernetes:
    groups = {"cpu": HostGroup(count=2, cores=8, memory=16), "gpu": HostGroup(gpus=4)}
    args = {"image": "lab/srl:1", "home": {"cores": 4, "gpus": 1, "memory": 32}, "claim": "runs", **settings}
    work = graph(counters=2, via="zmq", hosts=groups, launcher=Component("kubernetes", args))
    found = launcher_of(with_node(with_node(work, "counter", hosts="cpu"), "adder", hosts="gpu"))
    assert isinstance(found, Kubernetes)
    return found


def manifests(**settings: Any) -> list[dict[str, Any]]:
    return [yaml.safe_load(text) for text in launcher(**settings).render("env: CartPole-v1\n").values()]


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_fit_the_published_schemas_strictly(version: str) -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate (pip install kubernetes-validate)")
    pod = {"imagePullSecrets": [{"name": "lab"}], "volumes": [{"name": "data", "nfs": {"server": "nas", "path": "/data"}}]}
    more = {"labels": {"kueue.x-k8s.io/queue-name": "lab"}, "pods": {"gpu": {"nodeSelector": {"gpu": "a100"}}}}
    objects = manifests(pod=pod, namespace="lab", **more)
    assert [one["kind"] for one in objects] == ["Job", "Service", "ConfigMap", "Secret", "Secret", "Job", "Job"]
    for one in objects:
        schemas.validate(one, version, strict=True)
    wrong = copy.deepcopy(objects[0])
    wrong["spec"]["template"]["spec"]["nodeSelektor"] = {}
    with pytest.raises(schemas.ValidationError):
        schemas.validate(wrong, version, strict=True)


def test_each_group_is_a_job_with_its_resources_and_numbers() -> None:
    objects = manifests(name="run", pods={"gpu": {"nodeSelector": {"gpu": "a100"}}})
    specs = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "Job"}
    assert {name: spec["completions"] for name, spec in specs.items()} == {"run-home": 1, "run-cpu": 2, "run-gpu": 1}
    limits = {name: spec["template"]["spec"]["containers"][0]["resources"]["limits"] for name, spec in specs.items()}
    assert limits == {
        "run-home": {"cpu": "4", "memory": "32000M", "nvidia.com/gpu": "1"},
        "run-cpu": {"cpu": "8", "memory": "16000M"},
        "run-gpu": {"cpu": "1", "nvidia.com/gpu": "4"},
    }
    assert "--host $((2 + JOB_COMPLETION_INDEX))" in specs["run-gpu"]["template"]["spec"]["containers"][0]["args"][2]
    assert specs["run-gpu"]["template"]["spec"]["nodeSelector"] == {"gpu": "a100"}
    assert "nodeSelector" not in specs["run-cpu"]["template"]["spec"]


def test_secrets_are_in_secrets_alone() -> None:
    credentials = new_credentials()
    secret = {name: text for name, text in credentials.files().items() if name in ("tls.key", "token")}
    for name, one in launcher()._manifests("env: CartPole-v1\n", credentials).items():
        found = [key for key, text in secret.items() if text in yaml.dump(one, width=10_000) or text in str(one)]
        assert (one["kind"] == "Secret") == bool(found), name
        assert "env" not in str(one.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [{}])[0].keys())


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"name": "Big Run"}, "small letters"), ({"name": "x" * 41}, "at most 40"), ({"pods": {"cpus": {}}}, "no such group")],
)
def test_names_that_kubernetes_would_refuse_are_refused_before(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        launcher(**settings)


def test_the_pods_of_a_run_find_each_other_whichever_starts_first(tmp_path: Path) -> None:
    """What the manifests say is run here: the pods of hosts first, which wait for that of home."""
    shown = dry_run(tmp_path)
    objects = [yaml.safe_load(text) for name, text in shown.items() if name.endswith(".yaml")]
    pods = Pods(with_secrets(objects), tmp_path)
    try:
        hosts = [pods.start("rehearsal-cpu", index) for index in range(2)]
        home = pods.start("rehearsal-home")
        said, _ = home.communicate(timeout=100)
        assert home.returncode == 0 and "done" in said and " ok\n" in said, said
        assert [one.wait(20) for one in hosts] == [0, 0]
        assert (tmp_path / "rehearsal-home/runs/cartpole/rehearsal/checkpoints").is_dir()
    finally:
        pods.close()


def dry_run(tmp_path: Path, *more: str) -> dict[str, str]:
    """Name of each file -> its text, as `--dry-run` prints them."""
    command = [sys.executable, "-m", "srl.launch", *WORDS, f"launcher.port={free_port()}", *more, "--dry-run"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    parts = done.stdout.partition("\nit could not be started from here")[0].split("\n--- ")[1:]
    return {name: text for name, _, text in (part.partition("\n") for part in parts)}


def with_secrets(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same objects with credentials, at the loopback address."""
    home = next(one for one in objects if one["metadata"]["name"] == "rehearsal-home" and one["kind"] == "Secret")
    hosts = next(one for one in objects if one["metadata"]["name"] == "rehearsal-hosts")
    (config,) = (one for one in objects if one["kind"] == "ConfigMap")
    experiment = yaml.safe_load(config["data"]["experiment.yaml"])
    experiment["launcher"]["address"] = "127.0.0.1"
    config["data"]["experiment.yaml"] = yaml.safe_dump(experiment)
    credentials = new_credentials()
    made = Kubernetes.join_of(credentials, "cartpole", "rehearsal", experiment["launcher"]["port"])
    home["stringData"], hosts["stringData"] = credentials.files(), {"join.json": made.dump() + "\n"}
    return objects


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


KUBECTL = """#!/bin/sh
echo "$@" >> "$LOG"
cat >> "$LOG.given"
echo >> "$LOG.given"
case "$*" in
*output=json*) echo '{"metadata": {"uid": "u-1"}}' ;;
*create*) [ -z "$REFUSED" ] || { echo "quota exceeded" >&2; exit 1; } ;;
esac
"""


@pytest.mark.parametrize("refused", ["", "yes"])
def test_objects_belong_to_the_job_of_home_which_is_deleted_if_the_rest_is_refused(tmp_path: Path, refused: str) -> None:
    (program := tmp_path / "kubectl").write_text(KUBECTL)
    program.chmod(0o755)
    log = tmp_path / "log"
    told = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log), "REFUSED": refused}
    command = [sys.executable, "-m", "srl.launch", *WORDS, "--quiet", f"--runs={tmp_path / 'runs'}"]
    done = subprocess.run(command, cwd=ROOT, env=told, capture_output=True, text=True, timeout=60, check=False)
    calls = log.read_text().splitlines()
    assert calls[:2] == ["create --output=json --filename=-", "create --filename=-"]
    given = (tmp_path / "log.given").read_text().splitlines()
    items = yaml.safe_load(given[1])["items"]
    assert all(one["metadata"]["ownerReferences"][0]["uid"] == "u-1" for one in items) and len(items) == 5
    assert not (tmp_path / "runs").exists(), "the run folder is where the run is"
    if refused:
        assert done.returncode == 2 and "Kubernetes does not accept the run" in done.stderr and "quota exceeded" in done.stderr
        assert calls[2:] == ["delete job rehearsal-home"]
    else:
        assert done.returncode == 0 and "submitted" in done.stdout and "kubectl logs --follow job/rehearsal-home" in done.stdout
        assert len(calls) == 2


def test_the_volume_for_runs_fits_its_schema() -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate (pip install kubernetes-validate)")
    schemas.validate(yaml.safe_load((ROOT / "deploy/kubernetes/runs.yaml").read_text()), VERSIONS[-1], strict=True)


def test_the_image_has_what_the_manifests_expect() -> None:
    lines = (ROOT / "deploy/docker/Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    kept = [line[1:] for line in (ROOT / "deploy/docker/Dockerfile.dockerignore").read_text().splitlines() if line[0] == "!"]
    assert copied and all((ROOT / name).exists() for name in copied) and sorted(copied) == sorted(kept)
    spec = manifests()[0]["spec"]["template"]["spec"]
    assert f"USER {spec['securityContext']['runAsUser']}" in lines
    assert 'ENTRYPOINT ["tini", "--"]' in lines and "command" not in spec["containers"][0]
    torch = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    assert any(torch in line for line in lines)


def test_a_run_is_not_resumed_from_here(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot resume a run from here"):
        make_run(overrides=[*WORDS[1:], "env=CartPole-v1", "algorithm=ppo"], resume_or_start="one", runs=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_pod_of_home_that_is_lost_continues_with_the_pods_of_hosts(tmp_path: Path) -> None:
    """As its Job would replace it. The pods of hosts begin anew, without being replaced."""
    shown = dry_run(tmp_path, "stop.env_steps=30_000", "checkpoint.every=5")
    objects = [yaml.safe_load(text) for name, text in shown.items() if name.endswith(".yaml")]
    pods = Pods(with_secrets(objects), tmp_path)
    try:
        hosts = [pods.start("rehearsal-cpu", index) for index in range(2)]
        home = pods.start("rehearsal-home")
        until(lambda: any((tmp_path / "rehearsal-home/runs").glob("cartpole/rehearsal/checkpoints/**/step_*")), 100)
        home.kill()
        home.wait()
        again = pods.start("rehearsal-home")
        said, _ = again.communicate(timeout=200)
        assert again.returncode == 0 and "done" in said and " ok\n" in said, said
        assert [one.wait(20) for one in hosts] == [0, 0]
    finally:
        pods.close()
