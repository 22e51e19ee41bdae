"""Rows that a replay keeps in another way or takes from elsewhere: frame stacks and data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srl
from srl.plan.check import check_memory
from srl.plan.derive import derive
from srl.plan.prepare import prepare
from tests.errors import raises

HERE = Path(__file__).parent
FAKE: dict[str, Any] = {
    "env": {"use": "fake", "length": [3, 9], "end": "random", "box": 2},
    "algorithm": {"use": f"{HERE / 'witness.py'}:Shares", "prioritised": True},
    "policy": {"hidden": [16]},
}
SMALL = {"size": 400, "batch": 32, "warmup": 50}


def rows_of_env_99(count: int) -> dict[str, Any]:
    """One episode of a fake env that is in no run."""
    rng = np.random.default_rng(0)
    action = rng.uniform(-1, 1, (count, 2)).astype(np.float32)
    obs = np.zeros((count + 1, 8), np.float32)
    obs[:, 0] = 99
    obs[:, 2] = np.arange(count + 1)
    obs[1:, 4] = action.sum(1)
    return {"obs": obs, "action": action, "reward": np.zeros(count), "terminated": np.arange(count) == count - 1}


def test_a_part_of_every_batch_is_drawn_from_a_data_set(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", **rows_of_env_99(100))
    with srl.build(replay={**SMALL, "data": str(tmp_path), "share": 0.25}, **FAKE) as session:
        for _ in range(20):
            session.step()
            assert session.algorithm.given == 8


def test_a_data_set_that_does_not_fit_ends_the_run_with_its_name(tmp_path: Path) -> None:
    rows = rows_of_env_99(100)
    np.savez(tmp_path / "rows.npz", **{**rows, "obs": rows["obs"][:, :5]})
    with raises("E11", "replay.data", match="rows.npz"), srl.build(replay={**SMALL, "data": str(tmp_path)}, **FAKE) as session:
        session.step()


@pytest.mark.parametrize("padding", ["reset", "zero"])
def test_stacks_that_are_kept_as_single_frames_are_whole_when_they_are_drawn(padding: str) -> None:
    """The algorithm checks the physics from frame to frame."""
    with srl.build(
        env={"use": f"{HERE / 'stacked.py'}:make", "padding_type": padding},
        algorithm={"use": f"{HERE / 'stacked.py'}:Stacks"},
        replay={**SMALL, "size": 300, "history": ["obs"]},
    ) as session:
        session.step(400)
        assert session.workers["replay/0"].store.inserted > 400
        assert session.algorithm.begins > 400


@pytest.mark.parametrize("shards", [1, 2])
def test_beta_follows_the_progress_of_the_run(shards: int) -> None:
    replay = {**SMALL, "beta": {"from": 0.2, "to": 1.0}, "shards": shards}
    with srl.build(replay=replay, sampling={"envs": 2, "workers": 2}, stop={"env_steps": 400}, **FAKE) as session:
        name = "replay/0" if shards == 1 else "replay.1/0"
        worker, betas = session.workers[name], []
        draw = worker.batches.sample

        def sample(count: int, rng: Any, out: Any, beta: float) -> None:
            betas.append((worker.store.env_steps * shards / 400, beta))
            draw(count, rng, out, beta)

        worker.batches.sample = sample
        session.step(300)
    assert len(betas) > 100
    assert all(beta == pytest.approx(0.2 + 0.8 * min(1.0, progress)) for progress, beta in betas)


@pytest.mark.parametrize(
    ("settings", "code", "path"),
    [
        ({"data": "nowhere"}, "E11", "replay.data"),
        ({"history": ["obs/x"]}, "E03", "replay.history"),
        ({"size": 2}, "E03", "replay.size"),
    ],
)
def test_what_a_replay_cannot_be_made_with_is_refused_before_the_start(settings: Any, code: str, path: str) -> None:
    prepared = prepare(settings={"replay": {**SMALL, **settings}, **FAKE}, inspect=False)
    derived = derive(prepared.graph)
    with raises(code, path):
        check_memory(prepared.fitted(derived).graph, derived, prepared.machine)
