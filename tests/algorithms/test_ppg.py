"""PPG: PPO without its auxiliary phase, and with it the loss of a loop over rows, close policies and exact resumes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from srl.algorithms.ppg import PPG
from srl.algorithms.ppo import PPO
from srl.api.env import Box, Discrete
from srl.core.errors import UserError
from srl.core.spec import Leaf
from srl.learners.single import SingleLearner
from tests.algorithms.slabs import make, record

UNIT = Box((2,), (-1.0,) * 2, (1.0,) * 2)
COMMON: dict[str, Any] = {"epochs": 2, "minibatch": 32, "lr": 3e-3}


def updates(learner: SingleLearner, number: int, start: int = 0) -> list[dict[str, float]]:
    """The metrics of some updates on rows that the learner's policy records."""
    shown = []
    for update in range(start, start + number):
        rows = record(learner, seed=update)
        learner.clock.updates = update
        learner.update(rows)
        shown.append(learner.metrics())
    return shown


def weights(learner: SingleLearner) -> dict[str, Any]:
    return {name: one.clone() for name, one in learner.policy.state_dict().items()}


@pytest.mark.parametrize("action", [Discrete(3), UNIT], ids=["choice", "real"])
@pytest.mark.parametrize("popart", [False, True])
def test_without_its_auxiliary_phase_it_is_ppo_with_separate_networks_bit_for_bit(popart: bool, action: Any) -> None:
    config = {**COMMON, "normalize_value": popart, "max_grad_norm": 0.1}
    plain = make(action, algorithm=PPO, config=config)
    phased = make(action, algorithm=PPG, config={**config, "auxiliary_epochs": 0, "every": 2})
    for one, other in zip(updates(plain, 5), updates(phased, 5), strict=True):
        assert one == other
    for (name, one), (also, other) in zip(weights(plain).items(), weights(phased).items(), strict=True):
        assert name == also and torch.equal(one, other)


def test_the_policy_phase_is_that_of_ppo_until_the_first_auxiliary_phase() -> None:
    plain, phased = make(algorithm=PPO, config=COMMON), make(algorithm=PPG, config={**COMMON, "every": 4})
    updates(plain, 3), updates(phased, 3)
    assert all(torch.equal(one, weights(phased)[name]) for name, one in weights(plain).items())
    updates(plain, 1, 3), updates(phased, 1, 3)
    assert not torch.equal(weights(plain)["actor.layers.0.weight"], weights(phased)["actor.layers.0.weight"])


@pytest.mark.parametrize("kind", ["choice", "masked", "real"])
def test_the_auxiliary_loss_is_that_of_a_loop_over_rows(kind: str) -> None:
    action = UNIT if kind == "real" else Discrete(3)
    learner = make(action, mask=kind == "masked", algorithm=PPG, config={**COMMON, "every": 2})
    algorithm: PPG = learner.algorithm  # type: ignore[assignment]
    kept = []
    for place in range(2):
        rows = record(learner, seed=place)
        batch = learner.intake.batch(rows, place)
        algorithm.prepare(batch)
        algorithm.remember(batch, place)
        kept.append((rows, batch.target.clone()))
    batch = algorithm.remembered(batch.origin)
    with torch.no_grad():
        old = {name: one.clone() for name, one in learner.policy.unroll(batch).items()}
        old_std = old.pop("log_std", None)
        batch.add(target=batch.returns, old_logits=old["logits"][:-1])
        for one in (*learner.policy.parameters(), *algorithm.auxiliary.parameters()):
            one += 0.1 * torch.randn(one.shape)
        (mini,) = batch.minibatches(4096)
        found = algorithm.auxiliary_loss(mini, old_std)
    expected, number = np.zeros(3), 0
    policy = learner.policy
    for place, (rows, target) in enumerate(kept):
        for t in range(16):
            for b in range(6):
                if not rows["valid"][t, b, 0]:
                    continue
                number += 1
                x = torch.from_numpy(rows["obs"][t, b, 0])
                with torch.no_grad():
                    acting, judging = x, x
                    for layer in policy.actor.layers:  # type: ignore[union-attr]
                        acting = torch.tanh(layer(acting))
                    for layer in policy.critic.layers:  # type: ignore[union-attr]
                        judging = torch.tanh(layer(judging))
                    now = policy.logits(acting).double().numpy()
                    value, auxiliary = float(policy.value(judging)), float(algorithm.auxiliary(acting))
                before = old["logits"][t, place * 6 + b].double().numpy()
                expected[0] += 0.5 * (value - float(target[t, b])) ** 2
                expected[1] += 0.5 * (auxiliary - float(target[t, b])) ** 2
                if kind == "real":
                    was, log_std = old_std.double().numpy(), policy.log_std.detach().double().numpy()  # type: ignore[union-attr]
                    spread = (np.exp(2 * was) + (before - now) ** 2) / (2 * np.exp(2 * log_std))
                    expected[2] += (log_std - was + spread - 0.5).sum()
                else:
                    allowed = rows["mask"][t, b, 0] if kind == "masked" else np.ones(3, bool)
                    allowed = allowed if allowed.any() else ~allowed
                    p, q = (np.exp(one[allowed]) / np.exp(one[allowed]).sum() for one in (before, now))
                    expected[2] += (p * np.log(p / q)).sum()
    np.testing.assert_allclose(found.numpy(), expected / number, rtol=1e-3)


