"""Every message once and in order over connections that may break: sequence, acknowledgement, resend.

A sender keeps a message until the peer has acknowledged it. After too long a wait it sends a probe, which travels behind all
messages of its connection: whatever the answer does not acknowledge was lost and is sent again. A hole is never acknowledged.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

HEADER = struct.Struct("<QHHIQQQQ16x")
"""schema, kind, flags, slot, number, value, sequence, acknowledged: 64 bytes, so that the record behind it is aligned."""
CONTROL = 0
"""The kind of messages that have no sequence."""
ACK, PROBE, REPORT, HELLO = range(4)
"""`number` of a control message. PROBE asks for a REPORT that names the probe's last sequence in `value`;
HELLO: the sender knows nothing of you yet, so send again all that is not acknowledged."""
_OWED = 16


class Head(NamedTuple):
    """One unpacked header."""

    schema: int
    kind: int
    flags: int
    slot: int
    number: int
    value: int
    sequence: int
    acknowledged: int


class Sequence:
    """Both directions of one link, as seen from one side."""

    def __init__(self, schema: int, emit: Callable[[bytearray], bool], tick: Callable[[], None]) -> None:
        self._schema = schema
        self._emit = emit
        self._tick = tick
        self._last = 0
        self._unacknowledged: deque[tuple[int, bytearray]] = deque()
        self._emitted = 0
        self._received = 0
        self._reported = 0
        self._hole_reported = -1
        self._progress = False

    def send(self, frame: bytearray, kind: int, slot: int, number: int, value: int) -> None:
        """`frame` has room for the header and then the record; it must not change until it is acknowledged."""
        self._last += 1
        HEADER.pack_into(frame, 0, self._schema, kind, 0, slot, number, value, self._last, self._received)
        self._unacknowledged.append((self._last, frame))
        if len(self._unacknowledged) == self._emitted + 1 and self._emit(frame):
            self._emitted += 1
            self._reported = self._received
        self._tick()

    def accepts(self, head: Head) -> bool:
        """Note what a header says. True: its message is the next one; call `took` once it has proved sound."""
        self._acknowledge(head.acknowledged)
        if head.kind == CONTROL:
            self._on_control(head.number, head.value, head.acknowledged)
            return False
        if head.sequence == self._received + 1:
            return True
        if head.sequence > self._received and self._hole_reported != self._received:  # else it came again
            self._hole_reported = self._received
            self._control(REPORT, head.sequence - 1)
        return False

    def took(self) -> None:
        """The message was handed over: from now on it is acknowledged."""
        self._received += 1
        if self._received - self._reported >= _OWED:
            self._control(ACK)
        else:
            self._tick()

    def hello(self) -> None:
        """A link without a past."""
        self._control(HELLO)

    def probe(self) -> None:
        """Ask what has arrived: after a reconnect, and when nothing was acknowledged for too long."""
        self.flush()
        self._control(PROBE, self._unacknowledged[self._emitted - 1][0] if self._emitted else self._last_acknowledged())

    def beat(self) -> None:
        """Acknowledge what is owed, send what could not be sent."""
        self.flush()
        if self._received > self._reported:
            self._control(ACK)

    def stalled(self) -> bool:
        """True if something waits for an acknowledgement and none has come since the last call."""
        stalled = bool(self._unacknowledged) and not self._progress
        self._progress = False
        return stalled

    @property
    def idle(self) -> bool:
        """Nothing is owed in either direction."""
        return not self._unacknowledged and self._received == self._reported

    def flush(self) -> None:
        """Send what no connection has taken yet."""
        while self._emitted < len(self._unacknowledged):
            if not self._emit(self._unacknowledged[self._emitted][1]):
                return
            self._emitted += 1

    def _last_acknowledged(self) -> int:
        return self._unacknowledged[0][0] - 1 if self._unacknowledged else self._last

    def _acknowledge(self, number: int) -> None:
        while self._unacknowledged and self._unacknowledged[0][0] <= number:
            self._unacknowledged.popleft()
            self._emitted = max(0, self._emitted - 1)
            self._progress = True

    def _on_control(self, number: int, value: int, acknowledged: int) -> None:
        if number == PROBE:
            self._control(REPORT, value)
        elif number == HELLO or (number == REPORT and acknowledged < value <= self._last):
            self._emitted = 0
            self.flush()

    def _control(self, number: int, value: int = 0) -> None:
        frame = bytearray(HEADER.size)
        HEADER.pack_into(frame, 0, self._schema, CONTROL, 0, 0, number, value, 0, self._received)
        if self._emit(frame):
            self._reported = self._received
