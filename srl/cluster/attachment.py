"""The supervisor's side of its call to the controller. Workers never import this."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Iterator

import grpc

from srl.cluster.reliable import ReliableChannel
from srl.cluster.security import SERVER_NAME, Join
from srl.cluster.wire import KEEPALIVE, METHOD, SERVICE, TOKEN, Inbox
from srl.core.errors import HostileFrame
from srl.workers.messages import Message, pack, unpack

_CLIENT = [
    *KEEPALIVE,
    ("grpc.ssl_target_name_override", SERVER_NAME),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),
]


class Attachment:
    """A supervisor's side: one call, dialled again when it breaks, in a thread of its own."""

    def __init__(self, join: Join, host: int, *, waits: bool = False) -> None:
        """`waits`: while another supervisor serves this host, instead of taking its place."""
        self._join, self._host, self._waits = join, host, waits
        self._life = secrets.randbits(62) + 1
        self._controller = 0
        """The number that the controller drew at its start; 0: none has answered yet."""
        self.refused = False
        """Whether the controller does not accept the token."""
        self.given_up = False
        """Whether the controller has forgotten this supervisor. A new one is welcome."""
        self._channel = ReliableChannel()
        self._inbox = Inbox()
        self._lock = threading.Lock()
        self._call: queue.SimpleQueue[Message | None] | None = None
        self._done = threading.Event()
        self.since = time.monotonic()
        """When the last call ended; meaningless while one is open."""
        self._thread = threading.Thread(target=self._keep_dialling, name="srl-attach", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether the call is open and the controller has accepted it."""
        return self._call is not None

    @property
    def backlog(self) -> int:
        """Messages that the controller has not acknowledged."""
        return self._channel.backlog

    def fileno(self) -> int:
        return self._inbox.fileno()

    def send(self, message: Message) -> None:
        """To the controller, now or after the next reconnection; reports only now."""
        with self._lock:
            numbered = self._channel.send(message)
            if self._call is not None:
                self._call.put(numbered)

    def receive(self) -> list[Message]:
        """Messages of the controller. Never waits."""
        return self._inbox.take()

    def close(self) -> None:
        """Half-close, so that the last messages arrive. Idempotent."""
        self._done.set()
        with self._lock:
            if self._call is not None:
                self._call.put(None)
        self._thread.join(3.0)

    def _keep_dialling(self) -> None:
        pause = 0.2
        while not (self._done.is_set() or self.refused or self.given_up):
            began = time.monotonic()
            try:
                self._one_call()
            except grpc.RpcError as error:
                self.refused |= error.code() is grpc.StatusCode.UNAUTHENTICATED
                self.given_up |= error.code() is grpc.StatusCode.PERMISSION_DENIED
            except HostileFrame:
                pass
            with self._lock:
                if self._call is not None:
                    self._call, self.since = None, time.monotonic()
            pause = 0.2 if time.monotonic() - began > 5.0 else min(1.0, 2 * pause)
            self._done.wait(pause)

    def _one_call(self) -> None:
        secure = grpc.ssl_channel_credentials(self._join.ca.encode())
        outgoing: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        about = {
            "run": self._join.run,
            "host": self._host,
            "life": self._life,
            "controller": self._controller,
            "taken": self._channel.taken,
            "waits": self._waits,
        }
        outgoing.put({"type": "hello", **about})
        with grpc.secure_channel(self._join.address, secure, options=_CLIENT) as channel:
            attach = channel.stream_stream(f"/{SERVICE}/{METHOD}")
            for data in attach(_packed(outgoing), metadata=[(TOKEN, self._join.token)]):
                self._received(unpack(data), outgoing)

    def _received(self, message: Message, outgoing: queue.SimpleQueue[Message | None]) -> None:
        with self._lock:
            if message["type"] == "welcome":
                self._controller = message["controller"]
                for missed in self._channel.resend(message["taken"]):
                    outgoing.put(missed)
                self._call = outgoing
                return
            news = self._channel.receive(message)
        if news:
            self._inbox.put(message)


def _packed(outgoing: queue.SimpleQueue[Message | None]) -> Iterator[bytes]:
    while (message := outgoing.get()) is not None:
        yield pack(message)
