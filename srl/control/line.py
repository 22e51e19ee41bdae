"""A line between two parties over calls that may break: numbered messages, nothing lost, nothing twice, in order."""

from __future__ import annotations

from collections import deque

from srl.control.messages import Message

UNNUMBERED = ("hello", "welcome", "report")
"""Reports are not kept: a lost one costs nothing."""


class Line:
    """One side. A message is kept until the other side has said that it took it."""

    def __init__(self) -> None:
        self.taken = 0
        """The highest number taken from the other side."""
        self._kept: deque[Message] = deque()
        self._last = 0

    def send(self, message: Message) -> Message:
        """The message as it travels."""
        message = {**message, "ack": self.taken}
        if message["type"] not in UNNUMBERED:
            self._last += 1
            message["seq"] = self._last
            self._kept.append(message)
        return message

    def receive(self, message: Message) -> bool:
        """True if this is news."""
        self.acknowledged(message.pop("ack", 0))
        number = message.pop("seq", 0)
        if not number:
            return True
        if number != self.taken + 1:  # a repeat; never a hole: a call keeps order, and a new one resends all
            return False
        self.taken = number
        return True

    def acknowledged(self, number: int) -> None:
        """The other side has taken everything up to here."""
        while self._kept and self._kept[0]["seq"] <= number:
            self._kept.popleft()

    def again(self, number: int) -> list[Message]:
        """After a reconnection: what the other side, which took `number`, has missed."""
        self.acknowledged(number)
        return [{**message, "ack": self.taken} for message in self._kept]
