"""Data sets of Minari become rows, and recordings such data sets. Minari makes the data sets itself."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import srl
from srl.__main__ import main
from srl.envs.fake import FIELDS
from srl.replay import minari as ours
from tests.errors import raises
from tests.runs.test_offpolicy import FAKE

HERE = importlib.util.find_spec("minari") is not None
collects = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="the collector of Minari needs jax")
needs_it = pytest.mark.skipif(not HERE, reason="needs the extra minari")
warns = pytest.mark.filterwarnings("ignore::UserWarning")


class Count(gymnasium.Env[Any, Any]):
    """Observations of many kinds count steps; an episode terminates after four, or after seven if its seed is odd."""

    observation_space = spaces.Dict(
        {
            "box": spaces.Box(-100, 100, (2,), np.float64),
            "kind": spaces.Discrete(8, start=1),
            "pair": spaces.Tuple([spaces.Box(0, 255, (2, 2), np.uint8), spaces.MultiBinary(3)]),
        }
    )
    action_space = spaces.Dict({"go": spaces.Discrete(3, start=-1), "turn": spaces.Box(-2, 2, (1,), np.float32)})

    def _row(self) -> Any:
        at = self.steps
        picture, bits = np.full((2, 2), at, np.uint8), np.array([at & 1, at >> 1 & 1, at >> 2 & 1], np.int8)
        return {"box": np.array([at, self.seed % 2], float), "kind": np.int64(1 + at), "pair": (picture, bits)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seed, self.steps = int(seed or 0), 0
        return self._row(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self._row(), float(self.steps), self.steps == (7 if self.seed % 2 else 4), False, {}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Minari looks for data sets."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path


def collect(env: gymnasium.Env[Any, Any], name: str, steps: int) -> list[dict[str, Any]]:
    """A data set by random actions; the steps as they were lived."""
    from minari import DataCollector

    collector, lived = DataCollector(env), []
    env.action_space.seed(0)
    obs, _ = collector.reset(seed=0)
    for number in range(steps):
        action = env.action_space.sample()
        after, reward, terminated, truncated, _ = collector.step(action)
        ends = {"terminated": terminated, "truncated": truncated}
        lived.append({"obs": obs, "action": action, "reward": reward, "next": after, **ends})
        obs = after
        if (terminated or truncated) and number < steps - 1:
            obs, _ = collector.reset(seed=number + 1)
    collector.create_dataset(name)
    collector.close()
    return lived


def drawn(session: Any, updates: int) -> list[dict[str, Any]]:
    """Every row of so many batches."""
    rows = []
    for _ in range(updates):
        session.step()
        batch = session.batch
        parts = {"obs": batch.obs[0], "next": batch.obs[1], "action": batch.action[0], "reward": batch.reward[0]}
        parts |= {"terminated": batch.terminated[0], "discount": batch.discount[0]}
        copied = {name: part.clone() for name, part in parts.items()}
        rows += [{name: part[b] for name, part in copied.items()} for b in range(len(batch.reward[0]))]
    return rows


@needs_it
@collects
@warns
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_rows_of_a_data_set_are_those_that_were_lived(env: str) -> None:
    """CartPole terminates; Pendulum is truncated, and its policy counts actions from -1 to 1."""
    lived = collect(gymnasium.make(env), "test/random-v0", 450)
    known = {tuple(np.float32(row["obs"])): row for row in lived}
    replay = {"data": "minari:test/random-v0", "share": 1.0, "batch": 64, "warmup": 20, "size": 500}
    algorithm = "dqn" if env == "CartPole-v1" else "sac"
    with srl.build(env=env, algorithm={"use": algorithm, "n_step": 1}, policy={"hidden": [8]}, replay=replay) as session:
        rows = drawn(session, 30)
    ends = 0
    for row in rows:
        mine = known[tuple(row["obs"].numpy())]
        assert np.allclose(row["next"], mine["next"]) and np.isclose(row["reward"], mine["reward"])
        assert np.allclose(row["action"] * (2 if algorithm == "sac" else 1), mine["action"])
        assert bool(row["terminated"]) == mine["terminated"] and (row["discount"] == 0) == mine["terminated"]
        ends += mine["terminated"] or mine["truncated"]
    assert ends > 5 and len({tuple(row["obs"].tolist()) for row in rows}) > 400, "whole episodes, with their last rows"


@needs_it
@collects
@warns
def test_dicts_and_tuples_of_spaces_are_rows_as_the_env_would_write_them() -> None:
    lived = collect(Count(), "count-v0", 30)
    at = 0
    for rows in ours.episodes("count-v0"):
        assert {path for path in rows if path.startswith("obs")} == {"obs/box", "obs/kind", "obs/pair/0", "obs/pair/1"}
        for i, reward in enumerate(rows["reward"]):
            step = lived[at]
            assert reward == step["reward"] and rows["terminated"][i] == step["terminated"]
            assert (rows["obs/box"][i] == step["obs"]["box"]).all() and (rows["obs/box"][i + 1] == step["next"]["box"]).all()
            assert rows["obs/kind"][i].argmax() == step["obs"]["kind"] - 1 and rows["obs/kind"][i].sum() == 1
            assert rows["obs/pair/0"].dtype == np.uint8 and (rows["obs/pair/0"][i] == step["obs"]["pair"][0]).all()
            assert (rows["obs/pair/1"][i] == step["obs"]["pair"][1]).all()
            assert rows["action/go"][i] == step["action"]["go"] + 1 and rows["action/turn"][i] == step["action"]["turn"]
            at += 1
    assert at == 30


@needs_it
@warns
@pytest.mark.parametrize("kind", ["off-policy", "on-policy"])
def test_a_recording_becomes_a_data_set_that_others_read_and_that_trains(kind: str, tmp_path: Path, capsys: Any) -> None:
    import minari

    made: dict[str, Any] = {"replay": {"size": 500, "batch": 16, "warmup": 50}} if kind == "off-policy" else {
        "sampling": {"envs": 2, "steps": 50}
    }  # fmt: skip
    env, use = ("Pendulum-v1", "sac") if kind == "off-policy" else ("CartPole-v1", "ppo")
    data = str(tmp_path / "data")
    srl.launch(env=env, algorithm=use, policy={"hidden": [8]}, **made, mode="inline", evaluation=None, stop={"env_steps": 500},
               record=data, runs=tmp_path, quiet=True)  # fmt: skip
    assert main(["replay", data, "--to", "minari:made/by-srl-v0"]) == 0
    assert "minari:made/by-srl-v0" in capsys.readouterr().out
    written = minari.load_dataset("made/by-srl-v0")
    assert written.total_steps >= 450 and written.recover_environment().spec.id == env
    simulator = gymnasium.make(env)
    for episode in written.iterate_episodes():
        assert (episode.terminations | episode.truncations).tolist() == [False] * (len(episode.rewards) - 1) + [True]
        assert len(episode.observations) == len(episode.rewards) + 1
        assert all(simulator.action_space.contains(action) for action in episode.actions)
        if kind == "off-policy":
            angle, speed = episode.observations[:-1, :2], episode.observations[:-1, 2]
            cost = np.arctan2(angle[:, 1], angle[:, 0]) ** 2 + 0.1 * speed**2 + 0.001 * episode.actions[:, 0] ** 2
            assert np.allclose(episode.rewards, -cost, atol=1e-3), "actions are those of the env"
    replay = {"data": "minari:made/by-srl-v0", "share": 1.0, "batch": 16, "warmup": 20, "size": 100}
    with srl.build(env=env, algorithm="bc", policy={"hidden": [8]}, replay=replay) as session:
        assert len(drawn(session, 3)) == 48


@needs_it
@warns
def test_parts_of_observations_and_actions_are_written_and_read_again(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    srl.launch(env=f"{__name__}:Count", algorithm="ppo", policy={"hidden": [8]}, sampling={"envs": 2, "steps": 40}, mode="inline",
               evaluation=None, stop={"env_steps": 160}, record=data, runs=tmp_path, quiet=True)  # fmt: skip
    assert main(["replay", data, "--to", "minari:again-v0"]) == 0
    lengths = []
    for rows in ours.episodes("again-v0"):
        steps = rows["obs/box"][:, 0]
        assert (np.diff(steps) == 1).all() and (rows["obs/kind"].argmax(1) == steps).all()
        assert (rows["obs/pair/0"][:, 1, 1] == steps).all() and (rows["reward"] == steps[1:]).all()
        assert rows["terminated"][-1] == (steps[-1] == (7 if rows["obs/box"][0, 1] else 4))
        assert (np.abs(rows["action/turn"]) <= 2).all() and set(rows["action/go"]) <= {0, 1, 2}
        lengths.append(len(rows["reward"]))
    assert sum(lengths) >= 120 and {4, 7} <= set(lengths)


@needs_it
@warns
def test_every_agent_has_episodes_of_its_own(tmp_path: Path) -> None:
    env = {**FAKE["env"], "teams": {"agent": 2}}
    srl.launch(**{**FAKE, "env": env}, mode="inline", replay={"size": 500, "batch": 16, "warmup": 50}, stop={"env_steps": 300},
               record=str(tmp_path / "data"), runs=tmp_path, quiet=True)  # fmt: skip
    assert main(["replay", str(tmp_path / "data"), "--to", "minari:fake-v0"]) == 0
    found = [rows["obs"] for rows in ours.episodes("fake-v0")]
    assert {float(agent) for obs in found for agent in obs[:, FIELDS.index("agent")]} == {0.0, 1.0}
    assert all((obs[1:, :2] == obs[:-1, :2]).all() and (np.diff(obs[:, 2]) == 1).all() for obs in found), "of one episode"
    assert sum(len(obs) - 1 for obs in found) >= 550


@needs_it
def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    replay = {"data": "minari:nobody/made-v0", "size": 100, "warmup": 20}
    with raises("E11", "replay.data", match="no data set minari:nobody/made-v0"):
        srl.build(env="CartPole-v1", algorithm="dqn", replay=replay)
    with raises("E00", match="must name a data set of Minari"):
        (tmp_path / "data").mkdir()
        np.savez(tmp_path / "data" / "000000.npz", time=np.zeros(0))
        main(["replay", str(tmp_path / "data"), "--to", "somewhere", "--trace"])


@pytest.mark.skipif(HERE, reason="Minari is here")
def test_without_it_the_extra_is_named() -> None:
    with raises("E11", "replay.data", match="needs Minari"):
        srl.build(env="CartPole-v1", algorithm="dqn", replay={"data": "minari:a-v0", "size": 100, "warmup": 20})
