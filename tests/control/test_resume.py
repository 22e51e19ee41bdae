from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rig import derived, graph, with_node

from srl.control.controller import Controller
from srl.graph.derive import Derived
from srl.graph.spec import Graph, Stop
from srl.store import checkpoint
from srl.store.run_folder import RunFolder


def go(work: Graph, found: Derived, folder: RunFolder, resume: bool = False) -> checkpoint.Checkpoint:
    verdict = Controller(work, folder=folder, derived=found, resume=folder.path if resume else None).run()
    assert verdict.kind == "done", verdict.format()
    path = checkpoint.latest(folder.checkpoints)
    assert path is not None
    return checkpoint.read(path)


def same(one: checkpoint.Checkpoint, other: checkpoint.Checkpoint) -> None:
    assert one.groups.keys() == other.groups.keys()
    for group, arrays in one.groups.items():
        assert arrays.keys() == other.groups[group].keys()
        for name, array in arrays.items():
            if name.startswith("evaluator/"):  # an evaluation that a stop cuts short is given up; nobody learns from it
                continue
            np.testing.assert_array_equal(array, other.groups[group][name], err_msg=f"{group}/{name}")


@pytest.mark.parametrize("stop", [400, 430])
def test_a_stop_at_a_barrier_and_a_resume_are_the_straight_run(stop: int, tmp_path: Path) -> None:
    work = graph(mode="inline", counters=1, add={"every": 200}, stop={"env_steps": 1000})
    straight = go(work, derived(work), RunFolder.create(tmp_path, "straight", 1))
    folder = RunFolder.create(tmp_path, "halves", 1)
    half = go(replace(work, stop=Stop(env_steps=stop)), derived(work), folder)
    assert half.step == stop and int(half.groups["workers"]["host/barriers"]) == 2 + (stop == 430)
    whole = go(work, derived(work), folder, resume=True)
    assert whole.step == 1000
    if stop == 400:
        same(straight, whole)
    assert folder.read_status()["incarnation"] == 1


@pytest.mark.parametrize(("actors", "groups", "staleness"), [(1, 1, 0), (3, 1, 0), (2, 2, 1)])
def test_ppo_resumes_bit_for_bit(actors: int, groups: int, staleness: int, tmp_path: Path) -> None:
    from srl.graph.derive import derive
    from srl.graph.prepare import prepare

    chosen: dict[str, Any] = {"checkpoint": {"every": 2}, "seed": 5, "algorithm": {"lr": 1e-3}}
    work = prepare("cartpole", ["mode=inline"], settings=chosen, look=False).graph
    sizes = {"envs": 16, "steps": 64, "groups": groups}
    work = with_node(work, "actor", count=actors, args={**work.node("actor").args, **sizes})
    work = with_node(work, "trainer", args={**work.node("trainer").args, "slabs": actors, "staleness": staleness})
    work = replace(work, stop=Stop(updates=6))
    found = derive(work)
    straight = go(work, found, RunFolder.create(tmp_path, "straight", 5))
    folder = RunFolder.create(tmp_path, "halves", 5)
    go(replace(work, stop=Stop(updates=2)), found, folder)
    same(straight, go(work, found, folder, resume=True))


def test_a_resume_of_too_few_episodes_has_no_answer_and_does_not_give_the_old_one(tmp_path: Path) -> None:
    work = graph(mode="inline", stop={"env_steps": 400}, expect={"return": 1})
    folder = RunFolder.create(tmp_path, "halves", 1)
    go(work, derived(work), folder)
    first = folder.read_status()
    assert first["held"] is True and first["reached"]["return"] > 100
    longer = replace(work, stop=Stop(env_steps=440))
    verdict = Controller(longer, folder=folder, derived=derived(work), resume=folder.path).run()
    assert dict(verdict.summary)["expect"] == "return 1: not reached (fewer than 100 episodes)"
    assert (folder.read_status()["held"], folder.read_status()["reached"]) == (False, {})
