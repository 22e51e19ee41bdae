"""Buffers pass slabs from one stream to another, once or several times, through a transform if one is named."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from srl.api.transform import Transform
from srl.core.errors import UserError
from srl.core.load import option
from srl.core.registry import REGISTRIES
from srl.core.spec import TreeSpec
from srl.core.tree import copy_into
from srl.graph.spec import Graph
from srl.plan.specs import Derived
from srl.streams.peers import End
from srl.streams.sample import Loan, SampleConsumer, SampleProducer, Slab
from srl.workers.base import Context, Port, Resumable, Worker
from srl.workers.fifo import Fifo


@dataclass(frozen=True, kw_only=True)
class BufferArgs:
    size: int = option(8, "maximum number of slabs in transit, and of slabs held for reuse", low=1)
    reuse: int = option(1, "maximum times a slab is passed on; never when too stale for the consumer", low=1)
    transform: str | None = option(None, "a registered transform, applied once to each arriving slab")
    transform_args: Mapping[str, Any] = option({}, "settings of the transform")


class BufferWorker(Resumable, Worker):
    """Requests only what its consumer has requested, so the staleness bound holds end to end."""

    ports = {"source": Port("sample", "consumer", divided=True), "sink": Port("sample", "producer")}
    Args = BufferArgs
    noun = "buffer"
    advice = ("a second buffer", "smaller records")
    args: BufferArgs

    def __init__(self, args: BufferArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        self._source = cast(SampleConsumer, ends["source"])
        self._sink = cast(SampleProducer, ends["sink"])
        record = context.derived.streams[context.node.ports["sink"]].record
        self._held = Fifo(record, args.size, args.reuse - 1) if args.reuse > 1 else None
        self._open: deque[Slab] = deque()
        """Open slabs of the sink without a request of our own, oldest first."""
        self._requested: dict[int, Slab] = {}
        """Number of our credit -> the open slab that its slab will fill."""
        self._number = 0
        self._draining = False
        self._transform = _transform_of(args)

    @classmethod
    def sizes(cls, args: BufferArgs, port: str, graph: Graph) -> Mapping[str, int]:
        return {"slots": args.size} if port == "sink" else {}

    @classmethod
    def declares(cls, args: BufferArgs, port: str, derived: Derived, known: Mapping[str, TreeSpec]) -> TreeSpec | None:
        """The record of its source, with the leaves that the transform adds."""
        source = super().declares(args, port, derived, known)
        if source is None:
            return None
        transform = _transform_of(args)
        return source if transform is None else {**cast("dict[str, Any]", source), **cast("dict[str, Any]", transform.adds)}

    def poll(self) -> int:
        """Pass on what has arrived, pass held slabs on again, and request what is still missing."""
        done = 0
        while (loan := self._source.get()) is not None:
            self._pass_on(loan)
            done += 1
        while not self._draining and (slab := self._sink.alloc()) is not None:
            self._open.append(slab)
            done += 1
        if self._held is not None:
            done += self._pass_on_again(self._held)
            self.reading.gauge("buffer/held", len(self._held))
        return done + self._request()

    def drain(self) -> bool:
        self._draining = True
        self._source.discard("stop")
        return True

    def barrier(self, number: int) -> None:
        """Drop what has arrived and request it again; nothing is held over a barrier."""
        for number in self._source.discard("barrier"):
            self._open.appendleft(self._requested.pop(number))
        if self._held is not None:
            self._held.clear()

    def _pass_on(self, loan: Loan) -> None:
        slab = self._requested.pop(loan.credit)
        target, tree = cast("dict[str, Any]", slab.tree), cast("dict[str, Any]", loan.tree)
        for name, leaf in tree.items():
            copy_into(target[name], leaf)
        if self._transform is not None:
            for name, leaf in cast("dict[str, Any]", self._transform.apply(tree)).items():
                copy_into(target[name], leaf)
        loan.release()
        if self._held is not None:
            self._held.put(target)
        self._sink.put(slab)

    def _pass_on_again(self, held: Fifo) -> int:
        """Fill the oldest open slabs with held ones that are fresh enough. One that is too stale is so for all later ones."""
        done = 0
        while self._open and len(held):
            if cast("dict[str, Any]", held.first)["version"][0] < self._open[0].min_version:
                held.drop()
                continue
            slab = self._open.popleft()
            copy_into(slab.tree, held.take())
            cast("dict[str, Any]", slab.tree)["reused"][...] = True
            self._sink.put(slab)
            done += 1
        return done

    def _request(self) -> int:
        """Request a slab for each of the oldest open ones that held slabs and earlier requests will not fill."""
        if self._draining:
            return 0
        room = self.args.size if self._held is None else self._held.room
        again = len(self._requested) * (self.args.reuse - 1) + (0 if self._held is None else self._held.left)
        done = 0
        while len(self._open) > again and len(self._requested) < room:
            slab = self._open.popleft()
            self._requested[self._number] = slab
            self._source.credit(self._number, slab.min_version)
            self._number += 1
            again += self.args.reuse - 1
            done += 1
        return done


def _transform_of(args: BufferArgs) -> Transform | None:
    if args.transform is None:
        return None
    kind = REGISTRIES["transform"].resolve(args.transform)
    try:
        made: Transform = kind(**args.transform_args)
    except TypeError as error:
        raise UserError(
            f"transform `{args.transform}` cannot be made: {error}",
            ("found", f"transform_args: {dict(args.transform_args)}"),
            code="E03",
        ) from error
    return made
