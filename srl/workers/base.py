"""The base class of workers: `__init__`, `poll`, `close`, and what the engine may ask one."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from srl.core.readings import Reading
from srl.core.spec import TreeSpec
from srl.core.tree import Tree
from srl.core.types import Waiting
from srl.graph.spec import Graph, Node
from srl.plan.specs import Derived
from srl.streams.base import Kind, Side
from srl.streams.peers import End


@dataclass(frozen=True, slots=True)
class Port:
    """Where a worker joins a stream. A graph names it `port`, or `port:policy` where there are several."""

    kind: Kind
    side: Side
    optional: bool = False
    pinned: bool = False
    """Of a sample consumer: a producer's slabs all go to one of several consumers, in order."""
    divided: bool = False
    """Of a sample consumer: pinned, where its node has several workers."""
    first: bool = False
    """Only worker 0 of a node joins the stream."""
    relays: Literal["", "host", "tree"] = ""
    """Of a param publisher that passes versions on: to subscribers of its own host, or to other workers of its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a worker knows about itself and its run."""

    graph: Graph
    derived: Derived
    node: Node
    index: int
    incarnation: int = 0
    """Grows at every restart of this worker, and at every resume of the run: a trainer's epoch."""
    folder: Path | None = None
    """The run folder; None: nothing is written (`srl.build` without one)."""
    resume: Path | None = None
    """The run folder whose latest checkpoint is resumed."""
    inline: bool = False
    deliver: Callable[[], int] | None = None
    """Hand over to the ends what other processes sent: for workers whose `poll` takes long. None inline."""
    rest: Callable[[float], None] | None = None
    """Sleep until something has come for `deliver`, at most so many seconds. None inline."""
    watch: Callable[[int, Callable[[], Any]], None] | None = None
    """Call the second whenever the first, a descriptor, is readable. None inline."""
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("srl"))

    @property
    def name(self) -> str:
        """`node/index`."""
        return f"{self.node.name}/{self.index}"


class Worker(ABC):
    """Lives in one thread of one process and is polled by its loop. It never blocks."""

    ports: ClassVar[Mapping[str, Port]]
    """Class level: `check` needs no instance."""
    Args: ClassVar[type]
    """Frozen dataclass; the node's args are loaded into it strictly."""
    noun: ClassVar[str] = "worker"
    """The name of such a worker in advice."""
    advice: ClassVar[tuple[str, str] | None] = ("more of them", "less work for each")
    """What helps where these workers are the limit: with cores to spare, and without. None: nothing waits for them."""
    nice: ClassVar[int] = 10
    """Priority of its process where there are more processes than cores. A trainer has 0: credits bound the workers that feed it,
    so that these may yield to it."""

    gang: ClassVar[bool] = False
    """Several workers of one node do one thing together: if one is restarted, all are."""
    drains: ClassVar[bool] = True
    """The end of a run waits until it has drained; False: it has nothing to finish, and no time for it on a busy machine."""
    concludes: ClassVar[bool] = False
    """It has something to do at the end of a run, for which a long run waits longer."""
    writes: ClassVar[bool] = False
    """It reads and writes the run folder, or its stand-in on a host that does not see it."""
    slow: ClassVar[bool] = False
    """Its `poll` takes long, as an update does: workers of other processes must not wait for others of its process."""

    def __init__(self, args: Any, ends: Mapping[str, End], context: Context) -> None:
        self.args = args
        self.ends = ends
        self.context = context
        self.reading = Reading()

    @property
    def address(self) -> str:
        """Where a person finds it, once it is made: printed at the start, and in status.json."""
        return ""

    @classmethod
    def about(cls, args: Any) -> str:
        """Its line in the start plan, without name and number."""
        return ""

    @classmethod
    def check(cls, args: Any, node: Node, graph: Graph) -> None:
        """UserError if its args do not fit the rest of the graph."""

    @classmethod
    def sizes(cls, args: Any, port: str, graph: Graph) -> Mapping[str, int]:
        """Sizes of the end at `port`: `slots` of a sample producer, `groups` and `units` of an infer client."""
        return {}

    @classmethod
    def declares(cls, args: Any, port: str, derived: Derived, known: Mapping[str, TreeSpec]) -> TreeSpec | None:
        """The record that this worker puts into the sample stream at `port`; None: it puts none, or is not known yet.

        `known` holds the records of its other ports, as far as they are known. A worker with one sample source and one sample
        sink passes the record of its source on.
        """
        sources = [name for name in known if _is_sample(cls.ports, name, "consumer")]
        return known[sources[0]] if len(sources) == 1 and _is_sample(cls.ports, port, "producer") else None

    @classmethod
    def memory(cls, args: Any, node: Node, graph: Graph, derived: Derived) -> int:
        """Bytes that all workers of this node keep to themselves, where that is much."""
        return 0

    @abstractmethod
    def poll(self) -> int:
        """Do what can be done now; how much was done, 0 = nothing to do."""

    def wake_at(self) -> float | None:
        """When to poll again (time.monotonic) even if no message arrives."""
        return None

    def waits(self) -> tuple[Waiting, ...]:
        """What this worker waits for now, each thing once."""
        return tuple(dict.fromkeys(waiting for end in self.ends.values() if (waiting := end.waits()) is not None))

    @property
    def finished(self) -> bool:
        """True when this worker's task is done (a trainer: the stop condition): then the run drains."""
        return False

    def metrics(self) -> Reading:
        """What to report now."""
        return self.reading.flush()

    def conclude(self, seconds: float) -> None:
        """Called before `drain` when the run ends normally: the run waits so long for a last piece of work."""

    def drain(self) -> bool:
        """Start nothing new; True when nothing is open any more. Called again until then."""
        return True

    def save(self) -> None:
        """Write the last checkpoint (trainers), after every worker has drained; inline it is `Resumable.checkpoint`."""

    def close(self) -> None:
        """Give everything back. Idempotent."""


class Resumable:
    """Inline, every checkpoint is a barrier: all workers drop what is in flight, and their states are written together."""

    def at_barrier(self) -> bool:
        """True when a checkpoint is due now."""
        return False

    def barrier(self, number: int) -> None:
        """Drop everything in flight, so that `state` is complete."""

    def state(self) -> Tree:
        """The arrays that `restore` needs, after `barrier`."""
        return {}

    def restore(self, state: Tree) -> None:
        """The inverse of `state`."""

    def checkpoint(self, states: Tree) -> None:
        """Write a checkpoint with the states of all workers (trainers)."""


def _is_sample(ports: Mapping[str, Port], name: str, side: Side) -> bool:
    port = ports.get(name.partition(":")[0])
    return port is not None and (port.kind, port.side) == ("sample", side)
