"""Sample streams: slabs travel from many producers to many consumers, and credits that travel the other way pay in advance.

    producer                                  consumer
    alloc finds no credit -- REQUEST ------>  queued; the lowest credit goes to the longest wait
                         <------- WAIT ----   no credit now: the request stays queued, ask the next consumer as well
    alloc: a slab        <----- CREDIT ----   with its number and the oldest version that may answer row 0
      other consumers     -- CANCEL ------->  the request leaves the queue
      not needed, unused  -- RETURN ------->  the credit can be given again
    put                   -- PUT ---------->  get: the slab, on loan
    the slot is free     <------- FREE ----   release

    slot     free --alloc--> open --put--> sent --FREE--> free          open --discard--> free, and its credit returns
    credit   issued --CREDIT--> given --PUT--> used                     given --RETURN, or its producer dies--> issued

A slot is memory, a credit is permission. No request is stuck at a consumer that has no credits, even where consumers wait for
each other. The same for every transport.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from srl.core.tree import Tree
from srl.core.types import Counts, Waiting
from srl.streams.base import StreamSpec, Version
from srl.streams.codec import Arena, Layout
from srl.streams.peers import Peer, Peers, index_of
from srl.streams.transport import CANCEL, CREDIT, FREE, PUT, REQUEST, RETURN, WAIT, Transport, Wire

ROWS = 256
"""Consumers (and their restarts) that one producer's ledger has room for."""
ROW = 8
# Words of a ledger row. The producer writes the first four, the consumer the last two.
AT_SOURCE, AT_PUT, AT_BYTES, AT_DROPPED, AT_TAKEN, AT_RELEASED = range(6)


def slab_arena(slab: Layout, slots: int) -> Arena:
    """A producer's memory: its ledger, which survives it, and its slots."""
    return Arena(ROWS * ROW, [slab] * slots)


def ledger_row(words: memoryview, row: int) -> memoryview:
    return words[row * ROW : (row + 1) * ROW]


@dataclass(slots=True, eq=False)
class Slab:
    """Memory for one record, in the transport's own memory, to be filled and put."""

    tree: Tree
    """The same views for the same slot, so callers may cache by `slot`."""
    slot: int
    credit: int
    min_version: Version
    """Row 0 must be answered by this version or a newer one."""
    read_only: Tree = field(default_factory=dict)
    """The same views, for consumers."""
    consumer: _ConsumerPeer | None = None
    """Whose credit it uses, until the slot is free again."""
    open: bool = False
    """Between `alloc` and `put`."""


@dataclass(slots=True, eq=False)
class _ConsumerPeer(Peer):
    row: int
    ledger: memoryview
    requests: int = 0
    """Requests queued there, as far as this end knows."""


