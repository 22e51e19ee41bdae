"""Who goes where: the processes of a graph, and the peers of every end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from srl.core.errors import UserError
from srl.core.types import WorkerId
from srl.graph.spec import Graph, Node
from srl.workers.loop import Peer

OPPOSITE = {
    "producer": "consumer", "consumer": "producer",
    "client": "server", "server": "client",
    "publisher": "subscriber", "subscriber": "publisher",
}  # fmt: skip
_MANY = ("producer", "client", "subscriber")


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """One process: named after its first worker."""

    name: str
    seats: tuple[WorkerId, ...]
    threads: int

    @property
    def owner(self) -> WorkerId:
        """The worker that the others are placed inside of."""
        return next(seat for seat in self.seats if seat.name == self.name)


@dataclass(frozen=True, slots=True)
class BoundEnd:
    """One end of a stream, where it is now."""

    process: str
    worker: str
    port: str
    stream: str
    side: str
    address: Mapping[str, Any]
    slots: int
    incarnation: int

    @property
    def name(self) -> str:
        return f"{self.stream}:{self.worker}"


def plan_processes(graph: Graph, incarnation: int = 0) -> list[ProcessPlan]:
    """One process with everything (inline), or one for each worker that is not inside another's; seats in graph order."""
    seats: dict[str, list[WorkerId]] = {}
    for node in graph.nodes:
        for index in range(node.count):
            owner = "inline" if graph.mode == "inline" else _owner(graph, node, index)
            seats.setdefault(owner, []).append(WorkerId(node.name, index, incarnation))
    plans = []
    for owner, placed in seats.items():
        name = placed[0].name if graph.mode == "inline" else owner
        plans.append(ProcessPlan(name, tuple(placed), max(graph.node(seat.node).threads for seat in placed)))
    return plans


def _owner(graph: Graph, node: Node, index: int) -> str:
    """The worker whose process worker `index` of this node lives in."""
    seen = [node.name]
    while node.inside is not None:
        if node.inside in seen:
            raise UserError(f"nodes are placed inside each other: {' in '.join([*seen, node.inside])}", code="E10")
        node = graph.node(node.inside)
        seen.append(node.name)
        index = index if index < node.count and node.count > 1 else 0
    return f"{node.name}/{index}"


def bound_ends(graph: Graph, plan: ProcessPlan, data: Mapping[str, Any]) -> list[BoundEnd]:
    """The ends in a `bound` message."""
    seats = {seat.name: seat for seat in plan.seats}
    return [
        BoundEnd(
            process=plan.name,
            worker=worker,
            port=port,
            stream=graph.node(seats[worker].node).ports[port],
            side=end["side"],
            address=end["address"],
            slots=end["slots"],
            incarnation=seats[worker].incarnation,
        )
        for worker, ports in data.items()
        for port, end in ports.items()
    ]


def peers_of(graph: Graph, ends: Iterable[BoundEnd], vias: Mapping[str, str]) -> dict[str, list[tuple[BoundEnd, BoundEnd]]]:
    """Process -> (own end, peer end), for every pair that must be attached."""
    by_stream: dict[str, list[BoundEnd]] = {}
    for end in ends:
        by_stream.setdefault(end.stream, []).append(end)
    found: dict[str, list[tuple[BoundEnd, BoundEnd]]] = {}
    for name, members in by_stream.items():
        if graph.stream(name).route == "nobody":
            continue
        inside = vias[name] == "inproc"
        many = [end for end in members if end.side in _MANY]
        few = [end for end in members if end.side not in _MANY]
        for one in many:
            for other in few:
                if inside and one.process != other.process:
                    continue
                found.setdefault(one.process, []).append((one, other))
                found.setdefault(other.process, []).append((other, one))
    return found


def attachments(pairs: Iterable[tuple[BoundEnd, BoundEnd]]) -> dict[str, dict[str, list[Peer]]]:
    """Worker -> port -> peers: the content of a `peers` message."""
    lists: dict[str, dict[str, list[Peer]]] = {}
    for own, other in pairs:
        peer = Peer(other.name, other.address)
        lists.setdefault(own.worker, {}).setdefault(own.port, []).append(peer)
    return lists
