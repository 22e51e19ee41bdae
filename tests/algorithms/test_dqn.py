"""DQN against loops over rows in plain numpy, and against a chain whose values are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from srl.algorithms.dqn import DQN
from srl.algorithms.returns import project
from srl.api.env import Discrete
from srl.core.spec import Leaf
from srl.learners.single import SingleLearner
from srl.nets.q_network import QNetwork
from srl.nets.q_policy import QPolicy
from srl.nets.recurrent_q import RecurrentQ
from tests.algorithms.slabs import make, train


def a_learner(config: dict[str, Any], policy: dict[str, Any] | None = None, **settings: Any) -> SingleLearner:
    learner = make(
        algorithm=DQN,
        config={"lr": 1e-3, **config},
        policy=QNetwork,
        policy_config={"hidden": [16], **(policy or {})},
        **settings,
    )
    with torch.no_grad():
        for one in (learner.policy, learner.algorithm.target.net):
            for parameter in one.parameters():
                parameter += 0.5 * torch.randn(parameter.shape)
    return learner


def some_rows(number: int = 32, *, mask: bool = False, seed: int = 0) -> dict[str, Any]:
    """Transitions as a replay gives them."""
    noise = np.random.default_rng(seed)
    rows: dict[str, Any] = {
        "obs": noise.standard_normal((2, number, 1, 5)).astype(np.float32),
        "action": noise.integers(0, 3, (1, number, 1)),
        "reward": noise.normal(size=(1, number, 1)).astype(np.float32),
        "discount": noise.choice([0.0, 0.9, 0.81], (1, number, 1)).astype(np.float32),
        "first": np.zeros((2, number, 1), bool),
        "valid": np.ones((1, number, 1), bool),
        "ids": np.arange(100, 100 + number),
        "weight": noise.random(number).astype(np.float32),
        "version": np.zeros(number, np.int64),
    }
    rows["terminated"] = rows["discount"] == 0.0
    rows["truncated"] = np.zeros_like(rows["terminated"])
    if mask:
        rows["mask"] = noise.random((2, number, 1, 3)) < 0.5
    return rows


def the_values(learner: SingleLearner, rows: dict[str, Any], name: str = "q") -> tuple[Any, Any]:
    """Of the policy and its target, before an update, in double precision."""
    batch = learner.intake.batch(rows, 0)
    with torch.no_grad():
        mine, theirs = (one.unroll(batch.asked(0))[name] for one in (learner.policy, learner.algorithm.target.net))
    return mine.double().numpy(), theirs.double().numpy()


def best_of(values: Any, allowed: Any) -> int:
    places = [i for i in range(len(values)) if allowed is None or allowed[i] or not allowed.any()]
    return max(places, key=lambda i: values[i])


@pytest.mark.parametrize("kind", ["huber", "mse"])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("double", [False, True])
def test_the_loss_is_that_of_a_loop_over_transitions(double: bool, mask: bool, kind: str) -> None:
    learner = a_learner({"double": double, "prioritised": True, "loss": kind}, {"dueling": True}, mask=mask)
    rows = some_rows(mask=mask)
    mine, theirs = the_values(learner, rows)
    loss, errors = 0.0, []
    for b in range(32):
        allowed = rows["mask"][1, b, 0] if mask else None
        best = best_of((mine if double else theirs)[1, b], allowed)
        target = rows["reward"][0, b, 0] + rows["discount"][0, b, 0] * theirs[1, b, best]
        error = target - mine[0, b, rows["action"][0, b, 0]]
        errors.append(abs(error))
        loss += (error**2 if kind == "mse" else 0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5) / 32
    batch = learner.intake.batch(rows, 0)
    each, _ = learner.algorithm.loss(batch, learner.policy.unroll(batch.asked(0, 1)))
    assert float(each.detach().mean()) == pytest.approx(loss, rel=1e-4)
    feedback = learner.update(rows)
    assert learner.metrics()["error"] == pytest.approx(np.mean(errors), rel=1e-4)
    assert feedback is not None
    np.testing.assert_array_equal(feedback.ids, rows["ids"])
    np.testing.assert_allclose(feedback.leaves["priority"], errors, rtol=1e-3, atol=1e-5)


def test_importance_weights_scale_the_gradient_of_each_transition() -> None:
    def moved(weight: Any, rows: dict[str, Any]) -> Any:
        learner = a_learner({"prioritised": True, "max_grad_norm": None})
        learner.update({**rows, "weight": np.asarray(weight, np.float32)})
        return np.concatenate([view.detach().reshape(-1).numpy() for view in learner.algorithm.adam.grads]).copy()

    rows = some_rows(2)
    one, other, both = moved([1, 0], rows), moved([0, 1], rows), moved([0.5, 2.0], rows)
    np.testing.assert_allclose(both, 0.5 * one + 2.0 * other, atol=1e-6)
    assert np.abs(one).max() > 1e-3 and np.abs(other).max() > 1e-3


@pytest.mark.parametrize("discount", [0.0, 0.3, 1.0])
def test_a_moved_distribution_is_that_of_a_loop_over_points(discount: float) -> None:
    noise = np.random.default_rng(1)
    points = np.linspace(-2.0, 3.0, 6)
    chance = noise.dirichlet(np.ones(6), size=(4, 5))
    reward = noise.choice([-9.0, -1.3, 0.0, 1.0, 2.0, 9.0], (4, 5))
    found = project(
        torch.tensor(points), torch.tensor(chance), torch.tensor(reward), torch.full((4, 5), discount, dtype=torch.float64)
    )
    expected = np.zeros((4, 5, 6))
    for t in range(4):
        for b in range(5):
            for i in range(6):
                at = min(max(reward[t, b] + discount * points[i], -2.0), 3.0)
                for j in range(6):  # each point takes what lies within one step of it, the nearer the more
                    expected[t, b, j] += chance[t, b, i] * max(0.0, 1.0 - abs(at - points[j]) / 1.0)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-9)
    np.testing.assert_allclose(found.numpy().sum(-1), 1.0)


@pytest.mark.parametrize("dueling", [False, True])
def test_the_distributional_loss_is_a_cross_entropy(dueling: bool) -> None:
    learner = a_learner({"prioritised": True}, {"atoms": 11, "returns": [-3.0, 3.0], "dueling": dueling})
    rows = some_rows()
    (mine, theirs), (q, _) = the_values(learner, rows, "logits"), the_values(learner, rows)
    points = np.linspace(-3.0, 3.0, 11)
    loss, divergence = [], []
    for b in range(32):
        best = best_of(q[1, b], None)
        chance = np.exp(theirs[1, b, best]) / np.exp(theirs[1, b, best]).sum()
        target = np.zeros(11)
        for i in range(11):
            at = np.clip(rows["reward"][0, b, 0] + rows["discount"][0, b, 0] * points[i], -3.0, 3.0)
            target += chance[i] * np.maximum(0.0, 1.0 - np.abs(at - points) / 0.6)
        logits = mine[0, b, rows["action"][0, b, 0]]
        have = np.exp(logits) / np.exp(logits).sum()
        loss.append(-(target * np.log(have)).sum())
        divergence.append(sum(t * np.log(t / h) for t, h in zip(target, have, strict=True) if t > 0))
    feedback = learner.update(rows)
    assert learner.metrics()["loss"] == pytest.approx(np.mean(loss), rel=1e-4)
    np.testing.assert_allclose(feedback.leaves["priority"], divergence, rtol=1e-3, atol=1e-5)  # type: ignore[union-attr]


def test_the_target_network_is_copied_by_updates_or_follows_slowly() -> None:
    learner = a_learner({"target_every": 3, "tau": 1.0})
    target = learner.algorithm.target.net
    before = [one.clone() for one in target.parameters()]
    for update in (1, 2, 3):
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(target.parameters(), before, strict=True))
        learner.clock.updates = update
        learner.update(some_rows(seed=update))
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(target.parameters(), learner.policy.parameters(), strict=True))

    slow = a_learner({"target_every": 1, "tau": 0.1})
    before = [one.clone() for one in slow.algorithm.target.net.parameters()]
    slow.update(some_rows())
    for now, old, new in zip(slow.algorithm.target.net.parameters(), before, slow.policy.parameters(), strict=True):
        torch.testing.assert_close(now, 0.9 * old + 0.1 * new.detach())


def test_exploration_follows_the_progress_of_the_run_and_is_published() -> None:
    learner = a_learner({"epsilon": {"from": 1.0, "to": 0.2, "until": 0.5}, "ladder": 1.0}, {"rungs": 2})
    np.testing.assert_allclose(learner.params()["epsilon"], [1.0, 1.0])
    for progress, rate in ((0.25, 0.6), (0.9, 0.2)):
        learner.clock.progress = progress
        shown = train(learner, some_rows())
        assert shown["epsilon"] == pytest.approx(rate)
        np.testing.assert_allclose(learner.params()["epsilon"], [rate, rate**2], rtol=1e-5)


def test_a_resumed_learner_goes_on_exactly() -> None:
    straight, resumed = (a_learner({"target_every": 2, "tau": 1.0}, {"normalize_obs": True}) for _ in range(2))
    for update in range(6):
        straight.clock.updates = update
        straight.update(some_rows(seed=update))
        if update == 2:
            resumed.restore(*straight.state())
    for update in range(3, 6):
        resumed.clock.updates = update
        resumed.update(some_rows(seed=update))
    for name, array in straight.params().items():
        np.testing.assert_array_equal(array, resumed.params()[name])


@pytest.mark.parametrize(
    "policy", [{}, {"dueling": True}, {"atoms": 21, "returns": [-0.5, 1.5]}], ids=["plain", "dueling", "atoms"]
)
def test_it_finds_the_values_of_a_chain(policy: dict[str, Any]) -> None:
    """Four places in a row; only a step to the right from the last one pays, and ends the episode."""
    learner = make(
        algorithm=DQN, config={"lr": 3e-3, "gamma": 0.8, "target_every": 25, "tau": 1.0}, policy=QNetwork, action=Discrete(2),
        policy_config={"hidden": [32], **policy}, obs=Leaf((4,), "float32"),
    )  # fmt: skip
    noise, places = np.random.default_rng(0), np.eye(4, dtype=np.float32)
    for update in range(600):
        place, right = noise.integers(0, 4, 64), noise.integers(0, 2, 64)
        after = np.clip(place + 2 * right - 1, 0, 3)
        ended = (place == 3) & (right == 1)
        rows = some_rows(64)
        rows["obs"] = np.stack([places[place], places[after]])[:, :, None]
        rows["action"], rows["terminated"] = right[None, :, None], ended[None, :, None]
        rows["reward"] = ended[None, :, None].astype(np.float32)
        rows["discount"] = np.where(ended, 0.0, 0.8)[None, :, None].astype(np.float32)
        learner.clock.updates = update
        learner.update(rows)
    all_places = {**rows, "obs": np.tile(places[None, :, None], (2, 1, 1, 1)), "first": np.zeros((2, 4, 1), bool)}
    q, _ = the_values(learner, all_places)
    right = np.array([0.8**3, 0.8**2, 0.8, 1.0])
    left = 0.8 * np.array([right[0], right[0], right[1], right[2]])
    np.testing.assert_allclose(q[0], np.stack([left, right], -1), atol=0.08)


class Own(QPolicy):
    """What a user writes: one layer, and the head `q`."""

    def __init__(self, config: Any, spec: Any) -> None:
        super().__init__(config, spec)
        self.layer = torch.nn.Linear(5, self.actions)

    def unroll(self, batch: Any) -> Any:
        return {"q": self.layer(batch.obs)}


def test_a_policy_of_ones_own_needs_only_its_values() -> None:
    learner = make(algorithm=DQN, config={"n_step": 2, "prioritised": True, "target_every": 1}, policy=Own)
    before = {name: one.copy() for name, one in learner.params().items()}
    assert learner.update(some_rows()) is not None
    moved = [name for name, one in learner.params().items() if (one != before[name]).any()]
    assert set(moved) == {"layer.weight", "layer.bias"}  # exploration is still 1 at progress 0


def test_a_policy_with_memory_is_refused() -> None:
    with pytest.raises(Exception, match="dqn must have a policy without memory"):
        make(algorithm=DQN, policy=RecurrentQ)
