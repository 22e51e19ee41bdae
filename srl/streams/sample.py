"""Sample streams: slabs from many producers to many consumers, paid for in advance by credits. The same for every transport.

A producer without a credit sends `request` to one consumer. A consumer that has no credit now says `wait`, keeps the request,
and the producer asks the next one too. The first `credit` ends the search: the other consumers get `cancel`, and a credit that
crosses that message is sent back (`return`). So no request is stuck at a consumer that stands still.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from srl.core.tree import Tree
from srl.core.types import Counts, Waiting
from srl.streams.base import Loan, SampleConsumer, SampleProducer, Slab, StreamSpec, Version
from srl.streams.codec import Arena, Layout
from srl.streams.peers import (
    CANCEL,
    CREDIT,
    FREE,
    PUT,
    REQUEST,
    RETURN,
    WAIT,
    Peer,
    Peers,
    Transport,
    Wire,
    in_order,
    index_of,
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
class _ConsumerPeer(Peer):
    row: int = 0
    asked: int = 0
    """Wants that stand there, as far as we know."""
    credits: deque[tuple[int, Version]] = field(default_factory=deque)


@dataclass(slots=True)
class _Slot:
    slab: Slab
    open: bool = False
    holders: dict[int, int] = field(default_factory=dict)
    """Source of each consumer that holds it, or whose credit it carries -> number of the credit."""


class Producer(Peers[_ConsumerPeer], SampleProducer):
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
        self._turn = index_of(name)
        self._known: set[str] = set()
        self._next_row = 0
        self._next_null = 0
        self._handlers = {CREDIT: self._on_credit, WAIT: self._on_wait, FREE: self._on_free}

    @property
    def slots(self) -> int:
        return len(self._slots)

    def alloc(self) -> Slab | None:
        if not self._free:
            return None
        if self.spec.route == "null":
            return self._open_null()
        slab = self._open_credited()
        if slab is None:
            self._wish()
            slab = self._open_credited()  # in one process the answer is here already
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
            link.wire.send(RETURN, 0, number)

    def withdraw(self) -> None:
        self._wishes = self._misses = 0
        for link in self._by_name.values():
            for _ in range(link.asked):
                link.wire.send(CANCEL)
            link.asked = 0
            while link.credits:
                link.wire.send(RETURN, 0, link.credits.popleft()[0])

    def waits(self) -> Waiting | None:
        if self._wishes:
            return Waiting("credit", self.workers_of(link for link in self._by_name.values() if link.asked))
        if not self._free and not self._any_open():
            return Waiting("free slot", self.workers_of(self._by_source[at] for slot in self._slots for at in slot.holders))
        return None

    def _any_open(self) -> bool:
        return any(slot.open for slot in self._slots)

    def _drop(self, slab: Slab, reason: str, number: int = 1) -> None:
        self._counts.put += number
        self._counts.drop(reason, number)
        self._free.append(slab.slot)

    # credits ---------------------------------------------------------------------------------------------------------

    def _open_null(self) -> Slab:
        self._next_null += 1
        return self._take_slot({}, self._next_null - 1, 0)

    def _open_credited(self) -> Slab | None:
        links = list(self._by_name.values())
        if self.spec.route == "broadcast":
            if not links or not all(link.credits for link in links):
                return None
            holders = {link.source: link.credits[0][0] for link in links}
            versions = [link.credits.popleft()[1] for link in links]
            return self._take_slot(holders, holders[links[0].source], max(versions))
        for link in links:
            if link.credits:
                number, min_version = link.credits.popleft()
                return self._take_slot({link.source: number}, number, min_version)
        return None

    def _take_slot(self, holders: dict[int, int], credit: int, min_version: Version) -> Slab:
        slot = self._slots[self._free.popleft()]
        slot.open, slot.holders = True, holders
        slot.slab.credit, slot.slab.min_version = credit, min_version
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
        counts = [len(link.credits) for link in self._by_name.values()]
        if self.spec.route == "broadcast":
            return min(counts, default=0)
        return sum(counts)

    def _candidates(self) -> list[_ConsumerPeer]:
        if self.spec.route == "pair":
            known = in_order(self._known)
            link = self._by_name.get(known[index_of(self.name) % len(known)]) if known else None
            return [link] if link is not None else []
        return list(self._by_name.values())

    def _ask(self, link: _ConsumerPeer, alone: bool) -> None:
        link.asked += 1
        link.wire.send(REQUEST, 0, 0, 1 if alone else 0)

    def _ask_all(self) -> None:
        """Let every wish stand at every consumer that may credit it."""
        for link in self._candidates():
            have = len(link.credits) - self._held() if self.spec.route == "broadcast" else 0
            while link.asked + have < self._wishes:
                self._ask(link, alone=True)

    def _on_wait(self, link: _ConsumerPeer, slot: int, number: int, value: int, body: Tree | None) -> None:
        candidates = self._candidates()
        if link not in candidates:
            return
        start = candidates.index(link)
        for step in range(1, len(candidates)):
            other = candidates[(start + step) % len(candidates)]
            if other.asked < self._wishes:
                self._ask(other, alone=False)
                return

    def _on_credit(self, link: _ConsumerPeer, slot: int, number: int, value: int, body: Tree | None) -> None:
        link.asked = max(0, link.asked - 1)
        if self.spec.route == "broadcast":
            before = self._held()
            link.credits.append((number, value))
            self._wishes -= self._held() - before
            return
        if self._wishes == 0:
            link.wire.send(RETURN, 0, number)
            return
        self._wishes -= 1
        link.credits.append((number, value))
        for other in self._by_name.values():
            while other.asked > self._wishes:
                other.asked -= 1
                other.wire.send(CANCEL)

    def _on_free(self, link: _ConsumerPeer, slot: int, number: int, value: int, body: Tree | None) -> None:
        if slot >= len(self._slots) or self._slots[slot].open or link.source not in self._slots[slot].holders:
            self.refuse()
            return
        self._let_go(slot, link)
        self._counts.released += 1

    def _let_go(self, slot: int, link: _ConsumerPeer) -> None:
        holders = self._slots[slot].holders
        del holders[link.source]
        if not holders:
            self._free.append(slot)

    # peers ----------------------------------------------------------------------------------------------------------

    def _says(self) -> Mapping[str, Any]:
        return {"slots": len(self._slots)}

    def _bodies(self, address: Mapping[str, Any]) -> Mapping[int, Layout]:
        return {PUT: self._layout}

    def _join(self, peer: str, address: Mapping[str, Any], incarnation: int, wire: Wire) -> _ConsumerPeer:
        self._known.add(peer)
        row = self._new_row(address["source"])
        return _ConsumerPeer(peer, address["source"], incarnation, wire, row)

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

    def _attached(self, link: _ConsumerPeer) -> None:
        if self.spec.route == "broadcast":  # what the others have credited waits for this one too
            self._wishes += min((len(other.credits) for other in self._by_name.values() if other is not link), default=0)
        self._ask_all()

    def _detached(self, link: _ConsumerPeer, reason: str) -> Counts:
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
            before = min((len(other.credits) for other in [link, *self._by_name.values()]), default=0)
            self._wishes = max(0, self._wishes - max(0, self._held() - before))
        self._ask_all()
        return Counts(taken=taken, released=row[AT_RELEASED])

    def _release_memory(self) -> None:
        self._words.release()
        self._slots.clear()
        self._read_only.clear()
        self._free.clear()


@dataclass(slots=True)
class _ProducerPeer(Peer):
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


class Consumer(Peers[_ProducerPeer], SampleConsumer):
    """Where slabs arrive."""

    def __init__(self, spec: StreamSpec, name: str, transport: Transport, incarnation: int) -> None:
        self._layout = Layout(spec.record)
        super().__init__(spec, "consumer", name, transport, Arena(0, []), incarnation)
        self._credits: list[tuple[int, Version]] = []
        self._wants: deque[_ProducerPeer] = deque()
        self._arrived: deque[tuple[_ProducerPeer, Loan]] = deque()
        self._outstanding = 0
        self._lent: dict[int, _ProducerPeer] = {}
        self._handlers = {REQUEST: self._on_request, CANCEL: self._on_cancel, PUT: self._on_put, RETURN: self._on_return}

    def credit(self, number: int, min_version: Version) -> None:
        heappush(self._credits, (number, min_version))
        self._match()

    def get(self) -> Loan | None:
        if not self._arrived:
            return None
        link, loan = self._arrived.popleft()
        self._lent[id(loan)] = link
        self._counts.taken += 1
        link.taken += 1
        if link.row >= 0 and link.words is not None:
            link.words[link.row * ROW + AT_TAKEN] = link.taken
        return loan

    def release(self, loan: Loan) -> None:
        link = self._lent.pop(id(loan), None)
        if link is None:
            raise ValueError(f"{self.name}: a loan of {loan.producer} was released twice")
        self._counts.released += 1
        if link.gone:
            return
        link.released += 1
        if link.words is not None:
            link.words[link.row * ROW + AT_RELEASED] = link.released
        link.held.discard(loan.slot)
        link.wire.send(FREE, loan.slot)

    @property
    def unused_credits(self) -> int:
        return len(self._credits) + self._outstanding

    def waits(self) -> Waiting | None:
        if self._arrived or not self.unused_credits:
            return None
        credited = [link for link in self._by_name.values() if link.outstanding]
        return Waiting("slabs", self.workers_of(credited) or self.workers)

    # messages -------------------------------------------------------------------------------------------------------

    def _on_request(self, link: _ProducerPeer, slot: int, number: int, value: int, body: Tree | None) -> None:
        if link.wants >= link.slots:
            self.refuse()
            return
        link.wants += 1
        self._wants.append(link)
        if self._credits:
            self._match()
        elif not value:
            link.wire.send(WAIT)

    def _on_cancel(self, link: _ProducerPeer, slot: int, number: int, value: int, body: Tree | None) -> None:
        if link.wants:  # else our credit crossed this message, and will come back
            link.wants -= 1
            self._wants.remove(link)

    def _on_put(self, link: _ProducerPeer, slot: int, number: int, value: int, body: Tree | None) -> None:
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
        self._arrived.append((link, Loan(tree, number, link.name, self, slot)))

    def _on_return(self, link: _ProducerPeer, slot: int, number: int, value: int, body: Tree | None) -> None:
        if number not in link.outstanding:
            self.refuse()
            return
        self._take_back(link, number)
        self._match()

    def _take_back(self, link: _ProducerPeer, number: int) -> None:
        heappush(self._credits, (number, link.outstanding.pop(number)))
        self._outstanding -= 1

    def _match(self) -> None:
        """The lowest credit to the longest wait."""
        while self._credits and self._wants:
            link = self._wants.popleft()
            link.wants -= 1
            number, min_version = heappop(self._credits)
            link.outstanding[number] = min_version
            self._outstanding += 1
            link.wire.send(CREDIT, 0, number, min_version)

    # peers ----------------------------------------------------------------------------------------------------------

    def _says(self) -> Mapping[str, Any]:
        return {}

    def _bodies(self, address: Mapping[str, Any]) -> Mapping[int, Layout]:
        return {PUT: self._layout}

    def _join(self, peer: str, address: Mapping[str, Any], incarnation: int, wire: Wire) -> _ProducerPeer:
        slots, memory = int(address["slots"]), wire.memory
        if memory is None:
            return _ProducerPeer(peer, address["source"], incarnation, wire, [], slots, None)
        arena = slab_arena(self._layout, slots)
        trees = [arena.record(memory, index, writable=False) for index in range(slots)]
        return _ProducerPeer(peer, address["source"], incarnation, wire, trees, slots, arena.words(memory))

    def _detached(self, link: _ProducerPeer, reason: str) -> Counts:
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

    def _ledger_row(self, link: _ProducerPeer) -> memoryview | None:
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
        self._lent.clear()
        self._wants.clear()
