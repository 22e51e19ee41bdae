"""DQN and R2D2 in the engine: what they hand back arrives, memory starts where it was recorded, and runs resume exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srl

RUNS: dict[str, dict[str, Any]] = {
    "dqn": {"algorithm": {"use": "dqn", "prioritised": True, "n_step": 3}, "env": "CartPole-v1", "policy": {"hidden": [16]}},
    "dqn_masks": {
        "algorithm": {"use": "dqn", "prioritised": True},
        "env": {"use": "fake", "mask": True, "action": 4, "length": [3, 9], "end": "random", "teams": {"agent": 2}},
        "policy": {"hidden": [16], "rungs": 3, "dueling": True},
    },
    "dqn_dict": {
        "algorithm": {"use": "dqn"},
        "env": {"use": "catch", "told": True},
        "policy": {"hidden": [16], "features": 16, "atoms": 5, "returns": [-1, 1]},
    },
    "r2d2": {
        "algorithm": {"use": "r2d2", "burn_in": 4, "length": 4, "n_step": 3, "refresh": True},
        "env": "cartpole_positions",
        "policy": {"hidden": [8], "width": 8, "cell": "lstm"},
        "sampling": {"steps": 8},
    },
    "r2d2_slabs_of_one_step": {
        "algorithm": {"use": "r2d2", "prioritised": False, "length": 8},
        "env": {"use": "catch", "told": True},
        "policy": {"hidden": [8], "width": 8, "features": 8},
    },
}
COMMON = {"sampling": {"envs": 2}, "replay": {"size": 600, "batch": 16, "warmup": 60, "updates_per_step": 0.25}, "evaluation": None}


def settings(name: str) -> dict[str, Any]:
    both = {key: {**COMMON.get(key, {}), **RUNS[name].get(key, {})} for key in ("sampling", "replay")}  # type: ignore[dict-item]
    return {**COMMON, **RUNS[name], **both}


@pytest.mark.parametrize("name", RUNS)
def test_it_trains_and_its_feedback_arrives(name: str) -> None:
    with srl.build(**settings(name)) as session:
        session.step(60)
        found = session.step()
        assert np.isfinite(found["train/loss"]) and 0 < found["train/epsilon"] <= 1
        assert session.workers["replay/0"].store.inserted > 200
        if RUNS[name]["algorithm"].get("prioritised", name == "r2d2"):
            weights = session.batch.weight
            assert float(weights.min()) < float(weights.max()) <= 1.0  # priorities differ
        else:
            assert bool((session.batch.weight == 1).all())


def test_a_stored_state_is_the_one_that_the_policy_had() -> None:
    """While weights do not change, an unroll from the recorded state gives the states recorded later in the same window."""
    wanted = settings("r2d2")
    wanted["algorithm"] = {**wanted["algorithm"], "lr": 0.0, "refresh": False}
    with srl.build(**wanted) as session:
        session.step(40)
        batch, policy = session.batch, session.algorithm.policy
        store = session.workers["replay/0"].store
        with torch.no_grad():
            late = policy.unroll(batch.asked(0, 4))["memory"]["cell"].numpy()
        flat = store._rings.flat["memory/cell"]
        slots = batch.ids.numpy() % (store.shape.columns * store.shape.rows)
        column, place = np.divmod(slots // store.shape.every, store.shape.starts)
        recorded = flat[column * store.shape.starts + (place + 4 // store.shape.every) % store.shape.starts]
        assert store.shape.every == 2
        same = ~batch.first[4].numpy()  # there the recorded state has been cleared already
        assert same.any() and np.abs(recorded[same]).max() > 0.01
        np.testing.assert_allclose(late[same], recorded[same], atol=1e-5)


@pytest.mark.parametrize("name", ["dqn", "r2d2"])
def test_two_inline_runs_are_equal(name: str, tmp_path: Path) -> None:
    weights = []
    for _ in range(2):
        with srl.build(**settings(name)) as session:
            session.step(30)
            weights.append({key: one.clone() for key, one in session.algorithm.policy.state_dict().items()})
    assert all(torch.equal(one, weights[1][key]) for key, one in weights[0].items())


ON_POLICY: dict[str, dict[str, Any]] = {
    "pqn": {"env": "CartPole-v1", "policy": {"hidden": [16]}},
    "pqn_masks": {
        "env": {"use": "fake", "mask": True, "action": 4, "length": [3, 9], "end": "random", "teams": {"agent": 2}},
        "policy": {"hidden": [16], "rungs": 3, "dueling": True},
    },
    "pqn_memory": {
        "env": "cartpole_positions",
        "policy": {"use": "recurrent_q", "hidden": [8], "width": 8, "layer_norm": True},
        "algorithm": {"window": {"burn_in": 4, "length": 4}},
    },
}


@pytest.mark.parametrize("name", ON_POLICY)
def test_pqn_needs_no_replay_and_two_inline_runs_are_equal(name: str) -> None:
    given = ON_POLICY[name]
    wanted = {**given, "algorithm": {"use": "pqn", "minibatch": 32, **given.get("algorithm", {})}}
    weights = []
    for _ in range(2):
        with srl.build(**wanted, sampling={"envs": 4, "steps": 16}, evaluation=None, stop={"env_steps": 4_000}) as session:
            session.step(6)
            found = session.step()
            assert not any(worker.startswith("replay") for worker in session.workers)
            assert np.isfinite(found["train/loss"]) and 0 < found["train/epsilon"] < 1
            weights.append({key: one.clone() for key, one in session.algorithm.policy.state_dict().items()})
    assert all(torch.equal(one, weights[1][key]) for key, one in weights[0].items())
