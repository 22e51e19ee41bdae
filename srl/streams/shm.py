"""Streams between processes of one host: records in shared memory, messages of 32 bytes in the pipe of the peer's process.

Memory is a memfd: any process of the same user and host can map it by its maker's process id and descriptor. It has no name, so
nothing is left when its last holder has ended, however that ended.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections import deque
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from srl.core.errors import UserError, WireError
from srl.core.machine import memory_free
from srl.core.tree import Array, Tree
from srl.streams.base import Version
from srl.streams.codec import Arena, Layout
from srl.streams.peers import Peers
from srl.streams.transport import CHANGED, Network, Transport, Wire
from srl.streams.wakeup import MESSAGE, Wakeup

_pack = MESSAGE.pack
_HEAD = 64
"""Bytes before the arena: whose memory this is, so that a reused process id or descriptor is noticed."""


class Segment:
    """One mapping. The maker keeps it alive; those who open it keep only the mapping."""

    def __init__(self, memory: mmap.mmap, size: int, descriptor: int = -1) -> None:
        self.buffer = memoryview(memory)[_HEAD : _HEAD + size]
        self.descriptor = descriptor

    @classmethod
    def create(cls, size: int, owner: int) -> Segment:
        """New memory, reserved at once: too little is an error now, not a crash later."""
        free = memory_free()
        if size > free:
            raise _too_large(size, f"{free / 1e6:.0f} MB of memory available")
        descriptor = os.memfd_create("srl-stream", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(descriptor, 0, _HEAD + size)
        except OSError as error:
            os.close(descriptor)
            raise _too_large(size, str(error)) from error
        memory = mmap.mmap(descriptor, _HEAD + size)
        memory[:8] = owner.to_bytes(8, "little")
        return cls(memory, size, descriptor)

    @classmethod
    def attach(cls, pid: int, descriptor: int, size: int, owner: int, *, to_write: bool = True) -> Segment:
        """Map the memory that this process has under this descriptor; anything else that lies there now is refused."""
        path = f"/proc/{pid}/fd/{descriptor}"
        try:
            opened = os.open(path, (os.O_RDWR if to_write else os.O_RDONLY) | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise _unreachable(path, str(error)) from error
        try:
            found = os.fstat(opened)
            if not stat.S_ISREG(found.st_mode) or found.st_size != _HEAD + size:
                raise _unreachable(path, f"{found.st_size} bytes where {_HEAD + size} were expected")
            memory = mmap.mmap(opened, _HEAD + size, access=mmap.ACCESS_WRITE if to_write else mmap.ACCESS_READ)
        finally:
            os.close(opened)
        if memory[:8] != owner.to_bytes(8, "little"):
            raise _unreachable(path, "the memory of another end")
        return cls(memory, size)

    def close(self) -> None:
        """Release the mapping. The memory lives on while views of it exist."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        self.buffer = memoryview(b"")


class ShmTransport(Transport):
    """An end's memory, and its number in the pipe of its process."""

    by: Literal["memory"] = "memory"

    def __init__(self, wakeup: Wakeup, network: Network) -> None:
        self._wakeup = wakeup
        self._segment: Segment | None = None
        self._source = 0
        self._number = -1

    def open(self, end: Peers[Any], arena: Arena) -> Any:
        self._source = end.source
        self._segment = Segment.create(arena.size, end.source)
        self._number = self._wakeup.receiver(end.receive)
        return self._segment.buffer

    def address(self) -> dict[str, Any]:
        assert self._segment is not None
        memory = {"descriptor": self._segment.descriptor, "size": len(self._segment.buffer)}
        return {"pid": os.getpid(), "memory": memory, "pipe": self._wakeup.pipe(), "number": self._number}

    def connect(self, source: int, address: Mapping[str, Any], bodies: Mapping[int, Layout]) -> Wire:
        pid, memory = int(address["pid"]), address["memory"]
        segment = Segment.attach(pid, int(memory["descriptor"]), int(memory["size"]), source)
        path = f"/proc/{pid}/fd/{int(address['pipe'])}"
        try:
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise WireError(f"cannot reach {address['name']}: its process has exited", ("found", str(error))) from error
        if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
            os.close(pipe)
            raise WireError(f"cannot reach {address['name']}: its process has exited", ("found", f"no pipe at {path}"))
        return _PipeWire(self._wakeup, self._source, int(address["number"]), pipe, segment)

    def settle(self) -> None:
        self._wakeup.drain()

    def close(self) -> None:
        if self._segment is None:
            return
        self._wakeup.forget(self._number)
        self._segment.close()
        self._segment = None


