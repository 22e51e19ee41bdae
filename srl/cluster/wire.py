"""What both sides of the call between supervisor and controller share. Workers never import this."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from typing import Any

from srl.workers.messages import LIMIT

SERVICE, METHOD, ASK = "srl.Control", "Attach", "Ask"
TOKEN = "srl-token"

LEASE = 30.0
"""Seconds without an open call after which a host counts as lost and its workers stop."""

KEEPALIVE = [
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", LIMIT),
    ("grpc.max_send_message_length", LIMIT),
]


class Inbox:
    """Messages from another thread, and a descriptor that is readable while there are any."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._event

    def put(self, item: Any) -> None:
        self._items.append(item)
        os.eventfd_write(self._event, 1)

    def take(self) -> list[Any]:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)
        return [self._items.popleft() for _ in range(len(self._items))]

    def close(self) -> None:
        os.close(self._event)
