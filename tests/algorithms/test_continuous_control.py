"""SAC, TD3 and DDPG against slow references in numpy, and on a task with a known answer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from srl.algorithms.ddpg import DDPG
from srl.algorithms.sac import SAC
from srl.algorithms.td3 import TD3
from srl.core.errors import UserError
from srl.core.tree import Array
from srl.learners.single import SingleLearner
from tests.algorithms.slabs import train
from tests.algorithms.transitions import INPUTS, SIZE, learner, transitions

ALGORITHMS = (SAC, TD3, DDPG)
CROSSQ = {"critic": {"hidden": [16], "norm": "batch", "tau": None}, "betas": [0.5, 0.999], "actor_every": 3}


def _tower(net: Any, index: int, x: Array) -> Array:
    """The layers of one tower, row by row, in double precision."""
    for i, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
        x = weight[index].detach().numpy().astype(np.float64) @ x + bias[index].detach().numpy()
        if i < len(net.weights) - 1:
            x = np.maximum(x, 0.0)
    return x


def _gaussian(policy: Any, x: Array, noise: Array) -> tuple[Array, float]:
    """(action, log-probability) by the formula of the paper's appendix C."""
    mean, log_std = np.split(_tower(policy.tower, 0, x), 2)
    log_std = np.clip(log_std, -20.0, 2.0)
    before = mean + np.exp(log_std) * noise
    chance = sum(-0.5 * n * n - s - 0.5 * math.log(2 * math.pi) for n, s in zip(noise, log_std, strict=True))
    return np.tanh(before), chance - sum(math.log(1.0 - math.tanh(u) ** 2) for u in before)


def _spread(made: SingleLearner) -> None:
    """Weights at which the networks are far from constant, and targets that differ from what they follow."""
    torch.manual_seed(5)
    with torch.no_grad():
        for one in made.algorithm.parameters():
            if one.ndim:
                one += 0.3 * torch.randn(one.shape)


