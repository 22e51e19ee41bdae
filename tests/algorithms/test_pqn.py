"""PQN against lambda-returns written as sums, over whole batches with ends of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from srl.algorithms.pqn import PQN
from srl.api.slab import SlabShape, slab_spec
from srl.config.shorthand import spelled_out
from srl.core.spec import zeros
from srl.learners.single import SingleLearner
from srl.nets.q_network import QNetwork
from srl.nets.recurrent_q import RecurrentQ
from tests.algorithms.slabs import make

MEMORY = {"policy": RecurrentQ, "policy_config": {"hidden": [8], "width": 8, "layer_norm": True}}
NONE = {"policy": QNetwork, "policy_config": {"hidden": [16], "layer_norm": True}}


def a_learner(config: dict[str, Any] | None = None, **settings: Any) -> SingleLearner:
    learner = make(algorithm=PQN, config={"lr": 1e-3, **(config or {})}, **{**NONE, **settings})
    with torch.no_grad():
        for parameter in learner.policy.parameters():
            parameter += 0.3 * torch.randn(parameter.shape)
    return learner


def some_rows(learner: SingleLearner, seed: int = 0, ends: float = 0.2) -> dict[str, Any]:
    """A slab with terminations and truncations; the row behind each is not valid and holds the episode's last observation."""
    noise = np.random.default_rng(seed)
    spec = learner.task.spec
    rows = zeros(slab_spec(learner.task.shape, spec, memory=learner.policy.memory, extra={}, signals={}))
    rows["obs"] = noise.standard_normal(rows["obs"].shape).astype(np.float32)
    rows["action"] = noise.integers(0, 3, rows["action"].shape)
    rows["reward"] = noise.normal(size=rows["reward"].shape).astype(np.float32)
    rows["valid"][...] = True
    if spec.mask:
        rows["mask"] = noise.random(rows["mask"].shape) < 0.5
        rows["choice"][...] = True
    steps, envs, agents = rows["valid"].shape
    for t in range(steps):
        for e in range(envs):
            for a in range(agents):
                if rows["valid"][t, e, a] and noise.random() < ends:
                    rows["terminated" if noise.random() < 0.5 else "truncated"][t, e, a] = True
                    if t + 1 < steps:
                        rows["valid"][t + 1, e, a] = False
                        rows["first"][min(t + 2, steps), e, a] = True
    if "memory" in rows:
        rows["memory"]["cell"] = 0.5 * noise.standard_normal(rows["memory"]["cell"].shape).astype(np.float32)
    return rows


def slow_target(rewards: Any, best: Any, terminated: Any, cut: Any, gamma: float, lam: float) -> Any:
    """Of one column: the n-step returns up to the next cut or the end of the slab, mixed by (1 - lam) lam^(n - 1)."""
    targets = []
    for t in range(len(rewards)):
        returns, total = [], 0.0
        for n in range(len(rewards) - t):
            total += gamma**n * rewards[t + n]
            returns.append(total + (0.0 if terminated[t + n] else gamma ** (n + 1) * best[t + n + 1]))
            if cut[t + n]:
                break
        shares = [(1 - lam) * lam**n for n in range(len(returns) - 1)] + [lam ** (len(returns) - 1)]
        targets.append(sum(share * one for share, one in zip(shares, returns, strict=True)))
    return np.array(targets)


@pytest.mark.parametrize("lam", [0.0, 0.65, 1.0])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("memory", [False, True])
def test_targets_are_mixed_n_step_returns_to_the_values_of_the_best_allowed_actions(memory: bool, mask: bool, lam: float) -> None:
    learner = a_learner({"lam": lam, "gamma": 0.9}, mask=mask, **(MEMORY if memory else NONE))
    rows = some_rows(learner)
    batch = learner.intake.batch(rows, 0)
    found = learner.algorithm.targets(batch)
    with torch.no_grad():
        q = learner.policy.unroll(batch)["q"].double().numpy()
    assert rows["terminated"].any() and rows["truncated"].any()
    for b in range(q.shape[1]):
        allowed = rows["mask"][:, b, 0] if mask else np.ones((len(q), 3), bool)
        allowed |= ~allowed.any(1, keepdims=True)
        best = np.where(allowed, q[:, b], -np.inf).max(1)
        terminated, truncated, valid = (rows[name][:, b, 0] for name in ("terminated", "truncated", "valid"))
        expected = slow_target(rows["reward"][:, b, 0], best, terminated, terminated | truncated | ~valid, 0.9, lam)
        np.testing.assert_allclose(found[:, b].numpy()[valid], expected[valid], rtol=1e-4, atol=1e-4)


