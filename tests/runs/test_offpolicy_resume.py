"""Resumes of off-policy runs: exact inline, replay included; else with the replay saved, or filled again."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srl
from srl.control.controller import Controller
from srl.core.types import Stop
from srl.graph.spec import Graph
from srl.plan.prepare import prepare
from srl.plan.specs import Derived
from srl.store import checkpoint
from srl.store.run_folder import RunFolder
from tests.runs.test_offpolicy import FAKE, SMALL, WITNESS

PLAIN: dict[str, Any] = {"algorithm": {"use": WITNESS}}
WAYS: dict[str, dict[str, Any]] = {
    "one env": PLAIN,
    "priorities, long slabs": {
        "algorithm": {"use": WITNESS, "prioritised": True, "n_step": 3},
        "sampling": {"envs": 2, "steps": 7},
        "replay": {**SMALL, "updates_per_step": 0.5},
    },
    "several updates per step, ahead": {**PLAIN, "replay": {**SMALL, "updates_per_step": 3, "ahead": 9}},
    "shards": {
        "algorithm": {"use": WITNESS, "prioritised": True},
        "sampling": {"envs": 2, "workers": 2},
        "replay": {**SMALL, "shards": 2},
    },
    "sequences with memory": {
        "env": "cartpole_positions",
        "algorithm": {"use": "r2d2", "burn_in": 2, "length": 4, "n_step": 3, "refresh": True, "target_every": 70, "epsilon": 0.3},
        "policy": {"hidden": [8], "width": 8, "normalize_obs": True},
        "sampling": {"envs": 2, "steps": 4},
        "replay": {**SMALL, "updates_per_step": 0.5},
    },
    "an env that cannot be saved": {
        "env": f"{Path(__file__).parents[2] / 'docs/examples/my_env.py'}:Corridor",
        "algorithm": {"use": f"{Path(__file__).parent / 'witness.py'}:Silent"},
    },
}


def go(work: Graph, derived: Derived, folder: RunFolder, *, resume: bool = False) -> checkpoint.Checkpoint:
    result = Controller(work, folder=folder, derived=derived, resume=folder.path if resume else None).run()
    assert result.kind == "done", result.format()
    path = checkpoint.latest(folder.checkpoints)
    assert path is not None
    return checkpoint.read(path)


@pytest.mark.parametrize("way", WAYS)
def test_inline_a_stop_and_a_resume_are_the_straight_run(way: str, tmp_path: Path) -> None:
    settings = {"replay": SMALL, "checkpoint": {"every": 200}, **FAKE, **WAYS[way]}
    prepared = prepare(overrides=["mode=inline"], settings=settings)
    work, derived = prepared.graph, prepared.derived
    assert derived is not None
    work = replace(work, stop=Stop(updates=800))
    straight = go(work, derived, RunFolder.create(tmp_path, "straight", 3))
    folder = RunFolder.create(tmp_path, "halves", 3)
    half = go(replace(work, stop=Stop(updates=400)), derived, folder)
    whole = go(work, derived, folder, resume=True)
    assert half.state["updates"] == 400 and whole.state["updates"] == 800
    assert whole.state["env_steps"] == straight.state["env_steps"]
    assert any("/store/rings/obs" in name for name in whole.groups["workers"])
    for group, arrays in straight.groups.items():
        assert arrays.keys() == whole.groups[group].keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, whole.groups[group][name], err_msg=f"{group}/{name}")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run that saved its replay."""
    settings = {**FAKE, "replay": {**SMALL, "size": 4000, "warmup": 400}, "stop": {"env_steps": 1000}}
    settings |= {"checkpoint": {"replay": True}, "workers": {"replay": {"inside": None}}}
    run = srl.launch(**settings, runs=tmp_path_factory.mktemp("runs"), quiet=True)
    assert run.result is not None and run.result.kind == "done", run.result
    return run


@pytest.mark.parametrize("kept", [True, False])
def test_a_resume_goes_on_with_the_replay_or_fills_it_again_and_says_so(
    kept: bool, saved: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, before = shutil.copytree(saved.folder, tmp_path / "copy"), saved.metrics()[-1]
    if not kept:
        shutil.rmtree(folder / "replays")
    second = srl.launch(resume=folder, overrides=["stop.env_steps=1800"])
    assert ("is empty after a resume" in capsys.readouterr().out) is not kept
    last = second.metrics()[-1]
    steps, updates = (last[name] - before[name] for name in ("env_steps", "update"))
    assert 700 < steps < 900
    assert abs(updates - (steps if kept else steps - 400)) < 80
