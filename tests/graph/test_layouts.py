"""Layouts: what is wired and placed, and what `auto` decides."""

import pytest

from srl.config.experiment import Experiment, read_experiment
from srl.core.machine import Machine
from srl.core.registry import REGISTRIES
from srl.graph.build import graph_from_yaml, graph_to_yaml
from srl.graph.check import check
from srl.graph.decide import decide
from srl.graph.placement import owner, via_of
from tests.errors import raises

DESKTOP = Machine(cores=4, gpus=0, shared_free=1 << 34)
GPU = Machine(cores=8, gpus=1, shared_free=1 << 34)


OFF_POLICY = {"offpolicy": "dqn", "spreeze": "sac"}


def experiment(**settings) -> Experiment:
    algorithm = OFF_POLICY.get(settings.get("layout"), "ppo")
    base = {"env": "CartPole-v1", "algorithm": algorithm, "sampling": {"envs": 64, "steps": 32}, "evaluation": {}}
    return read_experiment(base | settings)


def two_policies(**settings) -> Experiment:
    algorithm = OFF_POLICY.get(settings.get("layout"), "ppo")
    policies = {
        "hider": {"policy": "actor_critic", "algorithm": algorithm},
        "seeker": {"policy": "actor_critic", "algorithm": algorithm},
        "crowd": {"policy": "my.mod:Scripted"},
    }
    base = {"env": "fake", "policies": policies, "agents": {"h*": "hider", "s*": "seeker", "*": "crowd"}}
    return read_experiment(base | settings)


@pytest.mark.parametrize("layout", REGISTRIES["layout"].names())
@pytest.mark.parametrize("make", [experiment, two_policies])
def test_every_layout_is_sound_and_equal_to_its_yaml(layout, make):
    graph = decide(make(layout=layout), machine=DESKTOP).graph
    check(graph)
    assert graph_from_yaml(graph_to_yaml(graph)) == graph


@pytest.mark.parametrize("layout", REGISTRIES["layout"].names())
def test_what_was_decided_decides_the_same_again(layout):
    first = decide(experiment(layout=layout), machine=DESKTOP)
    again = decide(first.experiment, machine=Machine(cores=1, gpus=0, shared_free=0))
    assert again.graph == first.graph


def test_inline_is_one_process_strictly_on_policy():
    graph = decide(experiment(layout="inline"), machine=DESKTOP).graph
    assert {owner(graph, node, index) for node in graph.nodes for index in range(node.count)} == {("trainer", 0)}
    assert {via_of(graph, stream) for stream in graph.streams} == {"inproc"}
    assert graph.node("trainer").args["staleness"] == 0


def test_impala_acts_inside_its_actors():
    graph = decide(experiment(layout="impala"), machine=DESKTOP).graph
    assert graph.node("policy").count == graph.node("actor").count == 4
    assert owner(graph, graph.node("policy"), 3) == ("actor", 3)
    assert {stream.name: via_of(graph, stream) for stream in graph.streams} == {
        "ask.main": "inproc",
        "samples.main": "shm",
        "params.main": "shm",
    }


@pytest.mark.parametrize("layout", ["seed", "decoupled"])
def test_remote_inference_has_two_groups_to_hide_its_latency(layout):
    graph = decide(experiment(layout=layout), machine=DESKTOP).graph
    assert graph.node("actor").args["groups"] == 2
    assert all(owner(graph, node, 0) == (node.name, 0) for node in graph.nodes)
    assert via_of(graph, graph.stream("ask.main")) == "shm"


@pytest.mark.parametrize("layout", REGISTRIES["layout"].names())
def test_a_batch_is_all_envs_times_all_steps(layout):
    graph = decide(experiment(layout=layout), machine=DESKTOP).graph
    actor, trainer = graph.node("actor"), graph.node("trainer")
    assert actor.count * actor.args["groups"] * actor.args["envs"] == 64
    assert trainer.args["slabs"] * actor.args["envs"] == (0 if layout in OFF_POLICY else 64)


