"""What `check` refuses: code, path and the deciding words."""

import copy
from pathlib import Path

import pytest

from srl.config.compose import compose
from srl.config.experiment import read_experiment
from srl.core.errors import SrlError
from srl.core.machine import Machine
from srl.graph.build import graph_from_data, graph_to_data
from srl.graph.check import check, check_resources, notes
from srl.graph.decide import decide
from srl.plan.check import check_memory, warnings
from srl.plan.derive import derive
from srl.plan.prepare import prepare
from tests.errors import raises

MACHINE = Machine(cores=2, gpus=0, shared_free=1 << 34)


def wired(layout="impala", **settings):
    base = {"env": "CartPole-v1", "algorithm": "ppo", "sampling": {"envs": 8, "steps": 16, "workers": 2}, "layout": layout}
    return decide(read_experiment(base | settings), machine=MACHINE).graph


def changed(change, layout="impala"):
    data = copy.deepcopy(graph_to_data(wired(layout)))
    change(data["nodes"], data["streams"])
    return graph_from_data(data)


def put(path, value):
    """A change at `nodes.actor.args.envs`."""

    def change(nodes, streams):
        root, *keys, last = path.split("/")
        here = {"nodes": nodes, "streams": streams}[root]
        for key in keys:
            here = here[key]
        if value is None:
            del here[last]
        else:
            here[last] = value

    return change


SECOND = {"worker": "trainer", "args": {"slabs": 2}, "ports": {"samples": "samples.main", "params": "params.main"}}
REFUSED = [
    (put("nodes/trainer/ports/smaples", "samples.main"), "E10", "nodes.trainer.ports.smaples", "did you mean: samples?"),
    (put("nodes/trainer/ports/samples", None), "E10", "nodes.trainer", "port 'samples' of 'trainer' is not connected"),
    (put("nodes/trainer/ports/samples", "ask.main"), "E10", "nodes.trainer.ports.samples", "a sample stream, not infer"),
    (put("nodes/trainer/ports/samples", "sample.main"), "E10", "nodes.trainer.ports.samples", "did you mean: samples.main?"),
    (put("nodes/actor/ports/infer:man", "ask.main"), "E10", "nodes.actor.ports.infer:man", "did you mean: main?"),
    (put("streams/spare", {"kind": "sample"}), "E10", "streams.spare", "not connected to any port"),
    (put("nodes/policy/inside", "actr"), "E10", "nodes.policy.inside", "did you mean: actor?"),
    (put("nodes/actor/inside", "policy"), "E10", None, "inside each other: actor in policy in actor"),
    (put("nodes/policy/count", 3), "E04", "nodes.policy.count", "expected: count: 2"),
    (put("nodes/policy/args/policy", "mian"), "E10", "nodes.policy.args.policy", "did you mean: main?"),
    (put("nodes/trainer/args/publish_every", 3), "E03", "nodes.trainer.args.publish_every", "at most staleness + 1 = 2, not 3"),
    (put("nodes/trainer/args", {"slabs": 3, "staleness": 0}), "E04", "nodes.trainer.args.slabs", "slabs: 2 or slabs: 4"),
    (put("streams/samples.main/via", "inproc"), "E10", "streams.samples.main.via", "actor/0, actor/1, trainer/0"),
    (put("nodes/other", SECOND), "E10", "streams.params.main", "2 publishers"),
    (put("nodes/trainer/args/slbas", 2), "E02", "nodes.trainer.args.slbas", "did you mean: slabs (int, default 1)?"),
    (put("nodes/trainer/args/threads", 2), "E02", "nodes.trainer.args.threads", "try: graph.nodes.trainer.threads=2"),
    (put("nodes/trainer/args/device", "cpu"), "E02", "nodes.trainer.args.device", "try: graph.nodes.trainer.device=cpu"),
    (put("nodes/policy/args/min_batch", 8), "E03", "nodes.policy.args.min_batch", "no effect while max_wait is 0"),
    (put("nodes/trainer/worker", "trainr"), "E07", None, "did you mean: trainer?"),
    (put("streams/params.main/route", "drop"), "E10", "streams.params.main.route", "only sample streams have a route"),
    (put("streams/samples.main/route", "drop"), "E10", "streams.samples.main", "'trainer' would wait forever"),
]


