"""The network of hide-and-seek: its published size, what it looks at, and how it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from srl.algorithms.value_scale import ValueScale
from srl.api.batch import Batch
from srl.api.env import Discrete
from srl.api.policy import Ask, PolicySpec
from srl.api.slab import Window
from srl.core.load import load
from srl.core.seeds import Rng, row_keys
from srl.core.spec import Leaf, lead, zeros
from srl.core.tree import map_tree
from srl.envs.hide_and_seek.config import preset
from srl.envs.hide_and_seek.env import env_spec
from srl.nets.entity import EntityPolicy
from srl.nets.rays import RayEncoder
from tests.algorithms.slabs import make, record, train
from tests.errors import raises


def spec_of(name: str, agents: int = 2) -> PolicySpec:
    team = env_spec(preset(name)).teams["hider"]
    return PolicySpec(obs=team.obs, action=team.action, mask=True, agents=agents)


def new(spec: PolicySpec, **config: Any) -> EntityPolicy:
    torch.manual_seed(0)
    policy = EntityPolicy(load(EntityPolicy.Config, config), spec)
    with torch.no_grad():  # heads that say something
        policy.logits.weight.mul_(100.0)
    return policy


def batch_of(policy: EntityPolicy, steps: int = 5, number: int = 6, seed: int = 0) -> Batch:
    """Random rows; the agent sees a part of what exists."""
    rng = np.random.default_rng(seed)
    obs: Any = map_tree(
        lambda leaf: rng.standard_normal(leaf.shape).astype(np.float32), zeros(lead(policy.spec.obs, steps, number))
    )
    for key in obs:
        if key.startswith("exist_"):
            obs[key] = (rng.random(obs[key].shape) < 0.8).astype(np.float32)
    for key in obs:
        if key.startswith("mask_"):
            obs[key] = obs["exist_" + key[5:]] * (rng.random(obs[key].shape) < 0.6).astype(np.float32)
    memory = map_tree(lambda leaf: rng.standard_normal(leaf.shape).astype(np.float32), zeros(lead(policy.memory, number)))
    first = rng.random((steps, number)) < 0.2
    return Batch.of(obs=obs, first=first, memory=memory, reward=np.zeros((steps, number), np.float32))


def run(policy: EntityPolicy, batch: Batch, **obs: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and values, with some leaves of the observation replaced."""
    rows = {"first": batch.first, "memory": batch.memory, "reward": batch.reward}
    heads = policy.unroll(Batch.of(obs={**batch.obs, **obs}, **rows))
    return heads["logits"], heads["value"]


def test_the_full_size_has_the_published_number_of_parameters() -> None:
    policy = new(spec_of("original"), size="full")
    assert sum(one.numel() for one in policy.parameters()) == 1_628_270


def test_the_small_size_is_a_quarter_of_it() -> None:
    assert 430_000 < sum(one.numel() for one in new(spec_of("mini")).parameters()) < 490_000


@pytest.mark.parametrize("cell", ["lstm", "gru", "none"])
def test_unroll_is_acting_row_by_row(cell: str) -> None:
    policy = new(spec_of("mini_2v2"), cell=cell, embed=16, hidden=16, width=8)
    batch = batch_of(policy, steps=7, number=4)
    policy.observe(batch)
    mask = torch.rand(7, 4, 37) < 0.5
    memory: Any = map_tree(lambda leaf: leaf.numpy(), batch.memory)
    ids = np.arange(4)
    heads = policy.unroll(batch)
    dist = policy.dist(heads, mask)
    actions, log_probs, values = [], [], []
    for t in range(7):
        first = batch.first[t].numpy()
        memory = map_tree(lambda leaf, first=first: leaf * ~first[:, None], memory)
        act = policy.act(
            Ask(
                obs=map_tree(lambda leaf, t=t: leaf[t].numpy(), batch.obs), memory=memory, first=first, mask=mask[t].numpy(),
                state=None, ids=ids, rng=Rng(row_keys(0, ids, t)),
            )
        )  # fmt: skip
        memory = act.memory
        actions.append(act.action)
        log_probs.append(act.extra["log_prob"])
        values.append(act.extra["value"])
    found = dist.log_prob(torch.from_numpy(np.stack(actions)))
    np.testing.assert_allclose(found.detach().numpy(), np.stack(log_probs), atol=2e-5)
    np.testing.assert_allclose(heads["value"].detach().numpy(), np.stack(values), atol=2e-5)


def test_the_order_of_entities_does_not_matter() -> None:
    policy = new(spec_of("full"))
    batch = batch_of(policy)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    changed = {key: batch.obs[key][:, :, order] for key in ("boxes", "mask_boxes", "exist_boxes")}
    for have, want in zip(run(policy, batch, **changed), run(policy, batch), strict=True):
        torch.testing.assert_close(have, want, atol=1e-4, rtol=1e-4)


