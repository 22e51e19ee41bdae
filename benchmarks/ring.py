"""The ring of groups: an env with a chosen step time, a policy with a chosen response time, 1 to 4 groups in one actor.

    python benchmarks/ring.py [--step 4] [--seconds 5]

The speed-up over one group is compared with min(groups, 1 + response / step). Times in milliseconds. The policy answers
each question so long after it came, as one does that is far away or big, without holding up other questions.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from srl.core.tree import map_tree
from srl.core.types import Component, PolicyEntry, Stop
from srl.graph.spec import Graph, Node, Stream
from srl.plan.derive import derive, with_streams
from srl.streams.infer import Asked, InferServer
from srl.workers.base import Port, Worker

from timed import rate_of

HERE = f"{Path(__file__).resolve()}"


@dataclass(frozen=True)
class LateArgs:
    response: float = 0.0
    """Seconds."""


class Late(Worker):
    """Answers every question a chosen time after it was asked, with the first action."""

    ports = {"asks": Port("infer", "server")}
    Args = LateArgs

    def __init__(self, args: Any, ends: Any, context: Any) -> None:
        super().__init__(args, ends, context)
        self._asks: InferServer = ends["asks"]
        self._due: deque[tuple[float, Asked]] = deque()
        self._answer = context.derived.policies["main"].answer

    def poll(self) -> int:
        done = 0
        while (asked := self._asks.take(1, 0)) is not None:
            self._due.append((time.monotonic() + self.args.response, asked))
            done += 1
        while self._due and self._due[0][0] <= time.monotonic():
            _, asked = self._due.popleft()
            units = sum(asked.sizes)
            asked.reply(map_tree(lambda leaf, n=units: np.zeros((n, *leaf.shape), leaf.dtype), self._answer), 0)
            done += 1
        return done

    def wake_at(self) -> float | None:
        return self._due[0][0] if self._due else None


def graph_of(groups: int, step_ms: float, response_ms: float, seconds: float) -> Graph:
    envs = 4
    return Graph(
        env=Component(use="fake", args={"step_us": 1000.0 * step_ms / envs, "clock": "wall"}),
        policies={"main": PolicyEntry(policy=Component(use="actor_critic"), algorithm=Component(use="ppo"))},
        agents={"*": "main"},
        nodes=(
            Node(
                name="actor",
                worker="actor",
                args={"groups": groups, "envs": envs, "steps": 64},
                ports={"infer": "ask", "samples": "samples"},
            ),
            Node(name="late", worker=f"{HERE}:Late", args={"response": response_ms / 1000.0}, ports={"asks": "ask"}),
        ),
        streams=(Stream(name="ask", kind="infer"), Stream(name="samples", kind="sample", route="drop")),
        stop=Stop(seconds=seconds),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--step", type=float, default=4.0)
    parser.add_argument("--seconds", type=float, default=6.0)
    given = parser.parse_args()
    derived = derive(replace(graph_of(1, given.step, 0.0, 1.0), mode="inline"))
    print(f"step {given.step:g} ms   speed-up (ideal) over one group")
    print(f"{'response':>10}" + "".join(f"{groups:>8} groups" for groups in (1, 2, 3, 4)))
    for times in (0.5, 1.0, 2.0, 3.0):
        line, alone = f"{times * given.step:>7g} ms", 0.0
        for groups in (1, 2, 3, 4):
            graph = graph_of(groups, given.step, times * given.step, given.seconds)
            rate = rate_of(graph, with_streams(graph, derived))
            alone = alone or rate
            line += f"  {rate / alone:5.2f} ({min(groups, 1 + times):4.2f})"
        print(line, flush=True)


if __name__ == "__main__":
    main()
