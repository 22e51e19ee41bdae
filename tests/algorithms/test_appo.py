"""APPO against a loop over rows, and against PPO where nothing is to be corrected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import srl
from srl.algorithms.appo import APPO
from srl.learners.single import SingleLearner
from srl.nets.actor_critic import ActorCritic
from srl.nets.recurrent import Recurrent
from tests.algorithms.slabs import make, record, train

PLAIN: dict[str, Any] = {"policy": ActorCritic, "policy_config": {"hidden": [16]}}
MEMORY: dict[str, Any] = {"policy": Recurrent, "policy_config": {"hidden": [8], "width": 8}}
POLICIES = {"plain": PLAIN, "memory": MEMORY}


def moved(module: torch.nn.Module, by: float, seed: int) -> None:
    """Another policy than the one that recorded the rows."""
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in module.parameters():
            one += by * torch.randn(one.shape, generator=noise)


def three_policies(**settings: Any) -> tuple[SingleLearner, dict[str, Any]]:
    """Rows of an actor, a proximal policy behind the learner's, and the learner's own: all different."""
    learner = make(algorithm=APPO, **settings)
    rows = record(learner)
    algorithm: APPO = learner.algorithm  # type: ignore[assignment]
    moved(learner.policy, 0.1, 1)
    algorithm.proximal.follow(1.0)
    moved(learner.policy, 0.1, 2)
    return learner, rows


def of_each(learner: SingleLearner, rows: dict[str, Any], net: Any) -> tuple[Any, Any, Any]:
    """Log-probabilities of the actions, all log-probabilities, and values, in double precision."""
    batch = learner.intake.batch(rows, 0)
    with torch.no_grad():
        heads = net.unroll(batch)
    logits = heads["logits"].double()
    if batch.mask is not None:
        logits = logits.masked_fill(~(batch.mask | ~batch.mask.any(-1, keepdim=True)), -np.inf)
    log = torch.log_softmax(logits, -1)[:-1]
    return log.gather(-1, batch.action[..., None])[..., 0].numpy(), log.numpy(), heads["value"].double().numpy()


@pytest.mark.parametrize("objective", ["decoupled", "coupled"])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_loss_is_that_of_a_loop_over_rows(policy: str, mask: bool, objective: str) -> None:
    config = {
        "objective": objective, "gamma": 0.9, "lam": 0.8, "clip_rho": 1.05, "clip_c": 0.9, "clip": 0.1, "epochs": 1,
        "minibatch": 4096, "normalize_advantage": "no", "target_every": 1000, "tau": 1e-9,
    }  # fmt: skip
    learner, rows = three_policies(config=config, mask=mask, **POLICIES[policy])
    learner.clock.updates = 1  # the proximal policy stays where it is
    near, _, values = of_each(learner, rows, learner.algorithm.proximal.net)
    mine, _, judged = of_each(learner, rows, learner.policy)
    flags = {name: rows[name][..., 0] for name in ("valid", "terminated", "truncated", "reward")}
    choice = flags["valid"] & (rows["choice"][..., 0] if mask else True)
    acted = rows["extra"]["log_prob"][:-1, :, 0].astype(np.float64)
    ratio = np.where(choice, np.exp(near - acted), 1.0)
    target = values.copy()
    loss, error = 0.0, 0.0
    for b in range(6):
        for t in range(15, -1, -1):
            valid, terminated = flags["valid"][t, b], flags["terminated"][t, b]
            over = not valid or terminated or flags["truncated"][t, b]
            beyond = 0.0 if terminated else values[t + 1, b]
            rho = min(1.05, ratio[t, b])
            delta = rho * (flags["reward"][t, b] + 0.9 * beyond - values[t, b])
            later = 0.0 if over else 0.9 * 0.8 * min(0.9, ratio[t, b]) * (target[t + 1, b] - values[t + 1, b])
            target[t, b] = values[t, b] + delta + later
            if valid:
                error += (judged[t, b] - target[t, b]) ** 2 / flags["valid"].sum()
            if choice[t, b]:
                advantage = flags["reward"][t, b] + 0.9 * (beyond if over else target[t + 1, b]) - values[t, b]
                away = np.exp(mine[t, b] - (near if objective == "decoupled" else acted)[t, b])
                gain = min(away * advantage, min(max(away, 0.9), 1.1) * advantage)
                loss -= (rho if objective == "decoupled" else 1.0) * gain / choice.sum()
    shown = train(learner, rows)
    assert (flags["terminated"].any(), flags["truncated"].any()) == (True, True)
    assert 0.0 < shown["clip_fraction"] < 1.0
    assert shown["value_loss"] == pytest.approx(error, rel=1e-4)
    assert shown["policy_loss"] == pytest.approx(loss, rel=1e-3, abs=1e-5)
    assert shown["rho"] == pytest.approx(np.minimum(ratio, 1.05)[choice].mean(), rel=1e-4)


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_of_the_present_policy_need_no_correction_and_both_objectives_agree(policy: str) -> None:
    weights = []
    for objective in ("decoupled", "coupled"):
        learner = make(algorithm=APPO, config={"objective": objective, "epochs": 3, "minibatch": 32}, **POLICIES[policy])
        shown = train(learner, record(learner))
        assert shown["rho"] == pytest.approx(1.0, abs=1e-5)
        weights.append(torch.cat([one.detach().flatten() for one in learner.policy.parameters()]))
    np.testing.assert_allclose(weights[0], weights[1], atol=2e-5)


def test_the_proximal_policy_moves_every_few_updates() -> None:
    learner = make(algorithm=APPO, config={"target_every": 3, "tau": 0.5, "lr": 1e-2})
    flat = lambda module: torch.cat([one.detach().flatten() for one in module.parameters()])  # noqa: E731
    expected = flat(learner.policy).clone()
    for update in range(7):
        before = flat(learner.policy).clone()
        learner.clock.updates = update
        learner.update(record(learner, seed=update))
        expected = expected if update % 3 else torch.lerp(expected, before, 0.5)
        np.testing.assert_allclose(flat(learner.algorithm.proximal.net), expected, atol=1e-6)
    assert (flat(learner.policy) - expected).abs().max() > 1e-3


def test_normalized_values_are_those_of_the_proximal_policy_on_the_scale_of_returns() -> None:
    learner = make(algorithm=APPO, config={"normalize_value": True, "lr": 1e-2})
    for update in range(5):
        rows = record(learner, seed=update)
        rows["reward"] = 30.0 * rows["reward"] + 100.0
        learner.clock.updates = update
        learner.update(rows)
    algorithm: APPO = learner.algorithm  # type: ignore[assignment]
    batch = learner.intake.batch(rows, 5)
    algorithm.proximal.follow(1.0)
    with torch.no_grad():
        values, _, _ = algorithm.judged(batch)
        head = learner.policy.value_head
        assert head is not None and float(head.moments[1]) > 10.0
        np.testing.assert_allclose(values, head.returns(learner.policy.unroll(batch)["value"]), rtol=1e-4)


def test_slabs_of_a_buffer_are_trained_on_twice_within_the_staleness_and_two_inline_runs_are_equal() -> None:
    weights = []
    for _ in range(2):
        with srl.build("cartpole_appo", evaluation=None, sampling={"envs": 4, "steps": 16}) as session:
            session.step(9)
            found = session.step()
            assert session.algorithm.clock.updates >= 9 and session.algorithm.clock.env_steps < 8 * 64
            assert found["train/rho"] < 1.0
            weights.append({key: one.clone() for key, one in session.algorithm.policy.state_dict().items()})
    assert all(torch.equal(one, weights[1][key]) for key, one in weights[0].items())
