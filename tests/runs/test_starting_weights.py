"""Runs that start from the weights of another run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import srl
from srl.core.errors import UserError
from tests.errors import raises
from srl.plan.acting import zero_ask
from srl.plan.prepare import prepare
from srl.plan.acting import ready_policy
from srl.store import checkpoint
from srl.store.run_folder import RunFolder

SMALL: dict[str, Any] = {
    "env": "CartPole-v1",
    "algorithm": "ppo",
    "policy": {"hidden": [8]},
    "sampling": {"envs": 4, "steps": 8},
    "mode": "inline",
}
GAME: dict[str, Any] = {
    "env": {"use": "fake", "teams": {"red": 2, "blue": 1}, "length": [5, 9]},
    "policies": {"red": {"policy": {"hidden": [8]}, "algorithm": "ppo"}, "blue": {"policy": {"hidden": [8]}, "algorithm": "ppo"}},
    "agents": {"red*": "red", "blue*": "blue"},
    "sampling": {"envs": 4, "steps": 8},
    "mode": "inline",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    return Path(srl.launch(**SMALL, stop={"updates": 3}, runs=runs, quiet=True, seed=5).folder)


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("games")
    return Path(srl.launch(**GAME, stop={"updates": 2}, runs=runs, quiet=True, seed=5).folder)


def last(run: Path) -> Path:
    path = checkpoint.latest(run / "checkpoints")
    assert path is not None
    return path


def trained(path: Path) -> dict[str, Any]:
    return checkpoint.read(path).groups["policy"]


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in other)


@pytest.mark.parametrize("place", ["", "checkpoints", "checkpoints/step_*"])
def test_a_policy_starts_from_a_run_or_a_checkpoint_with_a_fresh_optimizer(run: Path, place: str) -> None:
    with srl.build(**SMALL, load=str(next(iter(run.glob(place))) if place else run), seed=6) as session:
        learner: Any = session.workers["trainer/0"].learner  # type: ignore[attr-defined]
        assert same(learner.params(), trained(last(run)))
        assert not any(np.any(array) for name, array in learner.state()[0]["optimizer"].items() if "step" not in name)
        acting: Any = session.workers["policy/0"]
        session.step()
        assert acting.version >= 0


def test_a_resumed_run_goes_on_from_its_own_checkpoint(run: Path, tmp_path: Path) -> None:
    first = srl.launch(**SMALL, load=str(run), stop={"updates": 2}, runs=tmp_path, quiet=True)
    before = trained(last(first.folder))
    assert not same(before, trained(last(run)))
    resumed = srl.launch(resume=first.folder, stop={"updates": 3}, quiet=True)
    assert resumed.folder == first.folder and checkpoint.read(last(resumed.folder)).state["updates"] == 3


def test_the_run_is_found_from_another_folder(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)
    second = srl.launch(**SMALL, load=run.name, stop={"updates": 1}, runs=tmp_path, quiet=True)
    assert second.graph.policies["main"].load == str(run)


def test_weights_that_do_not_fit_name_the_layer(run: Path, tmp_path: Path) -> None:
    with raises(
        "E09",
        match=r"error\[E09\]: the weights to load do not fit policy 'main': layer 'actor.layers.0.bias' is \(8,\) there",
    ):
        srl.launch(**{**SMALL, "policy": {"hidden": [16]}}, load=str(run), runs=tmp_path, quiet=True)
    with raises("E09", match="E09"):
        srl.build(**{**SMALL, "policy": {"hidden": [16]}}, load=str(run))


def test_a_policy_that_is_not_trained_plays_with_the_weights_it_is_given(game: Path, tmp_path: Path) -> None:
    frozen = {"policy": {"hidden": [8]}, "load": str(game)}
    settings = {**GAME, "policies": {"red": GAME["policies"]["red"], "blue": frozen}}
    with srl.build(**settings) as session:
        (blue,) = [
            worker for name, worker in session.workers.items() if name.startswith("policy") and worker.args.policy == "blue"
        ]
        info = session.derived.policies["blue"]
        ask = zero_ask(info.spec, info.memory)
        mine, theirs = blue.policy.act(ask), srl.load_run(game).policy(name="blue").acting.act(ask)  # type: ignore[attr-defined]
        np.testing.assert_array_equal(mine.extra["value"], theirs.extra["value"])
        assert np.any(mine.extra["value"])
        session.step(2)
    second = srl.launch(**settings, evaluation={"every": 1, "episodes": 2}, stop={"updates": 2}, runs=tmp_path, quiet=True)
    assert second.policy().info.name == "red"
    assert srl.load_run(second.folder).policy(name="blue").checkpoint is None
    assert "return/blue" in srl.load_run(second.folder).evaluate(episodes=2)


def test_a_run_without_that_policy_is_refused(game: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"policy 'main' cannot start from .* trained no policy of this name"):
        srl.build(**SMALL, load=str(game))
    with pytest.raises(UserError, match="does not exist"):
        srl.build(**SMALL, load=str(tmp_path / "gone"))


def test_a_policy_worker_computes_where_its_node_says() -> None:
    prepared = prepare("cartpole_memory", ["layout=seed", "evaluation=null"])
    [info] = prepared.derived.policies.values()
    policy: Any = ready_policy(info, prepared.graph.policies["main"], "meta")
    assert {tensor.device.type for tensor in policy.parameters()} == {"meta"} == {policy.device.type}
    assert ready_policy(info, prepared.graph.policies["main"]).device.type == "cpu"  # type: ignore[attr-defined]


def test_of_a_folder_of_runs_the_newest_with_weights_is_taken_before_this_run_has_a_folder(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    shutil.copytree(run, folder / "earlier")
    RunFolder.create(tmp_path, "small", 1).close()  # one that failed
    started = srl.launch(**SMALL, name="small", load=str(folder), runs=tmp_path, stop={"updates": 1}, quiet=True)
    assert started.folder.parent == folder
    assert yaml.safe_load((started.folder / "config.yaml").read_text())["load"] == str(folder / "earlier")


def test_fresh_layers_begin_anew_and_the_others_are_taken(run: Path) -> None:
    def params(**more: Any) -> dict[str, Any]:
        with srl.build(**SMALL, **more, seed=6) as session:
            learner: Any = session.workers["trainer/0"].learner  # type: ignore[attr-defined]
            return {name: np.array(one) for name, one in learner.params().items()}

    anew, loaded = params(), trained(last(run))
    mixed = params(load=str(run), fresh=["actor.*"])
    assert {name for name in mixed if name.startswith("actor.")} and not same(anew, loaded)
    for name, array in mixed.items():
        assert np.array_equal(array, (anew if name.startswith("actor.") else loaded)[name]), name


def test_layers_that_do_not_fit_can_begin_anew(run: Path) -> None:
    wider = {**SMALL, "env": {"use": "fake", "obs": [5], "length": [5, 9], "action": 2}}
    with raises("E09", match=r"or: fresh: \[actor.layers.0.weight, critic.layers.0.weight\]"):
        prepare(settings={**wider, "load": str(run)})
    with srl.build(**wider, load=str(run), fresh=["*.layers.0.*", "normalizer.*"]) as session:
        session.step()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"fresh": ["actor.*"]}, "policy 'main' has fresh layers, but loads nothing"),
        ({"load": "RUN", "fresh": ["*"]}, "all layers of policy 'main' are fresh: nothing is left to load"),
        ({"load": "RUN", "fresh": ["tower.*"]}, r"no layer of policy 'main' is called 'tower\.\*'"),
    ],
)
def test_fresh_layers_that_mean_nothing_are_refused(run: Path, more: dict[str, Any], says: str) -> None:
    given = {key: str(run) if value == "RUN" else value for key, value in more.items()}
    with raises("E10", match=says):
        prepare(settings={**SMALL, **given})


def test_a_policy_that_is_not_trained_takes_all_of_its_layers(game: Path) -> None:
    frozen = {"policy": {"hidden": [8]}, "load": str(game), "fresh": ["actor.*"]}
    with raises("E10", match="policy 'blue' has fresh layers, but nothing trains it"):
        srl.build(**{**GAME, "policies": {**GAME["policies"], "blue": frozen}})
