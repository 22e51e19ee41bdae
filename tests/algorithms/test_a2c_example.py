"""The example of the docs: found by name, and right."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from srl.core.registry import REGISTRIES
from tests.algorithms.slabs import make, record, train

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture
def a2c(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    sys.modules.pop("a2c", None)
    __import__("a2c")
    return REGISTRIES["algorithm"].resolve("a2c")


def test_it_has_at_most_sixty_lines() -> None:
    assert len((EXAMPLES / "a2c.py").read_text().splitlines()) <= 60


def test_its_gradient_is_that_of_the_rewards_written_out(a2c: Any) -> None:
    learner = make(algorithm=a2c, config={"steps": 3, "entropy": 0.0, "gamma": 0.9}, mask=True)
    rows = record(learner)
    before = {name: array.copy() for name, array in learner.params().items()}
    shown = train(learner, rows)
    value = rows["extra"]["value"][..., 0]
    error = count = 0.0
    for t, b in zip(*np.nonzero(rows["valid"][..., 0]), strict=True):
        target, weight = 0.0, 1.0
        for s in range(t, min(t + 3, 16)):
            target, weight = target + weight * rows["reward"][s, b, 0], weight * 0.9
            if rows["terminated"][s, b, 0] or rows["truncated"][s, b, 0]:
                break
        if not rows["terminated"][s, b, 0]:
            target += weight * value[s + 1, b]
        error, count = error + (target - value[t, b]) ** 2, count + 1
    assert float(shown["value_loss"]) == pytest.approx(error / count, rel=1e-4)
    assert any((array != before[name]).any() for name, array in learner.params().items())


def test_it_learns_which_action_pays(a2c: Any) -> None:
    learner = make(algorithm=a2c, config={"lr": 1e-2, "gamma": 0.0, "steps": 1}, envs=16, steps=32)
    for update in range(150):
        learner.clock.updates = update
        rows = record(learner, seed=update % 10, dense=True)
        rows["reward"][...] = rows["action"] == (rows["obs"][:-1, :, :, 0] > 0) * 2
        learner.update(rows)
    rows = record(learner, seed=99)
    assert (rows["action"] == (rows["obs"][:-1, :, :, 0] > 0) * 2).mean() > 0.85


def test_its_state_is_checkpointed_without_a_line_of_its_own(a2c: Any) -> None:
    torch.manual_seed(0)
    learner, other = make(algorithm=a2c), make(algorithm=a2c, seed=5)
    learner.update(record(learner))
    groups, state = learner.state()
    assert groups["optimizer"]["0.0.steps"] == 1
    other.restore(groups, state)
    rows = record(learner, seed=3)
    learner.update(rows), other.update(rows)
    for name, array in learner.params().items():
        np.testing.assert_array_equal(array, other.params()[name])