def _parts(made: SingleLearner, rows: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    algorithm: Any = made.algorithm
    batch = made.intake.batch(rows, 0)
    return algorithm, made.policy, batch, algorithm.policy.vector(batch.obs)


def _losses(algorithm: Any, batch: Any, vector: Any) -> list[Any]:
    """Of critics and actor."""
    found = []
    for part in algorithm.made_parts:
        offered = part.offers(batch, vector)
        found.append(part.loss(batch, vector, *offered, *part.asks(batch, vector, *offered)))
    return found


def _value(net: Any, index: int, x: Array, action: Array) -> float:
    return float(_tower(net, index, np.concatenate((x, action)))[0])


@pytest.mark.parametrize("temperature", [None, 0.3])
def test_the_losses_of_sac_are_those_of_a_loop_over_rows(temperature: float | None) -> None:
    made = learner(SAC, temperature=temperature, initial_temperature=0.7)
    _spread(made)
    rows = transitions()
    sac, policy, batch, vector = _parts(made, rows)
    noise = torch.stack([batch.normal("actions", SIZE), batch.normal("next actions", SIZE)])
    alpha = temperature if temperature is not None else math.exp(float(sac.log_temperature.detach()))
    critic = actor = chances = 0.0
    for b in range(12):
        now, beyond = rows["obs"][:, b, 0].astype(np.float64)
        action, chance = _gaussian(policy, beyond, noise[1, b].numpy())
        least = min(_value(sac.critics.target.net, i, beyond, action) for i in range(2))
        target = rows["reward"][0, b, 0] + rows["discount"][0, b, 0] * (least - alpha * chance)
        taken = rows["action"][0, b, 0]
        critic += sum(0.5 * rows["weight"][b] * (_value(sac.critics.net, i, now, taken) - target) ** 2 for i in range(2)) / 12
        action, chance = _gaussian(policy, now, noise[0, b].numpy())
        actor += (alpha * chance - min(_value(sac.critics.net, i, now, action) for i in range(2))) / 12
        chances += chance / 12
    (critic_loss, _), (actor_loss, shown) = _losses(sac, batch, vector)
    entropy = shown["entropy"]
    assert critic_loss.item() == pytest.approx(critic, rel=1e-4)
    assert actor_loss.item() == pytest.approx(actor, rel=1e-4)
    assert entropy.item() == pytest.approx(-chances, rel=1e-4)
    if temperature is None:
        wanted = float(sac.log_temperature.detach()) * (-chances + SIZE)
        assert sac.temperature_loss(entropy).item() == pytest.approx(wanted, rel=1e-4)


def test_the_losses_of_td3_are_those_of_a_loop_over_rows() -> None:
    made = learner(TD3, target_noise=0.4)
    _spread(made)
    rows = transitions()
    td3, policy, batch, vector = _parts(made, rows)
    noise = batch.normal("next actions", SIZE)
    critic = actor = 0.0
    for b in range(12):
        now, beyond = rows["obs"][:, b, 0].astype(np.float64)
        smooth = np.clip(0.4 * noise[b].numpy(), -0.5, 0.5)
        action = np.clip(np.tanh(_tower(td3.target.net.tower, 0, beyond)) + smooth, -1.0, 1.0)
        least = min(_value(td3.critics.target.net, i, beyond, action) for i in range(2))
        target = rows["reward"][0, b, 0] + rows["discount"][0, b, 0] * least
        taken = rows["action"][0, b, 0]
        critic += sum(0.5 * rows["weight"][b] * (_value(td3.critics.net, i, now, taken) - target) ** 2 for i in range(2)) / 12
        actor -= _value(td3.critics.net, 0, now, np.tanh(_tower(policy.tower, 0, now))) / 12
    (critic_loss, _), (actor_loss, _) = _losses(td3, batch, vector)
    assert critic_loss.item() == pytest.approx(critic, rel=1e-4)
    assert actor_loss.item() == pytest.approx(actor, rel=1e-4)


def test_the_losses_of_ddpg_are_those_of_a_loop_over_rows() -> None:
    made = learner(DDPG)
    _spread(made)
    rows = transitions()
    ddpg, policy, batch, vector = _parts(made, rows)
    critic = actor = 0.0
    for b in range(12):
        now, beyond = rows["obs"][:, b, 0].astype(np.float64)
        after = _value(ddpg.critics.target.net, 0, beyond, np.tanh(_tower(ddpg.target.net.tower, 0, beyond)))
        target = rows["reward"][0, b, 0] + rows["discount"][0, b, 0] * after
        critic += 0.5 * rows["weight"][b] * (_value(ddpg.critics.net, 0, now, rows["action"][0, b, 0]) - target) ** 2 / 12
        actor -= _value(ddpg.critics.net, 0, now, np.tanh(_tower(policy.tower, 0, now))) / 12
    (critic_loss, _), (actor_loss, _) = _losses(ddpg, batch, vector)
    assert critic_loss.item() == pytest.approx(critic, rel=1e-4)
    assert actor_loss.item() == pytest.approx(actor, rel=1e-4)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_actors_loss_leaves_the_critics_alone(algorithm: Any) -> None:
    made = learner(algorithm)
    one, _, batch, vector = _parts(made, transitions())
    _losses(one, batch, vector)[1][0].backward()
    critics = one.critics
    assert all(float(parameter.grad.abs().sum()) == 0.0 for parameter in critics.net.parameters())
    assert sum(float(parameter.grad.abs().sum()) for parameter in made.policy.parameters()) > 0.0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_update_in_bfloat16_is_nearly_that_in_float32(algorithm: Any) -> None:
    found = []
    for half in (False, True):
        made = learner(algorithm, critic={"hidden": [32, 32], "half": half}, policy={"hidden": [32, 32], "half": half})
        _spread(made)
        one, _, batch, vector = _parts(made, transitions())
        found.append([loss.item() for loss, _ in _losses(one, batch, vector)])
    assert found[1] != found[0]
    assert found[1] == pytest.approx(found[0], rel=0.05)


def test_td3_moves_actor_and_targets_at_every_second_update() -> None:
    made = learner(TD3, actor_every=2)
    moved = []
    for update in range(4):
        before = {name: array.copy() for name, array in made.params().items()}
        made.clock.updates = update
        made.update(transitions(update))
        moved.append(any((made.params()[name] != array).any() for name, array in before.items() if "tower" in name))
    assert moved == [True, False, True, False]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"critic": {"hidden": [16, 16], "norm": "layer"}},
        {"critic": {"hidden": [16], "tau": None, "norm": "layer"}},
        {"critic": {"hidden": [16], "tau": None, "norm": "batch"}},
    ],
)
def test_every_kind_of_critic_learns_and_resumes_exactly(algorithm: Any, options: dict[str, Any]) -> None:
    made, again = (learner(algorithm, **options, policy={"normalize_obs": True}) for _ in range(2))
    for update in (0, 1):
        made.clock.updates = update
        made.update(transitions(update))
    saved = made.state()
    results = []
    for one in (made, again):
        one.restore(*saved)
        for update in (2, 3):
            one.clock.updates = update
            one.update(transitions(update))
        results.append({name: array.copy() for name, array in one.params().items()})
    for name, array in results[0].items():
        np.testing.assert_array_equal(results[1][name], array, err_msg=name)
        assert name in ("random", "noise") or (array != saved[0]["policy"][name]).any()


