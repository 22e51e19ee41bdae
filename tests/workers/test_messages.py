from __future__ import annotations

import socket
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srl.cluster.reliable import ReliableChannel
from srl.control.members import Members
from srl.core.errors import HostileFrame
from srl.core.readings import Reading
from srl.core.types import BoundEnd, Counts, Waiting
from srl.graph.placement import workers_by_process
from srl.graph.spec import Node
from srl.workers.messages import LIMIT, Channel, ProcessReport, WorkerReport, pack, unpack
from tests.control.rig import graph
from tests.errors import raises

GO = {"type": "go", "process": "actor/0"}


@given(st.binary(max_size=200))
def test_no_bytes_at_all_are_more_than_a_refusal(data: bytes) -> None:
    try:
        unpack(data)
    except HostileFrame:
        return
    assert msgpack.unpackb(data)["type"]


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"type": 3},
        {"type": "sing"},
        {"type": "go"},
        {"type": "go", "process": 4},
        {"type": "go", "process": "a", "more": 1},
        {"type": "go", "process": "a", "seq": "x"},
        [],
        b"x",
    ],
)
def test_what_is_not_of_the_schema_is_refused(data: Any) -> None:
    with pytest.raises(HostileFrame):
        unpack(msgpack.packb(data))


def test_a_report_survives_the_way() -> None:
    reading = Reading()
    reading.count("env_steps", 3)
    reading.gauge("held", 2)
    reading.minimum("updates", 7)
    reading.maximum("version", 8)
    reading.mean("loss", 0.5)
    reading.episode("episode/return", 10, 2)
    reading.spread("staleness", 4, 3, 0, 2)
    reading.point("eval/return", 475.0, 1000, 8)
    reading.time("env step", 0.25)
    report = WorkerReport(reading, 0.5, (Waiting("credit", ("trainer/0",)),), False, {"out": Counts(4, 3, 2, 100, {"stop": 1})})
    message = {"type": "report", "processes": {"actor/0": ProcessReport(1.5, 0.25, 4096, {"actor/0": report})}}
    assert unpack(pack(message)) == message


def test_a_channel_keeps_messages_whole_and_in_order_however_they_are_cut() -> None:
    left, right = socket.socketpair()
    one, other = Channel(left), Channel(right)
    messages = [{"type": "detach", "process": "a", "gone": ["x" * (7 * i)], "reason": str(i)} for i in range(400)]
    got: list[Any] = []
    for message in messages:
        one.send(message)
        if len(got) % 3 == 0:
            got += other.receive()
    while len(got) < len(messages):
        one.flush()
        got += other.receive()
    assert got == messages
    one.close()
    assert other.receive() == [] and other.closed
    other.close()


def test_a_channel_refuses_a_length_beyond_the_limit_before_it_reads_on() -> None:
    left, right = socket.socketpair()
    left.sendall((LIMIT + 1).to_bytes(4, "little"))
    with left, pytest.raises(HostileFrame):
        Channel(right).receive()
    right.close()


def test_a_message_beyond_the_limit_is_never_sent() -> None:
    with pytest.raises(ValueError, match="at most 1,048,576"):
        pack({"type": "detach", "process": "a", "gone": ["x" * LIMIT], "reason": ""})


@given(st.lists(st.sampled_from(["send", "deliver", "cut"]), max_size=60))
def test_a_reliable_channel_delivers_everything_once_and_in_order_over_calls_that_break(steps: list[str]) -> None:
    near, far = ReliableChannel(), ReliableChannel()
    wire: list[Any] = []
    sent: list[str] = []
    got: list[str] = []

    def deliver() -> None:
        message = wire.pop(0)
        if far.receive(message):
            got.append(message["process"])

    for number, step in enumerate([*steps, "cut"]):
        if step == "send":
            sent.append(str(number))
            wire.append(dict(near.send({"type": "go", "process": str(number)})))
        elif step == "deliver" and wire:
            deliver()
        elif step == "cut":
            wire = near.resend(far.taken)
    while wire:
        deliver()
    assert got == sent
    assert near.resend(far.taken) == []


def node(name: str, count: int, inside: str | None = None) -> Node:
    return Node(name=name, worker="x", count=count, inside=inside)


def test_a_worker_inside_another_shares_its_process_in_graph_order() -> None:
    work = graph()
    nodes = (node("policy", 2, "actor"), node("actor", 2), node("viewer", 3, "trainer"), node("trainer", 1))
    found = {name: [one.name for one in workers] for name, workers in workers_by_process(replace_nodes(work, nodes)).items()}
    assert found == {
        "actor/0": ["policy/0", "actor/0"],
        "actor/1": ["policy/1", "actor/1"],
        "trainer/0": ["viewer/0", "viewer/1", "viewer/2", "trainer/0"],
    }


def test_nodes_inside_each_other_are_refused() -> None:
    nodes = (node("a", 1, "b"), node("b", 1, "a"))
    with raises("E10", match="a in b in a"):
        workers_by_process(replace_nodes(graph(), nodes))


def replace_nodes(work: Any, nodes: tuple[Node, ...]) -> Any:
    from dataclasses import replace

    return replace(work, nodes=nodes)


@pytest.mark.parametrize(
    ("route", "via", "pairs"),
    [
        ("fair", "shm", {(i, j) for i in range(4) for j in range(2)}),
        ("drop", "shm", set()),
        ("fair", "inproc", {(0, 0), (1, 1)}),
    ],
)
def test_peers_follow_route_and_place(route: str, via: str, pairs: set[tuple[int, int]]) -> None:
    from dataclasses import replace

    work = graph(counters=2)
    work = replace_nodes(work, tuple(replace(node, count=4 if node.name == "counter" else 2) for node in work.nodes))
    members = Members(replace(work, streams=(replace(work.streams[0], route=route),)))
    for member in members.values():
        side = "producer" if member.owner.node == "counter" else "consumer"
        member.ends = (BoundEnd("numbers", member.name, "port", side, {}, 2),)
    if via == "inproc":  # counter/0 with adder/0, counter/1 with adder/1
        for index in range(2):
            members[f"adder/{index}"].ends += members.pop(f"counter/{index}").ends
    found = members.new_connections(list(members.values()), {"numbers": via})
    both = {
        (worker, peer.worker)
        for peers in found.values()
        for worker, ports in peers.items()
        for own in ports.values()
        for peer in own
    }
    assert both == {pair for i, j in pairs for pair in [(f"counter/{i}", f"adder/{j}"), (f"adder/{j}", f"counter/{i}")]}


def test_dataclasses_travel_in_messages_as_they_are() -> None:
    ends = (BoundEnd("numbers", "counter/0", "out", "producer", {"pipe": 3}, 2),)
    message = {"type": "bound", "process": "counter/0", "pid": 7, "ends": ends}
    assert unpack(pack(message)) == message
    peers = {"adder/0": {"in": list(ends)}}
    assert unpack(pack({"type": "peers", "process": "adder/0", "peers": peers}))["peers"] == peers
    counts = {"numbers:counter/0": Counts(4, 3, 2, 100, {"stop": 1})}
    assert unpack(pack({"type": "detached", "process": "adder/0", "ends": counts}))["ends"] == counts
