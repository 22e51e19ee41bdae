"""The process of the critics: `python -m srl.learners.critics CONTROL OWN OTHER PARENT`, which a split learner starts.

It dies with its parent. It trains every batch that it is given, and answers questions in between.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from typing import Any

import torch

from srl.api.env import Box, Discrete, MultiBinary, MultiDiscrete
from srl.api.policy import PolicySpec
from srl.api.slab import SlabShape
from srl.core.errors import RunError, SrlError
from srl.core.load import load
from srl.core.machine import die_with
from srl.core.registry import REGISTRIES
from srl.core.spec import Leaf, from_plain
from srl.learners.base import Task
from srl.learners.layout import Layout
from srl.learners.shared import Line, Memory
from srl.learners.side import CRITICS, Side


def main() -> int:
    """Run the process. Returns its exit code."""
    control, own, other, parent = map(int, sys.argv[1:])
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the trainer decides what Ctrl-C means
    signal.signal(signal.SIGTERM, lambda *_: None)
    line = Line(socket.socket(fileno=control), own, other, "actor")
    try:
        sys.path[:] = list(dict.fromkeys([*sys.path, *line.receive()["path"]]))
        torch.set_num_threads(1)
        _serve(line, line.receive())
    except Exception as error:
        return 3 if told_of(line, error) else 0
    return 0


def _serve(line: Line, begin: dict[str, Any]) -> None:
    """Make this side as it was described, and serve."""
    if begin["core"] is not None:
        os.sched_setaffinity(0, {begin["core"]})
    told = begin["task"]
    algorithm, policy = (REGISTRIES[kind].resolve(told[kind]) for kind in ("algorithm", "policy"))
    classes = (PolicySpec, SlabShape, Leaf, Box, Discrete, MultiBinary, MultiDiscrete)
    task = Task(
        algorithm=algorithm, config=load(algorithm.Config, told["config"]), policy=policy,
        policy_config=load(policy.Config, told["policy_config"]), spec=from_plain(told["spec"], classes),
        shape=from_plain(told["shape"], classes), seed=told["seed"],
    )  # fmt: skip
    path, size = begin["memory"]
    memory = Memory(os.open(path, os.O_RDWR | os.O_CLOEXEC), size)
    memory.close()
    side = Side(task, CRITICS)
    side.restore(begin["groups"], begin["state"])
    serve(line, side, memory, load(Layout, begin["layout"]))


def serve(line: Any, side: Side, memory: Any, layout: Layout) -> None:
    """Train and answer until the other side hangs up: then a wait raises."""
    theirs, mine, questions, given = layout.places(memory, line, actor=side.seen, critics=side.shown)
    line.send({"type": "ready"})
    asked: list[dict[str, Any]] = []
    line.heard = asked.append
    side.connect(line, mine, theirs, lag=layout.lag, questions=None if questions is None else questions[1])
    while True:
        line.wait(lambda: given.number > side.round or bool(asked))
        for message in asked:
            _answer(line, side, message)
        asked.clear()
        if given.number > side.round:
            side.update(given.read(side.round, side.clock))


def told_of(line: Any, error: Exception) -> bool:
    """Tell the other side, unless it has hung up."""
    if isinstance(error, RunError) and error.code == "R01":
        return False
    data = error.to_data() if isinstance(error, SrlError) else None
    headline, trace = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
    line.send({"type": "failed", "error": data, "headline": headline, "trace": trace[-20_000:]})
    return True


def _answer(line: Line, side: Any, message: dict[str, Any]) -> None:
    if message["type"] == "metrics":
        line.send({"type": "metrics", "metrics": side.metrics(), "steps": side.clock.steps})
    elif message["type"] == "state":
        groups, _ = side.state()
        line.send({"type": "state", "groups": side.owned(groups)})


if __name__ == "__main__":
    sys.exit(main())
