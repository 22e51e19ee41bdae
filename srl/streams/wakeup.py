"""The wakeup of a process: one poll set over a pipe for messages, sockets, and watched descriptors."""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from srl.core.errors import HostileFrame

MESSAGE = struct.Struct("<HHIQQQ")
"""end, kind, slot, source, number, value: one atomic write of 32 bytes."""
_READ = 4096
_SHORT = 0.02
_SELECTABLE = 1024
Receive = Callable[[int, int, int, int, int, Any], None]


class Wakeup:
    """One per process. Nothing is opened before something needs it: with inproc ends alone a sweep costs two attribute reads."""

    def __init__(self) -> None:
        self.refused = 0
        """Messages on the pipe for an end that does not exist, or is closed."""
        self._pipe: tuple[int, int] | None = None
        self._ends: list[Receive | None] = []
        self._watched: dict[int, Callable[[], Any]] = {}
        self._sockets: dict[Any, Callable[[], int]] = {}
        self._lagging: dict[Any, Callable[[], bool]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_ids = count()
        self._poll: Any = None
        self._connected = False
        """Whether there ever was a socket: it goes with a peer that dies, and comes again with its next incarnation."""
        self._selectable: list[int] = []
        """All descriptors, where `select` can take them."""
        self._context: Any = None
        self.gate: Any = None
        """Decides who may connect to the encrypted sockets of this process, once there are any."""
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

    def add_socket(self, socket: Any, drain: Callable[[], int]) -> None:
        """Call `drain` when the ZeroMQ socket has something."""
        self._sockets[socket] = drain
        self._poll, self._connected = None, True

    def remove_socket(self, socket: Any) -> None:
        self._sockets.pop(socket, None)
        self._poll = None

    def drain(self) -> int:
        """Hand over what the pipe holds now; how many messages there were."""
        done = 0
        while self._pipe is not None:
            try:
                chunk = os.read(self._pipe[0], _READ)
            except BlockingIOError:
                break
            done += self._hand_over(chunk)
            if len(chunk) < _READ:
                break
        return done

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

    # what the loop uses ---------------------------------------------------------------------------------------------

    def deliver(self) -> int:
        """Hand all messages that have come to their ends; how many there were. Never waits."""
        if self._pipe is None and not self._sockets and not self._watched:
            return 0
        done = self.drain()
        if self._sockets or self._watched:
            done += self._serve_ready()
        while self._timers and self._timers[0][0] <= time.monotonic():
            heappop(self._timers)[2]()
        if self._lagging:
            for key, flush in list(self._lagging.items()):
                if flush():
                    self._lagging.pop(key, None)
        return done

    def wait(self, timeout: float | None) -> None:
        """Sleep until a message, a socket or a watched descriptor is there, or the time is up.

        What came is left to the next `deliver`, except for watched descriptors.
        """
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
        for key in self._readable(timeout):
            if isinstance(key, int) and key in self._watched:
                self._watched[key]()

    def watch(self, descriptor: int, call: Callable[[], Any]) -> None:
        """Call this from `deliver` or `wait` whenever the descriptor is readable."""
        self._watched[descriptor] = call
        self._poll = None

    @property
    def outside(self) -> bool:
        """A peer in another process can send messages, or come back, so an idle sweep is no deadlock."""
        return self._connected or any(end is not None for end in self._ends)

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

    def _hand_over(self, chunk: bytes) -> int:
        """Writes are atomic and `_READ` holds whole messages: anything else was not written by a peer."""
        if len(chunk) % MESSAGE.size:
            raise HostileFrame("the pipe of this process holds bytes that are not a message")
        ends, done = self._ends, 0
        for number, kind, slot, source, first, second in MESSAGE.iter_unpack(chunk):
            done += 1
            receive = ends[number] if number < len(ends) else None
            if receive is None:
                self.refused += 1
            else:
                receive(source, kind, slot, first, second, None)
        return done

    # the poll set ---------------------------------------------------------------------------------------------------

    def _serve_ready(self) -> int:
        done = 0
        for key, _ in self._set().poll(0):
            if key in self._sockets:
                done += self._sockets[key]()
            elif key in self._watched:
                self._watched[key]()
                done += 1
        return done

    def _readable(self, timeout: float | None) -> list[Any]:
        """What has something to read, after at most so many seconds. Polls count in milliseconds: too coarse for a short rest."""
        polled = self._set()
        if timeout is not None and timeout < _SHORT and self._selectable:
            return select.select(self._selectable, (), (), timeout)[0]
        return [key for key, _ in polled.poll(None if timeout is None else int(timeout * 1000 + 0.999))]

    def _set(self) -> Any:
        if self._poll is not None:
            return self._poll
        descriptors = [*self._watched, *([self._pipe[0]] if self._pipe is not None else [])]
        self._selectable = [] if self._sockets or max(descriptors) >= _SELECTABLE else descriptors
        if self._sockets:
            import zmq

            self._poll = zmq.Poller()
        else:
            self._poll = select.poll()
        for key in [*self._sockets, *descriptors]:
            self._poll.register(key, select.POLLIN)
        return self._poll