class SampleProducer(Peers[_ConsumerPeer]):
    """The end that makes slabs."""

    def __init__(self, spec: StreamSpec, name: str, transport: Transport, slots: int = 2) -> None:
        self._layout = Layout(spec.record)
        arena = slab_arena(self._layout, slots)
        super().__init__(spec, "producer", name, transport, arena)
        self._words = arena.words(self._memory)
        self._slots = [
            Slab(arena.record(self._memory, i), i, 0, 0, arena.record(self._memory, i, writable=False)) for i in range(slots)
        ]
        self._free = deque(range(slots))
        self._credits: deque[tuple[_ConsumerPeer, int, Version]] = deque()
        self._waiting: set[int] = set()
        """Groups that found no credit at their last `alloc`."""
        self._requested = 0
        """Requests without a credit so far; each may be queued at several consumers."""
        self._turn = index_of(name)
        self._next_row = 0
        self._records = {PUT: self._layout}
        self._handlers = {CREDIT: self._on_credit, WAIT: self._on_wait, FREE: self._on_free}

    def alloc(self, group: int = 0) -> Slab | None:
        """Memory for the next slab. None: no slot is free, or no credit is there; one is requested for each group that waits."""
        if not self._free:
            return None
        if self.spec.route == "drop":
            return self._open(None, self.counts.put, 0)
        if not self._credits:
            self._waiting.add(group)
            self._request()
            if not self._credits:  # within one process the answer is here already
                return None
        self._waiting.discard(group)
        return self._open(*self._credits.popleft())

    def put(self, slab: Slab) -> None:
        """Send a filled slab. If its consumer is gone it is counted as dropped."""
        assert slab.open, "put() of a slab that is not open"
        slab.open = False
        consumer = slab.consumer
        if consumer is None:
            self._drop(slab, "no_consumer" if self.spec.route == "drop" else "consumer_gone")
            return
        size = self._layout.size
        self.counts.put += 1
        self.counts.bytes += size
        consumer.ledger[AT_PUT] += 1
        consumer.ledger[AT_BYTES] += size
        body = slab.read_only if self.transport.by != "memory" else None
        consumer.wire.send(PUT, slab.slot, slab.credit, 0, body)

    def discard(self, slab: Slab, reason: str) -> None:
        """Give an unfinished slab back (drain, barrier): it counts as put and as dropped for `reason`."""
        assert slab.open, "discard() of a slab that is not open"
        slab.open = False
        consumer, slab.consumer = slab.consumer, None
        self._drop(slab, reason)
        if consumer is not None:
            consumer.ledger[AT_PUT] += 1
            consumer.ledger[AT_DROPPED] += 1
            consumer.wire.send(RETURN, 0, slab.credit)

    def withdraw(self) -> None:
        """Cancel all requests and return all unused credits (barrier), so that the order of later requests alone decides."""
        self._waiting.clear()
        self._requested = 0
        for consumer in self._by_name.values():
            self._cancel(consumer)
        while self._credits:
            consumer, number, _ = self._credits.popleft()
            consumer.wire.send(RETURN, 0, number)

    def waits(self) -> Waiting | None:
        if self._requested:
            return Waiting("credit", self.workers_of(one for one in self._by_name.values() if one.requests))
        if not self._free and not any(slab.open for slab in self._slots):
            return Waiting("free slot", self.workers_of(slab.consumer for slab in self._slots if slab.consumer is not None))
        return None

    def _open(self, consumer: _ConsumerPeer | None, credit: int, min_version: Version) -> Slab:
        slab = self._slots[self._free.popleft()]
        slab.open, slab.consumer = True, consumer
        slab.credit, slab.min_version = credit, min_version
        return slab

    def _drop(self, slab: Slab, reason: str) -> None:
        self.counts.put += 1
        self.counts.drop(reason)
        self._free.append(slab.slot)

    # requests and credits -------------------------------------------------------------------------------------------

    def _request(self) -> None:
        """Make one request for each waiting group, as far as slots are free, to the consumers in turn."""
        if self._requested >= min(len(self._waiting), len(self._free)):
            return
        self._requested += 1
        consumers = list(self._by_name.values())
        if consumers:
            self._turn += 1
            self._ask(consumers[self._turn % len(consumers)], alone=len(consumers) == 1)

    def _ask(self, consumer: _ConsumerPeer, *, alone: bool) -> None:
        consumer.requests += 1
        consumer.wire.send(REQUEST, consumer.row, 0, int(alone))

    def _ask_all(self) -> None:
        """The set of consumers has changed: place every request at every consumer."""
        for consumer in self._by_name.values():
            while consumer.requests < self._requested:
                self._ask(consumer, alone=True)

    def _cancel(self, consumer: _ConsumerPeer) -> None:
        """Cancel requests at this consumer until there are as many as unanswered ones."""
        while consumer.requests > self._requested:
            consumer.requests -= 1
            consumer.wire.send(CANCEL)

    def _on_wait(self, consumer: _ConsumerPeer, _slot: int, _number: int, _value: int, _body: Tree | None) -> None:
        consumers = list(self._by_name.values())
        start = consumers.index(consumer) + 1
        for other in consumers[start:] + consumers[: start - 1]:
            if other.requests < self._requested:
                self._ask(other, alone=False)
                return

    def _on_credit(self, consumer: _ConsumerPeer, _slot: int, number: int, min_version: Version, _body: Tree | None) -> None:
        consumer.requests = max(0, consumer.requests - 1)
        if self._requested == 0:
            consumer.wire.send(RETURN, 0, number)
            return
        self._requested -= 1
        self._credits.append((consumer, number, min_version))
        for other in self._by_name.values():
            self._cancel(other)

    def _on_free(self, consumer: _ConsumerPeer, index: int, _number: int, _value: int, _body: Tree | None) -> None:
        slab = self._slots[index] if index < len(self._slots) else None
        if slab is None or slab.open or slab.consumer is not consumer:
            self.refuse()
            return
        slab.consumer = None
        self._free.append(index)
        self.counts.released += 1

    # peers ----------------------------------------------------------------------------------------------------------

    def _sizes(self) -> Mapping[str, Any]:
        return {"slots": len(self._slots)}

    def _join(self, name: str, address: Mapping[str, Any], wire: Wire) -> _ConsumerPeer:
        used = {consumer.row for consumer in self._by_name.values()}
        row = next((row % ROWS for row in range(self._next_row, self._next_row + ROWS) if row % ROWS not in used), None)
        if row is None:
            raise ValueError(f"{self.name}: more than {ROWS} consumers; let fewer consumers share the stream {self.spec.name}")
        self._next_row = row + 1
        ledger = ledger_row(self._words, row)
        for word in range(ROW):
            ledger[word] = 0
        ledger[AT_SOURCE] = address["source"]
        return _ConsumerPeer(name, address["source"], wire, row, ledger)

    def _attached(self, peer: _ConsumerPeer) -> None:
        self._ask_all()

    def _detached(self, peer: _ConsumerPeer, reason: str) -> Counts:
        held = [slab for slab in self._slots if slab.consumer is peer]
        sent = [slab for slab in held if not slab.open]
        handed = peer.ledger[AT_PUT] - peer.ledger[AT_DROPPED]
        # what it took but had not released is known only where its memory is shared
        taken = handed - len(sent) if self.transport.by == "bytes" else peer.ledger[AT_TAKEN]
        if handed > taken:
            self.counts.drop(reason, handed - taken)
        for slab in held:
            slab.consumer = None
        self._free.extend(slab.slot for slab in sent)
        self._credits = deque(credit for credit in self._credits if credit[0] is not peer)
        self._ask_all()
        return Counts(taken=taken, released=peer.ledger[AT_RELEASED])

    def _release_memory(self) -> None:
        self._words.release()
        self._slots.clear()
        self._credits.clear()
        self._free.clear()


