"""Runs whose trainers copy the next batch while one trains, as for a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import srl

AHEAD: dict[str, Any] = {"use": "single", "prefetch": True}
SAC: dict[str, Any] = {
    "env": "Pendulum-v1",
    "algorithm": {"use": "sac", "critic": {"hidden": [16]}},
    "policy": {"hidden": [16]},
    "replay": {"size": 2_000, "batch": 53, "warmup": 50, "updates_per_step": 4},
    "stop": {"env_steps": 300},
}
PPO: dict[str, Any] = {
    "env": "CartPole-v1",
    "algorithm": {"use": "ppo", "minibatch": 32, "epochs": 20},  # long enough for actors to be ahead
    "sampling": {"envs": 8, "steps": 16},
    "staleness": {"max": 1},
    "stop": {"env_steps": 3_000},
}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({**SAC, "workers": {"replay": {"inside": None}}}, id="a replay of its own"),
        pytest.param(SAC, id="a replay inside", marks=pytest.mark.long),
        pytest.param(PPO, id="slabs"),
    ],
)
def test_a_run_copies_batches_ahead_and_adds_up(settings: dict[str, Any], tmp_path: Path) -> None:
    run = srl.launch(**settings, learner=AHEAD, runs=tmp_path, quiet=True)
    assert run.result is not None and run.result.exit_code == 0, run.result.format()
    assert "DOES NOT BALANCE" not in run.result.format()
    shares = [row["train/prefetched"] for row in run.metrics() if row.get("train/prefetched") is not None]
    assert shares and max(shares) > 0.0
    assert run.metrics()[-1]["env_steps"] >= settings["stop"]["env_steps"]
