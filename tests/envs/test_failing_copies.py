"""Copies of an env that raise, hang, are slow, or return one array again and again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import srl
from srl.algorithms.ppo import PPO
from srl.api.algorithm import Batch, Metrics
from srl.api.env import TEAM, new_block, renew
from srl.core.readings import Reading
from srl.core.seeds import Seeds
from srl.envs.gym import GymEnv

DOOMED, LENGTH = 7.0, 11


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
        assert ends.any() and (batch.obs[1:][ends][:, 1] == LENGTH).all() and not (batch.truncated & batch.valid).any()
        return super().update(batch)


@pytest.mark.parametrize("at_reset", [False, True])
def test_rows_of_a_broken_episode_are_purged_and_counted(
    at_reset: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = srl.launch(
        env={"use": f"{__name__}:Frail", "at_reset": at_reset, "mask": False, "on_error": "restart", "restarts": 10_000},
        algorithm={"use": f"{__name__}:Witness", "epochs": 1}, policy={"hidden": [8]}, sampling={"envs": 3, "steps": 66},
        stop={"env_steps": 3_000}, mode="inline", evaluation=None, seed=2, runs=tmp_path, quiet=True,
    )  # fmt: skip
    assert "failed and is created again (restart 1 of 10000 within an hour)" in capfd.readouterr().err
    metrics = run.metrics()[-1]
    assert metrics["total/env/restarts"] > 5
    assert metrics["episode/length"] == LENGTH, "an episode that was cut off is not reported"
    if not at_reset:
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
