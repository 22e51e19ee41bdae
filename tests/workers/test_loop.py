"""The loop of one process: who is polled, who is at fault, who meets a barrier."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from srl.core.tree import Tree
from srl.core.types import Component, WorkerId
from srl.graph.spec import Graph, Node
from srl.plan.specs import Derived
from srl.workers.base import Resumable, Worker
from srl.workers.loop import WorkerLoop
from tests.errors import raises

HERE = str(Path(__file__))


@dataclass(frozen=True)
class NoArgs:
    pass


class Plain(Worker):
    """Notes what it is asked; `work` is what its polls say."""

    ports = {}
    Args = NoArgs

    def __init__(self, args: Any, ends: Any, context: Any) -> None:
        super().__init__(args, ends, context)
        self.calls: list[str] = []
        self.work, self.due, self.open = 0, None, 0

    def poll(self) -> int:
        self.calls.append("poll")
        if self.work < 0:
            raise ValueError("it breaks")
        return self.work

    def wake_at(self) -> float | None:
        return self.due

    def drain(self) -> bool:
        self.calls.append("drain")
        self.open -= 1
        return self.open < 0

    def save(self) -> None:
        self.calls.append("save")


class Counting(Resumable, Plain):
    """Its state is a number; `full` asks for a barrier."""

    number, full = 0, False
    written: Any = None

    def at_barrier(self) -> bool:
        return self.full

    def barrier(self, number: int) -> None:
        self.calls.append(f"barrier {number}")
        self.full = False

    def state(self) -> Tree:
        return {"number": np.array(self.number)}

    def checkpoint(self, states: Tree) -> None:
        self.written = states


def loop_of(*kinds: str, inline: bool = True) -> WorkerLoop:
    nodes = tuple(Node(name=f"{kind.lower()}{number}", worker=f"{HERE}:{kind}") for number, kind in enumerate(kinds))
    graph = Graph(env=Component(use="fake"), policies={}, agents={}, nodes=nodes, streams=())
    ids = [WorkerId(node.name, 0) for node in nodes]
    loop = WorkerLoop(graph, Derived(env=cast(Any, None), policies={}), ids, inline=inline)
    loop.make()
    return loop


def workers(loop: WorkerLoop) -> list[Any]:
    return list(loop.workers.values())


def test_a_sweep_polls_every_worker_in_order_and_counts_the_busy_ones() -> None:
    loop = loop_of("Plain", "Plain")
    one, two = workers(loop)
    two.work = 3
    assert loop.sweep() == 3
    assert one.calls == two.calls == ["poll"]
    reports = loop.reports()
    assert reports["plain0/0"].busy == 0.0 < reports["plain1/0"].busy
    loop.close()


def test_the_worker_that_raises_is_at_fault() -> None:
    loop = loop_of("Plain", "Plain")
    workers(loop)[1].work = -1
    with pytest.raises(ValueError, match="it breaks"):
        loop.sweep()
    assert loop.at_fault == "plain1/0"
    loop.close()


def test_workers_that_wait_for_nothing_outside_are_a_deadlock_unless_one_has_set_a_time() -> None:
    loop = loop_of("Plain", "Plain")
    with raises("R03"):
        loop.wait(10.0)
    workers(loop)[0].due = time.monotonic()
    began = time.monotonic()
    loop.wait(10.0)
    assert time.monotonic() - began < 5
    loop.close()


def test_a_run_has_drained_when_every_worker_has() -> None:
    loop = loop_of("Plain", "Plain")
    one, two = workers(loop)
    one.open, two.open = 2, 0
    assert [loop.drain() for _ in range(3)] == [False, False, True]
    assert one.calls == two.calls == ["drain"] * 3, "all are asked each time"
    loop.close()


def test_a_barrier_gathers_the_states_of_resumable_workers_and_spares_the_others() -> None:
    loop = loop_of("Plain", "Counting", "Counting")
    plain, one, two = workers(loop)
    one.number, two.number, one.full = 4, 5, True
    loop.sweep()
    assert one.calls == two.calls == ["poll", "barrier 1"] and plain.calls == ["poll"]
    for states in (one.written, two.written):
        assert {name: int(state["number"]) for name, state in states.items() if name.startswith("counting")} == {
            "counting1/0": 4,
            "counting2/0": 5,
        }
    loop.save()
    assert one.calls == ["poll", "barrier 1"], "nothing has come since"
    one.work = 1
    loop.sweep()
    loop.save()
    assert one.calls[-1] == "barrier 2" and "save" not in one.calls
    loop.close()


def test_in_a_process_of_its_own_there_are_no_barriers() -> None:
    loop = loop_of("Counting", inline=False)
    (worker,) = workers(loop)
    worker.full = True
    loop.sweep()
    loop.save()
    assert worker.calls == ["poll", "save"]
    loop.close()
