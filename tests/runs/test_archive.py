"""Versions of a policy that a run keeps for good."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import srl
from srl.core.errors import UserError
from srl.plan.prepare import prepare
from srl.store import checkpoint
from srl.streams.base import updates_of
from srl.workers.league import LeagueWorker

GAME: dict[str, Any] = {
    "env": {"use": "fake", "teams": {"red": 2, "blue": 1}, "length": [5, 9]},
    "policies": {"red": {"policy": {"hidden": [8]}, "algorithm": "ppo"}, "blue": {"policy": {"hidden": [8]}, "algorithm": "ppo"}},
    "agents": {"red*": "red", "blue*": "blue"},
    "sampling": {"envs": 4, "steps": 8},
    "evaluation": None,
    "seed": 5,
}
KEPT = {"every": 2, "keep": 1, "archive": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    done = srl.launch(**GAME, mode="inline", checkpoint=KEPT, stop={"updates": 9}, runs=runs, quiet=True)
    return Path(done.folder)


def archived(run: Path, policy: str) -> list[Path]:
    return checkpoint.checkpoints(run / "checkpoints" / policy / "archive")


@pytest.mark.parametrize("policy", ["red", "blue"])
def test_every_second_checkpoint_of_a_policy_outlives_the_rolling_ones(run: Path, policy: str) -> None:
    rolling = checkpoint.checkpoints(run / "checkpoints" / policy)
    assert len(rolling) == 1, "update 9"
    kept = [checkpoint.read(path) for path in archived(run, policy)]
    assert [list(one.groups) for one in kept] == [["policy"], ["policy"]], "updates 4 and 8, nothing of optimizer or workers"
    assert 0 < kept[0].step < kept[1].step < checkpoint.step_of(rolling[0])
    newest = checkpoint.read(rolling[0]).groups["policy"]
    for one in kept:
        assert one.groups["policy"].keys() == newest.keys()
        assert any((one.groups["policy"][name] != newest[name]).any() for name in newest)


def test_archived_and_initial_versions_are_found_by_name(run: Path) -> None:
    loaded = srl.load_run(run)
    first = archived(run, "red")[0]
    assert loaded.policy(first.name, name="red").checkpoint == first
    initial = loaded.policy("initial", name="red").checkpoint
    assert initial is not None and checkpoint.step_of(initial) == 0
    with pytest.raises(UserError, match=f"has no checkpoint 'step_1'(.|\n)*{first.name}"):
        loaded.policy("step_1", name="red")


def test_a_resume_from_an_earlier_checkpoint_leaves_the_archive_as_it_is(tmp_path: Path) -> None:
    kept = {"every": 2, "keep": 9, "archive": 2}
    first = srl.launch(**GAME, mode="inline", checkpoint=kept, stop={"updates": 6}, runs=tmp_path, quiet=True)
    for policy in ("red", "blue"):
        for path in checkpoint.checkpoints(Path(first.folder) / "checkpoints" / policy)[1:]:
            shutil.rmtree(path)  # on from update 2
    (only,) = archived(Path(first.folder), "red")
    written = (only / "manifest.json").read_bytes()
    srl.launch(resume=first.folder, overrides=["stop.updates=8"], quiet=True)
    again, later = archived(Path(first.folder), "red")
    assert again == only and checkpoint.step_of(later) > checkpoint.step_of(only)
    assert (only / "manifest.json").read_bytes() == written


def test_nothing_is_archived_unasked(tmp_path: Path) -> None:
    run = srl.launch(**GAME, mode="inline", checkpoint={"every": 2}, stop={"updates": 4}, runs=tmp_path, quiet=True)
    assert archived(Path(run.folder), "red") == []


@pytest.mark.parametrize(
    "name", ["hide_and_seek", "hide_and_seek_shared", "hide_and_seek_2v2", "hide_and_seek_full", "hide_and_seek_harder"]
)
def test_hide_and_seek_keeps_ten_to_twenty_versions_of_a_run(name: str) -> None:
    graph = prepare(name, inspect=False).graph
    trainer = next(node for node in graph.nodes if node.worker == "trainer")
    actor = graph.node("actor")
    updates = graph.stop.env_steps / (trainer.args["slabs"] * actor.args["envs"] * actor.args["steps"])  # type: ignore[operator]
    assert 10 <= updates // (graph.checkpoint.every * graph.checkpoint.archive) <= 20


def test_past_opponents_of_a_resumed_run_are_the_archived_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opponents = {"choose": "uniform", "keep_every": 3}
    first = srl.launch(
        **GAME, opponents=opponents, layout="inline", checkpoint=KEPT, stop={"updates": 9}, runs=tmp_path, quiet=True
    )
    leagues: list[Any] = []
    make = LeagueWorker.__init__

    def seen(self: LeagueWorker, *args: Any) -> None:
        make(self, *args)
        leagues.append(self)

    monkeypatch.setattr(LeagueWorker, "__init__", seen)
    srl.launch(resume=first.folder, overrides=["stop.updates=12", "mode=inline"], quiet=True)
    (league,) = leagues
    expected = [0, 4, 8, 9, 12]  # initial, archived, and then every third update
    assert [updates_of(number) for number in league.kept("red")] == expected
    assert [updates_of(number) for number in league.kept("blue")] == expected
