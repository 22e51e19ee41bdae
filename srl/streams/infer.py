"""Infer streams: one open question per group of a client, answered by any server; servers keep nothing between questions.

    client, one group                         server
    post: a new ticket    -- ASK --------->   queued; held until its min_version is there
                                              take: all that queued, stacked, in order of arrival
    ready: the answer     <----- ANSWER ---   reply: to each client its part

    question   none --post--> open --ANSWER with its ticket--> answered --post--> open with the next ticket
               open --the server is detached--> open, asked at the next server with the same ticket
               answered, or another ticket --ANSWER--> ignored

A group keeps to one server, its home. Rows and answers lie in the client's memory where that can be seen, with two words per
group beside them: the open ticket and the one that a server took. The same for every transport.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from srl.core.spec import lead
from srl.core.tree import Array, Tree
from srl.core.types import Counts, Waiting
from srl.streams.base import StreamSpec, Version
from srl.streams.codec import Arena, Layout
from srl.streams.peers import Peer, Peers, in_order, index_of
from srl.streams.transport import ANSWER, ASK, Transport, Wire

Ticket: TypeAlias = int
"""Numbers the questions of one client."""


def block_arena(question: Layout, answer: Layout, groups: int) -> Arena:
    """A client's memory: per group the open ticket and the one last taken, a question slot and an answer slot."""
    return Arena(2 * groups, [layout for _ in range(groups) for layout in (question, answer)])


@dataclass(slots=True)
class Answer:
    """A server's answer to one question; valid until the next post of the same group."""

    tree: Tree
    version: Version


@dataclass(slots=True)
class _Question:
    ticket: Ticket = 0
    rows: Tree | None = None
    min_version: Version = 0
    server: Peer | None = None
    open: bool = False
    answer: Answer | None = None


class InferClient(Peers[Peer]):
    """The end that asks questions. The rows of a question must not change until it is answered."""

    def __init__(self, spec: StreamSpec, name: str, transport: Transport, groups: int = 1, units: int = 1) -> None:
        self._units = units
        self._question = Layout(lead(spec.record, units))
        self._answer = Layout(lead(spec.answer, units))
        arena = block_arena(self._question, self._answer, groups)
        super().__init__(spec, "client", name, transport, arena)
        self._words = arena.words(self._memory)
        self._groups = [_Question() for _ in range(groups)]
        self._slots = [self._question.flat(arena.record(self._memory, 2 * group)) for group in range(groups)]
        self._answers = [arena.record(self._memory, 2 * group + 1, writable=False) for group in range(groups)]
        self._next: Ticket = 1
        self._known: set[str] = set()
        self._homes: list[Peer | None] = [None] * groups
        self._copies = transport.by == "memory"
        self._records = {ASK: self._question, ANSWER: self._answer}
        self._handlers = {ANSWER: self._on_answer}

    def post(self, group: int, rows: Tree, min_version: Version) -> Ticket:
        """Ask for one group: `rows` has [units, ...] leaves, as many units as this client declared for its groups."""
        question = self._groups[group]
        arrays = self._question.checked(rows)
        ticket = self._next
        self._next = ticket + 1
        question.ticket, question.min_version = ticket, min_version
        question.open, question.answer = True, None
        if self._copies:
            for target, source in zip(self._slots[group], arrays, strict=True):
                target[...] = source
        else:
            question.rows = rows
        self._words[2 * group] = ticket
        self._send(group, question, self._homes[group])
        return ticket

    def ready(self, group: int) -> Answer | None:
        """The answer to the group's open question, else None."""
        return self._groups[group].answer

    def waits(self) -> Waiting | None:
        servers = [question.server for question in self._groups if question.open]
        return Waiting("answers", self.workers_of(server for server in servers if server is not None)) if servers else None

    def _send(self, group: int, question: _Question, server: Peer | None) -> None:
        question.server = server
        if server is not None:
            self.counts.put += 1
            self.counts.bytes += self._question.size
            server.wire.send(ASK, group, question.ticket, question.min_version, question.rows)

    def _on_answer(self, server: Peer, group: int, ticket: Ticket, version: Version, body: Tree | None) -> None:
        if group >= len(self._groups):
            self.refuse()
            return
        question = self._groups[group]
        if not question.open or ticket != question.ticket or server is not question.server:
            return  # a second answer, or one to a question that was asked anew
        if version < question.min_version:
            self.refuse()
            return
        question.open, question.rows = False, None
        question.answer = Answer(self._answers[group] if body is None else body, version)
        self.counts.released += 1

    # peers ----------------------------------------------------------------------------------------------------------

    def _sizes(self) -> Mapping[str, Any]:
        return {"groups": len(self._groups), "units": self._units}

    def _join(self, name: str, address: Mapping[str, Any], wire: Wire) -> Peer:
        self._known.add(name)
        return Peer(name, address["source"], wire)

    def _attached(self, peer: Peer) -> None:
        self._ask_open_questions()

    def _detached(self, peer: Peer, reason: str) -> Counts:
        for group, question in enumerate(self._groups):
            if question.open and question.server is peer:
                question.server = None
                if self.transport.by == "bytes" or self._words[2 * group + 1] != question.ticket:  # else it was taken
                    self.counts.drop(reason)
        self._ask_open_questions()
        return Counts()

    def _ask_open_questions(self) -> None:
        """Choose a home for every group (while it is away, the next server), and send it the questions that no server has."""
        names = in_order(self._known)
        for group, question in enumerate(self._groups):
            start = (index_of(self.name) + group) % len(names)
            order = names[start:] + names[:start]
            self._homes[group] = next((self._by_name[name] for name in order if name in self._by_name), None)
            if question.open and question.server is None:
                self._send(group, question, self._homes[group])

    def _release_memory(self) -> None:
        self._words.release()
        self._slots.clear()
        self._answers.clear()
        for question in self._groups:
            question.answer = question.rows = None


