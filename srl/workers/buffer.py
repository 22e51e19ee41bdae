"""Buffers: slabs come in by one stream and go out by another, once or several times, changed by a transform if one is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from srl.core.load import option
from srl.core.registry import REGISTRIES
from srl.core.spec import TreeSpec
from srl.core.tree import copy_into
from srl.graph.derive import PolicyInfo
from srl.graph.spec import Graph, Node
from srl.replay.fifo import Fifo
from srl.streams.base import End, SampleConsumer, SampleProducer
from srl.workers.base import Context, Port, Worker


@dataclass(frozen=True, kw_only=True)
class BufferArgs:
    size: int = option(8, "slabs held, at most", low=1)
    reuse: int = option(1, "how often each slab goes on", low=1)
    transform: str | None = option(None, "a registered transform, applied to each slab as it comes in")
    transform_args: Mapping[str, Any] = option({}, "settings of the transform")


class BufferWorker(Worker):
    """First in, first out. Nothing is dropped: a full buffer grants nothing."""

    ports = {"source": Port("sample", "consumer"), "sink": Port("sample", "producer")}
    Args = BufferArgs
    args: BufferArgs

    def __init__(self, args: BufferArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        self._source = cast(SampleConsumer, ends["source"])
        self._sink = cast(SampleProducer, ends["sink"])
        record = context.derived.streams[context.node.ports["source"]].record
        self._fifo = Fifo(record, args.size, args.reuse)
        self._granted = 0
        self._draining = False
        self._transform: Any = None
        if args.transform is not None:
            self._transform = REGISTRIES["transform"].resolve(args.transform)(**args.transform_args)

    @classmethod
    def slots(cls, args: BufferArgs, port: str, graph: Graph) -> Mapping[str, int]:
        return {"slots": 3} if port == "sink" else {}

    @classmethod
    def record(
        cls,
        args: BufferArgs,
        port: str,
        node: Node,
        graph: Graph,
        policies: Mapping[str, PolicyInfo],
        records: Mapping[str, TreeSpec],
    ) -> TreeSpec | None:
        """What comes in goes out, with the leaves that the transform adds."""
        source = records.get(node.ports["source"])
        if port != "sink" or source is None:
            return None
        if args.transform is None:
            return source
        adds = REGISTRIES["transform"].resolve(args.transform).adds
        return {**cast("dict[str, Any]", source), **adds}

    def poll(self) -> int:
        """Grant for the room there is, take what has come, pass on what is wanted."""
        done = self._grant()
        while (lease := self._source.get()) is not None:
            self._fifo.put(lease.tree)
            lease.release()
            done += 1
        while len(self._fifo) and (slab := self._sink.alloc()) is not None:
            tree = self._fifo.take()
            target = cast("dict[str, Any]", slab.tree)
            for name, leaf in cast("dict[str, Any]", tree).items():
                copy_into(target[name], leaf)
            if self._transform is not None:
                for name, leaf in self._transform.apply(tree, None).items():
                    copy_into(target[name], leaf)
            self._sink.put(slab)
            done += 1
        self.reading.totals["buffer/held"] = len(self._fifo)
        return done

    def drain(self) -> bool:
        self._draining = True
        while (lease := self._source.get()) is not None:
            lease.discard("stop")
        return True

    def barrier(self, number: int) -> None:
        self.drain()
        self._draining = False
        self._fifo.clear()
        self._granted = self._fifo.put_total

    def _grant(self) -> int:
        """As many grants as slabs can still be held."""
        if self._draining:
            return 0
        before = self._granted
        while self._granted - self._fifo.put_total < self._fifo.room:
            self._source.grant(self._granted, 0)
            self._granted += 1
        return self._granted - before
