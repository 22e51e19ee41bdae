"""Sums over processes through shared memory."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from srl.core.errors import OthersLost
from srl.learners.ranks import Agreed, Meeting
from srl.learners.sums import SharedSums
from tests.errors import raises
from tests.summed import SIZE, check_sum


def summing(rank: int, place: str, calls: int, out: Any) -> None:
    """Every sum is that of all ranks, to the bit, whoever is late. Then the last one is killed."""
    SharedSums.piece = 1 << 16  # so that long ones go in pieces
    agreement = Meeting(Path(place), rank, SIZE)
    ranks = agreement.wait()
    for call in range(calls):
        if (call + rank) % 17 == 0:
            os.sched_yield()
        check_sum(ranks, rank, call)
    if rank == SIZE - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        ranks.total(torch.ones(4))
    except OthersLost as error:
        out.put(error.code)
    agreement.close()


def run(target: Any, *args: Any) -> list[int | None]:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=target, args=(rank, *args)) for rank in range(SIZE)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        process.kill()
        process.join()
    return [process.exitcode for process in processes]


def test_all_have_the_same_sums_and_the_death_of_one_is_seen_by_the_others_at_once(tmp_path: Path) -> None:
    out = multiprocessing.get_context("spawn").Queue()
    assert run(summing, str(tmp_path / "meet"), 300, out) == [0, 0, -signal.SIGKILL]
    assert list(tmp_path.iterdir()) == []
    assert [out.get(timeout=5) for _ in range(SIZE - 1)] == ["R06", "R06"]


@pytest.fixture
def pair(tmp_path: Path) -> Any:
    """Two ranks in one process, each with an event loop of its own: descriptor -> call."""
    loops: list[dict[int, Any]] = [{}, {}]
    both = [Meeting(tmp_path / "meet", rank, 2, watch=loops[rank].__setitem__) for rank in range(2)]
    for one in both:
        one.wait()
    yield both, loops
    for one in both:
        one.close()


def woken(loop: dict[int, Any], seconds: float = 5.0) -> bool:
    """Wait as a worker's process does."""
    found = select.select(list(loop), [], [], seconds)[0]
    for descriptor in found:
        loop[descriptor]()
    return bool(found)


def test_an_agreement_wakes_who_waits_for_it(pair: Any) -> None:
    (first, second), (loop, _) = pair
    while woken(loop, 0):
        pass
    for update in range(5):
        first.ask(update, 10, 2.5, False)
        assert first.open and first.answer() is None and not woken(loop, 0)
        second.ask(update, 20, 99.0, update == 4)
        assert woken(loop)
        assert first.answer() == second.answer() == Agreed(30, 2.5, update == 4)
        assert not first.open and not woken(loop, 0)


def test_ranks_at_different_updates_are_an_error(pair: Any) -> None:
    (first, second), _ = pair
    first.ask(3, 0, 0.0, False)
    second.ask(4, 0, 0.0, False)
    with raises("R00", match="not at the same update"):
        first.answer()


def test_who_waits_for_one_that_left_is_told_and_not_woken_for_ever(pair: Any) -> None:
    (first, second), (loop, _) = pair
    first.ask(0, 0, 0.0, False)
    second.close()
    while woken(loop, 0):
        pass
    with raises("R06"):
        first.answer()