@dataclass(slots=True)
class Asked:
    """All questions that were taken together, stacked on axis 0."""

    rows: Tree
    sizes: tuple[int, ...]
    """Units of each question."""
    server: InferServer
    questions: list[_Queued]

    def reply(self, answer: Tree, version: Version) -> None:
        """Send each client its part; [sum(sizes), ...] leaves."""
        server = self.server
        arrays = server._part.checked(answer, sum(self.sizes))
        if len(self.questions) == 1:
            server._answer(self.questions[0], arrays, version)
            return
        start = 0
        for queued, size in zip(self.questions, self.sizes, strict=True):
            server._answer(queued, [array[start : start + size] for array in arrays], version)
            start += size


@dataclass(slots=True, eq=False)
class _ClientPeer(Peer):
    units: int
    groups: int
    size: int
    """Bytes of one question."""
    last: list[Ticket]
    questions: list[Tree] = field(default_factory=list)
    answers: list[list[Array]] = field(default_factory=list)
    words: memoryview | None = None
    """Its memory, where that can be seen."""
    gone: bool = False


@dataclass(slots=True)
class _Queued:
    client: _ClientPeer
    group: int
    ticket: Ticket
    min_version: Version
    rows: Tree
    since: float

    def current(self) -> bool:
        """Whether it has not been replaced by a newer question, as far as the client's memory can be seen."""
        words = self.client.words
        return words is None or words[2 * self.group] == self.ticket


