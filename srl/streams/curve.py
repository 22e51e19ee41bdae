"""Admission to the encrypted sockets of a process: only attached peers, whose public keys are known."""

from __future__ import annotations

from collections import Counter
from threading import Thread
from typing import Any

import zmq
from zmq.utils import z85

from srl.streams.wakeup import Wakeup

_ASK = "inproc://zeromq.zap.01"


class Gate:
    """Answers ZeroMQ's authentication questions in a thread of its own: a busy worker must not delay a handshake."""

    def __init__(self, context: Any) -> None:
        self._allowed: Counter[bytes] = Counter()
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

    def allow(self, key: bytes) -> None:
        self._allowed[key] += 1

    def forbid(self, key: bytes) -> None:
        """Remove one attachment with this key."""
        self._allowed[key] -= 1

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
            version, request, _domain, _address, _identity, _mechanism, *credentials = self._socket.recv_multipart()
            known = bool(credentials) and self._allowed[z85.encode(credentials[0])] > 0
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
