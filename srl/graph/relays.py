"""Relays of parameters: one process on each host fetches them for all workers there, and many hosts form a tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from srl.config.experiment import Relays
from srl.core.types import HOME, HostGroup
from srl.graph.spec import Node, Stream


def with_relays(
    nodes: Sequence[Node], streams: Sequence[Stream], groups: dict[str, HostGroup], wanted: Relays
) -> tuple[list[Node], list[Stream]]:
    """The graph with relays on every group of hosts from which more than `wanted.above` processes would fetch one policy."""
    done, joined = list(nodes), list(streams)
    for stream in streams:
        if stream.kind != "param":
            continue
        for name, group in groups.items():
            readers = [node for node in done if node.hosts == name and _reads(node, stream.name)]
            if sum(node.count for node in readers) <= wanted.above:
                continue
            near = replace(stream, name=f"{stream.name}.{name}", via="auto")
            ports = {"source": stream.name, "near": near.name}
            if group.size > wanted.above:
                ports["far"] = stream.name
            relay = Node(
                name=f"relay.{stream.policy}.{name}",
                worker="relay",
                count=group.size,
                args={"fan_out": wanted.fan_out},
                ports=ports,
                hosts=name,
                on_failure="restart",
            )
            done = [_moved(node, stream.name, near.name) if node in readers else node for node in done]
            done, joined = [*done, relay], [*joined, near]
    return done, joined


def _reads(node: Node, stream: str) -> bool:
    return node.hosts != HOME and any(
        name == stream and node.port(port).side == "subscriber" for port, name in node.ports.items()
    )


def _moved(node: Node, before: str, after: str) -> Node:
    """The node with the new stream in place of the old one."""
    return replace(node, ports={port: after if name == before else name for port, name in node.ports.items()})
