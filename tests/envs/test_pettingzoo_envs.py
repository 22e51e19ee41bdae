"""PettingZoo's parallel envs: teams, agents that die and appear, masks, states."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

import srl
from srl.algorithms.ppo import PPO
from srl.api.algorithm import Batch, Metrics
from srl.api.env import Discrete, MultiDiscrete, new_block, renew
from srl.core.errors import UserError
from srl.core.seeds import Seeds
from srl.core.spec import Leaf
from srl.envs.pettingzoo import PettingZooEnv
from srl.envs.resolve import make_env
from tests.errors import raises


class Relay(ParallelEnv):
    """wolf_0 lives 3 steps, wolf_1 comes after the first and lives to step 4, the sheep lives 5; alpha has spaces of its own."""

    metadata = {"name": "relay", "render_modes": []}
    lives = {"wolf_0": (0, 3), "wolf_1": (1, 4), "wolf_2": (0, 5), "sheep": (0, 5)}

    def __init__(self, silent: bool = False, masked: bool = False, render_mode: str | None = None) -> None:
        self.possible_agents = list(self.lives)
        self.silent, self.masked = silent, masked
        self.render_mode = render_mode
        self.taken: list[dict[str, Any]] = []

    @functools.cache  # noqa: B019
    def observation_space(self, agent: str) -> Any:
        space = spaces.Box(0, 99, (3 if agent == "wolf_2" else 2,), np.float32)
        return (
            spaces.Dict({"observation": space, "action_mask": spaces.MultiBinary(3)})
            if self.masked and agent == "sheep"
            else space
        )

    @functools.cache  # noqa: B019
    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3) if agent == "sheep" else spaces.MultiDiscrete([2, 3])

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.now = 0
        self.agents = [agent for agent, (birth, _) in self.lives.items() if birth == 0]
        return {agent: self._row(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.taken.append(dict(actions))
        assert set(actions) == set(self.agents)
        self.now += 1
        shown = [agent for agent, (birth, death) in self.lives.items() if birth <= self.now <= death]
        over = {agent: self.now == death for agent, (_, death) in self.lives.items() if agent in shown}
        if self.silent and self.now == 3:
            shown.remove("wolf_0")
            over.pop("wolf_0")
        self.agents = [agent for agent in shown if not over.get(agent)]
        terminated = {agent: over[agent] and agent != "sheep" for agent in shown}
        truncated = {agent: over[agent] and agent == "sheep" for agent in shown}
        infos = {agent: {"hunger": float(self.now) + (agent == "sheep")} for agent in shown}
        return {agent: self._row(agent) for agent in shown}, dict.fromkeys(shown, 1.0), terminated, truncated, infos

    def state(self) -> Any:
        return np.array([self.now, len(self.agents)], np.float32)

    def _row(self, agent: str) -> Any:
        row = np.full(3 if agent == "wolf_2" else 2, self.now + 1, np.float32)
        allowed = np.array([1, 0, 1], np.int8)
        return {"observation": row, "action_mask": allowed} if self.masked and agent == "sheep" else row


class Leaver(Relay):
    """wolf_0 is no longer in `agents` after step `leaves`, is still observed, and has no end."""

    lives = {"wolf_0": (0, 9), "wolf_1": (0, 3), "sheep": (0, 3)}

    def __init__(self, leaves: int) -> None:
        super().__init__()
        self.leaves = leaves

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        answer = super().reset(seed, options)
        self._leave()
        return answer

    def step(self, actions: dict[str, Any]) -> Any:
        answer = super().step(actions)
        self._leave()
        return answer

    def _leave(self) -> None:
        if self.now == self.leaves:
            self.agents.remove("wolf_0")


class Blown(Relay):
    """wolf_2 is rewarded with `reward` at step 3."""

    def __init__(self, reward: Any) -> None:
        super().__init__()
        self.reward = reward

    def step(self, actions: dict[str, Any]) -> Any:
        rows, rewards, *rest = super().step(actions)
        return rows, rewards | ({"wolf_2": self.reward} if self.now == 3 else {}), *rest


class Veiled(Relay):
    """Wolves, who come after the reset, have masks in info; the sheep has them from the first step on, if `sheep`."""

    lives = {"wolf_0": (1, 4), "wolf_1": (2, 4), "sheep": (0, 5)}

    def __init__(self, sheep: bool = False, wolves: bool = True) -> None:
        super().__init__()
        self.allowed = {"wolf": [1, 1, 0, 1, 0]} if wolves else {}
        self.allowed |= {"sheep": [1, 0, 1]} if sheep else {}

    def step(self, actions: dict[str, Any]) -> Any:
        *answer, infos = super().step(actions)
        masks = {agent: self.allowed.get(agent.partition("_")[0]) for agent in infos}
        return *answer, {agent: {"action_mask": np.array(mask)} if mask else {} for agent, mask in masks.items()}


def played(env: PettingZooEnv, ticks: int) -> Any:
    block = new_block(env.spec, env.count)
    env.reset(block)
    yield block
    rows = {"wolf": (env.count, 2, 2), "wolf-2": (env.count, 1, 2), "sheep": (env.count, 1)}
    for _ in range(ticks):
        renew(block)
        for team in block.teams.values():
            if isinstance(team.obs, np.ndarray):
                team.obs.fill(7)
        env.step({name: np.ones(rows[name], np.int64) for name in env.spec.teams}, block)
        yield block


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pettingzoo.test imports pettingzoo's own old modules
def test_the_test_env_is_one_that_pettingzoo_accepts() -> None:
    from pettingzoo.test import parallel_api_test

    parallel_api_test(type("Steady", (Relay,), {"lives": {"wolf_2": (0, 5), "sheep": (0, 5)}})(), num_cycles=30)


def test_teams_are_agents_of_one_name_and_one_space() -> None:
    env = PettingZooEnv(1, Seeds(0), id=Relay)
    teams = env.spec.teams
    assert {name: team.agents for name, team in teams.items()} == {
        "wolf": ("wolf_0", "wolf_1"),
        "wolf-2": ("wolf_2",),
        "sheep": ("sheep",),
    }
    assert teams["wolf"].action == MultiDiscrete((2, 3)) and teams["sheep"].action == Discrete(3)
    assert teams["wolf-2"].obs == Leaf((3,), "float32")
    assert env.spec.state == Leaf((2,), "float32")


def test_agents_die_and_appear_and_an_episode_ends_with_the_last() -> None:
    env = PettingZooEnv(1, Seeds(0), id=Relay, stats=["hunger"])
    active, ended, obs, rewards, stats = [], [], [], [], []
    for block in played(env, 7):
        wolves = block.teams["wolf"]
        active.append(wolves.active[0].tolist() + block.teams["sheep"].active[0].tolist())
        ended.append(wolves.terminated[0].tolist() + block.teams["sheep"].truncated[0].tolist())
        rewards.append(wolves.reward[0].tolist())
        obs.append(wolves.obs[0, :, 0].tolist())
        stats.append(block.stats[0, 0])
    one, no = True, False
    assert active == [
        [one, no, one],
        [one, one, one],
        [one, one, one],
        [one, one, one],
        [no, one, one],
        [no, no, one],
        [one, no, one],
        [one, one, one],
    ]
    assert ended == [[no] * 3, [no] * 3, [no] * 3, [one, no, no], [no, one, no], [no, no, one], [no] * 3, [no] * 3]
    assert obs == [[1, 0], [2, 2], [3, 3], [4, 4], [0, 5], [0, 0], [1, 0], [2, 2]]
    assert rewards == [[0, 0], [1, 0], [1, 1], [1, 1], [0, 1], [0, 0], [0, 0], [1, 0]]
    assert stats[5] == 5.5  # wolf_2 and the sheep are there at the end


def test_only_living_agents_are_given_actions() -> None:
    env = PettingZooEnv(1, Seeds(0), id=Relay)
    for _ in played(env, 5):
        pass
    assert [sorted(taken) for taken in env._envs[0].taken][3:] == [["sheep", "wolf_1", "wolf_2"], ["sheep", "wolf_2"]]


def test_state_is_that_of_the_row_that_was_written() -> None:
    states = [block.state[0].tolist() for block in played(PettingZooEnv(1, Seeds(0), id=Relay), 6)]
    assert states == [[0, 3], [1, 4], [2, 4], [3, 3], [4, 2], [5, 0], [0, 3]]


def test_masks_of_one_team_come_from_its_observation() -> None:
    env = PettingZooEnv(2, Seeds(0), id=Relay, args={"masked": True})
    assert [name for name, team in env.spec.teams.items() if team.mask] == ["sheep"]
    assert env.spec.teams["sheep"].obs == Leaf((2,), "float32")
    block = next(iter(played(env, 0)))
    assert block.teams["sheep"].mask.tolist() == [[[True, False, True]]] * 2


def test_an_agent_that_leaves_without_an_end_is_an_error_of_the_env() -> None:
    env = PettingZooEnv(1, Seeds(0, first=4), id=Relay, args={"silent": True})
    with raises("E05", match=r"env 4, seed \d+, step 3\) lost agent wolf_0 without an end"):
        for _ in played(env, 5):
            pass


@pytest.mark.parametrize("leaves", [0, 2, 3])
def test_an_agent_that_is_still_seen_has_not_left_the_agents_without_an_end(leaves: int) -> None:
    env = PettingZooEnv(1, Seeds(0), id=Leaver, args={"leaves": leaves})
    with raises("E05", match=rf"Leaver' \(env 0, seed \d+, step {leaves}\) lost agent wolf_0 without an end"):
        for _ in played(env, 4):
            pass


def test_an_agent_that_comes_with_its_end_was_never_there() -> None:
    lives = {"wolf_0": (0, 5), "wolf_1": (3, 3), "sheep": (0, 5)}
    env = PettingZooEnv(1, Seeds(0), id=type("Stillborn", (Relay,), {"lives": lives}))
    for block in played(env, 5):
        wolves = block.teams["wolf"]
        assert not (wolves.active[0, 1] or wolves.terminated[0, 1] or wolves.obs[0, 1].any())


@pytest.mark.parametrize("reward", [np.nan, -np.inf, np.ones(2)])
def test_a_reward_that_is_no_finite_number_is_refused_in_every_step(reward: Any) -> None:
    env = PettingZooEnv(3, Seeds(0), id=Blown, args={"reward": reward}, checked=0)
    with raises("E05", match=r"env 0, seed \d+, step 3\) returned the reward .* for agent 'wolf_2'"):
        for _ in played(env, 5):
            pass


def test_masks_of_a_team_that_comes_later_are_taken_if_they_are_wanted() -> None:
    env = PettingZooEnv(1, Seeds(0), id=Veiled, mask=True)
    assert {name: team.mask for name, team in env.spec.teams.items()} == {"wolf": True, "sheep": False}
    masks = [block.teams["wolf"].mask[0].astype(int).tolist() for block in played(env, 2)]
    seen, none = [1, 1, 0, 1, 0], [0] * 5
    assert masks == [[none, none], [seen, none], [seen, seen]]


@pytest.mark.parametrize(
    ("args", "agent", "remedy"),
    [({}, "wolf_0", "try: env.mask=true"), ({"wolves": False, "sheep": True}, "sheep", "with every reset too")],
)
def test_a_mask_that_nobody_expected_is_refused(args: dict[str, bool], agent: str, remedy: str) -> None:
    env = PettingZooEnv(1, Seeds(0), id=Veiled, args=args)
    with raises("E05", match=rf"step 1\) gave agent '{agent}' an info\['action_mask'\]") as caught:
        for _ in played(env, 5):
            pass
    assert remedy in caught.value.format() and "env.mask=false" in caught.value.format()


def test_masks_that_are_not_wanted_are_left() -> None:
    env = PettingZooEnv(1, Seeds(0), id=Veiled, args={"sheep": True}, mask=False)
    assert all(block.teams["wolf"].mask is None for block in played(env, 5))


def test_masks_that_are_wanted_and_not_there_are_missed() -> None:
    with pytest.raises(UserError, match=r"gives no action masks\n  try: env.mask=false"):
        PettingZooEnv(1, Seeds(0), id=Relay, mask=True)


def test_teams_are_those_that_are_given() -> None:
    given = {"big": ["wolf_2"], "leader": ["wolf_0", "nobody"], "pack": ["wolf_*"], "rest": ["*"]}
    env = make_env({"use": Relay, "teams": given}, 2, Seeds(0))
    teams = {name: team.agents for name, team in env.spec.teams.items()}
    assert teams == {"big": ("wolf_2",), "leader": ("wolf_0",), "pack": ("wolf_1",), "rest": ("sheep",)}
    block = new_block(env.spec, 2)
    env.reset(block)
    assert block.teams["leader"].active.all() and not block.teams["pack"].active.any()


@pytest.mark.parametrize(
    ("teams", "message"),
    [
        ({"pack": ["wolf_[01]"], "big": ["wolf_2"]}, r"agent 'sheep' of env '.*' is in no team(.|\n)*env.teams.NAME=\[sheep\]"),
        (
            {"pack": ["wolf_0", "wolf_1"], "two": ["wolf_1"], "rest": ["*"]},
            r"is left for team 'two'(.|\n)*earlier teams take wolf_1",
        ),
        ({"sheep": ["sheap"], "rest": ["*"]}, r"no agent .* is left for team 'sheep'(.|\n)*did you mean: sheep"),
        ({"all": ["wolf_*"], "rest": ["*"]}, r"'wolf_0' and 'wolf_2' cannot be one team, 'all'(.|\n)*Box"),
        ({"a/b": ["*"]}, "'env.teams' has the name 'a/b'"),
        ({"all": "*"}, r"'env.teams.all' expects list of str"),
    ],
)
def test_teams_that_cannot_be_are_refused(teams: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        PettingZooEnv(1, Seeds(0), id=Relay, teams=teams)


def test_an_env_by_turns_that_can_be_parallel_is() -> None:
    from mpe2 import simple_tag_v3

    one, two = (PettingZooEnv(2, Seeds(0), id=make, state=False) for make in (simple_tag_v3.env, simple_tag_v3.parallel_env))
    assert one.spec == two.spec
    rows = []
    for env in (one, two):
        block, noise = new_block(env.spec, 2), np.random.default_rng(0)
        env.reset(block)
        for _ in range(5):
            actions = {team: noise.integers(0, 5, (2, len(spec.agents))) for team, spec in env.spec.teams.items()}
            renew(block)
            env.step(actions, block)
            rows.append(np.concatenate([part.obs.ravel() for part in block.teams.values()]))
    np.testing.assert_allclose(rows[:5], rows[5:], atol=1e-6)


class Count(AECEnv):  # type: ignore[misc]
    """Two agents say numbers in turn, without masks; who says the fifth one wins."""

    metadata = {"name": "count", "render_modes": []}

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.possible_agents, self.render_mode = ["player_0", "player_1"], render_mode
        self.said: list[tuple[str, int]] = []

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 9, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(4)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self.number, self.agent_selection = list(self.possible_agents), 0, "player_0"
        self.rewards = self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}

    def observe(self, agent: str) -> Any:
        return np.array([self.number, agent == self.agent_selection], np.float32)

    def step(self, action: Any) -> None:
        mover = self.agent_selection
        if self.terminations[mover]:
            self._was_dead_step(action)
            return
        self.said.append((mover, int(action)))
        self.number += 1
        self.agent_selection = self.possible_agents[self.number % 2]
        over = self.number == 5
        self.rewards = {agent: float(over) * (1 if agent == mover else -1) for agent in self.agents}
        self.terminations = dict.fromkeys(self.agents, over)


@pytest.mark.parametrize("component", [{"use": "pettingzoo", "id": "pettingzoo.classic.tictactoe_v3"}, {"use": Count}])
def test_an_env_by_turns_is_a_move_of_one_agent_in_each_step(component: Any) -> None:
    env = make_env(component, 3, Seeds(0))
    (team,) = env.spec.teams.values()
    assert team.mask and len(team.agents) == 2
    block, noise = new_block(env.spec, 3), np.random.default_rng(0)
    env.reset(block)
    wins, fresh = 0, np.ones(3, bool)
    for tick in range(60):
        (part,) = block.teams.values()
        movers = part.mask.any(-1)  # type: ignore[union-attr]
        assert part.active.all() or (~fresh).any()
        over = fresh & False if tick == 0 else (part.terminated | part.truncated).any(1)
        assert (movers.sum(1)[~over] == 1).all(), "one of them may move"
        actions = (part.mask * noise.random(part.mask.shape)).argmax(-1)  # type: ignore[operator, union-attr]
        renew(block)
        env.step({next(iter(env.spec.teams)): actions}, block)
        ended = part.terminated.any(1)
        assert (part.terminated.all(1) == ended).all() and (part.reward.sum(1) == 0).all()
        assert (part.reward[~ended] == 0).all()
        wins += int((part.reward[ended] != 0).any(1).sum())
    assert wins > 5
    env.close()


def test_rows_of_who_waits_do_not_train_the_policy(tmp_path: Path) -> None:
    run = srl.launch(
        env={"use": "pettingzoo", "id": "pettingzoo.classic.tictactoe_v3"}, algorithm={"use": f"{__name__}:Turns"},
        policy={"hidden": [8]}, sampling={"envs": 4, "steps": 32}, stop={"updates": 3}, mode="inline", evaluation=None,
        runs=tmp_path, quiet=True,
    )  # fmt: skip
    assert run.result is not None and run.result.exit_code == 0


class Turns(PPO):
    def update(self, batch: Batch) -> Metrics:
        pairs = batch.choice.unflatten(1, (-1, 2)).sum(-1)
        assert (pairs <= 1).all() and (pairs == 1).float().mean() > 0.5
        return super().update(batch)


@pytest.mark.parametrize(
    "component",
    [
        "mpe2.simple_tag_v3:parallel_env",
        {"use": "pettingzoo", "id": "mpe2.simple_tag_v3"},
        {"use": "mpe2.simple_tag_v3:parallel_env", "max_cycles": 4, "state": False},
    ],
)
def test_mpe_envs_are_found_by_module_or_function(component: Any) -> None:
    env = make_env(component, 2, Seeds(0))
    assert isinstance(env, PettingZooEnv)
    assert list(env.spec.teams) == ["adversary", "agent"]
    assert (env.spec.state is None) == (isinstance(component, dict) and component.get("state") is False)
