"""Streams inside one process: messages are calls, records are references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from weakref import WeakValueDictionary

import numpy as np

from srl.core.errors import UserError
from srl.core.tree import Tree
from srl.streams.codec import ALIGN, Arena, Layout
from srl.streams.peers import Peers
from srl.streams.transport import Network, Transport, Wire

_OPEN: WeakValueDictionary[int, Peers[Any]] = WeakValueDictionary()


class InprocTransport(Transport):
    """An end in the same process and thread."""

    by: Literal["reference"] = "reference"

    def __init__(self, wakeup: Any, network: Network) -> None:
        self.memory: Any = None
        self._source = 0

    def open(self, end: Peers[Any], arena: Arena) -> Any:
        self._source = end.source
        _OPEN[end.source] = end
        self.memory = zeroed(arena.size)
        return self.memory

    def address(self) -> dict[str, Any]:
        return {}

    def connect(self, source: int, address: Mapping[str, Any], bodies: Mapping[int, Layout]) -> Wire:
        peer = _OPEN.get(source)
        if peer is None:
            raise UserError(
                f"{address['name']} is not an end of this process",
                ("found", "via: inproc between two processes, or an end that is closed"),
                ("try", "via: auto, or place both nodes in one process"),
                code="E10",
            )
        return _DirectWire(self._source, peer)

    def close(self) -> None:
        _OPEN.pop(self._source, None)
        self.memory = None


class _DirectWire(Wire):
    __slots__ = ("_peer", "_source")

    def __init__(self, source: int, peer: Peers[Any]) -> None:
        self._source = source
        self._peer: Peers[Any] | None = peer

    def send(self, kind: int, slot: int = 0, number: int = 0, value: int = 0, body: Tree | None = None) -> None:
        if self._peer is not None:
            self._peer.receive(self._source, kind, slot, number, value, body)

    @property
    def memory(self) -> Any:
        transport = self._peer.transport if self._peer is not None else None
        return transport.memory if isinstance(transport, InprocTransport) else None

    def close(self) -> None:
        self._peer = None


def zeroed(size: int) -> memoryview:
    """Aligned private memory; untouched pages cost nothing."""
    raw = np.zeros(size + ALIGN, np.uint8)
    start = -raw.ctypes.data % ALIGN
    return raw[start : start + size].data
