"""What `check` refuses, word for word."""

import copy
from pathlib import Path

import pytest

from srl.config.compose import compose
from srl.config.experiment import read_experiment
from srl.core.errors import SrlError
from srl.core.machine import Machine
from srl.graph.build import graph_from_data, graph_to_data
from srl.graph.check import check, check_resources, notes
from srl.graph.layouts import plan
from srl.plan.check import check_memory, warnings
from srl.plan.derive import derive
from srl.plan.prepare import prepare
from tests.errors import raises

MACHINE = Machine(cores=2, gpus=0, shared_free=1 << 34)


def wired(layout="impala", **settings):
    base = {"env": "CartPole-v1", "algorithm": "ppo", "sampling": {"envs": 8, "steps": 16, "workers": 2}, "layout": layout}
    return plan(read_experiment(base | settings), machine=MACHINE).graph


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


REFUSED = [
    (
        put("nodes/trainer/ports/smaples", "samples.main"),
        "error[E10]: worker 'trainer' has no port 'smaples'\n  did you mean: samples?\n  ports: samples, params",
    ),
    (
        put("nodes/trainer/ports/samples", None),
        "error[E10]: port 'samples' of 'trainer' is joined to no stream\n"
        "  expected: ports: {samples: a stream of kind sample}\n"
        "  streams: samples.main",
    ),
    (
        put("nodes/trainer/ports/samples", "ask.main"),
        "error[E10]: port 'samples' of 'trainer' takes a sample stream; 'ask.main' is of kind infer",
    ),
    (
        put("nodes/trainer/ports/samples", "sample.main"),
        "error[E10]: port 'samples' of 'trainer' is joined to 'sample.main', which is no stream\n"
        "  did you mean: samples.main?\n"
        "  streams: ask.main, samples.main, params.main",
    ),
    (
        put("nodes/actor/ports/infer:man", "ask.main"),
        "error[E10]: port 'infer:man' of 'actor' names no policy\n  did you mean: main?\n  policies: main",
    ),
    (
        put("streams/spare", {"kind": "sample"}),
        "error[E10]: stream 'spare' joins nobody\n  try: remove it, or name it under the ports of a node",
    ),
    (
        put("nodes/policy/inside", "actr"),
        "error[E10]: 'policy' is placed inside 'actr', which is no node\n  did you mean: actor?\n  nodes: actor, policy, trainer",
    ),
    (put("nodes/actor/inside", "policy"), "error[E10]: nodes are placed inside each other: actor in policy in actor"),
    (
        put("nodes/policy/count", 3),
        "error[E04]: 3 workers 'policy' cannot be placed inside 2 workers 'actor'\n"
        "  expected: count: 2, one in each, or any number inside a single worker",
    ),
    (
        put("nodes/policy/args/policy", "mian"),
        "error[E10]: 'policy' is of policy 'mian', which the file does not define\n  did you mean: main?\n  policies: main",
    ),
    (
        put("nodes/trainer/args/publish_every", 3),
        "error[E03]: 'trainer.publish_every' must be at most staleness.max + 1 = 2, found 3\n"
        "  because: a credit waits for a version that would never be published\n"
        "  try: trainer.publish_every=2 or staleness.max=2",
    ),
    (
        put("nodes/trainer/args", {"policy": "main", "slabs": 3, "staleness": 0}),
        "error[E04]: a batch of 3 slabs is not a multiple of the 2 groups that feed 'trainer'\n"
        "  because: staleness.max is 0: the groups left over would wait with rows of an older version\n"
        "  try: slabs: 2 or slabs: 4, or staleness.max=1",
    ),
    (
        put("streams/samples.main/via", "inproc"),
        "error[E10]: stream 'samples.main' says via: inproc, but its ends live in different processes\n"
        "  processes: actor/0, actor/1, trainer/0\n"
        "  try: via: auto, or place them together with `inside:`",
    ),
    (
        put("nodes/trainer/count", 2),
        "error[E10]: stream 'params.main' has 2 publishers\n  joined: 'trainer' x 2\n  expected: one trainer for each policy",
    ),
    (
        put("nodes/trainer/args/slbas", 2),
        "error[E02]: 'trainer' has no setting 'slbas'\n"
        "  did you mean: slabs (int, default 1)?\n  all: python -m srl.launch --help trainer",
    ),
    (
        put("nodes/trainer/args/threads", 2),
        "error[E02]: the args of 'trainer' have no setting 'threads': it is one of the node\n"
        "  try: graph.nodes.trainer.threads=2",
    ),
    (
        put("nodes/trainer/args/device", "cpu"),
        "error[E02]: the args of 'trainer' have no setting 'device': it is one of the node\n"
        "  try: graph.nodes.trainer.device=cpu",
    ),
    (
        put("nodes/policy/args/min_batch", 8),
        "error[E03]: 'policy' is to wait for 8 envs, and for 0 s: it never waits\n"
        "  because: min_batch has no effect without max_wait\n"
        "  try: inference.max_wait=0.001, or inference.min_batch=1",
    ),
    (put("nodes/trainer/worker", "trainr"), None),
    (
        put("streams/ask.main/route", "drop"),
        "error[E10]: stream 'ask.main' is of kind infer, which has no route: drop\n"
        "  because: only samples are shared out; a question finds its server, and weights go to all\n"
        "  try: remove it, or streams: {sample: {route: drop}}",
    ),
    (
        put("streams/params.main/route", "drop"),
        "error[E10]: stream 'params.main' is of kind param, which has no route: drop\n"
        "  because: only samples are shared out; a question finds its server, and weights go to all\n"
        "  try: remove it, or streams: {sample: {route: drop}}",
    ),
    (
        put("streams/samples.main/route", "drop"),
        "error[E10]: nothing can reach 'trainer' on 'samples.main': it would wait for ever\n"
        "  because: route: drop discards everything that reaches 'samples.main'\n"
        "  try: route: fair, or a graph without 'trainer'",
    ),
]


