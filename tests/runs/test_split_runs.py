"""Whole runs with a split learner: exact resumes, what a dead side means, and what the plan says."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from srl.control.controller import Controller
from srl.core.machine import Machine
from srl.core.types import Stop
from srl.plan.prepare import prepare
from srl.store.run_folder import RunFolder
from tests.waiting import until
from tests.errors import raises
from tests.runs.test_offpolicy_resume import go

SPLIT: dict[str, Any] = {
    "env": "Pendulum-v1",
    "algorithm": {"use": "sac", "critic": {"hidden": [16]}},
    "policy": {"hidden": [16], "normalize_obs": True},
    "replay": {"size": 2_000, "batch": 53, "warmup": 50, "updates_per_step": 0.5},
    "learner": {"use": "split"},
    "seed": 3,
}


def critics_of(pid: int) -> list[int]:
    """The processes of critics below a process."""
    found, waiting = [], [pid]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                for child in map(int, task.read_text().split()):
                    waiting.append(child)
                    if b"srl.learners.critics" in Path(f"/proc/{child}/cmdline").read_bytes():
                        found.append(child)
    return found


def test_inline_a_split_run_that_is_stopped_goes_on_as_a_single_one_would(tmp_path: Path) -> None:
    settings = {**SPLIT, "checkpoint": {"every": 100}}
    single = prepare(overrides=["mode=inline", "learner=single"], settings=settings)
    split = prepare(overrides=["mode=inline"], settings=settings)
    assert single.derived is not None and split.derived is not None
    wanted = go(replace(single.graph, stop=Stop(updates=90)), single.derived, RunFolder.create(tmp_path, "single", 3))
    folder = RunFolder.create(tmp_path, "halves", 3)
    go(replace(split.graph, stop=Stop(updates=50)), split.derived, folder)
    found = go(replace(split.graph, stop=Stop(updates=90)), split.derived, folder, resume=True)
    assert wanted.groups.keys() == found.groups.keys()
    for group in ("policy", "algorithm", "optimizer"):
        assert wanted.groups[group].keys() == found.groups[group].keys()
        for name, array in wanted.groups[group].items():
            np.testing.assert_array_equal(array, found.groups[group][name], err_msg=f"{group}/{name}")
    assert not critics_of(os.getpid())


@pytest.mark.parametrize(("side", "restart"), [("critics", False), ("actor", False), pytest.param("critics", True, marks=pytest.mark.long), pytest.param("actor", True, marks=pytest.mark.long)])
def test_a_side_that_is_killed_ends_the_run_or_both_begin_again(side: str, restart: bool, tmp_path: Path) -> None:
    workers = {"trainer": {"on_failure": "restart" if restart else "stop"}}
    settings = {**SPLIT, "checkpoint": {"every": 40}, "workers": workers, "stop": {"seconds": 100}}
    found = prepare(settings=settings, overrides=["sampling.workers=1"])
    folder = RunFolder.create(tmp_path, "run", 1)
    controller = Controller(found.graph, folder=folder, derived=found.derived)
    totals = controller.totals
    seen: dict[str, list[int]] = {}

    def now() -> list[int]:
        pid = controller._backend.processes.get("trainer/0")
        return critics_of(pid) if pid is not None else []

    def disturb() -> None:
        try:
            until(lambda: totals.total("updates") >= 60)
            done, seen["before"] = totals.total("updates"), now()
            os.kill(seen["before"][0] if side == "critics" else controller._backend.processes["trainer/0"], signal.SIGKILL)
            if restart:
                until(lambda: totals.restarts["trainer"] > 0 and bool(now()))
                seen["after"] = now()
                until(lambda: totals.total("updates") > done + 20)
        finally:
            if restart:
                controller.stop()

    thread = threading.Thread(target=disturb)
    thread.start()
    result = controller.run()
    thread.join()
    assert result.kind == ("done" if restart else "worker failure"), result.format()
    if restart:
        assert len(seen["after"]) == 1 and seen["after"] != seen["before"]
    else:
        assert ("the process of the critics has died" if side == "critics" else "trainer/0 died") in result.format()
        assert "algorithm.lr" not in result.format()
    left = [pid for pids in seen.values() for pid in pids]
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))  # orphans, which another process reaps


def refused(*overrides: str, machine: Machine | None = None) -> None:
    prepare(overrides=list(overrides), settings=SPLIT, machine=machine or Machine(2, 0, 1 << 34))


def test_devices_threads_and_modes_that_do_not_fit_are_refused() -> None:
    with raises("E08", match="needs device cuda:0, but this machine has no GPU"):
        refused("learner.devices=[cuda:0,cuda:1]")
    with raises("E08", match="needs device cuda:1, but this machine has 1 GPU"):
        refused("learner.devices=[cuda:0,cuda:1]", machine=Machine(2, 1, 1 << 34))
    with raises("E03", match="must be two GPUs, not cuda:0 twice"):
        refused("learner.devices=[cuda:0,cuda:0]")
    with raises("E03", match="must be .cpu, cpu. or two GPUs"):
        refused("learner.devices=[cpu,cuda:0]")
    with raises("E08", match="need a core each"):
        refused(machine=Machine(1, 0, 1 << 34))
    with raises("E10", match="one thread on each side, not 2"):
        refused("workers.trainer.threads=2")
    with raises("E10", match="algorithm dqn cannot be split"):
        refused("env=CartPole-v1", "algorithm=dqn", "policy=q_network")
    with raises("E10", match="2 trainers 'trainer' cannot train together with learner split"):
        refused("workers.trainer.count=2", "replay.batch=54")


def test_the_layout_without_waiting_has_a_process_for_each_and_a_split_learner() -> None:
    found = prepare(settings={**SPLIT, "learner": "auto", "layout": "spreeze"}, machine=Machine(4, 0, 1 << 34))
    trainer, replay = found.graph.node("trainer"), found.graph.node("replay")
    assert replay.inside is None and trainer.threads == 1
    assert trainer.loaded.learner.flat == {"use": "split", "mode": "asynchronous"}
    told = trainer.kind.about(trainer.loaded)
    assert told.endswith("; actor on cpu, critics on cpu in a process of their own, asynchronous, at most 4 updates apart")