class InferServer(Peers[_ClientPeer]):
    """The end that answers questions. It keeps no state between them."""

    def __init__(self, spec: StreamSpec, name: str, transport: Transport) -> None:
        self._unit = Layout(lead(spec.record, 1))
        self._part = Layout(lead(spec.answer, 1))
        super().__init__(spec, "server", name, transport, Arena(0, []))
        self._queue: deque[_Queued] = deque()
        self._units = 0
        self._stack: list[Array] = []
        """Memory for the rows of several questions, with room for `_room` units."""
        self._room = 0
        self._handlers = {ASK: self._on_ask}

    def take(self, limit: int, version: Version) -> Asked | None:
        """Queued questions, oldest first, up to `limit` units (at least one question), except those that need a newer version.

        The rows are valid until the next `take`.
        """
        if not self._queue:
            return None
        taken, units = self._choose(limit, version)
        if not taken:
            return None
        for queued in taken:
            words = queued.client.words
            if words is not None:
                words[2 * queued.group + 1] = queued.ticket
        self.counts.taken += len(taken)
        rows = taken[0].rows if len(taken) == 1 else self._stacked([queued.rows for queued in taken], units)
        return Asked(rows, tuple([queued.client.units for queued in taken]), self, taken)

    @property
    def queued(self) -> int:
        """Questions that wait for an answer."""
        return len(self._queue)

    def waiting(self) -> tuple[int, float]:
        """(units queued, seconds that the oldest has waited): for min_batch and max_wait."""
        return (self._units, time.monotonic() - self._queue[0].since) if self._queue else (0, 0.0)

    def waits(self) -> Waiting | None:
        """A question that is left in the queue needs newer parameters than any `take` has had."""
        return Waiting("newer parameters") if self._queue else Waiting("questions", self.workers)

    def _choose(self, limit: int, version: Version) -> tuple[list[_Queued], int]:
        only = self._queue[0]
        if len(self._queue) == 1 and only.min_version <= version and only.current():  # the usual case
            self._queue.clear()
            self._units = 0
            return [only], only.client.units
        taken: list[_Queued] = []
        left: list[_Queued] = []
        units = 0
        while self._queue:
            queued = self._queue[0]
            if taken and units + queued.client.units > limit:
                break
            self._queue.popleft()
            if not queued.current():
                self._units -= queued.client.units
                self.counts.drop("stale")
            elif queued.min_version > version:
                left.append(queued)
            else:
                taken.append(queued)
                units += queued.client.units
        self._queue.extendleft(reversed(left))
        self._units -= units
        return taken, units

    def _stacked(self, blocks: list[Tree], units: int) -> Tree:
        """The blocks one after the other, in memory that the next take uses again."""
        if units > self._room:
            shapes = [(units, *shape[1:]) for shape in self._unit.shapes]
            self._stack = [np.empty(shape, dtype) for shape, dtype in zip(shapes, self._unit.dtypes, strict=True)]
            self._room = units
        leaves = [self._unit.flat(block) for block in blocks]
        views = [array[:units] for array in self._stack]
        for index, view in enumerate(views):
            np.concatenate([leaf[index] for leaf in leaves], out=view)
        return self._unit.tree(views)

    def _answer(self, queued: _Queued, arrays: list[Array], version: Version) -> None:
        client = queued.client
        if client.gone or not queued.current():
            return  # if it was asked anew, the slot belongs to the newer question
        if client.words is None:
            client.wire.send(ANSWER, queued.group, queued.ticket, version, self._part.tree(arrays))
            return
        for target, array in zip(client.answers[queued.group], arrays, strict=True):
            target[...] = array
        client.wire.send(ANSWER, queued.group, queued.ticket, version)

    def _on_ask(self, client: _ClientPeer, group: int, ticket: Ticket, min_version: Version, body: Tree | None) -> None:
        if group >= client.groups or ticket <= client.last[group]:
            self.refuse()
            return
        client.last[group] = ticket
        rows = client.questions[group] if body is None else body
        self.counts.bytes += client.size
        self._units += client.units
        self._queue.append(_Queued(client, group, ticket, min_version, rows, time.monotonic()))

    # peers ----------------------------------------------------------------------------------------------------------

    def _bodies(self, address: Mapping[str, Any]) -> Mapping[int, Layout]:
        units = int(address["units"])
        return {ASK: Layout(lead(self.spec.record, units)), ANSWER: Layout(lead(self.spec.answer, units))}

    def _join(self, name: str, address: Mapping[str, Any], wire: Wire) -> _ClientPeer:
        units, groups, memory = int(address["units"]), int(address["groups"]), wire.memory
        client = _ClientPeer(name, address["source"], wire, units, groups, units * self._unit.size, [0] * groups)
        if memory is not None:
            question, answer = self._bodies(address).values()
            arena = block_arena(question, answer, groups)
            client.questions = [arena.record(memory, 2 * group, writable=False) for group in range(groups)]
            client.answers = [answer.flat(arena.record(memory, 2 * group + 1)) for group in range(groups)]
            client.words = arena.words(memory)
        return client

    def _detached(self, peer: _ClientPeer, reason: str) -> Counts:
        peer.gone = True
        kept = [queued for queued in self._queue if queued.client is not peer]
        if len(kept) < len(self._queue):
            self.counts.drop(reason, len(self._queue) - len(kept))
        self._queue = deque(kept)
        self._units = sum(queued.client.units for queued in kept)
        return Counts()

    def _release_memory(self) -> None:
        self._queue.clear()
