"""What all ends share: peers by name and by source, early messages, counts. A transport only carries messages and memory."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar

from srl.core.errors import WireError
from srl.core.tree import Tree
from srl.core.types import Counts
from srl.streams.base import End, StreamSpec
from srl.streams.codec import Arena, Layout, agreement

# One way of saying everything, on every transport: (kind, slot, number, value) and perhaps a record.
REQUEST, CANCEL, WAIT, CREDIT, PUT, FREE, RETURN = range(1, 8)
ASK, ANSWER = 16, 17
NEW, NEWER, PARAMS, FETCH, KEPT, HELD = range(24, 30)

_EARLY = 4096
"""Messages of a peer that is not attached yet, kept per end."""


class Wire(ABC):
    """The way to one attached peer."""

    __slots__ = ()

    @abstractmethod
    def send(self, kind: int, slot: int = 0, number: int = 0, value: int = 0, body: Tree | None = None) -> None:
        """Hand a message over, in order; never waits, never loses it while both ends live."""

    @property
    def memory(self) -> Any:
        """The peer's arena, when this transport can see it, else None."""
        return None

    def load(self, handle: int, size: int) -> Any:
        """What the peer keeps under this handle, when its memory can be seen; None if it keeps it no longer."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Let go of the peer. Idempotent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """How the ends of this process can be reached."""

    bind: str = "tcp://127.0.0.1"
    """zmq: where sockets bind, without the port."""
    host: str = ""
    """zmq: what peers call this host; empty: the address of `bind`."""
    curve: tuple[bytes, bytes] | None = None
    """zmq: public and secret key of this process; None: in the clear."""
    files: Path | None = None
    """shm: a folder for files and fifos where /proc is not shared among the processes (containers, macOS)."""


class Transport(ABC):
    """How one end reaches its peers: owned by its end."""

    by: Literal["reference", "memory", "bytes"]
    """How a record travels: by reference, by the producer's shared memory, or as the bytes of a message."""

    @classmethod
    @abstractmethod
    def beside(cls, wakeup: Any, network: Network) -> Self:
        """One for an end of a process with this wakeup."""

    @abstractmethod
    def open(self, end: Peers[Any], arena: Arena) -> Any:
        """Memory for the arena, for reading and writing."""

    @abstractmethod
    def address(self) -> dict[str, Any]:
        """Plain data for `connect`."""

    @abstractmethod
    def connect(self, source: int, address: Mapping[str, Any], bodies: Mapping[int, Layout]) -> Wire:
        """The way to a peer end. `bodies`: which kinds of message carry a record, in either direction, and of what layout."""

    def settle(self) -> None:
        """Read what a dead peer wrote before it died."""

    def keep(self, size: int) -> tuple[int, Any]:
        """More memory that peers can `load`, and its handle."""
        raise NotImplementedError

    def drop(self, handle: int) -> None:
        """Give such memory back."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Give everything back. Idempotent."""


@dataclass(slots=True)
class Peer:
    """One attached peer; each kind of end adds what it knows of it."""

    name: str
    source: int
    incarnation: int
    wire: Wire


P = TypeVar("P", bound=Peer)
Handler = Callable[[P, int, int, int, "Tree | None"], None]