def test_batch_normalized_critics_with_targets_are_refused() -> None:
    with pytest.raises(UserError, match="norm"):
        learner(SAC, critic={"norm": "batch"})


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_first_update_ends_random_actions_and_the_noise_follows_its_schedule(algorithm: Any) -> None:
    ladder = {} if algorithm is SAC else {"noise": {"from": 0.4, "to": 0.0}, "least_noise": 0.1}
    made = learner(algorithm, **ladder)
    assert float(made.params()["random"]) == 1.0
    made.clock.progress = 0.5
    made.update(transitions())
    assert float(made.params()["random"]) == 0.0
    if ladder:
        np.testing.assert_allclose(made.params()["noise"], [0.1, 0.2], atol=1e-6)
        made.clock.progress = 1.0
        made.update(transitions())
        np.testing.assert_allclose(made.params()["noise"], [0.0, 0.0])


BANDIT: list[Any] = [
    pytest.param(SAC, {"target_entropy": -6.0}, id="sac"),
    pytest.param(SAC, {"temperature": 0.005, "critic": {"hidden": [64], "norm": "layer"}}, id="sac fixed layer"),
    pytest.param(SAC, {**CROSSQ, "temperature": 0.005, "critic": {"hidden": [64], "norm": "batch", "tau": None}}, id="crossq"),
    pytest.param(TD3, {"lr": 1e-3}, id="td3"),
    pytest.param(DDPG, {}, id="ddpg"),
]


@pytest.mark.parametrize(("algorithm", "config"), BANDIT)
def test_the_best_action_is_found(algorithm: Any, config: dict[str, Any]) -> None:
    """Reward `-(a - tanh(x))^2` of random transitions that all end, from a buffer of 30 lines."""
    made = learner(algorithm, rows=64, policy={"hidden": [64, 64]}, **{"critic": {"hidden": [64, 64]}, **config})
    noise = np.random.default_rng(0)
    size = 4000
    obs = noise.standard_normal((size, INPUTS)).astype(np.float32)
    action = noise.uniform(-1.0, 1.0, (size, SIZE)).astype(np.float32)
    reward = -np.square(action - np.tanh(obs[:, :SIZE])).sum(1)
    for update in range(1500):
        drawn = noise.integers(0, size, 64)
        made.clock.updates = update
        made.update(
            transitions(
                update, 64,
                obs=np.stack((obs[drawn], obs[drawn])), action=action[drawn], reward=reward[drawn],
                discount=np.zeros(64, np.float32), weight=np.ones(64, np.float32),
            )
        )  # fmt: skip
    with torch.no_grad():
        greedy = made.policy(torch.from_numpy(obs)).numpy()
    assert float(np.abs(greedy - np.tanh(obs[:, :SIZE])).mean()) < 0.16


def test_a_value_over_time_is_that_of_the_bellman_equation() -> None:
    """One state, reward 1, discount 0.5: the value is 2 without entropy."""
    made = learner(SAC, rows=16, temperature=0.0, critic={"hidden": [16], "tau": 0.1})
    ones = {
        "obs": np.zeros((2, 16, INPUTS), np.float32),
        "reward": np.ones(16, np.float32),
        "discount": np.full(16, 0.5, np.float32),
    }
    for update in range(1200):
        made.clock.updates = update
        made.update(rows := transitions(update, 16, **ones))
    assert train(made, rows)["q"] == pytest.approx(2.0, rel=0.05)
