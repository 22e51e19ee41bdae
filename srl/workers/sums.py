"""Sums over the trainers of one policy on several hosts: parts travel through a stream and are added up in one order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from srl.core.tree import Array
from srl.learners.sums import Sums, unreachable
from srl.streams.sum import LARGEST, SumRank

_SMALL = 1 << 15
"""Bytes up to which every rank sends its part to all others: less waiting. Of longer ones it sends less in two steps."""
_MOMENT = 0.1
"""Seconds after which a waiting rank looks whether the others are still there."""


class StreamSums(Sums):
    """Waiting, it hands over what comes for this process, so the stream goes on and the loss of another rank is heard."""

    piece = LARGEST

    def __init__(self, end: SumRank, size: int, deliver: Callable[[], int], rest: Callable[[float], None]) -> None:
        """`deliver` hands over what has come, `rest` sleeps until something comes or so many seconds are over."""
        super().__init__(end.index, size)
        self._end, self._deliver, self._rest = end, deliver, rest
        self._others = [rank for rank in range(size) if rank != end.index]

    def put(self, x: Array) -> None:
        for other in self._others:
            self._end.send(other, x)

    def check(self) -> None:
        self._check(self._others)

    def ready(self) -> bool:
        missing = [other for other in self._others if not self._end.has(other)]
        self._check(missing)
        return not missing

    def wait(self) -> None:
        while True:
            came = self._deliver()
            if self.ready():
                return
            if not came:
                self._rest(_MOMENT)

    def take(self, x: Array) -> None:
        parts = [x if rank == self.index else self._end.next(rank, x) for rank in range(self.size)]
        total = parts[0] + parts[1]
        for part in parts[2:]:
            total += part
        x[...] = total

    def broadcast(self, data: bytes) -> bytes:
        """What the first rank gives here, on all of them."""
        size = np.array([len(data) if self.index == 0 else 0])
        self.sum(size)
        whole = np.zeros(int(size[0]), np.uint8)
        if self.index == 0:
            whole[...] = np.frombuffer(data, np.uint8)
        self.sum(whole)
        return whole.tobytes()

    def _check(self, ranks: list[int]) -> None:
        for rank in ranks:
            if why := self._end.lost(rank):
                raise unreachable(why)

    def _sum(self, x: Array) -> None:
        """A long piece in two steps: each rank adds up a share of it, then all have the sums of all shares."""
        if self.size == 2 or x.nbytes <= _SMALL:
            super()._sum(x)
            return
        shares = np.array_split(x, self.size)
        own = shares[self.index]
        for other in self._others:
            self._end.send(other, shares[other])
        self.wait()
        self.take(own)
        self.put(own)
        self.wait()
        for other in self._others:
            shares[other][...] = self._end.next(other, shares[other])