def test_envs_that_do_not_divide_name_the_two_nearest_sizes():
    with raises("E04", "sampling.envs") as caught:
        decide(experiment(sampling={"envs": 50, "workers": 4, "groups": 2}), machine=DESKTOP)
    assert dict(caught.value.facts)["try"] == "sampling.envs=48 or sampling.envs=56"


def test_auto_takes_no_more_actors_than_divide_the_envs():
    assert decide(experiment(sampling={"envs": 9}), machine=DESKTOP).graph.node("actor").count == 3


def test_a_policy_that_does_not_learn_is_asked_and_gives_no_samples():
    graph = decide(two_policies(layout="impala"), machine=DESKTOP).graph
    assert "infer:crowd" in graph.node("actor").ports
    assert "samples:crowd" not in graph.node("actor").ports
    assert "params" not in graph.node("policy.crowd").ports
    assert [node.name for node in graph.nodes if node.worker == "trainer"] == ["trainer.hider", "trainer.seeker"]


def test_streams_take_their_settings_by_name_before_kind():
    streams = {"sample": {"via": "zmq"}, "samples.main": {"compress": "lz4"}, "param": {"via": "zmq"}}
    graph = decide(experiment(layout="impala", streams=streams), machine=DESKTOP).graph
    assert (graph.stream("samples.main").via, graph.stream("samples.main").compress) == ("auto", "lz4")
    assert graph.stream("params.main").via == "zmq"
    assert graph.stream("ask.main").via == "auto"


def test_settings_of_an_unknown_stream_are_refused():
    with raises("E07", match=r"no stream is called 'samples\.man'"):
        decide(experiment(streams={"samples.man": {"via": "zmq"}}), machine=DESKTOP)


def test_an_unknown_layout_names_the_nearest():
    with raises("E07") as caught:
        decide(experiment(layout="impla"), machine=DESKTOP)
    assert ("did you mean", "impala?") in caught.value.facts


@pytest.mark.parametrize(
    ("settings", "machine", "chosen", "reason"),
    [
        ({}, DESKTOP, "impala", "4 usable cores and no GPU"),
        ({}, Machine(1, 0, 1 << 30), "inline", "one usable core"),
        ({"mode": "inline"}, DESKTOP, "inline", "mode=inline"),
        ({}, GPU, "impala", "the GPU is for the trainer"),
        ({"device": "cpu"}, GPU, "impala", "no GPU"),
    ],
)
def test_auto_chooses_for_the_machine_and_says_why(settings, machine, chosen, reason):
    done = decide(experiment(**settings), machine=machine)
    assert done.experiment.layout == chosen
    assert reason in done.why[0]


def test_settings_of_workers_reach_their_nodes_by_name_or_kind():
    settings = {"count": 3, "max_batch": 16, "min_batch": 8, "max_wait": 0.01, "on_failure": "restart"}
    node = decide(experiment(layout="decoupled", workers={"policy": settings}), machine=DESKTOP).graph.node("policy")
    assert (node.count, node.on_failure) == (3, "restart")
    assert node.args == {"policy": "main", "max_batch": 16, "min_batch": 8, "max_wait": 0.01}
    workers = {"policy": {"threads": 2}, "trainer.seeker": {"publish_every": 2}}
    graph = decide(two_policies(workers=workers, staleness={"max": 2}), machine=DESKTOP).graph
    assert [graph.node(f"policy.{name}").threads for name in ("hider", "seeker", "crowd")] == [2, 2, 2]
    assert "publish_every" not in graph.node("trainer.hider").args and graph.node("trainer.seeker").args["publish_every"] == 2


