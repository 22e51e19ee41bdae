"""The workers of one process: opened, attached, polled in graph order on one bell, drained, closed.

Driven by the control channel (workers/main.py) or, inline, directly. It knows nothing of processes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.core.errors import Deadlock
from srl.core.load import load
from srl.core.registry import REGISTRIES
from srl.graph.derive import Derived
from srl.graph.spec import Graph
from srl.streams.base import Bell, Counts, End
from srl.streams.open import open_bell, open_end
from srl.workers.base import Context, Reading, Worker


@dataclass(frozen=True, slots=True)
class Seat:
    """One worker's place: which worker of which node, and how often it was started."""

    node: str
    index: int
    incarnation: int = 0

    @property
    def name(self) -> str:
        return f"{self.node}/{self.index}"


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a stream, for one of our ends."""

    name: str
    address: Mapping[str, Any]
    incarnation: int


@dataclass(slots=True)
class WorkerReport:
    """What one worker says of itself."""

    reading: Reading
    busy: float
    """Seconds spent in polls that did something, since the start."""
    waits: str
    finished: bool
    counts: Mapping[str, Counts]
    """Port -> totals of its end."""


class Host:
    """All workers of one process."""

    def __init__(
        self,
        graph: Graph,
        derived: Derived,
        seats: Sequence[Seat],
        *,
        folder: Path | None = None,
        resume: Path | None = None,
        inline: bool = False,
        bell: Bell | None = None,
    ) -> None:
        self.bell = bell or open_bell()
        self.workers: dict[str, Worker] = {}
        self._graph, self._derived, self._inline = graph, derived, inline
        self._folder, self._resume = folder, resume
        self._seats = list(seats)
        self._ends: dict[str, dict[str, End]] = {}
        self._busy: dict[str, float] = {}
        self._barriers = 0
        for seat in self._seats:
            self._ends[seat.name] = self._open_ends(seat)

    # bind, attach, make -------------------------------------------------------------------------------------------

    def addresses(self) -> dict[str, dict[str, Mapping[str, Any]]]:
        """Worker -> port -> address: what travels in `bound`."""
        return {worker: {port: end.address() for port, end in ends.items()} for worker, ends in self._ends.items()}

    def attach(self, peers: Mapping[str, Mapping[str, Sequence[Peer]]]) -> None:
        """Worker -> port -> peers."""
        for worker, ports in peers.items():
            for port, others in ports.items():
                for peer in others:
                    self._ends[worker][port].attach(peer.name, peer.address, peer.incarnation)

    def detach(self, gone: Sequence[str], reason: str) -> None:
        """Forget these peer ends (by end name) wherever they are attached."""
        for ends in self._ends.values():
            for end in ends.values():
                for name in gone:
                    end.detach(name, reason)

    def make(self) -> None:
        """Build the workers: the slow part (envs, torch), after `bound` has been sent."""
        for seat in self._seats:
            node = self._graph.node(seat.node)
            kind = REGISTRIES["worker"].resolve(node.worker)
            context = Context(
                graph=self._graph,
                derived=self._derived,
                node=node,
                index=seat.index,
                incarnation=seat.incarnation,
                folder=self._folder,
                resume=self._resume,
                inline=self._inline,
            )
            self.workers[seat.name] = kind(load(kind.Args, node.args), self._ends[seat.name], context)
            self._busy[seat.name] = 0.0

    # run ----------------------------------------------------------------------------------------------------------

    def sweep(self) -> int:
        """Deliver messages and poll every worker once; how much was done."""
        done = self.bell.deliver()
        for name, worker in self.workers.items():
            before = time.perf_counter()
            work = worker.poll()
            if work:
                self._busy[name] += time.perf_counter() - before
                done += work
        return done

    def wait(self, longest: float) -> None:
        """Sleep on the bell after an idle sweep. With ends of this process only, nobody can ring: a deadlock."""
        times = [at for worker in self.workers.values() if (at := worker.wake_at()) is not None]
        if not times and not self.bell.outside and not self.finished:
            waits = [(name, worker.waits() or "nothing") for name, worker in self.workers.items()]
            raise Deadlock("every worker waits and nobody can wake them", *waits)
        rest = min([longest, *(max(0.0, at - time.monotonic()) for at in times)])
        self.bell.wait(rest)

    @property
    def finished(self) -> bool:
        """True when any worker has reached the end of the run's task."""
        return any(worker.finished for worker in self.workers.values())

    def reports(self) -> dict[str, WorkerReport]:
        """What every worker has to say; means start anew."""
        return {
            name: WorkerReport(
                reading=worker.metrics(),
                busy=self._busy[name],
                waits=worker.waits(),
                finished=worker.finished,
                counts={port: end.counts for port, end in self._ends[name].items()},
            )
            for name, worker in self.workers.items()
        }

    # end ----------------------------------------------------------------------------------------------------------

    def drain(self) -> bool:
        """Ask every worker to come to rest; True when all have."""
        self.bell.deliver()
        return all([worker.drain() for worker in self.workers.values()])

    def save(self) -> None:
        """Let every worker write its last checkpoint."""
        for worker in self.workers.values():
            worker.save()

    def close(self) -> None:
        """Close workers, ends and bell. Idempotent."""
        for worker in self.workers.values():
            worker.close()
        for ends in self._ends.values():
            for end in ends.values():
                end.close()
        self.bell.close()

    def _open_ends(self, seat: Seat) -> dict[str, End]:
        node = self._graph.node(seat.node)
        kind = REGISTRIES["worker"].resolve(node.worker)
        args = load(kind.Args, node.args)
        ends: dict[str, End] = {}
        for port, stream in node.ports.items():
            side = kind.ports[port.partition(":")[0]].side
            ends[port] = open_end(
                self._derived.streams[stream],
                side,
                name=f"{stream}:{seat.name}",
                bell=self.bell,
                incarnation=seat.incarnation,
                **kind.slots(args, port, self._graph),
            )
        return ends
