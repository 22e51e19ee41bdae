from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import srl
from srl.core.errors import NotImportable


def test_a_session_is_stepped_by_hand() -> None:
    with srl.build("cartpole", seed=3) as session:
        assert session.batch is None
        means = session.step()
        assert session.totals["updates"] == 1
        assert {"train/policy_loss", "episode/return"} <= set(means)
        assert type(session.algorithm).__name__ == "PPO"
        assert session.batch.reward.numpy().shape[0] == 32
        session.step(2)
        assert session.totals["updates"] == 3
        assert not session.finished


CLOCK = ("lag/ms", "env/step_ms")
"""Figures that are no two times the same."""


def test_a_session_repeats_itself() -> None:
    runs = []
    for _ in range(2):
        with srl.build("cartpole", seed=3) as session:
            runs.append(dict(session.step(3)))
    one, other = ({name: value for name, value in run.items() if not name.startswith(CLOCK)} for run in runs)
    assert one == other
    assert all(np.isfinite(value) for value in runs[0].values())


class Wide(gymnasium.Env[Any, Any]):
    """Declares less than it shows."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.full(2, 7.0, np.float32), 1.0, False, True, {}


def test_an_env_that_leaves_its_bounds_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    with srl.build(env=Wide, algorithm="ppo", sampling={"envs": 4, "steps": 8}) as session:
        session.step(3)
        assert session.totals["env/outside_bounds"] == 1
    assert [record.message for record in caplog.records if "left its declared bounds" in record.message][1:] == []
    assert "expected float32 (2) in -1..1 got float32 (2) min 7 max 7" in caplog.text


def test_classes_are_given_as_they_are() -> None:
    from srl.algorithms.ppo import PPO

    class Narrow(Wide):
        observation_space = spaces.Box(-9, 9, (2,), np.float32)

    with srl.build(env=Narrow, algorithm={"use": PPO, "epochs": 1}, sampling={"envs": 4, "steps": 8}) as session:
        session.step()
        assert type(session.algorithm) is PPO and session.algorithm.config.epochs == 1


def test_a_class_of_a_function_cannot_go_to_other_processes(tmp_path: Path) -> None:
    class Narrow(Wide):
        pass

    with pytest.raises(NotImportable, match="is defined inside a function, where other processes cannot find it") as caught:
        srl.launch(env=Narrow, algorithm="ppo", runs=tmp_path)
    assert "mode=inline" in str(caught.value)


def test_an_inline_run_takes_a_class_that_only_this_process_has(tmp_path: Path) -> None:
    class Narrow(Wide):
        observation_space = spaces.Box(-9, 9, (2,), np.float32)

    run = srl.launch(
        env=Narrow,
        algorithm="ppo",
        mode="inline",
        stop={"updates": 2},
        sampling={"envs": 4, "steps": 8},
        runs=tmp_path,
        quiet=True,
    )
    assert run.result is not None and run.result.exit_code == 0
