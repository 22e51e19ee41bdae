"""Param streams: the newest version wins, some are kept for those who play against the past. The same for every transport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from srl.core.errors import UserError
from srl.core.tree import Array, Tree
from srl.core.types import Counts, Waiting
from srl.streams.base import ParamPublisher, ParamSubscriber, StreamSpec, Version
from srl.streams.codec import Arena, Layout
from srl.streams.peers import FETCH, HELD, KEPT, NEW, NEWER, PARAMS, Peer, Peers, Transport, Wire

HISTORY = 64
"""Versions that a publisher remembers: of more, some between the oldest and the newest are given up."""
_SLOTS = 3
_LATEST, _UNIFORM, _EXACT = range(3)
_UNIT = 1 << 53


def version_arena(record: Layout) -> Arena:
    """How many publications there were, the version in each slot, and three slots: v is never overwritten by v + 1."""
    return Arena(1 + _SLOTS, [record] * _SLOTS)


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


@dataclass(slots=True)
class _SubscriberPeer(Peer):
    newer_than: int | None = None
    """The long poll that waits: -1 asks for any version."""
    fetch: tuple[int, int, int] | None = None


class Publisher(Peers[_SubscriberPeer], ParamPublisher):
    """Where new parameters come from."""

    def __init__(self, spec: StreamSpec, name: str, transport: Transport, incarnation: int) -> None:
        self._layout = Layout(spec.record)
        shares = transport.by == "memory"
        arena = version_arena(self._layout) if shares else Arena(0, [])
        super().__init__(spec, "publisher", name, transport, arena, incarnation)
        self._words = arena.words(self._memory) if shares else None
        self._slots = [self._layout.flat(arena.record(self._memory, slot)) for slot in range(_SLOTS)] if shares else []
        self._version: Version = -1
        self._newest: Tree = {}
        self._kept: dict[Version, Any] = {}
        self._handlers = {NEWER: self._on_newer, FETCH: self._on_fetch}

    def publish(self, version: Version, params: Tree, keep: bool = False) -> None:
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
        for link in self._by_name.values():
            if keep:
                self._name(link, version, dropped)
            self._tell(link)
            self._serve(link)

    @property
    def kept(self) -> Mapping[Version, Tree]:
        return self._kept if self._words is None else {}

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

    def _name(self, link: _SubscriberPeer, version: Version, dropped: Version) -> None:
        """Let a reader know that this version is kept, and which was given up for it (itself: none)."""
        link.wire.send(HELD, 0, dropped, version)

    def _tell(self, link: _SubscriberPeer) -> None:
        if self._version < 0:
            return
        if self.transport.by == "memory":
            link.wire.send(NEW)
        elif self.transport.by == "reference":
            link.wire.send(PARAMS, 0, 0, self._version, self._newest)
        elif link.newer_than is not None and self._version > link.newer_than:
            link.newer_than = None
            link.wire.send(PARAMS, 0, 0, self._version, self._newest)

    def _serve(self, link: _SubscriberPeer) -> None:
        if link.fetch is None:
            return
        kind, argument, request = link.fetch
        version = choose(list(self._kept), kind, argument)
        if version is None:
            return
        link.fetch = None
        kept = self._kept[version]
        if self._words is not None:
            link.wire.send(KEPT, kept, request, version)
        else:
            link.wire.send(KEPT, 0, request, version, kept)

    def _on_newer(self, link: _SubscriberPeer, slot: int, number: int, value: int, body: Tree | None) -> None:
        link.newer_than = number - 1
        self._tell(link)

    def _on_fetch(self, link: _SubscriberPeer, slot: int, number: int, value: int, body: Tree | None) -> None:
        link.fetch = (slot, number, value)
        self._serve(link)

    # peers ----------------------------------------------------------------------------------------------------------

    def _says(self) -> Mapping[str, Any]:
        return {}

    def _bodies(self, address: Mapping[str, Any]) -> Mapping[int, Layout]:
        return {PARAMS: self._layout, KEPT: self._layout}

    def _join(self, peer: str, address: Mapping[str, Any], incarnation: int, wire: Wire) -> _SubscriberPeer:
        return _SubscriberPeer(peer, address["source"], incarnation, wire)

    def _attached(self, link: _SubscriberPeer) -> None:
        for version in self._kept:
            self._name(link, version, version)
        if self.transport.by != "bytes":  # there the reader asks
            self._tell(link)

    def _detached(self, link: _SubscriberPeer, reason: str) -> Counts:
        return Counts()

    def _release_memory(self) -> None:
        if self._words is not None:
            self._words.release()
        self._slots.clear()
        self._kept.clear()


@dataclass(slots=True)
class _PublisherPeer(Peer):
    words: memoryview | None
    slots: list[list[Array]]
    seen: int = -1
    version: Version = -1
    kept: list[Version] = field(default_factory=list)


class Subscriber(Peers[_PublisherPeer], ParamSubscriber):
    """Where the newest parameters are read."""

    def __init__(self, spec: StreamSpec, name: str, transport: Transport, incarnation: int) -> None:
        self._layout = Layout(spec.record)
        super().__init__(spec, "subscriber", name, transport, Arena(0, []), incarnation)
        self._seen: Version = -1
        self._pending: tuple[Version, Tree] | None = None
        self._sources: list[_PublisherPeer] = []
        self._shared: list[_PublisherPeer] = []
        self._copy: list[Array] = []
        self._request = incarnation << 32
        self._selector = ""
        self._fetched: tuple[Version, Tree] | None = None
        self._handlers = {PARAMS: self._on_params, KEPT: self._on_kept, NEW: self._on_new, HELD: self._on_held}

    def latest(self, newer_than: Version) -> tuple[Version, Tree] | None:
        for link in self._shared:
            words = link.words
            if words is not None and (words[0] != link.seen or link.version > newer_than):
                found = self._read(link, newer_than)
                if found is not None:
                    return self._take(found)
        if self._pending is None:
            return None
        if self._pending[0] <= newer_than:
            return None
        return self._take(self._pending)

    def fetch(self, selector: str) -> tuple[Version, Tree] | None:
        if selector != self._selector:
            self._selector, self._fetched = selector, None
            self._request += 1
            self._ask_fetch()
        found = self._fetched
        if found is not None:
            self._selector, self._fetched = "", None
        return found

    @property
    def kept(self) -> tuple[Version, ...]:
        return tuple(self._sources[-1].kept) if self._sources else ()

    def waits(self) -> Waiting | None:
        return Waiting("past version", self.workers) if self._selector else None

    def _take(self, found: tuple[Version, Tree]) -> tuple[Version, Tree]:
        self._counts.taken += 1
        self._counts.bytes += self._layout.size
        if self.transport.by == "bytes" and found is self._pending and found[0] > self._seen:
            self._seen = found[0]
            self._ask_newer()
        self._seen = max(self._seen, found[0])
        return found

    def _read(self, link: _PublisherPeer, newer_than: Version) -> tuple[Version, Tree] | None:
        """Copy the newest slot; again if the publisher has come round to it meanwhile."""
        words = link.words
        assert words is not None
        while True:
            number = words[0]
            if number == 0:
                link.seen = 0
                return None
            slot = number % _SLOTS
            version = words[1 + slot]
            if version <= newer_than:
                if words[0] == number:
                    link.seen, link.version = number, version
                    return None
                continue
            if not self._copy:
                self._copy = [
                    np.empty(shape, dtype) for shape, dtype in zip(self._layout.shapes, self._layout.dtypes, strict=True)
                ]
            for target, source in zip(self._copy, link.slots[slot], strict=True):
                target[...] = source
            if words[0] - number < _SLOTS - 1:
                link.seen, link.version = number, version
                return version, self._layout.tree(self._copy)

    def _ask_newer(self) -> None:
        for link in self._sources:
            if link.words is None and self.transport.by == "bytes":
                link.wire.send(NEWER, 0, self._seen + 1)

    def _ask_fetch(self) -> None:
        if self._sources and self._selector:
            kind, argument = parse(self._selector)
            self._sources[-1].wire.send(FETCH, kind, argument, self._request)
        elif self._selector:
            parse(self._selector)

    def _on_new(self, link: _PublisherPeer, slot: int, number: int, value: int, body: Tree | None) -> None:
        """Nothing to note: the message has woken the loop, the words tell the rest."""

    def _on_held(self, link: _PublisherPeer, slot: int, number: int, value: int, body: Tree | None) -> None:
        link.kept = [*(version for version in link.kept if version not in (number, value)), value]

    def _on_params(self, link: _PublisherPeer, slot: int, number: int, value: int, body: Tree | None) -> None:
        if body is None:
            self.refuse()
        elif self._pending is None or value > self._pending[0]:
            self._pending = (value, body)

    def _on_kept(self, link: _PublisherPeer, slot: int, number: int, value: int, body: Tree | None) -> None:
        if number != self._request or not self._selector:
            return
        if body is None:
            body = self._load(link, slot, value)
            if body is None:
                self._request += 1
                self._ask_fetch()
                return
        self._fetched = (value, body)

    def _load(self, link: _PublisherPeer, handle: int, version: Version) -> Tree | None:
        arena = Arena(1, [self._layout])
        memory = link.wire.load(handle, arena.size)
        if memory is None or arena.words(memory)[0] != version:
            return None
        return arena.record(memory, 0, writable=False)

    # peers ----------------------------------------------------------------------------------------------------------

    def _says(self) -> Mapping[str, Any]:
        return {}

    def _bodies(self, address: Mapping[str, Any]) -> Mapping[int, Layout]:
        return {PARAMS: self._layout, KEPT: self._layout}

    def _join(self, peer: str, address: Mapping[str, Any], incarnation: int, wire: Wire) -> _PublisherPeer:
        memory = wire.memory if self.transport.by == "memory" else None
        if memory is None:
            return _PublisherPeer(peer, address["source"], incarnation, wire, None, [])
        arena = version_arena(self._layout)
        slots = [self._layout.flat(arena.record(memory, slot, writable=False)) for slot in range(_SLOTS)]
        return _PublisherPeer(peer, address["source"], incarnation, wire, arena.words(memory), slots)

    def _attached(self, link: _PublisherPeer) -> None:
        self._sources.append(link)
        self._shared = [source for source in self._sources if source.words is not None]
        if self.transport.by == "bytes":
            link.wire.send(NEWER, 0, self._seen + 1)
        self._ask_fetch()

    def _detached(self, link: _PublisherPeer, reason: str) -> Counts:
        """What it had published last can still be read."""
        self._sources.remove(link)
        self._shared = [source for source in self._sources if source.words is not None]
        if link.words is not None:
            found = self._read(link, self._seen)
            if found is not None:
                self._pending = (found[0], self._layout.tree([np.array(array) for array in self._layout.flat(found[1])]))
        return Counts()

    def _release_memory(self) -> None:
        self._sources.clear()
        self._shared.clear()
        self._pending = self._fetched = None
        self._copy = []
