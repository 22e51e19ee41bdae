"""Relays: where they are put, who fetches from whom, and connections that are too many."""

from __future__ import annotations

from typing import Any

import pytest

from srl.core.types import HOME
from srl.graph.check import check
from srl.graph.decide import decide
from srl.graph.hosts import processes_by_host
from srl.graph.placement import fetches, via_of
from srl.graph.spec import Graph
from tests.errors import raises
from tests.graph.test_hosts import DESKTOP, experiment


def graph(hosts: int, cores: int = 2, **settings: Any) -> Graph:
    envs = hosts * cores
    base = {"sampling": {"envs": envs, "steps": 32}, "hosts": {"cpu": {"cores": cores, "count": hosts}}}
    done = decide(experiment(**base | settings), machine=DESKTOP).graph
    check(done)
    return done


def test_few_workers_fetch_by_themselves() -> None:
    work = graph(8)
    assert {node.worker for node in work.nodes} == {"actor", "policy", "trainer"}
    assert set(fetches(work, "params.main").values()) == {("trainer", 0)}


def test_many_workers_fetch_from_the_relay_of_their_host() -> None:
    work = graph(40)
    assert work.node("relay.main.cpu").count == 40
    assert processes_by_host(work)["cpu/7"] == ["actor/14", "actor/15", "relay.main.cpu/7"]
    assert via_of(work, work.stream("params.main.cpu")) == "shm"
    assert via_of(work, work.stream("params.main")) == "zmq"
    near = fetches(work, "params.main.cpu")
    assert near == {("policy", index): ("relay.main.cpu", index // 2) for index in range(80)}
    assert set(fetches(work, "params.main").values()) == {("trainer", 0)}


@pytest.mark.parametrize(("hosts", "fan_out"), [(65, 8), (480, 8), (100, 3), (70, 1)])
def test_many_hosts_form_a_tree_in_which_nobody_serves_more_than_its_share(hosts: int, fan_out: int) -> None:
    work = graph(hosts, 1, relays={"fan_out": fan_out})
    found = fetches(work, "params.main")
    assert len(found) == hosts
    served: dict[Any, int] = {}
    for relay, source in found.items():
        served[source] = served.get(source, 0) + 1
        depth = 1
        while source != ("trainer", 0):
            assert source[1] < relay[1]
            relay, source, depth = source, found[source], depth + 1
        assert depth <= 3 or fan_out < 8
    assert max(served.values()) <= fan_out and served["trainer", 0] == fan_out


def test_on_a_desktop_there_are_none() -> None:
    work = graph(200, launcher="local", sampling={"envs": 400, "steps": 32, "workers": 200})
    assert not any(node.worker == "relay" for node in work.nodes)
    assert set(processes_by_host(work)) == {HOME}


def test_too_many_connections_at_one_socket_are_refused_and_both_ways_out_work() -> None:
    with raises("E08", "graph.streams.samples.main", match="1,200 workers would connect to each 'trainer'") as caught:
        graph(600, 2)
    facts = dict(caught.value.facts)
    assert facts["try"] == "workers.trainer.count=2" and "use: buffer, count: 2" in facts["or"]
    gathered = {
        "actor": {"hosts": "cpu"},
        "trainer": {"ports": {"samples": "gathered"}},
        "gather": {"use": "buffer", "count": 2, "size": 600, "ports": {"source": "samples.main", "sink": "gathered"}},
    }
    for workers in ({"actor": {"hosts": "cpu"}, "trainer": {"count": 2}}, gathered):
        graph(600, 2, workers=workers)