def test_a_truncated_episode_continues_beyond_its_end_and_a_terminated_one_does_not() -> None:
    learner = a_learner({"gamma": 0.9, "lam": 1.0}, envs=2)
    rows = some_rows(learner, ends=0.0)
    rows["truncated"][3, 0], rows["terminated"][3, 1] = True, True
    rows["valid"][4], rows["first"][5] = False, True
    batch = learner.intake.batch(rows, 0)
    found = learner.algorithm.targets(batch)
    with torch.no_grad():
        last = float(learner.policy.unroll(batch)["q"][4, 0].max())
    assert abs(last) > 0.05
    assert float(found[3, 0]) == pytest.approx(rows["reward"][3, 0, 0] + 0.9 * last, rel=1e-4)
    assert float(found[3, 1]) == pytest.approx(rows["reward"][3, 1, 0], rel=1e-4)


@pytest.mark.parametrize("memory", [False, True])
def test_one_step_moves_along_the_gradient_of_the_mean_squared_error_of_valid_rows(memory: bool) -> None:
    config = {"epochs": 1, "minibatch": 4096, "max_grad_norm": None}
    learner = a_learner(config, **(MEMORY if memory else NONE))
    rows = some_rows(learner)
    batch = learner.intake.batch(rows, 0)
    target = learner.algorithm.targets(batch)
    q = learner.policy.unroll(batch)["q"][:-1]
    loss = torch.zeros((), dtype=torch.float64)
    for t in range(q.shape[0]):
        for b in range(q.shape[1]):
            if rows["valid"][t, b, 0]:
                loss = loss + 0.5 * (q[t, b, rows["action"][t, b, 0]] - target[t, b]).double() ** 2 / rows["valid"].sum()
    expected = torch.autograd.grad(loss, list(learner.policy.parameters()))
    learner.update(rows)
    assert learner.metrics()["loss"] == pytest.approx(float(loss.detach()), rel=1e-4)
    found = np.concatenate([view.detach().reshape(-1).numpy() for view in learner.algorithm.adam.grads])
    np.testing.assert_allclose(found, torch.cat([one.reshape(-1) for one in expected]).numpy(), atol=1e-5)


def test_it_finds_the_values_of_a_chain() -> None:
    """Three states in a row, a step to the right costs nothing, the last one pays 1 and ends: values 0.81, 0.9, 1."""
    learner = make(algorithm=PQN, config={"lr": 3e-3, "gamma": 0.9, "lam": 0.0, "minibatch": 64}, **NONE, steps=16, envs=8)
    noise = np.random.default_rng(0)
    state = np.zeros(8, int)
    ended = np.zeros(8, bool)
    for update in range(150):
        rows = zeros(slab_spec(SlabShape(steps=16, envs=8, agents=1), learner.task.spec, memory={}, extra={}, signals={}))
        for t in range(17):
            rows["obs"][t, np.arange(8), 0, state] = 1.0
            if t == 16:
                break
            rows["action"][t, :, 0] = noise.integers(0, 3, 8)
            rows["valid"][t, :, 0] = ~ended
            right = rows["action"][t, :, 0] == 2
            arrived = right & (state == 2) & ~ended
            rows["reward"][t, :, 0] = arrived
            rows["terminated"][t, :, 0] = arrived
            state = np.where(ended, 0, np.where(right & ~arrived, state + 1, state))
            ended = arrived
        learner.clock.updates = update
        learner.update(rows)
    with torch.no_grad():
        obs = torch.eye(5)[None, :3]
        q = learner.policy.tower(obs)[0, :, :, 0]
    np.testing.assert_allclose(q[:, 2], [0.81, 0.9, 1.0], atol=0.06)
    np.testing.assert_allclose(q[:, 0], [0.729, 0.81, 0.9], atol=0.06)


def test_its_policy_has_layer_normalization_unless_it_is_named() -> None:
    assert spelled_out({"algorithm": "pqn"})["policy"] == {"use": "q_network", "layer_norm": True}
    both = spelled_out({"algorithm": {"use": "pqn"}, "policy": {"hidden": [8]}})
    assert both["policy"] == {"use": "q_network", "layer_norm": True, "hidden": [8]}
    assert spelled_out({"algorithm": "pqn", "policy": "recurrent_q"})["policy"] == "recurrent_q"
    assert spelled_out({"algorithm": "dqn"})["policy"] == "q_network"
