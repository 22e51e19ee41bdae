"""The processes of a run as the controller knows them: the phase of each, and which ends are connected."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from srl.control.lifecycle import OPPOSITE, BoundEnd, ProcessPlan, attachments, peers_of, plan_processes
from srl.graph.spec import Graph
from srl.workers.loop import Peer
from srl.workers.messages import Message

Phase = Literal["starting", "bound", "made", "ready", "running", "drained", "gone"]


@dataclass(slots=True)
class Member:
    """One process."""

    plan: ProcessPlan
    phase: Phase = "starting"
    incarnation: int = 0
    ends: list[BoundEnd] = field(default_factory=list)
    failure: Message | None = None
    """The `failed` message that came before its exit."""

    @property
    def workers(self) -> list[str]:
        return [seat.name for seat in self.plan.seats]

    @property
    def learns(self) -> bool:
        """Whether it takes samples or gives out parameters: then it may have something to save."""
        return any(end.side in ("consumer", "publisher") for end in self.ends)


class Members(dict[str, Member]):
    """All of them by name, in the order of the graph."""

    def __init__(self, graph: Graph, incarnation: int) -> None:
        super().__init__({plan.name: Member(plan, incarnation=incarnation) for plan in plan_processes(graph, incarnation)})
        self._graph = graph

    @property
    def phases(self) -> dict[str, Phase]:
        return {name: member.phase for name, member in self.items()}

    def of(self, phase: Phase) -> list[Member]:
        """The processes in this phase."""
        return [member for member in self.values() if member.phase == phase]

    def alive(self) -> list[Member]:
        """The processes that have not ended."""
        return [member for member in self.values() if member.phase != "gone"]

    def new_connections(self, new: Collection[Member], vias: Mapping[str, str]) -> dict[str, dict[str, dict[str, list[Peer]]]]:
        """Process -> the peers to attach: the new ends to all others, and all others to the new ones."""
        fresh = {member.plan.name for member in new}
        pairs = peers_of(self._graph, [end for member in self.values() for end in member.ends], vias)
        due = {name: [(end, peer) for end, peer in own if fresh & {name, peer.process}] for name, own in pairs.items()}
        return {name: attachments(own) for name, own in due.items() if own}

    def observers(self, dead: Member) -> dict[str, set[str]]:
        """Each end of a process that died without its last counts -> the processes that know a part of them."""
        others = [end for other in self.values() if other is not dead for end in other.ends]
        return {
            own.name: {end.process for end in others if end.stream == own.stream and end.side == OPPOSITE[own.side]}
            for own in dead.ends
        }
