"""Several trainers of one policy in a graph: how batches, replays and actors are divided, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from srl.config.experiment import read_experiment
from srl.core.machine import Machine
from srl.graph.build import graph_from_yaml, graph_to_yaml
from srl.graph.check import check, check_resources
from srl.graph.decide import decide
from srl.graph.hosts import dials, sockets_lines
from srl.graph.placement import device_at, feeds, via_of, workers_by_process
from srl.graph.show import as_mermaid, as_text
from srl.graph.spec import Graph
from srl.plan.lines import plan_lines
from tests.errors import raises

DESKTOP = Machine(cores=2, gpus=0, shared_free=1 << 34)
TWO: dict[str, Any] = {"trainer": {"count": 2}}


def laid_out(machine: Machine = DESKTOP, **settings: Any) -> Graph:
    base: dict[str, Any] = {"env": "CartPole-v1", "algorithm": "ppo", "workers": TWO}
    graph = decide(read_experiment(base | settings), machine=machine).graph
    check(graph)
    return graph


def off_policy(**settings: Any) -> Graph:
    return laid_out(env="Pendulum-v1", algorithm="sac", **settings)


def test_each_trainer_is_fed_by_actors_of_its_own() -> None:
    graph = laid_out(sampling={"envs": 32, "workers": 4})
    assert graph.node("trainer").count == 2 and graph.node("trainer").args["slabs"] == 4
    fed = feeds(graph, "samples.main")
    assert fed["trainer", 0] == [("actor", 0), ("actor", 2)] and fed["trainer", 1] == [("actor", 1), ("actor", 3)]


def test_as_many_actors_are_chosen_as_the_trainers_need() -> None:
    big = Machine(cores=7, gpus=0, shared_free=1 << 34)
    assert laid_out(big, sampling={"envs": 48}).node("actor").count == 8
    assert laid_out(Machine(cores=1, gpus=0, shared_free=0), layout="impala").node("actor").count == 2


def test_each_trainer_has_an_actor_inside_where_they_take_turns() -> None:
    graph = laid_out(layout="inline", sampling={"envs": 32}, evaluation={"every": 1000})
    assert [len(workers) for workers in workers_by_process(graph).values()] == [3, 3, 1]  # the evaluator is apart
    assert {via_of(graph, stream) for stream in graph.streams if stream.kind != "param"} == {"inproc"}


def test_each_trainer_has_a_replay_inside_and_half_of_the_batch() -> None:
    graph = off_policy()
    replay, trainer = graph.node("replay"), graph.node("trainer")
    assert (replay.count, replay.inside, replay.args["batch"], replay.args["size"]) == (2, "trainer", 128, 1_000_000)
    assert (graph.node("actor").count, graph.node("actor").args["envs"], trainer.threads) == (2, 1, 1)
    assert feeds(graph, "batches.main") == {("trainer", 0): [("replay", 0)], ("trainer", 1): [("replay", 1)]}
    assert feeds(graph, "feedback.main") == {("replay", 0): [("trainer", 0)], ("replay", 1): [("trainer", 1)]}
    assert {via_of(graph, graph.stream(f"{name}.main")) for name in ("batches", "feedback")} == {"inproc"}
    assert via_of(graph, graph.stream("samples.main")) == "shm"


def test_each_trainer_may_have_several_replays() -> None:
    graph = off_policy(replay={"shards": 2})
    fed = feeds(graph, "batches.main")
    assert fed["trainer", 1] == [("replay.0", 1), ("replay.1", 1)]
    assert graph.node("replay.1").args["size"] == 500_000 and graph.node("actor").count * graph.node("actor").args["envs"] == 4


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"mode": "inline"}, "E10", "mode=inline has one process"),
    ({"layout": "inline", "sampling": {"envs": 8, "steps": 16, "workers": 4}}, "E04", "one actor for each of 2 trainers"),
    ({"sampling": {"envs": 32, "workers": 1}}, "E04", "sampling.workers=2"),
    ({"sampling": {"envs": 33, "workers": 3}}, "E04", "sampling.workers=4"),
    ({"algorithm": "dqn", "replay": {"batch": 255}}, "E04", "replay.batch=254 or replay.batch=256"),
    ({"algorithm": "dqn", "workers": {**TWO, "replay": {"count": 1, "inside": None}}}, "E04", "workers.replay.count=2"),
    ({"workers": {"trainer": {"count": 2, "slabs": 3}}}, "E04", "slabs=2 or slabs=4"),
    ({"workers": {"trainer": {"count": 2, "learner": "tests.graph.test_graph_ranks:Alone"}}}, "E10", "learner=single"),
]


class Alone:
    """A learner that knows nothing of others."""


@pytest.mark.parametrize(("settings", "code", "fact"), REFUSED, ids=[fact for *_, fact in REFUSED])
def test_what_cannot_be_divided_is_refused(settings: dict[str, Any], code: str, fact: str) -> None:
    with raises(code) as caught:
        laid_out(**settings)
    assert fact in str(caught.value) and caught.value.exit_code == 2


def test_the_plan_says_what_each_trainer_trains() -> None:
    graph = laid_out(sampling={"envs": 32, "steps": 32}, algorithm={"use": "ppo", "minibatch": 256, "epochs": 10})
    lines = dict(plan_lines(graph, DESKTOP))
    assert lines["batch"] == "1 batch = 32 envs x 32 steps = 1,024 steps = 2 trainers x 512 = 4 minibatches x 10 epochs"
    assert "trainer x 2: batches of 2 slabs, staleness at most 1, each on its part of a batch, on cpu" in lines["workers"]


def test_trainers_on_gpus_have_one_each() -> None:
    graph = laid_out(workers={"trainer": {"count": 2, "device": "cuda"}})
    check_resources(graph, Machine(cores=4, gpus=2, shared_free=1 << 34))
    with raises("E08", match="2 workers 'trainer' on cuda need a GPU each, but this machine has 1 GPU"):
        check_resources(graph, Machine(cores=4, gpus=1, shared_free=1 << 34))
    with raises("E08", match="'trainer' needs device cuda, but this machine has no GPU"):
        check_resources(graph, Machine(cores=4, gpus=0, shared_free=1 << 34))


def spread(count: int = 2, hosts: int = 2, **settings: Any) -> Graph:
    """Trainers on a group of hosts, each with an actor inside."""
    placed = {"launcher": "loopback", "hosts": {"far": {"count": hosts, "gpus": 2}}, "layout": "inline"}
    trainer = {"count": count, "hosts": "far", **settings.pop("trainer", {})}
    return laid_out(**placed, workers={"trainer": trainer}, sampling={"envs": 2 * count}, **settings)


def test_a_stream_joins_trainers_on_several_hosts_and_only_these() -> None:
    work = spread()
    assert work.node("trainer").ports["sums"] == "sums.main" and via_of(work, work.stream("sums.main")) == "zmq"
    assert graph_from_yaml(graph_to_yaml(work)) == work
    for alone in (spread(hosts=1), spread(count=1), laid_out()):
        assert "sums" not in alone.node("trainer").ports and [one for one in alone.streams if one.kind == "sum"] == []


def test_people_see_what_joins_the_trainers() -> None:
    work = spread(count=3, hosts=3)
    assert "  sums.main        sum     zmq     trainer x 3 <-> trainer x 3" in as_text(work)
    assert "  trainer <-->|sums.main| trainer" in as_mermaid(work).splitlines()
    assert sockets_lines(work).splitlines()[-1] == (
        "sums.main: trainer/1-2 connect to trainer/0-1 at far/0, far/1, any free ports, encrypted"
    )
    assert dials(work) == {"far/1": {"far/0"}, "far/2": {"far/0", "far/1"}}


def test_a_stream_of_sums_cannot_use_shared_memory() -> None:
    work = spread()
    streams = tuple(replace(one, via="shm") if one.kind == "sum" else one for one in work.streams)
    with raises("E10", "graph.streams.sums.main.via", match="cannot use shm"):
        check(replace(work, streams=streams))


def test_each_trainer_has_a_gpu_of_its_own_on_its_host() -> None:
    work = spread(count=3, trainer={"device": "cuda"})
    assert [device_at(work, work.node("trainer"), index) for index in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert "on cuda:0 to cuda:1" in dict(plan_lines(work, DESKTOP))["workers"]
    with raises("E08", "graph.nodes.trainer.device", match="needs device cuda:2"):
        spread(count=5, trainer={"device": "cuda"})
