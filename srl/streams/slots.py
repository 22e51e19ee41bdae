"""The producing end of sample streams: wishes, slots and the ledger. The same for every transport; `leases.py` is the other end.

A producer whose `alloc` finds no grant sends a want to one consumer. A consumer that has no grant now says so (later), keeps the
want, and the producer asks the next one too. The first grant ends the wish: the other consumers are told (unwant), and a grant
that crosses that message goes back. So a slab is made for whoever can use it; no wish is stuck at a consumer that stands still.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from srl.core.tree import Tree
from srl.streams.base import Counts, SampleProducer, Slab, StreamSpec, Version
from srl.streams.codec import Arena, Layout
from srl.streams.links import (
    BACK,
    FREE,
    GRANT,
    LATER,
    PUT,
    UNWANT,
    WANT,
    Linked,
    Peers,
    Transport,
    Wire,
    in_order,
    place,
)

ROWS = 256
"""Consumers (and their restarts) that one producer's ledger has room for."""
ROW = 8
# Words of a ledger row. The producer writes the first four, the consumer the last two.
AT_SOURCE, AT_PUT, AT_BYTES, AT_DROPPED, AT_TAKEN, AT_RELEASED = range(6)


def slab_arena(slab: Layout, slots: int) -> Arena:
    """A producer's memory: its ledger, and its slots."""
    return Arena(ROWS * ROW, [slab] * slots)


@dataclass(slots=True)
class _Consumer(Linked):
    row: int = 0
    asked: int = 0
    """Wants that stand there, as far as we know."""
    grants: deque[tuple[int, Version]] = field(default_factory=deque)


@dataclass(slots=True)
class _Slot:
    slab: Slab
    open: bool = False
    holders: dict[int, int] = field(default_factory=dict)
    """Source of each consumer that holds it, or whose grant it carries -> number of the grant."""


