"""Simulated cores: one that a process has for itself, and several that processes share as under Linux."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

_WEIGHT = 1024 / 110
"""Of a trainer beside an actor: those of Linux for a niceness of 0 and of 10."""
_BALANCE = 0.032
"""Seconds between two looks of Linux at the queues of two busy cores."""


class Clock(Protocol):
    """What a core needs of the simulation."""

    now: float

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Call this at that time."""


@dataclass(slots=True)
class _Job:
    left: float
    """Seconds of a core."""
    weight: float
    process: Hashable
    done: Callable[[], None]


class Pool:
    """Cores that processes share as under Linux: each core has a queue of its own, in which trainers have a greater weight.

    A core that becomes idle takes a job from another; apart from that, jobs change cores seldom.
    """

    def __init__(self, clock: Clock, cores: float) -> None:
        self._clock = clock
        self._queues: list[list[_Job]] = [[] for _ in range(math.ceil(cores))]
        self._speed = cores / len(self._queues)
        self._last: dict[Hashable, int] = {}
        """Process -> the core that it ran on."""
        self._seen = 0.0
        self._stamp = 0
        self.used = 0.0
        if len(self._queues) > 1:
            clock.at(_BALANCE, self._balance)

    def run(self, work: float, process: Hashable, done: Callable[[], None], *, high: bool = False) -> None:
        """Call `done` when this process has spent so many seconds of one core."""
        self._advance()
        core = self._last.get(process, len(self._last) % len(self._queues))
        if self._queues[core]:
            core = next((other for other, queue in enumerate(self._queues) if not queue), core)
        self._add(core, _Job(work, _WEIGHT if high else 1.0, process, done))
        self._plan()

    def _add(self, core: int, job: _Job) -> None:
        self._last[job.process] = core
        self._queues[core].append(job)

    def _advance(self) -> None:
        passed, self._seen = self._clock.now - self._seen, self._clock.now
        for queue in self._queues:
            for job, rate in self._rates(queue):
                job.left -= passed * rate
                self.used += passed * rate

    def _rates(self, queue: list[_Job]) -> list[tuple[_Job, float]]:
        weights = sum(job.weight for job in queue)
        return [(job, self._speed * job.weight / weights) for job in queue]

    def _plan(self) -> None:
        self._stamp += 1
        due = min((job.left / rate for queue in self._queues for job, rate in self._rates(queue)), default=math.inf)
        if due < math.inf:
            stamp = self._stamp
            self._clock.at(self._clock.now + max(0.0, due), lambda: self._due(stamp))

    def _due(self, stamp: int) -> None:
        if stamp != self._stamp:
            return
        self._advance()
        ended = []
        for queue in self._queues:
            ended += [job for job in queue if job.left <= 1e-12]
            queue[:] = [job for job in queue if job.left > 1e-12]
        for job in ended:
            job.done()
        for core, queue in enumerate(self._queues):
            longest = max(self._queues, key=len)
            if not queue and len(longest) > 1:
                self._move(longest, core)
        self._plan()

    def _balance(self) -> None:
        """Now and then a job leaves a core whose weight is greater by more than its own."""
        self._advance()
        weights = [sum(job.weight for job in queue) for queue in self._queues]
        least, most = weights.index(min(weights)), self._queues[weights.index(max(weights))]
        if len(most) > 1 and max(weights) - min(weights) > min(job.weight for job in most):
            self._move(most, least)
        self._plan()
        self._clock.at(self._clock.now + _BALANCE, self._balance)

    def _move(self, queue: list[_Job], core: int) -> None:
        """The job with the least weight to this core."""
        job = min(queue, key=lambda job: job.weight)
        queue.remove(job)
        self._add(core, job)


class Core:
    """A core that nobody else wants: a simple queue."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free = 0.0
        self.used = 0.0

    def run(self, work: float, process: Hashable, done: Callable[[], None], *, high: bool = False) -> None:
        self._free = max(self._clock.now, self._free) + work
        self.used += work
        self._clock.at(self._free, done)
