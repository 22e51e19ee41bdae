"""The loop of one process: it makes, attaches, polls (in graph order), drains and closes the workers.

`ProcessAgent` (workers/process.py) and sessions call it; it does not know whether it runs in a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from srl.core.errors import RunError
from srl.core.tree import Tree, build
from srl.core.types import BoundEnd, Counts, WorkerId
from srl.graph.spec import Graph
from srl.plan.specs import Derived
from srl.streams.open import open_end
from srl.streams.peers import End
from srl.streams.transport import Network
from srl.streams.wakeup import Wakeup
from srl.workers.base import Context, Resumable, Worker
from srl.workers.messages import WorkerReport


class WorkerLoop:
    """All workers of one process."""

    def __init__(
        self,
        graph: Graph,
        derived: Derived,
        ids: Sequence[WorkerId],
        *,
        folder: Path | None = None,
        resume: Path | None = None,
        inline: bool = False,
        network: Network | None = None,
    ) -> None:
        self.wakeup = Wakeup()
        self.workers: dict[str, Worker] = {}
        self._resumable: dict[str, Resumable] = {}
        self.at_fault = ""
        """The worker that was running when something was raised."""
        self._graph, self._derived, self._inline = graph, derived, inline
        self._folder, self._resume, self._network = folder, resume, network
        self._ids = list(ids)
        self._nodes = {worker_id.name: graph.node(worker_id.node) for worker_id in ids}
        self._ends: dict[str, dict[str, End]] = {}
        self._busy: dict[str, float] = {}
        self._barriers = 0
        self._unsaved = True
        for worker_id in self._ids:
            self.at_fault = worker_id.name
            self._ends[worker_id.name] = self._open_ends(worker_id.name, worker_id.index)

    @property
    def nice(self) -> int:
        """The priority that this process should have: its most urgent worker's."""
        return min((node.kind.nice for node in self._nodes.values()), default=0)

    # bind, attach, make -------------------------------------------------------------------------------------------

    def bound(self) -> tuple[BoundEnd, ...]:
        """All ends of this process, for the peers to attach."""
        return tuple(
            BoundEnd(
                stream=self._nodes[worker].ports[port],
                worker=worker,
                port=port,
                side=self._nodes[worker].port(port).side,
                address=(address := dict(end.address())),
                slots=int(address.get("slots", 0)),
            )
            for worker, ends in self._ends.items()
            for port, end in ends.items()
        )

    def attach(self, peers: Mapping[str, Mapping[str, Sequence[BoundEnd]]]) -> None:
        """Worker -> port -> peers."""
        for worker, ports in peers.items():
            self.at_fault = worker
            for port, others in ports.items():
                for peer in others:
                    self._ends[worker][port].attach(peer.name, peer.address)

    def detach(self, gone: Sequence[str], reason: str) -> dict[str, Counts]:
        """Forget these peer ends (by end name) wherever they are attached; what our ends know of their last counts."""
        known = {name: Counts() for name in gone}
        for ends in self._ends.values():
            for end in ends.values():
                for name in gone:
                    known[name].add(end.detach(name, reason))
        return known

    def lose(self, gone: Sequence[str]) -> None:
        """Tell all ends that the processes of these peer ends have ended. It may be called while a worker waits for one of them
        in the middle of its poll, in which `detach` must wait."""
        for ends in self._ends.values():
            for end in ends.values():
                for name in gone:
                    end.lose(name)

    def make(self) -> None:
        """Build the workers: the slow part (envs, torch), after `bound` has been sent."""
        for worker_id in self._ids:
            self.at_fault = worker_id.name
            node = self._nodes[worker_id.name]
            context = Context(
                graph=self._graph,
                derived=self._derived,
                node=node,
                index=worker_id.index,
                incarnation=worker_id.incarnation,
                folder=self._folder,
                resume=self._resume,
                inline=self._inline,
                deliver=None if self._inline else self.wakeup.deliver,
                rest=None if self._inline else self.wakeup.wait,
                watch=None if self._inline else self.wakeup.watch,
            )
            self.workers[worker_id.name] = node.kind(node.loaded, self._ends[worker_id.name], context)
            self._busy[worker_id.name] = 0.0
        self._resumable = {name: worker for name, worker in self.workers.items() if isinstance(worker, Resumable)}
        if self._inline and self._resume is not None:
            self._restore(self._resume)

    # run ----------------------------------------------------------------------------------------------------------

    def sweep(self) -> int:
        """Deliver messages and poll every worker once; how much was done."""
        name, before = "", time.perf_counter()
        done = self.wakeup.deliver()  # counts as work of the worker that goes on because of it
        try:
            for name, worker in self.workers.items():
                work = worker.poll()
                if work:
                    now = time.perf_counter()
                    self._busy[name] += now - before
                    before = now
                    done += work
        except BaseException:
            self.at_fault = name
            raise
        if self._inline:
            self._unsaved |= done > 0
            if any(worker.at_barrier() for worker in self._resumable.values()):
                self.barrier()
        return done

    def wait(self, longest: float) -> None:
        """Sleep after an idle sweep. If every end is in this process, nothing can wake it: R03, a deadlock."""
        times = [at for worker in self.workers.values() if (at := worker.wake_at()) is not None]
        if not times and not self.wakeup.outside and not self.finished:
            waits = [(name, "; ".join(map(str, worker.waits())) or "nothing") for name, worker in self.workers.items()]
            raise RunError("every worker waits and nothing can wake them", *waits, code="R03")
        rest = min([longest, *(max(0.0, at - time.monotonic()) for at in times)])
        self.wakeup.wait(rest)

    @property
    def finished(self) -> bool:
        """True when any worker has reached the end of the run's task."""
        return any(worker.finished for worker in self.workers.values())

    def reports(self) -> dict[str, WorkerReport]:
        """The report of every worker. Means are reset."""
        return {
            name: WorkerReport(
                reading=worker.metrics(),
                busy=self._busy[name],
                waits=worker.waits(),
                finished=worker.finished,
                counts={port: end.counts.copy() for port, end in self._ends[name].items()},
            )
            for name, worker in self.workers.items()
        }

    # end ----------------------------------------------------------------------------------------------------------

    def conclude(self, seconds: float) -> None:
        """The run ends normally: let every worker do its last work, such as an evaluation."""
        for worker in self.workers.values():
            worker.conclude(seconds)

    def drain(self) -> bool:
        """Ask every worker to finish open work; True when all have."""
        self.wakeup.deliver()
        drained = [worker.drain() for worker in self.workers.values()]  # all of them, even if one has not
        self._unsaved |= not all(drained)
        return all(drained)

    def save(self) -> None:
        """Let every worker write its last checkpoint. Inline this is a barrier, unless nothing happened since the last one."""
        if self._inline:
            if self._unsaved:
                self.barrier()
            return
        for name, worker in self.workers.items():
            self.at_fault = name
            worker.save()

    def barrier(self) -> None:
        """Inline: drop everything in flight and write the state of every worker, so that a resume continues exactly from here."""
        self._barriers += 1
        for name, worker in self._resumable.items():
            self.at_fault = name
            worker.barrier(self._barriers)
        states: dict[str, Tree] = {name: state for name, worker in self._resumable.items() if (state := worker.state())}
        states["host"] = {"barriers": np.array(self._barriers)}
        for name, worker in self._resumable.items():
            self.at_fault = name
            worker.checkpoint(states)
        self._unsaved = False

    def close(self) -> None:
        """Close workers, ends and wakeup. Idempotent."""
        for worker in self.workers.values():
            worker.close()
        for ends in self._ends.values():
            for end in ends.values():
                end.close()
        self.wakeup.close()

    def _restore(self, run: Path) -> None:
        """Restore what `barrier` wrote beside the newest checkpoint."""
        from srl.store.checkpoint import using

        path, states = _saved_states(run, self._graph)
        with using(path):
            for name, worker in self._resumable.items():
                self.at_fault = name
                own = {key.removeprefix(f"{name}/"): leaf for key, leaf in states.items() if key.startswith(f"{name}/")}
                if own:
                    worker.restore(build(own))
            if states:
                self._barriers = int(states["host/barriers"])

    def _open_ends(self, worker: str, index: int) -> dict[str, End]:
        node = self._nodes[worker]
        args = node.loaded
        return {
            port: open_end(
                self._derived.streams[stream],
                node.port(port).side,
                name=f"{stream}:{worker}",
                wakeup=self.wakeup,
                network=self._network,
                **node.kind.sizes(args, port, self._graph),
            )
            for port, stream in node.ports.items()
            if index == 0 or not node.port(port).first
        }


def checkpoint_folders(run: Path, graph: Graph) -> list[Path]:
    """Where the checkpoints of all policies of a run are."""
    from srl.store.weights import checkpoint_folder

    return [checkpoint_folder(run, graph.policies, policy) for policy in graph.learning] or [run / "checkpoints"]


def _saved_states(run: Path, graph: Graph) -> tuple[Path, Mapping[str, Any]]:
    """The checkpoint of the latest barrier, and its group `workers`; the run and nothing if there was none."""
    from srl.store.checkpoint import latest, read, using

    found: list[tuple[int, Path, Mapping[str, Any]]] = []
    for place in checkpoint_folders(run, graph):
        path = latest(place)
        if path is not None and (states := read(path).groups.get("workers")):
            with using(path):
                found.append((int(states["host/barriers"]), path, states))
    return max(found, key=lambda one: one[0])[1:] if found else (run, {})
