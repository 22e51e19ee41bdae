"""Runs with two trainers of one policy, each in a process of its own."""

from __future__ import annotations

import contextlib
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
from srl.algorithms.ppo import PPO as PPOAlgorithm
from srl.control.controller import Controller
from srl.core.errors import UserError
from srl.plan.prepare import prepare
from srl.store import checkpoint
from srl.store.run_folder import RunFolder
from tests.waiting import until

PPO: dict[str, Any] = {
    "env": "CartPole-v1",
    "algorithm": {"use": "ppo", "minibatch": 64, "epochs": 2},
    "sampling": {"envs": 8, "steps": 16, "workers": 2},
    "workers": {"trainer": {"count": 2}},
    "checkpoint": {"every": 5},
}
SAC: dict[str, Any] = {
    "env": "Pendulum-v1",
    "algorithm": {"use": "sac", "critic": {"hidden": [32, 32]}},
    "policy": {"use": "squashed_gaussian", "hidden": [32, 32]},
    "replay": {"size": 10_000, "batch": 32, "warmup": 200},
    "workers": {"trainer": {"count": 2}},
    "checkpoint": {"every": 100},
}
KINDS = {"ppo": PPO, "sac": SAC, "ppo by turns": {**PPO, "layout": "inline"}}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """No process and no shared memory more than before."""
    before, alive = shared(), set(children())
    yield
    assert set(children()) <= alive and shared() <= before


