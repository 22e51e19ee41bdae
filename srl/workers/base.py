"""What a worker is: `__init__`, `poll`, `close`, and a few questions that the engine asks it."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from srl.core.spec import TreeSpec
from srl.core.tree import Tree
from srl.graph.derive import Derived, PolicyInfo
from srl.graph.spec import Graph, Node
from srl.streams.base import End, Kind, Side


@dataclass(frozen=True, slots=True)
class Port:
    """One place of a worker where a stream is joined. A graph names it `port`, or `port:policy` where there are several."""

    kind: Kind
    side: Side
    optional: bool = False


@dataclass(slots=True)
class Reading:
    """What a worker reports: totals that only grow, and means since the last report as (sum, number)."""

    totals: dict[str, float] = field(default_factory=dict)
    means: dict[str, tuple[float, float]] = field(default_factory=dict)

    def count(self, name: str, number: float) -> None:
        """Let a total grow."""
        self.totals[name] = self.totals.get(name, 0.0) + number

    def add(self, name: str, value: float, number: float = 1.0) -> None:
        """One more value (or `number` values that add up to `value`) of a mean."""
        total, values = self.means.get(name, (0.0, 0.0))
        self.means[name] = (total + value, values + number)

    def merge(self, other: Reading) -> None:
        """Add another worker's reading to this one."""
        for name, number in other.totals.items():
            self.count(name, number)
        for name, (value, number) in other.means.items():
            self.add(name, value, number)

    def flush(self) -> Reading:
        """What to send now: the totals, and the means, which start anew."""
        sent = Reading(dict(self.totals), self.means)
        self.means = {}
        return sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a worker is told about itself and its run."""

    graph: Graph
    derived: Derived
    node: Node
    index: int
    incarnation: int = 0
    """Grows at every restart of this worker, and at every resume of the run: a trainer's epoch."""
    folder: Path | None = None
    """The run folder; None: nothing is written (`srl.build` without one)."""
    resume: Path | None = None
    """The run folder to go on from: at its latest checkpoint."""
    inline: bool = False
    deliver: Callable[[], int] | None = None
    """Hand over to the ends what other processes sent: for workers whose `poll` takes long. None inline."""
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("srl"))

    @property
    def name(self) -> str:
        """`node/index`."""
        return f"{self.node.name}/{self.index}"


class Worker(ABC):
    """Runs in one thread of one process, polled by its loop; never waits."""

    ports: ClassVar[Mapping[str, Port]]
    """Class level: `check` needs no instance."""
    Args: ClassVar[type]
    """Frozen dataclass; the node's args are loaded into it strictly."""
    nice: ClassVar[int] = 10
    """Priority of a process of such workers where there are more processes than cores. Credits bound those who feed a trainer,
    so they may yield to it; a trainer that yields to them would only let them run into their bound."""
    preload: ClassVar[tuple[str, ...]] = ()
    """Modules that its process imports while the specs are still being derived."""

    def __init__(self, args: Any, ends: Mapping[str, End], context: Context) -> None:
        self.args = args
        self.ends = ends
        self.context = context
        self.reading = Reading()

    @classmethod
    def slots(cls, args: Any, port: str, graph: Graph) -> Mapping[str, int]:
        """Sizes of the end of `port`: `slots` (sample producers), `groups` and `units` (infer clients)."""
        return {}

    @classmethod
    def record(
        cls,
        args: Any,
        port: str,
        node: Node,
        graph: Graph,
        policies: Mapping[str, PolicyInfo],
        records: Mapping[str, TreeSpec],
    ) -> TreeSpec | None:
        """What this worker puts into the sample stream at `port`; None: not its to say, or not known yet.

        `records` holds what is known of other streams: a relay gives on the record of its source.
        """
        return None

    @abstractmethod
    def poll(self) -> int:
        """Do what can be done now; how much was done, 0 = nothing to do."""

    def wake_at(self) -> float | None:
        """When to poll again (time.monotonic) even if no message comes."""
        return None

    def waits(self) -> str:
        """In words, what this worker waits for now."""
        return ", ".join(text for end in self.ends.values() if (text := end.waits()))

    @property
    def finished(self) -> bool:
        """True when this worker has reached the end of its task (a trainer: the stop condition): then the run drains."""
        return False

    def metrics(self) -> Reading:
        """What to report now."""
        return self.reading.flush()

    def at_barrier(self) -> bool:
        """Inline: True when a checkpoint of the whole process is due now."""
        return False

    def barrier(self, number: int) -> None:
        """Inline, at every checkpoint: drop what is in flight, so that `state` is all there is."""

    def state(self) -> Tree:
        """Arrays for exact resume, after `barrier`."""
        return {}

    def restore(self, state: Tree) -> None:
        """Go on from `state`."""

    def conclude(self) -> None:
        """The run has come to its end by itself, and `drain` follows: nobody waits impatiently, as after a Ctrl-C."""

    def drain(self) -> bool:
        """Start nothing new; True when nothing of this worker's is open any more. Called again until then."""
        return True

    def save(self, workers: Tree | None = None) -> None:
        """Write a checkpoint (trainers): after all are drained, and inline at every barrier with all workers' `state`."""

    def close(self) -> None:
        """Give everything back. Idempotent."""
