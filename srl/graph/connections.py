"""How many connections meet at one socket: a limit that is checked before the start."""

from __future__ import annotations

from collections import Counter

from srl.core.errors import UserError
from srl.graph.placement import feeds, fetches, members, via_of
from srl.graph.spec import Graph, Stream

MOST = 1000
"""Connections of one socket. With three times as many it passes a quarter less, and its memory grows to a gigabyte."""


def check_connections(graph: Graph) -> None:
    """E08 if more processes than that would connect to one end."""
    for stream in graph.streams:
        if via_of(graph, stream) != "zmq" or stream.kind == "sum":
            continue
        served = _served(graph, stream)
        (name, _), most = max(served.items(), key=lambda one: one[1])
        if most > MOST:
            raise UserError(
                f"{most:,} workers would connect to each '{name}' on stream '{stream.name}'",
                ("expected", f"at most {MOST:,}: a socket gets slower with each connection"),
                *_ways_out(graph, stream, name, served),
                code="E08",
                path=("graph", "streams", stream.name),
            )


def _served(graph: Graph, stream: Stream) -> Counter[tuple[str, int]]:
    """The worker at whose socket others meet -> how many."""
    if stream.kind == "sample":
        return Counter({one: len(producers) for one, producers in feeds(graph, stream.name).items()})
    if stream.kind == "param":
        return Counter(fetches(graph, stream.name).values())
    ends = list(members(graph, stream.name))
    clients = sum(node.count for node, _, side in ends if side == "client")
    return Counter({(node.name, 0): clients for node, _, side in ends if side == "server"})


def _ways_out(graph: Graph, stream: Stream, name: str, served: Counter[tuple[str, int]]) -> list[tuple[str, str]]:
    needed = -(-sum(served.values()) // MOST)
    if stream.kind == "infer":
        return [("try", "layout=impala, in which every actor has its policy inside")]
    if stream.kind == "param":
        return [("try", "a smaller relays.above: then one process on each host fetches parameters for all")]
    node = graph.node(name)
    facts = [("try", f"workers.{name}.count={needed}")]
    if node.kind.gang:
        port = next(port for port, joined in node.ports.items() if joined == stream.name)
        gather = f"{{use: buffer, count: {needed}, size: {MOST}, ports: {{source: {stream.name}, sink: gathered}}}}"
        facts.append(("or", f"workers.gather='{gather}' workers.{name}.ports='{{{port}: gathered}}'"))
    return facts
