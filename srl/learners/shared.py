"""Memory that two processes share without a name in the file system, and how each waits for the other in the kernel."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import select
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import msgpack
import numpy as np
import torch
from torch import Tensor

from srl.core.errors import RunError
from srl.core.tree import Array
from srl.learners.questions import PLACES, Channel, Link

WORDS = 512
"""Integers at the start of the memory."""
_ALIGN = 64
_AWAKE = 1e-4
"""Seconds in which a side looks again and again before it sleeps; what that gains: docs/numbers.md."""
_LENGTH = struct.Struct("<Q")


class Memory:
    """A memfd. Both processes take the same pieces in the same order, so that no place has to be told."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor, self.size = descriptor, size
        self._map = mmap.mmap(descriptor, size)
        self.words = memoryview(self._map)[: 8 * WORDS].cast("q")
        self._next = 8 * WORDS

    @classmethod
    def create(cls, pieces: Sequence[int]) -> Memory:
        """For pieces of so many bytes."""
        size = 8 * WORDS + sum(_aligned(piece) for piece in pieces)
        descriptor = os.memfd_create("srl-learner", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, size)
        return cls(descriptor, size)

    def array(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """The next piece as an array."""
        kind, start = np.dtype(dtype), self._next
        self._next += _aligned(math.prod(shape) * kind.itemsize)
        return np.frombuffer(self._map, kind, math.prod(shape), start).reshape(shape)

    def like(self, tensors: Sequence[Tensor], reader: int = 0) -> list[Tensor]:
        """The next pieces, for copies of these tensors. `reader`: of no importance where both read the same memory."""
        return [torch.from_numpy(self.array(tuple(one.shape), one.numpy().dtype)) for one in tensors]

    def channel(self, link: Link, words: Any, size: int, reader: int) -> Channel:
        """The next pieces, for tensors that cross, of so many bytes at once."""
        return Channel(link, words, [self.array((size,), np.uint8) for _ in range(PLACES)])

    def close(self) -> None:
        """The memory itself lives on while there are views of it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Line:
    """Between two processes: messages over a socket, and a bell for each side. A dead process ends every wait for it."""

    def __init__(self, control: socket.socket, own_bell: int, other_bell: int, other: str) -> None:
        self._control, self._own, self._other = control, own_bell, other_bell
        self.waited = 0.0
        self.name = other
        """Of the other side, for errors."""
        self._poll = select.poll()
        self._poll.register(own_bell, select.POLLIN)
        self._poll.register(control.fileno(), select.POLLIN)
        self.heard: Callable[[dict[str, Any]], None] = self._surprised
        """Called with messages that come during `wait`."""

    def ring(self) -> None:
        """Wake the other side: a counter has changed."""
        os.eventfd_write(self._other, 1)

    def wait(self, ready: Callable[[], bool]) -> None:
        """Return when this is true; only what the other side does can make it true."""
        if ready():
            return
        began = perf_counter()
        while not ready():
            if perf_counter() - began > _AWAKE:
                self._sleep()
        self.waited += perf_counter() - began

    def send(self, message: Mapping[str, Any]) -> None:
        """To the other side. Arrays in it are copied."""
        data = msgpack.packb(message, default=_packed)
        try:
            self._control.sendall(_LENGTH.pack(len(data)) + data)
        except OSError:
            raise self._gone() from None

    def receive(self) -> dict[str, Any]:
        """The next message; waits for it."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        message: dict[str, Any] = msgpack.unpackb(self._exactly(length), object_hook=_unpacked)
        return message

    def close(self) -> None:
        """Give the descriptors back."""
        self._control.close()
        for bell in (self._own, self._other):
            with contextlib.suppress(OSError):
                os.close(bell)

    def _sleep(self) -> None:
        """Until the other side rings or sends a message."""
        for descriptor, _ in self._poll.poll():
            if descriptor == self._own:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._own)
            else:
                self.heard(self.receive())

    def _exactly(self, length: int) -> bytearray:
        data = bytearray(length)
        view, got = memoryview(data), 0
        while got < length:
            try:
                more = self._control.recv_into(view[got:])
            except ConnectionError:
                more = 0
            if not more:
                raise self._gone()
            got += more
        return data

    def _gone(self) -> RunError:
        return RunError(f"the process of the {self.name} has died", code="R01")

    def _surprised(self, message: dict[str, Any]) -> None:
        raise RunError(f"the {self.name} sent '{message.get('type')}', which was not requested")


def bells() -> tuple[int, int]:
    """One for each side."""
    return tuple(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(2))  # type: ignore[return-value]


def _packed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"$dtype": value.dtype.str, "shape": list(value.shape), "data": value.tobytes()}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__} cannot be sent to the other side of a learner")


def _unpacked(data: dict[str, Any]) -> Any:
    if "$dtype" in data:
        return np.frombuffer(data["data"], np.dtype(data["$dtype"])).reshape(data["shape"]).copy()
    return data


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
