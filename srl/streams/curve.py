"""Admission to the encrypted sockets of a process: to each of them its attached peers alone, by their public keys."""

from __future__ import annotations

from collections import Counter
from threading import Thread
from typing import Any

import zmq
from zmq.utils import z85

from srl.streams.wakeup import Wakeup

_ASK = "inproc://zeromq.zap.01"
_REMEMBERED = 4096
"""Keys that were refused and may only have come too early."""


class Gate:
    """Answers ZeroMQ's authentication questions in a thread of its own: a busy worker must not delay a handshake."""

    def __init__(self, context: Any) -> None:
        self._allowed: Counter[tuple[bytes, bytes]] = Counter()
        self._refused: Counter[tuple[bytes, bytes]] = Counter()
        self._socket = context.socket(zmq.REP)
        self._socket.linger = 0
        self._socket.bind(_ASK)
        self._stop = context.socket(zmq.PAIR)
        self._stop.linger = 0
        self._stopped = context.socket(zmq.PAIR)
        self._stopped.linger = 0
        name = f"inproc://srl-gate-{id(self):x}"
        self._stopped.bind(name)
        self._stop.connect(name)
        self._thread = Thread(target=self._serve, name="srl-gate", daemon=True)
        self._thread.start()

    def allow(self, domain: bytes, key: bytes) -> int:
        """Let this key in at the sockets of a domain; how often it was refused there, as it came too early."""
        self._allowed[domain, key] += 1
        return self._refused.pop((domain, key), 0)

    def forbid(self, domain: bytes, key: bytes) -> None:
        """Remove one attachment with this key."""
        self._allowed[domain, key] -= 1

    def close(self) -> None:
        """End the thread. Idempotent."""
        if self._thread.is_alive():
            self._stop.send(b"")
            self._thread.join()
            self._stop.close()

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._stopped, zmq.POLLIN)
        while self._stopped not in dict(poller.poll()):
            version, request, domain, _address, _identity, _mechanism, *credentials = self._socket.recv_multipart()
            name = (domain, z85.encode(credentials[0]) if credentials else b"")
            known = self._allowed.get(name, 0) > 0
            if not known and (name in self._refused or len(self._refused) < _REMEMBERED):
                self._refused[name] += 1
            verdict = (b"200", b"OK") if known else (b"300", b"unknown key")  # not 400: one that is early may come again
            self._socket.send_multipart([version, request, *verdict, b"", b""])
        self._socket.close()
        self._stopped.close()


def gate_of(wakeup: Wakeup) -> Gate:
    """The gate of this process: made once, closed with its wakeup."""
    if wakeup.gate is None:
        wakeup.gate = Gate(wakeup.context)
    gate: Gate = wakeup.gate
    return gate
