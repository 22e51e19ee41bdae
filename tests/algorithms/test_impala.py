"""IMPALA against a loop over rows, and what its correction is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srl
from srl.algorithms.impala import Impala
from srl.nets.recurrent import Recurrent
from tests.algorithms.slabs import make, record, train

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.mark.parametrize("correct", [True, False])
def test_the_loss_is_that_of_a_loop_over_rows(correct: bool) -> None:
    config = {"gamma": 0.9, "clip_rho": 1.1, "clip_c": 0.8, "correct": correct}
    learner = make(algorithm=Impala, config=config, mask=True)
    rows = record(learner)
    noise = np.random.default_rng(1)
    rows["extra"]["log_prob"] += 0.3 * noise.normal(size=rows["extra"]["log_prob"].shape).astype(np.float32)  # an older policy's
    with torch.no_grad():
        batch = learner.intake.batch(rows, 0)
        heads = learner.policy.unroll(batch)
        now = {"logits": heads["logits"][:-1]}
        log_prob = learner.policy.dist(now, batch.mask[:-1]).log_prob(batch.action).double().numpy()
        value = heads["value"].double().numpy()
    flags = {name: rows[name][..., 0] for name in ("valid", "terminated", "truncated", "choice", "reward")}
    ratio = np.exp(log_prob - rows["extra"]["log_prob"][:-1, :, 0])
    ratio[~(flags["valid"] & flags["choice"]) | (not correct)] = 1.0
    target, policy, error = value.copy(), 0.0, 0.0
    for b in range(6):
        for t in range(15, -1, -1):  # backwards, as the paper has it
            over = not flags["valid"][t, b] or flags["terminated"][t, b] or flags["truncated"][t, b]
            beyond = 0.0 if flags["terminated"][t, b] else value[t + 1, b]
            delta = min(1.1, ratio[t, b]) * (flags["reward"][t, b] + 0.9 * beyond - value[t, b])
            later = 0.0 if over else 0.9 * min(0.8, ratio[t, b]) * (target[t + 1, b] - value[t + 1, b])
            target[t, b] = value[t, b] + delta + later
            if flags["valid"][t, b]:
                error += (target[t, b] - value[t, b]) ** 2
                after = beyond if over else target[t + 1, b]
                advantage = min(1.1, ratio[t, b]) * (flags["reward"][t, b] + 0.9 * after - value[t, b])
                policy -= flags["choice"][t, b] * log_prob[t, b] * advantage
    shown = train(learner, rows)
    assert shown["value_loss"] == pytest.approx(error / flags["valid"].sum(), rel=1e-4)
    assert shown["policy_loss"] == pytest.approx(policy / (flags["valid"] & flags["choice"]).sum(), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("policy", [None, Recurrent])
def test_rows_of_the_present_policy_need_no_correction(policy: Any) -> None:
    learner = make(algorithm=Impala, **({"policy": policy} if policy else {}))
    assert train(learner, record(learner))["rho"] == pytest.approx(1.0, abs=1e-5)


def test_rows_that_are_not_valid_change_nothing() -> None:
    results = []
    for spoil in (False, True):
        learner = make(algorithm=Impala, mask=True)
        rows = record(learner)
        if spoil:
            off = ~rows["valid"]
            rows["reward"][off] = 1e6
            rows["extra"]["log_prob"][:-1][off | ~rows["choice"]] = -500.0
        learner.update(rows)
        results.append({name: array.copy() for name, array in learner.params().items()})
    for name in results[0]:
        np.testing.assert_array_equal(results[0][name], results[1][name])


def test_it_learns_which_action_pays() -> None:
    learner = make(algorithm=Impala, config={"lr": 3e-3, "gamma": 0.0}, envs=16, steps=32)
    for update in range(150):
        rows = record(learner, seed=update % 10, dense=True)
        rows["reward"][...] = rows["action"] == (rows["obs"][:-1, :, :, 0] > 0) * 2
        learner.update(rows)
    rows = record(learner, seed=99)
    assert (rows["action"] == (rows["obs"][:-1, :, :, 0] > 0) * 2).mean() > 0.85


@pytest.mark.parametrize("updates", [0, 3, 8])
def test_a_worker_on_the_parameter_stream_holds_actors_back(updates: int) -> None:
    words = [f"graph.nodes.hold.args.updates={updates}", "stop.updates=20"]
    with srl.build(EXAMPLES / "held_back.yaml", overrides=words) as session:
        session.step(updates + 2)
        trainer: Any = session.workers["trainer/0"]
        for _ in range(3):
            session.step()
            assert updates <= trainer.source.lag.max() <= min(updates + 1, 8)
