"""Both sides of a split learner in one process, a thread for each: for two GPUs, between which tensors are copied directly.

A copy between devices makes the stream of each wait for the other's, by events that torch records. Run on CPU devices only so
far: no machine with two GPUs was at hand.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from srl.core.errors import RunError
from srl.core.tree import Array
from srl.learners.questions import Link
from srl.learners.shared import WORDS


class PeerMemory:
    """What two threads share. Each side takes the pieces in the same order, from a `view` of its own."""

    def __init__(self, devices: tuple[str, str]) -> None:
        self.words = memoryview(bytearray(8 * WORDS)).cast("q")
        self._devices, self._next = devices, 0
        self._made: list[Any] = []
        self._lock = threading.Lock()

    def view(self) -> PeerMemory:
        """The same pieces from the start."""
        other = PeerMemory(self._devices)
        other.words, other._made, other._lock = self.words, self._made, self._lock
        return other

    def array(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """A piece on the host, from which devices copy without waiting."""

        def make() -> Array:
            empty = np.zeros(shape, dtype)
            pinned: Array = torch.from_numpy(empty).pin_memory().numpy() if torch.cuda.is_available() else empty
            return pinned

        array: Array = self._piece(make)
        return array

    def like(self, tensors: Sequence[Tensor], reader: int) -> list[Tensor]:
        """A piece for copies of these tensors, where its reader is: 0 the actor, 1 the critics."""
        found: list[Tensor] = self._piece(lambda: [torch.empty_like(one, device=self._devices[reader]) for one in tensors])
        return found

    def channel(self, link: Link, words: Any, size: int, reader: int) -> PeerChannel:
        """A piece for tensors that cross."""
        return PeerChannel(link, self._piece(deque), self._devices[reader])

    def close(self) -> None:
        """Nothing to give back."""

    def _piece(self, make: Callable[[], Any]) -> Any:
        with self._lock:
            if self._next == len(self._made):
                self._made.append(make())
        self._next += 1
        return self._made[self._next - 1]


class PeerChannel:
    """One direction of tensors between two devices, in order."""

    def __init__(self, link: Link, queue: deque[list[Tensor | None]], device: str) -> None:
        self._link, self._queue, self._device = link, queue, device

    def send(self, tensors: Sequence[Tensor | None]) -> None:
        """Copy them to the device of the other side."""
        self._queue.append([None if one is None else one.detach().to(self._device, copy=True) for one in tensors])
        self._link.ring()

    def receive(self) -> list[Tensor | None]:
        """The next ones."""
        self._link.wait(lambda: bool(self._queue))
        return self._queue.popleft()


class PeerLine:
    """As `Line`, between two threads."""

    def __init__(self, changed: threading.Condition, inbox: deque[Any], outbox: deque[Any], over: threading.Event) -> None:
        self._changed, self._inbox, self._outbox, self._over = changed, inbox, outbox, over
        self.waited = 0.0
        self.heard: Callable[[dict[str, Any]], None] = lambda message: None

    @classmethod
    def pair(cls) -> tuple[PeerLine, PeerLine]:
        """One end for each side."""
        changed, over = threading.Condition(), threading.Event()
        one: deque[Any] = deque()
        other: deque[Any] = deque()
        return cls(changed, one, other, over), cls(changed, other, one, over)

    def ring(self) -> None:
        """Wake the other side."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, ready: Callable[[], bool]) -> None:
        """Sleep until this is true."""
        while True:
            with self._changed:
                while not self._inbox and not ready():
                    self._sleep()
                if not self._inbox:
                    return
                message = self._inbox.popleft()
            self.heard(message)
            if ready():
                return

    def send(self, message: Mapping[str, Any]) -> None:
        """To the other side."""
        with self._changed:
            self._outbox.append(message)
            self._changed.notify_all()

    def receive(self) -> Any:
        """The next message; waits for it."""
        with self._changed:
            while not self._inbox:
                self._sleep()
            return self._inbox.popleft()

    def close(self) -> None:
        """Nobody waits any more."""
        self._over.set()
        self.ring()

    def _sleep(self) -> None:
        if self._over.is_set():
            raise RunError("the other side has ended", code="R01")
        began = perf_counter()
        self._changed.wait()
        self.waited += perf_counter() - began
