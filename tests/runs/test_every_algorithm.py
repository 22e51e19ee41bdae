"""Every algorithm inline, over shared memory and over sockets: it starts, learns, ends cleanly, and on-policy learns the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srl
from srl.core.registry import REGISTRIES
from srl.store import checkpoint

WAYS: dict[str, dict[str, Any]] = {
    "inline": {"mode": "inline"},
    "shm": {"layout": "impala", "streams": {"all": {"via": "shm"}}},
    "zmq": {"layout": "seed", "streams": {"all": {"via": "zmq"}}},
}
ON_POLICY: dict[str, dict[str, Any]] = {
    "ppo": {"lr": 3e-3, "gamma": 0.98, "epochs": 4},
    "appo": {"lr": 3e-3, "gamma": 0.98, "epochs": 4},
    "ppg": {"lr": 3e-3, "gamma": 0.98, "epochs": 4, "every": 8, "auxiliary_epochs": 1},
    "impala": {"lr": 3e-3, "gamma": 0.98},
    "pqn": {"lr": 2e-3, "gamma": 0.98, "epochs": 4},
    "distill": {"lr": 3e-3},
}
OFF_POLICY: dict[str, dict[str, Any]] = {
    "dqn": {"lr": 1e-3, "gamma": 0.98, "n_step": 5, "loss": "mse", "tau": 0.01},
    "r2d2": {"lr": 1e-3, "gamma": 0.98, "burn_in": 2, "length": 8, "n_step": 2},
    "bc": {},
    "sac": {},
    "td3": {},
    "ddpg": {},
}
REAL = ("sac", "td3", "ddpg")
RANDOM = 22.0
"""The return of random actions in CartPole."""


def test_no_algorithm_is_left_out() -> None:
    assert set(ON_POLICY) | set(OFF_POLICY) == set(REGISTRIES["algorithm"]._builtin)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> str:
    run = srl.launch(
        env="CartPole-v1", algorithm={"use": "ppo", "lr": 2e-3, "gamma": 0.98}, policy={"hidden": [32]}, mode="inline", evaluation=None,
        sampling={"envs": 16, "steps": 32}, stop={"env_steps": 40_000}, runs=tmp_path_factory.mktemp("teacher"), quiet=True,
    )  # fmt: skip
    return str(run.folder)


def ended(run: Any) -> dict[str, Any]:
    """The last metrics of a run that ended cleanly, with everything accounted for."""
    assert run.result is not None and run.result.exit_code == 0, run.result.format()
    text = run.result.format()
    assert "ok" in text and "DOES NOT BALANCE" not in text
    last: dict[str, Any] = run.metrics()[-1]
    return last


def weights(run: Any) -> dict[str, Any]:
    path = checkpoint.latest(run.folder / "checkpoints")
    assert path is not None
    groups = checkpoint.read(path).groups
    return {f"{group}/{name}": array for group in ("policy", "optimizer") for name, array in groups[group].items()}


@pytest.mark.long
@pytest.mark.parametrize("name", ON_POLICY)
def test_on_policy_it_learns_the_same_bit_for_bit(name: str, teacher: str, tmp_path: Path) -> None:
    """With one actor and no staleness all ways see the same rows."""
    more = {"teacher": teacher} if name == "distill" else {}
    settings: dict[str, Any] = {
        "env": "CartPole-v1", "algorithm": {"use": name, **ON_POLICY[name], **more}, "policy": {"hidden": [32]}, "staleness": {"max": 0},
        "sampling": {"envs": 16, "steps": 32, "workers": 1, "groups": 1}, "stop": {"updates": 60}, "evaluation": None, "seed": 4,
    }  # fmt: skip
    found, returns = {}, {}
    for way, how in WAYS.items():
        run = srl.launch(**settings, **how, runs=tmp_path, quiet=True)
        returns[way] = ended(run)["episode/return"]
        found[way] = weights(run)
    for way in ("shm", "zmq"):
        assert found[way].keys() == found["inline"].keys()
        for key, array in found["inline"].items():
            np.testing.assert_array_equal(found[way][key], array, err_msg=f"{way}: {key}")
    assert min(returns.values()) > 1.2 * RANDOM, returns


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OFF_POLICY)
def test_off_policy_it_makes_its_updates_every_way(name: str, way: str, tmp_path: Path) -> None:
    """Which rows are there when a batch is drawn depends on the clock, but inline: so the curves are equal on average only, and what
    is reached is left to the experiments."""
    how = {**WAYS[way], "layout": "offpolicy"} if way == "shm" else WAYS[way]
    run = srl.launch(
        env="Pendulum-v1" if name in REAL else "CartPole-v1", algorithm={"use": name, **OFF_POLICY[name]}, policy={"hidden": [32]},
        sampling={"envs": 4, "workers": 1}, replay={"size": 20_000, "batch": 64, "warmup": 500, "updates_per_step": 0.25},
        stop={"env_steps": 4_000}, evaluation=None, seed=4, runs=tmp_path, quiet=True, **how,
    )  # fmt: skip
    last = ended(run)
    owed = 0.25 * (last["env_steps"] - 500)
    assert 0.8 * owed < last["update"] <= owed + 1 and np.isfinite(last["episode/return"])
    first = checkpoint.latest(run.folder / "checkpoints" / "initial")
    assert first is not None
    before, after = checkpoint.read(first).groups["policy"], weights(run)
    assert any((after[f"policy/{name}"] != array).any() for name, array in before.items())
