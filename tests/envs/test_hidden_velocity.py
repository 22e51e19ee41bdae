"""CartPole without velocities."""

from __future__ import annotations

import numpy as np

from srl.api.env import new_block, renew
from srl.core.seeds import Seeds
from srl.envs.resolve import make_env


def test_it_is_cartpole_of_which_only_the_positions_are_shown() -> None:
    whole = make_env({"use": "gym_vector", "id": "CartPole-v1"}, 5, Seeds(7))
    shown = make_env("cartpole_positions", 5, Seeds(7))
    assert shown.spec.teams["agent"].obs.shape == (2,)
    blocks = [new_block(env.spec, 5) for env in (whole, shown)]
    whole.reset(blocks[0])
    shown.reset(blocks[1])
    rng, ended = np.random.default_rng(0), 0
    for _ in range(80):
        want, have = (block.teams["agent"] for block in blocks)
        np.testing.assert_array_equal(have.obs, want.obs[..., [0, 2]])
        np.testing.assert_array_equal(have.reward, want.reward)
        np.testing.assert_array_equal(have.terminated, want.terminated)
        ended += int(have.terminated.sum())
        actions = {"agent": rng.integers(0, 2, (5, 1))}
        for env, block in zip((whole, shown), blocks, strict=True):
            renew(block)
            env.step(actions, block)
    assert ended > 5
