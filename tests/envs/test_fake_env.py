"""The fake env keeps its promises: rows that tell who they are, chosen times, agents that die and appear."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from srl.api.env import new_block, renew
from srl.core.errors import UserError
from srl.core.seeds import Seeds
from srl.envs.check import sample_actions
from srl.envs.fake import FakeEnv, fields_of


def walk(ticks: int, count: int = 3, **args: Any) -> Any:
    """Every block of a walk, with the actions that led there."""
    env = FakeEnv(count, Seeds(2, first=10), **args)
    block = new_block(env.spec, count)
    env.reset(block)
    rng = np.random.default_rng(0)
    for _ in range(ticks):
        actions = sample_actions(env.spec, block, rng)
        renew(block)
        env.step(actions, block)
        yield env, block, actions


def test_every_row_says_which_row_it_is() -> None:
    episode, step = np.zeros(3, int), np.zeros(3, int)
    for env, block, actions in walk(40, obs=[9], length=[2, 6]):
        team = block.teams["agent"]
        ended = (team.terminated | team.truncated)[:, 0]
        fields = fields_of(team.obs)
        fresh = fields["step"][:, 0] == 0
        episode += fresh
        step = np.where(fresh, 0, step + 1)
        assert fields["env"][:, 0].tolist() == [10, 11, 12]
        assert fields["episode"][:, 0].tolist() == episode.tolist()
        assert fields["step"][:, 0].tolist() == step.tolist()
        taken = np.where(fresh, 0, actions["agent"][:, 0])
        assert fields["action"][:, 0].tolist() == taken.tolist()
        for i in range(3):
            np.testing.assert_array_equal(team.obs[i, 0], env.expected(10 + i, episode[i], step[i], 0, taken[i]))
            if not fresh[i]:
                assert team.reward[i, 0] == np.float32(env.reward_of(10 + i, episode[i], step[i] - 1, 0, taken[i]))
        assert not (ended & fresh).any()
    assert episode.min() > 3


def test_uint8_rows_wrap_and_keep_their_shape() -> None:
    for env, block, _ in walk(5, obs=[4, 3, 2], dtype="uint8", length=[3, 3]):
        obs = block.teams["agent"].obs
        assert obs.dtype == np.uint8 and obs.shape == (3, 1, 4, 3, 2)
        flat = obs.reshape(3, 1, -1)
        assert fields_of(flat)["env"][:, 0].tolist() == [10, 11, 12]
        np.testing.assert_array_equal(obs[1, 0].ravel()[5:], env.expected(11, *map(int, flat[1, 0, 1:4])).ravel()[5:])


@pytest.mark.parametrize(("end", "flags"), [("terminated", (1, 0)), ("truncated", (0, 1)), ("both", (1, 1))])
def test_episodes_end_as_asked(end: str, flags: tuple[int, int]) -> None:
    seen = set()
    for _, block, _ in walk(20, length=[4, 4], end=end):
        team = block.teams["agent"]
        seen |= set(zip(team.terminated.ravel().tolist(), team.truncated.ravel().tolist(), strict=True))
    assert seen == {(False, False), (bool(flags[0]), bool(flags[1]))}


def test_random_ends_are_of_all_three_kinds() -> None:
    seen = set()
    for _, block, _ in walk(120, length=[2, 4], end="random"):
        team = block.teams["agent"]
        seen |= set(zip(team.terminated.ravel().tolist(), team.truncated.ravel().tolist(), strict=True))
    assert len(seen) == 4


def test_agents_die_and_appear_while_the_first_stays() -> None:
    died, appeared, before = 0, 0, np.ones((3, 4), bool)
    for _, block, _ in walk(120, teams={"a": 3, "b": 1}, length=[6, 12], dying=True, late=True):
        active = np.concatenate([block.teams[name].active for name in ("a", "b")], axis=1)
        ended = np.concatenate([block.teams[name].terminated for name in ("a", "b")], axis=1)
        assert active[:, 0].all()
        died += int((ended[:, 1:] & ~ended[:, :1]).sum())
        appeared += int((active & ~before).sum())
        before = active
    assert died > 10 and appeared > 10


def test_a_forbidden_action_is_an_error() -> None:
    env = FakeEnv(2, Seeds(0), mask=True, action=4)
    block = new_block(env.spec, 2)
    env.reset(block)
    mask = block.teams["agent"].mask
    assert mask is not None and mask.any(axis=-1).all() and not mask.all()
    wrong = np.asarray(mask).argmin(axis=-1)
    with pytest.raises(UserError, match="took the forbidden action"):
        env.step({"agent": wrong}, block)


def test_stats_are_the_length_and_the_score_of_the_episode() -> None:
    score = np.zeros(3)
    for _, block, _ in walk(25, length=[5, 5]):
        team = block.teams["agent"]
        score += team.reward[:, 0]
        over = team.terminated[:, 0]
        np.testing.assert_array_equal(block.stats[over, 0], 5)
        np.testing.assert_allclose(block.stats[over, 1], score[over], rtol=1e-5)
        score[over] = 0


@pytest.mark.parametrize("clock", ["cpu", "wall"])
def test_a_step_takes_the_chosen_time(clock: str) -> None:
    env = FakeEnv(4, Seeds(0), step_us=500.0, clock=clock)
    block = new_block(env.spec, 4)
    env.reset(block)
    now = time.thread_time if clock == "cpu" else time.perf_counter
    spent = []
    for _ in range(10):
        start = now()
        env.step({"agent": np.zeros((4, 1), np.int64)}, block)
        spent.append(now() - start)
    assert 0.002 <= min(spent) < 0.0025


def test_settings_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(UserError, match="cannot be combined with box"):
        FakeEnv(1, Seeds(0), mask=True, box=2)
    with pytest.raises(UserError, match="shortest, longest"):
        FakeEnv(1, Seeds(0), length=[5, 3])
