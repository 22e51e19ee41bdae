"""The learner on two devices: the trainer's process trains the actor, a child of it the critics, each on a core of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from srl.api.batch import Feedback
from srl.api.parts import InParts
from srl.core.errors import RunError, SrlError, UserError
from srl.core.learner import SplitConfig
from srl.core.load import dump
from srl.core.machine import TwoCores
from srl.core.registry import dotted_path
from srl.core.spec import to_plain
from srl.core.threads import plan
from srl.core.tree import Array
from srl.learners.base import Groups, Task
from srl.learners.critics import serve, told_of
from srl.learners.give import Given, record_of
from srl.learners.layout import Layout
from srl.learners.peers import PeerLine, PeerMemory
from srl.learners.shared import Line, Memory, bells
from srl.learners.side import ACTOR, CRITICS, Side

_PATIENCE = 5.0
"""Seconds for the other process to end by itself."""


class SplitLearner(Side):
    """The side of the actor, which publishes, saves, and gives the batches to the side of the critics."""

    Config = SplitConfig

    def __init__(self, task: Task, config: SplitConfig) -> None:
        if not issubclass(task.algorithm, InParts):
            raise _not_in_parts(task)
        self.split = config
        self._child: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._line: Line | PeerLine | None = None
        self._memory: Memory | None = None
        self._given: Given | None = None
        self._affinity = os.sched_getaffinity(0)
        super().__init__(replace(task, device=config.devices[0], threads=1), ACTOR)
        _refuse_feedback(task)
        if config.mode != "exact" and not (self.part.is_still and self.other.is_still):
            raise UserError(
                "batch normalization in critics cannot be split in this mode",
                ("because", "the critics change what the actor reads while it reads it"),
                ("try", "mode: exact, or learner=single"),
                code="E10",
            )
        self._taken = TwoCores() if config.pin and not self.in_process else None
        self._cores = self._taken.cores if self._taken is not None else None
        self._start()

    def update(self, rows: Mapping[str, Any]) -> Feedback | None:
        if self._given is None:
            self._begin(rows)
        assert self._given is not None and self._line is not None and self._theirs is not None
        self._given.write(self.round, self.clock, rows)
        self._line.ring()
        return super().update(rows)

    def metrics(self) -> dict[str, float]:
        own = super().metrics()
        if self._given is None:
            return own
        answer = self._ask({"type": "metrics"})
        self.clock.steps = max(self.clock.steps, int(answer["steps"]))
        return {**answer["metrics"], **own}

    def state(self) -> tuple[Groups, dict[str, Any]]:
        groups, state = super().state()
        if self._given is not None:
            self._wait_for(self.round)
            for group, named in self._ask({"type": "state"})["groups"].items():
                groups[group] |= named
        return groups, state

    def restore(self, groups: Mapping[str, Mapping[str, Array]], state: Mapping[str, Any]) -> None:
        super().restore(groups, state)
        if self._given is not None:
            self._end()
            self._start()

    def close(self) -> None:
        self._end()
        if self._taken is not None:
            self._taken.close()
        super().close()

    @property
    def in_process(self) -> bool:
        """Whether the critics are trained by a thread: what crosses between GPUs needs no memory of the host."""
        return self.split.devices[0] != "cpu"

    def _start(self) -> None:
        """Start the other process: it imports what it needs while this one waits for its first batch."""
        if self.in_process:
            return
        ours, theirs = socket.socketpair()
        mine, other = bells()
        command = [sys.executable, "-m", "srl.learners.critics", *map(str, (theirs.fileno(), other, mine, os.getpid()))]
        with theirs:
            self._child = subprocess.Popen(
                command, pass_fds=(theirs.fileno(), mine, other), env={**os.environ, **plan(1)}, stdin=subprocess.DEVNULL
            )
        self._line = Line(ours, mine, other, self.other.name)
        self._line.heard = self._heard
        self._line.send({"type": "start", "path": sys.path})

    def _begin(self, rows: Mapping[str, Any]) -> None:
        """The first batch says how large batches are. Both sides begin with the state of this one."""
        layout = Layout(record=record_of(rows), lag=self.split.lag, exact=self.split.mode == "exact")
        memory = self._hire(layout) if self.in_process else self._tell(layout)
        line = self._line
        assert line is not None
        mine, theirs, questions, self._given = layout.places(memory, line, actor=self.shown, critics=self.seen)
        self._ask(None)  # it has the memory
        memory.close()
        self.connect(line, mine, theirs, lag=self.split.lag, questions=None if questions is None else questions[0])

    def _hire(self, layout: Layout) -> PeerMemory:
        """A thread for the critics."""
        groups, state = super().state()
        side = Side(replace(self.task, device=self.split.devices[1]), CRITICS)
        side.restore(groups, state)
        self._line, line = PeerLine.pair()
        self._line.heard = self._heard
        memory = PeerMemory(self.split.devices)

        def work() -> None:
            torch.set_num_threads(1)
            try:
                serve(line, side, memory.view(), layout)
            except Exception as error:
                told_of(line, error)

        self._thread = threading.Thread(target=work, name=f"srl {self.other.name}", daemon=True)
        self._thread.start()
        return memory.view()

    def _tell(self, layout: Layout) -> Memory:
        """The other process how to begin."""
        line = self._line
        assert line is not None
        if self._cores is not None:
            os.sched_setaffinity(0, {self._cores[0]})
        memory = self._memory = Memory.create(layout.sizes(self.shown, self.seen))
        groups, state = super().state()
        task = {
            "algorithm": dotted_path(self.task.algorithm), "config": dump(self.task.config),
            "policy": dotted_path(self.task.policy), "policy_config": dump(self.task.policy_config),
            "spec": to_plain(self.task.spec), "shape": to_plain(self.task.shape), "seed": self.task.seed,
        }  # fmt: skip
        line.send({
            "type": "begin", "task": task, "groups": groups, "state": state, "layout": dump(layout),
            "core": None if self._cores is None else self._cores[1],
            "memory": [f"/proc/{os.getpid()}/fd/{memory.descriptor}", memory.size],
        })  # fmt: skip
        return memory

    def _ask(self, message: Mapping[str, Any] | None) -> dict[str, Any]:
        assert self._line is not None
        if message is not None:
            self._line.send(message)
            self._line.ring()
        answer = self._line.receive()
        if answer["type"] == "failed":
            self._heard(answer)
        return answer

    def _heard(self, message: dict[str, Any]) -> None:
        """The other side says something unasked: that it has failed."""
        if message["error"] is not None:
            raise SrlError.from_data(message["error"])
        raise RunError(f"the {self.other.name} failed: {message['headline']}", ("trace", message["trace"]), code="R01")

    def _end(self) -> None:
        child, line = self._child, self._line
        self._child = self._line = self._given = self._link = self._mine = self._theirs = None
        if line is not None:
            line.close()  # it ends when nobody is at the other end
        if self._thread is not None:
            self._thread.join(_PATIENCE)
            self._thread = None
        if child is not None:
            try:
                child.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        os.sched_setaffinity(0, self._affinity)


def _refuse_feedback(task: Task) -> None:
    replay = task.algorithm.needs(task.config, task.spec).replay
    if replay is not None and (replay.prioritised or replay.refreshed):
        raise UserError(
            "a split learner cannot hand priorities or memories back to the replay",
            ("try", "learner=single"),
            code="E10",
        )


def _not_in_parts(task: Task) -> UserError:
    return UserError(
        f"algorithm {task.algorithm.__name__} cannot be split: its update has no parts",
        ("try", "learner=single, or sac, td3, ddpg; an algorithm of your own extends InParts (docs/extending.md)"),
        code="E10",
    )
