"""The viewer: shows the newest parameters, only while someone watches, within its part of a core. A run continues without it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from stage import Stage

import srl
from srl.control.controller import DRAIN, Controller
from srl.core.errors import UserError
from srl.core.machine import usable_cores
from srl.core.spec import zeros
from srl.core.tree import map_tree
from srl.plan.prepare import prepare
from srl.show.base import Facts, Show
from srl.store.lines import read_lines
from srl.store.run_folder import RunFolder
from srl.streams.base import version
from srl.workers import modest
from srl.workers import viewer as module
from tests.waiting import until

RUN: dict[str, Any] = {
    "env": "CartPole-v1",
    "algorithm": {"use": "ppo", "epochs": 2, "minibatch": 256},
    "sampling": {"envs": 8, "steps": 32, "workers": 1},
    "stop": {"env_steps": 4_000},
}


class Calm(CartPoleEnv):
    """For at most 20 steps, mostly asleep: a viewer, which runs at the lowest priority, finds a free core."""

    def reset(self, **how: Any) -> Any:
        self._left = 20
        return super().reset(**how)

    def step(self, action: Any) -> Any:
        time.sleep(0.001)
        self._left -= 1
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, self._left <= 0, info


class Eyes(Show):
    """Sees everything."""

    address = "here"
    wanted = True

    def __init__(self) -> None:
        self.seen: list[tuple[Any, dict[str, Any]]] = []
        self.over: list[dict[str, Any]] = []
        self.costs = 0.0
        """Processor seconds of a picture."""

    def picture(self, frame: Any, facts: Facts) -> None:
        self.seen.append((frame, facts.plain()))
        until_used = time.process_time() + self.costs
        while time.process_time() < until_used:
            pass

    def ended(self, facts: Facts) -> None:
        self.over.append(facts.plain())


def rest(stage: Stage) -> None:
    """As the loop of a process of its own would."""
    threading.Event().wait(max(0.0, stage.worker._viewing.wake_at - time.monotonic()))


@pytest.fixture
def eyes(monkeypatch: pytest.MonkeyPatch) -> Eyes:
    shown = Eyes()
    monkeypatch.setattr(module, "open_show", lambda *_, **__: shown)
    return shown


def weights(stage: Stage, steps: int, like: Mapping[str, Any] | None = None) -> dict[str, Any]:
    params = map_tree(lambda leaf: leaf + 0.01, zeros(stage.derived.policies["main"].params))
    return {"params": params, "env_steps": np.array([steps])}


def stage(**viewer: Any) -> Stage:
    return Stage("viewer", RUN | {"viewer": {"fps": 1000, "share": 1.0, "busy_share": 0.5, **viewer}})


def test_it_plays_the_newest_version_and_says_which(eyes: Eyes) -> None:
    with stage() as here:
        assert len(eyes.seen) == 1 and here.worker.address == "here"  # an env without pictures is seen at the start
        here.poll()
        assert len(eyes.seen) == 1  # no weights yet
        here.ends["params:main"].publish(version(0, 3), weights(here, 1200))
        until(lambda: (here.poll(), len(eyes.over) >= 2)[1])
        assert {facts["update"] for _, facts in eyes.seen[1:]} == {3}
        here.ends["params:main"].publish(version(0, 9), weights(here, 5000))
        until(lambda: (here.poll(), eyes.seen[-1][1]["update"] == 9)[1])
        assert eyes.seen[-1][1]["env_steps"] == 5000


def test_facts_follow_the_episode(eyes: Eyes) -> None:
    with stage() as here:
        here.ends["params:main"].publish(version(0, 1), weights(here, 0))
        until(lambda: (here.poll(), len(eyes.over) >= 3)[1])
    for facts in eyes.over:  # CartPole gives 1 a step
        assert facts["returned"][""] == facts["step"] == facts["last"][""] > 5
    assert [facts["episode"] for facts in eyes.over[:3]] == [1, 2, 3]
    steps = [facts["step"] for _, facts in eyes.seen[1:] if facts["episode"] == 2]
    assert steps == sorted(steps) and steps[0] == 0
    assert len({frame.tobytes() for frame, _ in eyes.seen}) > 10


def test_nothing_is_played_while_nobody_looks(eyes: Eyes) -> None:
    eyes.wanted = False
    with stage() as here:
        here.ends["params:main"].publish(version(0, 1), weights(here, 0))
        before, end = time.process_time(), time.monotonic() + 0.5
        while time.monotonic() < end:
            here.poll()
            rest(here)
        assert len(eyes.seen) == 1 and time.process_time() - before < 0.05
        eyes.wanted = True
        until(lambda: (here.poll(), len(eyes.seen) > 1)[1])


def test_between_two_episodes_the_policy_learns_for_so_long(eyes: Eyes) -> None:
    with stage(every=1000) as here:
        here.ends["params:main"].publish(version(0, 1), weights(here, 100))
        until(lambda: (here.poll(), len(eyes.over) == 1)[1])
        for number, steps in ((2, 600), (3, 1099)):
            here.ends["params:main"].publish(version(0, number), weights(here, steps))
            until(lambda: (here.poll(), here.worker._viewing.facts.env_steps == steps)[1])  # noqa: B023
            assert len(eyes.over) == 1
        here.ends["params:main"].publish(version(0, 4), weights(here, 1100))
        until(lambda: (here.poll(), len(eyes.over) == 2)[1])


def test_it_takes_little_of_a_core_that_others_want(eyes: Eyes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modest, "_SPAN", 0.001)
    monkeypatch.setattr(modest, "_ALONE", 2.0)  # as if others always did
    with stage(busy_share=0.01) as here:
        here.ends["params:main"].publish(version(0, 1), weights(here, 0))
        until(lambda: (here.poll(), here.worker._viewing.share == 0.01 * usable_cores())[1])
        monkeypatch.setattr(modest, "_ALONE", 0.0)
        until(lambda: (here.poll(), here.worker._viewing.share == 1.0)[1])


@pytest.mark.parametrize("share", [0.1])
def test_it_uses_no_more_than_its_part_of_a_core(eyes: Eyes, share: float) -> None:
    eyes.costs = 0.01  # without a bound: 0.5 cores at 50 pictures a second
    with stage(share=share, fps=50) as here:
        here.ends["params:main"].publish(version(0, 1), weights(here, 0))
        until(lambda: (here.poll(), len(eyes.seen) > 3)[1])
        before, begun = time.process_time(), time.monotonic()
        while time.monotonic() < begun + 1.5:
            here.poll()
            rest(here)
        used = (time.process_time() - before) / (time.monotonic() - begun)
        assert len(eyes.seen) > 5
        assert used < share + share / 1.5 + 0.04  # what was saved up before, and this loop


def test_an_env_without_pictures_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the env cannot be shown"):
        srl.launch(**RUN | {"env": "fake"}, viewer={"show": "page"}, runs=tmp_path, quiet=True)


@pytest.mark.parametrize("every_step", [False, True])
def test_a_film_has_every_step_and_a_page_those_it_can_afford(every_step: bool, eyes: Eyes) -> None:
    eyes.every_step, eyes.costs = every_step, 0.02
    with stage(share=0.05, fps=200) as here:
        here.ends["params:main"].publish(version(0, 1), weights(here, 0))
        until(lambda: (here.poll(), rest(here), len(eyes.over) >= 1)[2])
    steps = [facts["step"] for _, facts in eyes.seen[1:] if facts["episode"] == 1]
    assert steps[-1] == eyes.over[0]["step"]
    assert (steps == list(range(1, steps[-1] + 1))) == every_step


@pytest.mark.parametrize("mode", ["inline", "local"])
def test_a_run_with_films(mode: str, tmp_path: Path) -> None:
    viewer = {"show": "film", "every": 1000, "fps": 1000, "share": 1.0, "busy_share": 1.0}
    run = srl.launch(
        wait=False, **RUN | {"env": f"{__name__}:Calm", "stop": {"seconds": 100}}, mode=mode, viewer=viewer, runs=tmp_path
    )
    until(lambda: len([path for path in (run.folder / "videos").iterdir() if path.name.startswith("view_")]) >= 1)
    assert run.stop().finish(60).kind == "done"


def test_films_of_every_episode_are_refused() -> None:
    with pytest.raises(UserError, match=r"'viewer\.every' must be at least 1 with show: film"):
        prepare(settings=RUN | {"viewer": {"show": "film"}})


def test_only_what_nobody_waits_for_can_be_left() -> None:
    with pytest.raises(UserError, match="'trainer' cannot be left when it fails"):
        prepare(settings=RUN, overrides=["workers.trainer.on_failure=leave"])


@pytest.mark.parametrize("kind", ["viewer", pytest.param("evaluator", marks=pytest.mark.long)])
def test_a_run_goes_on_without_a_viewer_that_was_killed(kind: str, tmp_path: Path) -> None:
    overrides = ["mode=local", "stop=null", "stop.seconds=100", "viewer.show=page", "evaluation.every=1000"]
    prepared = prepare(settings=RUN, overrides=[*overrides, "workers.evaluator.on_failure=leave"])
    folder = RunFolder.create(tmp_path, "viewer", 1)
    controller = Controller(prepared.graph, folder=folder, derived=prepared.derived)
    seen: dict[str, Any] = {}

    def disturb() -> None:
        try:
            until(lambda: controller.totals.total("updates") >= 3)
            address = folder.read_status()["viewer"]
            with urllib.request.urlopen(address + "state", timeout=10) as answer:
                seen["facts"] = json.load(answer)
            os.kill(controller._backend.processes[f"{kind}/0"], signal.SIGKILL)
            until(lambda: any(event["event"] == "died" for event in read_lines(folder.events)))
            before = controller.totals.total("updates")
            until(lambda: controller.totals.total("updates") > before + 3)
        finally:
            controller.stop()

    thread = threading.Thread(target=disturb)
    thread.start()
    result = controller.run()
    thread.join()
    assert result.kind == "done" and not result.failures, result.format()
    assert seen["facts"]["experiment"] == "CartPole-v1"
    assert "viewer" not in folder.read_status()
    notes = [event["text"] for event in read_lines(folder.events) if event["event"] == "note"]
    assert any(f"{kind}/0 died (signal 9): the run continues without it" in note for note in notes)
    assert all(ledger.balanced for ledger in controller.totals.ledgers())


def test_the_end_of_a_run_does_not_wait_for_a_viewer_that_gets_no_processor_time(tmp_path: Path) -> None:
    prepared = prepare(settings=RUN, overrides=["mode=local", "stop=null", "stop.seconds=100", "viewer.show=page"])
    controller = Controller(prepared.graph, folder=RunFolder.create(tmp_path, "viewer", 1), derived=prepared.derived)
    took: list[float] = []

    def disturb() -> None:
        try:
            until(lambda: controller.totals.total("updates") >= 3)
            os.kill(controller._backend.processes["viewer/0"], signal.SIGSTOP)
        finally:
            took.append(time.monotonic())
            controller.stop()

    thread = threading.Thread(target=disturb)
    thread.start()
    result = controller.run()
    thread.join()
    assert result.kind == "done" and not result.failures, result.format()
    assert time.monotonic() - took[0] < DRAIN - 1
    assert all(ledger.balanced for ledger in controller.totals.ledgers())


@pytest.mark.parametrize("layout", ["inline", "impala", "seed", "decoupled"])
def test_every_layout_has_a_place_for_it(layout: str) -> None:
    policies = {name: {"algorithm": "ppo"} for name in ("hider", "seeker")}
    settings = {"env": "hide_and_seek", "policies": policies, "agents": {"hider*": "hider", "seeker*": "seeker"}}
    graph = prepare(settings=settings, overrides=[f"layout={layout}", "viewer=true"], inspect=False).graph
    viewer = graph.node("viewer")
    assert viewer.ports == {"params:hider": "params.hider", "params:seeker": "params.seeker"}
    assert viewer.on_failure == ("stop" if layout == "inline" else "leave")
    assert viewer.args["share"] == (0.015 if layout == "inline" else 0.25)
    off = prepare(settings=settings, overrides=[f"layout={layout}", "viewer=false"], inspect=False).graph
    assert "viewer" not in [node.name for node in off.nodes]