@pytest.mark.parametrize(("change", "code", "path", "fact"), REFUSED, ids=[fact for *_, fact in REFUSED])
def test_a_wrong_graph_is_refused_with_its_place(change, code, path, fact):
    with raises(code) as caught:
        check(changed(change))
    assert caught.value.exit_code == 2 and fact in str(caught.value)
    assert path is None or ".".join(map(str, caught.value.path)) == f"graph.{path}"


def relayed(nodes, streams):
    """A buffer between the actors and the trainer."""
    streams["raw"] = {"kind": "sample"}
    nodes["actor"]["ports"]["samples:main"] = "raw"
    nodes["buffer"] = {"worker": "buffer", "ports": {"source": "raw", "sink": "samples.main"}}


def test_a_trainer_behind_a_stream_that_drops_is_refused():
    def change(nodes, streams):
        relayed(nodes, streams)
        streams["raw"]["route"] = "drop"

    check(changed(relayed))
    with raises("E10", match="'buffer' would wait forever"):
        check(changed(change))


def test_actors_alone_may_drop_their_slabs():
    def change(nodes, streams):
        del nodes["trainer"], nodes["policy"]["ports"]["params"], streams["params.main"]
        streams["samples.main"]["route"] = "drop"

    check(changed(change))


def test_a_graph_without_nodes_is_refused():
    with raises("E10", match="has no nodes"):
        check(graph_from_data(graph_to_data(wired()) | {"nodes": {}, "streams": {}}))


def test_a_stream_needs_both_sides():
    def change(nodes, streams):
        del nodes["policy"]["ports"]["params"]

    with pytest.raises(SrlError) as caught:
        check(changed(change))
    assert caught.value.headline == "stream 'params.main' has no subscriber"
    assert "params of policy" in dict(caught.value.facts)["try"]


def test_a_server_inside_a_trainer_needs_its_clients_there():
    with pytest.raises(SrlError) as caught:
        check(changed(put("nodes/policy/inside", "trainer"), "seed"))
    assert caught.value.headline == ("stream 'ask.main' would be answered inside the process of trainer/0, between its updates")


def test_a_graph_by_hand_has_the_place_of_what_is_wrong(tmp_path):
    data = graph_to_data(wired())
    text = ["env: CartPole-v1", "algorithm: ppo", "graph:", "  streams:"]
    text += [f"    {name}: {{kind: {stream['kind']}}}" for name, stream in data["streams"].items()]
    text += ["  nodes:", "    actor:", "      worker: actor", "      ports:", "        infer: ask.mian"]
    file = tmp_path / "hand.yaml"
    file.write_text("\n".join(text))
    composed = compose(file)
    graph = decide(read_experiment(composed.data, composed.provenance), machine=MACHINE, where=composed.provenance).graph
    with raises("E10") as caught:
        check(graph)
    assert dict(caught.value.at(composed.provenance).facts)["from"].endswith("hand.yaml:12:9")


def test_more_threads_than_cores_are_refused():
    with raises("E08", match="needs 64 threads, but this machine has 2 usable cores") as caught:
        check_resources(wired(workers={"trainer": {"threads": 64}}), MACHINE)
    assert dict(caught.value.facts)["try"] == "workers.trainer.threads=2"


@pytest.mark.parametrize("device", ["tpu", "meta", "cuda0", "cuda:one", "cuda:2", ""])
def test_what_is_no_device_is_refused_with_those_that_are_there(device):
    there = "2 GPUs" if device.startswith("cuda") else "cpu, cuda:0, cuda:1"
    with raises("E08", match=f"needs device {device}, but this machine has {there}") as caught:
        check_resources(wired(device=device), Machine(cores=2, gpus=2, shared_free=1 << 34))
    assert dict(caught.value.facts)["try"] == "workers.trainer.device=cuda:1"
    with raises("E08", match="has no GPU"):
        check_resources(wired(device="cuda"), MACHINE)


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1"])
def test_a_device_that_is_there_is_not(device):
    check_resources(wired(device=device), Machine(cores=2, gpus=2, shared_free=1 << 34))


