"""What holds for sums over ranks, through shared memory and through streams: the same bits for all, and no wait for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from srl.core.errors import OthersLost
from srl.learners.ranks import Agreement
from srl.learners.sums import SharedSums, Sums
from srl.streams import sum as module
from srl.streams.sum import SumRank
from srl.workers.sums import StreamSums
from tests.contracts.rig import Rig
from tests.errors import raises
from tests.summed import SIZE, check_sum


class Gang:
    """Three ranks in threads of one process."""

    def __init__(self, via: str) -> None:
        self.rig = Rig(via)
        self.ends: list[SumRank] = []
        self.sums: list[Sums] = []
        if via == "shared":
            self.sums = [SharedSums(rank, SIZE) for rank in range(SIZE)]
            addresses = [one.address() for one in self.sums]  # type: ignore[attr-defined]
            self.each(lambda one: one.connect(addresses.__getitem__))
            return
        self.ends = [self.rig.open(self.rig.spec("sum"), "rank", f"trainer/{rank}") for rank in range(SIZE)]
        for rank, end in enumerate(self.ends):
            for other in self.ends:
                if other is not end:
                    end.attach(other.name, other.address())
            wakeup = self.rig.wakeups[rank]
            self.sums.append(StreamSums(end, SIZE, wakeup.deliver, wakeup.wait))

    def each(self, work: Callable[[Any], Any], ranks: range = range(SIZE)) -> list[Any]:
        """What it returns for every rank. All of them work at the same time, and serve their streams until the last is done."""
        done: set[int] = set()

        def one(rank: int) -> Any:
            try:
                return work(self.sums[rank])
            finally:
                done.add(rank)
                while self.ends and len(done) < len(ranks):
                    self.rig.wakeups[rank].wait(0.01)
                    self.rig.wakeups[rank].deliver()

        with ThreadPoolExecutor(len(ranks)) as pool:
            return [found.result() for found in [pool.submit(one, rank) for rank in ranks]]

    def kill(self, rank: int) -> None:
        """Its process has ended, as the others hear of it."""
        self.sums[rank].close()
        for end in self.ends:
            end.lose(self.ends[rank].name)

    def close(self) -> None:
        for one in self.sums:
            one.close()
        self.rig.close()


@pytest.fixture(params=["shared", "ipc", "tcp", "curve"])
def gang(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gang]:
    for kind in (SharedSums, StreamSums):
        monkeypatch.setattr(kind, "piece", 1 << 16)  # so that long ones go in pieces
    threads = threading.active_count()
    made = Gang(request.param)
    yield made
    made.close()
    assert threading.active_count() <= threads


def test_all_ranks_get_the_same_bits(gang: Gang) -> None:
    def work(sums: Sums) -> None:
        for call in range(30):
            check_sum(sums, sums.index, call)

    gang.each(work)


def test_halves_of_a_sum_never_wait(gang: Gang) -> None:
    first, *others = gang.sums
    own = [np.array([rank, 10.0]) for rank in range(SIZE)]
    for again in range(3):
        first.put(own[0])
        assert not first.ready()
        for one in others:
            one.put(own[one.index])
        gang.rig.until(lambda: all(one.ready() for one in gang.sums))
        gang.each(lambda one: one.take(own[one.index]))
        assert all(one.tolist() == own[0].tolist() for one in own), again
        assert not first.ready()
    assert own[0].tolist() == [27.0, 270.0]


def test_who_waits_for_a_rank_that_ended_is_told_so(gang: Gang) -> None:
    x = np.ones(3)
    for one in gang.sums:
        one.put(x)
    gang.rig.until(lambda: all(one.ready() for one in gang.sums))
    gang.kill(2)
    left = range(2)
    gang.each(lambda one: one.take(x.copy()), left)  # what it had given is there

    def wait(sums: Sums) -> str:
        with raises("R06", match="cannot be reached") as caught:
            sums.sum(np.ones(20_000))
        return str(caught.value)

    assert all("its process has ended" in text for text in gang.each(wait, left))


def test_a_rank_that_waits_already_is_told_so(gang: Gang) -> None:
    """As when the controller says so to a process that is in the middle of an update."""
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(gang.sums[rank].sum, np.ones(2)) for rank in range(2)]
        gang.kill(2)
        for one in waiting:
            assert isinstance(one.exception(10), OthersLost)


@pytest.mark.parametrize("gang", ["ipc", "curve"], indirect=True)
def test_a_connection_that_does_not_come_back_is_a_loss(gang: Gang, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AWAY", 0.3)
    gang.each(lambda one: one.sum(np.ones(2)))
    gang.ends[0].close()
    gang.ends.pop(0)
    with raises("R06") as caught:
        gang.each(lambda one: one.sum(np.ones(2)), range(1, SIZE))
    assert "no connection to it for 0.3 seconds" in str(caught.value)
    with raises("R06"):
        Agreement(gang.sums[1]).met  # noqa: B018 - one that waits for something else is told so too


@pytest.mark.parametrize("gang", ["ipc", "curve"], indirect=True)
@pytest.mark.parametrize("size", [0, 1, 200_001])
def test_what_the_first_rank_gives_all_have(gang: Gang, size: int) -> None:
    data = np.random.default_rng(0).bytes(size)
    assert set(gang.each(lambda one: one.broadcast(data if one.index == 0 else b""))) == {data}
