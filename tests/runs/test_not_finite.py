"""Numbers that are not finite stop a run before they reach the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srl
from srl.algorithms.impala import Impala
from srl.algorithms.ppo import PPO
from srl.api.algorithm import Batch, Metrics
from srl.core.errors import RunError
from srl.store import checkpoint
from tests.algorithms.slabs import make, record

SMALL: dict[str, Any] = {"env": "CartPole-v1", "sampling": {"envs": 4, "steps": 16}, "evaluation": None, "mode": "inline"}


class Poisoned(PPO):
    """One reward is NaN, once."""

    def update(self, batch: Batch) -> Metrics:
        if self.clock.updates == 5:
            batch.reward[3, 2] = torch.nan
        return super().update(batch)


class Broken(PPO):
    """Breaks the weights by itself."""

    def update(self, batch: Batch) -> Metrics:
        metrics = super().update(batch)
        if self.clock.updates == 5:
            with torch.no_grad():
                next(self.policy.parameters()).fill_(torch.inf)
        return metrics


@pytest.mark.parametrize("algorithm", [PPO, Impala])
@pytest.mark.parametrize("leaf", ["reward", "obs"])
def test_one_nan_in_a_batch_changes_no_weight(algorithm: Any, leaf: str) -> None:
    learner = make(algorithm=algorithm)
    learner.update(record(learner))
    rows = record(learner, seed=1, dense=True)
    rows[leaf][3, 2] = np.nan
    before = {name: array.copy() for name, array in learner.params().items()}
    with pytest.raises(RunError) as caught:
        learner.update(rows)
    assert caught.value.code == "R05"
    if algorithm is Impala:  # PPO has made steps on other minibatches
        for name, array in learner.params().items():
            np.testing.assert_array_equal(array, before[name])
    assert all(np.isfinite(array).all() for array in learner.params().values())


def end(runs: Path, algorithm: Any, **settings: Any) -> tuple[str, checkpoint.Checkpoint | None]:
    """The error of a run, and its last checkpoint."""
    words = {**SMALL, "algorithm": {"use": algorithm, **settings}, "checkpoint": {"every": 2}, "stop": {"updates": 8}}
    with pytest.raises(RunError) as caught:
        srl.launch(**words, runs=runs, quiet=True)
    last = checkpoint.latest(next(runs.glob("*/*")) / "checkpoints")
    return str(caught.value), None if last is None else checkpoint.read(last)


def test_a_run_with_one_nan_reward_stops_with_the_batch_and_keeps_the_last_sound_checkpoint(tmp_path: Path) -> None:
    text, saved = end(tmp_path, Poisoned)
    assert "error[R05]: policy 'main', update 5" in text
    assert "reward has 1 of 64 such numbers, the first at [3, 2, 0]" in text
    path = checkpoint.latest(next(tmp_path.glob("*/*")) / "failed" / "main")
    assert path is not None and np.isnan(checkpoint.read(path).tree("rows")["reward"][3, 2, 0])
    assert saved is not None and saved.state["updates"] == 4
    assert all(np.isfinite(array).all() for array in saved.groups["policy"].values())


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_a_learning_rate_out_of_all_bounds_ends_the_run_and_leaves_no_checkpoint(tmp_path: Path) -> None:
    text, saved = end(tmp_path, "ppo", lr=1e30)
    assert "error[R05]" in text and saved is None


def test_parameters_are_checked_before_they_are_written(tmp_path: Path) -> None:
    text, saved = end(tmp_path, Broken)
    assert "error[R05]" in text and saved is not None and saved.state["updates"] == 4
