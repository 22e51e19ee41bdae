"""Sums over the processes of all ranks: what they have in common, and those of one host, through shared memory."""

from __future__ import annotations

import json
import mmap
import os
import select
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from torch import Tensor

from srl.core.errors import OthersLost
from srl.core.tree import Array


class Sums(ABC):
    """One of `size` processes. All of them sum the same arrays in the same order, and get bit-identical results."""

    piece: ClassVar[int]
    """Bytes that are summed at once. Longer arrays are summed piece by piece."""

    def __init__(self, index: int, size: int) -> None:
        self.index, self.size = index, size

    def total(self, x: Tensor) -> Tensor:
        """The sum, written into `x`. Waits for the others; OthersLost if one is gone."""
        flat = x.detach().cpu().contiguous().view(-1)
        self.sum(flat.numpy())
        if flat.data_ptr() != x.data_ptr():
            x.copy_(flat.view_as(x))
        return x

    def sum(self, x: Array) -> None:
        """The same of a flat array."""
        step = self.piece // x.itemsize
        for start in range(0, len(x), step):
            self._sum(x[start : start + step])

    def _sum(self, x: Array) -> None:
        """Of one piece."""
        self.put(x)
        self.wait()
        self.take(x)

    @abstractmethod
    def put(self, x: Array) -> None:
        """The first half of the sum of a piece: give the own part to the others."""

    @abstractmethod
    def ready(self) -> bool:
        """True if `take` need not wait. OthersLost if it would wait for ever."""

    def check(self) -> None:
        """OthersLost if it is known that another process is gone."""

    @abstractmethod
    def wait(self) -> None:
        """Return when `ready` is true."""

    @abstractmethod
    def take(self, x: Array) -> None:
        """The second half, once all parts are there; `x` is what was put. They are added in one order everywhere."""

    def close(self) -> None:
        """Give everything back. Idempotent."""


class SharedSums(Sums):
    """Sums on one host: each process writes its part into memory of its own, tells the others, and adds up all parts.

    A call writes into one of two slots in turn: nobody is two calls ahead of a process that has not read the last but one. A byte
    through a pipe says that the part is there, and the end of a pipe that the other process is gone.
    """

    piece = 4 << 20

    def __init__(self, index: int, size: int) -> None:
        super().__init__(index, size)
        self._memory = os.memfd_create("srl ranks", os.MFD_CLOEXEC)
        os.ftruncate(self._memory, 2 * self.piece)
        pipes = {other: os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) for other in range(size) if other != index}
        self.readers = {other: ends[0] for other, ends in pipes.items()}
        """Other process -> what it writes to; the event loop calls `hear` when one is readable."""
        self._own_ends = {other: ends[1] for other, ends in pipes.items()}
        self._writers: dict[int, int] = {}
        self._parts: list[Array] = []
        """The two slots of each process."""
        self._heard = dict.fromkeys(pipes, 0)
        """Parts that are there and that no call has taken."""
        self._gone: set[int] = set()
        self._never = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._calls = 0

    def address(self) -> str:
        """What the other processes need to connect."""
        own = f"/proc/{os.getpid()}/fd"
        pipes = {str(other): f"{own}/{end}" for other, end in self._own_ends.items()}
        return json.dumps({"memory": f"{own}/{self._memory}", "pipes": pipes})

    def connect(self, addresses: Callable[[int], str]) -> None:
        """Map the memory of all, and wait until all have mapped this one's."""
        for rank in range(self.size):
            at = json.loads(addresses(rank)) if rank != self.index else {}
            memory = os.open(at["memory"], os.O_RDWR | os.O_CLOEXEC) if at else self._memory
            self._parts.append(np.frombuffer(mmap.mmap(memory, 2 * self.piece), np.uint8).reshape(2, self.piece))
            if at:
                os.close(memory)
                self._writers[rank] = os.open(at["pipes"][str(self.index)], os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.sum(np.zeros(1))
        for end in self._own_ends.values():
            os.close(end)  # from now on the end of a pipe tells that its writer is gone
        self._own_ends = {}

    def put(self, x: Array) -> None:
        self._slot(self.index, x)[...] = x
        for other, writer in self._writers.items():
            try:
                os.write(writer, b".")
            except BrokenPipeError:
                self._gone.add(other)

    def ready(self) -> bool:
        self.hear()
        for other, heard in self._heard.items():
            if not heard and other in self._gone:
                raise unreachable("its process has ended")
        return all(self._heard.values())

    def wait(self) -> None:
        for other in self.readers:
            self._wait(other)

    def take(self, x: Array) -> None:
        first, second, *others = (self._slot(rank, x) for rank in range(self.size))
        np.add(first, second, out=x)
        for part in others:
            x += part
        for other in self._heard:
            self._heard[other] -= 1
        self._calls += 1

    def hear(self) -> None:
        """Count what the others have put. Never waits."""
        for other in self.readers:
            self._listen(other)

    def close(self) -> None:
        for end in (*self.readers.values(), *self._writers.values(), *self._own_ends.values()):
            os.close(end)
        if self._memory >= 0:
            os.close(self._memory)
            os.close(self._never)
        self._memory = -1
        self.readers, self._writers, self._own_ends, self._parts = {}, {}, {}, []

    def _slot(self, rank: int, like: Array) -> Array:
        return self._parts[rank][self._calls % 2, : like.nbytes].view(like.dtype)

    def _wait(self, other: int) -> None:
        while not self._heard[other]:
            if other in self._gone:
                self.ready()
            if not self._listen(other):
                polled = select.poll()
                polled.register(self.readers[other], select.POLLIN)
                polled.poll()

    def _listen(self, other: int) -> bool:
        """Whether anything came."""
        try:
            found = os.read(self.readers[other], 64)
        except BlockingIOError:
            return False
        if not found:
            self._gone.add(other)
            os.dup2(self._never, self.readers[other])  # the end of a pipe stays readable, and would wake the loop again and again
        self._heard[other] += len(found)
        return True


def unreachable(why: str) -> OthersLost:
    return OthersLost("another trainer of this policy cannot be reached", ("because", why))
