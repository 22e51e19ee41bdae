"""Param streams: the newest version wins. The same for every transport.

publisher                                 subscriber
publish: write a slot -- CHANGED ----->   latest: look at the version words, copy             shared memory
publish: copy         -- PARAMS ------>   latest: what came last                              in one process
                      <------- POLL ---   "newer than v?", one open question per subscriber   over a network
publish: copy         -- PARAMS ------>   latest: what came last, then POLL again

slot in shared memory    written as number n -> newest -> n+1 and n+2 go to the other two slots -> written as n+3
                         a reader that copied while n+2 began copies again
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
from srl.streams.messages import CHANGED, PARAMS, POLL
from srl.streams.peers import Peer, Peers
from srl.streams.transport import Transport, Wire

_SLOTS = 3


def version_arena(record: Layout) -> Arena:
    """How many publications there were, the version in each slot, and three slots: v is never overwritten by v + 1."""
    return Arena(1 + _SLOTS, [record] * _SLOTS)


@dataclass(slots=True, eq=False)
class _SubscriberPeer(Peer):
    newer_than: int | None = None
    """Its open question: -1 asks for any version."""


class ParamPublisher(Peers[_SubscriberPeer]):
    """Where new parameters come from."""

    def __init__(self, spec: StreamSpec, name: str, transport: Transport) -> None:
        self._layout = Layout(spec.record)
        shares = transport.by == "memory"
        arena = version_arena(self._layout) if shares else Arena(0, [])
        super().__init__(spec, "publisher", name, transport, arena)
        self._words = arena.words(self._memory) if shares else None
        self._slots = [self._layout.flat(arena.record(self._memory, slot)) for slot in range(_SLOTS)] if shares else []
        self._version: Version = -1
        self._newest: Tree = {}
        self._handlers = {POLL: self._on_poll}

    def publish(self, version: Version, params: Tree) -> None:
        """Make this the newest version. The tree is copied before this returns."""
        if version <= self._version:
            raise ValueError(f"{self.name}: version {version} after {self._version}: versions only grow")
        arrays = self._layout.checked(params)
        self._version = version
        self._counts.put += 1
        self._counts.bytes += self._layout.size
        if self._words is not None:
            self._write(self._words, arrays, version)
        else:
            self._newest = self._copy(arrays)
        for peer in self._by_name.values():
            self._notify(peer)

    def _write(self, words: memoryview, arrays: list[Array], version: Version) -> None:
        number = words[0] + 1
        slot = number % _SLOTS
        for target, source in zip(self._slots[slot], arrays, strict=True):
            target[...] = source
        words[1 + slot] = version
        words[0] = number

    def _copy(self, arrays: list[Array]) -> Tree:
        copies = [np.array(array) for array in arrays]
        for copy in copies:
            copy.flags.writeable = False
        return self._layout.tree(copies)

    def _notify(self, peer: _SubscriberPeer) -> None:
        if self._version < 0:
            return
        if self.transport.by == "memory":
            peer.wire.send(CHANGED)
        elif self.transport.by == "reference":
            peer.wire.send(PARAMS, 0, 0, self._version, self._newest)
        elif peer.newer_than is not None and self._version > peer.newer_than:
            peer.newer_than = None
            peer.wire.send(PARAMS, 0, 0, self._version, self._newest)

    def _on_poll(self, peer: _SubscriberPeer, _slot: int, from_version: int, _value: int, _body: Tree | None) -> None:
        peer.newer_than = from_version - 1
        self._notify(peer)

    # peers ----------------------------------------------------------------------------------------------------------

    def _bodies(self, address: Mapping[str, Any]) -> Mapping[int, Layout]:
        return {PARAMS: self._layout}

    def _join(self, name: str, address: Mapping[str, Any], wire: Wire) -> _SubscriberPeer:
        return _SubscriberPeer(name, address["source"], wire)

    def _attached(self, peer: _SubscriberPeer) -> None:
        if self.transport.by != "bytes":  # there the subscriber asks
            self._notify(peer)

    def _release_memory(self) -> None:
        if self._words is not None:
            self._words.release()
        self._slots.clear()


@dataclass(slots=True, eq=False)
class _PublisherPeer(Peer):
    words: memoryview | None
    slots: list[list[Array]]
    seen: int = -1
    version: Version = -1


class ParamSubscriber(Peers[_PublisherPeer]):
    """Where the newest parameters are read."""

    def __init__(self, spec: StreamSpec, name: str, transport: Transport) -> None:
        self._layout = Layout(spec.record)
        super().__init__(spec, "subscriber", name, transport, Arena(0, []))
        self._seen: Version = -1
        self._pending: tuple[Version, Tree] | None = None
        self._sources: list[_PublisherPeer] = []
        self._shared: list[_PublisherPeer] = []
        self._copy: list[Array] = []
        self._handlers = {PARAMS: self._on_params, CHANGED: self._on_changed}

    def latest(self, newer_than: Version) -> tuple[Version, Tree] | None:
        """The newest version if it is newer than that (cheap: ask as often as you like). Valid until the next call."""
        for peer in self._shared:
            words = peer.words
            if words is not None and (words[0] != peer.seen or peer.version > newer_than):
                found = self._read(peer, newer_than)
                if found is not None:
                    return self._take(found)
        if self._pending is None or self._pending[0] <= newer_than:
            return None
        return self._take(self._pending)

    def _take(self, found: tuple[Version, Tree]) -> tuple[Version, Tree]:
        self._counts.taken += 1
        self._counts.bytes += self._layout.size
        if self.transport.by == "bytes" and found is self._pending and found[0] > self._seen:
            self._seen = found[0]
            for peer in self._sources:
                peer.wire.send(POLL, 0, self._seen + 1)
        self._seen = max(self._seen, found[0])
        return found

    def _read(self, peer: _PublisherPeer, newer_than: Version) -> tuple[Version, Tree] | None:
        """Copy the newest slot; again if the publisher has come round to it meanwhile."""
        words = peer.words
        assert words is not None
        while True:
            number = words[0]
            if number == 0:
                peer.seen = 0
                return None
            slot = number % _SLOTS
            version = words[1 + slot]
            if version <= newer_than:
                if words[0] == number:
                    peer.seen, peer.version = number, version
                    return None
                continue
            if not self._copy:
                self._copy = [
                    np.empty(shape, dtype) for shape, dtype in zip(self._layout.shapes, self._layout.dtypes, strict=True)
                ]
            for target, source in zip(self._copy, peer.slots[slot], strict=True):
                target[...] = source
            if words[0] - number < _SLOTS - 1:
                peer.seen, peer.version = number, version
                return version, self._layout.tree(self._copy)

    def _on_changed(self, _peer: _PublisherPeer, _slot: int, _number: int, _value: int, _body: Tree | None) -> None:
        """Nothing to note: the message has woken the loop, and `latest` looks at the words."""

    def _on_params(self, _peer: _PublisherPeer, _slot: int, _number: int, version: Version, body: Tree | None) -> None:
        if body is None:
            self.refuse()
        elif self._pending is None or version > self._pending[0]:
            self._pending = (version, body)

    # peers ----------------------------------------------------------------------------------------------------------

    def _bodies(self, address: Mapping[str, Any]) -> Mapping[int, Layout]:
        return {PARAMS: self._layout}

    def _join(self, name: str, address: Mapping[str, Any], wire: Wire) -> _PublisherPeer:
        memory = wire.memory if self.transport.by == "memory" else None
        if memory is None:
            return _PublisherPeer(name, address["source"], wire, None, [])
        arena = version_arena(self._layout)
        slots = [self._layout.flat(arena.record(memory, slot, writable=False)) for slot in range(_SLOTS)]
        return _PublisherPeer(name, address["source"], wire, arena.words(memory), slots)

    def _attached(self, peer: _PublisherPeer) -> None:
        self._sources.append(peer)
        self._shared = [source for source in self._sources if source.words is not None]
        if self.transport.by == "bytes":
            peer.wire.send(POLL, 0, self._seen + 1)

    def _detached(self, peer: _PublisherPeer, reason: str) -> Counts:
        """What it had published last can still be read."""
        self._sources.remove(peer)
        self._shared = [source for source in self._sources if source.words is not None]
        if peer.words is not None:
            found = self._read(peer, self._seen)
            if found is not None:
                self._pending = (found[0], self._layout.tree([np.array(array) for array in self._layout.flat(found[1])]))
        return Counts()

    def _release_memory(self) -> None:
        self._sources.clear()
        self._shared.clear()
        self._pending = None
        self._copy = []