class Producer(Peers[_Consumer], SampleProducer):
    """Where slabs are made."""

    def __init__(self, spec: StreamSpec, name: str, transport: Transport, slots: int, incarnation: int, sweeps: Any) -> None:
        self._layout = Layout(spec.record)
        arena = slab_arena(self._layout, slots)
        super().__init__(spec, "producer", name, transport, arena, incarnation)
        self._words = arena.words(self._memory)
        self._slots = [_Slot(Slab(arena.record(self._memory, index), index, 0, 0)) for index in range(slots)]
        self._read_only = [arena.record(self._memory, index, writable=False) for index in range(slots)]
        self._free = deque(range(slots))
        self._sweeps = sweeps
        self._sweep = -1
        self._misses = 0
        self._wishes = 0
        self._turn = place(name)
        self._known: set[str] = set()
        self._next_row = 0
        self._next_null = 0
        self._handlers = {GRANT: self._on_grant, LATER: self._on_later, FREE: self._on_free}

    @property
    def slots(self) -> int:
        return len(self._slots)

    def alloc(self) -> Slab | None:
        if not self._free:
            return None
        if self.spec.route == "null":
            return self._open_null()
        slab = self._open_granted()
        if slab is None:
            self._wish()
            slab = self._open_granted()  # in one process the answer is here already
        return slab

    def put(self, slab: Slab) -> bool:
        slot = self._slots[slab.slot]
        assert slot.open, "put() of a slab that is not open"
        slot.open = False
        if not slot.holders:
            self._drop(slab, "null" if self.spec.route == "null" else "consumer_gone")
            return True
        size, body = self._layout.size, self._read_only[slab.slot] if self.transport.by != "memory" else None
        for source, number in list(slot.holders.items()):
            link = self._by_source[source]
            self._counts.put += 1
            self._counts.bytes += size
            base = link.row * ROW
            self._words[base + AT_PUT] += 1
            self._words[base + AT_BYTES] += size
            link.wire.send(PUT, slab.slot, number, link.row, body)
        return True

    def discard(self, slab: Slab, reason: str) -> None:
        slot = self._slots[slab.slot]
        assert slot.open, "discard() of a slab that is not open"
        slot.open = False
        holders, slot.holders = slot.holders, {}
        self._drop(slab, reason, max(1, len(holders)))
        for source, number in holders.items():
            link = self._by_source[source]
            self._words[link.row * ROW + AT_PUT] += 1
            self._words[link.row * ROW + AT_DROPPED] += 1
            link.wire.send(BACK, 0, number)

    def withdraw(self) -> None:
        self._wishes = self._misses = 0
        for link in self._by_name.values():
            for _ in range(link.asked):
                link.wire.send(UNWANT)
            link.asked = 0
            while link.grants:
                link.wire.send(BACK, 0, link.grants.popleft()[0])

    def waits(self) -> str:
        if self._wishes:
            asked = ", ".join(f"{link.name} ({link.asked})" for link in self._by_name.values() if link.asked)
            return f"{self.name} waits for {self._wishes} grants of {asked or 'a consumer that is not attached'}"
        if not self._free:
            held = ", ".join(sorted({self._by_source[source].name for slot in self._slots for source in slot.holders}))
            return f"{self.name} has no free slot: {held or 'none'} must release one" if not self._any_open() else ""
        return ""

    def _any_open(self) -> bool:
        return any(slot.open for slot in self._slots)

    def _drop(self, slab: Slab, reason: str, number: int = 1) -> None:
        self._counts.put += number
        self._counts.drop(reason, number)
        self._free.append(slab.slot)

    # grants ---------------------------------------------------------------------------------------------------------

    def _open_null(self) -> Slab:
        self._next_null += 1
        return self._take_slot({}, self._next_null - 1, 0)

    def _open_granted(self) -> Slab | None:
        links = list(self._by_name.values())
        if self.spec.route == "broadcast":
            if not links or not all(link.grants for link in links):
                return None
            holders = {link.source: link.grants[0][0] for link in links}
            versions = [link.grants.popleft()[1] for link in links]
            return self._take_slot(holders, holders[links[0].source], max(versions))
        for link in links:
            if link.grants:
                number, min_version = link.grants.popleft()
                return self._take_slot({link.source: number}, number, min_version)
        return None

    def _take_slot(self, holders: dict[int, int], grant: int, min_version: Version) -> Slab:
        slot = self._slots[self._free.popleft()]
        slot.open, slot.holders = True, holders
        slot.slab.grant, slot.slab.min_version = grant, min_version
        if self._misses:
            self._misses -= 1
        return slot.slab

    def _wish(self) -> None:
        """One more call found nothing: a wish for each such call of this sweep, as far as slots are free."""
        if self._sweep != self._sweeps.sweep:
            self._sweep, self._misses = self._sweeps.sweep, 0
        self._misses += 1
        if self._misses <= self._wishes or self._wishes + self._held() >= len(self._free):
            return
        self._wishes += 1
        if self.spec.route == "broadcast":
            self._ask_all()
            return
        candidates = self._candidates()
        if candidates:
            self._turn += 1
            self._ask(candidates[self._turn % len(candidates)], alone=len(candidates) == 1)

    def _held(self) -> int:
        counts = [len(link.grants) for link in self._by_name.values()]
        if self.spec.route == "broadcast":
            return min(counts, default=0)
        return sum(counts)

    def _candidates(self) -> list[_Consumer]:
        if self.spec.route == "pair":
            known = in_order(self._known)
            link = self._by_name.get(known[place(self.name) % len(known)]) if known else None
            return [link] if link is not None else []
        return list(self._by_name.values())

    def _ask(self, link: _Consumer, alone: bool) -> None:
        link.asked += 1
        link.wire.send(WANT, 0, 0, 1 if alone else 0)

    def _ask_all(self) -> None:
        """Let every wish stand at every consumer that may grant it."""
        for link in self._candidates():
            have = len(link.grants) - self._held() if self.spec.route == "broadcast" else 0
            while link.asked + have < self._wishes:
                self._ask(link, alone=True)

    def _on_later(self, link: _Consumer, slot: int, number: int, value: int, body: Tree | None) -> None:
        candidates = self._candidates()
        if link not in candidates:
            return
        start = candidates.index(link)
        for step in range(1, len(candidates)):
            other = candidates[(start + step) % len(candidates)]
            if other.asked < self._wishes:
                self._ask(other, alone=False)
                return

    def _on_grant(self, link: _Consumer, slot: int, number: int, value: int, body: Tree | None) -> None:
        link.asked = max(0, link.asked - 1)
        if self.spec.route == "broadcast":
            before = self._held()
            link.grants.append((number, value))
            self._wishes -= self._held() - before
            return
        if self._wishes == 0:
            link.wire.send(BACK, 0, number)
            return
        self._wishes -= 1
        link.grants.append((number, value))
        for other in self._by_name.values():
            while other.asked > self._wishes:
                other.asked -= 1
                other.wire.send(UNWANT)

    def _on_free(self, link: _Consumer, slot: int, number: int, value: int, body: Tree | None) -> None:
        if slot >= len(self._slots) or self._slots[slot].open or link.source not in self._slots[slot].holders:
            self.refuse()
            return
        self._let_go(slot, link)
        self._counts.released += 1

    def _let_go(self, slot: int, link: _Consumer) -> None:
        holders = self._slots[slot].holders
        del holders[link.source]
        if not holders:
            self._free.append(slot)

    # peers ----------------------------------------------------------------------------------------------------------

    def _says(self) -> Mapping[str, Any]:
        return {"slots": len(self._slots)}

    def _bodies(self, address: Mapping[str, Any]) -> Mapping[int, Layout]:
        return {PUT: self._layout}

    def _join(self, peer: str, address: Mapping[str, Any], incarnation: int, wire: Wire) -> _Consumer:
        self._known.add(peer)
        row = self._new_row(address["source"])
        return _Consumer(peer, address["source"], incarnation, wire, row)

    def _new_row(self, source: int) -> int:
        used = {link.row for link in self._by_name.values()}
        row = next((row % ROWS for row in range(self._next_row, self._next_row + ROWS) if row % ROWS not in used), None)
        if row is None:
            raise ValueError(f"{self.name}: more than {ROWS} consumers; let fewer consumers share the stream {self.spec.name}")
        self._next_row = row + 1
        for word in range(ROW):
            self._words[row * ROW + word] = 0
        self._words[row * ROW + AT_SOURCE] = source
        return row

    def _attached(self, link: _Consumer) -> None:
        if self.spec.route == "broadcast":  # what the others have granted waits for this one too
            self._wishes += min((len(other.grants) for other in self._by_name.values() if other is not link), default=0)
        self._ask_all()

    def _detached(self, link: _Consumer, reason: str) -> Counts:
        row = self._words[link.row * ROW : (link.row + 1) * ROW]
        held = [slot for slot, state in enumerate(self._slots) if link.source in state.holders]
        sent = [slot for slot in held if not self._slots[slot].open]
        handed = row[AT_PUT] - row[AT_DROPPED]
        blind = self.transport.by == "bytes"  # then nobody knows what it took but had not released
        taken = handed - len(sent) if blind else row[AT_TAKEN]
        lost = handed - taken
        if lost > 0:
            self._counts.drop(reason, lost)
        for slot in sent:
            self._let_go(slot, link)
        for slot in held:
            self._slots[slot].holders.pop(link.source, None)
        if self.spec.route == "broadcast":
            before = min((len(other.grants) for other in [link, *self._by_name.values()]), default=0)
            self._wishes = max(0, self._wishes - max(0, self._held() - before))
        self._ask_all()
        return Counts(taken=taken, released=row[AT_RELEASED])

    def _release_memory(self) -> None:
        self._words.release()
        self._slots.clear()
        self._read_only.clear()
        self._free.clear()