def test_rows_of_absent_entities_do_not_matter() -> None:
    """The same game in a larger space: more rows of zeros, or of anything."""
    small, large = preset("quadrant"), preset("quadrant").override(pad=True, boxes=(2, 6))
    few, many = (new(PolicySpec(obs=env_spec(one).teams["hider"].obs, action=Discrete(4))) for one in (small, large))
    many.load_state_dict(few.state_dict())
    batch = batch_of(few)
    noise = torch.randn(*batch.lead, 4, batch.obs["boxes"].shape[-1]) * 50
    wider = {"boxes": torch.cat([batch.obs["boxes"], noise], 2)}
    wider |= {key: torch.cat([batch.obs[key], torch.zeros(*batch.lead, 4)], 2) for key in ("mask_boxes", "exist_boxes")}
    for have, want in zip(run(many, batch, **wider), run(few, batch), strict=True):
        torch.testing.assert_close(have, want, atol=1e-4, rtol=1e-4)


def test_only_the_critic_sees_what_is_hidden() -> None:
    policy = new(spec_of("quadrant"))
    batch = batch_of(policy)
    hidden = (batch.obs["exist_agents"] > 0) & (batch.obs["mask_agents"] == 0)
    moved = torch.where(hidden.unsqueeze(-1), batch.obs["agents"] + 1.0, batch.obs["agents"])
    (logits, value), (other_logits, other_value) = run(policy, batch), run(policy, batch, agents=moved)
    torch.testing.assert_close(other_logits, logits)
    assert ((other_value - value).abs() > 1e-5)[hidden.any(-1)].all()


def test_nothing_seen_at_all_is_no_trouble() -> None:
    policy = new(spec_of("mini"))
    batch = batch_of(policy)
    nothing = {key: torch.zeros_like(leaf) for key, leaf in batch.obs.items() if key.startswith(("mask_", "exist_"))}
    logits, value = run(policy, batch, **nothing)
    assert logits.isfinite().all() and value.isfinite().all()
    (logits.sum() + value.sum()).backward()
    assert all(one.grad is None or one.grad.isfinite().all() for one in policy.parameters())


def test_rays_are_convolved_in_a_circle() -> None:
    torch.manual_seed(0)
    encoder = RayEncoder(30)
    own = torch.nn.Conv1d(1, 9, 3, padding=1, padding_mode="circular")
    with torch.no_grad():
        own.weight.copy_(encoder.weight[:, None])
        encoder.bias.normal_()
        assert own.bias is not None
        own.bias.copy_(encoder.bias)
    x = torch.randn(8, 30)
    torch.testing.assert_close(encoder(x), torch.relu(own(x[:, None])).flatten(1))


def test_entities_can_be_taken_relative_to_the_agent() -> None:
    """Everything in the world moved alike: only what is the agent's own differs."""
    policy = new(spec_of("quadrant"), relative=3, normalize_obs=False)
    batch = batch_of(policy)
    shift = torch.tensor([1.0, 2.0, 0.5])
    moved = {key: batch.obs[key].clone() for key in ("agents", "boxes", "ramps")}
    for leaf in moved.values():
        leaf[..., :3] += shift
    own = batch.obs["self"].clone()
    own[..., :3] += shift
    with torch.no_grad():
        for tower in (policy.actor, policy.critic):
            for layer in (tower.own, *tower.kinds.values()):
                size = layer.weight.shape[1] - policy.layout.own - tower.rays.size
                layer.weight[:, size : size + 3] = 0.0  # blind to where the agent itself is
    for have, want in zip(run(policy, batch, self=own, **moved), run(policy, batch), strict=True):
        torch.testing.assert_close(have, want, atol=1e-4, rtol=1e-4)


def test_the_scale_of_entities_is_that_of_those_that_exist() -> None:
    policy = new(spec_of("mini"))
    batch = batch_of(policy, steps=40, number=30)
    boxes = torch.where(batch.obs["exist_boxes"][..., None] > 0, batch.obs["boxes"] * 2.0 + 3.0, 1e6)
    batch.obs["boxes"] = boxes
    policy.observe(batch)
    there = boxes[batch.obs["exist_boxes"] > 0]
    torch.testing.assert_close(policy.scales["boxes"].mean, there.mean(0))
    torch.testing.assert_close(policy.scales["boxes"].scale, 1.0 / there.std(0, correction=0), rtol=1e-4, atol=1e-4)


