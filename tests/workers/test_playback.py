"""A recording in the place of actors: the rows that were recorded, in their order, as fast as is wanted."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srl
from srl.plan.prepare import prepare
from srl.replay.recording import About, played, slabs_of
from tests.errors import raises
from tests.runs.test_offpolicy import FAKE, WITNESS
from tests.workers.stage import Stage

EVALUATOR = {"worker": "evaluator", "args": {"every": 400, "episodes": 2}, "ports": {"params": "params"}}
DRAWN = {"size": 1000, "batch": 16, "warmup": 50, "updates_per_step": 0.5}
FEEDBACK = {"feedback": "feedback"}
OFF: dict[str, Any] = {
    "nodes": {
        "playback": {"worker": "playback", "ports": {"samples": "samples"}},
        "replay": {
            "worker": "replay",
            "inside": "trainer",
            "args": DRAWN,
            "ports": {"source": "samples", "sink": "batches", **FEEDBACK},
        },
        "trainer": {"worker": "trainer", "args": {"slabs": 0}, "ports": {"samples": "batches", "params": "params", **FEEDBACK}},
        "evaluator": EVALUATOR,
    },
    "streams": {**{name: {"kind": "sample"} for name in ("samples", "batches", "feedback")}, "params": {"kind": "param"}},
}
ON: dict[str, Any] = {
    "nodes": {
        "playback": {"worker": "playback", "ports": {"samples": "samples"}},
        "trainer": {"worker": "trainer", "args": {"slabs": 2}, "ports": {"samples": "samples", "params": "params"}},
        "evaluator": EVALUATOR,
    },
    "streams": {"samples": {"kind": "sample"}, "params": {"kind": "param"}},
}
PPO: dict[str, Any] = {"env": FAKE["env"], "algorithm": {"use": "ppo", "epochs": 1}, "policy": {"hidden": [8]}}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of some 600 env steps each: `off`, of two groups of two envs for a replay, and `on`, of four envs."""
    folder = tmp_path_factory.mktemp("recordings")
    apart: dict[str, Any] = {"sampling": {"envs": 4, "steps": 5, "groups": 2}, "replay": {"size": 500, "batch": 16, "warmup": 50}}
    for kind, made in (("off", {**FAKE, **apart}), ("on", {**PPO, "sampling": {"envs": 4, "steps": 16}})):
        how: dict[str, Any] = {**made, "mode": "inline", "evaluation": None, "stop": {"env_steps": 600}}
        srl.launch(**how, record=str(folder / kind), runs=folder, quiet=True)
    return {kind: str(folder / kind) for kind in ("off", "on")}


def playing(graph: dict[str, Any], folder: str, **args: Any) -> dict[str, Any]:
    """The graph with this recording."""
    nodes = {**graph["nodes"], "playback": {**graph["nodes"]["playback"], "args": {"folder": folder, **args}}}
    return {**graph, "nodes": nodes}


@pytest.mark.parametrize(("recording", "mode"), [("off", "local"), ("on", "inline")])
def test_an_algorithm_with_a_replay_trains_from_it_without_actors(
    recording: str, mode: str, tmp_path: Path, recordings: dict[str, str]
) -> None:
    """The witness looks at each row that is drawn."""
    folder = recordings[recording]
    rows = sum(int(slabs["valid"].sum()) for slabs in slabs_of(Path(folder)))
    run = srl.launch(**FAKE, graph=playing(OFF, folder), mode=mode, runs=tmp_path, quiet=True)
    assert run.result is not None and run.result.exit_code == 0, run.result.format()
    assert "ok" in run.result.format() and "DOES NOT BALANCE" not in run.result.format()
    last = run.metrics()[-1]
    assert last["total/replay/env_steps"] == rows > 500, "everything was played, once"
    assert last["update"] > 0.5 * (rows - 50) - 40


