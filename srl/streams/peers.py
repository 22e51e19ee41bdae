"""Ends of streams, and what all seven kinds share: peers by name and by source, early messages, counts.

    unknown --attach--> attached --detach--> gone
    messages wait here  are handled          are ignored

A peer's name stays the same over restarts; its `source`, a random number, belongs to one incarnation.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from srl.core.errors import WireError
from srl.core.tree import Tree
from srl.core.types import Counts, Waiting
from srl.streams.base import StreamSpec
from srl.streams.codec import Arena, Layout, agreement
from srl.streams.transport import Transport, Wire

_EARLY = 4096
"""Messages of a peer that is not attached yet, kept per end."""


@dataclass(slots=True, eq=False)
class Peer:
    """One attached peer; each kind of end adds what it knows of it."""

    name: str
    source: int
    wire: Wire


P = TypeVar("P", bound=Peer)
Handler = Callable[[P, int, int, int, "Tree | None"], None]


class Peers(ABC, Generic[P]):
    """One end of a stream. It never waits: only the loop of its process does. One worker's thread owns it."""

    def __init__(self, spec: StreamSpec, side: str, name: str, transport: Transport, arena: Arena) -> None:
        self.name = name
        """Unique in the run: `stream:worker/index`."""
        self.spec = spec
        self.side = side
        self.source = secrets.randbits(62) | 1
        self.transport = transport
        self.counts = Counts()
        """Totals since this end was opened, detached peers included."""
        self._agreed = agreement(spec.record, spec.answer)
        self._by_name: dict[str, P] = {}
        self._by_source: dict[int, P] = {}
        self._early: deque[tuple[int, int, int, int, int, Tree | None]] = deque()
        self._gone: deque[int] = deque(maxlen=256)
        self._handlers: dict[int, Handler[P]] = {}
        self._records: Mapping[int, Layout] = {}
        self._closed = False
        self._memory = transport.open(self, arena)

    def address(self) -> Mapping[str, Any]:
        """The data that a peer needs to attach, in types of msgpack, with the digest of the spec."""
        return {
            "name": self.name,
            "side": self.side,
            "source": self.source,
            "via": self.spec.via,
            "agreed": self._agreed,
            "compress": self.spec.compress,
            **self._sizes(),
            **self.transport.address(),
        }

    def attach(self, peer: str, address: Mapping[str, Any]) -> None:
        """Connect to a peer end by the name and address it has now. A wrong spec is an error."""
        self._check(peer, address)
        if peer in self._by_name:
            if self._by_name[peer].source == address["source"]:
                return
            self.detach(peer, "replaced")
        wire = self.transport.connect(address["source"], address, self._bodies(address))
        joined = self._join(peer, address, wire)
        self._by_name[peer] = self._by_source[joined.source] = joined
        self._attached(joined)
        early, self._early = self._early, deque()
        for message in early:
            self.receive(*message)

    def detach(self, peer: str, reason: str) -> Counts:
        """Forget a peer that died or left; what was in flight with it is counted as dropped for `reason`."""
        found = self._by_name.get(peer)
        if found is None:
            return Counts()
        self.transport.settle()
        del self._by_name[peer], self._by_source[found.source]
        self._gone.append(found.source)
        counts = self._detached(found, reason)
        found.wire.close()
        return counts

    def lose(self, peer: str) -> None:
        """The process of this peer has ended; `detach` follows once the worker has returned from its poll."""

    def dials(self, address: Mapping[str, Any]) -> bool:
        """Whether this end connects to one with this address, although both listen."""
        return False

    @property
    def workers(self) -> tuple[str, ...]:
        """`node/index` of the attached peers."""
        return self.workers_of(self._by_name.values())

    @staticmethod
    def workers_of(peers: Iterable[Peer]) -> tuple[str, ...]:
        """`node/index` of these peers, each once."""
        return tuple(in_order({peer.name.partition(":")[2] for peer in peers}))

    def waits(self) -> Waiting | None:
        """What this end waits for now: for the table and for the deadlock report."""
        return None

    def receive(self, source: int, kind: int, slot: int, number: int, value: int, body: Tree | None) -> None:
        """A message has come: called by the transport."""
        peer = self._by_source.get(source)
        if peer is None:
            if source not in self._gone and not self._closed:
                if len(self._early) >= _EARLY:
                    self.refuse()
                else:
                    self._early.append((source, kind, slot, number, value, body))
            return
        handler = self._handlers.get(kind)
        if handler is None:
            self.refuse()
        else:
            handler(peer, slot, number, value, body)

    def refuse(self) -> None:
        """Count a message that a correct peer never sends."""
        self.counts.drop("hostile")

    def close(self) -> None:
        """Give everything back. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for peer in self._by_name.values():
            peer.wire.close()
        self._by_name.clear()
        self._by_source.clear()
        self._release_memory()
        self._memory = None
        self.transport.close()

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

    def _sizes(self) -> Mapping[str, Any]:
        """What this end adds to its address."""
        return {}

    def _bodies(self, address: Mapping[str, Any]) -> Mapping[int, Layout]:
        """Layouts of the records that travel to and from the peer with this address, by kind of message."""
        return self._records

    @abstractmethod
    def _join(self, name: str, address: Mapping[str, Any], wire: Wire) -> P:
        """What is kept of a peer."""

    def _attached(self, peer: P) -> None:
        """The peer can be reached now."""

    def _detached(self, peer: P, reason: str) -> Counts:
        """Take back everything that the peer held. Returns its counts, as far as they are known."""
        return Counts()

    def _release_memory(self) -> None:
        """Drop all views of the arena."""


End: TypeAlias = Peers[Any]
"""What workers hold."""


def index_of(name: str) -> int:
    """The index in `stream:worker/index`; 0 if it has none."""
    tail = name.rpartition("/")[2]
    return int(tail) if tail.isdigit() else 0


def in_order(names: Iterable[str]) -> list[str]:
    """Names sorted so that worker/10 comes after worker/9."""
    return sorted(names, key=lambda name: (name.rpartition("/")[0], index_of(name), name))
