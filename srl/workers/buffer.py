"""Buffers: slabs come in by one stream and go out by another, once or several times, changed by a transform if one is named."""

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
from srl.replay.fifo import Fifo
from srl.streams.base import End
from srl.streams.sample import Loan, SampleConsumer, SampleProducer, Slab
from srl.workers.base import Context, Port, Resumable, Worker


@dataclass(frozen=True, kw_only=True)
class BufferArgs:
    size: int = option(8, "slabs on their way through, at most, and as many held for reuse", low=1)
    reuse: int = option(1, "how often a slab goes on, at most: not after it has become too old for its taker", low=1)
    transform: str | None = option(None, "a registered transform, applied once to each slab that comes in")
    transform_args: Mapping[str, Any] = option({}, "settings of the transform")


class BufferWorker(Resumable, Worker):
    """Nothing is asked for that is not wanted behind it: the bound of the staleness holds through a buffer."""

    ports = {"source": Port("sample", "consumer"), "sink": Port("sample", "producer")}
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
        self._wanted: deque[Slab] = deque()
        """Open slabs of the sink, oldest first, for which nothing was asked."""
        self._asked: dict[int, Slab] = {}
        """By the number of our own credit: the slab that what comes is for."""
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
        """Pass on what has come, pass on again what may be used again, and ask for what is still missing."""
        done = 0
        while (loan := self._source.get()) is not None:
            self._pass_on(loan)
            done += 1
        while not self._draining and (slab := self._sink.alloc()) is not None:
            self._wanted.append(slab)
            done += 1
        if self._held is not None:
            done += self._pass_on_again(self._held)
            self.reading.gauge("buffer/held", len(self._held))
        return done + self._ask()

    def drain(self) -> bool:
        self._draining = True
        while (loan := self._source.get()) is not None:
            loan.discard("stop")
        return True

    def barrier(self, number: int) -> None:
        """What has come is dropped and asked for again; nothing is held over a barrier."""
        while (loan := self._source.get()) is not None:
            self._wanted.appendleft(self._asked.pop(loan.credit))
            loan.discard("barrier")
        if self._held is not None:
            self._held.clear()

    def _pass_on(self, loan: Loan) -> None:
        slab = self._asked.pop(loan.credit)
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
        """For the oldest wishes, slabs that are not too old for them; those that are will be for all that follow."""
        done = 0
        while self._wanted and len(held):
            if cast("dict[str, Any]", held.first)["version"][0] < self._wanted[0].min_version:
                held.drop()
                continue
            slab = self._wanted.popleft()
            copy_into(slab.tree, held.take())
            cast("dict[str, Any]", slab.tree)["reused"][...] = True
            self._sink.put(slab)
            done += 1
        return done

    def _ask(self) -> int:
        """For the oldest wishes a slab each, as far as what is held and what is on its way will not do."""
        if self._draining:
            return 0
        room = self.args.size if self._held is None else self._held.room
        again = len(self._asked) * (self.args.reuse - 1) + (0 if self._held is None else self._held.left)
        done = 0
        while len(self._wanted) > again and len(self._asked) < room:
            slab = self._wanted.popleft()
            self._asked[self._number] = slab
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
