"""Runs whose trainers of one policy are on different hosts: supervisors of their own, with folders of their own."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srl
from srl.algorithms.ppo import PPO
from srl.control.controller import Controller
from srl.launchers.backend import LaunchedBackend
from srl.plan.prepare import prepare
from srl.store import checkpoint
from srl.store.run_folder import RunFolder
from tests.cluster.two_hosts import ADDRESSES, TwoHosts, missing
from tests.waiting import run_while, until

BY_TURNS: dict[str, Any] = {
    "env": "CartPole-v1",
    "algorithm": {"use": f"{__file__}:Witness", "minibatch": 64, "epochs": 2},
    "sampling": {"envs": 8, "steps": 16},
    "layout": "inline",
    "evaluation": None,
    "checkpoint": {"every": 5},
}
OUT = "SRL_TEST_WITNESS"


class Witness(PPO):
    """Writes down what each trainer has after every update."""

    def update(self, batch: Any) -> Any:
        found = super().update(batch)
        if out := os.environ.get(OUT):
            weights = {name: value.numpy() for name, value in self.policy.state_dict().items()}
            np.savez(Path(out, f"{sys.argv[1].replace('/', '-')}.npz"), **weights)
        return found


def away(**trainer: Any) -> dict[str, Any]:
    """Two trainers, each on a host that does not see the run folder."""
    group = {"count": 2, "shared": False}
    return {"launcher": "loopback", "hosts": {"far": group}, "workers": {"trainer": {"count": 2, "hosts": "far", **trainer}}}


def controlled(tmp_path: Path, **more: Any) -> tuple[Controller, RunFolder]:
    """A run that lasts until it is disturbed."""
    found = prepare(settings={**BY_TURNS, "stop": {"seconds": 100}, **more})
    folder = RunFolder.create(tmp_path / "runs", "run", 1)
    backend = functools.partial(LaunchedBackend, found.graph, folder.path)
    return Controller(found.graph, folder=folder, derived=found.derived, backend=backend), folder


def written(folder: RunFolder) -> int:
    """Env steps of the newest checkpoint."""
    newest = checkpoint.latest(folder.checkpoints)
    return checkpoint.step_of(newest) if newest is not None else 0


def test_trainers_on_two_hosts_learn_what_they_learn_on_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for name, more in {"one": {"workers": {"trainer": {"count": 2}}}, "two": away()}.items():
        (out := tmp_path / f"{name} weights").mkdir()
        monkeypatch.setenv(OUT, str(out))
        run = srl.launch(**BY_TURNS, **more, stop={"env_steps": 600}, runs=tmp_path / name, quiet=True)
        assert run.result is not None and run.result.exit_code == 0, run.result.format()
        saved = checkpoint.read(checkpoint.latest(run.folder / "checkpoints"))  # type: ignore[arg-type]
        first, second = (dict(np.load(out / f"trainer-{rank}.npz")) for rank in range(2))
        for weight, array in first.items():
            np.testing.assert_array_equal(array, second[weight])
        found[name] = {"updates": np.array(saved.state["updates"]), **saved.groups["policy"], **saved.groups["optimizer"]}
        assert len([path for path in (run.folder / "checkpoints").iterdir() if path.name.startswith("step_")]) >= 1
    assert found["one"]["updates"] > 3
    for weight, array in found["one"].items():
        np.testing.assert_array_equal(array, found["two"][weight])


def pid_of(folder: RunFolder, process: str) -> int:
    """Of its last incarnation; on loopback hosts it is one of this machine."""
    lines = [json.loads(line) for line in (folder.path / "events.jsonl").read_text().splitlines()]
    return next(int(line["pid"]) for line in reversed(lines) if line.get("process") == process and "pid" in line)


@pytest.mark.parametrize(
    ("victim", "restart"),
    [
        ("trainer/1", True),
        pytest.param("trainer/1", False, marks=pytest.mark.long),
        pytest.param("trainer/0", False, marks=pytest.mark.long),
        pytest.param("trainer/0", True, marks=pytest.mark.long),
    ],
)
def test_a_killed_trainer_ends_the_run_or_all_start_again(victim: str, restart: bool, tmp_path: Path) -> None:
    controller, folder = controlled(tmp_path, **away(on_failure="restart" if restart else "stop"))
    totals = controller.totals
    known: dict[str, float] = {}

    def disturb() -> None:
        until(lambda: written(folder))
        known["killed"] = totals.elapsed
        os.kill(pid_of(folder, victim), signal.SIGKILL)
        if restart:
            until(lambda: totals.restarts["trainer"] == 1 and set(controller._members.phases.values()) == {"running"})
            before = written(folder)
            until(lambda: written(folder) > before)
            controller.stop()

    result = run_while(controller, disturb)
    assert result.kind == ("done" if restart else "worker failure"), result.format()
    if restart:
        assert totals.restarts == {"trainer": 1, "actor": 1, "policy": 1}
    else:
        assert [failure.worker for failure in result.failures] == [victim], result.format()
        assert result.failures[0].at - known["killed"] < 3 and totals.elapsed - known["killed"] < 8
        assert result.checkpoint


MISSING = missing()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[TwoHosts]:
    if MISSING:
        pytest.skip(MISSING)
    pair = TwoHosts(tmp_path)
    yield pair
    pair.close()


def by_ssh(hosts: TwoHosts) -> dict[str, Any]:
    settings = away()
    return {
        **settings,
        "hosts": {"far": {"addresses": list(ADDRESSES), "shared": False}},
        "launcher": {"use": "ssh", "options": hosts.options},
    }


@pytest.mark.long
def test_trainers_on_two_hosts_go_on_when_the_link_between_them_is_back(hosts: TwoHosts, tmp_path: Path) -> None:
    controller, folder = controlled(tmp_path, **by_ssh(hosts))

    def disturb() -> None:
        until(lambda: written(folder))
        hosts.part(apart=True)
        threading.Event().wait(4)
        hosts.part(apart=False)
        before = written(folder)
        until(lambda: written(folder) > before)
        controller.stop()

    result = run_while(controller, disturb)
    assert result.kind == "done" and not controller.totals.restarts, result.format()
    assert hosts.processes(1) == hosts.processes(2) == []


@pytest.mark.long
@pytest.mark.parametrize("how", ["between them", "to one of them"])
def test_a_link_that_stays_cut_ends_the_run(hosts: TwoHosts, tmp_path: Path, how: str) -> None:
    controller, folder = controlled(tmp_path, **by_ssh(hosts))
    known: dict[str, float] = {}

    def disturb() -> None:
        until(lambda: written(folder))
        known["cut"] = controller.totals.elapsed
        hosts.part(apart=True) if how == "between them" else hosts.cut(2)

    result = run_while(controller, disturb)
    assert result.kind == "worker failure" and result.first.worker == "trainer/1", result.format()
    if how == "between them":
        assert "no connection to it for 35 seconds" in result.format()
    assert controller.totals.elapsed - known["cut"] < 60
    assert hosts.processes(1) == []


@pytest.mark.long
def test_a_host_that_is_told_to_end_takes_the_others_with_it_until_it_is_back(tmp_path: Path) -> None:
    controller, folder = controlled(tmp_path, **away(on_failure="restart"))

    def disturb() -> None:
        until(lambda: written(folder))
        controller._backend.launcher.running[1].send_signal(signal.SIGTERM)  # type: ignore[attr-defined]
        until(lambda: {one.owner.incarnation for one in controller._members.values()} == {1})
        until(lambda: set(controller._members.phases.values()) == {"running"})
        before = written(folder)
        until(lambda: written(folder) > before)
        controller.stop()

    result = run_while(controller, disturb)
    assert result.kind == "done" and not controller.totals.restarts, result.format()
