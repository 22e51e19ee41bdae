"""The running normaliser against moments of all rows at once."""

from __future__ import annotations

import numpy as np
import torch

from srl.api.batch import Batch
from srl.api.env import Discrete
from srl.api.policy import PolicySpec
from srl.core.spec import Leaf
from srl.nets.actor_critic import ActorCritic
from srl.nets.normalizer import Normalizer


def test_moments_are_those_of_all_rows_however_they_came() -> None:
    noise = np.random.default_rng(0)
    rows = torch.from_numpy((noise.normal(size=(1_000, 3)) * [1.0, 100.0, 1e-3] + [1e4, 0.0, 5.0]).astype(np.float32))
    normalizer = Normalizer(3)
    for start, stop in ((0, 1), (1, 300), (300, 300), (300, 1_000)):
        normalizer.observe(rows[start:stop])
    exact = rows.double()
    torch.testing.assert_close(normalizer.total_mean, exact.mean(0))
    torch.testing.assert_close(normalizer.total_var, exact.var(0, correction=0), rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(normalizer(rows).std(0), torch.ones(3), rtol=2e-2, atol=0.0)


def test_it_sees_each_valid_row_once_and_never_the_bootstrap_row() -> None:
    policy = ActorCritic(ActorCritic.Config(normalize_obs=True), PolicySpec(obs=Leaf((2,), "float32"), action=Discrete(2)))
    obs = torch.randn(4, 3, 2)
    valid = torch.tensor([[True, True, False], [True, False, True], [True, True, True]])
    policy.observe(Batch.of(obs=obs, reward=torch.zeros(3, 3), valid=valid))
    assert policy.normalizer.count == 7
    torch.testing.assert_close(policy.normalizer.total_mean, obs[:3][valid].double().mean(0))


def test_before_anything_was_seen_inputs_pass_as_they_are_but_clipped() -> None:
    assert Normalizer(2)(torch.tensor([[3.0, -70.0]])).tolist() == [[3.0, -10.0]]
