"""Small workers that need neither env nor policy: a counter at one end of a sample stream, an adder at the other."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from srl.api.env import Discrete, EnvSpec, TeamSpec
from srl.core.errors import UserError
from srl.core.spec import Leaf
from srl.core.tree import Tree
from srl.core.types import Checkpoint, Component, Stop
from srl.graph.spec import Graph, Node, Stream
from srl.plan.specs import Derived
from srl.store import checkpoint
from srl.streams.base import StreamSpec, version
from srl.streams.peers import End
from srl.streams.sample import SampleConsumer, SampleProducer
from srl.workers.base import Context, Port, Resumable, Worker

HERE = Path(__file__).resolve()


@dataclass(frozen=True, kw_only=True)
class CountArgs:
    until: int = 0
    """Ends after so many; 0: never."""
    die: str = ""
    """`raise`, `leave`, `exit`, `user`, `hang`, `start`: at record `at` of the first incarnation (`always`: of any)."""
    at: int = 50
    always: bool = False
    only: int = -1
    """The worker index this is about; -1: all."""


class Counter(Resumable, Worker):
    """Puts 0, 1, 2, ... with its own index and incarnation."""

    ports = {"out": Port("sample", "producer")}
    Args = CountArgs

    def __init__(self, args: CountArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        self._out = cast(SampleProducer, ends["out"])
        self._next = 0
        self._resting = False
        if args.die == "start":
            raise UserError("the counter cannot count", ("try", "another counter"))
        context.log.info("counter %s lives", context.name)

    def poll(self) -> int:
        if (slab := self._out.alloc()) is None:
            return 0
        self._fail_if_due()
        tree = cast("dict[str, Any]", slab.tree)
        tree["number"][...] = self._next
        tree["who"][...] = (self.context.index, self.context.incarnation)
        self._out.put(slab)
        self._next += 1
        self.reading.count("env_steps", 1)
        self.reading.episode("episode/return", float(self._next))
        return 1

    def state(self) -> Tree:
        return {"next": np.array(self._next)}

    def restore(self, state: Tree) -> None:
        self._next = int(cast("dict[str, Any]", state)["next"])

    def _fail_if_due(self) -> None:
        args = self.args
        if self._next != args.at or args.only not in (-1, self.context.index):
            return
        if self.context.incarnation and not args.always:
            return
        if args.die == "raise":
            raise ValueError("the counter lost count")
        if args.die == "leave":
            sys.exit(3)
        if args.die == "user":
            raise UserError("the counter cannot count", ("try", "another counter"))
        if args.die == "exit":
            print("last words of the counter", flush=True)
            os._exit(9)
        if args.die == "hang":
            time.sleep(600)


@dataclass(frozen=True, kw_only=True)
class AddArgs:
    credits: int = 8
    every: int = 0
    """Inline: a barrier after so many numbers."""
    full: bool = False
    """The disk is full."""


class Adder(Resumable, Worker):
    """Adds up what comes, in order per producer; an update is ten numbers."""

    ports = {"in": Port("sample", "consumer")}
    Args = AddArgs

    def __init__(self, args: AddArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        self._in = cast(SampleConsumer, ends["in"])
        self.total = self.taken = 0
        self._due = False
        self._expected: dict[tuple[int, int], int] = {}
        self._amidst = bool(context.resume or context.incarnation)
        """Some numbers have gone elsewhere: a counter need not begin at 0."""
        self._restored()
        self._epoch = version(context.incarnation, 0)
        self._credited = 0
        for _ in range(args.credits):
            self._credit()

    def poll(self) -> int:
        if self._due or self.finished:
            return 0
        if (loan := self._in.get()) is None:
            return 0
        tree = cast("dict[str, Any]", loan.tree)
        who, number = tuple(tree["who"].tolist()), int(tree["number"][0])
        expected = self._expected.get(who, number if self._amidst else 0)
        assert number == expected, f"{who}: {number} instead of {expected}"
        self._expected[who] = number + 1
        loan.release()
        self.total = (31 * self.total + number + 1) % 1_000_003
        self.taken += 1
        self._credit()
        for name, value in (("updates", self.taken // 10), ("trained_steps", self.taken), ("total", self.total)):
            self.reading.minimum(name, value)
        self._due = bool(self.context.inline and self.args.every and self.taken % self.args.every == 0)
        return 1

    @property
    def finished(self) -> bool:
        until = self.context.graph.stop.env_steps
        return until is not None and self.taken >= until

    def at_barrier(self) -> bool:
        return self._due

    def barrier(self, number: int) -> None:
        while (loan := self._in.get()) is not None:
            loan.discard("barrier")
            self._credit()
        self._expected.clear()
        self._due, self._amidst = False, True

    def save(self) -> None:
        self.checkpoint({})

    def checkpoint(self, states: Tree) -> None:
        if self.args.full:
            raise OSError("no space left on device")
        if self.context.folder is not None:
            groups = {"sum": {"total": np.array([self.total, self.taken])}, **({"workers": states} if states else {})}
            checkpoint.write(self.context.folder / "checkpoints", self.taken, cast(Any, groups), {})

    def _credit(self) -> None:
        self._in.credit(self._credited, self._epoch)
        self._credited += 1

    def _restored(self) -> None:
        run = self.context.folder or self.context.resume
        path = checkpoint.latest(run / "checkpoints") if run is not None else None
        if path is not None:
            self.total, self.taken = map(int, checkpoint.read(path).groups["sum"]["total"])


def graph(*, counters: int = 1, via: str = "shm", inside: bool = False, count: Any = None, add: Any = None, **more: Any) -> Graph:
    """`counters` counters that feed one adder."""
    restart = {"on_failure": more.pop("on_failure", "stop"), "restarts": more.pop("restarts", 3)}
    return Graph(
        name="rig",
        env=Component(use="none"),
        policies=more.pop("policies", {}),
        agents={},
        nodes=(
            Node(
                name="counter",
                worker=f"{HERE}:Counter",
                count=counters,
                args=count or {},
                ports={"out": "numbers"},
                inside="adder" if inside else None,
                **restart,
            ),
            Node(name="adder", worker=f"{HERE}:Adder", args=add or {}, ports={"in": "numbers"}, **restart),
        ),
        streams=(Stream(name="numbers", kind="sample", via=cast(Any, via)),),
        mode=more.pop("mode", "local"),
        stop=Stop(**more.pop("stop", {"env_steps": 1000})),
        checkpoint=Checkpoint(),
        **more,
    )


def derived(graph: Graph) -> Derived:
    """What a look at env and policies would have found."""
    spec = StreamSpec(
        name="numbers",
        kind="sample",
        via=cast(Any, "inproc" if graph.mode == "inline" else graph.streams[0].via),
        record={"number": Leaf((1,), "int64"), "who": Leaf((2,), "int64"), "version": Leaf((1,), "int64")},
    )
    team = TeamSpec(agents=("agent",), obs=Leaf((1,), "float32"), action=Discrete(2))
    return Derived(env=EnvSpec(teams={"agent": team}), policies={}, streams={"numbers": spec})


def with_node(graph: Graph, name: str, **changes: Any) -> Graph:
    """The graph with one node changed."""
    return replace(graph, nodes=tuple(replace(node, **changes) if node.name == name else node for node in graph.nodes))
