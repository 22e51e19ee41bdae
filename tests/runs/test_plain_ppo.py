"""`staleness.max=0` inline is strictly on-policy: bit-equal to a loop that anybody would write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import srl
from tests.runs.plain_ppo import plain_ppo

CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("CartPole-v1", {"epochs": 2, "minibatch": 96, "lr": {"from": 1e-3, "to": 0}}, {"hidden": [16, 16]}),
    ("Pendulum-v1", {"epochs": 2, "minibatch": 64, "normalize_value": True}, {"hidden": [16], "normalize_obs": True}),
]


@pytest.mark.parametrize(("env", "algorithm", "policy"), CASES)
@pytest.mark.parametrize("groups", [1, 2])
def test_an_inline_run_is_bit_equal_to_a_plain_loop(
    env: str, algorithm: dict[str, Any], policy: dict[str, Any], groups: int
) -> None:
    updates = 6
    expected, env_steps, _ = plain_ppo(env, envs=8, steps=40, updates=updates, seed=11, algorithm=algorithm, policy=policy)
    with srl.build(
        env=env,
        algorithm={"use": "ppo", **algorithm},
        policy={"use": "actor_critic", **policy},
        sampling={"envs": 8, "steps": 40, "workers": 1, "groups": groups},
        layout="inline",
        staleness={"max": 0},
        seed=11,
        stop={"updates": updates},
    ) as session:
        while not session.finished:
            session.step()
        trainer: Any = session.workers["trainer/0"]
        assert trainer.updates == updates
        assert trainer.env_steps == env_steps
        assert trainer.reading.metrics["stream/samples.main/staleness"].high == 0
        for name, array in trainer.learner.params().items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)
