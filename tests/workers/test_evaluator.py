"""Which policy a run keeps as its best."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import srl
from srl.control.controller import Controller
from srl.plan.prepare import prepare
from srl.store import checkpoint
from srl.store.lines import read_lines
from srl.store.run_folder import RunFolder
from tests.waiting import until

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


@pytest.mark.parametrize("mode", ["inline", "local"])
def test_an_evaluation_that_has_begun_with_the_last_policy_is_finished(mode: str, tmp_path: Path) -> None:
    run = srl.launch(**RUN, mode=mode, evaluation={"every": 4_000, "episodes": 4}, runs=tmp_path, quiet=True)
    assert int(RunFolder(run.folder).read_eval()[-1]["env_steps"]) >= 4_000


def test_the_untrained_policy_is_never_the_best(tmp_path: Path) -> None:
    """Every episode returns -200 here: nothing that comes later scores more than the untrained policy."""
    settings = RUN | {"env": "MountainCar-v0"}
    run = srl.launch(**settings, evaluation={"every": 1, "episodes": 4}, mode="inline", runs=tmp_path, quiet=True)
    place = run.folder / "checkpoints"
    rows = RunFolder(run.folder).read_eval()
    assert rows[0]["env_steps"] == "0" and {float(row["eval/return"]) for row in rows} == {-200.0}
    best = checkpoint.best(place)
    assert best is not None and checkpoint.read(best).state["env_steps"] > 0


def test_a_last_evaluation_that_does_not_come_to_its_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srl.control.controller.LAST", 0.5)
    long = {"use": "fake", "length": [1_000_000, 1_000_000]}
    settings = RUN | {"env": long, "stop": {"seconds": 1.0}, "evaluation": {"every": 256, "episodes": 4}}
    run = srl.launch(**settings, mode="local", runs=tmp_path, quiet=True)
    assert run.result is not None and run.result.kind == "done"
    assert checkpoint.best(run.folder / "checkpoints") is None


def test_a_long_run_waits_longer_for_its_last_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"DRAIN": 0.3, "LAST": 0.1, "LAST_PART": 100.0}.items():
        monkeypatch.setattr(f"srl.control.controller.{name}", seconds)
    slow = {"use": "fake", "length": [100, 100], "step_us": 1000, "clock": "wall"}
    settings = RUN | {"env": slow, "stop": {"env_steps": 512}, "evaluation": {"every": 100_000, "episodes": 4}}
    run = srl.launch(**settings, mode="local", runs=tmp_path, quiet=True)
    assert int(RunFolder(run.folder).read_eval()[-1]["env_steps"]) >= 512


def test_a_resumed_run_has_to_beat_the_best_of_before(tmp_path: Path) -> None:
    run = srl.launch(**RUN, mode="local", evaluation={"every": 1_000, "episodes": 4}, runs=tmp_path, quiet=True)
    place = run.folder / "checkpoints"
    checkpoint.write_best(place, 3_999, checkpoint.read(checkpoint.best(place)).groups, 501.0)  # type: ignore[arg-type]
    again = srl.launch(resume=run.folder, stop={"env_steps": 6_000}, quiet=True)
    assert again.folder == run.folder
    assert checkpoint.best_score(place) == 501.0


def test_a_restarted_evaluator_has_to_beat_the_best_of_before(tmp_path: Path) -> None:
    prepared = prepare(settings=RUN, overrides=["mode=local", "stop=null", "stop.seconds=100", "evaluation.every=500"])
    assert prepared.graph.node("evaluator").on_failure == "restart"
    folder = RunFolder.create(tmp_path, "x", 1)
    controller = Controller(prepared.graph, folder=folder, derived=prepared.derived)
    seen: dict[str, Any] = {}

    def disturb() -> None:
        try:
            until(lambda: len(folder.read_eval()) >= 2)
            os.kill(controller._backend.processes["evaluator/0"], signal.SIGKILL)
            until(lambda: any(event["event"] == "died" for event in read_lines(folder.events)))
            best = checkpoint.best(folder.checkpoints)
            assert best is not None
            checkpoint.write_best(folder.checkpoints, 3_999, checkpoint.read(best).groups, 501.0)
            seen["before"] = len(folder.read_eval())
            until(lambda: len(folder.read_eval()) >= seen["before"] + 2)
        finally:
            controller.stop()

    thread = threading.Thread(target=disturb)
    thread.start()
    result = controller.run()
    thread.join()
    assert result.kind == "done" and len(folder.read_eval()) >= seen["before"] + 2, result.format()
    assert checkpoint.best_score(folder.checkpoints) == 501.0