@pytest.mark.parametrize(("change", "text"), REFUSED)
def test_a_wrong_graph_is_refused_in_words(change, text):
    with pytest.raises(SrlError) as caught:
        check(changed(change))
    assert caught.value.exit_code == 2
    if text is None:
        assert "did you mean: trainer?" in str(caught.value)
    else:
        assert str(caught.value) == text


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
    with pytest.raises(SrlError) as caught:
        check(changed(change))
    assert caught.value.headline == "nothing can reach 'trainer' on 'samples.main': it would wait for ever"
    assert dict(caught.value.facts)["because"] == "route: drop discards everything that reaches 'raw'"


def test_workers_that_feed_only_each_other_are_refused():
    def change(nodes, streams):
        relayed(nodes, streams)
        streams |= {"back": {"kind": "sample"}, "loop": {"kind": "sample"}}
        nodes["buffer"]["ports"]["source"] = "back"
        nodes["buffer 2"] = {"worker": "buffer", "ports": {"source": "loop", "sink": "back"}}
        nodes["buffer 3"] = {"worker": "buffer", "ports": {"source": "back", "sink": "loop"}}
        streams["raw"]["route"] = "drop"

    with pytest.raises(SrlError, match="nothing can reach 'trainer'"):
        check(changed(change))


def test_actors_alone_may_drop_their_slabs():
    def change(nodes, streams):
        del nodes["trainer"], nodes["policy"]["ports"]["params"], streams["params.main"]
        streams["samples.main"]["route"] = "drop"

    check(changed(change))


def test_a_graph_without_nodes_is_refused():
    with pytest.raises(SrlError) as caught:
        check(graph_from_data(graph_to_data(wired()) | {"nodes": {}, "streams": {}}))
    assert str(caught.value) == (
        "error[E10]: the graph has no nodes: nothing would run\n"
        "  try: `srl graph experiment=cartpole --yaml` prints nodes and streams to start from"
    )


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
    graph = plan(read_experiment(composed.data, composed.provenance), machine=MACHINE, where=composed.provenance).graph
    with pytest.raises(SrlError) as caught:
        check(graph, composed.provenance)
    assert dict(caught.value.facts)["from"].endswith("hand.yaml:12:9")


def test_more_threads_than_cores_are_refused():
    with raises("E08") as caught:
        check_resources(wired(trainer={"threads": 64}), MACHINE)
    assert str(caught.value) == (
        "error[E08]: 'trainer' wants 64 threads, and this machine has 2 cores to use\n"
        "  expected: at most 2 (affinity and cgroup quota counted)\n"
        "  try: trainer.threads=2"
    )


def test_a_device_that_is_not_there_is_refused():
    with raises("E08") as caught:
        check_resources(wired(device="cuda"), MACHINE)
    assert str(caught.value) == "error[E08]: 'trainer' wants device cuda, and this machine has no GPU\n  try: device=cpu"


@pytest.mark.parametrize("device", ["tpu", "meta", "cuda0", "cuda:one", "cuda:2", ""])
def test_what_is_no_device_is_refused_with_those_that_are_there(device):
    machine = Machine(cores=2, gpus=2, shared_free=1 << 34)
    with raises("E08") as caught:
        check_resources(wired(device=device), machine)
    assert str(caught.value) == (
        f"error[E08]: 'trainer' wants device {device}, and this machine has 2 GPUs\n  try: device=cuda:1"
        if device.startswith("cuda")
        else f"error[E08]: 'trainer' wants device {device}, and this machine has cpu, cuda:0, cuda:1\n  try: device=cuda:1"
    )


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1"])
def test_a_device_that_is_there_is_not(device):
    check_resources(wired(device=device), Machine(cores=2, gpus=2, shared_free=1 << 34))


def test_a_trainer_has_the_threads_and_the_device_of_its_node():
    node = wired(trainer={"threads": 2}, device="cuda").node("trainer")
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
    [("auto", "stream 'samples.main' goes by shm: compress: lz4 has no effect there, it is for zmq"), ("zmq", None)],
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
    graph = plan(read_experiment(data | more), machine=MACHINE).graph
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
    graph = prepare(experiment, machine=MACHINE, look=False).graph
    assert warnings(graph, derive(graph)) == []


def test_the_warning_stands_in_the_plan_of_a_dry_run():
    policies = {"red": {"policy": "actor_critic", "algorithm": "ppo"}, "blue": {"policy": "actor_critic"}}
    lines = prepare(settings={"env": TEAMS, "policies": policies, "agents": {"red*": "red", "blue*": "blue"}}).lines()
    assert [text[:29] for label, text in lines if label == "warning"] == ["policy 'blue' acts untrained,"]
