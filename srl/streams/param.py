"""Param streams: the newest version wins. The same for every transport.

publisher                                 subscriber
publish: write a slot -- CHANGED ----->   latest: look there, copy (shm.py)                    shared memory
                      <------- POLL ---   a quiet one: "wake me when there is newer than v"
publish: copy         -- PARAMS ------>   latest: what came last                              in one process
                      <------- POLL ---   "newer than v?", one open question per subscriber   over a network
publish: copy         -- PARAMS ------>   latest: what came last, then POLL again
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from srl.core.tree import Array, Tree
from srl.core.types import Counts
from srl.streams.base import StreamSpec, Version
from srl.streams.codec import Arena, Layout
from srl.streams.peers import Peer, Peers
from srl.streams.shm import NewestReader, NewestWriter, version_arena
from srl.streams.transport import CHANGED, PARAMS, POLL, Transport, Wire


@dataclass(slots=True, eq=False)
class _SubscriberPeer(Peer):
    newer_than: int | None = None
    """Its open question: -1 asks for any version."""
    quiet: bool = False
    """It looks when it wants to, and is woken only if it has asked."""


class ParamPublisher(Peers[_SubscriberPeer]):
    """The end that publishes new parameters."""

    def __init__(self, spec: StreamSpec, name: str, transport: Transport) -> None:
        self._layout = Layout(spec.record)
        shares = transport.by == "memory"
        super().__init__(spec, "publisher", name, transport, version_arena(self._layout) if shares else Arena(0, []))
        self._shared = NewestWriter(self._layout, self._memory) if shares else None
        self._version: Version = -1
        self._newest: Tree = {}
        self._places: list[Array] = []
        self._records = {PARAMS: self._layout}
        self._handlers = {POLL: self._on_poll}

    def publish(self, version: Version, params: Tree) -> None:
        """Make this the newest version. The tree is copied before this returns."""
        if version <= self._version:
            raise ValueError(f"{self.name}: version {version} after {self._version}: versions only grow")
        arrays = self._layout.checked(params)
        self._version = version
        self.counts.put += 1
        self.counts.bytes += self._layout.size
        if self._shared is not None:
            self._shared.write(version, arrays)
        else:
            for place, array in zip(self._places or self._make_places(), arrays, strict=True):
                place[...] = array
        for peer in self._by_name.values():
            self._notify(peer)

    def _make_places(self) -> list[Array]:
        """Memory of the newest version: subscribers copy what they take."""
        self._places = [np.empty(shape, kind) for shape, kind in zip(self._layout.shapes, self._layout.dtypes, strict=True)]
        views = [place.view() for place in self._places]
        for view in views:
            view.flags.writeable = False
        self._newest = self._layout.tree(views)
        return self._places

    def _notify(self, peer: _SubscriberPeer) -> None:
        if self._version < 0:
            return
        if self.transport.by == "reference":
            peer.wire.send(PARAMS, 0, 0, self._version, self._newest)
        elif self.transport.by == "memory" and not peer.quiet:
            peer.wire.send(CHANGED)
        elif peer.newer_than is not None and self._version > peer.newer_than:
            peer.newer_than = None
            if self.transport.by == "memory":
                peer.wire.send(CHANGED)
            else:
                peer.wire.send(PARAMS, 0, 0, self._version, self._newest)

    def _on_poll(self, peer: _SubscriberPeer, _slot: int, from_version: int, _value: int, _body: Tree | None) -> None:
        peer.newer_than = from_version - 1
        self._notify(peer)

    # peers ----------------------------------------------------------------------------------------------------------

    def _join(self, name: str, address: Mapping[str, Any], wire: Wire) -> _SubscriberPeer:
        return _SubscriberPeer(name, address["source"], wire, quiet=bool(address.get("quiet", False)))

    def _attached(self, peer: _SubscriberPeer) -> None:
        if self.transport.by != "bytes":  # there the subscriber asks
            self._notify(peer)

    def _release_memory(self) -> None:
        self._shared = None


@dataclass(slots=True, eq=False)
class _PublisherPeer(Peer):
    shared: NewestReader | None
    """Where its memory can be seen."""


class ParamSubscriber(Peers[_PublisherPeer]):
    """The end that reads the newest parameters."""

    def __init__(self, spec: StreamSpec, name: str, transport: Transport, quiet: int = 0) -> None:
        """`quiet`: its worker looks for newer ones when it needs them; its process is woken only after `wake_for`."""
        self._layout = Layout(spec.record)
        self._quiet = quiet
        self._awaited: Version | None = None
        """Where a publisher in shared memory was asked to wake this process: by the first version newer than this one."""
        super().__init__(spec, "subscriber", name, transport, Arena(0, []))
        self._seen: Version = -1
        self._pending: tuple[Version, Tree] | None = None
        self._own: list[Array] = []
        self._held: Tree = {}
        self._readers: list[NewestReader] = []
        self._records = {PARAMS: self._layout}
        self._handlers = {PARAMS: self._on_params, CHANGED: self._on_changed}

    def latest(self, newer_than: Version) -> tuple[Version, Tree] | None:
        """The newest version if it is newer than that (cheap: ask as often as you like). Valid until the next call."""
        for reader in self._readers:
            found = reader.read(newer_than)
            if found is not None:
                return self._take(found)
        if self._pending is None or self._pending[0] <= newer_than:
            return None
        return self._take(self._pending)

    def wake_for(self, newer_than: Version) -> None:
        """Have the process woken by the next version that is newer. Only a quiet subscriber needs it; ask again once woken."""
        if self._quiet and self._readers and self._awaited != newer_than:
            self._awaited = newer_than
            for peer in self._by_name.values():
                peer.wire.send(POLL, 0, newer_than + 1)

    def _take(self, found: tuple[Version, Tree]) -> tuple[Version, Tree]:
        self.counts.taken += 1
        self.counts.bytes += self._layout.size
        if self.transport.by == "bytes" and found is self._pending and found[0] > self._seen:
            self._seen = found[0]
            for peer in self._by_name.values():
                peer.wire.send(POLL, 0, self._seen + 1)
        self._seen = max(self._seen, found[0])
        return found if self.transport.by != "reference" else (found[0], self._copied(found[1]))

    def _copied(self, tree: Tree) -> Tree:
        """Within one process it lies in the publisher's memory."""
        if not self._own:
            self._own = [np.empty(shape, kind) for shape, kind in zip(self._layout.shapes, self._layout.dtypes, strict=True)]
            self._held = self._layout.tree(self._own)
        for place, array in zip(self._own, self._layout.flat(tree), strict=True):
            place[...] = array
        return self._held

    def _on_changed(self, _peer: _PublisherPeer, _slot: int, _number: int, _value: int, _body: Tree | None) -> None:
        """The message has woken the loop, and `latest` looks at the words."""
        self._awaited = None

    def _on_params(self, _peer: _PublisherPeer, _slot: int, _number: int, version: Version, body: Tree | None) -> None:
        if body is None:
            self.refuse()
        elif self._pending is None or version > self._pending[0]:
            self._pending = (version, body)

    # peers ----------------------------------------------------------------------------------------------------------

    def _join(self, name: str, address: Mapping[str, Any], wire: Wire) -> _PublisherPeer:
        shared = NewestReader(self._layout, wire.memory) if self.transport.by == "memory" else None
        return _PublisherPeer(name, address["source"], wire, shared)

    def _attached(self, peer: _PublisherPeer) -> None:
        if peer.shared is not None:
            self._readers.append(peer.shared)
            self._awaited = None  # the new publisher does not know of it
        if self.transport.by == "bytes":
            peer.wire.send(POLL, 0, self._seen + 1)

    def _detached(self, peer: _PublisherPeer, reason: str) -> Counts:
        """What it had published last can still be read."""
        if peer.shared is not None:
            self._readers.remove(peer.shared)
            self._pending = peer.shared.read(self._seen) or self._pending
        return Counts()

    def _sizes(self) -> Mapping[str, Any]:
        return {"quiet": True} if self._quiet else {}

    def _release_memory(self) -> None:
        self._readers.clear()
        self._pending = None
