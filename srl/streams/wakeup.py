"""What can wake the loop of a process: a pipe that carries messages, sockets and watched descriptors, in one poll set."""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

MESSAGE = struct.Struct("<HHIQQQ")
"""end, kind, slot, source, number, value: one atomic write of 32 bytes."""
_READ = 4096
_SHORT = 0.02
_SELECTABLE = 1024
_WAKE = MESSAGE.pack(0xFFFF, 0, 0, 0, 0, 0)
Receive = Callable[[int, int, int, int, int, Any], None]


class Wakeup:
    """Nothing is opened before something needs it: with inproc ends alone a sweep costs two attribute reads."""

    def __init__(self) -> None:
        self.sweep = 0
        """Grows at each deliver: ends tell one sweep of the loop from the next by it."""
        self.refused = 0
        """Messages on the pipe that are addressed to nobody."""
        self._pipe: tuple[int, int] | None = None
        self._ends: list[Receive | None] = []
        self._watched: dict[int, Any] = {}
        self._sockets: dict[Any, Callable[[], int]] = {}
        self._lagging: dict[Any, Callable[[], bool]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_ids = count()
        self._poll: Any = None
        self._selectable: list[int] = []
        """All descriptors, where `select` can take them."""
        self._context: Any = None
        self.gate: Any = None
        """Who may connect to encrypted sockets of this process, once there are any."""
        self._closed = False

    # what ends use --------------------------------------------------------------------------------------------------

    def pipe(self) -> int:
        """The descriptor that peers open for writing; made at the first call."""
        if self._pipe is None:
            self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            self._poll = None
        return self._pipe[0]

    def receiver(self, receive: Receive) -> int:
        """Register an end; messages on the pipe name it by this number."""
        self.pipe()
        self._ends.append(receive)
        return len(self._ends) - 1

    def forget(self, number: int) -> None:
        """The end is closed."""
        self._ends[number] = None

    def add_pipe(self, descriptor: int) -> None:
        """Read messages from this pipe (a named one) too."""
        self._watched[descriptor] = None
        self._poll = None

    def add_socket(self, socket: Any, drain: Callable[[], int]) -> None:
        """Call `drain` when the ZeroMQ socket has something."""
        self._sockets[socket] = drain
        self._poll = None

    def remove_socket(self, socket: Any) -> None:
        self._sockets.pop(socket, None)
        self._poll = None

    def drain(self, descriptor: int | None = None) -> None:
        """Hand over what the pipe holds now."""
        if descriptor is not None:
            self._drain(descriptor)
        elif self._pipe is not None:
            self._drain(self._pipe[0])

    def lag(self, key: Any, flush: Callable[[], bool]) -> None:
        """Call `flush` at each deliver until it says that nothing is left to send."""
        self._lagging[key] = flush

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Call once the monotonic clock has reached `when`."""
        heappush(self._timers, (when, next(self._timer_ids), call))

    def cancel(self, owner: Any) -> None:
        """Drop the timers whose bound methods belong to `owner`."""
        self._timers = [timer for timer in self._timers if getattr(timer[2], "__self__", None) is not owner]
        heapify(self._timers)
        self._lagging.pop(owner, None)

    @property
    def context(self) -> Any:
        """The ZeroMQ context of this process, made at the first use."""
        if self._context is None:
            import zmq

            self._context = zmq.Context()
            self._context.set(zmq.MAX_SOCKETS, min(16384, self._context.get(zmq.SOCKET_LIMIT)))
        return self._context

    def wake(self) -> None:
        """Wake the loop, from any thread."""
        self.pipe()
        assert self._pipe is not None
        with suppress(BlockingIOError):  # a full pipe wakes as well
            os.write(self._pipe[1], _WAKE)

    # what the loop uses ---------------------------------------------------------------------------------------------

    def deliver(self) -> int:
        """Hand all messages that have come to their ends; how many there were. Never waits."""
        self.sweep += 1
        if self._pipe is None and not self._sockets and not self._watched:
            return 0
        done = self._drain(self._pipe[0]) if self._pipe is not None else 0
        if self._sockets or self._watched:
            done += self._ready(0)
        if self._timers:
            self._fire()
        if self._lagging:
            self._flush()
        return done

    def wait(self, timeout: float | None) -> None:
        """Sleep until a message, a socket or a watched descriptor is there, or the time is up."""
        if self._lagging:
            timeout = min(0.002, timeout) if timeout is not None else 0.002
        if self._timers:
            rest = max(0.0, self._timers[0][0] - time.monotonic())
            timeout = rest if timeout is None else min(timeout, rest)
        if self._pipe is None and not self._sockets and not self._watched:
            if timeout is None:
                raise RuntimeError("nothing can end this wait: no descriptor, no timer, no time-out")
            time.sleep(timeout)
            return
        self._wait(timeout)

    def watch(self, descriptor: int, call: Callable[[], Any]) -> None:
        """Call this from `deliver` or `wait` whenever the descriptor is readable."""
        self._watched[descriptor] = call
        self._poll = None

    def unwatch(self, descriptor: int) -> None:
        self._watched.pop(descriptor, None)
        self._poll = None

    @property
    def outside(self) -> bool:
        """A peer in another process can send messages, so an idle sweep is no deadlock."""
        return bool(self._sockets) or any(end is not None for end in self._ends)

    def close(self) -> None:
        """Give everything back. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._pipe is not None:
            for descriptor in self._pipe:
                os.close(descriptor)
            self._pipe = None
        self._watched.clear()
        self._sockets.clear()
        self._timers.clear()
        self._lagging.clear()
        self._poll = None
        if self.gate is not None:
            self.gate.close()
            self.gate = None
        if self._context is not None:
            self._context.destroy(linger=0)
            self._context = None

    # the pipe -------------------------------------------------------------------------------------------------------

    def _drain(self, descriptor: int) -> int:
        done = 0
        while True:
            try:
                chunk = os.read(descriptor, _READ)
            except BlockingIOError:
                return done
            done += self._hand_over(chunk)
            if len(chunk) < _READ:
                return done

    def _hand_over(self, chunk: bytes) -> int:
        """Writes are atomic, so a chunk that is no multiple of a message holds foreign bytes: they are skipped and counted."""
        if len(chunk) % MESSAGE.size:
            return self._search(chunk)
        ends, done = self._ends, 0
        for number, kind, slot, source, first, second in MESSAGE.iter_unpack(chunk):
            done += 1
            if number == 0xFFFF:
                continue
            receive = ends[number] if number < len(ends) else None
            if receive is None:
                self.refused += 1
            else:
                receive(source, kind, slot, first, second, None)
        return done

    def _search(self, chunk: bytes) -> int:
        """Find the messages in a chunk with foreign bytes in it: they begin where an end and a kind are known."""
        self.refused += 1
        done = start = 0
        while start + MESSAGE.size <= len(chunk):
            number, kind, *_ = MESSAGE.unpack_from(chunk, start)
            if number < len(self._ends) and 0 < kind < 32 and self._ends[number] is not None:
                done += self._hand_over(chunk[start : start + MESSAGE.size])
                start += MESSAGE.size
            else:
                start += 1
        return done

    # the poll set ---------------------------------------------------------------------------------------------------

    def _ready(self, timeout: int | None) -> int:
        done = 0
        for key, _ in self._set().poll(timeout):
            if key in self._sockets:
                done += self._sockets[key]()
            elif key in self._watched:
                call = self._watched[key]
                if call is None:
                    done += self._drain(key)
                else:
                    call()
                    done += 1
        return done

    def _wait(self, timeout: float | None) -> None:
        """Sleep, but leave what came to the next deliver, except for watched descriptors."""
        for key in self._readable(timeout):
            call = self._watched.get(key) if isinstance(key, int) else None
            if call is not None:
                call()

    def _readable(self, timeout: float | None) -> list[Any]:
        """What has something to read, after at most so many seconds. Polls count in milliseconds: too coarse for a short rest."""
        polled = self._set()
        if timeout is not None and timeout < _SHORT and self._selectable:
            return select.select(self._selectable, (), (), timeout)[0]
        return [key for key, _ in polled.poll(None if timeout is None else int(timeout * 1000 + 0.999))]

    def _set(self) -> Any:
        if self._poll is None:
            self._poll = self._new_set()
        return self._poll

    def _new_set(self) -> Any:
        descriptors = [*self._watched, *([self._pipe[0]] if self._pipe is not None else [])]
        self._selectable = [] if self._sockets or max(descriptors) >= _SELECTABLE else descriptors
        if self._sockets:
            import zmq

            poller = zmq.Poller()
            for key in [*self._sockets, *descriptors]:
                poller.register(key, zmq.POLLIN)
            return poller
        plain = select.poll()
        for descriptor in descriptors:
            plain.register(descriptor, select.POLLIN)
        return plain

    def _fire(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heappop(self._timers)[2]()

    def _flush(self) -> None:
        for key, flush in list(self._lagging.items()):
            if flush():
                self._lagging.pop(key, None)
