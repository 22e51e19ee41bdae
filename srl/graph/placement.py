"""Placement: which workers share a process, and so which streams never leave one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from srl.core.errors import UserError
from srl.core.types import HOME, WorkerId
from srl.graph.spec import Graph, Node, Stream


def inside(node: Node, host: Node, **changes: Any) -> Node:
    """The node placed inside another: they live and die together, so the host says what a failure means."""
    return replace(node, inside=host.name, on_failure=host.on_failure, restarts=host.restarts, hosts=host.hosts, **changes)


def owner(graph: Graph, node: Node, index: int) -> tuple[str, int]:
    """The worker whose process this one lives in: itself, unless it is placed inside another."""
    seen = [node.name]
    while node.inside is not None:
        if node.inside in seen:
            raise UserError(f"nodes are placed inside each other: {' in '.join([*seen, node.inside])}", code="E10")
        node = graph.node(node.inside)
        index = index if 1 < node.count > index else 0
        seen.append(node.name)
    return node.name, index


def workers_by_process(graph: Graph, incarnation: int = 0) -> dict[str, tuple[WorkerId, ...]]:
    """Process -> its workers in graph order. A process is named after the worker that the others are inside of.

    Inline there is one process, named after the first worker.
    """
    found: dict[str, list[WorkerId]] = {}
    for node in graph.nodes:
        for index in range(node.count):
            home, number = owner(graph, node, index) if graph.mode != "inline" else (graph.nodes[0].name, 0)
            found.setdefault(f"{home}/{number}", []).append(WorkerId(node.name, index, incarnation))
    return {name: tuple(workers) for name, workers in found.items()}


def host_of(graph: Graph, name: str, index: int) -> str:
    """`home`, or `cpu/0`: the host of a process. Worker i of n is on host i * hosts // n of its group."""
    node = graph.node(name)
    if graph.mode == "inline" or node.hosts == HOME:
        return HOME
    return f"{node.hosts}/{index * graph.hosts[node.hosts].size // node.count}"


def node_hosts(graph: Graph, node: Node) -> set[str]:
    """The hosts that its workers are on."""
    return {host_of(graph, *one) for one in processes(graph, node)}


def device_at(graph: Graph, node: Node, index: int) -> str:
    """The device of one worker of a node: where several on one host have `cuda`, each has a GPU of its own."""
    if node.device != "cuda" or node.count == 1:
        return node.device
    homes = [host_of(graph, *owner(graph, node, one)) for one in range(index + 1)]
    return f"cuda:{homes.count(homes[index]) - 1}"


def last_device(graph: Graph, node: Node) -> tuple[str, int]:
    """The device with the largest number that a worker of this node has on its host, and the number."""
    devices = (device_at(graph, node, index) for index in range(node.count))
    return max(((device, int(device.partition(":")[2] or 0)) for device in devices), key=lambda one: one[1])


def members(graph: Graph, stream: str) -> Iterator[tuple[Node, str, str]]:
    """Node, port and side of every end group on a stream."""
    for node in graph.nodes:
        for port, joined in node.ports.items():
            if joined == stream:
                yield node, port, node.port(port).side


def feeds(graph: Graph, stream: str) -> dict[tuple[str, int], list[tuple[str, int]]]:
    """Consumer of a sample stream -> its producers, each as (node, index): all of them, or its share if its port is
    pinned, or divided among several workers."""
    sides: dict[str, list[tuple[str, int]]] = {"producer": [], "consumer": []}
    pinned = divided = False
    for node, port, side in members(graph, stream):
        sides[side] += [(node.name, index) for index in range(node.count)]
        kind = node.port(port)
        pinned, divided = pinned or kind.pinned, divided or (kind.divided and node.count > 1)
    producers, consumers = sides["producer"], sides["consumer"]
    pinned |= divided and len(producers) >= len(consumers)
    return {one: producers[at :: len(consumers)] if pinned else producers for at, one in enumerate(consumers)}


def fetches(graph: Graph, stream: str) -> dict[tuple[str, int], tuple[str, int]]:
    """Subscriber of a param stream -> the worker that it fetches from, each as (node, index).

    From a relay of its own host, where there is one. In a tree, relay i fetches from relay i // fan_out - 1, the first ones from
    the trainer.
    """
    ends = [(node, node.port(port), index) for node, port, _ in members(graph, stream) for index in range(node.count)]
    publishers = [
        (node.name, index)
        for node, port, index in ends
        if port.side == "publisher" and not port.relays and (not port.first or not index)
    ]
    near = {host_of(graph, *owner(graph, node, index)): (node.name, index) for node, port, index in ends if port.relays == "host"}
    trees = {node.name: node.loaded.fan_out for node, port, _ in ends if port.relays == "tree"}
    found = {}
    for node, port, index in ends:
        if port.side != "subscriber":
            continue
        if near:
            found[node.name, index] = near[host_of(graph, *owner(graph, node, index))]
        elif node.name in trees and index >= trees[node.name]:
            found[node.name, index] = (node.name, index // trees[node.name] - 1)
        elif publishers:
            found[node.name, index] = publishers[0]
    return found


def processes(graph: Graph, node: Node) -> set[tuple[str, int]]:
    """The processes that its workers live in, each by the worker that owns it."""
    return {owner(graph, node, index) for index in range(node.count)}


def processes_by_side(graph: Graph, stream: str) -> dict[str, set[tuple[str, int]]]:
    """Side of the stream -> the processes that its workers live in."""
    sides: dict[str, set[tuple[str, int]]] = {}
    for node, port, side in members(graph, stream):
        joined = {owner(graph, node, 0)} if node.port(port).first else processes(graph, node)
        sides.setdefault(side, set()).update(joined)
    return sides


def via_of(graph: Graph, stream: Stream) -> str:
    """What `auto` means: inproc where every end finds its peers in its own process, else shared memory within a host, else zmq.

    A question may be answered by any server: one in each client's process is enough. Parameters
    go to everybody, so all ends must share one process.
    """
    if graph.mode == "inline":
        return "inproc"
    if stream.via != "auto":
        return stream.via
    if stream.kind == "sum":
        return "zmq"  # trainers on one host need no stream
    if stream.kind == "sample":
        fed = feeds(graph, stream.name).items()
        pairs = [(one, other) for one, others in fed for other in others]
        homes = [tuple(owner(graph, graph.node(name), index) for name, index in pair) for pair in pairs]
        if homes and all(home == other for home, other in homes):
            return "inproc"
        return "shm" if all(host_of(graph, *home) == host_of(graph, *other) for home, other in homes) else "zmq"
    if stream.kind == "param" and any(node.port(port).relays == "host" for node, port, _ in members(graph, stream.name)):
        return "shm"
    first, *others = processes_by_side(graph, stream.name).values()
    together = all(other == first for other in others) and (stream.kind == "infer" or len(first) == 1)
    if together:
        return "inproc"
    return "shm" if len({host_of(graph, *one) for one in first.union(*others)}) == 1 else "zmq"
