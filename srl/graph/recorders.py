"""Recorders of the rows that policies learn from: between the actors and whatever takes their slabs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from srl.config.experiment import Record
from srl.core.errors import UserError
from srl.graph.spec import Node, Stream


def with_recorders(nodes: Sequence[Node], streams: Sequence[Stream], wanted: Record | None) -> tuple[list[Node], list[Stream]]:
    """The graph with a recorder in every stream that actors fill with the rows of a policy."""
    done, joined = list(nodes), list(streams)
    if wanted is None:
        return done, joined
    filled = {name for node in nodes if node.worker == "actor" for port, name in node.ports.items() if _base(port) == "samples"}
    taped = [stream for stream in streams if stream.name in filled]
    for stream in taped:
        takers = [node for node in done if stream.name in (name for port, name in node.ports.items() if _takes(node, port))]
        if len(takers) != 1 or takers[0].count > 1:
            raise UserError(
                f"'record' cannot record the stream '{stream.name}'",
                ("because", "its slabs go to several workers, each from actors of its own"),
                ("try", "one trainer and one replay: workers.trainer.count=1, replay.shards=1"),
                code="E10",
                path=("record",),
            )
        (taker,) = takers
        after = replace(stream, name=f"recorded.{stream.policy}")
        folder = wanted.folder if len(taped) == 1 else f"{wanted.folder}/{stream.policy}"
        recorder = Node(
            name="record" if len(taped) == 1 else f"record.{stream.policy}",
            worker="record",
            args={"folder": folder, "gigabytes": wanted.gigabytes},
            ports={"source": stream.name, "sink": after.name},
            inside=taker.inside or taker.name,
            hosts=taker.hosts,
        )
        ports = {port: after.name if name == stream.name else name for port, name in taker.ports.items()}
        at = done.index(taker)
        done[at : at + 1] = [recorder, replace(taker, ports=ports)]
        joined.append(after)
    return done, joined


def _base(port: str) -> str:
    return port.partition(":")[0]


def _takes(node: Node, port: str) -> bool:
    end = node.port(port)
    return bool(end.kind == "sample" and end.side == "consumer")
