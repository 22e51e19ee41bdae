"""Passes by hand over chunks of policies with memory, against autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from srl.algorithms.ppo import PPO
from srl.api.batch import Batch
from srl.api.env import ActionSpec, Box, Discrete, MultiDiscrete
from srl.api.neural import Recall
from srl.api.policy import PolicySpec
from srl.api.slab import SlabShape, Window, slab_spec
from srl.core.load import load
from srl.core.spec import Leaf, zeros
from srl.learners.base import Task
from srl.learners.flat import flatten
from srl.learners.single import SingleLearner
from srl.nets.recurrent import Recurrent
from tests.algorithms.slabs import make, record


def new(config: dict[str, Any], action: ActionSpec) -> Recurrent:
    torch.manual_seed(0)
    policy = Recurrent(load(Recurrent.Config, {"width": 12, **config}), PolicySpec(obs=Leaf((6,), "float32"), action=action))
    flatten(policy.parameters())
    with torch.no_grad():  # biases too: they begin as zeros
        for one in policy.parameters():
            one.add_(0.1 * torch.randn_like(one))
    return policy


def rows(policy: Recurrent, time: int, number: int) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Observations, resets, memory."""
    memory = {name: torch.randn(number, *leaf.shape) for name, leaf in policy.memory.items()}  # type: ignore[union-attr]
    return torch.randn(time, number, 6), torch.rand(time, number) < 0.2, memory


