"""Behaviour cloning and DAgger: the loss of a loop over rows, labels of experts, and few labels that are enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srl
from srl.algorithms.bc import BC
from srl.api.env import Box, Discrete
from srl.core.errors import UserError
from srl.experts import Expert
from srl.nets.recurrent import Recurrent
from tests.algorithms.slabs import make, record

UNIT = Box((2,), (-1.0,) * 2, (1.0,) * 2)
CARTPOLE: dict[str, Any] = {"env": {"use": "gym_vector", "id": "CartPole-v1"}, "policy": {"hidden": [32, 32]}, "evaluation": None}


def some_rows(action: Any, mask: bool, number: int = 40) -> dict[str, Any]:
    """Transitions as a replay gives them."""
    noise = np.random.default_rng(0)
    real = isinstance(action, Box)
    rows: dict[str, Any] = {
        "obs": noise.standard_normal((2, number, 1, 5)).astype(np.float32),
        "action": noise.uniform(-1, 1, (1, number, 1, 2)).astype(np.float32) if real else noise.integers(0, 3, (1, number, 1)),
        "reward": np.zeros((1, number, 1), np.float32),
        "discount": np.ones((1, number, 1), np.float32),
        "first": np.zeros((2, number, 1), bool),
        "valid": np.ones((1, number, 1), bool),
        "terminated": np.zeros((1, number, 1), bool),
        "truncated": np.zeros((1, number, 1), bool),
        "ids": np.arange(number),
        "weight": np.ones(number, np.float32),
        "version": np.zeros(number, np.int64),
    }
    if mask:
        rows["mask"] = np.ones((2, number, 1, 3), bool)
        rows["mask"][:, np.arange(number), 0, (rows["action"][0, :, 0] + 1) % 3] = noise.random((2, number)) < 0.5
    return rows


@pytest.mark.parametrize("kind", ["choice", "masked", "real"])
def test_the_loss_is_that_of_a_loop_over_rows(kind: str) -> None:
    action = UNIT if kind == "real" else Discrete(3)
    learner = make(action, mask=kind == "masked", algorithm=BC, policy_config={"log_std": -0.3})
    with torch.no_grad():
        for parameter in learner.policy.parameters():
            parameter += 0.3 * torch.randn(parameter.shape)
    rows = some_rows(action, kind == "masked")
    batch = learner.intake.batch(rows, 0)
    with torch.no_grad():
        heads = learner.policy.unroll(batch.asked(0, 1))
    loss, entropy = 0.0, 0.0
    for b in range(40):
        logits = heads["logits"][0, b].double().numpy()
        if kind == "real":
            log_std = heads["log_std"].detach().double().numpy()
            away = (rows["action"][0, b, 0] - logits) / np.exp(log_std)
            loss += (0.5 * away**2 + log_std + 0.5 * np.log(2 * np.pi)).sum() / 40
            entropy += (log_std + 0.5 * np.log(2 * np.pi * np.e)).sum() / 40
        else:
            allowed = rows["mask"][0, b, 0] if kind == "masked" else np.ones(3, bool)
            chance = np.where(allowed, np.exp(logits), 0.0)
            chance /= chance.sum()
            loss -= np.log(chance[rows["action"][0, b, 0]]) / 40
            entropy -= (chance[allowed] * np.log(chance[allowed])).sum() / 40
    learner.update(rows)
    shown = learner.metrics()
    assert shown["loss"] == pytest.approx(loss, rel=1e-4)
    assert shown["entropy"] == pytest.approx(entropy, rel=1e-4)
    for _ in range(300):
        learner.update(rows)
    assert learner.metrics()["loss"] < 0.9 * loss


def test_a_policy_with_memory_is_refused() -> None:
    with pytest.raises(UserError, match="without memory"):
        make(algorithm=BC, policy=Recurrent)


def test_rows_have_the_actions_of_the_expert_and_2000_of_them_are_enough() -> None:
    with srl.build("cartpole_dagger", evaluation=None, replay={"warmup": 200, "updates_per_step": 1.0, "batch": 64}) as session:
        while session.algorithm.clock.env_steps < 2_000:
            session.step()
            obs, action = session.batch.obs[0].double().numpy(), session.batch.action[0].numpy()
            clear = np.abs(obs @ [0.05, 0.2, 1.0, 0.8]) > 1e-6
            np.testing.assert_array_equal(action[clear], (obs @ [0.05, 0.2, 1.0, 0.8] > 0)[clear])
        learned = session.algorithm.policy
    import gymnasium

    lengths = []
    env = gymnasium.make("CartPole-v1")
    for seed in range(10):
        obs, ended, steps = env.reset(seed=seed)[0], False, 0
        while not ended:
            obs, _, terminated, truncated, _ = env.step(int(learned(torch.from_numpy(obs)[None])))
            ended, steps = terminated or truncated, steps + 1
        lengths.append(steps)
    assert np.mean(lengths) >= 0.95 * 500


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_the_policy_of_a_run_is_an_expert(env: str, tmp_path: Path) -> None:
    run = srl.launch(
        env=env, algorithm="ppo", policy={"hidden": [16]}, sampling={"envs": 4, "steps": 16}, stop={"updates": 3}, mode="inline",
        evaluation=None, runs=tmp_path, quiet=True,
    )  # fmt: skip
    ports = {"source": "samples.main", "sink": "labelled"}
    expert = {"use": "buffer", "transform": "expert", "transform_args": {"run": str(run.folder)}, "ports": ports}
    with srl.build(
        env=env, algorithm="bc", policy={"hidden": [8]}, sampling={"envs": 4, "steps": 4}, evaluation=None,
        replay={"size": 1000, "batch": 32, "warmup": 64, "updates_per_step": 0.25},
        workers={"expert": expert, "replay": {"ports": {"source": "labelled"}}},
    ) as session:  # fmt: skip
        session.step(20)
        batch, network = session.batch, srl.load_run(run.folder).network("latest")
        with torch.no_grad():
            expected = network(batch.obs[0])
        if env == "Pendulum-v1":
            assert batch.action.shape == (1, 32, 1) and float(batch.action.std()) > 0.0
            np.testing.assert_allclose(batch.action[0], expected.clamp(-2.0, 2.0), atol=1e-5)
        else:
            assert (batch.action[0] == expected).float().mean() > 0.99


def test_an_expert_with_memory_is_refused(tmp_path: Path) -> None:
    run = srl.launch(
        env="CartPole-v1", algorithm="ppo", policy={"use": "recurrent", "hidden": [8]}, evaluation=None, mode="inline",
        sampling={"envs": 4, "steps": 16}, stop={"updates": 1}, runs=tmp_path, quiet=True,
    )  # fmt: skip
    with pytest.raises(UserError, match="without memory"):
        Expert(run=str(run.folder))


def test_recorded_episodes_are_cloned_alone(tmp_path: Path) -> None:
    noise = np.random.default_rng(0)
    obs = noise.uniform(-1, 1, (501, 4)).astype(np.float32)
    action = (obs[:-1, 2] > 0).astype(np.int64)
    np.savez(tmp_path / "rows.npz", obs=obs, action=action, reward=np.ones(500), terminated=np.zeros(500, bool),
             truncated=np.arange(500) == 499)  # fmt: skip
    replay = {"data": str(tmp_path / "rows.npz"), "share": 1.0, "size": 1000, "batch": 64, "warmup": 64}
    with srl.build(algorithm="bc", replay=replay, **CARTPOLE) as session:
        session.step(300)
        known = {tuple(row) for row in obs.tolist()}
        assert all(tuple(row) in known for row in session.batch.obs[0].tolist())
        with torch.no_grad():
            found = session.algorithm.policy(torch.from_numpy(obs[:-1])).numpy()
    assert (found == action).mean() > 0.95


def test_expert_labels_keep_the_axes_and_masks_of_slabs() -> None:
    learner = make(Discrete(3), mask=True, agents=2)
    rows = record(learner)

    class Last:
        """The last allowed action."""

        def predict(self, obs: Any, mask: Any) -> tuple[Any, Any]:
            assert obs.shape == (16 * 6 * 2, 5) and mask.shape == (16 * 6 * 2, 3)
            return 2 - mask[:, ::-1].argmax(1), {}

    expert = Expert.__new__(Expert)
    expert._policy = Last()  # type: ignore[assignment]
    found = expert.apply(rows)["action"]  # type: ignore[index,call-overload]
    assert found.shape == rows["action"].shape
    for t in range(16):
        for e in range(6):
            for a in range(2):
                allowed = np.flatnonzero(rows["mask"][t, e, a])
                assert found[t, e, a] == (allowed[-1] if len(allowed) else 2)


@pytest.mark.parametrize("via", ["auto", pytest.param("zmq", marks=pytest.mark.long)])
def test_an_expert_between_several_actors_and_the_replay_labels_all_of_their_rows(via: str, tmp_path: Path) -> None:
    run = srl.launch(
        "cartpole_dagger", layout="offpolicy", sampling={"envs": 8, "steps": 8, "workers": 2}, evaluation=None, quiet=True,
        stop={"env_steps": 3_000}, streams={"all": {"via": via}}, runs=tmp_path,
    )  # fmt: skip
    assert run.result is not None and run.result.exit_code == 0
    text = run.result.format()
    assert "ok" in text and "DOES NOT BALANCE" not in text
