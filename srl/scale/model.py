"""A simulation of a run: actors on many hosts, each with its policy, and trainers that make their updates together.

Every slab is simulated: its credit, the version it may start with, its way over two network cards, and the processor time that it
takes at both ends. Processes share the cores of their host as under Linux, where trainers have the higher priority.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

from srl.scale.cores import Core, Pool


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds of one core, and of waiting."""

    act: float
    """An env step and the actions for it."""
    train: float
    """All epochs over one env step, on one trainer."""
    put: float
    """The actor's part of handing over a slab: written, encrypted, sent."""
    take: float
    """The trainer's part: received, decrypted, copied into the batch."""
    publish: float
    """The trainer's part of sending one version to one subscriber."""
    adopt: float
    """What a new version costs a policy."""
    idle: float = 0.0
    """Seconds of an env step in which the actor needs no core: its env waits, for another program say."""
    spread: float = 0.05
    """Standard deviation of the time of a slab, as a part of it."""

    def acting(self, slab_steps: int) -> float:
        """What an env step costs an actor, with its part of a slab and of a version."""
        return self.act + (self.put + self.adopt) / slab_steps

    def training(self, slab_steps: int) -> float:
        """The same of the trainer."""
        return self.train + (self.take + self.publish) / slab_steps

    def times(self, acting: float, training: float) -> Costs:
        """So many times as high."""
        actor = {name: getattr(self, name) * acting for name in ("act", "put", "adopt")}
        trainer = {name: getattr(self, name) * training for name in ("train", "take", "publish")}
        return replace(self, **actor, **trainer)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What runs where, and the network."""

    hosts: int
    actors: int
    """On each host."""
    cores: float
    """Of each host; of this machine, if all hosts are this machine."""
    envs: int
    """Of one actor, in `groups` groups."""
    steps: int
    groups: int = 1
    trainers: int = 1
    staleness: int = 1
    optimizer_steps: int = 1
    """Of one update: trainers add up their gradients in each of them."""
    slab_bytes: float
    param_bytes: float
    bandwidth: float = 1.25e9
    """Bytes per second of a network card, in each direction."""
    latency: float = 1e-4
    together: bool = False
    """All hosts and trainers share the cores of one machine."""
    pullers: bool = True
    """Each host fetches a version once."""
    fan_out: int = 0
    """Hosts pass versions on to so many others; 0: all fetch them from the trainer."""

    @property
    def slabs(self) -> int:
        """Of one update, over all trainers."""
        return self.hosts * self.actors * self.groups

    @property
    def slab_steps(self) -> int:
        return self.steps * self.envs // self.groups

    @property
    def fetchers(self) -> int:
        """Who fetches a version over the network."""
        return self.hosts if self.pullers else self.hosts * self.actors

    def delay(self, host: int) -> float:
        """Seconds from the publication of a version until this host has it, on an otherwise idle network."""
        once = self.param_bytes / self.bandwidth
        if self.together:
            return 0.0  # what it costs is processor time
        if not self.fan_out:
            per_host = 1 if self.pullers else self.actors
            return (host + 1) * per_host * once + self.latency
        depth = 1
        while host >= self.fan_out**depth:  # hosts are numbered by their level
            host -= self.fan_out**depth
            depth += 1
        return depth * (self.fan_out * once + self.latency)


@dataclass(slots=True)
class Outcome:
    """What was measured between the first and the last simulated update."""

    rate: float
    """Env steps per second."""
    updates: float
    """Per second."""
    actors_wait_credit: float
    """Part of the time of an actor."""
    actors_wait_version: float
    trainers_wait: float
    """Part of the time of a trainer, for slabs."""
    sums: float
    """Part of the time of a trainer in which gradients are on their way."""
    staleness: float
    """Mean age of a slab in updates."""
    nic_in: float
    """Part of the time in which the network card of a trainer receives."""
    nic_out: float
    """Part of the time in which it sends versions."""
    cpu: float
    """Part of the processor time of the trainers, or of the one machine, that was used."""


@dataclass(slots=True)
class _Trainer:
    cpu: Pool | Core
    tasks: deque[tuple[float, Callable[[], None]]] = field(default_factory=deque)
    running: bool = False
    arrived: dict[int, int] = field(default_factory=dict)
    """Batch -> slabs of it that are there."""
    issued: int = 0
    given: int = 0
    asking: deque[Callable[[int], None]] = field(default_factory=deque)
    receiving: float = 0.0
    """Until when its network card is busy."""
    received: float = 0.0
    busy: float = 0.0


class Simulation:
    """One run from its start. `run` simulates so many updates."""

    def __init__(self, costs: Costs, setup: Setup, seed: int = 0) -> None:
        self.costs, self.setup = costs, setup
        self.now = 0.0
        self.order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self.random = random.Random(seed)
        self._all = Pool(self, setup.cores) if setup.together else None
        self._trainers = [_Trainer(self._all or Core(self)) for _ in range(setup.trainers)]
        self._own = setup.slabs // setup.trainers
        self._updates = 0
        self._training = 0
        self._published = [0.0]
        self._publishing = 0.0
        self._stale = [0, 0]
        self._waited = {"credit": 0.0, "version": 0.0}
        self._sent = [0.0] * setup.hosts
        self._summing = 0.0

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self.order), what))

    def run(self, updates: int, warm: int = 3) -> Outcome:
        """The means over the updates after the first few."""
        for host in range(self.setup.hosts):
            alone = self.setup.actors <= self.setup.cores
            pool = self._all or (None if alone else Pool(self, self.setup.cores))
            for actor in range(self.setup.actors):
                cpu = pool or Core(self)
                for group in range(self.setup.groups):
                    index = (host * self.setup.actors + actor) * self.setup.groups + group
                    self._ask(index, host, cpu)
        self._issue()
        begun = marks = None
        while self._updates < warm + updates:
            if begun is None and self._updates >= warm:
                begun, marks = self.now, self._marks()
            self.now, _, what = heapq.heappop(self._events)
            what()
        assert begun is not None and marks is not None
        passed = self.now - begun
        spent = [after - before for after, before in zip(self._marks(), marks, strict=True)]
        setup, each = self.setup, passed * self.setup.trainers
        actors = passed * setup.slabs
        cores = setup.cores if setup.together else setup.trainers
        done = self._updates - warm
        return Outcome(
            rate=done * setup.slabs * setup.slab_steps / passed,
            updates=done / passed,
            actors_wait_credit=spent[0] / actors,
            actors_wait_version=spent[1] / actors,
            trainers_wait=max(0.0, 1 - spent[2] / each - spent[6] / passed),
            sums=spent[6] / passed,
            staleness=spent[4] / max(1, spent[5]),
            nic_in=spent[3] / each,
            nic_out=min(1.0, done * self._fan() * setup.param_bytes / setup.bandwidth / passed),
            cpu=spent[7] / (cores * passed),
        )

    def _fan(self) -> int:
        """How often a version leaves a trainer."""
        return min(self.setup.fan_out or self.setup.fetchers, self.setup.fetchers)

    def _marks(self) -> list[float]:
        used = self._all.used if self._all is not None else sum(one.cpu.used for one in self._trainers)
        return [
            self._waited["credit"],
            self._waited["version"],
            sum(one.busy for one in self._trainers),
            sum(one.received for one in self._trainers),
            self._stale[0],
            self._stale[1],
            self._summing,
            used,
        ]

    # actors -----------------------------------------------------------------------------------------------------------

    def _ask(self, index: int, host: int, cpu: Pool | Core) -> None:
        """A group wants a credit for its next slab."""
        trainer, asked = self._trainers[index % self.setup.trainers], self.now

        def credited(number: int) -> None:
            self._waited["credit"] += self.now - asked
            batch = number // self._own
            needs = max(0, batch - self.setup.staleness)
            there = self._published[needs] + self.setup.delay(host)
            answered = self._answer(trainer)
            wait = max(0.0, there - self.now - answered)
            self._waited["credit"] += answered
            self._waited["version"] += wait
            self.at(self.now + answered + wait, lambda: self._act(index, host, cpu, trainer, batch))

        trainer.asking.append(credited)
        self._give(trainer)

    def _answer(self, trainer: _Trainer) -> float:
        """Seconds from a request to its credit: a trainer looks between two minibatches."""
        seconds = 2 * self.setup.latency
        if trainer.running and self._training:
            update = self._own * self.setup.slab_steps * self.costs.train
            seconds += self.random.random() * update / self.setup.optimizer_steps
        return seconds

    def _act(self, index: int, host: int, cpu: Pool | Core, trainer: _Trainer, batch: int) -> None:
        version = self._newest(host)
        noise = max(0.5, self.random.gauss(1.0, self.costs.spread))
        work = self.setup.slab_steps * self.costs.act * noise + self.costs.put
        work += self.costs.adopt / self.setup.groups

        idle = self.setup.slab_steps * self.costs.idle * noise
        parts = self.setup.steps if idle else 1  # an actor that sleeps between its steps finds a core soon when it wakes up

        def advance(left: int) -> None:
            if left:
                cpu.run(work / parts, index, lambda: self.at(self.now + idle / parts, lambda: advance(left - 1)))
            else:
                self._send(host, trainer, batch, version)
                self._ask(index, host, cpu)

        advance(parts)

    def _newest(self, host: int) -> int:
        delay, version = self.setup.delay(host), self._updates
        while version and self._published[version] + delay > self.now:
            version -= 1
        return version

    def _send(self, host: int, trainer: _Trainer, batch: int, version: int) -> None:
        if self.setup.together:
            self._queue(trainer, self.costs.take, lambda: self._arrived(trainer, batch, version))
            return
        once = self.setup.slab_bytes / self.setup.bandwidth
        self._sent[host] = max(self.now, self._sent[host]) + once
        trainer.receiving = max(self._sent[host] + self.setup.latency, trainer.receiving) + once
        trainer.received += once
        self.at(
            trainer.receiving,
            lambda: self._queue(trainer, self.costs.take, lambda: self._arrived(trainer, batch, version)),
        )

    # trainers ---------------------------------------------------------------------------------------------------------

    def _queue(self, trainer: _Trainer, work: float, done: Callable[[], None]) -> None:
        """One thing after the other."""
        trainer.tasks.append((work, done))
        if not trainer.running:
            self._next(trainer)

    def _next(self, trainer: _Trainer) -> None:
        trainer.running = bool(trainer.tasks)
        if not trainer.tasks:
            return
        work, done = trainer.tasks.popleft()
        begun = self.now

        def ended() -> None:
            trainer.busy += self.now - begun
            done()
            self._next(trainer)

        trainer.cpu.run(work, id(trainer), ended, high=True)

    def _give(self, trainer: _Trainer) -> None:
        while trainer.asking and trainer.given < trainer.issued:
            credited, number = trainer.asking.popleft(), trainer.given
            trainer.given += 1
            credited(number)

    def _issue(self) -> None:
        for trainer in self._trainers:
            trainer.issued = (self._updates + self.setup.staleness + 1) * self._own
            self._give(trainer)

    def _arrived(self, trainer: _Trainer, batch: int, version: int) -> None:
        trainer.arrived[batch] = trainer.arrived.get(batch, 0) + 1
        self._stale[0] += batch - version
        self._stale[1] += 1
        self._train_if_complete()

    def _train_if_complete(self) -> None:
        """All trainers begin an update together, once each has its part of the batch."""
        update = self._updates
        if self._training or any(one.arrived.get(update, 0) < self._own for one in self._trainers):
            return
        self._training = len(self._trainers)
        for trainer in self._trainers:
            del trainer.arrived[update]
            self._queue(trainer, self._own * self.setup.slab_steps * self.costs.train, self._trained)

    def _trained(self) -> None:
        self._training -= 1
        if self._training:
            return
        setup = self.setup
        sums = 0.0
        if setup.trainers > 1 and not setup.together:  # a ring: every card sends and receives twice what is summed
            once = 2 * setup.param_bytes / setup.bandwidth * (setup.trainers - 1) / setup.trainers
            sums = setup.optimizer_steps * (once + 2 * setup.latency * math.log2(setup.trainers))
        self._summing += sums
        self._training = 1
        self.at(self.now + sums, self._publish)

    def _publish(self) -> None:
        def published() -> None:
            self._training = 0
            self._updates += 1
            self._publishing = max(self.now, self._publishing)
            self._published.append(self._publishing)
            if not self.setup.together:
                self._publishing += self._fan() * self.setup.param_bytes / self.setup.bandwidth
            self._issue()
            self._train_if_complete()

        self._queue(self._trainers[0], self._fan() * self.costs.publish, published)
