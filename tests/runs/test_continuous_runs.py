"""SAC, TD3 and DDPG in whole runs, with their options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srl
from srl.core.errors import UserError
from srl.plan.prepare import prepare

SMALL: dict[str, Any] = {
    "env": {"use": "fake", "length": [3, 9], "end": "random", "box": 2},
    "policy": {"hidden": [16]},
    "replay": {"size": 400, "batch": 32, "warmup": 50},
    "seed": 3,
}
CRITIC: dict[str, Any] = {"hidden": [16]}
OPTIONS: dict[str, Any] = {
    "usual": {},
    "several envs, n-step": {"sampling": {"envs": 6, "steps": 5, "groups": 2}, "algorithm": {"n_step": 3}},
    "normalized observations, layer norm": {
        "policy": {"hidden": [16], "normalize_obs": True},
        "algorithm": {"critic": {**CRITIC, "norm": "layer"}},
    },
    "no targets": {"algorithm": {"critic": {**CRITIC, "tau": None, "norm": "batch"}}},
    "several agents": {"env": {**SMALL["env"], "teams": {"agent": 3}}, "sampling": {"envs": 2}},
    "twice a step": {"replay": {**SMALL["replay"], "updates_per_step": 2.0}},
}
TWINS = {"sac": "NumpySquashedGaussian", "td3": "NumpyDeterministic", "ddpg": "NumpyDeterministic"}


def _settings(algorithm: str, options: dict[str, Any]) -> dict[str, Any]:
    return {**SMALL, **options, "algorithm": {"use": algorithm, "critic": CRITIC, **options.get("algorithm", {})}}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("algorithm", TWINS)
def test_every_option_trains_and_acts_without_torch(algorithm: str, options: str) -> None:
    with srl.build(**_settings(algorithm, OPTIONS[options])) as session:
        policy = session.workers["policy/0"].policy
        assert type(policy).__name__ == TWINS[algorithm]
        session.step()
        before = {name: np.array(array) for name, array in session.workers["trainer/0"].learner.params().items()}
        session.step(30)
        params = session.workers["trainer/0"].learner.params()
        assert all(np.isfinite(array).all() for array in params.values())
        assert any((params[name] != array).any() for name, array in before.items() if name.startswith("tower"))
        assert float(params["random"]) == 0.0 and not policy._random
        if "normalizer.count" in params:
            assert float(params["normalizer.count"]) > 0.0 and policy._mean is not None


def test_a_noise_ladder_and_a_schedule_reach_the_actors() -> None:
    algorithm = {"noise": {"from": 0.5, "to": 0.1}, "least_noise": 0.05}
    with srl.build(**_settings("td3", {"algorithm": algorithm, "sampling": {"envs": 4}}), stop={"env_steps": 400}) as session:
        session.step(60)
        policy = session.workers["policy/0"].policy
        assert policy._low == pytest.approx(0.05) and 0.1 < policy._high < 0.5


@pytest.mark.parametrize("algorithm", TWINS)
def test_a_run_that_was_resumed_is_the_run_that_was_not_stopped(algorithm: str, tmp_path: Path) -> None:
    words = _settings(algorithm, {"sampling": {"envs": 2}})
    words |= {"mode": "inline", "evaluation": None, "quiet": True, "checkpoint": {"every": 50, "replay": True}}
    whole = srl.launch(**words, stop={"updates": 150}, runs=tmp_path / "whole")
    half = srl.launch(**words, stop={"updates": 100}, runs=tmp_path / "half")
    rest = srl.launch(resume=half.folder, stop={"updates": 150}, quiet=True)
    one, two = (_weights(done.folder) for done in (whole, rest))
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name], err_msg=name)


def _weights(folder: Any) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in srl.load_run(folder).network().state_dict().items()}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["env=CartPole-v1", "algorithm=sac"], "needs real actions"),
        (["env=Pendulum-v1", "algorithm=sac", "policy=actor_critic"], "cannot train policy actor_critic"),
        (["env=Pendulum-v1", "algorithm=td3", "algorithm.critic={norm: batch}"], "norm"),
    ],
)
def test_what_they_cannot_do_is_said_before_the_start(words: list[str], found: str) -> None:
    with pytest.raises(UserError) as caught:
        prepare(None, [*words, "stop.env_steps=1_000"])
    assert found in str(caught.value)


def test_the_policy_follows_from_the_algorithm() -> None:
    named = prepare(None, ["env=Pendulum-v1", "algorithm=td3", "policy.hidden=[8]", "stop.env_steps=1_000"], inspect=False)
    assert named.experiment.policy.use == "deterministic" and dict(named.experiment.policy.args) == {"hidden": [8]}
    plain = prepare(None, ["env=Pendulum-v1", "algorithm=sac", "stop.env_steps=1_000"], inspect=False)
    assert plain.experiment.policy.use == "squashed_gaussian"