def test_a_trainer_has_the_threads_and_the_device_of_its_node():
    node = wired(workers={"trainer": {"threads": 2}}, device="cuda").node("trainer")
    assert (node.threads, node.device) == (2, "cuda")
    assert not {"threads", "device"} & set(node.args)


def test_more_shared_memory_than_free_is_refused_before_the_start():
    graph = wired()
    derived = derive(graph)
    assert check_memory(graph, derived, MACHINE) > 0
    with raises("E08", match="of shared memory"):
        check_memory(graph, derived, Machine(cores=2, gpus=0, shared_free=1000))


def test_a_run_without_an_end_is_worth_a_word():
    assert any("no stop condition" in note for note in notes(wired(), MACHINE))
    assert notes(wired(stop={"updates": 3}), MACHINE) == []


def test_a_transport_that_an_inline_run_does_not_use_is_noted():
    graph = wired(mode="inline", stop={"updates": 3}, streams={"samples.main": {"via": "shm"}, "param": {"via": "inproc"}})
    assert notes(graph, MACHINE) == [
        "stream 'samples.main': via: shm has no effect with mode=inline, where every stream is inproc"
    ]


@pytest.mark.parametrize(
    ("via", "noted"),
    [("auto", "stream 'samples.main': compress=lz4 has no effect over shm, only over zmq"), ("zmq", None)],
)
def test_compression_where_nothing_is_sent_is_worth_a_word(via, noted):
    graph = wired(stop={"updates": 3}, streams={"sample": {"compress": "lz4", "via": via}})
    assert notes(graph, MACHINE) == ([noted] if noted else [])


TEAMS = {"use": "fake", "teams": {"red": 1, "blue": 1}}


def game(blue, **more):
    data = {
        "env": TEAMS,
        "policies": {"red": {"policy": "actor_critic", "algorithm": "ppo"}, "blue": blue},
        "agents": {"red*": "red", "blue*": "blue"},
        "sampling": {"envs": 8, "steps": 16, "workers": 2},
    }
    graph = decide(read_experiment(data | more), machine=MACHINE).graph
    return warnings(graph, derive(graph))


def test_a_network_that_nothing_trains_and_nothing_loads_is_warned_of():
    assert game({"policy": "actor_critic"}) == [
        "policy 'blue' acts untrained, at its random weights: it has no algorithm, and loads nothing"
        " (give it policies.blue.load=RUN, or an algorithm)"
    ]


@pytest.mark.parametrize(
    ("blue", "more"),
    [
        ({"policy": "actor_critic", "load": "runs/other"}, {}),
        ({"policy": "actor_critic", "algorithm": "ppo"}, {}),
        ({"policy": "actor_critic", "algorithm": "ppo"}, {"opponents": {"groups": 1}, "evaluation": {"cross_play": True}}),
    ],
    ids=["loaded", "trained", "past versions"],
)
def test_weights_from_elsewhere_and_past_versions_are_not(blue, more):
    assert game(blue, **more) == []


def test_a_scripted_policy_has_no_weights_that_could_be_random():
    experiment = Path(__file__).parents[2] / "docs/examples/pennies.yaml"
    graph = prepare(experiment, machine=MACHINE, inspect=False).graph
    assert warnings(graph, derive(graph)) == []


def test_the_warning_stands_in_the_plan_of_a_dry_run():
    policies = {"red": {"policy": "actor_critic", "algorithm": "ppo"}, "blue": {"policy": "actor_critic"}}
    settings = {"env": TEAMS, "policies": policies, "agents": {"red*": "red", "blue*": "blue"}, "mode": "inline"}
    lines = prepare(settings=settings).lines()
    assert [text[:29] for label, text in lines if label == "warning"] == ["policy 'blue' acts untrained,"]