def test_new_statistics_of_the_returns_leave_every_value_as_it_was() -> None:
    policy = new(spec_of("mini"))
    scale = ValueScale(policy.value.moments)

    def up(value: Tensor) -> Tensor:
        mean, deviation = policy.value.moments
        return mean + deviation * value

    batch = batch_of(policy)
    logits, value = run(policy, batch)
    before = up(value)
    for low, spread in ((30.0, 10.0), (-5.0, 0.5)):
        returns = low + spread * torch.randn(5, 6)
        weight = policy.value.weight.clone()
        scale.observe(returns, torch.ones(5, 6, dtype=torch.bool), policy.value)
        assert not torch.equal(policy.value.weight, weight)
        after_logits, after = run(policy, batch)
        torch.testing.assert_close(up(after), before, atol=1e-3, rtol=1e-4)
        assert torch.equal(after_logits, logits)
        torch.testing.assert_close(scale.down(up(after)), after, atol=1e-4, rtol=1e-4)


def test_ppo_with_rescaled_values_starts_each_update_at_ratio_one() -> None:
    team = env_spec(preset("mini")).teams["hider"]
    config = {"window": 4, "epochs": 1, "minibatch": 10_000, "normalize_value": True}
    learner = make(
        team.action, mask=True, obs=team.obs, policy=EntityPolicy, config=config, memory_every=4, agents=2,
        policy_config={"embed": 16, "hidden": 16, "width": 8, "heads": 2},
    )  # fmt: skip
    for seed in range(3):
        metrics = train(learner, record(learner, seed=seed))
        assert abs(float(metrics["kl"])) < 1e-6 and float(metrics["clip_fraction"]) == 0.0


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_no_gradient_flows_into_burn_in(cell: str) -> None:
    team = env_spec(preset("mini")).teams["hider"]
    learner = make(
        team.action, mask=True, obs=team.obs, policy=EntityPolicy, memory_every=4, steps=16, envs=6, agents=2,
        policy_config={"embed": 16, "hidden": 16, "width": 8, "heads": 2, "cell": cell},
    )  # fmt: skip
    batch = learner.intake.batch(record(learner, dense=True), 0)
    entered = 0
    for mini in batch.minibatches(64, window=Window(4, 8)):
        mini.obs = {**mini.obs, "lidar": mini.obs["lidar"].clone().requires_grad_()}
        heads = learner.policy.unroll(mini)
        trained = mini.valid
        (grad,) = torch.autograd.grad(heads["value"][trained].sum() + heads["logits"][trained].sum(), mini.obs["lidar"])
        assert (grad[~trained] == 0).all() and (grad[trained] != 0).any(-1).all()
        entered += int((~trained[0]).sum())
    assert entered == 12  # one window of every agent has burn-in before it


def test_rows_without_a_choice_train_the_value_only() -> None:
    """All rows of one agent are without choice: what it does changes no policy gradient, what it gets its value's."""
    team = env_spec(preset("mini")).teams["seeker"]

    def grads(reward: float, action: int) -> tuple[Tensor, Tensor]:
        learner = make(
            team.action, mask=True, obs=team.obs, policy=EntityPolicy, memory_every=4, agents=2, envs=4,
            config={"window": 4, "epochs": 1, "minibatch": 10_000, "entropy": 0.01, "normalize_advantage": "no"},
            policy_config={"embed": 16, "hidden": 16, "width": 8, "heads": 2},
        )  # fmt: skip
        rows = record(learner)
        waiting = np.zeros(37, bool)
        waiting[np.cumsum((0, 11, 11, 11, 2))] = True
        rows["mask"][:, :, 1] = waiting
        rows["choice"][:, :, 1] = False
        rows["reward"][:, :, 1] = reward
        rows["action"][:, :, 1] = action
        seen: list[Any] = []
        algorithm: Any = learner.algorithm
        algorithm.adam.step = lambda loss: seen.append(
            torch.autograd.grad(loss, [learner.policy.logits.weight, learner.policy.value.weight])
        )
        learner.update(rows)
        return seen[0]

    policy, value = grads(0.0, 0)
    policy_too, value_too = grads(5.0, 1)
    assert policy.abs().sum() > 0
    torch.testing.assert_close(policy_too, policy)
    assert (value_too - value).abs().max() > 1e-3


def test_a_critic_can_read_the_state() -> None:
    spec = spec_of("mini")
    with raises("E10", match="state"):
        new(spec, critic_state=True)
    policy = new(PolicySpec(obs=spec.obs, action=spec.action, state=Leaf((7,), "float32")), critic_state=True)
    batch = batch_of(policy)
    rows = {"obs": batch.obs, "first": batch.first, "memory": batch.memory, "reward": batch.reward}
    one, two = (policy.unroll(Batch.of(state=torch.full((5, 6, 7), number), **rows)) for number in (0.0, 1.0))
    assert torch.equal(one["logits"], two["logits"]) and (one["value"] != two["value"]).all()


def test_observations_without_entities_are_refused_with_a_reason() -> None:
    with raises("E10", match="flat dict"):
        new(PolicySpec(obs=Leaf((4,), "float32"), action=Discrete(2)))
    with raises("E10", match="'self'"):
        new(PolicySpec(obs={"me": Leaf((4,), "float32")}, action=Discrete(2)))