def compare(
    policy: Recurrent, obs: Tensor, first: Tensor, memory: dict[str, Tensor], stop: Tensor | None, state: Tensor | None = None
) -> None:
    """Gradients of both ways for a random loss."""
    batch = Batch.of(obs=obs, first=first, memory=memory, reward=torch.zeros(first.shape), state=state).add(stop=stop)
    heads = policy.unroll(batch)
    dist = policy.dist(heads)
    given = dist.mode().detach()
    up, across, down = torch.randn(3, *first.shape)
    loss = (dist.log_prob(given) * up).sum() + (dist.entropy() * across).sum() + (heads["value"] * down).sum()
    for one in policy.parameters():
        one.grad.zero_()  # type: ignore[union-attr]
    loss.backward()
    expected = [one.grad.clone() for one in policy.parameters()]  # type: ignore[union-attr]

    run = policy.__dict__.setdefault("_run", policy.hand_pass(first.numel()))
    found: dict[str, Any] = {}

    def policy_loss(log_prob: Any, entropy: Any) -> tuple[Any, Any]:
        found["log_prob"] = log_prob.copy()
        return up.flatten().numpy(), across.flatten().numpy()

    def value_loss(value: Any) -> Any:
        found["value"] = value.copy()
        return down.flatten().numpy().copy()

    for one in policy.parameters():
        one.grad.fill_(9.0)  # type: ignore[union-attr]
    recall = Recall(first.numpy(), {name: leaf.numpy() for name, leaf in memory.items()}, None if stop is None else stop.numpy())
    run.run(run.features(obs, state).flatten(0, 1).numpy(), given.flatten(0, 1).numpy(), None, policy_loss, value_loss, recall)
    torch.testing.assert_close(torch.from_numpy(found["value"]), heads["value"].detach().flatten(), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(torch.from_numpy(found["log_prob"]), dist.log_prob(given).detach().flatten(), atol=1e-5, rtol=1e-4)
    for (name, one), want in zip(policy.named_parameters(), expected, strict=True):
        torch.testing.assert_close(one.grad, want, atol=1e-4, rtol=1e-3, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("hidden", [[], [16], [16, 8]], ids=str)
@pytest.mark.parametrize(
    "action", [Discrete(4), MultiDiscrete((2, 3)), Box((2,), (-1.0,) * 2, (1.0,) * 2)], ids=["discrete", "multi", "box"]
)
def test_gradients_by_hand_are_those_of_autograd(cell: str, shared: bool, hidden: list[int], action: ActionSpec) -> None:
    policy = new({"cell": cell, "shared": shared, "hidden": hidden}, action)
    compare(policy, *rows(policy, 7, 5), stop=None)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("activation", ["relu", "elu"])
def test_minibatches_of_other_sizes_use_the_same_memory(cell: str, activation: str) -> None:
    policy = new({"cell": cell, "hidden": [16], "shared": False, "activation": activation}, Discrete(3))
    for time, number in ((4, 5), (4, 6), (4, 5), (8, 9), (1, 40), (4, 6), (3, 2), (2, 3), (4, 5)):
        compare(policy, *rows(policy, time, number), stop=None)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_gradients_stop_where_they_are_told_to(cell: str) -> None:
    policy = new({"cell": cell, "hidden": [16]}, Discrete(3))
    obs, first, memory = rows(policy, 8, 5)
    stop = torch.zeros(8, 5, dtype=torch.bool)
    stop[3, :3] = True
    stop[5, 2:] = True
    compare(policy, obs, first, memory, stop)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_products_in_bfloat16_are_the_same_to_two_digits(cell: str) -> None:
    policy = new({"cell": cell, "hidden": [16]}, Discrete(3))
    obs, first, memory = rows(policy, 8, 50)
    down = torch.randn(8 * 50).numpy()
    found: list[list[Tensor]] = []
    for half in (False, True):
        policy.cells["actor"].bf16 = half
        run = policy.hand_pass(400)
        assert run is not None
        run.run(
            run.features(obs).flatten(0, 1).numpy(), np.zeros(400, np.int64), None, lambda one, two: (down, down),
            lambda value: down + value, Recall(first.numpy(), {"actor": memory["actor"].numpy()}, None),
        )  # fmt: skip
        found.append([one.grad.clone() for one in policy.parameters()])  # type: ignore[union-attr]
    for exact, rounded in zip(*found, strict=True):
        assert (exact - rounded).norm() < 0.02 * exact.norm()
    assert not torch.equal(found[0][0], found[1][0])


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_no_gradient_flows_into_burn_in(cell: str) -> None:
    learner = make(policy=Recurrent, policy_config={"cell": cell}, memory_every=4, steps=16, envs=6)
    batch = learner.intake.batch(record(learner, dense=True), 0)
    entered = 0
    for mini in batch.minibatches(64, window=Window(4, 8)):
        mini.obs = mini.obs.clone().requires_grad_()
        heads = learner.policy.unroll(mini)
        trained = mini.valid
        (grad,) = torch.autograd.grad(heads["value"][trained].sum() + heads["logits"][trained].sum(), mini.obs)
        assert (grad[~trained] == 0).all() and (grad[trained] != 0).any(-1).all()
        entered += int((~trained[0]).sum())
    assert entered == 6  # one window of every env has burn-in before it


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize(
    "options",
    [
        {"window": 4},
        {"window": {"length": 8, "burn_in": 4}, "entropy": 0.01},
        {"window": {"length": 4, "burn_in": 8}, "value_clip": 0.1, "dual_clip": 3.0, "normalize_advantage": "minibatch"},
    ],
    ids=["chunks", "burn-in", "clips"],
)
@pytest.mark.parametrize("mask", [False, True])
def test_ppo_learns_by_hand_what_it_learns_with_autograd(cell: str, options: dict[str, Any], mask: bool) -> None:
    results = []
    for plain in (True, False):
        learner = make(
            mask=mask, policy=Recurrent, memory_every=4, config={**options, "minibatch": 40, "plain": plain, "lr": 1e-3},
            policy_config={"cell": cell, "normalize_obs": True, "hidden": [16], "width": 8},
        )  # fmt: skip
        for update in range(2):
            learner.clock.updates = update
            learner.update(record(learner, seed=update))
        assert (learner.algorithm._plain is not None) is plain  # type: ignore[attr-defined]
        results.append((learner.metrics(), {name: array.copy() for name, array in learner.params().items()}))
    (metrics, params), (wanted_metrics, wanted) = results
    for name in wanted:
        np.testing.assert_allclose(params[name], wanted[name], atol=2e-4, rtol=1e-3, err_msg=name)
    for name, number in wanted_metrics.items():
        assert metrics[name] == pytest.approx(number, abs=2e-3, rel=2e-3), name


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("hidden", [[], [16], [16, 8]], ids=str)
def test_a_critic_that_reads_the_state_learns_by_hand(cell: str, hidden: list[int]) -> None:
    spec = PolicySpec(obs=Leaf((6,), "float32"), action=Discrete(3), state=Leaf((2, 2), "float32"))
    torch.manual_seed(0)
    policy = Recurrent(load(Recurrent.Config, {"cell": cell, "hidden": hidden, "width": 12, "critic_state": True}), spec)
    flatten(policy.parameters())
    obs, first, memory = rows(policy, 7, 5)
    compare(policy, obs, first, memory, None, state=torch.randn(7, 5, 2, 2))


def test_ppo_hands_the_state_to_the_critic() -> None:
    spec = PolicySpec(obs=Leaf((6,), "float32"), action=Discrete(3), state=Leaf((4,), "float32"), agents=2)
    shape = SlabShape(steps=8, envs=3, agents=2, memory_every=4)
    results = []
    for plain in (True, False):
        learner = SingleLearner(Task(
            algorithm=PPO, config=load(PPO.Config, {"window": 4, "minibatch": 16, "plain": plain}), policy=Recurrent,
            policy_config=load(Recurrent.Config, {"critic_state": True, "width": 8}), spec=spec, seed=0, shape=shape,
        ))  # fmt: skip
        extra = {"log_prob": Leaf((), "float32"), "value": Leaf((), "float32")}
        slab: Any = zeros(slab_spec(shape, spec, memory=learner.policy.memory, extra=extra, signals={}))
        noise = np.random.default_rng(0)
        for name in ("obs", "state", "reward"):
            slab[name][...] = noise.standard_normal(slab[name].shape)
        slab["extra"]["log_prob"][...] = -np.log(3.0)
        slab["valid"][...] = True
        learner.update(slab)
        assert (learner.algorithm._plain is not None) is plain  # type: ignore[attr-defined]
        results.append({name: array.copy() for name, array in learner.params().items()})
    for name, want in results[1].items():
        np.testing.assert_allclose(results[0][name], want, atol=2e-4, rtol=1e-3, err_msg=name)


def test_what_cannot_be_done_by_hand_is_left_to_autograd() -> None:
    for config, obs in (({"cell": "none"}, Leaf((6,), "float32")), ({}, Leaf((36, 36, 4), "uint8"))):
        policy = Recurrent(load(Recurrent.Config, config), PolicySpec(obs=obs, action=Discrete(3)))
        assert policy.hand_pass(64) is None
