"""The consuming end of sample streams: grants matched with wants, slabs on lease. The same for every transport."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from srl.core.tree import Tree
from srl.streams.base import Counts, Lease, SampleConsumer, StreamSpec, Version
from srl.streams.codec import Arena, Layout
from srl.streams.links import BACK, FREE, GRANT, LATER, PUT, UNWANT, WANT, Linked, Peers, Transport, Wire
from srl.streams.slots import AT_BYTES, AT_DROPPED, AT_PUT, AT_RELEASED, AT_SOURCE, AT_TAKEN, ROW, ROWS, slab_arena


@dataclass(slots=True)
class _Maker(Linked):
    trees: list[Tree]
    """Read-only views of its slots, if its memory can be seen."""
    slots: int
    words: memoryview | None
    row: int = -1
    wants: int = 0
    outstanding: dict[int, Version] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)
    received: int = 0
    taken: int = 0
    released: int = 0
    gone: bool = False


class Consumer(Peers[_Maker], SampleConsumer):
    """Where slabs arrive."""

    def __init__(self, spec: StreamSpec, name: str, transport: Transport, incarnation: int) -> None:
        self._layout = Layout(spec.record)
        super().__init__(spec, "consumer", name, transport, Arena(0, []), incarnation)
        self._grants: list[tuple[int, Version]] = []
        self._wants: deque[_Maker] = deque()
        self._arrived: deque[tuple[_Maker, Lease]] = deque()
        self._outstanding = 0
        self._leased: dict[int, _Maker] = {}
        self._handlers = {WANT: self._on_want, UNWANT: self._on_unwant, PUT: self._on_put, BACK: self._on_back}

    def grant(self, number: int, min_version: Version) -> None:
        heappush(self._grants, (number, min_version))
        self._match()

    def get(self) -> Lease | None:
        if not self._arrived:
            return None
        link, lease = self._arrived.popleft()
        self._leased[id(lease)] = link
        self._counts.taken += 1
        link.taken += 1
        if link.row >= 0 and link.words is not None:
            link.words[link.row * ROW + AT_TAKEN] = link.taken
        return lease

    def release(self, lease: Lease) -> None:
        link = self._leased.pop(id(lease), None)
        if link is None:
            raise ValueError(f"{self.name}: a lease of {lease.producer} was released twice")
        self._counts.released += 1
        if link.gone:
            return
        link.released += 1
        if link.words is not None:
            link.words[link.row * ROW + AT_RELEASED] = link.released
        link.held.discard(lease.slot)
        link.wire.send(FREE, lease.slot)

    @property
    def unused_grants(self) -> int:
        return len(self._grants) + self._outstanding

    def waits(self) -> str:
        if self._arrived or not self.unused_grants:
            return ""
        who = ", ".join(f"{link.name} ({len(link.outstanding)})" for link in self._by_name.values() if link.outstanding)
        return f"{self.name} waits for slabs: {len(self._grants)} grants nobody wants yet, granted to {who or 'nobody'}"

    # messages -------------------------------------------------------------------------------------------------------

    def _on_want(self, link: _Maker, slot: int, number: int, value: int, body: Tree | None) -> None:
        if link.wants >= link.slots:
            self.refuse()
            return
        link.wants += 1
        self._wants.append(link)
        if self._grants:
            self._match()
        elif not value:
            link.wire.send(LATER)

    def _on_unwant(self, link: _Maker, slot: int, number: int, value: int, body: Tree | None) -> None:
        if link.wants:  # else our grant crossed this message, and will come back
            link.wants -= 1
            self._wants.remove(link)

    def _on_put(self, link: _Maker, slot: int, number: int, value: int, body: Tree | None) -> None:
        if number not in link.outstanding or slot >= link.slots or slot in link.held or value >= ROWS:
            self.refuse()
            return
        del link.outstanding[number]
        self._outstanding -= 1
        link.held.add(slot)
        link.received += 1
        link.row = value
        tree = link.trees[slot] if body is None else body
        self._counts.bytes += self._layout.size
        self._arrived.append((link, Lease(tree, number, link.name, self, slot)))

    def _on_back(self, link: _Maker, slot: int, number: int, value: int, body: Tree | None) -> None:
        if number not in link.outstanding:
            self.refuse()
            return
        self._take_back(link, number)
        self._match()

    def _take_back(self, link: _Maker, number: int) -> None:
        heappush(self._grants, (number, link.outstanding.pop(number)))
        self._outstanding -= 1

    def _match(self) -> None:
        """The lowest grant to the longest wait."""
        while self._grants and self._wants:
            link = self._wants.popleft()
            link.wants -= 1
            number, min_version = heappop(self._grants)
            link.outstanding[number] = min_version
            self._outstanding += 1
            link.wire.send(GRANT, 0, number, min_version)

    # peers ----------------------------------------------------------------------------------------------------------

    def _says(self) -> Mapping[str, Any]:
        return {}

    def _bodies(self, address: Mapping[str, Any]) -> Mapping[int, Layout]:
        return {PUT: self._layout}

    def _join(self, peer: str, address: Mapping[str, Any], incarnation: int, wire: Wire) -> _Maker:
        slots, memory = int(address["slots"]), wire.memory
        if memory is None:
            return _Maker(peer, address["source"], incarnation, wire, [], slots, None)
        arena = slab_arena(self._layout, slots)
        trees = [arena.record(memory, index, writable=False) for index in range(slots)]
        return _Maker(peer, address["source"], incarnation, wire, trees, slots, arena.words(memory))

    def _detached(self, link: _Maker, reason: str) -> Counts:
        """What it had handed over stays; what it had announced but not handed over is lost."""
        link.gone = True
        put, size, dropped = link.received, link.received * self._layout.size, 0
        row = self._ledger_row(link)
        if row is not None:
            put, size, dropped = row[AT_PUT], row[AT_BYTES], row[AT_DROPPED]
            if put - dropped > link.received:
                self._counts.drop(reason, put - dropped - link.received)
        self._wants = deque(other for other in self._wants if other is not link)
        for number in list(link.outstanding):
            self._take_back(link, number)
        self._match()
        return Counts(put=put, bytes=size, dropped={"discarded": dropped} if dropped else {})

    def _ledger_row(self, link: _Maker) -> memoryview | None:
        if link.words is None:
            return None
        rows = range(ROWS) if link.row < 0 else [link.row]
        for row in rows:
            words = link.words[row * ROW : (row + 1) * ROW]
            if words[AT_SOURCE] == self.source:
                return words
        return None

    def _release_memory(self) -> None:
        self._arrived.clear()
        self._leased.clear()
        self._wants.clear()
