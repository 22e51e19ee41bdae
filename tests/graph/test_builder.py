"""Graphs by handles: the same data as by hand, and errors on the line where an argument is written."""

from pathlib import Path

import pytest

from srl.graph.build import wiring
from srl.graph.builder import GraphBuilder
from srl.plan.prepare import prepare
from tests.errors import raises


def wired():
    g = GraphBuilder()
    samples, params, ask = g.sample(), g.param(), g.infer()
    actor = g.node("actor", count=2, envs=32, steps=64, infer=[ask], samples=[samples], on_failure="restart")
    g.node("policy", inside=actor, asks=ask, params=params)
    g.node("trainer", slabs=2, samples=samples, params=params, threads=2)
    return g


def test_a_builder_makes_the_same_data_as_a_file():
    g = wired()
    assert g.data() == {
        "nodes": {
            "actor": {
                "worker": "actor",
                "count": 2,
                "args": {"envs": 32, "steps": 64},
                "ports": {"infer:main": "ask.main", "samples:main": "samples.main"},
                "on_failure": "restart",
            },
            "policy": {
                "worker": "policy",
                "count": 2,
                "ports": {"asks": "ask.main", "params": "params.main"},
                "inside": "actor",
                "on_failure": "restart",
            },
            "trainer": {
                "worker": "trainer",
                "args": {"slabs": 2},
                "ports": {"samples": "samples.main", "params": "params.main"},
                "threads": 2,
            },
        },
        "streams": {"samples.main": {"kind": "sample"}, "params.main": {"kind": "param"}, "ask.main": {"kind": "infer"}},
    }
    assert wiring(g.data()) == (g.nodes, g.streams)


@pytest.mark.parametrize(
    ("wrong", "code", "fact"),
    [
        (lambda g: g.node("trainer", "second", samples=g.sample(), params=g.param(), slbas=2), "E02", "did you mean: slabs"),
        (lambda g: g.node("trainer", "second", samples=g.infer(), params=g.param()), "E10", "a sample stream, not infer"),
        (lambda g: g.node("trainer", "second", smaples=g.sample(), params=g.param()), "E10", "did you mean: samples?"),
        (lambda g: g.node("trainer", "second", samples=g.sample()), "E10", "port 'params' of 'second' is not connected"),
        (lambda g: g.node("trainer", "second", samples=g.sample(), params=g.param(), count=0), "E03", "at least 1"),
        (lambda g: g.node("trainer", samples=g.sample(), params=g.param()), "E10", "there is a node 'trainer' already"),
        (lambda g: g.sample(name="params.main"), "E10", "another stream 'params.main'"),
    ],
)
def test_a_wrong_argument_is_refused_on_its_line(wrong, code, fact):
    with raises(code) as caught:
        wrong(wired())
    assert fact in str(caught.value)
    line = dict(caught.value.facts)["from"].split(":")
    assert line[0] == __file__ and "lambda g" in Path(__file__).read_text().splitlines()[int(line[1]) - 1]


def test_python_calls_take_a_function_as_layout_and_the_data_as_graph():
    from docs.examples.mixed import mixed  # type: ignore[import-not-found]

    settings = {"env": "CartPole-v1", "algorithm": "ppo", "layout": mixed}
    prepared = prepare(settings=settings, inspect=False)
    assert [node.name for node in prepared.graph.nodes] == ["alone", "inside", "asking", "beside", "trainer"]
    assert prepared.experiment.layout.endswith("mixed.py:mixed") or prepared.experiment.layout == "docs.examples.mixed:mixed"
    data = {"env": "CartPole-v1", "algorithm": "ppo", "graph": wired().data()}
    assert prepare(settings=data, inspect=False).graph.nodes == wired().nodes


def test_what_is_no_layout_is_refused():
    with raises("E10", "layout", match="must return a GraphBuilder, not int"):
        prepare(settings={"env": "CartPole-v1", "algorithm": "ppo", "layout": f"{__file__}:not_a_layout"}, inspect=False)


def not_a_layout(experiment, sizes):
    return 7
