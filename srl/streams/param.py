"""Param streams: the newest version wins. The same for every transport.

publisher                                 subscriber
publish: write a slot -- CHANGED ----->   latest: look at the version words, copy             shared memory
publish: copy         -- PARAMS ------>   latest: what came last                              in one process
                      <------- POLL ---   "newer than v?", one open question per subscriber   over a network
publish: copy         -- PARAMS ------>   latest: what came last, then POLL again

slot in shared memory    written as number n -> newest -> n+1 and n+2 go to the other two slots -> written as n+3
                         a reader that copied while n+2 began copies again

kept versions            publish(keep=True) -- LIST --> kept;  fetch -- FETCH --> waits until one fits;  -- KEPT --> fetched
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from srl.core.errors import UserError
from srl.core.tree import Array, Tree
from srl.core.types import Counts, Waiting
from srl.streams.base import StreamSpec, Version
from srl.streams.codec import Arena, Layout
from srl.streams.messages import CHANGED, FETCH, KEPT, LIST, PARAMS, POLL
from srl.streams.peers import Peer, Peers
from srl.streams.transport import Transport, Wire

HISTORY = 64
"""Versions that a publisher remembers: of more, some between the oldest and the newest are given up."""
_SLOTS = 3
_LATEST, _UNIFORM, _EXACT = range(3)
_UNIT = 1 << 53


def version_arena(record: Layout) -> Arena:
    """How many publications there were, the version in each slot, and three slots: v is never overwritten by v + 1."""
    return Arena(1 + _SLOTS, [record] * _SLOTS)


@dataclass(slots=True, eq=False)
class _SubscriberPeer(Peer):
    newer_than: int | None = None
    """Its open question: -1 asks for any version."""
    fetch: tuple[int, int, int] | None = None


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
        self._kept: dict[Version, Any] = {}
        self._handlers = {POLL: self._on_poll, FETCH: self._on_fetch}

    def publish(self, version: Version, params: Tree, keep: bool = False) -> None:
        """Make this the newest version. The tree is copied before this returns. `keep`: also remember it for `fetch`."""
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
        dropped = self._keep(version, arrays) if keep else version
        for peer in self._by_name.values():
            if keep:
                peer.wire.send(LIST, 0, dropped, version)
            self._notify(peer)
            self._serve_fetch(peer)

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

    # kept versions --------------------------------------------------------------------------------------------------

    @property
    def kept(self) -> Mapping[Version, Tree]:
        """What is remembered, oldest first; nothing where only shared memory holds it."""
        return self._kept if self._words is None else {}

    def _keep(self, version: Version, arrays: list[Array]) -> Version:
        """The version that was given up for it; itself if there was room."""
        dropped = version
        if len(self._kept) == HISTORY:
            dropped = thinned([*self._kept, version])
            handle = self._kept.pop(dropped)
            if self._words is not None:
                self.transport.drop(handle)
        if self._words is None:
            self._kept[version] = self._newest
            return dropped
        arena = Arena(1, [self._layout])
        handle, memory = self.transport.keep(arena.size)
        for target, source in zip(self._layout.flat(arena.record(memory, 0)), arrays, strict=True):
            target[...] = source
        arena.words(memory)[0] = version
        self._kept[version] = handle
        return dropped

    def _on_fetch(self, peer: _SubscriberPeer, kind: int, argument: int, request: int, _body: Tree | None) -> None:
        peer.fetch = (kind, argument, request)
        self._serve_fetch(peer)

    def _serve_fetch(self, peer: _SubscriberPeer) -> None:
        if peer.fetch is None:
            return
        kind, argument, request = peer.fetch
        version = choose(list(self._kept), kind, argument)
        if version is None:
            return
        peer.fetch = None
        kept = self._kept[version]
        if self._words is not None:
            peer.wire.send(KEPT, kept, request, version)
        else:
            peer.wire.send(KEPT, 0, request, version, kept)

    # peers ----------------------------------------------------------------------------------------------------------

    def _bodies(self, address: Mapping[str, Any]) -> Mapping[int, Layout]:
        return {PARAMS: self._layout, KEPT: self._layout}

    def _join(self, name: str, address: Mapping[str, Any], wire: Wire) -> _SubscriberPeer:
        return _SubscriberPeer(name, address["source"], wire)

    def _attached(self, peer: _SubscriberPeer) -> None:
        for version in self._kept:
            peer.wire.send(LIST, 0, version, version)
        if self.transport.by != "bytes":  # there the subscriber asks
            self._notify(peer)

    def _release_memory(self) -> None:
        if self._words is not None:
            self._words.release()
        self._slots.clear()
        self._kept.clear()


@dataclass(slots=True, eq=False)
class _PublisherPeer(Peer):
    words: memoryview | None
    slots: list[list[Array]]
    seen: int = -1
    version: Version = -1
    kept: list[Version] = field(default_factory=list)


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
        self._request = 0
        self._selector = ""
        self._fetched: tuple[Version, Tree] | None = None
        self._handlers = {PARAMS: self._on_params, CHANGED: self._on_changed, KEPT: self._on_kept, LIST: self._on_list}

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

    def waits(self) -> Waiting | None:
        return Waiting("past version", self.workers) if self._selector else None

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

    # kept versions --------------------------------------------------------------------------------------------------

    @property
    def kept(self) -> tuple[Version, ...]:
        """The versions that `fetch` can find, oldest first, as far as this end knows."""
        return tuple(self._sources[-1].kept) if self._sources else ()

    def fetch(self, selector: str) -> tuple[Version, Tree] | None:
        """A kept version: `latest-10`, `uniform:<draw in [0, 1)>` or `=<version>`; None until it has come: ask again."""
        if selector != self._selector:
            self._selector, self._fetched = selector, None
            self._request += 1
            self._ask_fetch()
        found = self._fetched
        if found is not None:
            self._selector, self._fetched = "", None
        return found

    def _ask_fetch(self) -> None:
        if not self._selector:
            return
        kind, argument = parse(self._selector)
        if self._sources:
            self._sources[-1].wire.send(FETCH, kind, argument, self._request)

    def _on_list(self, peer: _PublisherPeer, _slot: int, forgotten: Version, version: Version, _body: Tree | None) -> None:
        peer.kept = [*(one for one in peer.kept if one not in (forgotten, version)), version]

    def _on_kept(self, peer: _PublisherPeer, handle: int, request: int, version: Version, body: Tree | None) -> None:
        if request != self._request or not self._selector:
            return
        if body is None:
            body = self._load(peer, handle, version)
            if body is None:
                self._request += 1
                self._ask_fetch()
                return
        self._fetched = (version, body)

    def _load(self, peer: _PublisherPeer, handle: int, version: Version) -> Tree | None:
        arena = Arena(1, [self._layout])
        memory = peer.wire.load(handle, arena.size)
        if memory is None or arena.words(memory)[0] != version:
            return None
        return arena.record(memory, 0, writable=False)

    # peers ----------------------------------------------------------------------------------------------------------

    def _bodies(self, address: Mapping[str, Any]) -> Mapping[int, Layout]:
        return {PARAMS: self._layout, KEPT: self._layout}

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
        self._ask_fetch()

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
        self._pending = self._fetched = None
        self._copy = []


# which versions are kept, and which one a selector means --------------------------------------------------------------


def parse(selector: str) -> tuple[int, int]:
    """(kind, argument) of `latest-10` (ten kept versions before the newest), `uniform:<draw in [0, 1)>`, `=<version>`."""
    try:
        if selector.startswith("latest-"):
            return _LATEST, int(selector.removeprefix("latest-"))
        if selector.startswith("uniform:"):
            draw = float(selector.removeprefix("uniform:"))
            if 0 <= draw < 1:
                return _UNIFORM, int(draw * _UNIT)
        if selector.startswith("="):
            return _EXACT, int(selector.removeprefix("="))
    except ValueError:
        pass
    raise UserError(
        f"`{selector}` does not select a kept version",
        ("expected", "latest-<n>, uniform:<draw in [0, 1)> or =<version>"),
        code="E03",
    )


def thinned(versions: Sequence[Version]) -> Version:
    """The one of three or more that is missed least: between the closest neighbours. The oldest and the newest stay."""
    return min(zip(versions, versions[1:], versions[2:], strict=False), key=lambda three: three[2] - three[0])[1]


def choose(versions: list[Version], kind: int, argument: int) -> Version | None:
    """The kept version that is meant; `versions` from the oldest on."""
    if not versions:
        return None
    if kind == _LATEST:
        return versions[max(0, len(versions) - 1 - argument)]
    if kind == _UNIFORM:
        return versions[min(argument, _UNIT - 1) * len(versions) // _UNIT]
    return argument if argument in versions else None