class Peers(End, Generic[P]):
    """An end that knows its peers. Messages of peers that will be attached soon wait; those of the detached are ignored."""

    def __init__(self, spec: StreamSpec, side: str, name: str, transport: Transport, arena: Arena, incarnation: int) -> None:
        self.name = name
        self.spec = spec
        self.side = side
        self.source = secrets.randbits(62) | 1
        self.incarnation = incarnation
        self.transport = transport
        self._counts = Counts()
        self._agreed = agreement(spec.record, spec.answer)
        self._by_name: dict[str, P] = {}
        self._by_source: dict[int, P] = {}
        self._early: deque[tuple[int, int, int, int, int, Tree | None]] = deque()
        self._gone: deque[int] = deque(maxlen=256)
        self._handlers: dict[int, Handler[P]] = {}
        self._closed = False
        self._memory = transport.open(self, arena)

    def address(self) -> Mapping[str, Any]:
        return {
            "name": self.name,
            "side": self.side,
            "source": self.source,
            "via": self.spec.via,
            "agreed": self._agreed,
            "compress": self.spec.compress,
            "incarnation": self.incarnation,
            **self._says(),
            **self.transport.address(),
        }

    def attach(self, peer: str, address: Mapping[str, Any], incarnation: int) -> None:
        self._check(peer, address)
        if peer in self._by_name:
            if self._by_name[peer].source == address["source"]:
                return
            self.detach(peer, "replaced")
        wire = self.transport.connect(address["source"], address, self._bodies(address))
        link = self._join(peer, address, incarnation, wire)
        self._by_name[peer] = self._by_source[link.source] = link
        self._attached(link)
        early, self._early = self._early, deque()
        for message in early:
            self.receive(*message)

    def detach(self, peer: str, reason: str) -> Counts:
        link = self._by_name.get(peer)
        if link is None:
            return Counts()
        self.transport.settle()
        del self._by_name[peer], self._by_source[link.source]
        self._gone.append(link.source)
        counts = self._detached(link, reason)
        link.wire.close()
        return counts

    @property
    def counts(self) -> Counts:
        return self._counts

    @property
    def peers(self) -> tuple[str, ...]:
        """Names of the attached."""
        return tuple(self._by_name)

    @property
    def workers(self) -> tuple[str, ...]:
        """`node/index` of the attached peers."""
        return self.workers_of(self._by_name.values())

    @staticmethod
    def workers_of(links: Iterable[Peer]) -> tuple[str, ...]:
        """`node/index` of these peers, each once."""
        return tuple(in_order({link.name.partition(":")[2] for link in links}))

    def receive(self, source: int, kind: int, slot: int, number: int, value: int, body: Tree | None) -> None:
        """A message has come: called by the transport."""
        link = self._by_source.get(source)
        if link is None:
            self._unknown(source, kind, slot, number, value, body)
            return
        handler = self._handlers.get(kind)
        if handler is None:
            self.refuse()
        else:
            handler(link, slot, number, value, body)

    def refuse(self, number: int = 1) -> None:
        """Count what no well-behaved peer sends."""
        self._counts.drop("hostile", number)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for link in self._by_name.values():
            link.wire.close()
        self._by_name.clear()
        self._by_source.clear()
        self._release_memory()
        self._memory = None
        self.transport.close()

    def _unknown(self, source: int, kind: int, slot: int, number: int, value: int, body: Tree | None) -> None:
        if source in self._gone or self._closed:
            return
        if len(self._early) >= _EARLY:
            self.refuse()
        else:
            self._early.append((source, kind, slot, number, value, body))

    def _check(self, peer: str, address: Mapping[str, Any]) -> None:
        if address["agreed"] != self._agreed or address["compress"] != self.spec.compress:
            raise WireError(
                f"{self.name} and {peer} disagree about the records of stream {self.spec.name}",
                ("here", f"{self._agreed}, compress: {self.spec.compress}"),
                ("there", f"{address['agreed']}, compress: {address['compress']}"),
                ("try", "start both from the same run; `srl check` derives the specs of every stream"),
                code="W01",
            )
        if address["via"] != self.spec.via:
            raise WireError(
                f"{self.name} and {peer} use different transports for stream {self.spec.name}",
                ("here", self.spec.via),
                ("there", str(address["via"])),
                code="W01",
            )

    @abstractmethod
    def _says(self) -> Mapping[str, Any]:
        """What this end adds to its address: its sizes."""

    @abstractmethod
    def _bodies(self, address: Mapping[str, Any]) -> Mapping[int, Layout]:
        """Layouts of the records that travel to and from this peer."""

    @abstractmethod
    def _join(self, peer: str, address: Mapping[str, Any], incarnation: int, wire: Wire) -> P:
        """What is kept of a peer."""

    def _attached(self, link: P) -> None:
        """The peer can be spoken to now."""

    @abstractmethod
    def _detached(self, link: P, reason: str) -> Counts:
        """Take back what the peer had; its counts, as far as they can be known."""

    def _release_memory(self) -> None:
        """Drop all views of the arena."""


def index_of(name: str) -> int:
    """The index of `stream:worker/index`; 0 if it has none."""
    tail = name.rpartition("/")[2]
    return int(tail) if tail.isdigit() else 0


def in_order(names: Any) -> list[str]:
    """Names sorted so that worker/10 comes after worker/9."""
    return sorted(names, key=lambda name: (name.rpartition("/")[0], index_of(name), name))