class _PipeWire(Wire):
    """Writes into the pipe of a peer's process; what does not fit into a full pipe waits here, in order."""

    __slots__ = ("__weakref__", "_backlog", "_number", "_pipe", "_segment", "_source", "_wakeup")

    def __init__(self, wakeup: Wakeup, source: int, number: int, pipe: int, segment: Segment) -> None:
        self._wakeup = wakeup
        self._source = source
        self._number = number
        self._pipe = pipe
        self._segment = segment
        self._backlog: deque[bytes] = deque()

    def send(self, kind: int, slot: int = 0, number: int = 0, value: int = 0, body: Tree | None = None) -> None:
        message = _pack(self._number, kind, slot, self._source, number, value)
        if self._backlog:
            self._backlog.append(message)
            return
        try:
            os.write(self._pipe, message)
        except BlockingIOError:
            if kind != CHANGED:  # a full pipe wakes as well
                self._backlog.append(message)
                self._wakeup.lag(self, self._flush)
        except OSError:
            pass  # its process has ended: detach will settle the accounts

    @property
    def memory(self) -> Any:
        return self._segment.buffer

    def close(self) -> None:
        self._wakeup.cancel(self)
        self._backlog.clear()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
            self._segment.close()

    def _flush(self) -> bool:
        while self._backlog:
            try:
                os.write(self._pipe, self._backlog[0])
            except BlockingIOError:
                return False
            except OSError:
                self._backlog.clear()
                return True
            self._backlog.popleft()
        return True


_SLOTS = 3
"""Publication n goes to slot n % 3, so the next two leave it alone. A reader that copied while n+2 began copies again."""


def version_arena(record: Layout) -> Arena:
    """How many publications there were, the version in each slot, and the slots."""
    return Arena(1 + _SLOTS, [record] * _SLOTS)


class NewestWriter:
    """The newest parameters in shared memory: one end writes, any number of readers copy."""

    def __init__(self, record: Layout, memory: Any) -> None:
        arena = version_arena(record)
        self._words = arena.words(memory)
        self._slots = [record.flat(arena.record(memory, slot)) for slot in range(_SLOTS)]

    def write(self, version: Version, arrays: list[Array]) -> None:
        """Make this the newest publication."""
        number = self._words[0] + 1
        slot = number % _SLOTS
        for target, source in zip(self._slots[slot], arrays, strict=True):
            target[...] = source
        self._words[1 + slot] = version
        self._words[0] = number


class NewestReader:
    """The other side."""

    def __init__(self, record: Layout, memory: Any) -> None:
        arena = version_arena(record)
        self._record = record
        self._words = arena.words(memory)
        self._slots = [record.flat(arena.record(memory, slot, writable=False)) for slot in range(_SLOTS)]
        self._copy = [np.empty(shape, dtype) for shape, dtype in zip(record.shapes, record.dtypes, strict=True)]
        self._seen, self._version = -1, -1

    def read(self, newer_than: Version) -> tuple[Version, Tree] | None:
        """A copy of the newest publication if its version is newer than that. Valid until the next one."""
        words = self._words
        if words[0] == self._seen and self._version <= newer_than:
            return None
        while True:
            number = words[0]
            if number == 0:
                self._seen = 0
                return None
            slot = number % _SLOTS
            version = words[1 + slot]
            if version <= newer_than:
                if words[0] == number:
                    self._seen, self._version = number, version
                    return None
                continue
            for target, source in zip(self._copy, self._slots[slot], strict=True):
                target[...] = source
            if words[0] - number < _SLOTS - 1:
                self._seen, self._version = number, version
                return version, self._record.tree(self._copy)


def _too_large(size: int, found: str) -> UserError:
    return UserError(
        f"not enough memory: {size / 1e6:.1f} MB of stream buffers needed",
        ("found", found),
        ("try", "fewer or smaller slabs: sampling.envs, sampling.steps, staleness.max"),
        code="E08",
    )


def _unreachable(path: str, found: str) -> WireError:
    return WireError(
        f"no stream memory at {path}",
        ("found", found),
        ("why", "its process has ended, or /proc is not shared with it"),
        ("try", "via: zmq between processes that do not share /proc"),
    )
