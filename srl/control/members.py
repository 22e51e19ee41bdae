"""The processes of a run as the controller knows them: the phase of each, and which ends of streams are connected."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal

from srl.core.types import SIDES, BoundEnd, WorkerId
from srl.graph.placement import feeds, fetches, workers_by_process
from srl.graph.spec import Graph
from srl.workers.messages import Message, Peers

Phase = Literal["absent", "starting", "bound", "made", "ready", "running", "drained", "gone"]

_OPPOSITE = {one: other for pair in SIDES.values() for one, other in (pair, pair[::-1])}


@dataclass(slots=True)
class Member:
    """One process."""

    name: str
    """Name of its first worker, or of the worker that the others are placed inside of."""
    workers: tuple[WorkerId, ...]
    phase: Phase = "starting"
    ends: tuple[BoundEnd, ...] = ()
    failure: Message | None = None
    """The `failed` message that came before its exit."""
    doomed: bool = False
    """Killed because it must start again together with another process."""

    @property
    def owner(self) -> WorkerId:
        """The worker that it is named after."""
        return next(worker for worker in self.workers if worker.name == self.name)

    @property
    def learns(self) -> bool:
        """Whether it consumes samples or publishes parameters, so that it may have something to save."""
        return any(end.side in ("consumer", "publisher") for end in self.ends)

    def renew(self, incarnation: int) -> None:
        """Make its workers those of this incarnation."""
        self.workers = tuple(replace(worker, incarnation=incarnation) for worker in self.workers)


class Members(dict[str, Member]):
    """All processes by name, in the order of the graph."""

    def __init__(self, graph: Graph, incarnation: int = 0) -> None:
        super().__init__({name: Member(name, workers) for name, workers in workers_by_process(graph, incarnation).items()})
        self._graph = graph
        self._fed = {
            stream.name: {
                (f"{producer}/{i}", f"{consumer}/{k}")
                for (consumer, k), producers in feeds(graph, stream.name).items()
                for producer, i in producers
            }
            for stream in graph.streams
            if stream.kind == "sample"
        } | {
            stream.name: {(f"{source[0]}/{source[1]}", f"{name}/{index}") for (name, index), source in found.items()}
            for stream in graph.streams
            if stream.kind == "param" and (found := fetches(graph, stream.name))
        }
        """Stream -> which producer feeds which consumer, or which publisher which subscriber."""

    @property
    def phases(self) -> dict[str, Phase]:
        return {name: member.phase for name, member in self.items()}

    def of(self, phase: Phase) -> list[Member]:
        """The processes in this phase."""
        return [member for member in self.values() if member.phase == phase]

    def undrained(self, *, concluding: bool = False) -> list[Member]:
        """Those that the end of the run waits for, or only those that have work of their own to do then."""
        wanted = attrgetter("concludes" if concluding else "drains")
        return [one for one in self.of("running") if any(wanted(self._graph.node(worker.node).kind) for worker in one.workers)]

    def alive(self) -> list[Member]:
        """The processes that were started and have not ended."""
        return [member for member in self.values() if member.phase not in ("absent", "gone")]

    def gang(self, member: Member) -> list[Member]:
        """The processes that start again when this one does: itself, and those of workers that do one thing together."""
        nodes = {worker.node for worker in member.workers}
        gangs = {name for name in nodes if self._graph.node(name).kind.gang}
        return [one for one in self.values() if one is member or any(worker.node in gangs for worker in one.workers)]

    def new_connections(self, new: Collection[Member], vias: Mapping[str, str]) -> dict[str, Peers]:
        """Process -> what it attaches: the new ends to all others, and all others to the new ones."""
        found: dict[str, Peers] = {}
        sides: dict[tuple[str, str], list[tuple[Member, BoundEnd]]] = {}
        for member in self.values():
            for end in member.ends:
                if self._graph.stream(end.stream).route != "drop":
                    sides.setdefault((end.stream, end.side), []).append((member, end))
        for (stream, side), ends in sides.items():
            for own, end in ends:
                for other, peer in sides.get((stream, _OPPOSITE[side]), ()):
                    if (own in new or other in new) and (own is other or vias[stream] != "inproc") and self._joined(end, peer):
                        found.setdefault(own.name, {}).setdefault(end.worker, {}).setdefault(end.port, []).append(peer)
        return found

    def _joined(self, end: BoundEnd, peer: BoundEnd) -> bool:
        """Two ends on opposite sides of one stream talk to each other."""
        fed = self._fed.get(end.stream)
        pair = (end.worker, peer.worker) if end.side in ("producer", "publisher") else (peer.worker, end.worker)
        return pair in fed if fed is not None else end.worker != peer.worker

    def observers(self, dead: Member) -> dict[str, set[str]]:
        """Each end of a process that died without its last counts -> the processes that know a part of them."""
        others = [(other.name, end) for other in self.values() if other is not dead for end in other.ends]
        return {
            own.name: {name for name, end in others if end.stream == own.stream and end.side == _OPPOSITE[own.side]}
            for own in dead.ends
        }