@dataclass(slots=True, eq=False)
class Loan:
    """A slab on the consumer's side: a read-only view until it is released."""

    tree: Tree
    credit: int
    slot: int
    peer: _ProducerPeer
    end: SampleConsumer
    released: bool = False

    @property
    def producer(self) -> str:
        """The name of the end that made it."""
        return self.peer.name

    def release(self) -> None:
        """Give the slot back to the producer."""
        end, peer = self.end, self.peer
        if self.released:
            raise ValueError(f"{end.name}: a loan of {peer.name} was released twice")
        self.released = True
        end.counts.released += 1
        if peer.gone:
            return
        peer.released += 1
        if peer.ledger is not None:
            peer.ledger[AT_RELEASED] = peer.released
        peer.held.discard(self.slot)
        peer.wire.send(FREE, self.slot)

    def discard(self, reason: str) -> None:
        """Give the slot back without having used the slab: it counts as dropped for `reason`, not as taken."""
        self.release()
        self.end.counts.taken -= 1
        self.end.counts.released -= 1
        self.end.counts.drop(reason)


@dataclass(slots=True, eq=False)
class _ProducerPeer(Peer):
    slots: int
    trees: list[Tree]
    """Read-only views of its slots, where its memory can be seen."""
    words: memoryview | None
    """Its ledger, all rows, where its memory can be seen."""
    ledger: memoryview | None = None
    """The row that is ours, known from its first request on."""
    requests: int = 0
    given: dict[int, Version] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)
    received: int = 0
    taken: int = 0
    released: int = 0
    gone: bool = False


