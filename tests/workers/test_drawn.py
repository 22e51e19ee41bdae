"""Batches of replays as a trainer takes them: the run's clock over restarts, their memory, and what is handed back."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from srl.api.batch import Feedback
from srl.core.types import Counts
from srl.workers.drawn import Drawn

BATCH = 4


def batch(env_steps: int) -> dict[str, Any]:
    tree = {"reward": np.zeros((1, BATCH, 1), np.float32), "ids": np.arange(BATCH), "env_steps": np.array([env_steps])}
    views = {name: leaf.view() for name, leaf in tree.items()}
    for view in views.values():
        view.flags.writeable = False
    return views


@dataclass
class Loan:
    tree: Any
    producer: str
    peer: Any
    released: bool = False

    def release(self) -> None:
        self.released = True


@dataclass
class Samples:
    credits: list[int] = field(default_factory=list)
    waiting: deque[Loan] = field(default_factory=deque)

    def credit(self, number: int, min_version: int) -> None:
        self.credits.append(number)

    def get(self) -> Loan | None:
        return self.waiting.popleft() if self.waiting else None

    def put(self, tree: Any, replay: str = "replay", process: int = 1) -> Loan:
        loan = Loan(tree, f"batches.main:{replay}/0", SimpleNamespace(source=process))
        self.waiting.append(loan)
        return loan


@dataclass
class Sink:
    """A producer with so many places."""

    places: int
    counts: Counts = field(default_factory=Counts)
    sent: list[Any] = field(default_factory=list)

    def alloc(self) -> Any:
        if self.places == 0:
            return None
        self.places -= 1
        return SimpleNamespace(tree={"ids": np.zeros(BATCH, np.int64), "priority": np.zeros(BATCH, np.float32)})

    def put(self, slab: Any) -> None:
        self.sent.append(slab.tree)


def drawn(prefetch: int = 1, inline: bool = False, **feedback: Sink) -> tuple[Drawn, Samples]:
    samples = Samples()
    return Drawn(samples, feedback, prefetch=prefetch, inline=inline), samples  # type: ignore[arg-type]


def train(source: Drawn, samples: Samples, env_steps: int, feedback: Feedback | None = None, **whose: Any) -> Loan:
    loan = samples.put(batch(env_steps), **whose)
    assert source.take(0) is not None
    source.done(feedback)
    return loan


@pytest.mark.parametrize("prefetch", [1, 2])
def test_so_many_batches_are_requested_as_may_be_drawn_ahead(prefetch: int) -> None:
    source, samples = drawn(prefetch)
    assert source.request(0) == prefetch and source.request(0) == 0
    assert train(source, samples, 10).released
    assert source.request(1) == 1 and samples.credits == list(range(prefetch + 1))


def test_the_batch_after_the_one_that_trains_is_told_once_and_trained_next() -> None:
    samples, told = Samples(), []
    source = Drawn(samples, {}, prefetch=3, inline=False, tell=told.append)  # type: ignore[arg-type]
    assert source.gather() == 0 and source.take(0) is None
    loans = [samples.put(batch(steps)) for steps in (10, 30)]
    first = source.take(0)
    assert len(told) == 1 and first is not told[0] and source.gather() == 0
    source.done(None)
    assert [loan.released for loan in loans] == [True, False] and source.env_steps == 10
    assert source.take(1) is told[0] and source.brings == 20
    loans.append(samples.put(batch(60)))
    assert source.gather() == 1 and source.gather() == 0 and len(told) == 2  # it came while the second one trained
    source.done(None)
    assert source.take(2) is told[1]


def test_a_batch_is_trained_on_where_it_lies_and_can_be_written_to() -> None:
    source, samples = drawn()
    tree = batch(1)
    seen = []
    for _ in range(2):
        samples.put(tree)
        seen.append(source.take(0))
        source.done(None)
    assert seen[0] is seen[1]
    assert np.shares_memory(seen[0]["reward"], tree["reward"]) and seen[0]["reward"].flags.writeable


def test_bytes_that_cannot_be_written_to_are_left_to_the_learner() -> None:
    source, samples = drawn()
    tree = {"ids": np.frombuffer(bytes(8 * BATCH), np.int64), "env_steps": np.frombuffer(bytes(8), np.int64)}
    samples.put(tree)
    assert source.take(0) is tree


def test_the_clock_adds_up_what_came_into_every_replay() -> None:
    source, samples = drawn()
    for steps, replay in [(10, "replay.0"), (7, "replay.1"), (15, "replay.0")]:
        train(source, samples, steps, replay=replay)
    assert source.env_steps == 22


def test_env_steps_count_once_over_restarts_of_replay_and_trainer() -> None:
    source, samples = drawn()
    train(source, samples, 100, process=1)
    saved = source.state()
    train(source, samples, 130, process=1)
    again, samples = drawn()
    again.restart(1, 100, saved)  # the trainer died after its checkpoint, the replay lives
    train(again, samples, 140, process=1)
    assert again.env_steps == 140
    train(again, samples, 20, process=2)  # the replay died, and counts from zero
    assert again.env_steps == 160
    later, samples = drawn()
    later.restart(2, 160, again.state())  # a resume: all processes are new
    train(later, samples, 5, process=3)
    assert later.env_steps == 165


def test_inline_a_replay_counts_on_after_a_resume() -> None:
    source, samples = drawn(inline=True)
    train(source, samples, 100, process=1)
    again, samples = drawn(inline=True)
    again.restart(1, 100, source.state())
    train(again, samples, 101, process=2)
    assert again.env_steps == 101


def test_feedback_goes_to_the_replay_that_drew_the_batch() -> None:
    sinks = {f"replay.{i}": Sink(places=4) for i in range(2)}
    source, samples = drawn(**sinks)
    for replay in (1, 0, 1):
        priority = np.full(BATCH, replay, np.float32)
        train(source, samples, 1, Feedback(np.arange(BATCH), {"priority": priority}), replay=f"replay.{replay}")
    assert [len(sinks[f"replay.{i}"].sent) for i in range(2)] == [1, 2]
    assert all((tree["priority"] == 1).all() for tree in sinks["replay.1"].sent)


def test_feedback_that_finds_the_replay_busy_is_counted() -> None:
    sink = Sink(places=0)
    source, samples = drawn(**{"": sink})
    train(source, samples, 1, Feedback(np.arange(BATCH), {"priority": np.ones(BATCH, np.float32)}))
    assert sink.counts.dropped == {"busy": 1} and sink.counts.put == 1
