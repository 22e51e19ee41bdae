"""Exactly-once, ordered messages over calls that may break."""

from __future__ import annotations

from collections import deque

from srl.workers.messages import Message

UNNUMBERED = ("hello", "welcome", "report", "ack")
"""These are not kept for a resend: the first two open a call, and a lost report or acknowledgement costs nothing."""


class ReliableChannel:
    """One side of the connection. A message is kept until the other side has acknowledged it."""

    def __init__(self) -> None:
        self.taken = 0
        """The highest number received from the other side."""
        self._kept: deque[Message] = deque()
        self._last = 0

    @property
    def backlog(self) -> int:
        """Messages that the other side has not acknowledged."""
        return len(self._kept)

    def send(self, message: Message) -> Message:
        """The message as it goes over the wire."""
        message = {**message, "ack": self.taken}
        if message["type"] not in UNNUMBERED:
            self._last += 1
            message["seq"] = self._last
            self._kept.append(message)
        return message

    def receive(self, message: Message) -> bool:
        """Whether the message is new; False for a repeat."""
        self.acknowledged(message.pop("ack", 0))
        number = message.pop("seq", 0)
        if not number:
            return True
        if number != self.taken + 1:  # always a repeat, never a gap: a call keeps order, and a new call resends everything
            return False
        self.taken = number
        return True

    def acknowledged(self, number: int) -> None:
        """The other side has received everything up to here."""
        while self._kept and self._kept[0]["seq"] <= number:
            self._kept.popleft()

    def resend(self, number: int) -> list[Message]:
        """After a reconnection: everything after message `number`, the last one that the other side received."""
        self.acknowledged(number)
        return [{**message, "ack": self.taken} for message in self._kept]
