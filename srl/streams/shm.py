"""Streams between processes of one host: records in shared memory, messages of 32 bytes on the peer's wakeup."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from srl.core.errors import WireError
from srl.core.tree import Tree
from srl.streams.codec import Arena, Layout
from srl.streams.peers import NEW, Network, Peers, Transport, Wire
from srl.streams.segment import Segment, sweep
from srl.streams.wakeup import MESSAGE, Wakeup

_pack = MESSAGE.pack


class ShmTransport(Transport):
    """An end's memory, and its place on the wakeup of its process."""

    by: Literal["memory"] = "memory"

    @classmethod
    def beside(cls, wakeup: Wakeup, network: Network) -> Self:
        return cls(wakeup, network.files)

    def __init__(self, wakeup: Wakeup, folder: Path | None) -> None:
        self._wakeup = wakeup
        self._folder = folder
        self._segment: Segment | None = None
        self._kept: dict[int, Segment] = {}
        self._fifo: tuple[int, Path] | None = None
        self._source = 0
        self._number = -1
        self._end: Peers[Any] | None = None

    def open(self, end: Peers[Any], arena: Arena) -> Any:
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            sweep(self._folder)
        self._source = end.source
        self._end = end
        self._segment = Segment.create(arena.size, end.source, self._folder)
        self._number = self._wakeup.receiver(end.receive)
        if self._segment.path is not None:
            self._open_fifo(self._segment.path.with_suffix(".wakeup"))
        return self._segment.buffer

    def address(self) -> dict[str, Any]:
        assert self._segment is not None
        wakeup = str(self._fifo[1]) if self._fifo else f"/proc/{os.getpid()}/fd/{self._wakeup.pipe()}"
        memory = {"size": len(self._segment.buffer), **self._segment.address()}
        return {"memory": memory, "wakeup": wakeup, "number": self._number}

    def connect(self, source: int, address: Mapping[str, Any], bodies: Mapping[int, Layout]) -> Wire:
        segment = Segment.attach(address["memory"], int(address["memory"]["size"]), source)
        try:
            wakeup = os.open(address["wakeup"], os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise WireError(f"{address['name']} has no wakeup any more", ("found", str(error))) from error
        if not stat.S_ISFIFO(os.fstat(wakeup).st_mode):
            os.close(wakeup)
            raise WireError(f"{address['name']} has no wakeup any more", ("found", f"no pipe at {address['wakeup']}"))
        return _PipeWire(self._wakeup, self._source, int(address["number"]), wakeup, segment, address)

    def settle(self) -> None:
        self._wakeup.drain()
        if self._fifo is not None:
            self._wakeup.drain(self._fifo[0])

    def keep(self, size: int) -> tuple[int, Any]:
        segment = Segment.create(size, self._source, self._folder)
        if segment.path is not None:
            assert self._segment is not None and self._segment.path is not None
            named = self._segment.path.with_name(f"{self._segment.path.stem}.{segment.descriptor}.memory")
            segment.path.rename(named)
            segment.path = named
        self._kept[segment.descriptor] = segment
        return segment.descriptor, segment.buffer

    def drop(self, handle: int) -> None:
        self._kept.pop(handle).close()

    def close(self) -> None:
        if self._segment is None:
            return
        self._wakeup.forget(self._number)
        if self._fifo is not None:
            descriptor, path = self._fifo
            self._wakeup.unwatch(descriptor)
            os.close(descriptor)
            path.unlink(missing_ok=True)
            self._fifo = None
        for segment in [self._segment, *self._kept.values()]:
            segment.close()
        self._kept.clear()
        self._segment = self._end = None

    def _open_fifo(self, path: Path) -> None:
        os.mkfifo(path, 0o600)
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # RDWR: no end of file when a writer leaves
        self._fifo = (descriptor, path)
        self._wakeup.add_pipe(descriptor)


class _PipeWire(Wire):
    """Pulls the wakeup of a peer's process; what does not fit in a full pipe waits here, in order."""

    __slots__ = ("__weakref__", "_address", "_backlog", "_number", "_own", "_segment", "_source", "_wakeup")

    def __init__(self, own: Wakeup, source: int, number: int, wakeup: int, segment: Segment, address: Mapping[str, Any]) -> None:
        self._own = own
        self._source = source
        self._number = number
        self._wakeup = wakeup
        self._segment = segment
        self._address = address
        self._backlog: deque[bytes] = deque()

    def send(self, kind: int, slot: int = 0, number: int = 0, value: int = 0, body: Tree | None = None) -> None:
        message = _pack(self._number, kind, slot, self._source, number, value)
        if self._backlog:
            self._backlog.append(message)
            return
        try:
            os.write(self._wakeup, message)
        except BlockingIOError:
            if kind != NEW:  # a full pipe wakes as well
                self._backlog.append(message)
                self._own.lag(self, self._flush)
        except OSError:
            pass  # its process has ended: detach will settle the accounts

    @property
    def memory(self) -> Any:
        return self._segment.buffer

    def load(self, handle: int, size: int) -> Any:
        memory = dict(self._address["memory"])
        if "path" in memory:
            path = Path(memory["path"])
            memory["path"] = str(path.with_name(f"{path.stem}.{handle}.memory"))
        else:
            memory["fd"] = handle
        try:
            return Segment.attach(memory, size, int(self._address["source"])).buffer
        except WireError:
            return None

    def close(self) -> None:
        self._own.cancel(self)
        self._backlog.clear()
        if self._wakeup >= 0:
            os.close(self._wakeup)
            self._wakeup = -1
            self._segment.close()

    def _flush(self) -> bool:
        while self._backlog:
            try:
                os.write(self._wakeup, self._backlog[0])
            except BlockingIOError:
                return False
            except OSError:
                self._backlog.clear()
                return True
            self._backlog.popleft()
        return True
