"""Copies of an env that raise, hang, are slow, or return one array again and again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from pettingzoo import ParallelEnv

import srl
from srl.algorithms.ppo import PPO
from srl.api.algorithm import Batch, Metrics
from srl.api.env import TEAM, new_block, renew
from srl.core.readings import Reading
from srl.core.seeds import Seeds
from srl.envs.gym import GymEnv
from srl.envs.gym_vector import GymVectorEnv
from srl.envs.pettingzoo import PettingZooEnv

DOOMED, LENGTH, SHORT = 7.0, 11, 3


class Frail(gymnasium.Env[Any, Any]):
    """Every third episode of a copy fails in its fifth step. Its observation is one array, written anew in every step: whether
    the episode is doomed, and the step."""

    observation_space = spaces.Box(-100, 100, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, how: str = "raises", at_reset: bool = False) -> None:
        self.how, self.at_reset = how, at_reset
        self.row = np.zeros(2, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        assert seed is not None
        self.row[:] = DOOMED if seed % 3 == 0 else 1.0, 0.0
        if self.at_reset and seed % 3 == 0:
            raise OSError("no such level")
        return self.row, {}

    def step(self, action: Any) -> Any:
        self.row[1] += 1
        if self.row[0] == DOOMED and self.row[1] == 5:
            if self.how == "hangs":
                time.sleep(60)
            raise RuntimeError("the simulator broke")
        return self.row, 1.0, self.row[1] >= LENGTH, False, {}


class FrailPair(ParallelEnv):
    """Two agents, of which the second leaves earlier. Every third episode of a copy fails in its fifth step."""

    metadata: ClassVar[dict[str, Any]] = {"name": "frail"}
    possible_agents: ClassVar[list[str]] = ["long_0", "short_0"]

    def __init__(self, how: str = "raises", at_reset: bool = False) -> None:
        self.inner, self.at_reset = Frail(how), at_reset

    def observation_space(self, agent: Any) -> Any:
        return Frail.observation_space

    def action_space(self, agent: Any) -> Any:
        return Frail.action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        row, _ = self.inner.reset(seed=seed)
        self.inner.at_reset = self.at_reset  # the first one is a look at the env
        self.agents = list(self.possible_agents)
        return dict.fromkeys(self.agents, row.copy()), {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        row, reward, over, _, _ = self.inner.step(None)
        there, ends = self.agents, {"long_0": bool(over), "short_0": bool(row[1] >= SHORT)}
        self.agents = [agent for agent in there if not ends[agent]]
        rows, flags = dict.fromkeys(there, row.copy()), {agent: ends[agent] for agent in there}
        return rows, dict.fromkeys(there, reward), flags, dict.fromkeys(there, False), {agent: {} for agent in there}


class FrailMany(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Copies of `Frail` that step together, and are lost together."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int = 1, **args: Any) -> None:
        self.num_envs, self.envs = num_envs, [Frail(**args) for _ in range(num_envs)]
        self.single_observation_space, self.single_action_space = Frail.observation_space, Frail.action_space
        self.over, self.numbers = np.zeros(num_envs, bool), np.zeros(num_envs, int)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.numbers = seed + np.arange(self.num_envs)
        return np.stack([env.reset(seed=int(number))[0].copy() for env, number in zip(self.envs, self.numbers, strict=True)]), {}

    def step(self, actions: Any) -> Any:
        rows, ends = [], np.zeros(self.num_envs, bool)
        for i, env in enumerate(self.envs):
            if self.over[i]:
                self.numbers[i] += self.num_envs
                row, _ = env.reset(seed=int(self.numbers[i]))
            else:
                row, _, ends[i], _, _ = env.step(None)
            rows.append(row.copy())
        rewards, self.over = np.where(self.over, 0.0, 1.0), ends
        return np.stack(rows), rewards, ends, np.zeros(self.num_envs, bool), {}


def played(env: GymEnv, ticks: int) -> list[Any]:
    """Blocks of every tick, and the copies whose episode ended by itself."""
    block, found = new_block(env.spec, env.count), []
    env.reset(block)
    for _ in range(ticks):
        renew(block)
        env.step({TEAM: np.zeros((env.count, 1), np.int64)}, block)
        team = block.teams[TEAM]
        whole = env.whole((team.terminated | team.truncated)[:, 0])
        found.append((team.obs.copy(), team.truncated[:, 0].copy(), whole, env.lost()))
    return found


class Witness(PPO):
    """No row of an episode that broke is trained on, but for those that were sent before it broke."""

    def update(self, batch: Batch) -> Metrics:
        doomed = (batch.obs[:, :, 0] == DOOMED) & torch.cat([batch.valid, batch.valid[-1:]])
        assert not doomed[:-5].any() and not doomed[:-1][:, batch.obs[-1, :, 0] != DOOMED].any()
        ends = batch.terminated & batch.valid
        assert ends.any() and torch.isin(batch.obs[1:][ends][:, 1], torch.tensor([LENGTH, SHORT])).all()
        assert not (batch.truncated & batch.valid).any()
        return super().update(batch)


KINDS: dict[str, tuple[dict[str, Any], int]] = {
    "gym": ({"use": f"{__name__}:Frail", "mask": False}, 3),
    "pettingzoo": ({"use": f"{__name__}:FrailPair", "mask": False}, 3),
    "vector": ({"use": "gym_vector", "id": FrailMany}, 2),
}


@pytest.mark.parametrize("at_reset", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_broken_episode_are_purged_and_counted(
    kind: str, at_reset: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    env, envs = KINDS[kind]
    run = srl.launch(
        env={**env, "args": {"at_reset": at_reset}, "on_error": "restart", "restarts": 10_000},
        algorithm={"use": f"{__name__}:Witness", "epochs": 1}, policy={"hidden": [8]}, sampling={"envs": envs, "steps": 66},
        stop={"env_steps": 3_000}, mode="inline", evaluation=None, seed=2, runs=tmp_path, quiet=True,
    )  # fmt: skip
    assert "failed and is created again (restart 1 of 10000 within an hour)" in capfd.readouterr().err
    metrics = run.metrics()[-1]
    assert metrics["total/env/restarts"] > 5
    if kind != "pettingzoo":
        assert metrics["episode/length"] == LENGTH, "an episode that was cut off is not reported"
    if kind == "gym" and not at_reset:
        assert 2 * metrics["total/env/restarts"] < metrics["total/env/purged_rows"] <= 5 * metrics["total/env/restarts"]
    assert dict(run.wait().summary)["ledger"].rstrip().endswith("ok"), "every slab is accounted for"


def test_a_copy_that_fails_is_made_anew_and_the_others_go_on() -> None:
    env = GymEnv(4, Seeds(1, first=8), id=Frail, on_error="restart", restarts=1000, checked=0)
    found = played(env, 150)
    cut = [(tick, copy) for tick, (_, truncated, _, _) in enumerate(found) for copy in np.flatnonzero(truncated)]
    assert len(cut) > 3
    for tick, copy in cut:
        obs, _, whole, lost = found[tick]
        assert not whole[copy] and (copy, 0, 5) in [tuple(one) for one in lost]
        assert found[tick + 1][0][copy, 0, 1] == 0.0, "the next step begins an episode"
        others = [other for other in range(4) if other != copy and (tick, other) not in cut]
        assert all(obs[other, 0, 0] in (1.0, DOOMED) for other in others)


def test_agents_of_a_pair_that_fails_are_cut_off_where_they_are_there() -> None:
    env = PettingZooEnv(4, Seeds(1, first=8), id=FrailPair, mask=False, on_error="restart", restarts=1000, checked=0)
    block, cut = new_block(env.spec, 4), 0
    env.reset(block)
    for _ in range(150):
        renew(block)
        env.step({name: np.zeros((4, 1), np.int64) for name in ("long", "short")}, block)
        long, short = block.teams["long"], block.teams["short"]
        for copy, ago, steps in env.lost():
            if ago == 0:
                cut += 1
                assert steps == 5 and long.truncated[copy, 0] and long.active[copy, 0]
                assert not short.truncated[copy, 0] and not short.active[copy, 0], "it had left before"
                assert not env.whole(np.ones(4, bool))[copy]
        assert (long.truncated == ~env.whole(np.ones(4, bool))[:, None]).all()
    assert cut > 3


def test_copies_that_step_together_are_lost_together() -> None:
    env = GymVectorEnv(2, Seeds(1), id=FrailMany, on_error="restart", restarts=1000, checked=0)
    block, found = new_block(env.spec, 2), []
    env.reset(block)
    for _ in range(60):
        renew(block)
        env.step({TEAM: np.zeros((2, 1), np.int64)}, block)
        team = block.teams[TEAM]
        found.append(
            (
                team.obs[:, 0, 1].copy(),
                team.truncated[:, 0].copy(),
                team.active[:, 0].copy(),
                [one for one in env.lost() if not one[1]],
            )
        )
    cut = [tick for tick, (_, truncated, _, _) in enumerate(found) if truncated.any()]
    assert len(cut) > 3
    for tick in cut[:-1]:
        _, truncated, active, lost = found[tick]
        assert truncated.all() and active.all() and [(copy, steps) for copy, _, steps in lost] == [(0, 5), (1, 5)]
        assert (found[tick + 1][0] == 0).all(), "the next step begins an episode in all of them"


def test_without_restarts_the_error_names_the_copy() -> None:
    env = GymEnv(4, Seeds(1, first=8), id=Frail)
    with pytest.raises(RuntimeError, match="the simulator broke") as caught:
        played(env, 100)
    (note,) = caught.value.__notes__
    assert note.startswith("in env '") and "seed" in note and "step 4" in note


def test_more_restarts_than_allowed_end_the_run() -> None:
    env = GymEnv(4, Seeds(1), id=Frail, on_error="restart", restarts=2)
    with pytest.raises(RuntimeError) as caught:
        played(env, 200)
    assert "(restarted 2 times within an hour)" in caught.value.__notes__[0]


def test_a_copy_that_hangs_is_interrupted() -> None:
    env = GymEnv(2, Seeds(1), id=Frail, args={"how": "hangs"}, on_error="restart", step_timeout=0.05)
    assert any(truncated.any() for _, truncated, _, _ in played(env, 30))
    with pytest.raises(TimeoutError, match=r"longer than env.step_timeout, 0.05 seconds"):
        played(GymEnv(2, Seeds(1), id=Frail, args={"how": "hangs"}, step_timeout=0.05), 60)


def test_an_observation_that_is_used_again_is_copied_at_once() -> None:
    one, two = (played(GymEnv(2, Seeds(4), id=Frail, on_error="restart", restarts=1000), 20) for _ in range(2))
    kept = [obs for obs, *_ in one]
    assert not any((obs == kept[0]).all() for obs in kept[1:5])
    assert all((obs == again).all() for (obs, *_), (again, *_) in zip(one, two, strict=True))


def test_step_times_have_a_histogram_and_a_slow_copy_is_named() -> None:
    env = GymEnv(3, Seeds(0, first=5), id="CartPole-v1")
    env._copies._seconds = {0: [2e-5, 4e-5], 1: [3e-5], 2: [0.02, 0.03]}
    reading = Reading()
    env.report(reading)
    assert {name: reading[name] for name in reading if name.startswith("env/step_ms/")} == {
        "env/step_ms/below_0.1": 3, "env/step_ms/below_100": 2,
    }  # fmt: skip
    assert reading["env/slow/7"] == pytest.approx(0.025 / 3e-5)
    played(env, 130)
    env.report(reading)
    assert reading.metrics["env/step_ms"].number >= 6, "every 64th tick is timed"
