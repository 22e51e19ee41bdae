"""Policies with memory: training forwards against acting row by row; chunks, burn-in, critics that read the state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from srl.algorithms.ppo import PPO
from srl.api.batch import Batch
from srl.api.env import ActionSpec, Box, Discrete, MultiDiscrete
from srl.api.policy import Ask, PolicySpec
from srl.api.slab import Window
from srl.core.load import load
from srl.core.seeds import Rng, row_keys
from srl.core.spec import Leaf, lead, zeros
from srl.core.tree import map_tree
from srl.nets.recurrent import Recurrent
from tests.algorithms.slabs import make, record, train
from tests.errors import raises

SPEC = PolicySpec(obs={"a": Leaf((3,), "float32"), "b": Leaf((2, 2), "float32")}, action=Discrete(3))


def new(config: dict[str, Any], spec: PolicySpec = SPEC) -> Recurrent:
    torch.manual_seed(0)
    return Recurrent(load(Recurrent.Config, config), spec)


@pytest.mark.parametrize("cell", ["gru", "lstm", "none"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("action", [Discrete(3), Box((2,), (-1.0,) * 2, (1.0,) * 2)], ids=["discrete", "box"])
def test_unroll_is_acting_row_by_row(cell: str, shared: bool, action: ActionSpec) -> None:
    spec = PolicySpec(obs=SPEC.obs, action=action)
    policy = new({"cell": cell, "shared": shared, "hidden": [16], "width": 8}, spec)
    steps, number = 12, 5
    rng = np.random.default_rng(0)
    obs: Any = map_tree(lambda leaf: rng.standard_normal(leaf.shape).astype(np.float32), zeros(lead(spec.obs, steps, number)))
    first, ids = rng.random((steps, number)) < 0.2, np.arange(number)
    start: Any = map_tree(lambda leaf: rng.standard_normal(leaf.shape).astype(np.float32), zeros(lead(policy.memory, number)))
    memory, actions, log_probs, values = start, [], [], []
    for t in range(steps):
        memory = map_tree(lambda leaf, t=t: leaf * ~first[t][:, None], memory)  # as the actor does
        act = policy.act(
            Ask(
                obs=map_tree(lambda leaf, t=t: leaf[t], obs), memory=memory, first=first[t], mask=None, state=None,
                ids=ids, rng=Rng(row_keys(0, ids, t)),
            )
        )  # fmt: skip
        memory = act.memory
        actions.append(act.action)
        log_probs.append(act.extra["log_prob"])
        values.append(act.extra["value"])
    batch = Batch.of(obs=obs, first=first, memory=start, reward=np.zeros((steps, number), np.float32))
    heads = policy.unroll(batch)
    dist = policy.dist(heads)
    found = dist.log_prob(torch.from_numpy(np.stack(actions)))
    np.testing.assert_allclose(found.detach().numpy(), np.stack(log_probs), atol=1e-5)
    np.testing.assert_allclose(heads["value"].detach().numpy(), np.stack(values), atol=1e-5)
    last = heads["memory"]
    assert set(last) == set(memory)
    for name in memory:
        np.testing.assert_allclose(last[name].detach().numpy(), memory[name], atol=1e-5)


@pytest.mark.parametrize(("chunk", "burn_in"), [(4, 0), (4, 4), (8, 8), (16, 0)])
def test_chunks_meet_the_memory_they_were_recorded_with(chunk: int, burn_in: int) -> None:
    learner = make(policy=Recurrent, policy_config={"cell": "lstm"}, memory_every=4, steps=16, envs=6)
    batch = learner.intake.batch(record(learner), 0)
    seen = 0
    for mini in batch.minibatches(48, window=Window(burn_in, chunk)):
        heads = learner.policy.unroll(mini)
        valid = mini.valid
        seen += int(valid.sum())
        log_prob = learner.policy.dist(heads, None).log_prob(mini.action)
        assert (log_prob - mini.extra["log_prob"])[valid].abs().max() < 1e-5
        assert (heads["value"] - mini.extra["value"])[valid].abs().max() < 1e-5
    assert seen == int(batch.valid.sum())


def test_ppo_trains_in_chunks_and_its_first_ratio_is_one() -> None:
    config = {"window": 4, "epochs": 1, "minibatch": 10_000}
    learner = make(policy=Recurrent, policy_config={"cell": "gru", "normalize_obs": True}, config=config, memory_every=4)
    for seed in range(3):  # the scale of the inputs moves between updates, not within
        metrics = train(learner, record(learner, seed=seed))
        assert abs(float(metrics["kl"])) < 1e-6 and float(metrics["clip_fraction"]) == 0.0


def test_a_critic_reads_the_state_and_an_actor_does_not() -> None:
    spec = PolicySpec(obs=Leaf((4,), "float32"), action=MultiDiscrete((2, 3)), state=Leaf((3, 2), "float32"), agents=2)
    policy = new({"critic_state": True}, spec)
    assert policy.reads == ("obs", "state") and set(policy.memory) == {"actor", "critic"}
    rows = {"obs": torch.randn(5, 4, 4), "first": torch.zeros(5, 4, dtype=torch.bool), "reward": torch.zeros(5, 4)}
    memory = {name: torch.zeros(4, 64) for name in policy.memory}
    state = torch.randn(5, 4, 3, 2)
    one = policy.unroll(Batch.of(state=state, memory=memory, **rows))
    two = policy.unroll(Batch.of(state=state + 1.0, memory=memory, **rows))
    assert torch.equal(one["logits"], two["logits"]) and (one["value"] != two["value"]).all()
    act = policy.act(
        Ask(
            obs=np.zeros((4, 4), np.float32), memory={name: np.zeros((4, 64), np.float32) for name in policy.memory},
            first=np.ones(4, bool), mask=None, state=np.zeros((2, 3, 2), np.float32), ids=np.arange(4),
            rng=Rng(np.arange(4).astype(np.uint64)),
        )
    )  # fmt: skip
    assert act.action.shape == (4, 2) and act.extra["value"].shape == (4,)


def test_a_critic_that_wants_a_state_says_that_there_is_none() -> None:
    with raises("E10", match="requires an env with a state"):
        new({"critic_state": True})


def test_agents_of_a_joint_batch_are_sequences_of_their_own() -> None:
    policy = new({"cell": "lstm", "width": 8})
    obs = {"a": torch.randn(6, 4, 3), "b": torch.randn(6, 4, 2, 2)}
    first = torch.rand(6, 4) < 0.3
    memory = torch.randn(4, 16)
    flat = policy.unroll(Batch.of(obs=obs, first=first, reward=torch.zeros(6, 4), memory={"actor": memory}))
    joint = policy.unroll(
        Batch.of(
            obs={key: leaf.unflatten(1, (2, 2)) for key, leaf in obs.items()}, first=first.view(6, 2, 2),
            reward=torch.zeros(6, 2, 2), memory={"actor": memory.view(2, 2, 16)},
        )
    )  # fmt: skip
    torch.testing.assert_close(joint["logits"].flatten(1, 2), flat["logits"])
    assert joint["memory"]["actor"].shape == (2, 2, 16)


def test_memory_is_recorded_at_every_chunk() -> None:
    needs = PPO.needs(load(PPO.Config, {"window": 16}), SPEC)
    assert needs.window.memory_every == 16


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
