"""Which policy a run keeps as its best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import srl
from srl.store import checkpoint
from srl.store.run_folder import RunFolder

RUN: dict[str, Any] = {
    "env": "CartPole-v1",
    "algorithm": {"use": "ppo", "epochs": 4, "minibatch": 256},
    "sampling": {"envs": 8, "steps": 32, "workers": 1},
    "stop": {"env_steps": 4_000},
}


@pytest.mark.parametrize("mode", ["inline", "local"])
def test_a_run_that_ends_before_its_second_evaluation_keeps_the_policy_it_ends_with(mode: str, tmp_path: Path) -> None:
    run = srl.launch(**RUN, mode=mode, evaluation={"every": 100_000, "episodes": 4}, runs=tmp_path, quiet=True)
    best = checkpoint.best(run.folder / "checkpoints")
    assert best is not None and checkpoint.read(best).state["env_steps"] > 3_000
    assert srl.load_run(run.folder).checkpoint("best") == best
    steps = [row["env_steps"] for row in run.metrics() if "eval/return" in row]
    assert steps[-1] == checkpoint.read(best).state["env_steps"]
    last = RunFolder(run.folder).read_eval()[-1]
    assert int(last["env_steps"]) == steps[-1] and float(last["eval/return"]) == checkpoint.best_score(run.folder / "checkpoints")


def test_the_untrained_policy_is_never_the_best(tmp_path: Path) -> None:
    """Every episode returns -200 here: nothing that comes later scores more than the untrained policy."""
    settings = RUN | {"env": "MountainCar-v0"}
    run = srl.launch(**settings, evaluation={"every": 1, "episodes": 4}, mode="inline", runs=tmp_path, quiet=True)
    place = run.folder / "checkpoints"
    rows = RunFolder(run.folder).read_eval()
    assert rows[0]["env_steps"] == "0" and {float(row["eval/return"]) for row in rows} == {-200.0}
    best = checkpoint.best(place)
    assert best is not None and checkpoint.read(best).state["env_steps"] > 0


def test_a_last_evaluation_that_does_not_come_to_its_end_is_given_up(tmp_path: Path) -> None:
    long = {"use": "fake", "length": [1_000_000, 1_000_000]}
    settings = RUN | {"env": long, "stop": {"seconds": 1.0}, "evaluation": {"every": 256, "episodes": 4}}
    run = srl.launch(**settings, mode="local", runs=tmp_path, quiet=True)
    assert run.result is not None and run.result.kind == "done"
    assert checkpoint.best(run.folder / "checkpoints") is None


def test_a_resumed_run_has_to_beat_the_best_of_before(tmp_path: Path) -> None:
    run = srl.launch(**RUN, mode="local", evaluation={"every": 1_000, "episodes": 4}, runs=tmp_path, quiet=True)
    place = run.folder / "checkpoints"
    checkpoint.write_best(place, 3_999, checkpoint.read(checkpoint.best(place)).groups, 501.0)  # type: ignore[arg-type]
    again = srl.launch(resume=run.folder, stop={"env_steps": 6_000}, quiet=True)
    assert again.folder == run.folder
    assert checkpoint.best_score(place) == 501.0
