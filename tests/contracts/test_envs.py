"""One suite for every env: what the engine relies on. Add a line to ENVS to put another env under it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from srl.api.env import BatchEnv, Block, new_block, renew
from srl.core.seeds import Seeds
from srl.core.spec import lead, spec_of
from srl.core.tree import leaves, map_tree
from srl.envs.check import check_env, sample_actions
from srl.envs.resolve import make_env
from srl.envs.watch import Watcher, identities

COUNT = 4

ENVS: dict[str, Any] = {
    "cartpole": "CartPole-v1",
    "cartpole_vector": {"use": "gym_vector", "id": "CartPole-v1"},
    "cartpole_positions": "cartpole_positions",
    "catch": {"use": "catch", "height": 4, "width": 5},
    "catch_told": {"use": "catch", "height": 5, "width": 4, "told": True},
    "pendulum": {"use": "Pendulum-v1", "max_episode_steps": 17},
    "mountain_car": {"use": "MountainCar-v0", "max_episode_steps": 23},
    "acrobot": {"use": "Acrobot-v1", "max_episode_steps": 23},
    "blackjack": "Blackjack-v1",
    "taxi": {"use": "Taxi-v4", "max_episode_steps": 19},
    "half_cheetah": {"use": "HalfCheetah-v5", "max_episode_steps": 13},
    "hopper": {"use": "Hopper-v5", "stats": ["x_position"]},
    "ant": {"use": "Ant-v5", "max_episode_steps": 13},
    "reacher": {"use": "Reacher-v5", "max_episode_steps": 13},
    "simple_tag": {"use": "mpe2.simple_tag_v3:parallel_env", "max_cycles": 9},
    "fake": {"use": "fake", "length": [3, 9], "end": "both"},
    "fake_images": {"use": "fake", "obs": [6, 5, 3], "dtype": "uint8", "length": [1, 4], "end": "truncated"},
    "fake_teams": {
        "use": "fake", "teams": {"red": 3, "blue": 1}, "dying": True, "late": True, "mask": True, "state": 5,
        "length": [1, 9], "end": "random", "action": [3, 2],
    },
    "fake_box": {"use": "fake", "box": 2, "length": [5, 5]},
    "hide_and_seek": "hide_and_seek",
    "breakout": "ALE/Breakout-v5",
}  # fmt: skip
SAVEABLE = {"cartpole", "cartpole_vector", "pendulum", "mountain_car", "acrobot", "half_cheetah", "hopper", "ant", "reacher"} | {
    "fake", "fake_images", "fake_teams", "fake_box", "hide_and_seek", "cartpole_positions", "catch", "catch_told",
}  # fmt: skip
NEVER_ENDS_SOON = {"hide_and_seek"}


class Play:
    """An env, its block and random actions; follows episodes by what the env writes."""

    def __init__(self, name: str, seed: int = 3) -> None:
        self.env: BatchEnv = make_env(ENVS[name], COUNT, Seeds(seed))
        self.block: Block = new_block(self.env.spec, COUNT)
        self.watcher = Watcher(COUNT, self.env.seeds, name)
        self.rng = np.random.default_rng(seed)

    def reset(self) -> Play:
        watching = identities(self.block)
        self.env.reset(self.block)
        self.watcher.began(self.block, watching)
        return self

    def step(self, actions: Any = None) -> None:
        chosen = sample_actions(self.env.spec, self.block, self.rng) if actions is None else actions
        renew(self.block)
        watching = identities(self.block)
        self.env.step(chosen, self.block)
        self.watcher.stepped(self.block, watching)

    def rows(self) -> dict[str, Any]:
        """A copy of what is in the block."""
        parts: dict[str, Any] = {}
        for name, team in self.block.teams.items():
            parts[name] = {key: getattr(team, key) for key in ("obs", "active", "reward", "terminated", "truncated")}
            if team.mask is not None:
                parts[name]["mask"] = team.mask
        if self.block.state is not None:
            parts[" state"] = self.block.state
        copied: dict[str, Any] = map_tree(np.copy, parts)
        return copied


SLOW = {"breakout"}


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.long if name in SLOW else ()) for name in ENVS])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def play(name: str) -> Any:
    made: list[Play] = []

    def make(seed: int = 3) -> Play:
        made.append(Play(name, seed))
        return made[-1].reset()

    yield make
    for one in made:
        one.env.close()


Make = Callable[..., Play]


def test_rows_fit_the_spec_and_are_written_in_place(play: Make) -> None:
    one = play()
    for _ in range(30):
        for team in one.block.teams.values():
            for _, leaf in leaves(team.obs):
                leaf.fill(np.nan if leaf.dtype.kind == "f" else 77)
        one.step()  # the watcher compares identities, and finds nan that was left
    spec = one.env.spec
    for name, team in spec.teams.items():
        assert spec_of(one.block.teams[name].obs) == lead(team.obs, COUNT, len(team.agents))
    assert len({agent for team in spec.teams.values() for agent in team.agents}) == sum(
        len(t.agents) for t in spec.teams.values()
    )


def test_an_end_is_followed_by_a_row_that_only_begins(play: Make, name: str) -> None:
    one = play()
    for _ in range(60):
        over = one.watcher.over.copy()
        one.step()
        for team in one.block.teams.values():
            assert not team.reward[over].any() and not team.terminated[over].any() and not team.truncated[over].any()
    assert one.watcher.ends >= COUNT or name in NEVER_ENDS_SOON


def test_actions_of_the_step_after_an_end_do_not_count(play: Make) -> None:
    one, two = play(), play()
    for _ in range(60):
        actions = sample_actions(one.env.spec, one.block, one.rng)
        other = map_tree(np.copy, actions)
        noise = sample_actions(one.env.spec, one.block, np.random.default_rng(0))
        over = one.watcher.over
        map_tree(lambda leaf, new, over=over: leaf.__setitem__(over, new[over]), other, noise)
        one.step(actions)
        two.step(other)
        assert_equal(one.rows(), two.rows())


def test_the_same_seed_gives_the_same_rows_and_another_does_not(play: Make) -> None:
    one, two, other = play(seed=3), play(seed=3), play(seed=4)
    seeded_apart = differ(one.rows(), other.rows())
    for _ in range(40):
        one.step()
        two.step()
        other.step()
        assert_equal(one.rows(), two.rows())
        seeded_apart |= differ(one.rows(), other.rows())
    assert seeded_apart


def test_a_loaded_env_goes_on_exactly(play: Make, name: str) -> None:
    one = play()
    for _ in range(25):
        one.step()
    saved = one.env.save()
    assert (saved is not None) == (name in SAVEABLE)
    two = play()
    if saved is None:
        with pytest.raises(NotImplementedError, match="cannot be loaded"):
            two.env.load({})
        return
    two.step()
    two.env.load(map_tree(lambda leaf: np.array(leaf), saved))
    for _ in range(40):
        actions = sample_actions(one.env.spec, one.block, one.rng)
        renew(one.block)
        renew(two.block)
        one.env.step(actions, one.block)
        two.env.step(map_tree(np.copy, actions), two.block)
        assert_equal(one.rows(), two.rows())


def test_actions_are_left_as_they_were(play: Make) -> None:
    one = play()
    for _ in range(10):
        actions = sample_actions(one.env.spec, one.block, one.rng)
        kept = map_tree(np.copy, actions)
        one.step(actions)
        assert_equal(actions, kept)


def test_absent_agents_have_rows_of_zeros(play: Make) -> None:
    one = play()
    for _ in range(40):
        for team in one.block.teams.values():
            map_tree(lambda leaf: leaf.fill(9), team.obs)
        one.step()
        for team in one.block.teams.values():
            for path, leaf in leaves(team.obs):
                assert not leaf[~team.active].any(), path


def test_stats_of_an_ended_episode_are_numbers(play: Make) -> None:
    one = play()
    for _ in range(60):
        one.block.stats.fill(np.inf)
        one.step()  # the watcher reads stats of the envs that are over
        assert not np.isinf(one.block.stats[one.watcher.over]).any()


def test_close_can_be_called_twice(name: str) -> None:
    one = Play(name).reset()
    one.env.close()
    one.env.close()


def test_the_checker_agrees(name: str) -> None:
    report = check_env(ENVS[name], ticks=40)
    assert report.saveable == (name in SAVEABLE)
    assert report.lines()


def assert_equal(one: Any, two: Any) -> None:
    other = dict(leaves(two))
    for path, leaf in leaves(one):
        np.testing.assert_array_equal(leaf, other[path], err_msg=path)


def differ(one: Any, two: Any) -> bool:
    other = dict(leaves(two))
    return any(not np.array_equal(leaf, other[path]) for path, leaf in leaves(one))
