"""Runs whose hosts are the nodes of a real Slurm on this machine."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srl.control.controller import Controller
from srl.core.types import Component, HostGroup, Stop
from srl.launchers.backend import LaunchedBackend
from srl.launchers.base import launcher_of
from srl.launchers.slurm import Slurm
from srl.observe.ledger import table
from srl.plan.prepare import prepare
from srl.store import checkpoint
from srl.store.lines import read_numbers
from srl.store.run_folder import RunFolder
from tests.cluster.slurm_cluster import SlurmCluster, missing
from tests.cluster.test_ssh import arrived
from tests.cluster.two_hosts import TwoHosts
from tests.cluster.two_hosts import missing as missing_hosts
from tests.control.rig import derived, graph, with_node
from tests.errors import raises
from tests.waiting import run_while, until

ROOT = Path(__file__).parents[2]
MISSING = missing()
needs_slurm = pytest.mark.skipif(bool(MISSING), reason=MISSING)
NO_HOSTS = missing_hosts()
needs_hosts = pytest.mark.skipif(bool(NO_HOSTS), reason=NO_HOSTS)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    before = dict(os.environ)
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    os.environ.update(cluster.environment)
    yield cluster
    cluster.close()
    os.environ.clear()
    os.environ.update(before)


def placed(on_failure: str = "stop", **launcher: Any) -> Any:
    """Two counters on two nodes that feed an adder at home."""
    groups = {"cpu": HostGroup(count=2, cores=2)}
    work = graph(counters=2, via="zmq", hosts=groups, launcher=Component("slurm", launcher), stop={"env_steps": 2000})
    return with_node(work, "counter", hosts="cpu", on_failure=on_failure)


def controlled(work: Any, tmp_path: Path) -> Controller:
    folder = RunFolder.create(tmp_path / "runs", "rig", 1)
    return Controller(work, folder=folder, derived=derived(work), backend=lambda: LaunchedBackend(work, folder.path))


@needs_slurm
def test_cartpole_learns_in_a_heterogeneous_job(slurm: SlurmCluster, tmp_path: Path) -> None:
    words = [
        "experiment=cartpole", "layout=seed", "launcher=slurm", "launcher.groups={gpu: [--partition=gpu, --gpus-per-node=1]}",
        "hosts.cpu.count=2", "hosts.cpu.cores=1", "hosts.gpu.cores=1", "workers.actor.hosts=cpu", "workers.policy.hosts=gpu",
        "sampling.workers=2", "evaluation=null", "stop.return=100", f"--runs={tmp_path / 'runs'}", "--quiet",
    ]  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "srl.launch", *words], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "solved" in done.stdout and " ok\n" in done.stdout, done.stdout
    assert slurm.ask("squeue", "-h") == ""
    (folder,) = (tmp_path / "runs" / "cartpole").iterdir()
    script = (folder / "launch" / "job.sh").read_text()
    assert "#SBATCH hetjob\n" in script and "--gpus-per-node=1" in script
    assert not (folder / "launch" / "join.json").exists(), "the token is gone with the run"


@needs_slurm
def test_the_join_file_is_private_and_the_token_nowhere_else(slurm: SlurmCluster, tmp_path: Path) -> None:
    work = placed()
    folder = RunFolder.create(tmp_path / "runs", "rig", 1)
    backend = LaunchedBackend(work, folder.path)
    controller = Controller(work, folder=folder, derived=derived(work), backend=lambda: backend)
    seen: dict[str, Any] = {}

    def look() -> None:
        seen["mode"] = stat.S_IMODE((folder.path / "launch" / "join.json").stat().st_mode)
        seen["token"] = backend.remote.join.token in (folder.path / "launch" / "job.sh").read_text()

    result = run_while(controller, look)
    assert result.kind == "done", result.format()
    assert seen == {"mode": 0o600, "token": False}
    (ledger,) = controller.totals.ledgers()
    assert ledger.balanced, table([ledger])


@needs_slurm
def test_a_job_that_is_cancelled_ends_the_run_which_saves(slurm: SlurmCluster, tmp_path: Path) -> None:
    work = placed()
    folder = RunFolder.create(tmp_path / "runs", "rig", 1)
    work = replace(work, stop=Stop(seconds=90))
    backend = LaunchedBackend(work, folder.path)
    assert isinstance(backend.launcher, Slurm)
    job = backend.launcher.job
    controller = Controller(work, folder=folder, derived=derived(work), backend=lambda: backend)
    result = run_while(controller, lambda: slurm.ask("scancel", job))
    assert result.kind == "preempted" and result.exit_code == 75, result.format()
    assert "a host was told to end by SIGTERM" in result.format() and result.checkpoint


@needs_slurm
def test_a_run_that_waits_in_the_queue_can_be_stopped_and_leaves_no_job(slurm: SlurmCluster, tmp_path: Path) -> None:
    work = placed(options=["--begin=now+1hour"])
    controller = controlled(work, tmp_path)
    stopper = threading.Timer(3.0, lambda: [controller.stop(), controller.stop()])
    stopper.start()
    controller.run()
    stopper.join()
    assert slurm.ask("squeue", "-h") == ""


@needs_slurm
def test_slurms_reason_is_shown_when_it_refuses_the_job(slurm: SlurmCluster, tmp_path: Path) -> None:
    result = controlled(placed(options=["--partition=none"]), tmp_path).run()
    assert result.kind == "user error"
    assert "Slurm does not accept the job" in str(result.problem()) and "partition" in str(result.problem())


def test_the_batch_script_has_a_part_for_each_group() -> None:
    groups = {"cpu": HostGroup(count=2, cores=8, memory=16), "gpu": HostGroup(gpus=4)}
    settings = {"options": ["--account=lab"], "groups": {"gpu": ["--partition=gpu"]}, "setup": ["module load x"]}
    launcher = Component("slurm", settings)
    work = graph(counters=2, via="zmq", hosts=groups, launcher=launcher)
    work = with_node(with_node(work, "counter", hosts="cpu"), "adder", hosts="gpu")
    script = launcher_of(work).render()["job.sh"]
    assert [line for line in script.splitlines() if line.startswith("#SBATCH")] == [
        "#SBATCH --job-name=rig", "#SBATCH --output=slurm-%j.out", "#SBATCH --no-requeue",
        "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1", "#SBATCH --cpus-per-task=8", "#SBATCH --mem=16000M",
        "#SBATCH --account=lab", "#SBATCH hetjob",
        "#SBATCH --nodes=1", "#SBATCH --ntasks-per-node=1", "#SBATCH --cpus-per-task=1", "#SBATCH --gpus-per-node=4",
        "#SBATCH --account=lab", "#SBATCH --partition=gpu",
    ]  # fmt: skip
    assert "--het-group=1 bash -c" in script and "--host $((2 + SLURM_PROCID))" in script and "\nmodule load x\n" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


@needs_slurm
@pytest.mark.long
@pytest.mark.parametrize("how", ["signal", "requeue", "preemption", "power"])
def test_a_job_that_is_requeued_continues_in_its_run_folder(slurm: SlurmCluster, tmp_path: Path, how: str) -> None:
    runs, out, free = tmp_path / "runs", tmp_path / "out.txt", tmp_path / "free"
    words = [
        "experiment=cartpole", "layout=impala", "sampling.workers=1", "evaluation=null", "checkpoint.every=5",
        "stop={seconds: 300, return: null, env_steps: null}", f"--runs={runs}", "--quiet",
    ]  # fmt: skip
    if how == "signal":  # the actor is on a node of another job, which ends with this one
        words += ["launcher=slurm", "hosts.cpu={count: 1, cores: 1, shared: false}", "workers.actor.hosts=cpu"]
    submit = ["sbatch", "--parsable", f"--output={out}", "--cpus-per-task=2", f"--export=ALL,PYTHON={sys.executable}"]
    job = slurm.ask(*submit, str(ROOT / "deploy" / "slurm" / "run.sh"), *words).strip()
    folder = runs / "cartpole" / f"job-{job}"
    try:
        until(lambda: len(list(folder.glob("checkpoints/step_*"))) >= 2, 90)
        node = slurm.ask("squeue", "-h", "-j", job, "-o", "%N").strip()
        if how == "signal":
            slurm.ask("scancel", "--batch", "--signal=USR1", job)
        elif how == "requeue":
            slurm.ask("scontrol", "requeue", job)
        elif how == "preemption":
            slurm.ask("sbatch", "--partition=urgent", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap", wait_for(free))
        else:
            slurm.power_off(node)
        until(lambda: not RunFolder(folder).is_live, 60)
        assert RunFolder(folder).state == ("died" if how == "power" else "preempted")
        free.touch()
        saved = newest(folder)
        assert how == "power" or saved == RunFolder(folder).read_status()["env_steps"], "what was done is saved"
        until(lambda: hurried(slurm, job) or "--resume" in (folder / "overrides.txt").read_text(), 120)
        until(lambda: newest(folder) > saved, 60)
        subprocess.run([sys.executable, "-m", "srl", "stop", str(folder)], check=True, capture_output=True)
        until(lambda: slurm.ask("squeue", "-h") == "", 60)
    except AssertionError:
        said = out.read_text() if out.exists() else ""
        raise AssertionError("\n".join([said, slurm.ask("squeue"), slurm.log()])) from None
    finally:
        slurm.ask("scancel", "--quiet", "--me")
        if how == "power":
            slurm.power_on(node)
    assert RunFolder(folder).state == "interrupted", out.read_text()
    assert [row["env_steps"] for row in read_numbers(folder / "metrics.jsonl")][-1] > saved
    assert [path.name for path in runs.glob("*/*")] == [f"job-{job}"]


@needs_slurm
@pytest.mark.long
def test_elements_of_a_job_array_are_runs_with_seeds_of_their_own(slurm: SlurmCluster, tmp_path: Path) -> None:
    words = ["experiment=cartpole", "mode=inline", "evaluation=null", "stop.env_steps=4000", f"--runs={tmp_path / 'runs'}"]
    submit = ["sbatch", "--parsable", "--array=3-4", f"--output={tmp_path}/%a.txt", f"--export=ALL,PYTHON={sys.executable}"]
    slurm.ask(*submit, str(ROOT / "deploy" / "slurm" / "run.sh"), *words, "--quiet")
    until(lambda: slurm.ask("squeue", "-h") == "", 100)
    folders = [RunFolder(path) for path in (tmp_path / "runs" / "cartpole").iterdir()]
    assert [one.state for one in folders] == ["done", "done"], [file.read_text() for file in tmp_path.glob("*.txt")]
    seeds = [line for one in folders for line in (one.path / "config.yaml").read_text().splitlines() if line.startswith("seed:")]
    assert sorted(seeds) == ["seed: 3", "seed: 4"]


@pytest.fixture
def cables(tmp_path: Path) -> Iterator[tuple[TwoHosts, SlurmCluster]]:
    """Two hosts whose cables can be taken out, as nodes of a Slurm of their own."""
    before = dict(os.environ)
    hosts = TwoHosts(tmp_path)
    (folder := tmp_path / "slurm").mkdir()
    try:
        cluster = SlurmCluster(folder, hosts)
        os.environ.update(cluster.environment)
        yield hosts, cluster
        cluster.close()
    finally:
        os.environ.clear()
        os.environ.update(before)
        hosts.close()


@needs_slurm
@needs_hosts
@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("on_failure", ["stop", "restart"])
def test_a_node_that_cannot_be_reached(cables: tuple[TwoHosts, SlurmCluster], tmp_path: Path, on_failure: str) -> None:
    hosts, slurm = cables
    work = replace(placed(on_failure), stop=Stop(seconds=110))
    folder = RunFolder.create(tmp_path / "runs", "rig", 1)
    backend = LaunchedBackend(work, folder.path, lease=4.0)
    controller = Controller(work, folder=folder, derived=derived(work), backend=lambda: backend)
    launcher = backend.launcher
    assert isinstance(launcher, Slurm)
    job = launcher.job

    def cut() -> None:
        hosts.cut(2)
        if on_failure == "stop":
            return
        until(lambda: controller.totals.restarts["counter"] == 1)
        hosts.plug(2)  # before Slurm has noticed
        until(lambda: controller._members.phases["counter/1"] == "running")
        before = arrived(controller, "counter/1")
        until(lambda: arrived(controller, "counter/1") > before + 500)
        assert launcher.job == job
        controller.stop()

    result = run_while(controller, cut)
    (ledger,) = controller.totals.ledgers()
    assert ledger.balanced, table([ledger])
    if on_failure == "stop":
        assert result.kind == "worker failure" and "no contact with host cpu/1 for 4 seconds" in result.format(), result.format()
        assert newest(folder.path) == controller.totals.total("trained_steps")
        hosts.plug(2)
    else:
        assert result.kind == "done", result.format()
    until(lambda: slurm.ask("squeue", "-h") == "", 100)
    # a node that was cut off hears of the end when Slurm registers it again
    until(lambda: not any("srl" in line for line in [*hosts.processes(1), *hosts.processes(2)]), 180)


def newest(run: Path) -> int:
    """Env steps of its newest checkpoint."""
    path = checkpoint.latest(run / "checkpoints")
    return checkpoint.step_of(path) if path is not None else 0


def wait_for(file: Path) -> str:
    """A command that ends once the file exists."""
    return f"until [ -e {file} ]; do sleep 0.1; done"


@needs_slurm
@pytest.mark.long
def test_a_node_that_loses_power_ends_the_run_which_saves(slurm: SlurmCluster, tmp_path: Path) -> None:
    work = replace(placed(), stop=Stop(seconds=90))
    folder = RunFolder.create(tmp_path / "runs", "rig", 1)
    backend = LaunchedBackend(work, folder.path)
    controller = Controller(work, folder=folder, derived=derived(work), backend=lambda: backend)
    result = run_while(controller, lambda: slurm.power_off("cpu2"))
    slurm.power_on("cpu2")
    assert result.kind == "worker failure", result.format()
    assert newest(folder.path) == controller.totals.total("trained_steps")
    (ledger,) = controller.totals.ledgers()
    assert ledger.balanced, table([ledger])
    until(lambda: slurm.ask("squeue", "-h") == "")


@needs_slurm
@pytest.mark.long
def test_actors_whose_job_is_lost_continue_in_another_one(slurm: SlurmCluster, tmp_path: Path) -> None:
    work = replace(placed("restart"), stop=Stop(seconds=110))
    folder, stall = RunFolder.create(tmp_path / "runs", "rig", 1), 12.0
    backend = LaunchedBackend(work, folder.path, lease=5.0)
    controller = Controller(work, folder=folder, derived=derived(work), backend=lambda: backend, stall=stall)
    launcher = backend.launcher
    assert isinstance(launcher, Slurm)
    first = launcher.job

    def lose() -> None:
        slurm.ask("scontrol", "update", "nodename=cpu3", "state=drain", "reason=test")
        slurm.power_off("cpu2")
        until(lambda: slurm.ask("squeue", "-h", "-t", "PENDING") != "")
        threading.Event().wait(1.5 * stall)  # there is one node for two hosts: the new job waits for longer than a run may stall
        slurm.ask("scontrol", "update", "nodename=cpu3", "state=resume")
        until(lambda: controller._members.phases == {"counter/0": "running", "counter/1": "running", "adder/0": "running"})
        before = controller.totals.env_steps
        until(lambda: controller.totals.env_steps > before + 500)
        assert launcher.job != first
        controller.stop()

    try:
        result = run_while(controller, lose)
    finally:
        slurm.power_on("cpu2")
    assert result.kind == "done", result.format()
    assert controller.totals.restarts["counter"] >= 1
    (ledger,) = controller.totals.ledgers()
    assert ledger.balanced, table([ledger])
    until(lambda: slurm.ask("squeue", "-h") == "")


@needs_slurm
@pytest.mark.long
def test_elements_of_a_job_array_are_elastic_hosts(slurm: SlurmCluster, tmp_path: Path) -> None:
    groups = {"cpu": HostGroup(count=2, elastic=True)}
    launcher = Component("external", {"folder": str(tmp_path / "join"), "address": "127.0.0.1"})
    work = graph(counters=2, via="zmq", hosts=groups, launcher=launcher, stop={"seconds": 110})
    controller = controlled(with_node(work, "counter", hosts="cpu"), tmp_path)
    submit = ["sbatch", "--parsable", "--array=0-1", f"--output={tmp_path}/%a.txt", f"--export=ALL,PYTHON={sys.executable}"]
    seen: list[str] = []

    def come_and_go() -> None:
        phases = lambda: controller._members.phases  # noqa: E731
        until(lambda: (tmp_path / "join" / "join.json").exists())
        words = [str(ROOT / "deploy" / "slurm" / "run.sh"), "--join", str(tmp_path / "join" / "join.json")]
        job = slurm.ask(*submit, *words).strip()
        until(lambda: phases()["counter/0"] == phases()["counter/1"] == "running")
        slurm.ask("scontrol", "requeue", f"{job}_0")
        until(lambda: phases()["counter/0"] == "absent")
        seen.append(phases()["counter/1"])

        def comes_again() -> bool:
            hurried(slurm, f"{job}_0")
            try:
                until(lambda: phases()["counter/0"] == "running", 6)
            except AssertionError:  # Slurm sets the time again when it has cleaned up after the first start
                return False
            return True

        until(comes_again)
        controller.stop()

    comer = threading.Thread(target=come_and_go)
    comer.start()
    result = controller.run()
    comer.join()
    assert result.kind == "done" and seen == ["running"], result.format()
    assert not controller.totals.restarts, "nothing has failed"
    until(lambda: slurm.ask("squeue", "-h") == "", 60)


def hurried(slurm: SlurmCluster, job: str) -> bool:
    """Whether the job waits for its time, which is soon: Slurm would let it wait for two minutes.

    Not at once: it can be refused if it starts within the second in which it was requeued.
    """
    if slurm.ask("squeue", "-h", "-j", job, "-o", "%T %r") != "PENDING BeginTime\n":
        return False
    slurm.ask("scontrol", "update", f"jobid={job}", "starttime=now+3")
    return True


def test_the_full_hide_and_seek_is_submitted_as_actors_and_a_host_with_a_gpu() -> None:
    words = [
        "launcher=slurm",
        "launcher.options=[--account=lab]",
        "launcher.python=/opt/rl/bin/python",
        "launcher.directory=/opt/rl",
    ]
    prepared = prepare("hide_and_seek_full", words, inspect=False)
    script = launcher_of(prepared.graph).render()["job.sh"]
    assert [line for line in script.splitlines() if line.startswith("#SBATCH")] == [
        "#SBATCH --job-name=hide_and_seek_full", "#SBATCH --output=slurm-%j.out", "#SBATCH --no-requeue",
        "#SBATCH --nodes=25", "#SBATCH --ntasks-per-node=1", "#SBATCH --cpus-per-task=16", "#SBATCH --mem=32000M",
        "#SBATCH --account=lab", "#SBATCH hetjob",
        "#SBATCH --nodes=1", "#SBATCH --ntasks-per-node=1", "#SBATCH --cpus-per-task=16", "#SBATCH --gpus-per-node=1",
        "#SBATCH --mem=64000M", "#SBATCH --account=lab",
    ]  # fmt: skip
    assert "/opt/rl/bin/python -m srl.cluster.supervisor" in script and "--host $((25 + SLURM_PROCID))" in script
    plan = dict(prepared.lines())
    assert "learner/0: trainer/0, evaluator/0" in plan["hosts"] and "actors/24: actor/384-399" in plan["hosts"]
    assert "samples.main: actor/0-399 connect to trainer/0 at learner/0" in plan["sockets"]
    assert prepared.graph.node("trainer").device == "cuda", "decided by the GPU of its host, not of this machine"


def test_the_full_hide_and_seek_stays_at_home_without_a_launcher() -> None:
    graph = prepare("hide_and_seek_full", [], inspect=False).graph
    assert {node.hosts for node in graph.nodes} == {"home"}


def has_rows(runs: Path) -> bool:
    """Whether the only run has reported an update."""
    return any("total/updates" in row for path in runs.glob("*/*/metrics.jsonl") for row in read_numbers(path))


@needs_slurm
@pytest.mark.long
def test_a_new_controller_takes_over_the_job_of_one_that_was_killed(slurm: SlurmCluster, tmp_path: Path) -> None:
    words = [
        "experiment=cartpole", "launcher=slurm", "layout=impala", "hosts.cpu={count: 2, cores: 1, shared: false}",
        "workers.actor.hosts=cpu", "sampling.workers=2", "evaluation=null", "checkpoint.every=5", "stop={return: null}",
    ]  # fmt: skip
    begin, out = [sys.executable, "-m", "srl.launch", "--quiet"], subprocess.DEVNULL
    with subprocess.Popen([*begin, *words, "stop.seconds=300", f"--runs={tmp_path}"], cwd=ROOT, stdout=out) as first:
        try:
            until(lambda: first.poll() is not None or len(list(tmp_path.glob("*/*/checkpoints/step_*"))) >= 2, 90)
            until(lambda: first.poll() is not None or has_rows(tmp_path))
        finally:
            first.kill()
    (folder,) = tmp_path.glob("*/*")
    job = (folder / "launch" / "job").read_text()
    updates = list(read_numbers(folder / "metrics.jsonl"))[-1]["total/updates"]
    again = [*begin, f"--resume={folder}", f"stop.updates={int(updates) + 60}"]
    done = subprocess.run(again, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " ok\n" in done.stdout, done.stdout
    assert [path.name for path in (folder / "launch").glob("slurm-*.out")] == [f"slurm-{job.strip()}.out"], (
        "no other job was made"
    )
    until(lambda: slurm.ask("squeue", "-h") == "")
    assert not (folder / "launch" / "job").exists()


@needs_slurm
def test_nothing_is_left_of_a_slurm_that_is_closed_while_a_job_runs(tmp_path: Path) -> None:
    cluster = SlurmCluster(tmp_path)
    try:
        cluster.ask("sbatch", "--nodes=2", "--output=/dev/null", "--wrap", "sleep 600 & srun sleep 600")
        until(lambda: all(len(cluster.processes(node)) > least for node, least in (("cpu1", 4), ("cpu2", 2))))
    finally:
        cluster.close()
    until(lambda: not [process for process in Path("/proc").glob("[0-9]*") if str(tmp_path) in text(process)], 5)


def text(process: Path) -> str:
    """How a process was called, its environment and its files."""
    try:
        files = [str(one.readlink()) for one in (process / "fd").iterdir()]
        return f"{(process / 'cmdline').read_bytes()!r} {(process / 'environ').read_bytes()!r} {files}"
    except OSError:  # it has ended
        return ""


@needs_slurm
def test_hosts_of_one_job_are_not_elastic(slurm: SlurmCluster) -> None:
    launcher = launcher_of(replace(placed(), hosts={"cpu": HostGroup(count=2, elastic=True)}))
    assert isinstance(launcher, Slurm)
    with raises("E10", "hosts.cpu.elastic"):
        launcher.check()
