from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rig import derived, graph, with_node

from srl.control.controller import Controller
from srl.core.types import Stop
from srl.graph.spec import Graph
from srl.plan.derive import derive
from srl.plan.prepare import prepare
from srl.plan.specs import Derived
from srl.store import checkpoint
from srl.store.run_folder import RunFolder
from srl.workers import league


def go(work: Graph, found: Derived, folder: RunFolder, resume: bool = False) -> checkpoint.Checkpoint:
    result = Controller(work, folder=folder, derived=found, resume=folder.path if resume else None).run()
    assert result.kind == "done", result.format()
    return newest(folder.checkpoints)


def newest(folder: Path) -> checkpoint.Checkpoint:
    path = checkpoint.latest(folder)
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
    chosen: dict[str, Any] = {"checkpoint": {"every": 2}, "seed": 5, "algorithm": {"lr": 1e-3}}
    work = prepare("cartpole", ["mode=inline"], settings=chosen, inspect=False).graph
    sizes = {"envs": 16, "steps": 64, "groups": groups}
    work = with_node(work, "actor", count=actors, args={**work.node("actor").args, **sizes})
    work = with_node(work, "trainer", args={**work.node("trainer").args, "slabs": actors, "staleness": staleness})
    work = replace(work, stop=Stop(updates=6))
    found = derive(work)
    straight = go(work, found, RunFolder.create(tmp_path, "straight", 5))
    folder = RunFolder.create(tmp_path, "halves", 5)
    go(replace(work, stop=Stop(updates=2)), found, folder)
    same(straight, go(work, found, folder, resume=True))


def test_an_evaluator_whose_policy_needs_torch_leaves_the_generator_as_it_is(tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"policy": {"use": "recurrent", "width": 4}, "checkpoint": {"every": 2}, "seed": 5}
    chosen |= {
        "sampling": {"envs": 4, "steps": 16},
        "algorithm": {"window": 8, "lr": 1e-3},
        "evaluation": {"every": 64, "episodes": 1},
    }
    work = replace(prepare("cartpole", ["mode=inline"], settings=chosen, inspect=False).graph, stop=Stop(updates=4))
    found = derive(work)
    straight = go(work, found, RunFolder.create(tmp_path, "straight", 5))
    folder = RunFolder.create(tmp_path, "halves", 5)
    go(replace(work, stop=Stop(updates=2)), found, folder)
    same(straight, go(work, found, folder, resume=True))


LEARNER: dict[str, Any] = {"policy": {"hidden": [4]}, "algorithm": {"use": "ppo", "minibatch": 32, "lr": 1e-2}}
PENNIES: dict[str, Any] = {
    "env": f"{Path(__file__).parents[2] / 'docs' / 'examples' / 'pennies.py'}:Pennies",
    "policies": {"even": LEARNER, "odd": LEARNER},
    "agents": {"even": "even", "odd": "odd"},
}
"""Cannot be saved: a barrier begins new episodes."""
TEAMS: dict[str, Any] = {
    "env": {"use": "fake", "teams": {"even": 2, "odd": 1}, "length": [5, 9], "end": "random"},
    "policies": {"even": LEARNER, "odd": LEARNER},
    "agents": {"even*": "even", "odd*": "odd"},
}
"""Can be saved in the middle of an episode."""


GAMES = {"pennies": PENNIES, "teams": TEAMS}
CHOICES = [("latest-2", 1, 1), ("uniform", 1, 2), ("uniform", 3, 1), ("win_rate", 1, 1), ("win_rate", 2, 2)]
SHORT = {"pennies": CHOICES[:3], "teams": CHOICES[3:]}


@pytest.mark.parametrize(
    ("game", "choose", "hold", "groups"),
    [
        pytest.param(GAMES[game], *choice, marks=() if choice in SHORT[game] else pytest.mark.long, id=f"{game}-{choice}")
        for game in GAMES
        for choice in CHOICES
    ],
)
def test_past_opponents_resume_bit_for_bit(
    game: dict[str, Any], choose: str, hold: int, groups: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(league, "HISTORY", 4)  # so that some are given up, and one that plays is kept no longer
    opponents = {"groups": groups, "keep_every": 1, "choose": choose, "hold": hold, "initial": 0.2}
    chosen: dict[str, Any] = {
        "sampling": {"envs": 4, "steps": 7, "workers": 1},
        "layout": "inline",
        "evaluation": None,
        "seed": 5,
    }
    chosen |= {"checkpoint": {"every": 2}, "opponents": opponents, **game}
    work = replace(prepare(overrides=["mode=inline"], settings=chosen, inspect=False).graph, stop=Stop(updates=14))
    found = derive(work)
    straight, folder = RunFolder.create(tmp_path, "straight", 5), RunFolder.create(tmp_path, "halves", 5)
    for run, updates in [(straight, 14), (folder, 6), (folder, 10), (folder, 14)]:
        stop = replace(work, stop=Stop(updates=updates))
        result = Controller(stop, folder=run, derived=found, resume=run.path if updates > 6 and run is folder else None).run()
        assert result.kind == "done", result.format()
    for policy in ("even", "odd"):
        same(newest(straight.checkpoints / policy), newest(folder.checkpoints / policy))


def test_a_resume_of_too_few_episodes_has_no_answer_and_does_not_give_the_old_one(tmp_path: Path) -> None:
    work = graph(mode="inline", stop={"env_steps": 400}, expect={"return": 1})
    folder = RunFolder.create(tmp_path, "halves", 1)
    go(work, derived(work), folder)
    first = folder.read_status()
    assert first["held"] is True and first["reached"]["return"] > 100
    longer = replace(work, stop=Stop(env_steps=440))
    result = Controller(longer, folder=folder, derived=derived(work), resume=folder.path).run()
    assert dict(result.summary)["expect"] == "return 1: not reached (fewer than 100 episodes)"
    assert (folder.read_status()["held"], folder.read_status()["reached"]) == (False, {})