@pytest.mark.parametrize(
    ("workers", "code", "path", "fact"),
    [
        ({"trainr": {"threads": 2}}, "E02", "workers.trainr", "did you mean: trainer?"),
        ({"trainer": {"thread": 2}}, "E02", "workers.trainer.thread", "has no setting 'thread'"),
        ({"trainer": {"threads": 0}}, "E03", "workers.trainer.threads", "at least 1"),
        ({"trainer": {"publish_every": 9}}, "E03", "workers.trainer.publish_every", "at most staleness + 1"),
        ({"buffer": {"size": 4}}, "E02", "workers.buffer", "workers.buffer.use=buffer"),
        ({"mine": {"use": "buffr"}}, "E07", None, "did you mean: buffer?"),
    ],
)
def test_settings_of_workers_that_are_not_there_are_refused(workers, code, path, fact):
    with raises(code) as caught:
        decide(experiment(layout="impala", workers=workers), machine=DESKTOP)
    assert fact in str(caught.value)
    assert path is None or ".".join(map(str, caught.value.path)) == path


def test_settings_of_an_evaluator_do_no_harm_in_a_run_without_one():
    done = decide(experiment(evaluation=None, workers={"evaluator": {"on_failure": "leave"}}), machine=DESKTOP)
    assert "evaluator" not in [node.worker for node in done.graph.nodes]
    assert "workers.evaluator has no effect: evaluation is null" in done.why
    there = decide(experiment(workers={"evaluator": {"on_failure": "leave"}}), machine=DESKTOP)
    assert there.graph.node("evaluator").on_failure == "leave" and not [line for line in there.why if "no effect" in line]


def test_a_worker_of_another_kind_joins_a_layout_by_its_ports():
    workers = {
        "buffer": {"use": "buffer", "size": 4, "ports": {"source": "samples.main", "sink": "kept"}},
        "trainer": {"ports": {"samples": "kept"}},
    }
    graph = decide(experiment(layout="impala", workers=workers), machine=DESKTOP).graph
    check(graph)
    assert graph.stream("kept").kind == "sample" and graph.node("trainer").ports["samples"] == "kept"
    assert graph_from_yaml(graph_to_yaml(graph)) == graph


def test_subscribers_of_another_kind_get_all_parameters_without_a_word():
    workers = {"second": {"use": "evaluator", "every": 7}}
    graph = decide(two_policies(workers=workers), machine=DESKTOP).graph
    assert graph.node("second").ports == {"params:hider": "params.hider", "params:seeker": "params.seeker"}


OPPONENTS = {
    "policies": {
        "hider": {"policy": "actor_critic", "algorithm": "ppo"},
        "seeker": {"policy": "actor_critic", "algorithm": "ppo"},
    },
    "agents": {"h*": "hider", "s*": "seeker"},
    "opponents": {},
}


@pytest.mark.parametrize("layout", REGISTRIES["layout"].names())
@pytest.mark.parametrize("more", [{}, OPPONENTS])
def test_a_node_inside_another_fails_and_restarts_as_its_host(layout, more):
    base = {"env": "CartPole-v1", "algorithm": "ppo", "sampling": {"envs": 8, "steps": 16}, "evaluation": {}, "layout": layout}
    if more:
        del base["algorithm"]
    if layout in OFF_POLICY:
        learning = {name: {"policy": "q_network", "algorithm": OFF_POLICY[layout]} for name in ("hider", "seeker")}
        more = {**more, "policies": learning} if more else {"algorithm": OFF_POLICY[layout]}
    kinds = {"actor": {"on_failure": "restart", "restarts": 7}, "trainer": {"on_failure": "restart", "restarts": 5}}
    graph = decide(read_experiment(base | more | {"workers": kinds}), machine=DESKTOP).graph
    inner = [node for node in graph.nodes if node.inside is not None]
    assert bool(inner) is (layout in ("impala", "inline", "offpolicy", "spreeze") or bool(more))
    for node in inner:
        host = graph.node(node.inside)
        assert (node.on_failure, node.restarts) == (host.on_failure, host.restarts), node.name
        assert node.on_failure == "restart"
