"""Host groups: what runs where, how streams between hosts travel, and what is refused before the start."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srl.config.experiment import Experiment, read_experiment
from srl.core.machine import Machine
from srl.core.types import HOME, Component, HostGroup
from srl.graph.build import graph_from_yaml, graph_to_yaml
from srl.graph.check import check, notes
from srl.graph.decide import decide
from srl.graph.hosts import hosts_lines, hosts_of, processes_by_host, stream_hosts
from srl.graph.placement import via_of
from srl.graph.spec import Graph
from tests.control.rig import graph as rig
from tests.control.rig import with_node
from tests.errors import raises

DESKTOP = Machine(cores=4, gpus=0, shared_free=1 << 34)


def experiment(**settings: Any) -> Experiment:
    """Actors on two hosts of four cores."""
    base = {
        "env": "CartPole-v1", "algorithm": "ppo", "sampling": {"envs": 64, "steps": 32}, "launcher": "loopback",
        "hosts": {"cpu": {"cores": 4, "count": 2}}, "workers": {"actor": {"hosts": "cpu"}},
    }  # fmt: skip
    return read_experiment(base | settings)


def graph(**settings: Any) -> Graph:
    done = decide(experiment(**settings), machine=DESKTOP).graph
    check(done)
    return done


def test_actors_fill_their_hosts_and_the_trainer_stays_at_home() -> None:
    work = graph()
    assert work.node("actor").count == 8, "the cores of both hosts"
    assert processes_by_host(work) == {
        HOME: ["trainer/0"],
        "cpu/0": [f"actor/{index}" for index in range(4)],
        "cpu/1": [f"actor/{index}" for index in range(4, 8)],
    }
    assert work.node("policy").hosts == "cpu", "what is inside an actor goes with it"
    assert graph_from_yaml(graph_to_yaml(work)) == work


def test_streams_between_hosts_are_zmq_and_those_within_one_are_not() -> None:
    work = graph()
    assert {stream.name: via_of(work, stream) for stream in work.streams} == {
        "ask.main": "inproc", "samples.main": "zmq", "params.main": "zmq",
    }  # fmt: skip
    alone = graph(
        layout="decoupled", hosts={"cpu": {"count": 1}}, workers={"actor": {"hosts": "cpu"}, "policy": {"hosts": "cpu"}}
    )
    assert via_of(alone, alone.stream("ask.main")) == "shm", "actors and policy workers share the one host"
    assert stream_hosts(alone, "samples.main") == {HOME, "cpu/0"}
    assert via_of(alone, alone.stream("samples.main")) == "zmq"


@pytest.mark.parametrize("settings", [{"launcher": "local"}, {"mode": "inline"}])
def test_the_same_file_runs_on_one_machine(settings: dict[str, str]) -> None:
    work, plain = graph(**settings), graph(**settings, hosts={}, workers={})
    assert work == plain
    assert processes_by_host(work).keys() == {HOME} and hosts_of(work) == ()


@given(workers=st.integers(1, 40), hosts=st.integers(1, 12))
def test_workers_are_spread_evenly_and_in_order(workers: int, hosts: int) -> None:
    work = rig(counters=workers, via="zmq", hosts={"far": HostGroup(count=hosts)}, launcher=Component("loopback"))
    placed = processes_by_host(with_node(work, "counter", hosts="far"))
    own = [placed[f"far/{index}"] for index in range(hosts)]
    assert [name for names in own for name in names] == [f"counter/{index}" for index in range(workers)]
    assert max(map(len, own)) - min(map(len, own)) <= 1
    assert placed[HOME] == ["adder/0"]


def test_the_plan_names_hosts_and_processes() -> None:
    work = graph(hosts={"cpu": {"addresses": ["a", "b"]}}, sampling={"envs": 64, "steps": 32, "workers": 4}, launcher="ssh")
    assert hosts_lines(work) == "home (this machine): trainer/0\ncpu/0 (a): actor/0-1\ncpu/1 (b): actor/2-3"


def test_a_large_group_is_shortened_in_the_plan() -> None:
    work = graph(hosts={"cpu": {"count": 16, "cores": 4}}, sampling={"envs": 64, "steps": 32})
    assert hosts_lines(work).splitlines()[1:] == [
        "cpu/0: actor/0-3", "cpu/1: actor/4-7", "... 13 more of cpu", "cpu/15: actor/60-63",
    ]  # fmt: skip


def test_too_many_and_too_few_workers_are_noted() -> None:
    crowded = graph(sampling={"envs": 64, "steps": 32, "workers": 16})
    assert any("8 threads share the 4 cores of a host of 'cpu'" in note for note in notes(crowded, DESKTOP))
    idle = graph(sampling={"envs": 64, "steps": 32, "workers": 1})
    assert any("1 host of 'cpu' without a worker" in note for note in notes(idle, DESKTOP))
    unused = graph(hosts={"cpu": {"count": 2, "cores": 4}, "gpu": {"gpus": 1}})
    assert any("no worker is placed on hosts 'gpu'" in note for note in notes(unused, DESKTOP))
    alone = graph(hosts={}, workers={})
    assert any("launcher loopback has nothing to start" in note for note in notes(alone, DESKTOP))
    assert not any("nothing to start" in note for work in (crowded, idle, unused) for note in notes(work, DESKTOP))


@pytest.mark.parametrize(
    ("settings", "code", "path"),
    [
        ({"workers": {"actor": {"hosts": "cpus"}}}, "E10", "graph.nodes.actor.hosts"),
        ({"workers": {"actor": {"hosts": "cpus"}}, "launcher": "local"}, "E10", "graph.nodes.actor.hosts"),
        ({"workers": {"trainer": {"hosts": "cpu", "count": 4, "device": "cuda"}}}, "E08", "graph.nodes.trainer.device"),
        ({"workers": {"actor": {"hosts": "cpu", "threads": 5}}}, "E08", "graph.nodes.actor.threads"),
        ({"workers": {"actor": {"hosts": "cpu"}, "policy": {"device": "cuda"}}}, "E08", "graph.nodes.policy.device"),
        ({"streams": {"sample": {"via": "shm"}}}, "E10", "graph.streams.samples.main.via"),
        ({"launcher": "shs"}, "E07", "launcher"),
        ({"hosts": {"home": {}}}, "E03", "hosts.home"),
        ({"hosts": {"cpu": {"count": 3, "addresses": ["a", "b"]}}}, "E03", "hosts.cpu.count"),
    ],
)
def test_what_cannot_run_is_refused(settings: dict[str, Any], code: str, path: str) -> None:
    with raises(code, path):
        graph(**settings)