def judged(learner: SingleLearner, rows: Any) -> tuple[Any, float, float]:
    """Log-probabilities of all actions, and the mean squared errors of both value heads."""
    with torch.no_grad():
        heads = learner.policy.unroll(rows)
        second = learner.algorithm.auxiliary(learner.policy.actor(learner.policy.encode(rows.obs))).squeeze(-1)  # type: ignore[operator]
        wrong = [float(rows.mean((one[:-1] - rows.returns).square())) for one in (heads["value"], second)]
    return torch.log_softmax(heads["logits"], -1)[:-1], wrong[0], wrong[1]


def test_the_phase_teaches_values_and_hardly_changes_the_policy() -> None:
    config = {**COMMON, "every": 3, "auxiliary_epochs": 30, "auxiliary_minibatch": 64, "auxiliary_lr": 1e-3, "gamma": 0.0}
    learner = make(algorithm=PPG, config=config, steps=32)
    algorithm: PPG = learner.algorithm  # type: ignore[assignment]
    for update in range(3):
        rows = record(learner, seed=update)
        rows["reward"][..., 0] = 2.0 * rows["obs"][:-1, ..., 0, 0]  # with gamma 0 these are the returns
        learner.clock.updates = update
        if update < 2:
            learner.update(rows)
            learner.metrics()
        else:
            PPO.update(algorithm, batch := learner.intake.batch(rows, update))
            algorithm.remember(batch, update)
            everything = algorithm.remembered(batch.origin)

            before, value, auxiliary = judged(learner, everything)
            shown = algorithm.auxiliary_phase(batch.origin)
            after, value_after, auxiliary_after = judged(learner, everything)
    kl = float(everything.mean((before.exp() * (before - after)).sum(-1)))
    assert kl < 1e-2 and float(shown["phase_kl"]) < 1e-2
    assert value_after < 0.5 * value and auxiliary_after < 0.5 * auxiliary


def test_returns_of_a_phase_are_compared_on_one_scale_though_values_are_normalized() -> None:
    learner = make(algorithm=PPG, config={**COMMON, "every": 4, "normalize_value": True, "gamma": 0.0})
    algorithm: PPG = learner.algorithm  # type: ignore[assignment]
    expected = []
    for update in range(3):
        rows = record(learner, seed=update)
        rows["reward"] = 10.0 * (update + 1) + rows["reward"]
        learner.clock.updates = update
        learner.update(rows)
        expected.append(np.where(rows["valid"], rows["reward"], 0.0)[..., 0])
    batch = algorithm.remembered(learner.intake.batch(rows, 2).origin)
    found = torch.where(batch.valid, batch.returns, 0.0).numpy()[:, :18]
    np.testing.assert_allclose(found, np.concatenate(expected, 1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("obs", [Leaf((5,), "float32"), {"near": {"x": Leaf((2,), "float32")}, "far": Leaf((), "float32")}])
def test_a_resume_amid_a_phase_continues_exactly(obs: Any) -> None:
    config = {**COMMON, "every": 4}
    whole, first, second = (make(algorithm=PPG, config=config, obs=obs, seed=seed) for seed in (0, 0, 1))
    updates(whole, 9)
    updates(first, 6)
    groups, state = first.state()
    second.restore(groups, state)
    second.task = first.task
    second.intake = first.intake
    updates(second, 3, 6)
    assert all(torch.equal(one, weights(second)[name]) for name, one in weights(whole).items())
    assert torch.equal(whole.algorithm.auxiliary.weight, second.algorithm.auxiliary.weight)


def test_networks_that_are_shared_are_refused() -> None:
    with pytest.raises(UserError, match="separate networks"):
        make(algorithm=PPG, policy_config={"shared": True})
