"""On-policy batches: credits, staleness, epochs, the clock of env steps."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest

from srl.core.spec import Leaf, zeros
from srl.streams.base import epoch_of, updates_of, version
from srl.streams.sample import SampleConsumer
from srl.workers.batches import OnPolicy
from srl.workers.sources import Foretold

STEPS, ENVS, AGENTS = 3, 2, 2
RECORD = {
    "obs": {"x": Leaf((STEPS + 1, ENVS, AGENTS, 4), "float32")},
    "valid": Leaf((STEPS, ENVS, AGENTS), "bool"),
    "version": Leaf((1,), "int64"),
    "reused": Leaf((1,), "bool"),
}


@dataclass
class Loan:
    """A slab that notes what becomes of it."""

    credit: int
    tree: Any
    end: str = ""

    def release(self) -> None:
        self.end = "released"

    def discard(self, reason: str) -> None:
        self.end = reason


@dataclass
class Samples:
    """A consumer whose slabs are put by hand."""

    credits: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Number -> epoch and updates of the least version."""
    waiting: deque[Loan] = field(default_factory=deque)

    def credit(self, number: int, min_version: int) -> None:
        self.credits[number] = (epoch_of(min_version), updates_of(min_version))

    def get(self) -> Loan | None:
        return self.waiting.popleft() if self.waiting else None

    discard = SampleConsumer.discard

    def put(self, credit: int, updates: int = 0, epoch: int = 1, reused: bool = False) -> Loan:
        tree = zeros(RECORD)
        tree["obs"]["x"][...] = credit
        tree["valid"][...] = True
        tree["version"][...] = version(epoch, updates)
        tree["reused"][...] = reused
        loan = Loan(credit, tree)
        self.waiting.append(loan)
        return loan


def source(slabs: int = 2, staleness: int = 1) -> tuple[OnPolicy, Samples]:
    samples = Samples()
    return OnPolicy(samples, RECORD, slabs=slabs, staleness=staleness, epoch=1), samples  # type: ignore[arg-type]


def test_a_batch_is_complete_when_all_its_slabs_are_there_in_any_order() -> None:
    batches, samples = source()
    assert batches.request(0) == 4 and batches.request(0) == 0
    for number in (3, 1):
        samples.put(number)
    assert batches.gather() == 2 and batches.take(0) is None
    loan = samples.put(0)
    batches.gather()
    rows = batches.take(0)
    assert rows is not None and loan.end == "released"
    assert rows["obs"]["x"][0, :, 0, 0].tolist() == [0, 0, 1, 1]  # slabs side by side, by their credits


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_no_row_is_staler_than_allowed(staleness: int) -> None:
    batches, samples = source(staleness=staleness)
    for updates in range(6):
        batches.request(updates)
        for number, (_, least) in samples.credits.items():
            assert number // 2 - least <= staleness, "the credit asks for a version that is new enough"
        for number in (2 * updates, 2 * updates + 1):
            samples.put(number, updates=samples.credits[number][1])
        batches.gather()
        assert batches.take(updates) is not None
        assert batches.lag.max() <= staleness
        batches.done(None)
    assert batches.lag.tolist() == [staleness] * 2


def test_env_steps_count_once_however_many_agents_and_however_often_they_are_trained_on() -> None:
    batches, samples = source()
    batches.request(0)
    samples.put(0).tree["valid"][0, 0] = False  # nobody of this env lived at this step
    samples.waiting[0].tree["valid"][1, 0, 1] = False  # one of two agents did
    samples.put(1, reused=True)
    batches.gather()
    batches.take(0)
    assert batches.env_steps == 0
    batches.done(None)
    assert batches.env_steps == STEPS * ENVS - 1


def test_slabs_of_an_earlier_epoch_and_of_void_credits_are_dropped_by_name() -> None:
    batches, samples = source()
    batches.request(0)
    old, twice, unknown = samples.put(0, epoch=0), samples.put(1), samples.put(99)
    again = samples.put(1)
    batches.gather()
    assert [loan.end for loan in (old, twice, unknown, again)] == ["trainer_restart", "released", "void_credit", "void_credit"]
    assert batches.take(0) is None


def test_a_barrier_drops_what_has_arrived_and_requests_it_again() -> None:
    batches, samples = source()
    batches.request(0)
    samples.put(0)
    batches.gather()
    late = samples.put(3)
    samples.credits.clear()
    batches.barrier(0)
    assert late.end == "barrier" and sorted(samples.credits) == [0, 3]


def test_a_restart_goes_on_with_the_clock_and_new_versions() -> None:
    batches, samples = source()
    batches.request(0)
    batches.restart(7, 1000, {})
    samples.credits.clear()
    assert batches.request(7) == 4 and batches.env_steps == 1000
    assert set(samples.credits.values()) == {(1, 7)}


def test_the_next_batch_is_told_once_when_it_is_complete() -> None:
    samples, told = Samples(), []
    made = Foretold(samples, RECORD, slabs=2, staleness=1, epoch=1, tell=told.append)  # type: ignore[arg-type]
    made.request(0)
    for credit in (0, 2, 1):
        samples.put(credit)
    made.gather()
    first = made.take(0)
    assert first is not None and told == []
    samples.put(3)
    made.gather()
    made.gather()
    assert len(told) == 1 and told[0] is not first and (told[0]["obs"]["x"] >= 2).all()
    made.done(None)
    made.request(1)
    assert made.take(1) is told[0] and len(told) == 1
