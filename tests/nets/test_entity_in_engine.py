"""The entity policy in a run of hide and seek: what was recorded is what training sees."""

from __future__ import annotations

from typing import Any

import torch

import srl
from srl.api.slab import Window

SETTINGS: dict[str, Any] = {
    "env": {"use": "hide_and_seek", "preset": "mini", "horizon": 10},
    # the scale of inputs moves after each update, so that it cannot be compared afterwards
    "policy": {"use": "entity", "embed": 16, "hidden": 16, "width": 8, "normalize_obs": False},
    "algorithm": {"use": "ppo", "window": 4, "epochs": 1, "minibatch": 10_000, "lr": 0.0, "normalize_value": True},
    "sampling": {"envs": 4, "steps": 16},
}


def test_recorded_probabilities_and_values_are_those_of_training_and_waiting_seekers_have_no_choice() -> None:
    with srl.build(**SETTINGS) as session:
        for _ in range(3):  # slabs meet ends of episodes, whose memory must be forgotten
            session.step()
        batch: Any = session.batch
        policy: Any = session.algorithm.policy
        assert batch.first.any() and not batch.valid.all()
        with torch.no_grad():
            for mini in batch.minibatches(10_000, window=Window(length=4)):
                heads = policy.unroll(mini)
                log_prob = policy.dist(heads, mini.mask).log_prob(mini.action)
                assert (log_prob - mini.extra["log_prob"])[mini.valid].abs().max() < 1e-4
                assert heads["value"].isfinite().all()
        is_hider = batch.obs["self"][:-1, :, -2] > 0
        waiting = batch.obs["self"][:-1, :, -1] < 1.0
        assert batch.choice[batch.valid & is_hider].all()
        assert torch.equal(batch.choice[~is_hider], (batch.valid & ~waiting)[~is_hider])
        assert (batch.valid & ~batch.choice).any()
