"""`srl.build("cartpole")`: a run without processes, stepped by hand in a notebook or a debugger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from srl.control.lifecycle import attachments, bound_ends, peers_of, plan_processes
from srl.core.errors import UserError
from srl.core.readings import Reading
from srl.graph.spec import Graph
from srl.plan.derive import derive
from srl.plan.specs import Derived
from srl.workers.base import Worker
from srl.workers.loop import WorkerLoop

_IDLE = 1000
"""Sweeps without work after which somebody must be waiting for a clock."""


def build(experiment: str | Path | None = None, *, overrides: Sequence[str] = (), **settings: Any) -> Session:
    """The workers of an experiment in this process, ready to `step`. Nothing is written to disk."""
    from srl.plan.prepare import prepare

    prepared = prepare(experiment, [*overrides, "mode=inline"], settings=settings, look=False)
    return Session(prepared.graph)


class Session:
    """All workers of a graph, inline. Errors are raised where they happen."""

    def __init__(self, graph: Graph, derived: Derived | None = None) -> None:
        self.graph = replace(graph, mode="inline")
        self.derived = derived or derive(self.graph)
        self.totals: dict[str, float] = {}
        """What the workers have counted: env_steps, updates, ..."""
        self.means: dict[str, float] = {}
        """Means of what they reported in the last `step`."""
        self.batch: Any = None
        """What the first trainer learned from last."""
        self._loop = _connected(self.graph, self.derived)
        if self._trainers:
            self._keep_batches()

    def step(self, updates: int = 1) -> Mapping[str, float]:
        """Go on until so many more updates are made (without a trainer: sweeps that did work); the means of that time."""
        start, idle, swept = self._updates, 0, 0
        while not self._loop.finished:
            done = self._loop.sweep()
            swept += done > 0
            idle = 0 if done else idle + 1
            if not done:
                self._loop.wait(0.1)
            if idle > _IDLE:
                break
            if (self._updates - start if self._trainers else swept) >= updates:
                break
        self._take()
        return self.means

    @property
    def finished(self) -> bool:
        """True at the stop condition."""
        return self._loop.finished

    @property
    def workers(self) -> Mapping[str, Worker]:
        """`node/index` -> worker."""
        return self._loop.workers

    @property
    def algorithm(self) -> Any:
        """The algorithm of the first trainer."""
        if not self._trainers:
            raise UserError("this session has no trainer", ("workers", ", ".join(self._loop.workers)))
        return self._trainers[0].learner.algorithm

    def close(self) -> None:
        """Give everything back. Idempotent."""
        self._loop.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _trainers(self) -> list[Any]:
        return [worker for worker in self._loop.workers.values() if hasattr(worker, "learner")]

    @property
    def _updates(self) -> float:
        return float(sum(worker.updates for worker in self._trainers))

    def _keep_batches(self) -> None:
        algorithm = self.algorithm
        update = algorithm.update

        def kept(batch: Any) -> Any:
            self.batch = batch
            return update(batch)

        algorithm.update = kept

    def _take(self) -> None:
        reading = Reading()
        for report in self._loop.reports().values():
            reading.merge(report.reading)
        self.totals = reading.shown("count", "gauge", "min", "max")
        self.means = reading.shown("mean", "spread", "episode", "point")


def _connected(graph: Graph, derived: Derived) -> WorkerLoop:
    """All workers of a graph, attached and made, in this process."""
    (plan,) = plan_processes(graph)
    loop = WorkerLoop(graph, derived, plan.seats, inline=True)
    vias = {name: spec.via for name, spec in derived.streams.items()}
    pairs = peers_of(graph, bound_ends(graph, plan, loop.bound()), vias)
    loop.attach(attachments(pairs.get(plan.name, [])))
    loop.make()
    return loop