def shared() -> set[str]:
    """Names in shared memory, but for those of multiprocessing, which tests beside this one may use."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("sem.mp-")}


def children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += map(int, (task / "children").read_text().split())
    return found


@pytest.mark.parametrize("kind", ["ppo", "sac"])
def test_a_run_ends_at_its_env_steps_and_adds_up(kind: str, tmp_path: Path) -> None:
    run = srl.launch(**KINDS[kind], stop={"env_steps": 800}, runs=tmp_path, quiet=True)
    assert run.result is not None and run.result.exit_code == 0, run.result.format()
    text = run.result.format()
    assert "ok" in text and "DOES NOT BALANCE" not in text
    last = run.metrics()[-1]
    assert 800 <= last["env_steps"] < 1000
    if kind == "ppo":
        assert last["total/optimizer_steps"] == 4 * last["update"]  # 128 rows of both: two minibatches, two epochs
        assert last["total/trained_rows"] == last["env_steps"]
    else:  # every update takes a batch of each replay
        assert 2 * last["update"] <= last["total/replay/batches"] <= 2 * last["update"] + 4
        assert last["total/replay/batches"] / 2 == pytest.approx(last["total/replay/env_steps"] - 200, abs=70)
    assert [path.name for path in run.folder.iterdir() if path.name.startswith(".trainer")] == []


def test_trainers_that_act_and_learn_by_turns_repeat_a_run_exactly(tmp_path: Path) -> None:
    found = []
    for again in ("once", "twice"):
        run = srl.launch(**KINDS["ppo by turns"], stop={"env_steps": 1000}, runs=tmp_path / again, quiet=True)
        assert run.result is not None and run.result.exit_code == 0, run.result.format()
        assert len(list((run.folder / "logs").glob("trainer*"))) == 2 and not list((run.folder / "logs").glob("actor*"))
        saved = checkpoint.read(checkpoint.latest(run.folder / "checkpoints"))  # type: ignore[arg-type]
        found.append({name: array.copy() for name, array in saved.groups["policy"].items()})
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name])


@pytest.mark.parametrize("kind", ["ppo", "ppo by turns", pytest.param("sac", marks=pytest.mark.long)])
def test_a_resumed_run_goes_on_with_both(kind: str, tmp_path: Path) -> None:
    first = srl.launch(**KINDS[kind], stop={"env_steps": 1000}, runs=tmp_path, quiet=True)
    saved = checkpoint.read(checkpoint.latest(first.folder / "checkpoints"))  # type: ignore[arg-type]
    again = srl.launch(resume=first.folder, overrides=["stop.env_steps=1600"], quiet=True)
    assert again.result is not None and again.result.exit_code == 0, again.result.format()
    later = checkpoint.read(checkpoint.latest(first.folder / "checkpoints"))  # type: ignore[arg-type]
    assert later.state["updates"] > saved.state["updates"] and later.state["env_steps"] >= 1600
    assert any(not np.array_equal(array, later.groups["policy"][name]) for name, array in saved.groups["policy"].items())


@pytest.mark.parametrize("kind", ["ppo", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("ppo by turns", "sac"))])
@pytest.mark.parametrize(
    ("victim", "restart"),
    [
        ("trainer/0", False),
        ("trainer/1", True),
        pytest.param("trainer/1", False, marks=pytest.mark.long),
        pytest.param("trainer/0", True, marks=pytest.mark.long),
    ],
)
def test_a_killed_trainer_ends_the_run_or_all_start_again(kind: str, victim: str, restart: bool, tmp_path: Path) -> None:
    workers = {"trainer": {"count": 2, "on_failure": "restart" if restart else "stop"}}
    found = prepare(settings={**KINDS[kind], "stop": {"seconds": 40}, "workers": workers})
    folder = RunFolder.create(tmp_path, "run", 1)
    controller = Controller(found.graph, folder=folder, derived=found.derived)
    totals, every = controller.totals, KINDS[kind]["checkpoint"]["every"]
    known: dict[str, Any] = {}

    def updates() -> float:
        with contextlib.suppress(RuntimeError):  # the controller's thread has met another worker
            return totals.total("updates")
        return 0.0

    def disturb() -> None:
        until(lambda: updates() >= 3 * every)
        known["before"] = dict(controller._backend.processes)
        os.kill(known["before"][victim], signal.SIGKILL)
        if restart:
            until(lambda: totals.restarts["trainer"] == 1 and updates() > 0)
            until(lambda: set(controller._members.phases.values()) == {"running"})
            known["after"] = dict(controller._backend.processes)
            goal = updates() + 2 * every
            until(lambda: updates() > goal)
            controller.stop()

    thread = threading.Thread(target=disturb)
    thread.start()
    result = controller.run()
    thread.join()
    assert result.kind == ("done" if restart else "worker failure"), result.format()
    if restart:
        same = {name for name, pid in known["before"].items() if known["after"][name] == pid}
        assert same == ({"actor/0", "actor/1"} if kind != "ppo by turns" else set())
        assert {one.owner.incarnation for one in controller._members.values() if one.name.startswith("trainer")} == {1}
    else:
        assert [failure.worker for failure in result.failures] == [victim]
        assert result.checkpoint
    assert all(ledger.balanced for ledger in totals.ledgers()), result.format()


def test_ctrl_c_ends_both_at_one_update_and_saves(tmp_path: Path) -> None:
    found = prepare(settings={**PPO, "stop": {"seconds": 40}, "checkpoint": {"every": 0}})
    controller = Controller(found.graph, folder=RunFolder.create(tmp_path, "run", 1), derived=found.derived)

    def interrupt() -> None:
        until(lambda: controller.totals.env_steps > 1000)
        controller.stop()

    thread = threading.Thread(target=interrupt)
    thread.start()
    result = controller.run()
    thread.join()
    assert result.kind == "done" and result.failures == () and result.checkpoint, result.format()
    assert controller.totals.elapsed < 30
    assert len({seen.report.reading["updates"] for name, seen in controller.totals._workers.items() if "trainer" in name}) == 1


def test_a_network_that_ranks_cannot_share_is_refused_by_its_name(tmp_path: Path) -> None:
    crossed = {**SAC, "algorithm": {"use": "sac", "critic": {"hidden": [16], "norm": "batch", "tau": None}}}
    with pytest.raises(UserError, match="normalizes by the statistics of one batch"):
        srl.launch(**crossed, stop={"env_steps": 1000}, runs=tmp_path, quiet=True)


def test_a_trainer_that_waits_for_one_that_never_came_ends_with_the_run(tmp_path: Path) -> None:
    """One of them fails before they have met: the other neither hangs nor counts as a failure."""
    found = prepare(settings={**PPO, "algorithm": {"use": f"{__file__}:Late", "minibatch": 64}, "stop": {"seconds": 40}})
    controller = Controller(found.graph, folder=RunFolder.create(tmp_path, "run", 1), derived=found.derived)
    result = controller.run()
    assert result.kind == "worker failure" and [failure.worker for failure in result.failures] == ["trainer/1"], result.format()
    assert "never came" in result.failures[0].error and controller.totals.elapsed < result.failures[0].at + 5
    assert not [path for path in (tmp_path / "run").rglob(".trainer*")]


class Late(PPOAlgorithm):
    """Fails where it is not the first trainer."""

    def setup(self) -> None:
        super().setup()
        if sys.argv[1:2] == ["trainer/1"]:
            raise RuntimeError("never came")
