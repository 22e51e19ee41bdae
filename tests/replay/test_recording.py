"""Slabs that are recorded come back as the rows that they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srl
from srl.__main__ import main
from srl.core.spec import Leaf, spec_of
from srl.plan.prepare import prepare
from srl.replay.recording import PREFIX, Recording, columns_of, files_of
from tests.errors import raises
from tests.runs.test_offpolicy import FAKE, WITNESS

PPO: dict[str, Any] = {
    "env": FAKE["env"], "algorithm": {"use": "ppo", "epochs": 1}, "policy": {"hidden": [8]}, "sampling": {"envs": 4, "steps": 16},
    "mode": "inline", "evaluation": None,
}  # fmt: skip


def slab(first: int, number: int, steps: int = 3) -> dict[str, Any]:
    """Two envs whose observations count the steps of the run."""
    time = number * steps + np.arange(steps + 1, dtype=np.float32)
    obs = (time[:, None, None] + 1000 * np.array([first, first + 1])[None, :, None]).astype(np.float32)[..., None]
    flags = np.zeros((steps, 2, 1), bool)
    return {
        "obs": obs, "reward": np.ones((steps, 2, 1), np.float32), "terminated": flags, "truncated": flags, "valid": ~flags,
        "first": np.zeros((steps + 1, 2, 1), bool), "origin": np.array([first, number]),
    }  # fmt: skip


def test_slabs_that_follow_each_other_are_joined_and_gaps_are_not(tmp_path: Path) -> None:
    recording = Recording(tmp_path, spec_of(slab(0, 0)), limit=1 << 20)
    for first, number in ((0, 0), (2, 0), (0, 1), (0, 3), (2, 1)):
        recording.put(slab(first, number))
    recording.flush()
    (file,) = files_of(tmp_path)
    with np.load(file, allow_pickle=False) as data:
        columns = list(columns_of({name.removeprefix(PREFIX): data[name] for name in data.files}))
    found = {tuple(rows["obs"][:, 0].astype(int).tolist()): np.flatnonzero(rows["truncated"]).tolist() for rows in columns}
    assert found == {
        (0, 1, 2, 3, 4, 5): [5], (1000, 1001, 1002, 1003, 1004, 1005): [5], (9, 10, 11): [2], (1009, 1010, 1011): [2],
        (2000, 2001, 2002, 2003, 2004, 2005): [5], (3000, 3001, 3002, 3003, 3004, 3005): [5],
    }  # fmt: skip
    assert all((rows["next_obs"] == rows["obs"] + 1).all() for rows in columns)


def test_the_oldest_files_are_deleted_and_a_recording_is_continued(tmp_path: Path) -> None:
    record = {"obs": Leaf((101, 1, 1, 8), "float32"), "valid": Leaf((100, 1, 1), "bool")}
    one = {"obs": np.zeros((101, 1, 1, 8), np.float32), "valid": np.ones((100, 1, 1), bool)}
    for _ in range(2):
        recording = Recording(tmp_path, record, limit=40_000)
        for _ in range(20):
            recording.put(one)
        recording.flush()
        assert sum(file.stat().st_size for file in files_of(tmp_path)) == recording.written <= 40_000
    assert int(files_of(tmp_path)[-1].stem) + 1 > len(files_of(tmp_path)), "the first ones are gone"
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("kind", ["on-policy", "off-policy"])
def test_rows_of_a_recorded_run_are_right_when_they_are_drawn(kind: str, tmp_path: Path, capsys: Any) -> None:
    """The fake env's rows say who they are: the witness looks at each that is drawn."""
    made = PPO if kind == "on-policy" else {**FAKE, "mode": "inline", "replay": {"size": 500, "batch": 16, "warmup": 50}}
    run = srl.launch(**{**made, "stop": {"env_steps": 1000}}, record=str(tmp_path / "data"), runs=tmp_path, quiet=True)
    assert run.metrics()[-1]["total/episodes"] > 5
    assert main(["replay", str(tmp_path / "data")]) == 0
    assert "whole ones, mean return" in capsys.readouterr().out
    replay = {"size": 500, "batch": 32, "warmup": 100, "updates_per_step": 0.2, "data": str(tmp_path / "data"), "share": 0.5}
    with srl.build(**{**FAKE, "algorithm": WITNESS, "env": made["env"], "replay": replay}) as session:
        for _ in range(40):
            session.step()
        assert session.algorithm.terminations + session.algorithm.truncations > 0


def test_a_folder_without_a_recording_is_refused(tmp_path: Path) -> None:
    from srl.cli.recorded import replay

    with raises("E11", match="there is no recording"):
        replay([str(tmp_path)])


def test_several_trainers_cannot_be_recorded() -> None:
    with raises("E10", "record", match="cannot record the stream"):
        prepare(None, ["env=CartPole-v1", "algorithm=ppo", "workers.trainer.count=2", "record=data"], inspect=False)