def test_rows_come_as_they_were_recorded(recordings: dict[str, str]) -> None:
    folder = recordings["off"]
    slabs = [slab for _, slab in played(Path(folder))]
    with Stage("playback", {**FAKE, "graph": playing(OFF, folder, times=2)}) as stage:
        end, found = stage.ends["samples"], []
        for number in range(2 * len(slabs) + 3):
            end.credit(number, 7)
            stage.poll()
            while (loan := end.get()) is not None:
                found.append((loan.tree["obs"].copy(), loan.tree["origin"].tolist(), int(loan.tree["version"][0])))
                loan.release()
        assert stage.worker.finished
    assert len(found) == 2 * len(slabs)
    for (obs, origin, version), slab in zip(found, slabs * 2, strict=True):
        assert (obs == slab["obs"]).all() and origin == slab["origin"].tolist() and version == 7


def test_speed_is_that_of_the_recording_or_a_multiple(tmp_path: Path, recordings: dict[str, str]) -> None:
    folder = recordings["on"]
    folder = shutil.copytree(folder, tmp_path / "copy")
    (file,) = Path(folder).glob("*.npz")
    data = dict(np.load(file))
    data["time"] = 100.0 + 0.4 * np.arange(len(data["time"]))
    np.savez(file, **data)
    settings = {**PPO, "graph": playing(ON, str(folder), speed=4.0)}
    settings["mode"] = "local"
    with Stage("playback", settings, "mode=local") as stage:
        end, times = stage.ends["samples"], []
        start = time.monotonic()
        for number in range(4):
            end.credit(number, 0)
        while len(times) < 4 and time.monotonic() < start + 20:
            stage.poll()
            if (loan := end.get()) is not None:
                times.append(time.monotonic() - start)
                loan.release()
    assert all(at >= 0.1 * number - 0.01 for number, at in enumerate(times)) and len(times) == 4


def test_an_on_policy_trainer_takes_them_as_fresh(tmp_path: Path, recordings: dict[str, str]) -> None:
    folder = recordings["on"]
    run = srl.launch(**PPO, graph=playing(ON, folder), mode="inline", runs=tmp_path, quiet=True)
    assert run.result is not None and run.result.exit_code == 0, run.result.format()
    assert run.metrics()[-1]["env_steps"] > 500


def test_a_resume_goes_on_where_it_stopped(tmp_path: Path, recordings: dict[str, str]) -> None:
    folder = recordings["off"]
    ends = []
    for parts in ((400,), (200, 400)):
        for number, stop in enumerate(parts):
            how: dict[str, Any] = {"resume": run.folder} if number else {**FAKE, "graph": playing(OFF, folder), "mode": "inline"}  # noqa: F821
            run = srl.launch(**how, stop={"env_steps": stop}, runs=tmp_path / str(len(parts)), quiet=True)
        ends.append(run.metrics()[-1])
    assert ends[0]["update"] == ends[1]["update"]


@pytest.mark.parametrize(
    ("change", "code", "match"),
    [
        ({"folder": "nowhere"}, "E11", "there is no recording"),
        ({"speed": 1.0}, "E04", "must have no speed"),
    ],
)
def test_what_cannot_be_played_is_refused_before_the_start(
    change: dict[str, Any], code: str, match: str, recordings: dict[str, str]
) -> None:
    folder = recordings["off"]
    with raises(code, match=match):
        prepare(settings={**FAKE, "graph": playing(OFF, **{"folder": folder, **change}), "mode": "inline"})


def test_slabs_of_another_kind_are_refused_by_name(recordings: dict[str, str]) -> None:
    folder = recordings["off"]
    with raises("E11", match=r"must have `extra/log_prob`"):
        prepare(settings={**PPO, "graph": playing(ON, folder)})
    other = {**FAKE, "env": {**FAKE["env"], "obs": [9]}, "algorithm": {"use": WITNESS}}
    with raises("E11", match=r"must have `obs`, float32 \(6, 2, 1, 9\)"):
        prepare(settings={**other, "graph": playing(OFF, folder)})
    assert About.read(Path(folder)).groups == 2
