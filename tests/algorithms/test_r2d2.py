"""R2D2 against a loop over rows that acts step by step."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from srl.algorithms.r2d2 import R2D2
from srl.algorithms.returns import squash, unsquash
from srl.api.algorithm import Window
from srl.api.batch import Batch
from srl.api.env import Discrete
from srl.api.policy import Ask
from srl.core.seeds import Rng, row_keys
from srl.core.spec import Leaf
from srl.learners.single import SingleLearner
from srl.nets.q_network import QNetwork
from srl.nets.recurrent_q import RecurrentQ
from tests.algorithms.slabs import make

ROWS, ENVS = 9, 6
CONFIG: dict[str, Any] = {"burn_in": 3, "length": 4, "n_step": 3, "gamma": 0.9, "max_grad_norm": None}


def a_learner(config: dict[str, Any] | None = None, policy: dict[str, Any] | None = None, **settings: Any) -> SingleLearner:
    sizes = {"hidden": [12], "width": 8, **(policy or {})}
    learner = make(
        algorithm=R2D2, config={**CONFIG, **(config or {})}, policy=RecurrentQ, policy_config=sizes,
        steps=ROWS, envs=ENVS, memory_every=ROWS, **settings,
    )  # fmt: skip
    with torch.no_grad():
        for one in (learner.policy, learner.algorithm.target.net):
            for parameter in one.parameters():
                parameter += 0.3 * torch.randn(parameter.shape)
    return learner


def some_rows(learner: SingleLearner, *, mask: bool = False, seed: int = 0, steps: int = ROWS) -> dict[str, Any]:
    """Windows as a replay gives them, with ends of episodes anywhere."""
    noise = np.random.default_rng(seed)
    rows: dict[str, Any] = {
        "obs": noise.standard_normal((steps + 1, ENVS, 1, 5)).astype(np.float32),
        "action": noise.integers(0, 3, (steps, ENVS, 1)),
        "reward": (5 * noise.normal(size=(steps, ENVS, 1))).astype(np.float32),
        "first": np.zeros((steps + 1, ENVS, 1), bool),
        "valid": np.ones((steps, ENVS, 1), bool),
        "ids": np.arange(50, 50 + ENVS),
        "weight": noise.random(ENVS).astype(np.float32),
        "version": np.zeros(ENVS, np.int64),
        "memory": {"cell": noise.standard_normal((1, ENVS, 1, *learner.policy.memory["cell"].shape)).astype(np.float32)},  # type: ignore
    }
    end = noise.random((steps, ENVS, 1)) < 0.2
    end[:, 0] = False
    for t in range(1, steps):
        end[t] &= ~end[t - 1]
    rows["terminated"] = end & (noise.random(end.shape) < 0.5)
    rows["truncated"] = end & ~rows["terminated"]
    rows["valid"][1:] = ~end[:-1]
    rows["first"][2:] = end[:-1]
    if mask:
        rows["mask"] = noise.random((steps + 1, ENVS, 1, 3)) < 0.5
    return rows


def step_by_step(policy: Any, rows: dict[str, Any], memory: Any = None, start: int = 0) -> tuple[Any, list[Any]]:
    """Values of all rows from `start` on, and the memory before each of them, as an actor has them."""
    memory = np.array(rows["memory"]["cell"][0, :, 0] if memory is None else memory)
    q, memories = [], []
    ids = np.arange(ENVS)
    for t in range(start, len(rows["obs"])):
        first = rows["first"][t, :, 0]
        memories.append(memory)
        held = np.where(first[:, None], 0.0, memory).astype(np.float32)
        act = policy.act(Ask(rows["obs"][t, :, 0], {"cell": held}, first, None, None, ids, Rng(row_keys(0, ids, t)), True))
        q.append(act.extra["q"])
        memory = act.memory["cell"]
    return np.array(q, np.float64), memories


def h(x: float) -> float:
    return float(np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + 1e-3 * x)


def inverse_h(y: float) -> float:
    low, high = -1e7, 1e7
    for _ in range(200):  # by halving: h grows
        middle = (low + high) / 2
        low, high = (middle, high) if h(middle) < y else (low, middle)
    return low


def test_the_scale_of_values_and_its_inverse() -> None:
    x = torch.tensor([-3e4, -100.0, -1.0, -1e-3, 0.0, 1e-2, 1.0, 50.0, 1e5])
    np.testing.assert_allclose(squash(x).numpy(), [h(float(one)) for one in x], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(unsquash(squash(x)).numpy(), x.numpy(), rtol=1e-4, atol=1e-6)
    double = squash(x.double())
    np.testing.assert_allclose(unsquash(double).numpy(), [inverse_h(float(one)) for one in double], rtol=1e-7, atol=1e-6)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize(
    "config", [{}, {"double": False}, {"rescale": False, "n_step": 1, "length": 6}, {"burn_in": 0, "length": 7}]
)
def test_loss_and_priorities_are_those_of_a_loop_over_rows(config: dict[str, Any], mask: bool, cell: str) -> None:
    learner = a_learner(config, {"cell": cell}, mask=mask)
    have = learner.task.config
    rows = some_rows(learner, mask=mask)
    mine, theirs = (step_by_step(one, rows)[0] for one in (learner.policy, learner.algorithm.target.net))
    value = np.zeros((ROWS + 1, ENVS))
    for t in range(ROWS + 1):
        for b in range(ENVS):
            allowed = rows["mask"][t, b, 0] if mask else np.ones(3, bool)
            places = np.flatnonzero(allowed) if allowed.any() else np.arange(3)
            best = max(places, key=lambda i, t=t, b=b: (mine if have.double else theirs)[t, b, i])  # type: ignore[misc]
            value[t, b] = inverse_h(theirs[t, b, best]) if have.rescale else theirs[t, b, best]
    loss, count, priority = 0.0, 0, []
    for b in range(ENVS):
        errors = []
        for t in range(have.burn_in, have.burn_in + have.length):
            if not rows["valid"][t, b, 0]:
                continue
            total, at = 0.0, t
            for k in range(have.n_step):
                total += 0.9**k * rows["reward"][at, b, 0]
                at += 1
                if rows["terminated"][at - 1, b, 0] or rows["truncated"][at - 1, b, 0]:
                    break
            if not rows["terminated"][at - 1, b, 0]:
                total += 0.9 ** (at - t) * value[at, b]
            target = h(total) if have.rescale else total
            errors.append(abs(target - mine[t, b, rows["action"][t, b, 0]]))
            loss += 0.5 * errors[-1] ** 2
        count += len(errors)
        priority.append(0.9 * max(errors) + 0.1 * np.mean(errors))
    feedback = learner.update(rows)
    assert learner.metrics()["loss"] == pytest.approx(loss / count, rel=1e-3)
    assert feedback is not None and set(feedback.leaves) == {"priority"}
    np.testing.assert_array_equal(feedback.ids, rows["ids"])
    np.testing.assert_allclose(feedback.leaves["priority"], priority, rtol=1e-3)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_the_state_after_the_burn_in_is_that_of_a_longer_unroll_with_the_same_weights(cell: str) -> None:
    learner = a_learner({"refresh": True}, {"cell": cell})
    rows = some_rows(learner, steps=20)
    _, memories = step_by_step(learner.policy, rows)
    for start in range(20 - ROWS):
        window = {name: rows[name][start : start + ROWS + (name in ("obs", "first"))] for name in ("obs", "first", "valid")}
        cut = {name: rows[name][start : start + ROWS] for name in ("action", "reward", "terminated", "truncated")}
        memory = {"cell": memories[start][None, :, None]}
        batch = {**window, **cut, "memory": memory, **{name: rows[name] for name in ("ids", "weight", "version")}}
        found = learner.algorithm.warmed(learner.policy, learner.intake.batch(batch, 0))["cell"]
        np.testing.assert_allclose(found.numpy(), memories[start + 3], atol=1e-5)
    feedback = learner.update(batch)
    np.testing.assert_allclose(feedback.leaves["memory"]["cell"], found.numpy(), atol=1e-6)  # type: ignore[union-attr]


def test_no_gradient_flows_through_the_burn_in() -> None:
    learner = a_learner({"prioritised": False})
    rows = some_rows(learner)
    whole = copy.deepcopy(learner.policy)
    batch = learner.intake.batch(rows, 0)
    _, target = learner.algorithm.values(batch, learner.algorithm.warmed(learner.policy, batch))
    batch.detach_at = torch.zeros(ROWS + 1, ENVS, dtype=torch.bool)
    batch.detach_at[3] = True
    q = whole.unroll(batch)["q"][3:7].gather(-1, batch.action[3:7, :, None])[..., 0]
    valid = batch.valid[3:7]
    (0.5 * (target - q).square() * valid).sum().div(valid.sum()).backward()
    learner.update(rows)
    for mine, theirs in zip(learner.policy.parameters(), whole.parameters(), strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), atol=1e-5, rtol=1e-3)  # type: ignore[union-attr]
    assert float(max(one.grad.abs().max() for one in whole.parameters())) > 1e-3  # type: ignore[union-attr]


def test_rows_that_are_not_valid_change_nothing() -> None:
    results = []
    for spoil in (False, True):
        learner = a_learner({"length": 4})
        rows = some_rows(learner)
        assert (~rows["valid"]).sum() > 3
        if spoil:
            rows["reward"][~rows["valid"]] = 1e6
        results.append((learner.update(rows), {name: one.copy() for name, one in learner.params().items()}))
    for name, array in results[0][1].items():
        np.testing.assert_array_equal(array, results[1][1][name])
    np.testing.assert_array_equal(results[0][0].leaves["priority"], results[1][0].leaves["priority"])  # type: ignore[union-attr]


def test_windows_have_room_for_the_rewards_behind_their_last_row() -> None:
    needs = R2D2.needs(R2D2.Config(burn_in=8, length=16, n_step=5), None)  # type: ignore[arg-type]
    assert needs.window == Window(burn_in=8, length=16, after=4)
    assert needs.replay is not None and needs.replay.prioritised and needs.replay.n_step == 1


def test_memory_is_learned() -> None:
    """The first observation says which action pays at the end: nothing later does."""
    learner = make(
        algorithm=R2D2, config={"burn_in": 0, "length": 4, "n_step": 1, "gamma": 0.9, "lr": 5e-3, "target_every": 20, "tau": 1.0},
        policy=RecurrentQ, policy_config={"hidden": [16], "width": 16}, action=Discrete(2), obs=Leaf((2,), "float32"),
        steps=4, envs=64, memory_every=4,
    )  # fmt: skip
    noise = np.random.default_rng(0)
    for update in range(300):
        secret = noise.integers(0, 2, 64)
        obs = np.zeros((5, 64, 1, 2), np.float32)
        obs[0, np.arange(64), 0, secret] = 1.0
        action = noise.integers(0, 2, (4, 64, 1))
        reward = np.zeros((4, 64, 1), np.float32)
        reward[3, :, 0] = action[3, :, 0] == secret
        terminated = np.zeros((4, 64, 1), bool)
        terminated[3] = True
        first = np.zeros((5, 64, 1), bool)
        first[0] = True
        rows = {
            "obs": obs, "action": action, "reward": reward, "terminated": terminated, "truncated": np.zeros_like(terminated),
            "first": first, "valid": np.ones((4, 64, 1), bool), "memory": {"cell": np.zeros((1, 64, 1, 16), np.float32)},
            "ids": np.arange(64), "weight": np.ones(64, np.float32), "version": np.zeros(64, np.int64),
        }  # fmt: skip
        learner.clock.updates = update
        learner.update(rows)
    batch: Batch = learner.intake.batch(rows, 0)
    with torch.no_grad():
        q = unsquash(learner.policy.unroll(batch)["q"])
    right = q[3].gather(1, torch.from_numpy(secret)[:, None])[:, 0]
    wrong = q[3].gather(1, torch.from_numpy(1 - secret)[:, None])[:, 0]
    assert float((right - 1.0).abs().max()) < 0.15 and float(wrong.abs().max()) < 0.15


def test_a_policy_without_memory_can_be_trained_on_sequences() -> None:
    learner = make(algorithm=R2D2, config=CONFIG, policy=QNetwork, policy_config={"hidden": [8]}, steps=ROWS, envs=ENVS)
    rows = some_rows(a_learner())
    del rows["memory"]
    before = {name: one.copy() for name, one in learner.params().items()}
    assert learner.update(rows) is not None
    assert any((before[name] != one).any() for name, one in learner.params().items())
