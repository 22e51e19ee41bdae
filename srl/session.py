"""`srl.build("cartpole")`: a run without processes, stepped by hand in a notebook or a debugger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from srl.control.backend import InlineBackend
from srl.control.controller import Controller
from srl.core.errors import UserError
from srl.core.readings import Reading
from srl.graph.spec import Graph
from srl.plan.derive import derive, with_streams
from srl.plan.specs import Derived
from srl.workers.base import Worker
from srl.workers.loop import WorkerLoop

_IDLE = 1000
"""Sweeps without work after which a step ends."""


def build(experiment: str | Path | None = None, *, overrides: Sequence[str] = (), **settings: Any) -> Session:
    """The workers of an experiment in this process, ready to `step`. Writes nothing to disk."""
    from srl.plan.prepare import prepare

    prepared = prepare(experiment, [*overrides, "mode=inline"], settings=settings, inspect=False)
    derived = derive(prepared.graph)
    return Session(prepared.fitted(derived).graph, derived)


class Session:
    """All workers of a graph, inline. Errors are raised where they happen."""

    def __init__(self, graph: Graph, derived: Derived | None = None) -> None:
        self.graph = replace(graph, mode="inline")
        self.derived = derive(self.graph) if derived is None else with_streams(self.graph, derived)
        self.totals: dict[str, float] = {}
        """Counts since the start: env_steps, updates, ..."""
        self.means: dict[str, float] = {}
        """Means of what they reported in the last `step`."""
        self.batch: Any = None
        """The last batch of the first trainer."""
        self._backend = InlineBackend(raises=True)
        try:
            Controller(self.graph, derived=self.derived, backend=lambda: self._backend).open()
        except BaseException:
            self._backend.close()
            raise
        if self._trainers:
            update = self.algorithm.update

            def kept(batch: Any) -> Any:
                self.batch = batch
                return update(batch)

            self.algorithm.update = kept

    def step(self, updates: int = 1) -> Mapping[str, float]:
        """Run until so many more updates are made (without a trainer: so many sweeps that did something).

        Returns the means of that time.
        """
        start, idle, swept = self._updates, 0, 0
        while not self.finished and idle <= _IDLE:
            done = self._backend.sweep()
            swept += done > 0
            idle = 0 if done else idle + 1
            if (self._updates - start if self._trainers else swept) >= updates:
                break
        reading = Reading()
        for report in self._loop.reports().values():
            reading.merge(report.reading)
        self.totals = reading.shown("count", "gauge", "min", "max")
        self.means = reading.shown("mean", "spread", "episode", "point")
        return self.means

    @property
    def finished(self) -> bool:
        """Whether a stop condition is reached."""
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
        """Close workers and streams. Idempotent."""
        self._backend.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _loop(self) -> WorkerLoop:
        agent = self._backend.agent
        assert agent is not None and agent.loop is not None
        return agent.loop

    @property
    def _trainers(self) -> list[Any]:
        return [worker for worker in self._loop.workers.values() if hasattr(worker, "learner")]

    @property
    def _updates(self) -> float:
        return float(sum(worker.updates for worker in self._trainers))
