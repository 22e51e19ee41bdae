"""Replays in a graph: what `auto` decides, how shards are wired, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from srl.config.experiment import read_experiment
from srl.core.machine import Machine
from srl.core.registry import BUILTIN, OFF_POLICY
from srl.graph.check import check
from srl.graph.decide import decide
from srl.graph.placement import feeds, via_of
from srl.graph.spec import Graph
from srl.plan.derive import derive
from srl.plan.prepare import prepare
from tests.errors import raises

DESKTOP = Machine(cores=2, gpus=0, shared_free=1 << 34)
WITNESS = f"{Path(__file__).parents[1] / 'runs/witness.py'}:Witness"


def laid_out(machine: Machine = DESKTOP, **settings: Any) -> Graph:
    graph = decide(read_experiment({"env": "Pendulum-v1", "algorithm": "sac", **settings}), machine=machine).graph
    check(graph)
    return graph


def test_an_off_policy_algorithm_needs_no_more_than_its_name() -> None:
    graph = laid_out()
    actor, replay, trainer = graph.node("actor"), graph.node("replay"), graph.node("trainer")
    assert (actor.count, actor.args["envs"], actor.args["steps"]) == (1, 1, 8)
    assert replay.inside == "trainer" and trainer.args["slabs"] == 0
    assert (replay.args["size"], replay.args["batch"], replay.args["warmup"]) == (1_000_000, 256, 5_000)
    assert {stream.name: via_of(graph, stream) for stream in graph.streams if stream.kind == "sample"} == {
        "samples.main": "shm",
        "batches.main": "inproc",
        "feedback.main": "inproc",
    }
    assert graph.checkpoint.every == 5_000


def test_inline_the_next_step_comes_after_the_updates_of_the_last() -> None:
    for settings in ({"mode": "inline"}, {"layout": "inline"}):
        graph = laid_out(**settings, sampling={"envs": 3})
        assert graph.node("actor").args["steps"] == 1
        assert graph.node("replay").args["ahead"] == 3  # env steps of a slab


@pytest.mark.parametrize(("envs", "rate", "steps"), [(1, 1, 8), (1, 0.25, 32), (8, 0.2, 5), (16, 1, 4), (1, 0.01, 128)])
def test_a_round_of_slabs_lasts_for_several_updates(envs: int, rate: float, steps: int) -> None:
    graph = laid_out(sampling={"envs": envs}, replay={"updates_per_step": rate})
    assert graph.node("actor").args["steps"] == steps
    assert graph.node("replay").args["ahead"] * rate >= 32


def test_a_short_run_has_a_short_warmup() -> None:
    assert laid_out(stop={"env_steps": 20_000}).node("replay").args["warmup"] == 1_000


@pytest.mark.parametrize("layout", ["seed", "decoupled", "impala"])
def test_every_layout_adds_the_replays_that_its_algorithms_need(layout: str) -> None:
    graph = laid_out(layout=layout, sampling={"envs": 4})
    assert graph.node("replay").inside == "trainer"


def test_shards_have_actors_and_feedback_of_their_own() -> None:
    graph = laid_out(
        Machine(4, 0, 1 << 34), replay={"shards": 2, "size": 1000, "warmup": 301}, sampling={"envs": 3, "workers": 3}
    )
    assert feeds(graph, "samples.main") == {
        ("replay.0", 0): [("actor", 0), ("actor", 2)],
        ("replay.1", 0): [("actor", 1)],
    }
    assert graph.node("replay.1").ports["feedback"] == graph.node("trainer").ports["feedback:main/replay.1"]
    assert [graph.node(f"replay.{i}").args["size"] for i in (0, 1)] == [500, 500]
    assert graph.node("replay.0").args["warmup"] == 151


@pytest.mark.parametrize(
    ("settings", "actors", "envs"),
    [({}, 1, 1), ({"sampling": {"workers": 2}}, 2, 2), ({"replay": {"shards": 2}}, 2, 2), ({"sampling": {"envs": 6}}, 2, 6)],
)
@pytest.mark.parametrize("layout", ["auto", "inline"])
def test_there_is_an_env_for_every_actor_and_an_actor_for_every_shard(
    settings: dict[str, Any], actors: int, envs: int, layout: str
) -> None:
    graph = laid_out(layout=layout, **settings)
    actor = graph.node("actor")
    assert actor.count == (actors if layout == "auto" or actors == envs else 1)
    assert actor.count * actor.args["groups"] * actor.args["envs"] == envs


def test_policies_with_and_without_a_replay_learn_side_by_side() -> None:
    policies = {"a": {"algorithm": "sac"}, "b": {"algorithm": "ppo"}}
    experiment = {"env": "fake", "policies": policies, "agents": {"a*": "a", "b*": "b"}, "sampling": {"envs": 4, "steps": 16}}
    graph = decide(read_experiment(experiment), machine=DESKTOP).graph
    check(graph)
    assert [node.name for node in graph.nodes if node.worker == "replay"] == ["replay"]
    assert graph.node("trainer.a").args["slabs"] == 0 and graph.node("trainer.b").args["slabs"] == 2
    assert [graph.checkpoint.interval(from_replay=one) for one in (True, False)] == [5_000, 50]


def inspected(*words: str) -> Any:
    """What `prepare` does, but in this process, which has what env and policy import."""
    found = prepare(overrides=words, machine=DESKTOP, inspect=False)
    return found.fitted(derive(found.graph))


@pytest.mark.parametrize("name", sorted(OFF_POLICY & set(BUILTIN["algorithm"])))
def test_the_names_of_off_policy_algorithms_are_those_that_need_a_replay(name: str) -> None:
    env = "CartPole-v1" if name in ("dqn", "r2d2") else "Pendulum-v1"
    assert inspected(f"env={env}", f"algorithm={name}").derived.policies["main"].replay is not None


# what is refused ------------------------------------------------------------------------------------------------------


def test_bounds_in_which_it_would_stop_for_ever_are_refused() -> None:
    with raises("E04", match="would wait forever: its actors may be 10 env steps ahead, and a slab has 32") as caught:
        prepare(
            overrides=[
                "env=Pendulum-v1",
                "algorithm=sac",
                "sampling.envs=4",
                "sampling.workers=1",
                "sampling.steps=8",
                "replay.ahead=10",
            ]
        )
    assert ("try", "replay.ahead=32, or fewer sampling.envs or sampling.steps") in caught.value.facts


def test_a_replay_that_does_not_fit_into_memory_is_refused() -> None:
    small = Machine(cores=2, gpus=0, shared_free=30_000_000)
    with raises("E08", match=r"'replay' takes 0\.\d GB of memory, and 0\.\d GB are free") as caught:
        prepare(overrides=["env=Pendulum-v1", "algorithm=sac"], machine=small)
    size = dict(caught.value.facts)["try"].removeprefix("replay.size=")
    assert prepare(overrides=["env=Pendulum-v1", "algorithm=sac", f"replay.size={size}"], machine=small)


def test_a_replay_for_an_on_policy_algorithm_is_refused() -> None:
    with raises("E11", "replay", match="'replay' has no effect with algorithm ppo, which is on-policy"):
        laid_out(algorithm="ppo", replay={"size": 1000})
    with raises("E10", "layout", match="layout offpolicy requires an algorithm with a replay"):
        laid_out(algorithm="ppo", layout="offpolicy")


def test_an_algorithm_of_ones_own_is_laid_out_by_what_it_needs() -> None:
    words = ["env=fake", f"algorithm={WITNESS}"]
    assert inspected(*words).experiment.layout == "offpolicy"
    corridor = Path(__file__).parents[2] / "docs/examples"
    words = [f"env={corridor}/my_env.py:Corridor", f"algorithm={corridor}/a2c.py:A2C", "replay.size=1000"]
    with raises("E11", match="a2c.py:A2C, which is on-policy"):
        inspected(*words)


def test_a_graph_by_hand_that_gives_an_off_policy_algorithm_slabs_is_refused() -> None:
    from srl.graph.build import wiring_to_data

    on_policy = decide(read_experiment({"env": "Pendulum-v1", "algorithm": "ppo"}), machine=DESKTOP).graph
    settings = {"env": "Pendulum-v1", "algorithm": "sac", "graph": wiring_to_data(on_policy.nodes, on_policy.streams)}
    with raises("E10", match="algorithm sac trains from a replay, and trainer 'trainer' gets slabs of actors"):
        prepare(settings=settings, machine=DESKTOP)


def test_fewer_actors_than_shards_are_refused() -> None:
    with raises("E04", match="2 workers 'replay' have fewer actors than that"):
        laid_out(workers={"replay": {"count": 2, "inside": None}})


def test_a_warmup_longer_than_the_run_is_refused() -> None:
    with raises("E04", "replay.warmup", match="or the run ends before the first update"):
        laid_out(stop={"env_steps": 1_000}, replay={"warmup": 1_000})
