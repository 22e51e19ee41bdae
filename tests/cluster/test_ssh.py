"""Runs over two hosts by ssh: real sshd's in network namespaces of this machine."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srl.control.controller import Controller
from srl.core.types import Component, HostGroup
from srl.dashboard.runs import read_live
from srl.graph.hosts import processes_by_host
from srl.launchers.backend import LaunchedBackend
from srl.launchers.base import launcher_of
from srl.observe.ledger import table
from srl.store import checkpoint
from srl.store.lines import read_numbers
from srl.store.run_folder import RunFolder
from tests.cluster.two_hosts import ADDRESSES, HEAD, TwoHosts, missing
from tests.control.rig import derived, graph, with_node
from tests.waiting import run_while, until

MISSING = missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[TwoHosts]:
    pair = TwoHosts(tmp_path)
    yield pair
    pair.close()


def placed(hosts: TwoHosts, **more: Any) -> Any:
    """Two counters on two hosts that feed an adder at home."""
    group = HostGroup(addresses=ADDRESSES)
    launcher = Component("ssh", {"options": hosts.options})
    return with_node(graph(counters=2, via="zmq", hosts={"far": group}, launcher=launcher, **more), "counter", hosts="far")


def controlled(work: Any, tmp_path: Path, backend: Any = None) -> Controller:
    folder = RunFolder.create(tmp_path / "runs", "rig", 1)
    return Controller(work, folder=folder, derived=derived(work), backend=lambda: backend or LaunchedBackend(work, folder.path))


@pytest.mark.parametrize("away", [pytest.param("actors", marks=pytest.mark.long), "everything"])
def test_cartpole_learns_over_two_hosts(hosts: TwoHosts, tmp_path: Path, away: str) -> None:
    placed = ["+workers.trainer.hosts=cpu", "+workers.evaluator.hosts=cpu", "+hosts.cpu.shared=false", "evaluation.every=20_000"]
    words = [
        "experiment=cartpole", "launcher=ssh", f"launcher.options=[{', '.join(map(repr, hosts.options))}]",
        f"+hosts.cpu.addresses=[{', '.join(ADDRESSES)}]", "+workers.actor.hosts=cpu", "sampling.workers=2",
        *(placed if away == "everything" else ["evaluation=null"]), "stop.return=150", f"--runs={tmp_path / 'runs'}", "--quiet",
    ]  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "srl.launch", *words], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "solved" in done.stdout and "samples.main" in done.stdout and " ok\n" in done.stdout, done.stdout
    (folder,) = (tmp_path / "runs" / "cartpole").iterdir()
    assert list(read_numbers(folder / "metrics.jsonl"))[-1]["env_steps"] > 1000
    newest = checkpoint.latest(folder / "checkpoints")
    assert newest is not None and checkpoint.read(newest).state["env_steps"] == RunFolder(folder).read_status()["env_steps"]
    assert RunFolder(folder).read_eval() or away == "actors"
    assert hosts.processes(1) == hosts.processes(2) == []


def test_workers_run_on_their_hosts_without_secrets_in_sight(hosts: TwoHosts, tmp_path: Path) -> None:
    work = placed(hosts, stop={"env_steps": 2000})
    assert processes_by_host(work) == {"home": ["adder/0"], "far/0": ["counter/0"], "far/1": ["counter/1"]}
    seen: dict[str, Any] = {}
    backend = LaunchedBackend(work, tmp_path)
    controller = controlled(work, tmp_path, backend)

    def look() -> None:
        seen["workers"] = [any(f"counter/{host - 1}" in line for line in hosts.processes(host)) for host in (1, 2)]
        seen["token"] = [hosts.secrets_visible(host, backend.remote.join.token) for host in (1, 2)]

    result = run_while(controller, look)
    assert result.kind == "done", result.format()
    assert seen == {"workers": [True, True], "token": [False, False]}
    (ledger,) = controller.totals.ledgers()
    assert ledger.balanced and controller.totals.env_steps == 2000, table([ledger])
    assert backend.remote.address.startswith(f"{HEAD}:")
    assert hosts.processes(1) == hosts.processes(2) == []


def test_a_run_is_stopped_from_another_host(hosts: TwoHosts, tmp_path: Path) -> None:
    work = placed(hosts, stop={"seconds": 90})
    controller = controlled(work, tmp_path)
    said: dict[str, str] = {}

    def ask() -> None:
        there = ["nsenter", "--net=/run/netns/srl-n1", sys.executable, "-m", "srl"]
        until(lambda: any("screen" in read_live(one) for one in RunFolder.below(tmp_path)))
        (control,) = tmp_path.rglob("control.json")
        for verb in ("top", "stop"):
            done = subprocess.run([*there, verb, str(control)], capture_output=True, text=True, timeout=60, check=False)
            said[verb] = done.stdout + done.stderr

    result = run_while(controller, ask)
    assert result.kind == "interrupted", result.format()
    assert "counter/1" in said["top"] and "far/1" in said["top"], said
    assert said["stop"].endswith("it has ended\n"), said


def test_a_host_that_loses_power_ends_the_run_and_the_other_host_is_left_empty(hosts: TwoHosts, tmp_path: Path) -> None:
    work = placed(hosts, stop={"seconds": 90})
    controller = controlled(work, tmp_path)
    began = time.monotonic()
    result = run_while(controller, lambda: hosts.power_off(2))
    assert result.kind == "worker failure" and result.first.worker == "counter/1", result.format()
    assert "ssh cannot connect, or the connection broke" in result.format()
    assert time.monotonic() - began < 60
    assert hosts.processes(1) == []


@pytest.mark.parametrize("how", ["power", pytest.param("cable", marks=pytest.mark.long)])
def test_a_host_that_is_lost_comes_back(hosts: TwoHosts, tmp_path: Path, how: str) -> None:
    work = placed(hosts, stop={"seconds": 100}, on_failure="restart")
    controller = controlled(work, tmp_path, LaunchedBackend(work, tmp_path, lease=5.0))

    def lose() -> None:
        hosts.power_off(2) if how == "power" else hosts.cut(2)
        until(lambda: controller.totals.restarts["counter"] == 1)
        hosts.power_on(2) if how == "power" else hosts.plug(2)
        until(lambda: controller._members.phases["counter/1"] == "running")
        before = arrived(controller, "counter/1")
        until(lambda: arrived(controller, "counter/1") > before + 500)
        controller.stop()

    result = run_while(controller, lose)
    assert result.kind == "done", result.format()
    assert controller.totals.restarts == {"counter": 1}
    (ledger,) = controller.totals.ledgers()
    assert ledger.balanced, table([ledger])
    until(lambda: hosts.processes(1) == hosts.processes(2) == [])


@pytest.mark.long
def test_a_trainer_whose_host_loses_power_continues_from_its_checkpoint(hosts: TwoHosts, tmp_path: Path) -> None:
    one, two = ADDRESSES
    words = [
        "experiment=cartpole", "launcher=ssh", f"launcher.options=[{', '.join(map(repr, hosts.options))}]", "layout=impala",
        f"hosts.cpu={{addresses: [{one}]}}", f"hosts.gpu={{addresses: [{two}], shared: false}}", "workers.actor.hosts=cpu",
        "sampling.workers=1", "workers.trainer={hosts: gpu, on_failure: restart}", "workers.evaluator.hosts=gpu",
        "checkpoint.every=5", "stop={seconds: 240}", f"--runs={tmp_path / 'runs'}", "--quiet",
    ]  # fmt: skip
    command = [sys.executable, "-m", "srl.launch", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        try:
            until(lambda: run.poll() is not None or len(list(tmp_path.glob("runs/*/*/checkpoints/step_*"))) >= 2)
            (folder,) = tmp_path.glob("runs/*/*")
            hosts.power_off(2)
            saved = checkpoint.latest(folder / "checkpoints")
            assert saved is not None
            until(lambda: '"died"' in (folder / "events.jsonl").read_text(), 90)
            hosts.power_on(2)
            until(lambda: steps(folder) > checkpoint.step_of(saved), 90)
            assert subprocess.run([sys.executable, "-m", "srl", "stop", str(folder)], check=False).returncode == 0
            assert run.wait(60) == 130
            said = run.stdout.read() if run.stdout is not None else ""
            assert " ok\n" in said, said
        finally:
            run.kill()
    newest = checkpoint.latest(folder / "checkpoints")
    assert newest is not None and checkpoint.step_of(newest) > checkpoint.step_of(saved)
    until(lambda: hosts.processes(1) == hosts.processes(2) == [])


def steps(folder: Path) -> int:
    """Env steps of the newest checkpoint."""
    newest = checkpoint.latest(folder / "checkpoints")
    return checkpoint.step_of(newest) if newest is not None else 0


@pytest.mark.parametrize("seconds", [5, pytest.param(30, marks=pytest.mark.long)])
def test_nothing_is_lost_when_a_link_is_cut_for_a_while(hosts: TwoHosts, tmp_path: Path, seconds: float) -> None:
    work = placed(hosts, stop={"seconds": 110})
    controller = controlled(work, tmp_path)
    taken: list[int] = []

    def cut() -> None:
        hosts.cut(2)
        threading.Event().wait(seconds)
        hosts.plug(2)
        healed, before = time.monotonic(), arrived(controller, "counter/1")
        until(lambda: arrived(controller, "counter/1") > before + 500)
        taken.append(round(time.monotonic() - healed, 1))
        controller.stop()

    result = run_while(controller, cut)
    print(f"after a cut of {seconds} s: 500 numbers within {taken} s")
    assert result.kind == "done", result.format()
    assert not controller.totals.restarts
    (ledger,) = controller.totals.ledgers()
    assert ledger.balanced and not ledger.dropped.get("died"), table([ledger])
    assert hosts.processes(1) == hosts.processes(2) == []


def arrived(controller: Controller, worker: str) -> int:
    """What this worker has counted, as far as its host has reported."""
    seen = controller.totals._workers.get(worker)
    return int(seen.report.reading["env_steps"]) if seen is not None else 0


def test_a_host_that_is_off_is_named(hosts: TwoHosts, tmp_path: Path) -> None:
    hosts.power_off(2)
    result = controlled(placed(hosts), tmp_path).run()
    assert result.kind == "user error"
    text = str(result.problem())
    assert "host far/1 (10.78.0.2) did not join the run" in text and "Connection refused" in text, text
    assert hosts.processes(1) == []


@pytest.mark.parametrize(
    ("setting", "value", "because"),
    [
        ("python", "none", "there is no none"),
        ("python", "bare", "No module named 'srl'"),
        ("directory", "none", "there is no folder none"),
    ],
)
def test_what_is_missing_on_a_host_is_named(hosts: TwoHosts, tmp_path: Path, setting: str, value: str, because: str) -> None:
    (bare := tmp_path / "bare").write_text(f'#!/bin/sh\nexec {sys.executable} -IS "$@"\n')  # without any package
    bare.chmod(0o700)
    work = placed(hosts)
    launcher = Component("ssh", {**work.launcher.args, setting: str(bare) if value == "bare" else value})
    result = controlled(replace(work, launcher=launcher), tmp_path).run()
    assert result.kind == "user error"
    text = str(result.problem())
    assert "did not join the run" in text and because in text and f"try: launcher.{setting}=..." in text, text


def test_a_host_that_cannot_reach_the_controller_says_so(hosts: TwoHosts, tmp_path: Path) -> None:
    subprocess.run(["ip", "addr", "add", "10.79.0.1/32", "dev", "lo"], check=True)
    try:
        work = placed(hosts)
        launcher = Component("ssh", {**work.launcher.args, "address": "10.79.0.1"})
        result = controlled(replace(work, launcher=launcher), tmp_path).run()
    finally:
        subprocess.run(["ip", "addr", "del", "10.79.0.1/32", "dev", "lo"], check=True)
    assert result.kind == "user error"
    assert "cannot reach the controller at 10.79.0.1:" in str(result.problem())


def test_hosts_that_cannot_reach_each_other_are_named_before_the_start(hosts: TwoHosts, tmp_path: Path) -> None:
    one, two = ADDRESSES
    groups = {"cpu": HostGroup(addresses=(one,)), "gpu": HostGroup(addresses=(two,))}
    work = graph(counters=1, via="zmq", hosts=groups, launcher=Component("ssh", {"options": hosts.options}), stop={"seconds": 60})
    work = with_node(with_node(work, "counter", hosts="cpu"), "adder", hosts="gpu")
    subprocess.run(["ip", "-n", "srl-n1", "route", "add", "prohibit", two], check=True)
    result = controlled(work, tmp_path).run()
    assert result.kind == "user error" and result.exit_code == 2
    text = str(result.problem())
    assert f"host cpu/0 ({one}) cannot reach gpu/0 at {two}:" in text and "Permission denied" in text, text
    assert hosts.processes(1) == hosts.processes(2) == []


def test_what_would_be_run_is_shown(hosts: TwoHosts) -> None:
    shown = launcher_of(placed(hosts)).render()
    assert list(shown) == ["far/0", "far/1"]
    assert shown["far/1"].startswith("ssh -T ") and "srl.cluster.supervisor --lifeline --host 1" in shown["far/1"]
