"""The checker finds what breaks a run; the watch finds it at the row that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from srl.api.env import BatchEnv, Block, Discrete, EnvSpec, TeamSpec, new_block
from srl.core.seeds import Seeds
from srl.core.spec import Leaf
from srl.core.tree import Tree
from srl.envs.check import GivenSeeds, check_env
from srl.envs.resolve import make_env
from tests.errors import raises


class Counter(BatchEnv):
    """Counts to 4 with a wish for what to do wrong."""

    def __init__(self, count: int, seeds: Seeds, wrong: str = "") -> None:
        super().__init__(count, seeds)
        self.wrong = wrong
        self.spec = EnvSpec(teams={"one": TeamSpec(agents=("x",), obs=Leaf((2,), "float32"), action=Discrete(2))}, stats=("n",))
        self.now = np.zeros(count)
        self.sum = np.zeros(count)
        self.over = np.zeros(count, bool)
        self.episode = np.zeros(count, int)

    def reset(self, out: Block) -> None:
        for env in range(self.count):
            self._begin(env)
        self._show(out)

    def step(self, actions: Mapping[str, Tree], out: Block) -> None:
        action = np.asarray(actions["one"])[:, 0]
        team = out.teams["one"]
        fresh = self.over.copy()
        self.now += 1
        self.sum += action
        self.over = (self.now >= 4) & ~fresh
        for env in np.flatnonzero(fresh if self.wrong != "same step" else self.over):
            self.episode[env] += 1
            self._begin(int(env))
        team.reward[:, 0] = np.where(fresh & (self.wrong != "late reward"), 0.0, 1.0)
        if self.wrong == "nan reward" and self.now[1] == 3:
            team.reward[1] = np.nan
        team.terminated[:, 0] = self.over & (self.wrong != "leaves")
        if self.wrong == "leaves" and self.over.any():
            team.active[self.over] = False
        out.stats[self.over, 0] = self.now[self.over]
        if self.wrong == "same step":
            team.terminated[:, 0] = self.over
            team.reward[...] = 0
            self.over[:] = False
        if self.wrong == "writes actions":
            np.asarray(actions["one"])[...] = 1
        self._show(out)

    def save(self) -> Tree | None:
        if self.wrong != "forgets":
            return None
        return {"now": self.now.copy(), "over": self.over.copy(), "episode": self.episode.copy()}

    def load(self, saved: Tree) -> None:
        assert isinstance(saved, dict)
        self.now, self.over, self.episode = (np.array(saved[key]) for key in ("now", "over", "episode"))

    def _begin(self, env: int) -> None:
        self.now[env] = 0
        rng = np.random.default_rng() if self.wrong == "unseeded" else self.seeds.rng(env, int(self.episode[env]))
        self.sum[env] = 0 if self.wrong == "one seed" else rng.random()

    def _show(self, out: Block) -> None:
        rows = np.stack([self.now, self.sum], axis=1)[:, None].astype(np.float32)
        if self.wrong == "rebinds":
            out.teams["one"].obs = rows
        elif self.wrong == "half":
            out.teams["one"].obs[:, 0, 0] = rows[:, 0, 0]  # type: ignore[index]
        else:
            out.teams["one"].obs[...] = rows  # type: ignore[index]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("rebinds", "put another array in place of 'one/obs'"),
        ("half", r"rows not written"),
        ("unseeded", "is not the same when it is seeded alike"),
        ("same step", r"begins the next episode within the step that ends one[^$]*use: gym"),
        ("late reward", "rewarded or ended the step that only begins the next episode"),
        ("nan reward", r"env 1, seed 9, step 3\) returned the reward"),
        ("leaves", "lost agent 0 of team 'one' without an end"),
        ("writes actions", "changed the actions it was given"),
        ("forgets", "continues differently after save and load"),
    ],
)
def test_the_checker_names_what_is_wrong(wrong: str, message: str) -> None:
    with raises("E05", match=message) as caught:
        check_env({"use": Counter, "wrong": wrong}, seed=8)
    assert "srl check env" in caught.value.format()


def test_a_right_env_passes_and_is_described() -> None:
    report = check_env(Counter, seed=8)
    assert report.episodes > 100 and not report.warnings and not report.saveable
    assert any("observation" in line and "float32 (2,)" in line for line in report.lines())


def test_what_does_no_harm_is_a_warning() -> None:
    assert check_env({"use": Counter, "wrong": "one seed"}).warnings == ["other seeds begin with the same observation"]
    assert "no episode ended" in check_env({"use": "fake", "length": [500, 500]}, ticks=20).warnings[0]


def test_the_seed_of_an_error_plays_the_same_episode_again() -> None:
    assert GivenSeeds(812).seed(0, 0) == 812
    blocks = []
    for component in ("CartPole-v1", "CartPole-v1"):
        env = make_env(component, 1, GivenSeeds(812))
        block = new_block(env.spec, 1)
        env.reset(block)
        blocks.append(block.teams["agent"].obs.copy())  # type: ignore[union-attr]
    np.testing.assert_array_equal(*blocks)


def test_a_users_env_is_watched_for_its_first_ticks_and_then_left_alone() -> None:
    env: Any = make_env({"use": Counter, "wrong": "late reward"}, 2, Seeds(0), place="actor/3")
    block = new_block(env.spec, 2)
    env.reset(block)
    actions = {"one": np.zeros((2, 1), np.int64)}
    with raises("E05", match=r"Counter' \(actor/3, env 0, seed \d+, step 0\) rewarded"):
        for _ in range(6):
            env.step(actions, block)
    env = make_env(Counter, 2, Seeds(0))
    env.reset(block)
    assert "step" in vars(env)
    for _ in range(100):
        env.step(actions, block)
    assert "step" not in vars(env) and "reset" not in vars(env)