class SampleConsumer(Peers[_ProducerPeer]):
    """The end that receives slabs."""

    def __init__(self, spec: StreamSpec, name: str, transport: Transport) -> None:
        self._layout = Layout(spec.record)
        super().__init__(spec, "consumer", name, transport, Arena(0, []))
        self._issued: list[tuple[int, Version]] = []
        self._given = 0
        self._requests: deque[_ProducerPeer] = deque()
        self._arrived: deque[Loan] = deque()
        self._records = {PUT: self._layout}
        self._handlers = {REQUEST: self._on_request, CANCEL: self._on_cancel, PUT: self._on_put, RETURN: self._on_return}

    def credit(self, number: int, min_version: Version) -> None:
        """Permit one slab: the credit goes to the longest wait, or waits for a request. Credits of the dead are given again."""
        heappush(self._issued, (number, min_version))
        self._match()

    def get(self) -> Loan | None:
        """The next slab that has arrived, in order per producer."""
        if not self._arrived:
            return None
        loan = self._arrived.popleft()
        peer = loan.peer
        self.counts.taken += 1
        peer.taken += 1
        if peer.ledger is not None:
            peer.ledger[AT_TAKEN] = peer.taken
        return loan

    def discard(self, reason: str) -> list[int]:
        """Drop all that has arrived; the credits that it used."""
        credits = []
        while (loan := self.get()) is not None:
            credits.append(loan.credit)
            loan.discard(reason)
        return credits

    @property
    def unused_credits(self) -> int:
        """Credits that no slab has used yet."""
        return len(self._issued) + self._given

    def waits(self) -> Waiting | None:
        if self._arrived or not self.unused_credits:
            return None
        return Waiting("slabs", self.workers_of([peer for peer in self._by_name.values() if peer.given]) or self.workers)

    def _match(self) -> None:
        """The lowest credit to the longest wait."""
        while self._issued and self._requests:
            peer = self._requests.popleft()
            peer.requests -= 1
            number, min_version = heappop(self._issued)
            peer.given[number] = min_version
            self._given += 1
            peer.wire.send(CREDIT, 0, number, min_version)

    def _take_back(self, peer: _ProducerPeer, number: int) -> None:
        heappush(self._issued, (number, peer.given.pop(number)))
        self._given -= 1

    # messages -------------------------------------------------------------------------------------------------------

    def _on_request(self, peer: _ProducerPeer, row: int, _number: int, alone: int, _body: Tree | None) -> None:
        if peer.requests >= peer.slots or row >= ROWS:
            self.refuse()
            return
        if peer.ledger is None and peer.words is not None:
            peer.ledger = ledger_row(peer.words, row)
        peer.requests += 1
        self._requests.append(peer)
        if self._issued:
            self._match()
        elif not alone:
            peer.wire.send(WAIT)

    def _on_cancel(self, peer: _ProducerPeer, _slot: int, _number: int, _value: int, _body: Tree | None) -> None:
        if peer.requests:  # else our credit crossed this message, and will come back
            peer.requests -= 1
            self._requests.remove(peer)

    def _on_put(self, peer: _ProducerPeer, slot: int, number: int, _value: int, body: Tree | None) -> None:
        if number not in peer.given or slot >= peer.slots or slot in peer.held:
            self.refuse()
            return
        del peer.given[number]
        self._given -= 1
        peer.held.add(slot)
        peer.received += 1
        self.counts.bytes += self._layout.size
        self._arrived.append(Loan(peer.trees[slot] if body is None else body, number, slot, peer, self))

    def _on_return(self, peer: _ProducerPeer, _slot: int, number: int, _value: int, _body: Tree | None) -> None:
        if number not in peer.given:
            self.refuse()
            return
        self._take_back(peer, number)
        self._match()

    # peers ----------------------------------------------------------------------------------------------------------

    def _join(self, name: str, address: Mapping[str, Any], wire: Wire) -> _ProducerPeer:
        slots, memory = int(address["slots"]), wire.memory
        if memory is None:
            return _ProducerPeer(name, address["source"], wire, slots, [], None)
        arena = slab_arena(self._layout, slots)
        trees = [arena.record(memory, index, writable=False) for index in range(slots)]
        return _ProducerPeer(name, address["source"], wire, slots, trees, arena.words(memory))

    def _detached(self, peer: _ProducerPeer, reason: str) -> Counts:
        """What it has put stays; what it announced but did not hand over is counted as dropped."""
        peer.gone = True
        put, size, dropped = peer.received, peer.received * self._layout.size, 0
        if (ledger := peer.ledger) is not None and ledger[AT_SOURCE] == self.source:
            put, size, dropped = ledger[AT_PUT], ledger[AT_BYTES], ledger[AT_DROPPED]
            if put - dropped > peer.received:
                self.counts.drop(reason, put - dropped - peer.received)
        self._requests = deque(other for other in self._requests if other is not peer)
        for number in list(peer.given):
            self._take_back(peer, number)
        self._match()
        return Counts(put=put, bytes=size, dropped={"discarded": dropped} if dropped else {})

    def _release_memory(self) -> None:
        self._arrived.clear()
        self._requests.clear()
